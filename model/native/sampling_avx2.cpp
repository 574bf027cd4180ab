// The passes over a whole row of logits with vectors; sums that the definition adds one by one stay one by one.
#include "sampling.hpp"
#include "vector_math_avx2.hpp"

namespace tane {
namespace {

float peaks(const float* logits, int count, float* peaks) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  __m256 greatest = lowest, unordered = _mm256_setzero_ps();
  int run = 0;
  for (; (run + 1) * run_tokens <= count; ++run) {
    const float* const at = logits + run * run_tokens;
    __m256 peak = lowest;
#pragma GCC unroll 8
    for (int i = 0; i < run_tokens; i += 8) {
      const __m256 z = _mm256_loadu_ps(at + i);
      unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(z, z, _CMP_UNORD_Q));
      peak = _mm256_max_ps(z, peak);
    }
    greatest = _mm256_max_ps(peak, greatest);
    peaks[run] = greatest_of_8(peak);
  }
  float all = greatest_of_8(greatest);
  bool has_nan = _mm256_movemask_ps(unordered) != 0;
  if (run * run_tokens < count) {
    float peak = -__builtin_inff();
    for (int i = run * run_tokens; i < count; ++i) {
      peak = logits[i] > peak ? logits[i] : peak;
      has_nan = has_nan || logits[i] != logits[i];
    }
    peaks[run] = peak;
    all = peak > all ? peak : all;
  }
  return has_nan ? __builtin_nanf("") : all;
}

int at_least(const float* logits, int count, const float* peaks, float level, std::int32_t* positions) {
  const __m256 bound = _mm256_set1_ps(level);
  int found = 0;
  for (int run = 0; run * run_tokens < count; ++run) {
    if (!(peaks[run] >= level)) continue;
    const int begin = run * run_tokens, end = begin + run_tokens;
    if (end > count) {
      for (int i = begin; i < count; ++i) {
        if (logits[i] >= level) positions[found++] = i;
      }
      continue;
    }
    for (int i = begin; i < end; i += 8) {
      auto lanes = static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(logits + i), bound, _CMP_GE_OQ)));
      for (; lanes != 0; lanes &= lanes - 1) positions[found++] = i + __builtin_ctz(lanes);
    }
  }
  return found;
}

template <bool many_are_none>
double weigh_all(const float* logits, int count, double peak, double temperature, double* weights, double* run_sums) {
  const __m256d top = _mm256_set1_pd(peak), divisor = _mm256_set1_pd(temperature), lowest = _mm256_set1_pd(exp_double_lowest);
  double sum = 0;
  int i = 0;
  for (; i + 4 <= count; i += 4) {
    if (i % run_tokens == 0) run_sums[i / run_tokens] = sum;
    __m256d scaled = _mm256_div_pd(_mm256_sub_pd(_mm256_cvtps_pd(_mm_loadu_ps(logits + i)), top), divisor);
    if constexpr (many_are_none) {  // the product that underflows to 0 takes a hundred times as long as any other
      const __m256d some = _mm256_cmp_pd(scaled, lowest, _CMP_GT_OQ);
      if (_mm256_movemask_pd(some) == 0) {
        _mm256_storeu_pd(weights + i, _mm256_setzero_pd());
        continue;
      }
      _mm256_storeu_pd(weights + i, _mm256_and_pd(some, exponential(_mm256_and_pd(some, scaled))));
    } else {
      _mm256_storeu_pd(weights + i, exponential(scaled));
    }
    sum += weights[i];
    sum += weights[i + 1];
    sum += weights[i + 2];
    sum += weights[i + 3];
  }
  for (; i < count; ++i) {
    if (i % run_tokens == 0) run_sums[i / run_tokens] = sum;
    weights[i] = exponential((double{logits[i]} - peak) / temperature);
    sum += weights[i];
  }
  return sum;
}

double total(const float* logits, int count, double peak) {
  const __m256d top = _mm256_set1_pd(peak);
  __m256d sums = _mm256_setzero_pd();
  const int whole = count & ~3;
  for (int i = 0; i < whole; i += 4) {
    sums = _mm256_add_pd(sums, exponential(_mm256_sub_pd(_mm256_cvtps_pd(_mm_loadu_ps(logits + i)), top)));
  }
  alignas(32) double lanes[4];
  _mm256_store_pd(lanes, sums);
  for (int i = whole; i < count; ++i) lanes[i % 4] += exponential(double{logits[i]} - peak);
  return sum_of_4(lanes);
}

void mask(const float* logits, int count, const std::uint32_t* allowed, float* masked) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i eight = _mm256_set1_epi32(static_cast<int>(allowed[i / 32] >> i % 32));
    const __m256i open = _mm256_cmpeq_epi32(_mm256_and_si256(eight, bits), bits);
    _mm256_storeu_ps(masked + i, _mm256_blendv_ps(lowest, _mm256_loadu_ps(logits + i), _mm256_castsi256_ps(open)));
  }
  for (; i < count; ++i) masked[i] = (allowed[i / 32] >> i % 32 & 1u) != 0 ? logits[i] : -__builtin_inff();
}

constexpr SamplingKernels kernels{peaks, at_least, weigh_all<false>, weigh_all<true>, total, mask};

}  // namespace

const SamplingKernels& sampling_avx2() { return kernels; }

}  // namespace tane
