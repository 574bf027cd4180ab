// kv_pages.hpp with the rounding done eight numbers at a time; the scattered bytes are written one by one.
#include <cstring>

#include "kv_pages.hpp"
#include "vector_math_avx2.hpp"

namespace tane {
namespace {

float quantise(const float* x, int width, std::int8_t* codes) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i tops = _mm256_setzero_si256();
  for (int i = 0; i < width; i += 8) {
    tops = _mm256_max_epi32(tops, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + i)), magnitude));
  }
  const std::int32_t greatest = greatest_of_8(tops);
  const float top = float_of_bits(static_cast<std::uint32_t>(greatest));
  if (greatest >= 0x7F800000 || top < 0x1.0p-100f) {
    std::memset(codes, 0, static_cast<std::size_t>(width));
    return greatest >= 0x7F800000 ? float_of_bits(0x7FC00000u) : 0.0f;
  }
  const __m256 inverse = _mm256_set1_ps(127.0f / top);
  for (int i = 0; i < width; i += 8) {
    const __m256i whole = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), inverse));
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(codes + i), _mm_packs_epi16(words, words));
  }
  return top / 127.0f;
}

void store_int8(const KvHead& head, int width, int position, const float* keys, const float* values) {
  alignas(32) std::int8_t codes[256];
  head.key_scales()[position] = quantise(keys, width, codes);
  std::int8_t* const key_column = head.int8_keys() + 2 * position;
  for (int i = 0; i < width; i += 2) std::memcpy(key_column + i * page_positions, codes + i, 2);
  head.value_scales()[position] = quantise(values, width, codes);
  std::int8_t* const value_row = head.int8_values() + position / 2 * width * 2 + position % 2;
  for (int i = 0; i < width; ++i) value_row[2 * i] = codes[i];
}

__m128i finite_or_nan(const float* x) {
  const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT), exponent = _mm_set1_epi16(0x7C00);
  const __m128i beyond = _mm_cmpeq_epi16(_mm_and_si128(half, exponent), exponent);
  return _mm_or_si128(half, _mm_and_si128(beyond, _mm_set1_epi16(0x0200)));
}

void store_float16(const KvHead& head, int width, int position, const float* keys, const float* values) {
  alignas(32) Float16 halves[8];
  Float16* const value_row = head.float16_values() + position * width;
  for (int i = 0; i < width; i += 8) {
    _mm_store_si128(reinterpret_cast<__m128i*>(halves), finite_or_nan(keys + i));
    for (int lane = 0; lane < 8; ++lane) head.float16_keys()[(i + lane) * page_positions + position] = halves[lane];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(value_row + i), finite_or_nan(values + i));
  }
}

void store(const KvPages& pages, int layer, int page, int position, const float* keys, const float* values) {
  const int width = pages.shape.head_width;
  const auto store_head = pages.shape.type == KvType::int8 ? store_int8 : store_float16;
  for (int head = 0; head < pages.shape.kv_heads; ++head) {
    store_head(pages.head(layer, page, head), width, position, keys + head * width, values + head * width);
  }
}

constexpr KvKernels kernels{store};

}  // namespace

const KvKernels& kv_avx2() { return kernels; }

}  // namespace tane
