// IEEE half precision as 16 bits: exact to float32, and rounded half to even from float32, as F16C hardware does it.
// Always: NaN stays a (quiet) NaN, infinities and subnormals are kept.
#pragma once

#include <bit>
#include <cstdint>

namespace tane {

using Float16 = std::uint16_t;

static inline float float32_of(Float16 half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
  const std::uint32_t rest = half & 0x7FFFu;
  if (rest >= 0x7C00u) {  // infinity or NaN; a signalling NaN turns quiet
    const std::uint32_t quiet = rest > 0x7C00u ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7F800000u | (rest & 0x3FFu) << 13 | quiet);
  }
  if (rest < 0x400u) {  // zero or subnormal: a whole number of 2⁻²⁴
    const float magnitude = static_cast<float>(rest) * 0x1.0p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((rest << 13) + (std::uint32_t{127 - 15} << 23)));
}

static inline Float16 float16_of(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, rest = bits & 0x7FFFFFFFu;
  if (rest > 0x7F800000u) return static_cast<Float16>(sign | 0x7E00u | (rest >> 13 & 0x3FFu));
  if (rest >= 0x47800000u) return static_cast<Float16>(sign | 0x7C00u);  // 2¹⁶ and beyond, infinity
  if (rest < 0x38800000u) {  // below 2⁻¹⁴: adding ½ leaves the units of 2⁻²⁴ in the lowest bits, rounded
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return static_cast<Float16>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u));
  }
  const std::uint32_t odd = rest >> 13 & 1u;
  return static_cast<Float16>(sign | ((rest - (std::uint32_t{127 - 15} << 23) + 0xFFFu + odd) >> 13));
}

}  // namespace tane
