// All linear layers and the head of a model shaped like SmolLM2-135M, on random weights, walked in order again and again: for
// each instruction set and number of tokens the sum over layers of each one's least time, so that a busy machine disturbs it
// little.
// bench_affine [threads] [seconds for each figure] [avx2|avx512|all] [tokens, 1 to 512...]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include <sys/mman.h>

#include "affine.hpp"
#include "affine_fixtures.hpp"
#include "pool.hpp"

using namespace tane;
using namespace tane::test;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int layers = 30, vocabulary = 49152, width = 576, inner = 1536, most_tokens = 512, most_head_tokens = 128;
constexpr int shapes[][2] = {{960, width}, {width, width}, {2 * inner, width}, {width, inner}};

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Model {
  std::vector<AffineWeights> linear;
  AffineWeights head;
  std::size_t bytes = 0;
};

// Random codes and small scales at `memory`.
AffineWeights random_weights(AffineForm form, int outputs, int inputs, std::uint8_t* memory, std::mt19937& random) {
  const std::size_t bytes = affine_bytes(form, outputs, inputs);
  for (std::size_t i = 0; i < bytes; i += 4) {
    const std::uint32_t word = random();
    std::memcpy(memory + i, &word, 4);
  }
  const AffineWeights weights = affine_place(form, outputs, inputs, memory);
  auto* scales = static_cast<std::uint16_t*>(weights.scales);
  auto* end = reinterpret_cast<std::uint16_t*>(memory + bytes);
  for (; scales != end; ++scales) *scales = static_cast<std::uint16_t>(0x1800 + (*scales & 0x3FF));
  return weights;
}

// One region for all, as a loader would lay them out.
Model random_model(AffineForm form, AffineForm head_form) {
  Model model;
  model.bytes = affine_bytes(head_form, vocabulary, width);
  for (const auto& [outputs, inputs] : shapes) model.bytes += layers * affine_bytes(form, outputs, inputs);
  void* region = nullptr;
  if (posix_memalign(&region, 1 << 21, model.bytes) != 0) std::abort();
  madvise(region, model.bytes, MADV_HUGEPAGE);
  auto* next = static_cast<std::uint8_t*>(region);
  std::mt19937 random(1);
  for (int layer = 0; layer < layers; ++layer) {
    for (const auto& [outputs, inputs] : shapes) {
      model.linear.push_back(random_weights(form, outputs, inputs, next, random));
      next += affine_bytes(form, outputs, inputs);
    }
  }
  model.head = random_weights(head_form, vocabulary, width, next, random);
  return model;
}

struct Work {
  Pool& pool;
  const AffineKernels& kernels;
  const AffineWeights& weights;
  int tokens;
  const float* x;
  Activations codes;
  float* y;

  void quantise(int begin, int end) const { kernels.quantise(x, static_cast<std::size_t>(weights.inputs), begin, end, codes); }
  void multiply(int begin, int end, int block_begin, int block_end) const {
    kernels.multiply(weights, codes, begin, end, block_begin, block_end, y, static_cast<std::size_t>(weights.outputs));
  }

  // Many tokens: a thread quantises and multiplies its own.
  void run_by_tokens() const {
    const int share = tokens / pool.threads() / 2 / tile_tokens * tile_tokens, each = std::clamp(share, 16, 64);
    pool.run((tokens + each - 1) / each, [&](int chunk) {
      const int begin = chunk * each, end = std::min(begin + each, tokens);
      quantise(begin, end);
      multiply(begin, end, 0, affine_blocks(weights.outputs));
    });
  }

  // Few tokens: quantised by the caller, then each thread reads its own part of the weights.
  void run_by_blocks() const {
    quantise(0, tokens);
    const int blocks = affine_blocks(weights.outputs), parts = pool.threads() * 6, each = (blocks + parts - 1) / parts;
    pool.run((blocks + each - 1) / each, [&](int chunk) {
      multiply(0, tokens, chunk * each, std::min((chunk + 1) * each, blocks));
    });
  }

  void run() const { tokens >= 16 * pool.threads() ? run_by_tokens() : run_by_blocks(); }
};

struct Times {
  double linear, head;
};

Times least_times(Pool& pool, const AffineKernels& kernels, const Model& model, int tokens, double seconds) {
  static const std::vector<float> x = [] {
    std::mt19937 random(2);
    return random_floats(static_cast<std::size_t>(most_tokens) * inner, random);
  }();
  static const Input codes = empty_input(most_tokens, inner);
  static std::vector<float> y(static_cast<std::size_t>(most_head_tokens) * vocabulary);
  std::vector<AffineWeights> all = model.linear;
  all.push_back(model.head);
  std::vector<double> least(all.size(), 1e9);
  const auto start = Clock::now();
  for (int repeat = 0; repeat < 3 || since(start) < seconds; ++repeat) {
    const Pool::Call call(pool);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const int rows = i + 1 == all.size() ? std::min(tokens, most_head_tokens) : tokens;
      const Activations view{codes.view.tiles, all[i].inputs / group_inputs};
      const auto begin = Clock::now();
      Work{pool, kernels, all[i], rows, x.data(), view, y.data()}.run();
      least[i] = std::min(least[i], since(begin));
    }
  }
  return {std::accumulate(least.begin(), least.end() - 1, 0.0), least.back()};
}

std::vector<int> token_counts(int count, char** arguments) {
  std::vector<int> counts;
  for (int i = 4; i < count; ++i) counts.push_back(std::clamp(std::atoi(arguments[i]), 1, most_tokens));
  return counts.empty() ? std::vector<int>{1, 2, 4, 8, 16, 64, 128, 512} : counts;
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 2;
  const double seconds = count > 2 ? std::atof(arguments[2]) : 0.5;
  const char* only = count > 3 ? arguments[3] : "all";
  Pool pool(threads);
  const Model model = random_model({false, false, true}, {true, true, true});
  std::printf("%d threads, %.1f MB of weights\n", threads, static_cast<double>(model.bytes) * 1e-6);
  for (const Isa isa : available_isas()) {
    if (isa == Isa::scalar || (std::strcmp(only, "all") != 0 && std::strcmp(only, isa_name(isa)) != 0)) continue;
    for (const int tokens : token_counts(count, arguments)) {
      const Times times = least_times(pool, affine_kernels(isa), model, tokens, seconds);
      std::printf("%-6s %4d tokens: linear %7.2f ms (%6.1f G/s)  head of %3d %6.2f ms\n", isa_name(isa), tokens,
                  times.linear * 1e3, tokens * 0.10617 / times.linear, std::min(tokens, most_head_tokens), times.head * 1e3);
    }
  }
}
