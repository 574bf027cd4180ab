// elementwise.hpp eight numbers at a time; what is left of a row goes through the same lanes of a padded vector.
#include "elementwise.hpp"
#include "vector_math_avx2.hpp"

namespace tane {
namespace {

// The first `count` lanes, the others zero; for count ≥ 8 all of them.
__m256i first_lanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

void rms_norm(const float* x, const float* gain, double epsilon, int width, float* out) {
  __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
  const auto square = [&](__m256 numbers) {
    const __m256d first = _mm256_cvtps_pd(_mm256_castps256_ps128(numbers));
    const __m256d second = _mm256_cvtps_pd(_mm256_extractf128_ps(numbers, 1));
    low = _mm256_fmadd_pd(first, first, low);
    high = _mm256_fmadd_pd(second, second, high);
  };
  const int whole = width & ~7;
  const __m256i tail = first_lanes(width - whole);
  for (int i = 0; i < whole; i += 8) square(_mm256_loadu_ps(x + i));
  if (whole < width) square(_mm256_maskload_ps(x + whole, tail));  // adding 0² changes no sum

  const double mean = sum_of_4(_mm256_add_pd(low, high)) / width;
  const __m256 factor = _mm256_set1_ps(static_cast<float>(1.0 / __builtin_sqrt(mean + epsilon)));
  for (int i = 0; i < whole; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(gain + i), _mm256_mul_ps(_mm256_loadu_ps(x + i), factor)));
  }
  if (whole < width) {
    const __m256 scaled = _mm256_mul_ps(_mm256_maskload_ps(x + whole, tail), factor);
    _mm256_maskstore_ps(out + whole, tail, _mm256_mul_ps(_mm256_maskload_ps(gain + whole, tail), scaled));
  }
}

__m256 silu_of(__m256 gate, __m256 up) {
  const __m256 opposite = _mm256_xor_ps(gate, _mm256_set1_ps(-0.0f));
  const __m256 below = _mm256_add_ps(_mm256_set1_ps(1.0f), exponential(opposite));
  return _mm256_mul_ps(_mm256_div_ps(gate, below), up);
}

void silu_multiply(const float* gate, const float* up, int width, float* out) {
  const int whole = width & ~7;
  for (int i = 0; i < whole; i += 8) _mm256_storeu_ps(out + i, silu_of(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
  if (whole < width) {
    const __m256i tail = first_lanes(width - whole);
    _mm256_maskstore_ps(out + whole, tail,
                        silu_of(_mm256_maskload_ps(gate + whole, tail), _mm256_maskload_ps(up + whole, tail)));
  }
}

void add(const float* x, const float* y, int width, float* out) {
  const int whole = width & ~7;
  for (int i = 0; i < whole; i += 8) _mm256_storeu_ps(out + i, _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
  for (int i = whole; i < width; ++i) out[i] = x[i] + y[i];
}

void to_float16(const float* x, int width, Float16* out) {
  const int whole = width & ~7;
  for (int i = 0; i < whole; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
  }
  for (int i = whole; i < width; ++i) out[i] = float16_of(x[i]);
}

void to_float32(const Float16* x, int width, float* out) {
  const int whole = width & ~7;
  for (int i = 0; i < whole; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
  }
  for (int i = whole; i < width; ++i) out[i] = float32_of(x[i]);
}

constexpr ElementwiseKernels kernels{rms_norm, silu_multiply, add, to_float16, to_float32};

}  // namespace

const ElementwiseKernels& elementwise_avx2() { return kernels; }

}  // namespace tane
