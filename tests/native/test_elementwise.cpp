// Norms, gates, sums, scaling and half precision: against float64, and vectors against the scalar definition.
#include <algorithm>
#include <limits>

#include "elementwise.hpp"
#include "harness.hpp"

using namespace tane;
using test::same_bits;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr int widths[] = {1, 2, 7, 8, 9, 15, 16, 31, 40, 64, 576, 577, 1536, 4096};

std::vector<float> numbers(int count, float spread, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> all(count);
  for (auto& x : all) x = normal(random);
  return all;
}

// Numbers of every kind among ordinary ones.
std::vector<float> with_special(int count, unsigned seed) {
  constexpr float special[] = {0.0f,  -0.0f,  infinity, -infinity, 0x1p-149f, -0x1p-126f,
                               3e38f, -3e38f, 88.8f,    -104.5f,   -87.5f,    1e-20f};
  std::vector<float> all = numbers(count, 20, seed);
  for (int i = 0; i < count; i += 3) all[i] = special[(i / 3 + seed) % std::size(special)];
  if (count > 20) all[20] = std::numeric_limits<float>::quiet_NaN();
  return all;
}

std::vector<float> normed(const ElementwiseKernels& kernels, const std::vector<float>& x, const std::vector<float>& gain) {
  std::vector<float> out(x.size(), -7.0f);
  kernels.rms_norm(x.data(), gain.data(), 1e-5, static_cast<int>(x.size()), out.data());
  return out;
}

std::vector<float> layer_normed(const ElementwiseKernels& kernels, const std::vector<float>& x, const std::vector<float>& gain,
                                const std::vector<float>& bias) {
  std::vector<float> out(x.size(), -7.0f);
  kernels.layer_norm(x.data(), gain.data(), bias.data(), 1e-5, static_cast<int>(x.size()), out.data());
  return out;
}

double true_gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

}  // namespace

TEST(rms_norm_is_within_2_units_of_float64) {
  double worst = 0;
  for (const int width : widths) {
    const std::vector<float> x = numbers(width, 3, width), gain = numbers(width, 1, width + 1),
                             out = normed(elementwise_scalar(), x, gain);
    long double sum = 0;
    for (const float each : x) sum += static_cast<long double>(each) * each;
    for (int i = 0; i < width; ++i) {
      const double expected = static_cast<double>(x[i] / std::sqrt(sum / width + 1e-5L) * gain[i]);
      if (expected != 0) worst = std::max(worst, std::fabs(out[i] - expected) / std::fabs(expected));
    }
  }
  std::printf("  rms_norm: %.2e\n", worst);
  CHECK(worst < 2 * 0x1p-23);
}

TEST(silu_is_within_3_units_of_float64) {
  double worst = 0;
  const std::vector<float> gate = numbers(60000, 9, 1), up(60000, 1.0f);
  std::vector<float> out(60000);
  elementwise_scalar().silu_multiply(gate.data(), up.data(), 60000, out.data());
  for (int i = 0; i < 60000; ++i) {
    const double expected = gate[i] / (1 + std::exp(-double{gate[i]}));
    if (expected != 0) worst = std::max(worst, std::fabs(out[i] - expected) / std::fabs(expected));
  }
  std::printf("  silu: %.2e\n", worst);
  CHECK(worst < 3 * 0x1p-23);
}

TEST(silu_ends_are_zero_and_the_number_itself) {
  const std::vector<float> gate{-200, -1e30f, 200, 0, -0.0f}, up(5, 1.0f);
  std::vector<float> out(5);
  elementwise_scalar().silu_multiply(gate.data(), up.data(), 5, out.data());
  CHECK(out[0] == 0 && out[1] == 0 && out[2] == 200 && out[3] == 0 && out[4] == 0);
}

// The numbers stand far from 0, as those that a LayerNorm centres may: the sums must not lose them.
TEST(layer_norm_is_within_3_units_of_float64) {
  double worst = 0;
  for (const int width : widths) {
    for (const float centre : {0.0f, 1000.0f}) {
      std::vector<float> x = numbers(width, 3, width);
      for (auto& each : x) each += centre;
      const std::vector<float> gain = numbers(width, 1, width + 1), bias = numbers(width, 1, width + 2),
                               out = layer_normed(elementwise_scalar(), x, gain, bias);
      long double mean = 0, variance = 0;
      for (const float each : x) mean += each / static_cast<long double>(width);
      for (const float each : x) variance += (each - mean) * (each - mean) / width;
      for (int i = 0; i < width; ++i) {
        const double scaled = static_cast<double>((x[i] - mean) / std::sqrt(variance + 1e-5L) * gain[i]), expected = scaled + bias[i];
        worst = std::max(worst, std::fabs(out[i] - expected) / (std::fabs(scaled) + std::fabs(expected) + 1e-9));
      }
    }
  }
  std::printf("  layer_norm: %.2e\n", worst);
  CHECK(worst < 3 * 0x1p-23);
}

// The argument of the exponential is rounded, so an error grows with it; what is left of the number is tiny there.
TEST(gelu_is_that_of_float64) {
  double worst = 0;
  const std::vector<float> x = numbers(60000, 3, 8);
  std::vector<float> out(60000);
  elementwise_scalar().gelu(x.data(), 60000, out.data());
  for (int i = 0; i < 60000; ++i) {
    const double exponent = std::fabs(2 * std::sqrt(2 / M_PI) * (x[i] + 0.044715 * std::pow(double{x[i]}, 3)));
    const double error = std::fabs(out[i] - true_gelu(x[i]));
    if (x[i] != 0 && x[i] > -5) worst = std::max(worst, error / std::fabs(true_gelu(x[i])) / (1 + exponent));
    CHECK(error <= 2e-7 * std::max(1.0f, std::fabs(x[i])));
  }
  std::printf("  gelu: %.2e\n", worst);
  CHECK(worst < 3 * 0x1p-23);
}

TEST(gelu_ends_are_zero_and_the_number_itself) {
  const std::vector<float> x{-200, -1e30f, 200, 0, -0.0f, 1e30f, 1e-30f};
  std::vector<float> out(7);
  elementwise_scalar().gelu(x.data(), 7, out.data());
  CHECK(out[0] == 0 && out[1] == 0 && out[2] == 200 && out[3] == 0 && out[4] == 0 && out[5] == 1e30f && out[6] == 0.5e-30f);
}

TEST(a_gate_of_gelu_is_gelu_times_up) {
  const std::vector<float> gate = numbers(1000, 3, 1), up = numbers(1000, 3, 2);
  std::vector<float> gated(1000), plain(1000);
  elementwise_scalar().gelu_multiply(gate.data(), up.data(), 1000, gated.data());
  elementwise_scalar().gelu(gate.data(), 1000, plain.data());
  for (int i = 0; i < 1000; ++i) CHECK(same_bits(gated[i], plain[i] * up[i]));
}

TEST(vectors_give_the_bits_of_the_scalar_definition) {
  for (const int width : widths) {
    for (unsigned seed = 0; seed < 6; ++seed) {
      const std::vector<float> x = seed < 3 ? numbers(width, seed == 0 ? 1e-20f : 30, seed) : with_special(width, seed);
      const std::vector<float> y = seed % 2 == 0 ? numbers(width, 2, seed + 9) : with_special(width, seed + 1);
      CHECK(same_bits(normed(elementwise_scalar(), x, y), normed(elementwise_avx2(), x, y)));
      CHECK(same_bits(layer_normed(elementwise_scalar(), x, y, x), layer_normed(elementwise_avx2(), x, y, x)));
      std::vector<float> out[2] = {std::vector<float>(width), std::vector<float>(width)};
      for (int k = 0; k < 2; ++k)
        (k == 0 ? elementwise_scalar() : elementwise_avx2()).gelu_multiply(x.data(), y.data(), width, out[k].data());
      CHECK(same_bits(out[0], out[1]));
      for (int k = 0; k < 2; ++k) (k == 0 ? elementwise_scalar() : elementwise_avx2()).gelu(x.data(), width, out[k].data());
      CHECK(same_bits(out[0], out[1]));
      for (int k = 0; k < 2; ++k) (k == 0 ? elementwise_scalar() : elementwise_avx2()).scale(x.data(), 25.25f, width, out[k].data());
      CHECK(same_bits(out[0], out[1]));
      std::vector<Float16> halves[2] = {std::vector<Float16>(width), std::vector<Float16>(width)};
      for (int k = 0; k < 2; ++k)
        (k == 0 ? elementwise_scalar() : elementwise_avx2()).silu_multiply(x.data(), y.data(), width, out[k].data());
      CHECK(same_bits(out[0], out[1]));
      for (int k = 0; k < 2; ++k)
        (k == 0 ? elementwise_scalar() : elementwise_avx2()).add(x.data(), y.data(), width, out[k].data());
      CHECK(same_bits(out[0], out[1]));
      for (int k = 0; k < 2; ++k)
        (k == 0 ? elementwise_scalar() : elementwise_avx2()).to_float16(x.data(), width, halves[k].data());
      CHECK(halves[0] == halves[1]);
      for (int k = 0; k < 2; ++k)
        (k == 0 ? elementwise_scalar() : elementwise_avx2()).to_float32(halves[k].data(), width, out[k].data());
      CHECK(same_bits(out[0], out[1]));
    }
  }
}

TEST(outputs_may_be_the_inputs_and_nothing_else_is_written) {
  for (const ElementwiseKernels* kernels : {&elementwise_scalar(), &elementwise_avx2()}) {
    for (const int width : widths) {
      const std::vector<float> x = numbers(width, 1, 3), y = numbers(width, 1, 4), expected = normed(*kernels, x, y);
      std::vector<float> padded = x;
      padded.push_back(-7.0f);
      kernels->rms_norm(padded.data(), y.data(), 1e-5, width, padded.data());
      CHECK(same_bits(expected, std::vector<float>(padded.begin(), padded.end() - 1)) && padded.back() == -7.0f);
      const std::vector<float> centred = layer_normed(*kernels, x, y, x);
      std::copy(x.begin(), x.end(), padded.begin());
      kernels->layer_norm(padded.data(), y.data(), x.data(), 1e-5, width, padded.data());
      CHECK(same_bits(centred, std::vector<float>(padded.begin(), padded.end() - 1)) && padded.back() == -7.0f);
      kernels->gelu_multiply(padded.data(), y.data(), width, padded.data());
      kernels->gelu(padded.data(), width, padded.data());
      kernels->scale(padded.data(), 3.0f, width, padded.data());
      kernels->silu_multiply(padded.data(), y.data(), width, padded.data());
      kernels->add(padded.data(), y.data(), width, padded.data());
      CHECK(padded.back() == -7.0f);
    }
  }
}

TEST(a_nan_spoils_its_row_of_a_norm) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity}) {
    std::vector<float> x = numbers(100, 1, 5);
    x[37] = bad;
    for (const ElementwiseKernels* kernels : {&elementwise_scalar(), &elementwise_avx2()}) {
      const std::vector<float> ones(100, 1.0f);
      CHECK(std::isnan(normed(*kernels, x, ones)[37]));
      for (const float each : layer_normed(*kernels, x, ones, ones)) CHECK(std::isnan(each));
    }
  }
}
