#include "rope.hpp"

#include "vector_math.hpp"

namespace tane {
namespace {

// Llama 3's rule in the float32 steps of the reference, which divides a number by x as number · (1/x).
float stretched(float frequency, const RopeStretch& stretch) {
  const float wave_length = (1.0f / frequency) * static_cast<float>(0x1.921fb54442d18p+2);
  const float factor = static_cast<float>(stretch.factor);
  const double original = stretch.original_context_length;
  if (wave_length > static_cast<float>(original / stretch.low_frequency_factor)) return frequency / factor;
  if (wave_length < static_cast<float>(original / stretch.high_frequency_factor)) return frequency;
  const float turns = (1.0f / wave_length) * static_cast<float>(original);
  const float width = static_cast<float>(stretch.high_frequency_factor - stretch.low_frequency_factor);
  const float smooth = (turns - static_cast<float>(stretch.low_frequency_factor)) / width;
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

void rope_frequencies(double base, int head_width, const RopeStretch* stretch, float* frequencies) {
  const double log_base = logarithm(double{static_cast<float>(base)});
  for (int i = 0; i < head_width / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_width);
    const float power = static_cast<float>(exponential(exponent * log_base));
    const float frequency = 1.0f / power;
    frequencies[i] = stretch == nullptr ? frequency : stretched(frequency, *stretch);
  }
}

void fill_rope_rows(const float* frequencies, int half, int begin, int end, float* cosines, float* sines) {
  for (int position = begin; position < end; ++position) {
    const std::size_t row = static_cast<std::size_t>(position) * half;
    for (int i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * frequencies[i];
      const SineCosine both = sine_cosine(angle);
      cosines[row + i] = static_cast<float>(both.cosine);
      sines[row + i] = static_cast<float>(both.sine);
    }
  }
}

const RopeKernels& rope_kernels(Isa isa) { return isa == Isa::scalar ? rope_scalar() : rope_avx2(); }

}  // namespace tane
