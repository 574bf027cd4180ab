// AVX-512 with VNNI: a block's 16 rows are one vector, and vpdpbusd adds four products to each row's int32 sum, activations
// being broadcast from memory as its operand. Sums of integers are exact, so this equals the definition like every other way.
#include <immintrin.h>

#include <cstring>

#include "affine.hpp"
#include "affine_ranges.hpp"

namespace tane {
namespace {

// Conversions are written with a full mask, which costs nothing: GCC 12 warns of its own header's unmasked ones.
constexpr __mmask16 all_lanes = 0xFFFF;

__m512i four_codes(const std::int8_t* codes) {
  std::int32_t bits;
  std::memcpy(&bits, codes, 4);
  return _mm512_set1_epi32(bits);
}

template <bool HalfScales>
__m512 load_scales(const std::uint8_t* scales, int index) {
  if constexpr (HalfScales) {
    return _mm512_maskz_cvtph_ps(all_lanes, _mm256_load_si256(reinterpret_cast<const __m256i*>(scales + 2 * index)));
  } else {
    return _mm512_load_ps(scales + 4 * index);
  }
}

// The 32 codes of each row as eight vectors of four.
template <bool EightBits>
void unpack_group(const std::uint8_t* codes, __m512i (&weights)[8]) {
  if constexpr (EightBits) {
#pragma GCC unroll 8
    for (int line = 0; line < 8; ++line) weights[line] = _mm512_load_si512(codes + 64 * line);
  } else {
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int line = 0; line < 4; ++line) {
      const __m512i packed = _mm512_load_si512(codes + 64 * line);
      weights[2 * line] = _mm512_and_si512(packed, low);
      weights[2 * line + 1] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), low);
    }
  }
}

// With three tokens or more the next block is fetched into the second-level cache; with fewer, bound by memory, the machine's
// own prefetching is the best.
template <typename F, int Tokens>
[[gnu::always_inline]] inline void prefetch_ahead(const std::uint8_t* codes, const std::uint8_t* scales, int groups) {
  if constexpr (Tokens > 2) prefetch_group<F, _MM_HINT_T1>(codes, scales, groups);
}

// A block of 16 rows, of which `rows` are written, by Tokens tokens of one tile, from `lane` on.
template <typename F, int Tokens>
void multiply_tile(const std::uint8_t* codes, const std::uint8_t* scales, int groups, const TokenGroup* x, int lane, float* y,
                   std::size_t y_stride, int rows, bool fetch_ahead) {
  __m512 acc[Tokens];
  for (auto& sum : acc) sum = _mm512_setzero_ps();
  for (int group = 0; group < groups; ++group, ++x) {
    if (fetch_ahead) prefetch_ahead<F, Tokens>(codes, scales, groups);
    __m512i weights[8];
    unpack_group<F::eight_bits>(codes, weights);
    const __m512 d = load_scales<F::half_scales>(scales, 0);
    const std::int8_t* quads = x->codes[lane];
    const std::int32_t* centre = (F::eight_bits ? x->minus_128_sums : x->minus_8_sums) + lane;
#pragma GCC unroll 8
    for (int t = 0; t < Tokens; ++t) {
      __m512i dot = F::centred ? _mm512_set1_epi32(centre[t]) : _mm512_setzero_si512();
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) dot = _mm512_dpbusd_epi32(dot, weights[i], four_codes(quads + group_inputs * t + 4 * i));
      const __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(x->scale[lane + t]));
      acc[t] = _mm512_fmadd_ps(scale, _mm512_maskz_cvtepi32_ps(all_lanes, dot), acc[t]);
      if constexpr (!F::centred) {
        const __m512 m = load_scales<F::half_scales>(scales, block_rows);
        acc[t] = _mm512_fmadd_ps(m, _mm512_set1_ps(x->scaled_sum[lane + t]), acc[t]);
      }
    }
    codes += F::code_step;
    scales += F::scale_step;
  }
  const auto written = static_cast<__mmask16>((1u << rows) - 1);
#pragma GCC unroll 8
  for (int t = 0; t < Tokens; ++t) _mm512_mask_storeu_ps(y + static_cast<std::size_t>(t) * y_stride, written, acc[t]);
}

template <typename F>
constexpr Tiles tiles_of() {
  return {{multiply_tile<F, 1>, multiply_tile<F, 2>, multiply_tile<F, 3>, multiply_tile<F, 4>, multiply_tile<F, 5>,
           multiply_tile<F, 6>, multiply_tile<F, 7>, multiply_tile<F, 8>},
          8, F::code_step, F::scale_step};
}

void multiply(const AffineWeights& weights, const Activations& x, int token_begin, int token_end, int block_begin,
              int block_end, float* y, std::size_t y_stride) {
  static constexpr Tiles tiles[8] = {
      tiles_of<Form<false, false, false>>(), tiles_of<Form<false, false, true>>(), tiles_of<Form<false, true, false>>(),
      tiles_of<Form<false, true, true>>(),   tiles_of<Form<true, false, false>>(), tiles_of<Form<true, false, true>>(),
      tiles_of<Form<true, true, false>>(),   tiles_of<Form<true, true, true>>()};
  multiply_range(tiles[form_index(weights.form)], weights, x, token_begin, token_end, block_begin, block_end, y, y_stride);
}

// Quantising is bound by memory and division: wider vectors would not help.
void quantise(const float* x, std::size_t x_stride, int token_begin, int token_end, const Activations& out) {
  affine_avx2().quantise(x, x_stride, token_begin, token_end, out);
}

}  // namespace

const AffineKernels& affine_avx512() {
  static constexpr AffineKernels kernels{quantise, multiply};
  return kernels;
}

}  // namespace tane
