// The affine product: every instruction set gives the bits of the definition, for any batch, range and shape.
#include "affine.hpp"

#include "affine_fixtures.hpp"
#include "harness.hpp"
#include "pool.hpp"

using namespace tane;
using namespace tane::test;

namespace {

constexpr float untouched = -12345.678f;

std::vector<float> product(Isa isa, const AffineWeights& weights, const Activations& x, int tokens) {
  const auto stride = static_cast<std::size_t>(weights.outputs);
  std::vector<float> y(stride * static_cast<std::size_t>(tokens), untouched);
  affine_kernels(isa).multiply(weights, x, 0, tokens, 0, affine_blocks(weights.outputs), y.data(), stride);
  return y;
}

// What the weights and activations mean, in float64: the definition may differ from it by rounding only.
double exact_output(const AffineWeights& weights, const std::vector<float>& row, const TokenGroup* tile, int lane) {
  double sum = 0;
  for (int input = 0; input < weights.inputs; ++input) {
    const TokenGroup& group = tile[input / group_inputs];
    sum += static_cast<double>(row[static_cast<std::size_t>(input)]) * group.scale[lane] *
           group.codes[lane][input % group_inputs];
  }
  return sum;
}

}  // namespace

TEST(definition_is_the_product_up_to_rounding) {
  std::mt19937 random(1);
  for (const AffineForm form : all_forms()) {
    const int outputs = 21, inputs = 160, tokens = 10;
    const Layer layer = random_layer(form, outputs, inputs, random);
    const Input x = quantised(affine_scalar(), random_floats(tokens * inputs, random), tokens, inputs);
    const std::vector<float> y = product(Isa::scalar, layer.weights, x.view, tokens);
    std::vector<float> row(inputs);
    for (int output = 0; output < outputs; ++output) {
      unpack_row(layer.weights, output, row.data());
      for (int token = 0; token < tokens; ++token) {
        const TokenGroup* tile = x.view.tiles + token / tile_tokens * x.view.groups;
        const double expected = exact_output(layer.weights, row, tile, token % tile_tokens);
        CHECK(std::fabs(y[static_cast<std::size_t>(token * outputs + output)] - expected) < 2e-4);
      }
    }
  }
}

TEST(every_instruction_set_equals_the_definition) {
  std::mt19937 random(2);
  const int shapes[][2] = {{1, 32}, {7, 32}, {8, 64}, {9, 96}, {16, 32}, {17, 288}, {31, 64}, {48, 576}, {65, 1536}};
  for (const AffineForm form : all_forms()) {
    for (const auto& [outputs, inputs] : shapes) {
      const Layer layer = random_layer(form, outputs, inputs, random);
      for (const int tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 19}) {
        const auto count = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(inputs);
        const Input x = quantised(affine_scalar(), random_floats(count, random), tokens, inputs);
        const std::vector<float> expected = product(Isa::scalar, layer.weights, x.view, tokens);
        for (const Isa isa : available_isas()) CHECK(same_bits(expected, product(isa, layer.weights, x.view, tokens)));
      }
    }
  }
}

TEST(greatest_codes_do_not_overflow) {
  for (const AffineForm form : all_forms()) {
    for (const float sign : {1.0f, -1.0f}) {
      const int outputs = 16, inputs = 64, tokens = 8;
      const Layer layer = empty_layer(form, outputs, inputs);
      const std::vector<std::uint8_t> codes(inputs, form.eight_bits ? 255 : 15);
      const std::vector<float> d(2, 1.0f), m(2, 0.0f);
      for (int row = 0; row < outputs; ++row) CHECK(pack_codes(layer.weights, row, codes.data(), d.data(), m.data()));
      const Input x = quantised(affine_scalar(), std::vector<float>(tokens * inputs, 127 * sign), tokens, inputs);
      const int code = (form.eight_bits ? 255 : 15) - (form.centred ? (form.eight_bits ? 128 : 8) : 0);
      const std::vector<float> expected(tokens * outputs, sign * 127.0f * static_cast<float>(code * inputs));
      for (const Isa isa : available_isas()) CHECK(same_bits(expected, product(isa, layer.weights, x.view, tokens)));
    }
  }
}

TEST(ranges_write_their_own_outputs_and_no_others) {
  std::mt19937 random(3);
  const int outputs = 45, inputs = 96, tokens = 21;
  const auto stride = static_cast<std::size_t>(outputs + 3);
  for (const AffineForm form : all_forms()) {
    const Layer layer = random_layer(form, outputs, inputs, random);
    const Input x = quantised(affine_scalar(), random_floats(tokens * inputs, random), tokens, inputs);
    const std::vector<float> whole = product(Isa::scalar, layer.weights, x.view, tokens);
    for (const Isa isa : available_isas()) {
      for (int trial = 0; trial < 40; ++trial) {
        const int begin = static_cast<int>(random() % tokens), end = begin + static_cast<int>(random() % (tokens - begin + 1));
        const int first = static_cast<int>(random() % 3), last = first + static_cast<int>(random() % (4 - first));
        std::vector<float> y(stride * tokens, untouched);
        affine_kernels(isa).multiply(layer.weights, x.view, begin, end, first, last, y.data(), stride);
        bool right = true;
        for (int token = 0; token < tokens; ++token) {
          for (int output = 0; output < static_cast<int>(stride); ++output) {
            const bool inside = token >= begin && token < end && output >= first * 16 && output < last * 16 && output < outputs;
            const float expected = inside ? whole[static_cast<std::size_t>(token * outputs + output)] : untouched;
            right &= same_bits(expected, y[static_cast<std::size_t>(token) * stride + static_cast<std::size_t>(output)]);
          }
        }
        CHECK(right);
      }
    }
  }
}

TEST(a_row_does_not_depend_on_its_neighbours) {
  std::mt19937 random(4);
  const int outputs = 33, inputs = 128, tokens = 12;
  for (const AffineForm form : all_forms()) {
    const Layer layer = random_layer(form, outputs, inputs, random);
    std::vector<float> x = random_floats(tokens * inputs, random);
    x[5 * inputs + 77] = std::nanf("");  // fails token 5 and no other
    for (const Isa isa : available_isas()) {
      const Input together = quantised(affine_kernels(isa), x, tokens, inputs);
      const std::vector<float> batch = product(isa, layer.weights, together.view, tokens);
      for (int token = 0; token < tokens; ++token) {
        const std::vector<float> own(x.begin() + token * inputs, x.begin() + (token + 1) * inputs);
        const Input single = quantised(affine_kernels(isa), own, 1, inputs);
        const std::vector<float> alone = product(isa, layer.weights, single.view, 1);
        const std::vector<float> row(batch.begin() + token * outputs, batch.begin() + (token + 1) * outputs);
        CHECK(same_bits(alone, row));
        for (const float value : row) CHECK(std::isnan(value) == (token == 5));
      }
    }
  }
}

TEST(threads_do_not_change_bits) {
  std::mt19937 random(7);
  const int outputs = 200, inputs = 96, tokens = 20, blocks = affine_blocks(outputs);
  const Layer layer = random_layer({false, false, true}, outputs, inputs, random);
  const std::vector<float> floats = random_floats(tokens * inputs, random);
  const Input whole = quantised(affine_scalar(), floats, tokens, inputs);
  const std::vector<float> expected = product(Isa::scalar, layer.weights, whole.view, tokens);
  for (const Isa isa : available_isas()) {
    const AffineKernels& kernels = affine_kernels(isa);
    for (const int threads : {1, 2, 4}) {
      Pool pool(threads);
      const Pool::Call call(pool);
      const Input x = empty_input(tokens, inputs);
      std::vector<float> y(expected.size(), untouched);
      // Token by token, whose codes share cache lines, then block by block.
      pool.run(tokens, [&](int token) { kernels.quantise(floats.data(), inputs, token, token + 1, x.view); });
      pool.run(blocks, [&](int block) {
        kernels.multiply(layer.weights, x.view, 0, tokens, block, block + 1, y.data(), outputs);
      });
      CHECK(same_bits(expected, y));
      pool.run(tokens, [&](int token) {
        kernels.multiply(layer.weights, x.view, token, token + 1, 0, blocks, y.data(), outputs);
      });
      CHECK(same_bits(expected, y));
    }
  }
}

TEST(long_inputs_take_several_passes) {
  std::mt19937 random(5);
  const int outputs = 32, inputs = 8192, tokens = 43;
  const AffineForm form{false, false, true};
  const Layer layer = random_layer(form, outputs, inputs, random);
  const Input x = quantised(affine_scalar(), random_floats(tokens * inputs, random), tokens, inputs);
  const std::vector<float> expected = product(Isa::scalar, layer.weights, x.view, tokens);
  for (const Isa isa : available_isas()) CHECK(same_bits(expected, product(isa, layer.weights, x.view, tokens)));
}

TEST(empty_ranges_do_nothing) {
  std::mt19937 random(6);
  const Layer layer = random_layer({false, false, true}, 16, 32, random);
  const Input x = quantised(affine_scalar(), random_floats(32, random), 1, 32);
  float y = untouched;
  for (const Isa isa : available_isas()) {
    affine_kernels(isa).multiply(layer.weights, x.view, 0, 0, 0, 1, &y, 16);
    affine_kernels(isa).multiply(layer.weights, x.view, 1, 1, 0, 1, &y, 16);
    affine_kernels(isa).multiply(layer.weights, x.view, 0, 1, 1, 1, &y, 16);
    CHECK(y == untouched);
  }
}
