// The inner products of attention: pages times the prepared numbers of 1 to 6 queries, lanes being positions (keys) or inputs
// (values). Register tiles differ in shape only: int8 pages give exact integers, float16 pages one chain of fma for each lane.
// Only for the file of attention that is compiled with AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "float16.hpp"

namespace tane {
namespace {

// Rows of a matrix that lies in up to four pieces (pages) of `piece_rows` rows, `row_numbers` apart; the first may have fewer.
// ahead[i] is where the same numbers of the next block stand: they are fetched while these are worked on.
template <typename Number>
struct Pieces {
  const Number* piece[4];
  const Number* ahead[4];
  int first_rows, piece_rows, rows;
  std::ptrdiff_t row_numbers;
};

inline void fetch(const void* address) { _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T0); }

constexpr int most_queries_of_a_tile = 6;

// sums[n][lane] = Σ over rows of the int8 pair (row, lane) times the int16 pair (n, row).
template <int queries, int vectors>
inline void int8_tile(const Pieces<std::int8_t>& matrix, int lane, const std::int16_t* codes, std::ptrdiff_t codes_stride,
                      std::int32_t* sums, std::ptrdiff_t sums_stride) {
  __m256i sum[queries][vectors];
#pragma GCC unroll 6
  for (int n = 0; n < queries; ++n) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sum[n][v] = _mm256_setzero_si256();
  }
  for (int row = 0, i = 0, piece_end = matrix.first_rows; row < matrix.rows; ++i, piece_end += matrix.piece_rows) {
    const std::int8_t* at = matrix.piece[i] + 2 * lane;
    const std::int8_t* next = matrix.ahead[i] + 2 * lane;
    const int end = piece_end < matrix.rows ? piece_end : matrix.rows;
    for (; row < end; ++row, at += matrix.row_numbers, next += matrix.row_numbers) {
      fetch(next);
      __m256i pairs[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        pairs[v] = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16 * v)));
#pragma GCC unroll 6
      for (int n = 0; n < queries; ++n) {
        std::int32_t pair;
        std::memcpy(&pair, codes + n * codes_stride + 2 * row, sizeof(pair));
        const __m256i both = _mm256_set1_epi32(pair);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) sum[n][v] = _mm256_add_epi32(sum[n][v], _mm256_madd_epi16(pairs[v], both));
      }
    }
  }
#pragma GCC unroll 6
  for (int n = 0; n < queries; ++n) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + n * sums_stride + lane + 8 * v), sum[n][v]);
    }
  }
}

// sums[n][lane] = the chain of fma over rows, ascending, of the half (row, lane) times the float (n, row).
template <int queries, int vectors>
inline void float16_tile(const Pieces<Float16>& matrix, int lane, const float* numbers, std::ptrdiff_t numbers_stride,
                         float* sums, std::ptrdiff_t sums_stride) {
  __m256 sum[queries][vectors];
#pragma GCC unroll 6
  for (int n = 0; n < queries; ++n) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sum[n][v] = _mm256_setzero_ps();
  }
  for (int row = 0, i = 0, piece_end = matrix.first_rows; row < matrix.rows; ++i, piece_end += matrix.piece_rows) {
    const Float16* at = matrix.piece[i] + lane;
    const Float16* next = matrix.ahead[i] + lane;
    const int end = piece_end < matrix.rows ? piece_end : matrix.rows;
    for (; row < end; ++row, at += matrix.row_numbers, next += matrix.row_numbers) {
      fetch(next);
      __m256 number[queries];
#pragma GCC unroll 6
      for (int n = 0; n < queries; ++n) number[n] = _mm256_broadcast_ss(numbers + n * numbers_stride + row);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        const __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 8 * v)));
#pragma GCC unroll 6
        for (int n = 0; n < queries; ++n) sum[n][v] = _mm256_fmadd_ps(wide, number[n], sum[n][v]);
      }
    }
  }
#pragma GCC unroll 6
  for (int n = 0; n < queries; ++n) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) _mm256_storeu_ps(sums + n * sums_stride + lane + 8 * v, sum[n][v]);
  }
}

template <int queries, int vectors>
inline void tile(const Pieces<std::int8_t>& matrix, int lane, const std::int16_t* codes, std::ptrdiff_t codes_stride,
                 std::int32_t* sums, std::ptrdiff_t sums_stride) {
  int8_tile<queries, vectors>(matrix, lane, codes, codes_stride, sums, sums_stride);
}

template <int queries, int vectors>
inline void tile(const Pieces<Float16>& matrix, int lane, const float* numbers, std::ptrdiff_t numbers_stride, float* sums,
                 std::ptrdiff_t sums_stride) {
  float16_tile<queries, vectors>(matrix, lane, numbers, numbers_stride, sums, sums_stride);
}

// Covers `lanes` lanes, a multiple of 8, with tiles of at most 12 vector sums.
template <int queries, typename Page, typename Number, typename Sum>
inline void cover(const Pieces<Page>& matrix, int lanes, const Number* numbers, std::ptrdiff_t numbers_stride, Sum* sums,
                  std::ptrdiff_t sums_stride) {
  constexpr int wide_queries = sizeof(Page) == 1 ? 2 : 3;  // sums, numbers and products of a tile fit 16 registers
  constexpr int vectors = queries <= wide_queries ? 4 : 2;
  int lane = 0;
  for (; lane + 8 * vectors <= lanes; lane += 8 * vectors)
    tile<queries, vectors>(matrix, lane, numbers, numbers_stride, sums, sums_stride);
  for (; lane < lanes; lane += 8) tile<queries, 1>(matrix, lane, numbers, numbers_stride, sums, sums_stride);
}

template <typename Page, typename Number, typename Sum>
void products(const Pieces<Page>& matrix, int lanes, int queries, const Number* numbers, std::ptrdiff_t numbers_stride,
              Sum* sums, std::ptrdiff_t sums_stride) {
  switch (queries) {
    case 1: return cover<1>(matrix, lanes, numbers, numbers_stride, sums, sums_stride);
    case 2: return cover<2>(matrix, lanes, numbers, numbers_stride, sums, sums_stride);
    case 3: return cover<3>(matrix, lanes, numbers, numbers_stride, sums, sums_stride);
    case 4: return cover<4>(matrix, lanes, numbers, numbers_stride, sums, sums_stride);
    case 5: return cover<5>(matrix, lanes, numbers, numbers_stride, sums, sums_stride);
    default: return cover<6>(matrix, lanes, numbers, numbers_stride, sums, sums_stride);
  }
}

}  // namespace
}  // namespace tane
