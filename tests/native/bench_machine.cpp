// What the machine can do at most, which the kernels' rates are read against: bytes that all threads read from memory in a
// second, and multiply-adds of bytes by each instruction set's own product, on registers.
// bench_machine [threads] [seconds for each figure] prints one line of JSON.
#include <immintrin.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include "isa.hpp"

using namespace tane;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t bytes_each = std::size_t{256} << 20;  // for each thread: far more than any cache keeps
constexpr int loops = 1 << 19;  // half a millisecond: starting a thread is little beside it

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Runs `work` on every thread at once, again and again for some seconds; the best rate of all threads together.
template <typename Work>
double best_rate(int threads, double seconds, double done_by_one, const Work& work) {
  double best = 0;
  const auto start = Clock::now();
  do {
    std::vector<std::thread> running;
    const auto begin = Clock::now();
    for (int thread = 0; thread < threads; ++thread) running.emplace_back([&, thread] { work(thread); });
    for (std::thread& each : running) each.join();
    const double rate = threads * done_by_one / since(begin);
    best = rate > best ? rate : best;
  } while (since(start) < seconds);
  return best;
}

std::atomic<std::uint64_t> sink;

__attribute__((target("avx2"))) void read_all(const std::uint8_t* bytes) {
  __m256i sums[4] = {};
  for (std::size_t i = 0; i < bytes_each; i += 128) {
    for (int k = 0; k < 4; ++k) {
      sums[k] = _mm256_xor_si256(sums[k], _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes + i + 32 * k)));
    }
  }
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
  sink += static_cast<std::uint64_t>(_mm256_extract_epi64(all, 0));
}

// Products of 32 bytes and sums of 16 bits, as the kernels do before they widen. Every product and every sum differs from the
// others, or the compiler would make only one of them.
__attribute__((target("avx2"))) void multiply_avx2(int) {
  constexpr int chains = 6;
  __m256i sums[chains], x[chains], q = _mm256_set1_epi8(5);
  for (int k = 0; k < chains; ++k) sums[k] = x[k] = _mm256_set1_epi8(static_cast<char>(k));
  for (int i = 0; i < loops; ++i) {
    asm volatile("" : "+x"(q));
#pragma GCC unroll 6
    for (int k = 0; k < chains; ++k) sums[k] = _mm256_add_epi16(sums[k], _mm256_maddubs_epi16(q, x[k]));
  }
  for (int k = 1; k < chains; ++k) sums[0] = _mm256_xor_si256(sums[0], sums[k]);
  sink += static_cast<std::uint64_t>(_mm256_extract_epi64(sums[0], 0));
}
constexpr double done_avx2 = 6.0 * 32 * loops;

__attribute__((target("avx512f,avx512vnni"))) void multiply_avx512(int) {
  constexpr int chains = 12;
  __m512i sums[chains], x[chains], q = _mm512_set1_epi32(0x05050505);
  for (int k = 0; k < chains; ++k) sums[k] = x[k] = _mm512_set1_epi32(k);
  for (int i = 0; i < loops; ++i) {
    asm volatile("" : "+v"(q));
#pragma GCC unroll 12
    for (int k = 0; k < chains; ++k) sums[k] = _mm512_dpbusd_epi32(sums[k], q, x[k]);
  }
  for (int k = 1; k < chains; ++k) sums[0] = _mm512_xor_si512(sums[0], sums[k]);
  std::uint64_t lanes[8];
  _mm512_storeu_si512(lanes, sums[0]);
  sink += lanes[0];
}
constexpr double done_avx512 = 12.0 * 64 * loops;

std::uint8_t* fresh_memory(std::size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 1 << 21, bytes) != 0) std::abort();
  madvise(memory, bytes, MADV_HUGEPAGE);
  auto* first = static_cast<std::uint8_t*>(memory);
  for (std::size_t i = 0; i < bytes; i += 64) first[i] = static_cast<std::uint8_t>(i >> 6);
  return first;
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 2;
  const double seconds = count > 2 ? std::atof(arguments[2]) : 0.5;
  if (best_isa() < Isa::avx2) {
    std::fprintf(stderr, "this machine has no AVX2\n");
    return 1;
  }
  const std::uint8_t* memory = fresh_memory(static_cast<std::size_t>(threads) * bytes_each);
  const double bytes = best_rate(threads, seconds, bytes_each, [&](int thread) {
    read_all(memory + static_cast<std::size_t>(thread) * bytes_each);
  });
  std::printf("{\"threads\": %d, \"read_bytes_per_second\": %.4g, ", threads, bytes);
  std::printf("\"multiply_adds_per_second\": {\"avx2\": %.4g", best_rate(threads, seconds, done_avx2, multiply_avx2));
  if (best_isa() >= Isa::avx512) {
    std::printf(", \"avx512\": %.4g", best_rate(threads, seconds, done_avx512, multiply_avx512));
  }
  std::printf("}}\n");
}
