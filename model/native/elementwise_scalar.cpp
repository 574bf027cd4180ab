// The definitions of elementwise.hpp, number by number.
#include "elementwise.hpp"
#include "vector_math.hpp"

namespace tane {
namespace {

void rms_norm(const float* x, const float* gain, double epsilon, int width, float* out) {
  double lanes[8] = {};
  for (int i = 0; i < width; ++i) lanes[i % 8] = fused(double{x[i]}, double{x[i]}, lanes[i % 8]);
  const double mean = sum_of_8(lanes) / width;
  const float factor = static_cast<float>(1.0 / __builtin_sqrt(mean + epsilon));
  for (int i = 0; i < width; ++i) out[i] = gain[i] * (x[i] * factor);
}

void silu_multiply(const float* gate, const float* up, int width, float* out) {
  for (int i = 0; i < width; ++i) out[i] = gate[i] / (1.0f + exponential(-gate[i])) * up[i];
}

void add(const float* x, const float* y, int width, float* out) {
  for (int i = 0; i < width; ++i) out[i] = x[i] + y[i];
}

void to_float16(const float* x, int width, Float16* out) {
  for (int i = 0; i < width; ++i) out[i] = float16_of(x[i]);
}

void to_float32(const Float16* x, int width, float* out) {
  for (int i = 0; i < width; ++i) out[i] = float32_of(x[i]);
}

constexpr ElementwiseKernels kernels{rms_norm, silu_multiply, add, to_float16, to_float32};

}  // namespace

const ElementwiseKernels& elementwise_scalar() { return kernels; }

const ElementwiseKernels& elementwise_kernels(Isa isa) {
  return isa == Isa::scalar ? elementwise_scalar() : elementwise_avx2();
}

}  // namespace tane
