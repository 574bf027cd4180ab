// Random layers, activations and the instruction sets that this machine can run, for the tests and benchmarks of affine layers.
#pragma once

#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "affine.hpp"

namespace tane::test {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<void, Free>;  // its exact size, so that AddressSanitizer sees a byte too far

inline Memory aligned_memory(std::size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 64, bytes == 0 ? 64 : bytes) != 0) std::abort();
  return Memory(memory);
}

inline std::vector<Isa> available_isas() {
  std::vector<Isa> all{Isa::scalar};
  if (best_isa() >= Isa::avx2) all.push_back(Isa::avx2);
  if (best_isa() >= Isa::avx512) all.push_back(Isa::avx512);
  return all;
}

inline std::vector<AffineForm> all_forms() {
  std::vector<AffineForm> forms;
  for (const bool eight : {false, true}) {
    for (const bool centred : {false, true}) {
      for (const bool half : {false, true}) forms.push_back({eight, centred, half});
    }
  }
  return forms;
}

struct Layer {
  AffineWeights weights;
  Memory memory;
};

inline Layer empty_layer(AffineForm form, int outputs, int inputs) {
  Memory memory = aligned_memory(affine_bytes(form, outputs, inputs));
  const AffineWeights weights = affine_place(form, outputs, inputs, memory.get());
  return {weights, std::move(memory)};
}

// Codes over the whole range, scales that float16 holds exactly.
inline Layer random_layer(AffineForm form, int outputs, int inputs, std::mt19937& random) {
  Layer layer = empty_layer(form, outputs, inputs);
  const auto groups = static_cast<std::size_t>(inputs / group_inputs);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(inputs));
  std::vector<float> d(groups), m(groups);
  for (int row = 0; row < outputs; ++row) {
    for (auto& code : codes) code = static_cast<std::uint8_t>(random() % (form.eight_bits ? 256 : 16));
    for (auto& scale : d) scale = static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 0x1.0p-15f;
    for (auto& scale : m) scale = static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 0x1.0p-12f;
    if (!pack_codes(layer.weights, row, codes.data(), d.data(), m.data())) std::abort();
  }
  return layer;
}

inline std::vector<float> random_floats(std::size_t count, std::mt19937& random) {
  std::vector<float> values(count);
  for (auto& value : values) value = static_cast<float>(static_cast<int>(random() % 200001) - 100000) / 30000.0f;
  return values;
}

struct Input {
  Activations view;
  Memory memory;
};

inline Input empty_input(int tokens, int inputs) {
  Memory memory = aligned_memory(activation_bytes(tokens, inputs));
  return {{static_cast<TokenGroup*>(memory.get()), inputs / group_inputs}, std::move(memory)};
}

inline Input quantised(const AffineKernels& kernels, const std::vector<float>& x, int tokens, int inputs) {
  Input input = empty_input(tokens, inputs);
  kernels.quantise(x.data(), static_cast<std::size_t>(inputs), 0, tokens, input.view);
  return input;
}

}  // namespace tane::test
