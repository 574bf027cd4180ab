// Where one weight lies in packed memory (layout in affine.hpp): for the definition and for packing, one number at a time.
#pragma once

#include "affine.hpp"
#include "float16.hpp"

namespace tane {

static constexpr int line_bytes = 64;

static inline int code_centre(AffineForm form) { return form.eight_bits ? 128 : 8; }
static inline int code_limit(AffineForm form) { return form.eight_bits ? 255 : 15; }
static inline std::size_t code_bytes(AffineForm form) { return form.eight_bits ? 8 * line_bytes : 4 * line_bytes; }

// The number of (block, group) pairs before this row's and group's.
static inline std::size_t group_index(const AffineWeights& weights, int row, int group) {
  return static_cast<std::size_t>(row / block_rows) * static_cast<std::size_t>(weights.inputs / group_inputs) +
         static_cast<std::size_t>(group);
}

// The byte that holds input `k` (of the 32) of a group; in the 4-bit form its nibble is the high one where k & 4.
static inline std::uint8_t& code_byte(const AffineWeights& weights, int row, int group, int k) {
  std::uint8_t* lines = weights.codes + group_index(weights, row, group) * code_bytes(weights.form);
  const int line = weights.form.eight_bits ? k / 4 : k / 8;
  return lines[line * line_bytes + row % block_rows * 4 + k % 4];
}

static inline int code_at(const AffineWeights& weights, int row, int group, int k) {
  const int byte = code_byte(weights, row, group, k);
  if (weights.form.eight_bits) return byte;
  return (k & 4) != 0 ? byte >> 4 : byte & 15;
}

// Which number of `scales` is d of this row and group; m lies 16 numbers after it.
static inline std::size_t scale_index(const AffineWeights& weights, int row, int group) {
  return group_index(weights, row, group) * static_cast<std::size_t>(scales_per_group(weights.form)) +
         static_cast<std::size_t>(row % block_rows);
}

static inline float scale_at(const AffineWeights& weights, std::size_t index) {
  if (weights.form.half_scales) return float32_of(static_cast<const std::uint16_t*>(weights.scales)[index]);
  return static_cast<const float*>(weights.scales)[index];
}

}  // namespace tane
