// The definitions behind sampling.hpp, number by number.
#include <limits>

#include "sampling.hpp"
#include "vector_math.hpp"

namespace tane {
namespace {

float peaks(const float* logits, int count, float* peaks) {
  float greatest = -std::numeric_limits<float>::infinity();
  bool has_nan = false;
  for (int i = 0; i < count; ++i) {
    float& peak = peaks[i / run_tokens];
    if (i % run_tokens == 0) peak = -std::numeric_limits<float>::infinity();
    if (logits[i] > peak) peak = logits[i];
    if (logits[i] > greatest) greatest = logits[i];
    has_nan = has_nan || logits[i] != logits[i];
  }
  return has_nan ? std::numeric_limits<float>::quiet_NaN() : greatest;
}

int at_least(const float* logits, int count, const float* peaks, float level, std::int32_t* positions) {
  int found = 0;
  for (int i = 0; i < count; ++i) {
    if (peaks[i / run_tokens] >= level && logits[i] >= level) positions[found++] = i;
  }
  return found;
}

double weigh(const float* logits, int count, double peak, double temperature, double* weights, double* run_sums) {
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    if (i % run_tokens == 0) run_sums[i / run_tokens] = sum;
    weights[i] = exponential((double{logits[i]} - peak) / temperature);
    sum += weights[i];
  }
  return sum;
}

double total(const float* logits, int count, double peak) {
  double lanes[4] = {};
  for (int i = 0; i < count; ++i) lanes[i % 4] += exponential(double{logits[i]} - peak);
  return sum_of_4(lanes);
}

void mask(const float* logits, int count, const std::uint32_t* allowed, float* masked) {
  for (int i = 0; i < count; ++i) {
    masked[i] = (allowed[i / 32] >> i % 32 & 1u) != 0 ? logits[i] : -std::numeric_limits<float>::infinity();
  }
}

constexpr SamplingKernels kernels{peaks, at_least, weigh, weigh, total, mask};

}  // namespace

const SamplingKernels& sampling_scalar() { return kernels; }

}  // namespace tane
