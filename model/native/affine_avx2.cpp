// AVX2, FMA and F16C: a block's 16 rows are two vectors, which share each broadcast of four activations.
// 4 bits: eight maddubs of two products each stay inside int16 (8 * 2 * 15 * 127 = 30,480), then one madd widens them.
// 8 bits: high and low nibbles are summed apart in the same way and joined as 16 * high + low by the widening madd.
#include <immintrin.h>

#include <cstring>

#include "affine.hpp"
#include "affine_ranges.hpp"

namespace tane {
namespace {

__m256i four_codes(const std::int8_t* codes) {
  std::int32_t bits;
  std::memcpy(&bits, codes, 4);
  return _mm256_set1_epi32(bits);
}

__m256i load_line(const std::uint8_t* line) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(line)); }

// sum + products in int16. The empty statement keeps the compiler from regrouping a chain of these, for which it would spill
// every product.
__m256i accumulate(__m256i sum, __m256i weights, __m256i x) {
  sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(weights, x));
  asm("" : "+x"(sum));
  return sum;
}

template <bool HalfScales>
__m256 load_scales(const std::uint8_t* scales, int index) {
  if constexpr (HalfScales) {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(scales + 2 * index)));
  } else {
    return _mm256_load_ps(reinterpret_cast<const float*>(scales + 4 * index));
  }
}

// Integer sums of one group: 16 rows in two halves, by Tokens tokens.
template <int Tokens>
[[gnu::always_inline]] inline void dot_four_bits(const std::uint8_t* codes, const std::int8_t* x, __m256i (&dot)[2][Tokens]) {
  const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
  for (int line = 0; line < 4; ++line) {
    const __m256i packed0 = load_line(codes + 64 * line), packed1 = load_line(codes + 64 * line + 32);
    const __m256i first0 = _mm256_and_si256(packed0, low), second0 = _mm256_and_si256(_mm256_srli_epi16(packed0, 4), low);
    const __m256i first1 = _mm256_and_si256(packed1, low), second1 = _mm256_and_si256(_mm256_srli_epi16(packed1, 4), low);
#pragma GCC unroll 8
    for (int t = 0; t < Tokens; ++t) {
      const __m256i x0 = four_codes(x + group_inputs * t + 8 * line), x1 = four_codes(x + group_inputs * t + 8 * line + 4);
      dot[0][t] = line == 0 ? _mm256_maddubs_epi16(first0, x0) : accumulate(dot[0][t], first0, x0);
      dot[1][t] = line == 0 ? _mm256_maddubs_epi16(first1, x0) : accumulate(dot[1][t], first1, x0);
      dot[0][t] = accumulate(dot[0][t], second0, x1);
      dot[1][t] = accumulate(dot[1][t], second1, x1);
    }
  }
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
  for (int t = 0; t < Tokens; ++t) {
    dot[0][t] = _mm256_madd_epi16(dot[0][t], ones);
    dot[1][t] = _mm256_madd_epi16(dot[1][t], ones);
  }
}

template <int Tokens>
[[gnu::always_inline]] inline void dot_eight_bits(const std::uint8_t* codes, const std::int8_t* x, __m256i (&dot)[2][Tokens]) {
  const __m256i mask = _mm256_set1_epi8(15);
  __m256i low[2][Tokens], high[2][Tokens];
#pragma GCC unroll 8
  for (int line = 0; line < 8; ++line) {
    const __m256i byte0 = load_line(codes + 64 * line), byte1 = load_line(codes + 64 * line + 32);
    const __m256i low0 = _mm256_and_si256(byte0, mask), high0 = _mm256_and_si256(_mm256_srli_epi16(byte0, 4), mask);
    const __m256i low1 = _mm256_and_si256(byte1, mask), high1 = _mm256_and_si256(_mm256_srli_epi16(byte1, 4), mask);
#pragma GCC unroll 8
    for (int t = 0; t < Tokens; ++t) {
      const __m256i quad = four_codes(x + group_inputs * t + 4 * line);
      low[0][t] = line == 0 ? _mm256_maddubs_epi16(low0, quad) : accumulate(low[0][t], low0, quad);
      low[1][t] = line == 0 ? _mm256_maddubs_epi16(low1, quad) : accumulate(low[1][t], low1, quad);
      high[0][t] = line == 0 ? _mm256_maddubs_epi16(high0, quad) : accumulate(high[0][t], high0, quad);
      high[1][t] = line == 0 ? _mm256_maddubs_epi16(high1, quad) : accumulate(high[1][t], high1, quad);
    }
  }
  const __m256i ones = _mm256_set1_epi16(1), sixteens = _mm256_set1_epi16(16);
#pragma GCC unroll 8
  for (int t = 0; t < Tokens; ++t) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      dot[half][t] = _mm256_add_epi32(_mm256_madd_epi16(high[half][t], sixteens), _mm256_madd_epi16(low[half][t], ones));
    }
  }
}

void store_rows(float* y, __m256 low, __m256 high, int rows) {
  if (rows == block_rows) {
    _mm256_storeu_ps(y, low);
    _mm256_storeu_ps(y + 8, high);
    return;
  }
  alignas(32) float all[block_rows];
  _mm256_store_ps(all, low);
  _mm256_store_ps(all + 8, high);
  for (int row = 0; row < rows; ++row) y[row] = all[row];
}

// The next block is fetched while this one is multiplied: as near as it gets for one pass over it, else no nearer than needed.
template <typename F, int Tokens>
[[gnu::always_inline]] inline void prefetch_ahead(const std::uint8_t* codes, const std::uint8_t* scales, int groups) {
  if constexpr (Tokens > 2) {
    prefetch_group<F, _MM_HINT_T1>(codes, scales, groups);
  } else {
    constexpr int most = 8192 / F::code_step;  // a quarter of the first-level cache
    prefetch_group<F, _MM_HINT_T0>(codes, scales, groups < most ? groups : most);
  }
}

// A block of 16 rows by Tokens tokens of one tile, from `lane` on.
template <typename F, int Tokens>
void multiply_tile(const std::uint8_t* codes, const std::uint8_t* scales, int groups, const TokenGroup* x, int lane, float* y,
                   std::size_t y_stride, int rows, bool fetch_ahead) {
  __m256 acc[2][Tokens];
  for (auto& half : acc) {
    for (auto& sum : half) sum = _mm256_setzero_ps();
  }
  for (int group = 0; group < groups; ++group, ++x) {
    if (fetch_ahead) prefetch_ahead<F, Tokens>(codes, scales, groups);
    __m256i dot[2][Tokens];
    if constexpr (F::eight_bits) {
      dot_eight_bits<Tokens>(codes, x->codes[lane], dot);
    } else {
      dot_four_bits<Tokens>(codes, x->codes[lane], dot);
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256 d = load_scales<F::half_scales>(scales, 8 * half);
#pragma GCC unroll 8
      for (int t = 0; t < Tokens; ++t) {
        if constexpr (F::centred) {
          const std::int32_t* centre = F::eight_bits ? x->minus_128_sums : x->minus_8_sums;
          dot[half][t] = _mm256_add_epi32(dot[half][t], _mm256_set1_epi32(centre[lane + t]));
        }
        const __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(x->scale[lane + t]));
        acc[half][t] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dot[half][t]), acc[half][t]);
        if constexpr (!F::centred) {
          const __m256 m = load_scales<F::half_scales>(scales, block_rows + 8 * half);
          acc[half][t] = _mm256_fmadd_ps(m, _mm256_set1_ps(x->scaled_sum[lane + t]), acc[half][t]);
        }
      }
    }
    codes += F::code_step;
    scales += F::scale_step;
  }
#pragma GCC unroll 8
  for (int t = 0; t < Tokens; ++t) store_rows(y + static_cast<std::size_t>(t) * y_stride, acc[0][t], acc[1][t], rows);
}

template <typename F>
constexpr Tiles tiles_of() {
  if constexpr (F::eight_bits) return {{multiply_tile<F, 1>, multiply_tile<F, 2>}, 2, F::code_step, F::scale_step};
  return {{multiply_tile<F, 1>, multiply_tile<F, 2>, multiply_tile<F, 3>, multiply_tile<F, 4>}, 4, F::code_step, F::scale_step};
}

void multiply(const AffineWeights& weights, const Activations& x, int token_begin, int token_end, int block_begin,
              int block_end, float* y, std::size_t y_stride) {
  static constexpr Tiles tiles[8] = {
      tiles_of<Form<false, false, false>>(), tiles_of<Form<false, false, true>>(), tiles_of<Form<false, true, false>>(),
      tiles_of<Form<false, true, true>>(),   tiles_of<Form<true, false, false>>(), tiles_of<Form<true, false, true>>(),
      tiles_of<Form<true, true, false>>(),   tiles_of<Form<true, true, true>>()};
  multiply_range(tiles[form_index(weights.form)], weights, x, token_begin, token_end, block_begin, block_end, y, y_stride);
}

// The activations of one group, as affine_scalar.cpp defines them.
struct Group {
  float scale, inverse;
};

__m256i magnitudes(__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7FFFFFFF)); }

Group group_scale(const __m256 (&x)[4]) {
  const __m256i half0 = _mm256_max_epi32(magnitudes(x[0]), magnitudes(x[1]));
  const __m256i half1 = _mm256_max_epi32(magnitudes(x[2]), magnitudes(x[3]));
  const __m256i all = _mm256_max_epi32(half0, half1);
  __m128i top = _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  top = _mm_max_epi32(top, _mm_shuffle_epi32(top, 0x4E));
  top = _mm_max_epi32(top, _mm_shuffle_epi32(top, 0xB1));
  const int bits = _mm_cvtsi128_si32(top);
  if (bits >= 0x7F800000) return {_mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(0x7FC00000))), 0};
  if (bits < 0x0D800000) return {0, 0};
  const float scale = _mm_cvtss_f32(_mm_castsi128_ps(top)) / 127.0f;
  return {scale, 1.0f / scale};
}

// 32 codes in order, rounded half to even by the conversion.
__m256i group_codes(const __m256 (&x)[4], float inverse) {
  const __m256 by = _mm256_set1_ps(inverse);
  const __m256i code0 = _mm256_cvtps_epi32(_mm256_mul_ps(x[0], by)), code1 = _mm256_cvtps_epi32(_mm256_mul_ps(x[1], by));
  const __m256i code2 = _mm256_cvtps_epi32(_mm256_mul_ps(x[2], by)), code3 = _mm256_cvtps_epi32(_mm256_mul_ps(x[3], by));
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(code0, code1), _mm256_packs_epi32(code2, code3));
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));  // packs keeps 128-bit halves apart
}

int sum_codes(__m256i codes) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
  const __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(quads), _mm256_extracti128_si256(quads, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1));
  return _mm_cvtsi128_si32(sum);
}

void quantise_group(const float* values, TokenGroup& out, int lane) {
  const __m256 x[4] = {_mm256_loadu_ps(values), _mm256_loadu_ps(values + 8), _mm256_loadu_ps(values + 16),
                       _mm256_loadu_ps(values + 24)};
  const Group group = group_scale(x);
  const __m256i codes = group.inverse == 0 ? _mm256_setzero_si256() : group_codes(x, group.inverse);
  const int sum = sum_codes(codes);
  _mm256_store_si256(reinterpret_cast<__m256i*>(out.codes[lane]), codes);
  out.scale[lane] = group.scale;
  out.scaled_sum[lane] = group.scale * static_cast<float>(sum);
  out.minus_8_sums[lane] = -8 * sum;
  out.minus_128_sums[lane] = -128 * sum;
}

void quantise(const float* x, std::size_t x_stride, int token_begin, int token_end, const Activations& out) {
  for (int token = token_begin; token < token_end; ++token) {
    const float* row = x + static_cast<std::size_t>(token) * x_stride;
    TokenGroup* tile = out.tiles + static_cast<std::size_t>(token / tile_tokens) * static_cast<std::size_t>(out.groups);
    for (int group = 0; group < out.groups; ++group) {
      quantise_group(row + group * group_inputs, tile[group], token % tile_tokens);
    }
  }
}

}  // namespace

const AffineKernels& affine_avx2() {
  static constexpr AffineKernels kernels{quantise, multiply};
  return kernels;
}

}  // namespace tane
