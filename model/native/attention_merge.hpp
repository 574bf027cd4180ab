// The few single numbers of attention that every version computes alike: scales of codes and factors of merging.
#pragma once

#include "vector_math.hpp"

namespace tane {

// Numbers become whole multiples of `scale`, at most 32,767 of them, by multiplying with `inverse`.
struct CodeScale {
  float scale, inverse;
  bool is_finite;
};

// For numbers of this greatest magnitude: all zero below 2⁻¹⁰⁰, a NaN scale when one is not finite.
static inline CodeScale code_scale(float greatest) {
  if (!(greatest < __builtin_inff())) return {__builtin_nanf(""), 0.0f, false};
  if (greatest < 0x1.0p-100f) return {0.0f, 0.0f, true};
  return {greatest / 32767.0f, 32767.0f / greatest, true};
}

// ⌈x⌉, and never −0.
static inline float whole_above(float x) { return __builtin_ceilf(x) + 0.0f; }

struct Merging {
  float m, first, second;  // the common exponent, and the powers of two that bring each side to it
};

// 2^k for a whole number k ≤ 0; 0 below the normal range. k may be NaN: then a sum is NaN already and any factor will do.
static inline float whole_power_of_2(float k) {
  return k >= -126.0f ? float_of_bits(static_cast<std::uint32_t>(static_cast<std::int32_t>(k) + 127) << 23) : 0.0f;
}

static inline Merging merging(float first, float second) {
  const float m = second > first ? second : first;
  return {m, whole_power_of_2(first - m), whole_power_of_2(second - m)};
}

}  // namespace tane
