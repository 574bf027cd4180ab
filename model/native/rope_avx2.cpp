// The rotation of eight pairs at a time.
#include <immintrin.h>

#include "rope.hpp"

namespace tane {
namespace {

void rotate(const float* x, int heads, int half, const float* cosines, const float* sines, float* out) {
  const int whole = half & ~7;
  for (int head = 0; head < heads; ++head, x += 2 * half, out += 2 * half) {
    for (int i = 0; i < whole; i += 8) {
      const __m256 first = _mm256_loadu_ps(x + i), second = _mm256_loadu_ps(x + i + half);
      const __m256 cosine = _mm256_loadu_ps(cosines + i), sine = _mm256_loadu_ps(sines + i);
      _mm256_storeu_ps(out + i, _mm256_sub_ps(_mm256_mul_ps(first, cosine), _mm256_mul_ps(second, sine)));
      _mm256_storeu_ps(out + i + half, _mm256_add_ps(_mm256_mul_ps(second, cosine), _mm256_mul_ps(first, sine)));
    }
    for (int i = whole; i < half; ++i) {
      const float first = x[i], second = x[i + half];
      out[i] = first * cosines[i] - second * sines[i];
      out[i + half] = second * cosines[i] + first * sines[i];
    }
  }
}

constexpr RopeKernels kernels{rotate};

}  // namespace

const RopeKernels& rope_avx2() { return kernels; }

}  // namespace tane
