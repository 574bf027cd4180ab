// Every lane of a vector function carries the bits of the scalar definition.
#include <limits>

#include "float16.hpp"
#include "harness.hpp"
#include "vector_math_avx2.hpp"

using namespace tane;
using test::same_bits;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double special[] = {0.0,  -0.0,   infinity, -infinity, std::numeric_limits<double>::quiet_NaN(),
                              1e30, -1e30,  0x1p-149, -0x1p-149, 88.7,
                              88.8, 89,     -87.4,    -103.9,    -104,
                              -126, -126.1, -127,     127,       709.7,
                              710,  -708.5, -745.1,   -745.2,    -746};

template <typename Number>
std::vector<Number> inputs(double low, double high) {
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> between(low, high);
  std::vector<Number> all(200000);
  for (auto& x : all) x = static_cast<Number>(between(random));
  for (std::size_t i = 0; i < std::size(special); ++i) all[3 * i] = static_cast<Number>(special[i]);
  return all;
}

}  // namespace

TEST(exponentials_of_float32_are_those_of_the_scalar_definition) {
  for (const double low : {-160.0, -3.0}) {
    const std::vector<float> x = inputs<float>(low, low + 250);
    float lanes[8];
    for (std::size_t i = 0; i < x.size(); i += 8) {
      _mm256_storeu_ps(lanes, exponential(_mm256_loadu_ps(&x[i])));
      for (int lane = 0; lane < 8; ++lane) CHECK(same_bits(exponential(x[i + lane]), lanes[lane]));
      _mm256_storeu_ps(lanes, power_of_2(_mm256_loadu_ps(&x[i])));
      for (int lane = 0; lane < 8; ++lane) CHECK(x[i + lane] > 127.0f || same_bits(power_of_2(x[i + lane]), lanes[lane]));
    }
  }
}

TEST(exponentials_of_float64_are_those_of_the_scalar_definition) {
  for (const double low : {-760.0, -3.0}) {
    const std::vector<double> x = inputs<double>(low, low + 1500);
    double lanes[4];
    for (std::size_t i = 0; i < x.size(); i += 4) {
      _mm256_storeu_pd(lanes, exponential(_mm256_loadu_pd(&x[i])));
      for (int lane = 0; lane < 4; ++lane) CHECK(same_bits(exponential(x[i + lane]), lanes[lane]));
    }
  }
}

TEST(sums_add_their_lanes_in_the_same_tree) {
  const std::vector<float> x = inputs<float>(-1000, 1000);
  const std::vector<double> y = inputs<double>(-1000, 1000);
  for (std::size_t i = 96; i < x.size(); i += 8) {
    CHECK(same_bits(sum_of_8(&x[i]), sum_of_8(_mm256_loadu_ps(&x[i]))));
    CHECK(same_bits(sum_of_4(&y[i]), sum_of_4(_mm256_loadu_pd(&y[i]))));
    float greatest = x[i];
    for (int lane = 1; lane < 8; ++lane) greatest = std::fmax(greatest, x[i + lane]);
    CHECK(greatest == greatest_of_8(_mm256_loadu_ps(&x[i])));
  }
}

TEST(half_precision_is_that_of_the_hardware) {
  for (std::uint32_t half = 0; half < 0x10000u; ++half) {
    CHECK(bits_of(float32_of(static_cast<Float16>(half))) == bits_of(_cvtsh_ss(static_cast<unsigned short>(half))));
  }
  for (std::uint64_t bits = 0; bits < 0x100000000u; bits += 1009) {
    const float x = float_of_bits(static_cast<std::uint32_t>(bits));
    CHECK(float16_of(x) == _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
  }
}
