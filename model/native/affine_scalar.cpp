// The definition of activation codes and of the affine product, one number at a time.
#include <bit>
#include <cmath>

#include "affine.hpp"
#include "affine_layout.hpp"

namespace tane {
namespace {

constexpr std::uint32_t infinity_bits = 0x7F800000u;
constexpr std::uint32_t smallest_bits = 0x0D800000u;  // 2^-100: below it a group counts as zero, so 1 / d cannot overflow

// Half to even by way of the last bit of 1.5 * 2^23; for |x| < 2^22.
float round_half_even(float x) {
  constexpr float shift = 0x1.8p23f;
  return (x + shift) - shift;
}

struct Group {
  float scale, inverse;
};

// Magnitudes of floats order as their bits do, infinity and NaN above all numbers: one integer maximum finds them too.
Group group_scale(const float* x) {
  std::uint32_t top = 0;
  for (int k = 0; k < group_inputs; ++k) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[k]) & 0x7FFFFFFFu;
    top = magnitude > top ? magnitude : top;
  }
  if (top >= infinity_bits) return {std::bit_cast<float>(0x7FC00000u), 0};
  if (top < smallest_bits) return {0, 0};
  const float scale = std::bit_cast<float>(top) / 127.0f;
  return {scale, 1.0f / scale};
}

// |x * inverse| is at most 127 and three roundings, below 127.5: no code needs a clamp. A group that is not finite has codes 0.
void quantise_group(const float* x, TokenGroup& out, int lane) {
  const Group group = group_scale(x);
  int sum = 0;
  for (int k = 0; k < group_inputs; ++k) {
    const float code = group.inverse == 0 ? 0 : round_half_even(x[k] * group.inverse);
    out.codes[lane][k] = static_cast<std::int8_t>(code);
    sum += static_cast<int>(code);
  }
  out.scale[lane] = group.scale;
  out.scaled_sum[lane] = group.scale * static_cast<float>(sum);
  out.minus_8_sums[lane] = -8 * sum;
  out.minus_128_sums[lane] = -128 * sum;
}

void quantise(const float* x, std::size_t x_stride, int token_begin, int token_end, const Activations& out) {
  for (int token = token_begin; token < token_end; ++token) {
    const float* row = x + static_cast<std::size_t>(token) * x_stride;
    TokenGroup* tile = out.tiles + static_cast<std::size_t>(token / tile_tokens) * static_cast<std::size_t>(out.groups);
    for (int group = 0; group < out.groups; ++group) {
      quantise_group(row + group * group_inputs, tile[group], token % tile_tokens);
    }
  }
}

float output(const AffineWeights& weights, int row, const TokenGroup* tile, int lane) {
  const AffineForm form = weights.form;
  float acc = 0;
  for (int group = 0; group < weights.inputs / group_inputs; ++group) {
    const TokenGroup& x = tile[group];
    const std::int32_t centre_sums = form.eight_bits ? x.minus_128_sums[lane] : x.minus_8_sums[lane];
    std::int32_t dot = form.centred ? centre_sums : 0;
    for (int k = 0; k < group_inputs; ++k) dot += code_at(weights, row, group, k) * x.codes[lane][k];
    const std::size_t scale = scale_index(weights, row, group);
    acc = std::fma(scale_at(weights, scale) * x.scale[lane], static_cast<float>(dot), acc);
    if (!form.centred) acc = std::fma(scale_at(weights, scale + block_rows), x.scaled_sum[lane], acc);
  }
  return acc;
}

void multiply(const AffineWeights& weights, const Activations& x, int token_begin, int token_end, int block_begin,
              int block_end, float* y, std::size_t y_stride) {
  const int row_begin = block_begin * block_rows;
  const int row_end = block_end * block_rows < weights.outputs ? block_end * block_rows : weights.outputs;
  for (int token = token_begin; token < token_end; ++token) {
    const TokenGroup* tile = x.tiles + static_cast<std::size_t>(token / tile_tokens) * static_cast<std::size_t>(x.groups);
    float* out = y + static_cast<std::size_t>(token) * y_stride;
    for (int row = row_begin; row < row_end; ++row) out[row] = output(weights, row, tile, token % tile_tokens);
  }
}

}  // namespace

const AffineKernels& affine_scalar() {
  static constexpr AffineKernels kernels{quantise, multiply};
  return kernels;
}

const AffineKernels& affine_kernels(Isa isa) {
  switch (isa) {
    case Isa::avx512: return affine_avx512();
    case Isa::avx2: return affine_avx2();
    case Isa::scalar: break;
  }
  return affine_scalar();
}

}  // namespace tane
