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

void layer_norm(const float* x, const float* gain, const float* bias, double epsilon, int width, float* out) {
  double sums[8] = {}, squares[8] = {};
  for (int i = 0; i < width; ++i) sums[i % 8] += double{x[i]};
  const double mean = sum_of_8(sums) / width;
  for (int i = 0; i < width; ++i) {
    const double distance = double{x[i]} - mean;
    squares[i % 8] = fused(distance, distance, squares[i % 8]);
  }
  const float factor = static_cast<float>(1.0 / __builtin_sqrt(sum_of_8(squares) / width + epsilon));
  for (int i = 0; i < width; ++i) out[i] = fused(gain[i], static_cast<float>(double{x[i]} - mean) * factor, bias[i]);
}

void silu_multiply(const float* gate, const float* up, int width, float* out) {
  for (int i = 0; i < width; ++i) out[i] = gate[i] / (1.0f + exponential(-gate[i])) * up[i];
}

float gelu_of(float x) { return x / (1.0f + exponential(-(x * fused(x * x, gelu_cube, gelu_slope)))); }

void gelu_multiply(const float* gate, const float* up, int width, float* out) {
  for (int i = 0; i < width; ++i) out[i] = gelu_of(gate[i]) * up[i];
}

void gelu(const float* x, int width, float* out) {
  for (int i = 0; i < width; ++i) out[i] = gelu_of(x[i]);
}

void add(const float* x, const float* y, int width, float* out) {
  for (int i = 0; i < width; ++i) out[i] = x[i] + y[i];
}

void scale(const float* x, float factor, int width, float* out) {
  for (int i = 0; i < width; ++i) out[i] = x[i] * factor;
}

void to_float16(const float* x, int width, Float16* out) {
  for (int i = 0; i < width; ++i) out[i] = float16_of(x[i]);
}

void to_float32(const Float16* x, int width, float* out) {
  for (int i = 0; i < width; ++i) out[i] = float32_of(x[i]);
}

constexpr ElementwiseKernels kernels{rms_norm, layer_norm, silu_multiply, gelu_multiply, gelu, add, scale, to_float16, to_float32};

}  // namespace

const ElementwiseKernels& elementwise_scalar() { return kernels; }

const ElementwiseKernels& elementwise_kernels(Isa isa) {
  return isa == Isa::scalar ? elementwise_scalar() : elementwise_avx2();
}

}  // namespace tane
