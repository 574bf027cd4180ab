// The two forms of pages for attention with vectors: how queries are prepared, scores scaled, and weights of values made.
// Only for the file of attention that is compiled with AVX2, FMA and F16C.
#pragma once

#include "attention.hpp"
#include "attention_merge.hpp"
#include "attention_tiles_avx2.hpp"
#include "vector_math_avx2.hpp"

namespace tane {
namespace {

constexpr int most_width = 256;

// The pages of one block that the last of some rows may see, and those of the block after it, to be fetched early.
struct Block {
  KvHead pages[block_pages], ahead[block_pages];
  alignas(32) float key_scales[block_positions];  // of int8 pages, one after the other
  alignas(32) float value_scales[block_positions];
};

struct Query {
  float scale;  // of its codes, times F
  int count;    // it may see the positions of the block before this one
  int first;    // and from this one on; only set for rows with a window
};

inline __m256i first_lanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline __m256i magnitudes(__m256 x) {  // the bits of |x|, which order like the numbers and put NaN on top
  return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7FFFFFFF));
}

inline float greatest_magnitude(const float* x, int width) {
  __m256i tops = _mm256_setzero_si256();
  for (int i = 0; i < width; i += 8) tops = _mm256_max_epi32(tops, magnitudes(_mm256_loadu_ps(x + i)));
  return float_of_bits(static_cast<std::uint32_t>(greatest_of_8(tops)));
}

// Rounds a multiple of 8 numbers to int16; what is written for numbers that are not finite does not matter.
inline void round_to_codes(const float* x, int count, float inverse, std::int16_t* codes) {
  const __m256 factor = _mm256_set1_ps(inverse);
  for (int i = 0; i < count; i += 8) {
    const __m256i whole = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), factor));
    const __m128i packed = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), packed);
  }
}

struct Int8 {
  using Number = std::int16_t;
  using Sum = std::int32_t;
  static constexpr bool rows_share_tiles = true;  // a zero code silences what a row may not see, whatever it is

  static float prepare(const float* q, int width, float factor, Number* codes) {
    const CodeScale scale = code_scale(greatest_magnitude(q, width));
    round_to_codes(q, width, scale.inverse, codes);
    return scale.scale * factor;
  }

  static void gather_scales(Block& block, int page) {
    for (int j = 0; j < page_positions; j += 8) {
      _mm256_store_ps(block.key_scales + page * page_positions + j, _mm256_loadu_ps(block.pages[page].key_scales() + j));
      _mm256_store_ps(block.value_scales + page * page_positions + j, _mm256_loadu_ps(block.pages[page].value_scales() + j));
    }
    for (int j = 0; j < page_positions; j += 16)
      fetch(block.ahead[page].key_scales() + j), fetch(block.ahead[page].value_scales() + j);
  }

  static Pieces<std::int8_t> keys(const Block& block, int page, int width) {
    return {{block.pages[page].int8_keys()}, {block.ahead[page].int8_keys()}, width / 2, width / 2, width / 2, 2 * page_positions};
  }

  // The first position whose value is multiplied where none before `first` may be seen: that of its page.
  static int values_begin(int first) { return first / page_positions * page_positions; }

  // Of the positions from `begin` on, before `count`.
  static Pieces<std::int8_t> values(const Block& block, int begin, int count, int width) {
    Pieces<std::int8_t> pieces{{}, {}, page_positions / 2, page_positions / 2, (count - begin + 1) / 2, 2 * width};
    for (int i = 0, page = begin / page_positions; page * page_positions < count; ++i, ++page) {
      pieces.piece[i] = block.pages[page].int8_values(), pieces.ahead[i] = block.ahead[page].int8_values();
    }
    return pieces;
  }

  static __m256 score(const Block& block, __m256 query_scale, const Sum* dots, int j) {
    const __m256 dot = _mm256_cvtepi32_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(dots + j)));
    return _mm256_mul_ps(dot, _mm256_mul_ps(_mm256_load_ps(block.key_scales + j), query_scale));
  }

  static __m256 weight(const Block& block, __m256 p, int j) { return _mm256_mul_ps(p, _mm256_load_ps(block.value_scales + j)); }

  static float round_weights(const float* weights, __m256i tops, int padded, Number* codes) {
    const CodeScale scale = code_scale(float_of_bits(static_cast<std::uint32_t>(greatest_of_8(tops))));
    round_to_codes(weights, padded, scale.inverse, codes);
    return scale.scale;
  }

  static __m256 output(const Sum* sums, __m256 scale) {
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(sums))), scale);
  }
};

struct Half {
  using Number = float;
  using Sum = float;
  static constexpr bool rows_share_tiles = false;  // what a row may not see must not even be multiplied by 0

  static float prepare(const float* q, int width, float factor, Number* numbers) {
    const __m256 factors = _mm256_set1_ps(factor);
    for (int i = 0; i < width; i += 8) _mm256_storeu_ps(numbers + i, _mm256_mul_ps(_mm256_loadu_ps(q + i), factors));
    return 1.0f;
  }

  static void gather_scales(Block&, int) {}

  static Pieces<Float16> keys(const Block& block, int page, int width) {
    return {{block.pages[page].float16_keys()}, {block.ahead[page].float16_keys()}, width, width, width, page_positions};
  }

  static int values_begin(int first) { return first; }

  static Pieces<Float16> values(const Block& block, int begin, int count, int width) {
    const int skipped = begin % page_positions;
    Pieces<Float16> pieces{{}, {}, page_positions - skipped, page_positions, count - begin, width};
    for (int i = 0, page = begin / page_positions; page * page_positions < count; ++i, ++page) {
      pieces.piece[i] = block.pages[page].float16_values(), pieces.ahead[i] = block.ahead[page].float16_values();
    }
    pieces.piece[0] += skipped * width, pieces.ahead[0] += skipped * width;
    return pieces;
  }

  static __m256 score(const Block&, __m256, const Sum* scores, int j) { return _mm256_load_ps(scores + j); }

  static __m256 weight(const Block&, __m256 p, int) { return p; }

  static float round_weights(const float* weights, __m256i, int padded, Number* numbers) {
    for (int j = 0; j < padded; j += 8) _mm256_store_ps(numbers + j, _mm256_load_ps(weights + j));
    return 1.0f;
  }

  static __m256 output(const Sum* sums, __m256) { return _mm256_load_ps(sums); }
};

}  // namespace
}  // namespace tane
