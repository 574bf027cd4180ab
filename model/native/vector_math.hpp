// Exponentials, logarithm, sine, cosine and sums in a fixed order: the scalar definitions. No libm transcendental is used.
//
// What always holds: each function is a fixed sequence of IEEE operations, so it gives the same bits on every machine, and
// vector_math_avx2.hpp repeats it lane by lane. Results below the normal range are rounded, never flushed, but for `power_of_2`.
// Sums of many numbers keep one partial sum per lane (lane = index mod 8) and add the lanes in one tree: halves first.
//
// Everything has internal linkage: a copy compiled for another instruction set can never be linked in its place.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tane {

static inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

static inline float float_of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
static inline double double_of_bits(std::uint64_t bits) { return std::bit_cast<double>(bits); }
static inline std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
static inline std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }

// Adding 1.5·2²³ (1.5·2⁵²) rounds to a whole number, half to even, and leaves it in the lowest bits.
constexpr float round_float = 0x1.8p23f;
constexpr double round_double = 0x1.8p52;

// The nearest whole number, half to even, of a |value| below 2²².
static inline int nearest(float value) {
  return static_cast<int>(bits_of(value + round_float) - std::bit_cast<std::uint32_t>(round_float));
}

// The polynomials are minimax fits in relative error over half a binade: 3e-9 (exp), 2e-9 (exp2), 4e-18 (float64).
constexpr float exp_terms[] = {0x1.6a233cp-10f, 0x1.123a6ep-7f, 0x1.5558f4p-5f, 0x1.555490p-3f, 0x1.fffffcp-2f, 1.0f, 1.0f};
constexpr float exp2_terms[] = {
    0x1.41fb98p-13f, 0x1.5f3e84p-10f, 0x1.3b2d4ep-7f, 0x1.c6aee8p-5f, 0x1.ebfbdcp-3f, 0x1.62e430p-1f, 1.0f};
constexpr double exp_double_terms[] = {
    0x1.ad7f1dc8a0b43p-26, 0x1.28add085f3297p-22, 0x1.71df261ed343ap-19, 0x1.a01999ab4f4b8p-16,
    0x1.a01a0129b816ep-13, 0x1.6c16c1844c091p-10, 0x1.1111111127e82p-7,  0x1.55555555507ebp-5,
    0x1.55555555554f9p-3,  0x1.000000000000ap-1,  1.0,                   1.0};

constexpr float log2_e = 0x1.715476p+0f, ln2_high = 0x1.62ep-1f, ln2_low = 0x1.0bfbe8p-15f;
constexpr double log2_e_double = 0x1.71547652b82fep+0, ln2_high_double = 0x1.62e42fefa3000p-1,
                 ln2_low_double = 0x1.3de6af278ece6p-42;
constexpr float exp_lowest = -104.0f, exp_highest = 89.0f;  // beyond these e^x is 0 and infinity
constexpr double exp_double_lowest = -746.0, exp_double_highest = 710.0;

template <typename Number, int count>
static inline Number polynomial(const Number (&terms)[count], Number x) {
  Number sum = terms[0];
  for (int i = 1; i < count; ++i) sum = fused(sum, x, terms[i]);
  return sum;
}

// e^x within 1 ulp: x = n·ln 2 + r, and 2ⁿ in two factors so that no intermediate leaves the range.
static inline float exponential(float x) {
  x = exp_lowest > x ? exp_lowest : x;  // a NaN passes both
  x = exp_highest < x ? exp_highest : x;
  const float shifted = fused(x, log2_e, round_float);
  const float n = shifted - round_float;
  const float r = fused(n, -ln2_low, fused(n, -ln2_high, x));
  const std::uint32_t whole = bits_of(shifted) - std::bit_cast<std::uint32_t>(round_float);
  const std::uint32_t first = static_cast<std::uint32_t>(static_cast<std::int32_t>(whole) >> 1), second = whole - first;
  return polynomial(exp_terms, r) * float_of_bits((first + 127u) << 23) * float_of_bits((second + 127u) << 23);
}

// 2^y within 1 ulp for y ≤ 127; 0 for y < −126, so that no result is subnormal.
static inline float power_of_2(float y) {
  const float shifted = y + round_float;
  const float fraction = y - (shifted - round_float);
  const std::uint32_t whole = bits_of(shifted) - std::bit_cast<std::uint32_t>(round_float);
  const float power = polynomial(exp2_terms, fraction) * float_of_bits((whole + 127u) << 23);
  return y < -126.0f ? 0.0f : power;
}

// e^x in float64 within 1 ulp.
static inline double exponential(double x) {
  x = exp_double_lowest > x ? exp_double_lowest : x;
  x = exp_double_highest < x ? exp_double_highest : x;
  const double n = fused(x, log2_e_double, round_double) - round_double;
  const double r = fused(n, -ln2_low_double, fused(n, -ln2_high_double, x));
  const double half = fused(n, 0.5, round_double);                  // half of n, rounded
  const double other = (n - (half - round_double)) + round_double;  // the rest of it
  const std::uint64_t bias = std::uint64_t{1023} << 52;
  return polynomial(exp_double_terms, r) * double_of_bits((bits_of(half) << 52) + bias) *
         double_of_bits((bits_of(other) << 52) + bias);
}

// The natural logarithm in float64 within 1 ulp, of a positive normal number; anything else gives NaN.
static inline double logarithm(double x) {
  constexpr double terms[] = {0x1.2f0d9a0890194p-3, 0x1.39a0f3c7405d7p-3, 0x1.74664639fcc64p-3, 0x1.c71c51e7add03p-3,
                              0x1.24924942180a2p-2, 0x1.999999997fb28p-2, 0x1.5555555555593p-1};
  constexpr std::uint64_t root_half = 0x3FE6A09E667F3BCDu;  // the bits of √½
  const std::uint64_t bits = bits_of(x);
  if (!(x >= 0x1.0p-1022) || bits >= 0x7FF0000000000000u) return double_of_bits(0x7FF8000000000000u);
  const std::int64_t exponent = static_cast<std::int64_t>(bits - root_half) >> 52;
  const double f = double_of_bits(bits - (static_cast<std::uint64_t>(exponent) << 52)) - 1.0;  // x = 2ᵉ·(1 + f)
  const double s = f / (2.0 + f), z = s * s, half_square = 0.5 * f * f;
  const double rest = s * (half_square + z * polynomial(terms, z));  // log(1 + f) = f − f²/2 + rest
  const double e = static_cast<double>(exponent);
  return e * ln2_high_double - ((half_square - (rest + e * ln2_low_double)) - f);
}

struct SineCosine {
  double sine, cosine;
};

// Both within 1e-15 for 0 ≤ x ≤ 2²⁰: x = n·π/2 + r, the product n·π/2 subtracted in three exact or nearly exact parts.
static inline SineCosine sine_cosine(double x) {
  constexpr double sine_terms[] = {0x1.5d9158d3c377bp-33,  -0x1.ae5e60b0722c6p-26, 0x1.71de3570e0499p-19,
                                   -0x1.a01a019c0a01ap-13, 0x1.111111110f840p-7,   -0x1.5555555555549p-3};
  constexpr double cosine_terms[] = {-0x1.8faccd00598f9p-37, 0x1.1ee9e887a840bp-29,  -0x1.27e4f805252d3p-22,
                                     0x1.a01a019cab5dep-16,  -0x1.6c16c16c1513fp-10, 0x1.555555555554cp-5};
  const double shifted = fused(x, 0x1.45f306dc9c883p-1, round_double), n = shifted - round_double;
  const double r = fused(n, -0x1.3198a2e037073p-69, fused(n, -0x1.0b4611a600000p-34, fused(n, -0x1.921fb54400000p+0, x)));
  const double z = r * r;
  const double sine = fused(r * z, polynomial(sine_terms, z), r);
  const double cosine = fused(z * z, polynomial(cosine_terms, z), fused(z, -0.5, 1.0));
  switch (bits_of(shifted) & 3u) {
    case 0: return {sine, cosine};
    case 1: return {cosine, -sine};
    case 2: return {-sine, -cosine};
    default: return {-cosine, sine};
  }
}

// ((0+4) + (2+6)) + ((1+5) + (3+7)).
template <typename Number>
static inline Number sum_of_8(const Number* lane) {
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static inline double sum_of_4(const double* lane) { return (lane[0] + lane[2]) + (lane[1] + lane[3]); }

}  // namespace tane
