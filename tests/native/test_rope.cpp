// Rotary frequencies, tables and the rotation: against float64 and against themselves.
#include <algorithm>

#include "harness.hpp"
#include "rope.hpp"

using namespace tane;
using test::same_bits;

namespace {

std::vector<float> frequencies(double base, int width, const RopeStretch* stretch = nullptr) {
  std::vector<float> all(width / 2);
  rope_frequencies(base, width, stretch, all.data());
  return all;
}

}  // namespace

TEST(frequencies_are_the_powers_of_the_base) {
  for (const double base : {10000.0, 100000.0, 500000.0, 1000000.0}) {
    for (const int width : {64, 80, 128}) {
      const std::vector<float> all = frequencies(base, width);
      CHECK(all[0] == 1.0f);
      for (int i = 0; i < width / 2; ++i)
        CHECK(std::fabs(all[i] / std::pow(base, -2.0 * i / width) - 1) < 6e-7);  // the exponent is float32
    }
  }
}

// Float32 numbers that the reference implementation gives for base 500,000, width 64 and Llama 3's factors.
TEST(stretched_frequencies_are_long_waves_divided_and_short_ones_left) {
  const RopeStretch stretch{8, 1, 4, 8192};
  const std::vector<float> plain = frequencies(500000, 64), all = frequencies(500000, 64, &stretch);
  int between = 0;
  for (int i = 0; i < 32; ++i) {
    const double turns = 8192 * plain[i] / (2 * M_PI);
    if (turns > 4) CHECK(all[i] == plain[i]);
    if (turns < 1) CHECK(all[i] == plain[i] / 8);
    if (turns >= 1 && turns <= 4) {
      const double smooth = (turns - 1) / 3, expected = (1 - smooth) * plain[i] / 8 + smooth * plain[i];
      CHECK(std::fabs(all[i] / expected - 1) < 1e-6);
      ++between;
    }
  }
  CHECK(between > 0);
}

TEST(tables_are_cosines_and_sines_of_the_float32_angle) {
  const std::vector<float> all = frequencies(100000, 64);
  std::vector<float> cosines(8192 * 32), sines(8192 * 32);
  fill_rope_rows(all.data(), 32, 0, 5000, cosines.data(), sines.data());
  fill_rope_rows(all.data(), 32, 5000, 8192, cosines.data(), sines.data());
  const RopeTable table{32, cosines.data(), sines.data()};
  double worst = 0;
  for (int position = 0; position < 8192; position += 3) {
    for (int i = 0; i < 32; ++i) {
      const double angle = static_cast<float>(position) * all[i];
      worst = std::max({worst, std::fabs(table.cosines_at(position)[i] - std::cos(angle)),
                        std::fabs(table.sines_at(position)[i] - std::sin(angle))});
    }
  }
  CHECK(worst <= 0x1p-25 + 1e-12);  // rounded once to float32
  CHECK(table.cosines_at(0)[5] == 1.0f && table.sines_at(0)[5] == 0.0f);
}

TEST(rotation_is_that_of_float64_and_keeps_lengths) {
  const std::vector<float> all = frequencies(10000, 64);
  std::vector<float> cosines(100 * 32), sines(100 * 32), x(3 * 64), out(3 * 64);
  fill_rope_rows(all.data(), 32, 0, 100, cosines.data(), sines.data());
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (auto& each : x) each = normal(random);
  rope_scalar().rotate(x.data(), 3, 32, &cosines[99 * 32], &sines[99 * 32], out.data());
  for (int head = 0; head < 3; ++head) {
    for (int i = 0; i < 32; ++i) {
      const double a = x[head * 64 + i], b = x[head * 64 + i + 32], angle = 99.0f * all[i];
      CHECK(std::fabs(out[head * 64 + i] - (a * std::cos(angle) - b * std::sin(angle))) < 1e-6);
      CHECK(std::fabs(out[head * 64 + i + 32] - (b * std::cos(angle) + a * std::sin(angle))) < 1e-6);
    }
  }
}

TEST(vectors_give_the_bits_of_the_scalar_definition_in_place_too) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (const int half : {1, 4, 8, 12, 20, 32, 36, 64, 128}) {
    for (const int heads : {0, 1, 3, 9}) {
      std::vector<float> x(heads * 2 * half), cosines(half), sines(half);
      for (auto* all : {&x, &cosines, &sines}) {
        for (auto& each : *all) each = normal(random);
      }
      std::vector<float> expected(x.size()), actual(x.size());
      rope_scalar().rotate(x.data(), heads, half, cosines.data(), sines.data(), expected.data());
      rope_avx2().rotate(x.data(), heads, half, cosines.data(), sines.data(), actual.data());
      CHECK(same_bits(expected, actual));
      rope_avx2().rotate(x.data(), heads, half, cosines.data(), sines.data(), x.data());
      CHECK(same_bits(expected, x));
    }
  }
}
