// What a decoder does to single rows between its linear layers: norms, gates, residual add, scaling, half precision.
//
// Knows one row of float32 numbers; nothing of batches, weights' forms or threads. A caller cuts rows among threads as it likes.
// Always: a row's numbers depend on that row alone, and AVX2 gives the scalar definition's bits. Outputs may be the inputs'
// own memory. A NaN in reaches the numbers that depend on it.
//
// Definitions, i = 0 … width − 1:
//   rms_norm        S = Σ x[i]², float64, one partial sum per lane (lane = i mod 8), lanes added in the tree of `sum_of_8`;
//                   factor = float32(1 / √(S / width + ε)); out[i] = gain[i] · (x[i] · factor)
//                   Float64 costs as much as float32 here: either waits for eight chains of fused multiply-adds, and the
//                   float32 squares are exact in it.
//   layer_norm      M = (Σ x[i]) / width, V = (Σ (x[i] − M)²) / width, in float64, each sum in the lanes and the tree of rms_norm;
//                   factor = float32(1 / √(V + ε)); out[i] = fma(gain[i], float32(x[i] − M) · factor, bias[i])
//   silu_multiply   out[i] = gate[i] / (1 + e^(−gate[i])) · up[i]
//   gelu            z = x[i] · fma(x[i]², 0.044715·c, c) with c = 2·√(2/π); out[i] = x[i] / (1 + e^(−z)), all in float32: the tanh
//                   approximation of Hendrycks and Gimpel (2016), since (1 + tanh(z/2)) / 2 = 1 / (1 + e^(−z))
//   gelu_multiply   out[i] = gelu(gate[i]) · up[i]
//   add             out[i] = x[i] + y[i]
//   scale           out[i] = x[i] · factor
#pragma once

#include "float16.hpp"
#include "isa.hpp"

namespace tane {

constexpr float gelu_slope = 0x1.988454p+0f, gelu_cube = 0x1.2444f2p-4f;  // 2·√(2/π), and 0.044715 times that

struct ElementwiseKernels {
  void (*rms_norm)(const float* x, const float* gain, double epsilon, int width, float* out);
  void (*layer_norm)(const float* x, const float* gain, const float* bias, double epsilon, int width, float* out);
  void (*silu_multiply)(const float* gate, const float* up, int width, float* out);
  void (*gelu_multiply)(const float* gate, const float* up, int width, float* out);
  void (*gelu)(const float* x, int width, float* out);
  void (*add)(const float* x, const float* y, int width, float* out);
  void (*scale)(const float* x, float factor, int width, float* out);
  void (*to_float16)(const float* x, int width, Float16* out);
  void (*to_float32)(const Float16* x, int width, float* out);
};

const ElementwiseKernels& elementwise_scalar();  // the definition
const ElementwiseKernels& elementwise_avx2();
const ElementwiseKernels& elementwise_kernels(Isa isa);

}  // namespace tane
