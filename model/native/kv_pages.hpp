// Storage of keys and values: pages of 32 positions, for every layer and key/value head, as float16 or as int8.
//
// int8: each head's vector at each position has its own float32 scale s = absmax / 127, codes are x · (127 / absmax) rounded half
// to even. A vector whose absmax is below 2⁻¹⁰⁰ is zero (s = 0); one with a number that is not finite has s = NaN and codes 0.
// float16: each number rounded half to even; one that is not finite, or too great for the format, becomes NaN.
//
// Layout: memory[layer][page][head] is one piece of `head_bytes`; inside it, for head width D (a multiple of 8):
//
//   int8     keys    [D / 2 pairs of inputs][32 positions][2 inputs]     32·D bytes   vector lanes are positions
//            scales  [32 positions] float32                              128 bytes
//            values  [16 pairs of positions][D inputs][2 positions]      32·D bytes   vector lanes are inputs
//            scales  [32 positions] float32                              128 bytes
//   float16  keys    [D inputs][32 positions]                            64·D bytes   vector lanes are positions
//            values  [32 positions][D inputs]                            64·D bytes   vector lanes are inputs
//
// So scores of eight positions and outputs of eight inputs arise in lanes, and attention needs no horizontal sum. Pairs stand
// together because one instruction multiplies and adds two int16 numbers.
//
// Knows no sequences: what a page holds, and who may write it, is the caller's. Always: `store` writes the bytes of one
// position of one head and reads none, so threads may store different positions of a page at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "float16.hpp"
#include "isa.hpp"

namespace tane {

constexpr int page_positions = 32;

enum class KvType : std::uint8_t { float16, int8 };

struct KvShape {
  KvType type;
  int layers, kv_heads, head_width, pages;

  constexpr std::size_t codes_bytes() const {  // of the keys or the values of one head
    return static_cast<std::size_t>(page_positions) * head_width * (type == KvType::int8 ? 1 : 2);
  }
  constexpr std::size_t head_bytes() const {
    return 2 * codes_bytes() + (type == KvType::int8 ? 2 * page_positions * sizeof(float) : 0);
  }
  constexpr std::size_t page_bytes() const { return head_bytes() * kv_heads; }  // of one layer
  constexpr std::size_t layer_bytes() const { return page_bytes() * pages; }
  constexpr std::size_t total_bytes() const { return layer_bytes() * layers; }
};

// Whether the kernels can work on this shape: head width a multiple of 8 up to 256. Else refuse the model at load.
bool kv_supports(int kv_heads, int head_width);

// One head of one page of one layer.
struct KvHead {
  std::byte* memory;
  std::size_t codes_bytes;

  std::int8_t* int8_keys() const { return reinterpret_cast<std::int8_t*>(memory); }
  float* key_scales() const { return reinterpret_cast<float*>(memory + codes_bytes); }
  std::int8_t* int8_values() const {
    return reinterpret_cast<std::int8_t*>(memory + codes_bytes + page_positions * sizeof(float));
  }
  float* value_scales() const { return reinterpret_cast<float*>(memory + 2 * codes_bytes + page_positions * sizeof(float)); }
  Float16* float16_keys() const { return reinterpret_cast<Float16*>(memory); }
  Float16* float16_values() const { return reinterpret_cast<Float16*>(memory + codes_bytes); }
};

struct KvPages {
  KvShape shape;
  std::byte* memory;  // total_bytes, aligned to 64; pages never written may be left untouched

  KvHead head(int layer, int page, int kv_head) const {
    return {memory + layer * shape.layer_bytes() + page * shape.page_bytes() + kv_head * shape.head_bytes(),
            shape.codes_bytes()};
  }
};

// Copies the first `positions` positions of one page into another, in every layer, and touches no other position.
void copy_positions(const KvPages& pages, int source, int target, int positions);

// Makes a page's every number NaN, or as close to it as codes can be: for tests that nothing unwritten is ever used.
void poison(const KvPages& pages, int page);

struct KvKernels {
  // Writes a row's rotated keys and its values, [kv_heads][head_width] each, at one position (0 … 31) of a page.
  void (*store)(const KvPages& pages, int layer, int page, int position, const float* keys, const float* values);
};

const KvKernels& kv_scalar();  // the definition
const KvKernels& kv_avx2();
const KvKernels& kv_kernels(Isa isa);

}  // namespace tane
