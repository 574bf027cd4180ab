// Accuracy against long double, exact cases, and the conversions of half precision.
#include <algorithm>
#include <limits>

#include "float16.hpp"
#include "harness.hpp"
#include "vector_math.hpp"

using namespace tane;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
const float not_a_number = std::numeric_limits<float>::quiet_NaN();

// The distance from the true value in units of the last place of what was expected.
double ulps(float actual, long double expected) {
  const float near = static_cast<float>(expected);
  if (near == actual) return 0;
  const float unit = std::max(std::nextafterf(std::fabs(near), infinity) - std::fabs(near), 0x1.0p-149f);
  return static_cast<double>(std::fabs(static_cast<long double>(actual) - expected) / unit);
}

double ulps(double actual, long double expected) {
  const double near = static_cast<double>(expected);
  if (near == actual) return 0;
  const double unit = std::max(std::nextafter(std::fabs(near), double{infinity}) - std::fabs(near), 0x1.0p-1074);
  return static_cast<double>(std::fabs(static_cast<long double>(actual) - expected) / unit);
}

}  // namespace

TEST(exp_of_float32_is_within_1_ulp_everywhere) {
  double worst = 0;
  for (std::uint32_t bits = 0; bits < 0x42B20000u; bits += 997) {
    for (const float x : {float_of_bits(bits), -float_of_bits(bits)}) {
      if (x < 88.72f) worst = std::max(worst, ulps(exponential(x), std::exp(static_cast<long double>(x))));
    }
  }
  for (float x = -87; x > -104; x -= 0.0007f)
    worst = std::max(worst, ulps(exponential(x), std::exp(static_cast<long double>(x))));
  std::printf("  exp float32: %.3f ulp\n", worst);
  CHECK(worst <= 1.0);
}

TEST(exp2_of_float32_is_within_1_ulp_and_flushes_below_the_normal_range) {
  double worst = 0;
  for (float y = 1; y >= -126; y -= 0.00013f)
    worst = std::max(worst, ulps(power_of_2(y), std::exp2(static_cast<long double>(y))));
  std::printf("  exp2 float32: %.3f ulp\n", worst);
  CHECK(worst <= 1.0);
  CHECK(power_of_2(-126.0f) == 0x1.0p-126f);
  CHECK(power_of_2(-126.5f) == 0.0f);
  CHECK(power_of_2(-infinity) == 0.0f);
  CHECK(power_of_2(-1e30f) == 0.0f);
  CHECK(power_of_2(0.0f) == 1.0f);
  CHECK(std::isnan(power_of_2(not_a_number)));
}

TEST(exp_of_float64_is_within_1_ulp_everywhere) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> all(-745, 709), near(-1, 1);
  double worst = 0;
  for (int i = 0; i < 400000; ++i) {
    const double x = i % 2 == 0 ? all(random) : near(random);
    worst = std::max(worst, ulps(exponential(x), std::exp(static_cast<long double>(x))));
  }
  std::printf("  exp float64: %.3f ulp\n", worst);
  CHECK(worst <= 1.0);
}

TEST(exp_is_exact_at_its_ends) {
  CHECK(exponential(0.0f) == 1.0f && exponential(-0.0f) == 1.0f);
  CHECK(exponential(-infinity) == 0.0f && exponential(-1e30f) == 0.0f && exponential(-104.0f) == 0.0f);
  CHECK(exponential(infinity) == infinity && exponential(89.0f) == infinity && exponential(88.72283f) < infinity);
  CHECK(exponential(-103.9f) == 0x1.0p-149f);
  CHECK(std::isnan(exponential(not_a_number)) && std::isnan(exponential(-not_a_number)));
  CHECK(exponential(0.0) == 1.0);
  CHECK(exponential(-double{infinity}) == 0.0 && exponential(-1e300) == 0.0 && exponential(-745.2) == 0.0);
  CHECK(exponential(double{infinity}) == double{infinity} && exponential(709.79) == double{infinity} &&
        exponential(709.78) < double{infinity});
  CHECK(exponential(-745.1) == 0x1.0p-1074);
  CHECK(std::isnan(exponential(double{not_a_number})));
}

TEST(log_is_within_1_ulp) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> exponent(-700, 700), near(0.5, 2.0), totals(1, 50000);
  double worst = 0;
  for (int i = 0; i < 400000; ++i) {
    const double x = i % 3 == 0 ? std::exp(exponent(random)) : i % 3 == 1 ? near(random) : totals(random);
    worst = std::max(worst, ulps(logarithm(x), std::log(static_cast<long double>(x))));
  }
  std::printf("  log float64: %.3f ulp\n", worst);
  CHECK(worst <= 1.0);
  CHECK(logarithm(1.0) == 0.0);
  CHECK(std::isnan(logarithm(0.0)) && std::isnan(logarithm(-1.0)) && std::isnan(logarithm(double{infinity})) &&
        std::isnan(logarithm(double{not_a_number})));
}

TEST(sine_and_cosine_are_exact_to_1e_15) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> angles(0, 131072);
  long double worst = 0;
  for (int i = 0; i < 300000; ++i) {
    const double x = i % 2 == 0 ? static_cast<double>(static_cast<float>(angles(random))) : angles(random) / 131072 * 7;
    const SineCosine both = sine_cosine(x);
    worst = std::max({worst, std::fabs(both.sine - std::sin(static_cast<long double>(x))),
                      std::fabs(both.cosine - std::cos(static_cast<long double>(x)))});
  }
  std::printf("  sine, cosine: %.2Le\n", worst);
  CHECK(worst <= 1e-15L);
  CHECK(sine_cosine(0.0).sine == 0.0 && sine_cosine(0.0).cosine == 1.0);
}

TEST(every_half_survives_the_way_to_float32_and_back) {
  for (std::uint32_t half = 0; half < 0x10000u; ++half) {
    const float wide = float32_of(static_cast<Float16>(half));
    const bool is_nan = (half & 0x7FFFu) > 0x7C00u;
    CHECK(std::isnan(wide) == is_nan);
    CHECK(float16_of(wide) == (is_nan ? half | 0x200u : half));
  }
}

TEST(float16_rounds_half_to_even) {
  for (std::uint32_t half = 0; half < 0x7BFFu; ++half) {
    const double below = float32_of(static_cast<Float16>(half)), above = float32_of(static_cast<Float16>(half + 1));
    const float middle = static_cast<float>((below + above) / 2);
    CHECK(float16_of(middle) == (half % 2 == 0 ? half : half + 1));
    CHECK(float16_of(std::nextafterf(middle, 0.0f)) == half);
    CHECK(float16_of(std::nextafterf(middle, infinity)) == half + 1);
    CHECK(float16_of(-middle) == (float16_of(middle) | 0x8000u));
  }
  CHECK(float16_of(65519.996f) == 0x7BFFu && float16_of(65520.0f) == 0x7C00u && float16_of(infinity) == 0x7C00u);
  CHECK(float16_of(1e30f) == 0x7C00u && float16_of(-1e-30f) == 0x8000u);
}

TEST(nearest_rounds_half_to_even) {
  CHECK(nearest(0.5f) == 0 && nearest(1.5f) == 2 && nearest(2.5f) == 2 && nearest(-0.5f) == 0 && nearest(-1.5f) == -2);
  CHECK(nearest(32767.0f) == 32767 && nearest(-32767.0f) == -32767 && nearest(126.50001f) == 127);
}
