// All linear layers and the head of a model shaped like SmolLM2-135M, on random weights, walked in order again and again: for
// each instruction set and number of tokens the sum over layers of each one's least time, which a busy machine disturbs little. bench_affine [threads] [seconds for each figure] [isa] [tokens...]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include "affine.hpp"
#include "affine_fixtures.hpp"
#include "pool.hpp"

using namespace tane;
using namespace tane::test;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int layers = 30, vocabulary = 49152, width = 576, inner = 1536;
constexpr int shapes[][2] = {{960, width}, {width, width}, {2 * inner, width}, {width, inner}};

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Model {
  std::vector<AffineWeights> linear;
  AffineWeights head;
  std::size_t bytes = 0;
};

// Random codes and small scales straight into one region, as a loader would lay them out.
Model random_model(AffineForm form, AffineForm head_form) {
  std::size_t total = affine_bytes(head_form, vocabulary, width);
  for (const auto& [outputs, inputs] : shapes) total += layers * affine_bytes(form, outputs, inputs);
  void* region = nullptr;
  if (posix_memalign(&region, 1 << 21, total) != 0) std::abort();
  madvise(region, total, MADV_HUGEPAGE);
  Model model;
  auto* next = static_cast<std::uint8_t*>(region);
  std::mt19937 random(1);
  const auto place = [&](AffineForm f, int outputs, int inputs) {
    const std::size_t bytes = affine_bytes(f, outputs, inputs);
    for (std::size_t i = 0; i < bytes; i += 4) {
      const std::uint32_t word = random();
      std::memcpy(next + i, &word, 4);
    }
    const AffineWeights weights = affine_place(f, outputs, inputs, next);
    auto* scales = static_cast<std::uint16_t*>(weights.scales);
    for (std::size_t i = 0; i < static_cast<std::size_t>(next + bytes - static_cast<std::uint8_t*>(weights.scales)) / 2; ++i) {
      scales[i] = static_cast<std::uint16_t>(0x1800 + (scales[i] & 0x3FF));
    }
    next += bytes;
    return weights;
  };
  for (int layer = 0; layer < layers; ++layer) {
    for (const auto& [outputs, inputs] : shapes) model.linear.push_back(place(form, outputs, inputs));
  }
  model.head = place(head_form, vocabulary, width);
  model.bytes = total;
  return model;
}

// What one step does for one layer: quantise the rows, then multiply, both in chunks.
void apply(Pool& pool, const AffineKernels& kernels, const AffineWeights& weights, const float* x, int tokens, const Activations& codes,
           float* y) {
  const auto inputs = static_cast<std::size_t>(weights.inputs);
  static int TC = getenv("TC") ? atoi(getenv("TC")) : 0;
  if (TC && tokens >= 2 * TC) {
    pool.run((tokens + TC - 1) / TC, [&](int chunk) {
      const int begin = chunk * TC, end = begin + TC < tokens ? begin + TC : tokens;
      kernels.quantise(x, inputs, begin, end, codes);
      kernels.multiply(weights, codes, begin, end, 0, affine_blocks(weights.outputs), y, static_cast<std::size_t>(weights.outputs));
    });
    return;
  }
  if (tokens <= 4) {
    kernels.quantise(x, inputs, 0, tokens, codes);
  } else {
    const int tiles = (tokens + tile_tokens - 1) / tile_tokens;
    pool.run(tiles, [&](int tile) {
      const int end = (tile + 1) * tile_tokens;
      kernels.quantise(x, inputs, tile * tile_tokens, end < tokens ? end : tokens, codes);
    });
  }
  const int blocks = affine_blocks(weights.outputs), parts = pool.threads() * 6;
  const int each = (blocks + parts - 1) / parts;
  pool.run((blocks + each - 1) / each, [&](int chunk) {
    const int end = (chunk + 1) * each;
    kernels.multiply(weights, codes, 0, tokens, chunk * each, end < blocks ? end : blocks, y, static_cast<std::size_t>(weights.outputs));
  });
}

std::vector<int> token_counts(int count, char** arguments) {
  std::vector<int> counts;
  for (int i = 4; i < count; ++i) counts.push_back(std::atoi(arguments[i]));
  return counts.empty() ? std::vector<int>{1, 2, 4, 8, 16, 64, 128, 512} : counts;
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 2;
  const double seconds = count > 2 ? std::atof(arguments[2]) : 0.5;
  const char* only = count > 3 ? arguments[3] : "";
  const int most = 512;
  Pool pool(threads);
  const Model model = random_model({false, false, true}, {true, true, true});
  std::mt19937 random(2);
  const std::vector<float> x = random_floats(static_cast<std::size_t>(most) * inner, random);
  const Input codes = empty_input(most, inner);
  std::vector<float> y(static_cast<std::size_t>(128) * vocabulary);
  std::printf("%d threads, %.1f MB of weights\n", threads, static_cast<double>(model.bytes) * 1e-6);
  for (const Isa isa : available_isas()) {
    if (isa == Isa::scalar || (*only != 0 && std::strcmp(only, isa_name(isa)) != 0)) continue;
    const AffineKernels& kernels = affine_kernels(isa);
    for (const int tokens : token_counts(count, arguments)) {
      std::vector<double> least(model.linear.size() + 1, 1e9);
      const auto start = Clock::now();
      for (int repeat = 0; repeat < 3 || since(start) < seconds; ++repeat) {
        const Pool::Call call(pool);
        for (std::size_t i = 0; i < least.size(); ++i) {
          const bool is_head = i == model.linear.size();
          const AffineWeights& weights = is_head ? model.head : model.linear[i];
          const auto begin = Clock::now();
          apply(pool, kernels, weights, x.data(), is_head && tokens > 128 ? 128 : tokens, {codes.view.tiles, weights.inputs / group_inputs}, y.data());
          const double now = since(begin);
          least[i] = now < least[i] ? now : least[i];
        }
      }
      const double head = least.back();
      double linear = 0;
      for (std::size_t i = 0; i + 1 < least.size(); ++i) linear += least[i];
      std::printf("%-6s %4d tokens: linear %7.2f ms (%6.1f G/s)  head of %3d %6.2f ms\n", isa_name(isa), tokens, linear * 1e3,
                  tokens * 0.10617 / linear, tokens < 128 ? tokens : 128, head * 1e3);
    }
  }
}
