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

// Each lane keeps its own partial sum, as in the scalar definition: float64 lanes 0 … 3 and 4 … 7.
struct Wide {
  __m256d low, high;
};

Wide widened(__m256 x) {
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
}

Wide less(Wide x, __m256d mean) { return {_mm256_sub_pd(x.low, mean), _mm256_sub_pd(x.high, mean)}; }

double sum_of_8(Wide lanes) { return sum_of_4(_mm256_add_pd(lanes.low, lanes.high)); }

double mean_of(const float* x, int width, __m256i tail) {
  Wide sums{_mm256_setzero_pd(), _mm256_setzero_pd()};
  const auto add_up = [&](__m256 numbers) {
    const Wide wide = widened(numbers);
    sums = {_mm256_add_pd(sums.low, wide.low), _mm256_add_pd(sums.high, wide.high)};
  };
  const int whole = width & ~7;
  for (int i = 0; i < whole; i += 8) add_up(_mm256_loadu_ps(x + i));
  if (whole < width) add_up(_mm256_maskload_ps(x + whole, tail));  // adding 0 changes no sum
  return sum_of_8(sums) / width;
}

double variance_of(const float* x, double mean, int width, __m256i tail) {
  const __m256d centre = _mm256_set1_pd(mean);
  Wide sums{_mm256_setzero_pd(), _mm256_setzero_pd()};
  const auto square = [&](Wide distance) {
    sums = {_mm256_fmadd_pd(distance.low, distance.low, sums.low), _mm256_fmadd_pd(distance.high, distance.high, sums.high)};
  };
  const int whole = width & ~7;
  for (int i = 0; i < whole; i += 8) square(less(widened(_mm256_loadu_ps(x + i)), centre));
  if (whole < width) {
    const Wide distance = less(widened(_mm256_maskload_ps(x + whole, tail)), centre);
    const __m256d low = _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm256_castsi256_si128(tail)));
    const __m256d high = _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm256_extracti128_si256(tail, 1)));
    square({_mm256_and_pd(distance.low, low), _mm256_and_pd(distance.high, high)});
  }
  return sum_of_8(sums) / width;
}

void layer_norm(const float* x, const float* gain, const float* bias, double epsilon, int width, float* out) {
  const int whole = width & ~7;
  const __m256i tail = first_lanes(width - whole);
  const double mean = mean_of(x, width, tail), variance = variance_of(x, mean, width, tail);
  const __m256d centre = _mm256_set1_pd(mean);
  const __m256 factor = _mm256_set1_ps(static_cast<float>(1.0 / __builtin_sqrt(variance + epsilon)));
  const auto normed = [&](__m256 numbers, __m256 gains, __m256 biases) {
    const Wide wide = less(widened(numbers), centre);
    const __m256 distance = _mm256_set_m128(_mm256_cvtpd_ps(wide.high), _mm256_cvtpd_ps(wide.low));
    return _mm256_fmadd_ps(gains, _mm256_mul_ps(distance, factor), biases);
  };
  for (int i = 0; i < whole; i += 8) {
    _mm256_storeu_ps(out + i, normed(_mm256_loadu_ps(x + i), _mm256_loadu_ps(gain + i), _mm256_loadu_ps(bias + i)));
  }
  if (whole < width) {
    _mm256_maskstore_ps(out + whole, tail,
                        normed(_mm256_maskload_ps(x + whole, tail), _mm256_maskload_ps(gain + whole, tail),
                               _mm256_maskload_ps(bias + whole, tail)));
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

__m256 gelu_of(__m256 x) {
  const __m256 slope = _mm256_fmadd_ps(_mm256_mul_ps(x, x), _mm256_set1_ps(gelu_cube), _mm256_set1_ps(gelu_slope));
  const __m256 opposite = _mm256_xor_ps(_mm256_mul_ps(x, slope), _mm256_set1_ps(-0.0f));
  return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), exponential(opposite)));
}

void gelu_multiply(const float* gate, const float* up, int width, float* out) {
  const int whole = width & ~7;
  for (int i = 0; i < whole; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_mul_ps(gelu_of(_mm256_loadu_ps(gate + i)), _mm256_loadu_ps(up + i)));
  }
  if (whole < width) {
    const __m256i tail = first_lanes(width - whole);
    const __m256 gated = gelu_of(_mm256_maskload_ps(gate + whole, tail));
    _mm256_maskstore_ps(out + whole, tail, _mm256_mul_ps(gated, _mm256_maskload_ps(up + whole, tail)));
  }
}

void gelu(const float* x, int width, float* out) {
  const int whole = width & ~7;
  for (int i = 0; i < whole; i += 8) _mm256_storeu_ps(out + i, gelu_of(_mm256_loadu_ps(x + i)));
  if (whole < width) {
    const __m256i tail = first_lanes(width - whole);
    _mm256_maskstore_ps(out + whole, tail, gelu_of(_mm256_maskload_ps(x + whole, tail)));
  }
}

void add(const float* x, const float* y, int width, float* out) {
  const int whole = width & ~7;
  for (int i = 0; i < whole; i += 8) _mm256_storeu_ps(out + i, _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
  for (int i = whole; i < width; ++i) out[i] = x[i] + y[i];
}

void scale(const float* x, float factor, int width, float* out) {
  const __m256 factors = _mm256_set1_ps(factor);
  const int whole = width & ~7;
  for (int i = 0; i < whole; i += 8) _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), factors));
  for (int i = whole; i < width; ++i) out[i] = x[i] * factor;
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

constexpr ElementwiseKernels kernels{rms_norm, layer_norm, silu_multiply, gelu_multiply, gelu, add, scale, to_float16, to_float32};

}  // namespace

const ElementwiseKernels& elementwise_avx2() { return kernels; }

}  // namespace tane
