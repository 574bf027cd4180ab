// Packing: what a file holds is what the layer multiplies by, and floats are rounded to the nearest point of the grid.
#include "affine.hpp"

#include "affine_fixtures.hpp"
#include "float16.hpp"
#include "harness.hpp"

using namespace tane;
using namespace tane::test;

namespace {

std::uint16_t random_scale(std::mt19937& random) {
  return float16_of(static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 9999.0f);
}

void put_half(std::uint8_t* bytes, std::uint16_t half) {
  bytes[0] = static_cast<std::uint8_t>(half & 255);
  bytes[1] = static_cast<std::uint8_t>(half >> 8);
}

struct Format {
  AffineForm form;
  std::size_t block_bytes;
  bool (*pack)(const AffineWeights&, int, const std::uint8_t*);
  float (*value)(const std::uint8_t* block, int k);
};

int nibble(const std::uint8_t* bytes, int k) { return k < 16 ? bytes[k] & 15 : bytes[k - 16] >> 4; }
float half_at(const std::uint8_t* bytes) { return float32_of(static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8)); }

const Format formats[] = {
    {{false, true, true}, 18, pack_q4_0,
     [](const std::uint8_t* block, int k) { return half_at(block) * static_cast<float>(nibble(block + 2, k) - 8); }},
    {{false, false, true}, 20, pack_q4_1,
     [](const std::uint8_t* block, int k) {
       return std::fma(half_at(block), static_cast<float>(nibble(block + 4, k)), half_at(block + 2));
     }},
    {{true, true, true}, 34, pack_q8_0,
     [](const std::uint8_t* block, int k) {
       return half_at(block) * static_cast<float>(static_cast<std::int8_t>(block[2 + k]));
     }},
};

}  // namespace

TEST(block_formats_are_exact_as_stored) {
  std::mt19937 random(1);
  const int outputs = 35, inputs = 96;
  for (const Format& format : formats) {
    const Layer layer = empty_layer(format.form, outputs, inputs);
    std::vector<std::vector<std::uint8_t>> rows;
    for (int row = 0; row < outputs; ++row) {
      std::vector<std::uint8_t> blocks(3 * format.block_bytes);
      for (auto& byte : blocks) byte = static_cast<std::uint8_t>(random());
      for (std::size_t block = 0; block < 3; ++block) {
        put_half(blocks.data() + block * format.block_bytes, random_scale(random));
        if (!format.form.centred) put_half(blocks.data() + block * format.block_bytes + 2, random_scale(random));
      }
      CHECK(format.pack(layer.weights, row, blocks.data()));
      rows.push_back(blocks);
    }
    std::vector<float> values(inputs);
    for (int row = 0; row < outputs; ++row) {
      unpack_row(layer.weights, row, values.data());
      for (int input = 0; input < inputs; ++input) {
        const std::uint8_t* blocks = rows[static_cast<std::size_t>(row)].data();
        const std::uint8_t* block = blocks + static_cast<std::size_t>(input / 32) * format.block_bytes;
        CHECK(same_bits(values[static_cast<std::size_t>(input)], format.value(block, input % 32)));
      }
    }
  }
}

TEST(scales_that_are_not_finite_are_refused) {
  for (const Format& format : formats) {
    for (const std::uint16_t bad : {0x7C00, 0xFC00, 0x7E00}) {
      for (std::size_t place = 0; place < (format.form.centred ? 2 : 4); place += 2) {
        const Layer layer = empty_layer(format.form, 1, 64);
        std::vector<std::uint8_t> blocks(2 * format.block_bytes);
        put_half(blocks.data() + format.block_bytes + place, bad);
        CHECK(!format.pack(layer.weights, 0, blocks.data()));
      }
    }
  }
}

TEST(codes_come_back) {
  std::mt19937 random(2);
  for (const AffineForm form : all_forms()) {
    const Layer layer = empty_layer(form, 18, 64);
    std::vector<std::uint8_t> codes(64);
    for (auto& code : codes) code = static_cast<std::uint8_t>(random() % (form.eight_bits ? 256 : 16));
    const float d[2] = {0.5f, -0.25f}, m[2] = {3, -7};
    CHECK(pack_codes(layer.weights, 17, codes.data(), d, m));
    std::vector<float> values(64);
    unpack_row(layer.weights, 17, values.data());
    for (std::size_t k = 0; k < 64; ++k) {
      const float centre = form.centred ? (form.eight_bits ? 128 : 8) : 0, offset = form.centred ? 0 : m[k / 32];
      CHECK(values[k] == d[k / 32] * (codes[k] - centre) + offset);
    }
  }
}

TEST(scales_that_float16_would_change_are_refused) {
  const std::vector<std::uint8_t> codes(32, 1);
  const float exact = 0.5f, inexact = 0.1f, great = 1e6f;
  const Layer half = empty_layer({false, false, true}, 1, 32), single = empty_layer({false, false, false}, 1, 32);
  CHECK(pack_codes(half.weights, 0, codes.data(), &exact, &exact));
  CHECK(!pack_codes(half.weights, 0, codes.data(), &inexact, &exact));
  CHECK(!pack_codes(half.weights, 0, codes.data(), &exact, &inexact));
  CHECK(!pack_codes(half.weights, 0, codes.data(), &great, &exact));
  CHECK(pack_codes(single.weights, 0, codes.data(), &inexact, &great));
}

TEST(codes_of_too_many_bits_are_refused) {
  const float d = 1, m = 0;
  std::vector<std::uint8_t> codes(32, 15);
  const Layer layer = empty_layer({false, false, true}, 1, 32);
  CHECK(pack_codes(layer.weights, 0, codes.data(), &d, &m));
  codes[31] = 16;
  CHECK(!pack_codes(layer.weights, 0, codes.data(), &d, &m));
}

TEST(floats_go_to_the_nearest_point) {
  std::mt19937 random(3);
  for (const AffineForm form : all_forms()) {
    for (const float scale : {1.0f, 1e-3f, 300.0f}) {
      const Layer layer = empty_layer(form, 5, 320);
      for (int row = 0; row < 5; ++row) {
        std::vector<float> values = random_floats(320, random), packed(320);
        for (auto& value : values) value *= scale;
        CHECK(pack_floats(layer.weights, row, values.data()));
        unpack_row(layer.weights, row, packed.data());
        for (std::size_t group = 0; group < 10; ++group) {
          float top = 0, worst = 0;
          for (std::size_t k = group * 32; k < group * 32 + 32; ++k) {
            top = std::fmax(top, std::fabs(values[k]));
            worst = std::fmax(worst, std::fabs(values[k] - packed[k]));
          }
          // Half a step; the range of 15 steps of one sign may be twice the top, and -8..7 lacks a code for +8.
          const float steps = form.eight_bits ? (form.centred ? 127 : 127.5f) : (form.centred ? 8 : 7.5f);
          CHECK(worst <= top / steps * (form.eight_bits || !form.centred ? 0.502f : 1.005f));
        }
      }
    }
  }
}

TEST(zeros_and_constants_are_exact) {
  for (const AffineForm form : all_forms()) {
    const Layer layer = empty_layer(form, 1, 32);
    for (const float constant : {0.0f, 1.0f, -4.0f}) {
      std::vector<float> values(32, constant), packed(32);
      CHECK(pack_floats(layer.weights, 0, values.data()));
      unpack_row(layer.weights, 0, packed.data());
      for (const float value : packed) CHECK(std::fabs(value - constant) <= 5e-4f * std::fabs(constant));
    }
  }
}

TEST(floats_that_have_no_grid_are_refused) {
  for (const AffineForm form : all_forms()) {
    const Layer layer = empty_layer(form, 1, 32);
    for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> values(32, 1.0f);
      values[9] = bad;
      CHECK(!pack_floats(layer.weights, 0, values.data()));
    }
    const std::vector<float> great(32, -3e38f);
    CHECK(pack_floats(layer.weights, 0, great.data()) == !form.half_scales);
  }
}

TEST(shapes_are_checked) {
  CHECK(affine_supports(1, 32) && affine_supports(49152, 576));
  CHECK(!affine_supports(0, 32) && !affine_supports(16, 0) && !affine_supports(16, 33) && !affine_supports(-16, 32));
  CHECK(!affine_supports(2147483647, 32));
}

TEST(bytes_are_those_of_the_layout) {
  CHECK(affine_bytes({false, false, true}, 16, 32) == 256 + 64);
  CHECK(affine_bytes({false, true, true}, 17, 32) == 2 * 256 + 64);
  CHECK(affine_bytes({true, true, true}, 16, 96) == 3 * 512 + 128);
  CHECK(affine_bytes({true, false, false}, 1, 32) == 512 + 128);
}
