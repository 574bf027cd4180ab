// The functions of vector_math.hpp on vectors: every lane goes through the operations of the scalar definition, in its order.
// Only for files compiled with AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include "vector_math.hpp"

namespace tane {

template <int count>
static inline __m256 polynomial(const float (&terms)[count], __m256 x) {
  __m256 sum = _mm256_set1_ps(terms[0]);
#pragma GCC unroll 16
  for (int i = 1; i < count; ++i) sum = _mm256_fmadd_ps(sum, x, _mm256_set1_ps(terms[i]));
  return sum;
}

template <int count>
static inline __m256d polynomial(const double (&terms)[count], __m256d x) {
  __m256d sum = _mm256_set1_pd(terms[0]);
#pragma GCC unroll 16
  for (int i = 1; i < count; ++i) sum = _mm256_fmadd_pd(sum, x, _mm256_set1_pd(terms[i]));
  return sum;
}

[[gnu::noinline, gnu::cold]] static __m256 exponential_at_the_ends(__m256 x) {
  x = _mm256_max_ps(_mm256_set1_ps(exp_lowest), x);  // the second operand is returned when one is NaN
  x = _mm256_min_ps(_mm256_set1_ps(exp_highest), x);
  const __m256 round = _mm256_set1_ps(round_float);
  const __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(log2_e), round);
  const __m256 n = _mm256_sub_ps(shifted, round);
  const __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(ln2_low), _mm256_fnmadd_ps(n, _mm256_set1_ps(ln2_high), x));
  const __m256i whole = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(round));
  const __m256i first = _mm256_srai_epi32(whole, 1), second = _mm256_sub_epi32(whole, first);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256 low = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23));
  const __m256 high = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23));
  return _mm256_mul_ps(_mm256_mul_ps(polynomial(exp_terms, r), low), high);
}

// Where every result is normal, multiplying with 2ⁿ is adding n to the exponent: the same bits with fewer steps.
static inline __m256 exponential(__m256 x) {
  const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
  if (_mm256_movemask_ps(_mm256_cmp_ps(magnitude, _mm256_set1_ps(86.0f), _CMP_NLE_UQ)) != 0) return exponential_at_the_ends(x);
  const __m256 round = _mm256_set1_ps(round_float);
  const __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(log2_e), round);
  const __m256 n = _mm256_sub_ps(shifted, round);
  const __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(ln2_low), _mm256_fnmadd_ps(n, _mm256_set1_ps(ln2_high), x));
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(polynomial(exp_terms, r)), exponent));
}

static inline __m256 power_of_2(__m256 y) {
  const __m256 round = _mm256_set1_ps(round_float);
  const __m256 shifted = _mm256_add_ps(y, round);
  const __m256 fraction = _mm256_sub_ps(y, _mm256_sub_ps(shifted, round));
  // Adding 127 before the shift is adding 127 less the magic number's bits, whose low nine bits are zero, to these bits.
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(127)), 23);
  const __m256 power = _mm256_mul_ps(polynomial(exp2_terms, fraction), _mm256_castsi256_ps(exponent));
  return _mm256_and_ps(_mm256_cmp_ps(y, _mm256_set1_ps(-126.0f), _CMP_NLT_UQ), power);
}

[[gnu::noinline, gnu::cold]] static __m256d exponential_at_the_ends(__m256d x) {
  x = _mm256_max_pd(_mm256_set1_pd(exp_double_lowest), x);
  x = _mm256_min_pd(_mm256_set1_pd(exp_double_highest), x);
  const __m256d round = _mm256_set1_pd(round_double);
  const __m256d n = _mm256_sub_pd(_mm256_fmadd_pd(x, _mm256_set1_pd(log2_e_double), round), round);
  const __m256d r =
      _mm256_fnmadd_pd(n, _mm256_set1_pd(ln2_low_double), _mm256_fnmadd_pd(n, _mm256_set1_pd(ln2_high_double), x));
  const __m256d half = _mm256_fmadd_pd(n, _mm256_set1_pd(0.5), round);
  const __m256d other = _mm256_add_pd(_mm256_sub_pd(n, _mm256_sub_pd(half, round)), round);
  const __m256i bias = _mm256_set1_epi64x(std::int64_t{1023} << 52);
  const __m256d low = _mm256_castsi256_pd(_mm256_add_epi64(_mm256_slli_epi64(_mm256_castpd_si256(half), 52), bias));
  const __m256d high = _mm256_castsi256_pd(_mm256_add_epi64(_mm256_slli_epi64(_mm256_castpd_si256(other), 52), bias));
  return _mm256_mul_pd(_mm256_mul_pd(polynomial(exp_double_terms, r), low), high);
}

static inline __m256d exponential(__m256d x) {
  const __m256d magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), x);
  if (_mm256_movemask_pd(_mm256_cmp_pd(magnitude, _mm256_set1_pd(707.0), _CMP_NLE_UQ)) != 0) return exponential_at_the_ends(x);
  const __m256d round = _mm256_set1_pd(round_double);
  const __m256d shifted = _mm256_fmadd_pd(x, _mm256_set1_pd(log2_e_double), round);
  const __m256d n = _mm256_sub_pd(shifted, round);
  const __m256d r =
      _mm256_fnmadd_pd(n, _mm256_set1_pd(ln2_low_double), _mm256_fnmadd_pd(n, _mm256_set1_pd(ln2_high_double), x));
  const __m256i exponent = _mm256_slli_epi64(_mm256_castpd_si256(shifted), 52);
  return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(polynomial(exp_double_terms, r)), exponent));
}

static inline float sum_of_8(__m256 lanes) {
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

static inline double sum_of_4(__m256d lanes) {
  const __m128d pair = _mm_add_pd(_mm256_castpd256_pd128(lanes), _mm256_extractf128_pd(lanes, 1));
  return _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)));
}

// The greatest lane; lanes without NaN.
static inline float greatest_of_8(__m256 lanes) {
  const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

static inline std::int32_t greatest_of_8(__m256i lanes) {
  const __m128i quarter = _mm_max_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  const __m128i pair = _mm_max_epi32(quarter, _mm_unpackhi_epi64(quarter, quarter));
  return _mm_cvtsi128_si32(_mm_max_epi32(pair, _mm_shuffle_epi32(pair, 1)));
}

}  // namespace tane
