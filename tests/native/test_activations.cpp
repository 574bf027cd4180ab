// Activation codes: every instruction set equals the definition, whatever the floats.
#include "activations.hpp"

#include <cfloat>

#include "affine_fixtures.hpp"
#include "harness.hpp"

using namespace tane;
using namespace tane::test;

namespace {

const TokenGroup& group_of(const Input& input, int token, int group) {
  return input.view.tiles[token / tile_tokens * input.view.groups + group];
}

bool same_lanes(const Input& a, const Input& b, int tokens) {
  bool same = true;
  for (int token = 0; token < tokens; ++token) {
    for (int group = 0; group < a.view.groups; ++group) {
      const TokenGroup &left = group_of(a, token, group), &right = group_of(b, token, group);
      const int lane = token % tile_tokens;
      same &= std::memcmp(left.codes[lane], right.codes[lane], group_inputs) == 0;
      same &= same_bits(left.scale[lane], right.scale[lane]) && same_bits(left.scaled_sum[lane], right.scaled_sum[lane]);
      same &= left.minus_8_sums[lane] == right.minus_8_sums[lane] && left.minus_128_sums[lane] == right.minus_128_sums[lane];
    }
  }
  return same;
}

void check_all(const std::vector<float>& x, int tokens, int inputs) {
  const Input expected = quantised(affine_scalar(), x, tokens, inputs);
  for (const Isa isa : available_isas()) CHECK(same_lanes(expected, quantised(affine_kernels(isa), x, tokens, inputs), tokens));
}

std::vector<float> one_group(float first, float rest) {
  std::vector<float> x(group_inputs, rest);
  x[0] = first;
  return x;
}

}  // namespace

TEST(random_rows) {
  std::mt19937 random(1);
  for (const int inputs : {32, 96, 576}) {
    for (const int tokens : {1, 3, 8, 17}) {
      const auto count = static_cast<std::size_t>(tokens * inputs);
      check_all(random_floats(count, random), tokens, inputs);
    }
  }
}

TEST(random_bits) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<float> x(4 * group_inputs);
    const std::uint32_t exponent = random() % 255;  // one magnitude for a group, or every float is a giant beside the others
    for (auto& value : x) {
      const std::uint32_t bits = trial % 3 == 0 ? random() : (random() & 0x80FFFFFFu) | exponent << 23;
      value = std::bit_cast<float>(bits);
    }
    check_all(x, 2, 64);
  }
}

TEST(every_special_value_in_every_place) {
  const float magnitudes[] = {std::nanf(""), HUGE_VALF,        FLT_MAX,   FLT_MIN, FLT_TRUE_MIN, 0.0f,
                              0x1p-100f,     0x1.fffffep-101f, 0x1p-126f, 127.0f};
  std::vector<float> specials;
  for (const float magnitude : magnitudes) specials.insert(specials.end(), {magnitude, -magnitude});
  std::mt19937 random(3);
  for (const float special : specials) {
    for (int place = 0; place < group_inputs; ++place) {
      for (const float scale : {1.0f, 0x1p-99f, 0x1p-110f, 0x1p100f, 0.0f}) {
        std::vector<float> x = random_floats(group_inputs, random);
        for (auto& value : x) value *= scale;
        x[static_cast<std::size_t>(place)] = special;
        check_all(x, 1, group_inputs);
      }
    }
  }
}

TEST(halves_round_to_even) {
  std::vector<float> x(group_inputs);
  for (int k = 0; k < group_inputs; ++k) x[static_cast<std::size_t>(k)] = static_cast<float>(k) - 15.5f;
  x[31] = 127.0f;
  check_all(x, 1, group_inputs);
  const Input codes = quantised(affine_scalar(), x, 1, group_inputs);
  for (int k = 0; k < 31; ++k) CHECK(codes.view.tiles[0].codes[0][k] % 2 == 0);
  CHECK(codes.view.tiles[0].codes[0][31] == 127);
}

TEST(codes_stay_within_127_for_every_top_fraction) {
  for (std::uint32_t fraction = 0; fraction < 1u << 23; fraction += 257) {
    for (const std::uint32_t exponent : {27u, 126u, 127u, 254u}) {
      const float top = std::bit_cast<float>(exponent << 23 | fraction);
      const Input codes = quantised(affine_scalar(), one_group(top, -top), 1, group_inputs);
      const TokenGroup& group = codes.view.tiles[0];
      if (!(group.codes[0][0] == 127 && group.codes[0][1] == -127)) CHECK(group.codes[0][0] == 127);
    }
  }
}

TEST(a_group_that_is_not_finite_is_nan_and_its_neighbours_are_not) {
  std::mt19937 random(4);
  for (const Isa isa : available_isas()) {
    for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> x = random_floats(3 * group_inputs, random);
      x[40] = bad;
      const Input codes = quantised(affine_kernels(isa), x, 1, 3 * group_inputs);
      for (int group = 0; group < 3; ++group) {
        CHECK(std::isnan(codes.view.tiles[group].scale[0]) == (group == 1));
        CHECK(std::isnan(codes.view.tiles[group].scaled_sum[0]) == (group == 1));
      }
      for (const std::int8_t code : codes.view.tiles[1].codes[0]) CHECK(code == 0);
    }
  }
}

TEST(tiny_groups_are_zero) {
  for (const Isa isa : available_isas()) {
    const Input zero = quantised(affine_kernels(isa), one_group(0x1.fffffep-101f, -0x1p-120f), 1, group_inputs);
    CHECK(same_bits(zero.view.tiles[0].scale[0], 0.0f) && zero.view.tiles[0].codes[0][0] == 0);
    const Input kept = quantised(affine_kernels(isa), one_group(0x1p-100f, 0), 1, group_inputs);
    CHECK(kept.view.tiles[0].scale[0] > 0 && kept.view.tiles[0].codes[0][0] == 127);
  }
}

TEST(codes_are_within_half_a_step) {
  std::mt19937 random(5);
  const std::vector<float> x = random_floats(100 * group_inputs, random);
  const Input codes = quantised(affine_kernels(best_isa()), x, 1, 100 * group_inputs);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const TokenGroup& group = codes.view.tiles[i / group_inputs];
    const float error = std::fabs(x[i] - group.scale[0] * static_cast<float>(group.codes[0][i % group_inputs]));
    CHECK(error <= group.scale[0] * 0.50001f);
  }
}

TEST(only_the_asked_tokens_are_read_and_written) {
  std::mt19937 random(6);
  const int tokens = 11, inputs = 64;
  const std::vector<float> x = random_floats(tokens * inputs, random);
  for (const Isa isa : available_isas()) {
    const Input whole = quantised(affine_kernels(isa), x, tokens, inputs);
    const Input part = empty_input(tokens, inputs);
    std::memset(static_cast<void*>(part.view.tiles), 0x55, activation_bytes(tokens, inputs));
    for (const auto& [begin, end] : {std::pair{0, 3}, {3, 3}, {3, 10}, {10, 11}}) {
      affine_kernels(isa).quantise(x.data(), inputs, begin, end, part.view);
    }
    CHECK(same_lanes(whole, part, tokens));
    CHECK(part.view.tiles[2].codes[3][0] == 0x55);  // token 11 does not exist
  }
}
