// A digest of each kernel's results on fixed inputs, for every instruction set that this machine has: lines of "set kernel digest".
// Inputs come from integers alone, and what is digested are numbers, not layouts. So a digest changes when, and only when, a
// kernel's results do.
#include <functional>
#include <limits>
#include <string>

#include "affine_fixtures.hpp"
#include "attention_case.hpp"
#include "elementwise.hpp"
#include "philox.hpp"
#include "rope.hpp"
#include "sampling.hpp"
#include "sampling_explain.hpp"

using namespace tane;
using test::AttentionCase;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

class Digest {  // FNV-1a of 64 bits; every NaN counts as one number
 public:
  void add(float value) { add_bits(std::isnan(value) ? 0x7FC00000u : std::bit_cast<std::uint32_t>(value)); }
  void add(double value) {
    const auto bits = std::isnan(value) ? 0x7FF8000000000000u : std::bit_cast<std::uint64_t>(value);
    add_bits(static_cast<std::uint32_t>(bits));
    add_bits(static_cast<std::uint32_t>(bits >> 32));
  }
  void add(int value) { add_bits(static_cast<std::uint32_t>(value)); }
  template <typename T>
  void add(const std::vector<T>& values) {
    for (const T value : values) add(value);
  }
  std::uint64_t value() const { return hash_; }

 private:
  void add_bits(std::uint32_t bits) {
    for (int byte = 0; byte < 4; ++byte) hash_ = (hash_ ^ (bits >> 8 * byte & 0xFF)) * 0x100000001B3u;
  }
  std::uint64_t hash_ = 0xCBF29CE484222325u;
};

std::vector<float> numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  return test::random_floats(count, random);
}

// Random numbers, the last ones replaced by those that rules are made for.
std::vector<float> odd_numbers(std::size_t count, unsigned seed) {
  std::vector<float> values = numbers(count, seed);
  const float odd[] = {0.0f, -0.0f, 0x1p-149f, -0x1p-130f, 0x1p-24f, 0x1p-25f, 65504.0f, 65520.0f, -88.5f, 104.0f, 3e38f, infinity, -infinity, nan_value};
  std::copy(std::begin(odd), std::end(odd), values.end() - std::size(odd));
  return values;
}

std::string form_name(AffineForm form) {
  return std::string(form.eight_bits ? "8_bits" : "4_bits") + (form.centred ? "_centred" : "_affine") + (form.half_scales ? "_half" : "_float");
}

// ---- Linear layers -----------------------------------------------------------------------------------------------------

constexpr int tokens = 19, inputs = 160, outputs = 37;

// One token for each way that a group may be odd: not finite, below the least scale, or with one great number.
std::vector<float> activations() {
  std::vector<float> x = numbers(std::size_t{tokens} * inputs, 1);
  const float odd[] = {nan_value, infinity, 3e38f, 0x1p+99f};
  for (std::size_t i = 0; i < std::size(odd); ++i) x[i * inputs + 40] = odd[i];
  for (int i = 0; i < group_inputs; ++i) x[5 * inputs + i] = 0x1p-101f;
  for (int i = 0; i < group_inputs; ++i) x[6 * inputs + i] = 0;
  return x;
}

void quantise(Isa isa, Digest& digest) {
  const test::Input input = test::quantised(affine_kernels(isa), activations(), tokens, inputs);
  for (int token = 0; token < tokens; ++token) {
    for (int group = 0; group < input.view.groups; ++group) {
      const TokenGroup& lane = input.view.tiles[token / tile_tokens * input.view.groups + group];
      digest.add(lane.scale[token % tile_tokens]);
      digest.add(lane.scaled_sum[token % tile_tokens]);
      for (const std::int8_t code : lane.codes[token % tile_tokens]) digest.add(int{code});
    }
  }
}

void multiply(Isa isa, AffineForm form, Digest& digest) {
  std::mt19937 random(2);
  const test::Layer layer = test::random_layer(form, outputs, inputs, random);
  const test::Input input = test::quantised(affine_scalar(), activations(), tokens, inputs);
  std::vector<float> y(std::size_t{tokens} * outputs);
  affine_kernels(isa).multiply(layer.weights, input.view, 0, tokens, 0, affine_blocks(outputs), y.data(), outputs);
  digest.add(y);
}

void digest_rows(const test::Layer& layer, Digest& digest) {
  std::vector<float> row(static_cast<std::size_t>(layer.weights.inputs));
  for (int i = 0; i < layer.weights.outputs; ++i) {
    unpack_row(layer.weights, i, row.data());
    digest.add(row);
  }
}

void round_weights(AffineForm form, Digest& digest) {
  const std::vector<float> values = numbers(std::size_t{outputs} * inputs, 3);
  const test::Layer layer = test::empty_layer(form, outputs, inputs);
  for (int row = 0; row < outputs; ++row) pack_floats(layer.weights, row, values.data() + row * inputs);
  digest_rows(layer, digest);
}

// Blocks of random bytes; the exponents of their scales, which are the first two or four bytes, are made small.
void load_blocks(AffineForm form, bool (*pack)(const AffineWeights&, int, const std::uint8_t*), int bytes, int scale_bytes, Digest& digest) {
  std::mt19937 random(4);
  const test::Layer layer = test::empty_layer(form, outputs, inputs);
  std::vector<std::uint8_t> blocks(static_cast<std::size_t>(bytes * inputs / group_inputs));
  for (int row = 0; row < outputs; ++row) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const int place = static_cast<int>(i) % bytes;
      blocks[i] = static_cast<std::uint8_t>(random() & (place < scale_bytes && place % 2 == 1 ? 0xAF : 0xFF));
    }
    pack(layer.weights, row, blocks.data());
  }
  digest_rows(layer, digest);
}

// ---- Rows, positions, attention -----------------------------------------------------------------------------------------

void elementwise(Isa isa, const std::string& which, Digest& digest) {
  const ElementwiseKernels& kernels = elementwise_kernels(isa);
  for (const int width : {1, 8, 100}) {
    const auto size = static_cast<std::size_t>(width) + 14;
    const std::vector<float> x = which == "rms_norm" || which == "layer_norm" ? numbers(size, 5) : odd_numbers(size, 5), y = odd_numbers(size, 6);
    const int count = static_cast<int>(size);
    std::vector<float> out(size);
    std::vector<Float16> halves(size);
    if (which == "rms_norm") kernels.rms_norm(x.data(), y.data(), 1e-5, count, out.data());
    if (which == "silu_multiply") kernels.silu_multiply(x.data(), numbers(size, 7).data(), count, out.data());
    if (which == "layer_norm") kernels.layer_norm(x.data(), y.data(), numbers(size, 7).data(), 1e-5, count, out.data());
    if (which == "gelu_multiply") kernels.gelu_multiply(x.data(), numbers(size, 7).data(), count, out.data());
    if (which == "gelu") kernels.gelu(x.data(), count, out.data());
    if (which == "scale") kernels.scale(x.data(), 25.25f, count, out.data());
    if (which == "add") kernels.add(x.data(), numbers(size, 7).data(), count, out.data());
    if (which == "float16") {
      kernels.to_float16(x.data(), count, halves.data());
      kernels.to_float32(halves.data(), count, out.data());
    }
    digest.add(out);
  }
}

void rope_table(bool stretched, Digest& digest) {
  const RopeStretch stretch{8.0, 1.0, 4.0, 8192};
  for (const double base : {10000.0, 500000.0}) {
    constexpr int head_width = 64, half = head_width / 2, positions = 200;
    std::vector<float> frequencies(half), cosines(positions * half), sines(cosines);
    rope_frequencies(base, head_width, stretched ? &stretch : nullptr, frequencies.data());
    fill_rope_rows(frequencies.data(), half, 0, positions, cosines.data(), sines.data());
    digest.add(frequencies);
    digest.add(cosines);
    digest.add(sines);
  }
}

void rotate(Isa isa, Digest& digest) {
  for (const int half : {4, 20, 32}) {
    std::vector<float> heads = numbers(static_cast<std::size_t>(6 * half), 8);
    const std::vector<float> angles = numbers(static_cast<std::size_t>(2 * half), 9);
    rope_kernels(isa).rotate(heads.data(), 3, half, angles.data(), angles.data() + half, heads.data());
    digest.add(heads);
  }
}

// Keys and values from integers, in place of those that the case draws.
AttentionCase attention_case(KvType type) {
  AttentionCase at(6, 2, 40, 300, type, 10);
  at.queries = numbers(at.queries.size(), 11);
  for (int t = 0; t < at.positions; ++t) {
    at.store(t, numbers(80, 1000 + static_cast<unsigned>(t)), numbers(80, 2000 + static_cast<unsigned>(t)));
  }
  return at;
}

void store(Isa isa, KvType type, Digest& digest) {
  AttentionCase at(2, 2, 40, 40, type, 12);
  for (int t = 0; t < at.positions; ++t) {
    const auto seed = static_cast<unsigned>(t);
    const std::vector<float> keys = t == 7 ? odd_numbers(80, 3000) : numbers(80, 3000 + seed), values = numbers(80, 4000 + seed);
    kv_kernels(isa).store(at.pages, 1, at.table[t / page_positions], t % page_positions, keys.data(), values.data());
  }
  for (int t = 0; t < at.positions; ++t) {
    for (int head = 0; head < 2; ++head) {
      for (int i = 0; i < at.width; ++i) digest.add(at.key(t, head, i)), digest.add(at.value(t, head, i));
    }
  }
}

void attend(Isa isa, KvType type, Digest& digest) {
  const AttentionCase at = attention_case(type);
  digest.add(at.attend(attention_kernels(isa), 0, at.positions, 16));
  digest.add(at.attend_blocks(attention_kernels(isa), at.positions - 1, 1));
}

void attend_windowed(Isa isa, KvType type, Digest& digest) {
  AttentionCase at = attention_case(type);
  at.scale = 0.0625;
  for (const int window : {1, 20, 130}) {
    at.window = window;
    digest.add(at.attend(attention_kernels(isa), 0, at.positions, 16));
    digest.add(at.attend_blocks(attention_kernels(isa), at.positions - 1, 1));
  }
}

// ---- Choosing tokens ---------------------------------------------------------------------------------------------------

void draw(Isa isa, LogprobsOf of, Digest& digest) {
  constexpr int vocabulary = 1000;
  const std::vector<float> logits = numbers(vocabulary, 13);
  const std::int32_t banned[] = {3, 500};
  const Draw rules[] = {{.temperature = 0}, {}, {.temperature = 0.8, .top_p = 0.9, .top_k = 40}, {.temperature = 1.3, .min_p = 0.2},
                        {.temperature = 0.3, .top_p = 0.5, .changes = {.banned = banned}}, {.temperature = 1e-45, .top_k = 7}};
  SamplingScratch scratch(vocabulary);
  std::vector<TokenLogprob> list(20);
  for (Draw rule : rules) {
    rule.logprobs = of;
    rule.top = of == LogprobsOf::nothing ? 0 : 20;
    for (int i = 0; i < 40; ++i) {
      rule.uniform = philox_uniform(1, 2, static_cast<std::uint64_t>(i));
      const Drawn drawn = draw_token(sampling_kernels(isa), logits.data(), vocabulary, rule, scratch, list.data());
      digest.add(int{drawn.token_id});
      digest.add(drawn.logprob);
      for (int entry = 0; entry < drawn.listed; ++entry) digest.add(int{list[entry].token_id}), digest.add(list[entry].logprob);
    }
  }
}

// Bias, penalties, bans and a mask, at both ends of the vocabulary and beyond what a float counts exactly.
struct ChangesCase {
  static constexpr int vocabulary = 1000;
  std::vector<std::int32_t> ids, counts;
  std::vector<float> bias = numbers(40, 14);
  std::vector<std::uint32_t> allowed = std::vector<std::uint32_t>(32);
  const std::int32_t banned[2] = {3, 500};

  ChangesCase() {
    std::mt19937 random(15);
    for (int i = 0; i < 40; ++i) ids.push_back(i * 25 + (i == 39 ? 24 : 0)), counts.push_back(i == 7 ? (1 << 24) + 1 : i % 4);
    for (auto& word : allowed) word = static_cast<std::uint32_t>(random());
  }

  std::vector<Changes> all() const {
    const Edits biased{.bias_ids = ids, .bias_values = bias}, penalised{{}, {}, ids, counts, 1.3f, 0.25f, 0.1f};
    const Edits both{ids, bias, ids, counts, 0.7f, -0.5f, -0.3f};
    return {{biased}, {penalised}, {both}, {.banned = banned}, {.allowed = allowed}, {both, banned, allowed}};
  }
};

void rank(Isa isa, Digest& digest) {
  const std::vector<float> logits = numbers(ChangesCase::vocabulary, 13);
  SamplingScratch scratch(ChangesCase::vocabulary);
  std::vector<RankedToken> list(30);
  const ChangesCase given;
  for (const Changes& changes : given.all()) {
    const int listed = rank_tokens(sampling_kernels(isa), logits.data(), ChangesCase::vocabulary, {30, changes}, scratch, list.data());
    for (int i = 0; i < listed; ++i) digest.add(int{list[i].token_id}), digest.add(list[i].logprob), digest.add(list[i].logit);
  }
}

void draw_changed(Isa isa, Digest& digest) {
  const std::vector<float> logits = numbers(ChangesCase::vocabulary, 13);
  SamplingScratch scratch(ChangesCase::vocabulary);
  const ChangesCase given;
  for (const Changes& changes : given.all()) {
    for (int i = 0; i < 20; ++i) {
      const Draw draw{.temperature = 0.9, .top_p = 0.95, .min_p = 0.01, .uniform = philox_uniform(3, 4, static_cast<std::uint64_t>(i)),
                      .top_k = 100, .changes = changes};
      digest.add(int{draw_token(sampling_kernels(isa), logits.data(), ChangesCase::vocabulary, draw, scratch, nullptr).token_id});
    }
  }
}

void explain(Isa isa, Digest& digest) {
  const std::vector<float> logits = numbers(ChangesCase::vocabulary, 13);
  SamplingScratch scratch(ChangesCase::vocabulary);
  const ChangesCase given;
  for (const Changes& changes : given.all()) {
    Explanation told;
    const Draw draw{.temperature = 0.9, .top_p = 0.95, .min_p = 0.01, .top_k = 100, .changes = changes};
    explain_draw(sampling_kernels(isa), logits.data(), ChangesCase::vocabulary, draw, scratch, told);
    digest.add(told.entropy);
    for (const Stage& stage : std::span(told.stages, static_cast<std::size_t>(told.count))) {
      digest.add(static_cast<int>(stage.name));
      digest.add(stage.candidates);
      digest.add(stage.mass);
      for (int i = 0; i < stage.listed; ++i) digest.add(int{stage.top[i].token_id}), digest.add(stage.top[i].probability);
    }
  }
}

void report(const char* set, const std::string& kernel, const std::function<void(Digest&)>& body) {
  Digest digest;
  body(digest);
  std::printf("%s %s %016llx\n", set, kernel.c_str(), static_cast<unsigned long long>(digest.value()));
}

void report_set(Isa isa) {
  const auto each = [isa](const std::string& kernel, auto body) { report(isa_name(isa), kernel, body); };
  each("quantise", [&](Digest& digest) { quantise(isa, digest); });
  for (const AffineForm form : test::all_forms()) {
    each("multiply_" + form_name(form), [&](Digest& digest) { multiply(isa, form, digest); });
  }
  for (const std::string which : {"rms_norm", "layer_norm", "silu_multiply", "gelu_multiply", "gelu", "add", "scale", "float16"}) {
    each(which, [&](Digest& digest) { elementwise(isa, which, digest); });
  }
  each("rotate", [&](Digest& digest) { rotate(isa, digest); });
  for (const auto& [type, name] : {std::pair{KvType::int8, "int8"}, {KvType::float16, "float16"}}) {
    each(std::string("store_") + name, [&, t = type](Digest& digest) { store(isa, t, digest); });
    each(std::string("attend_") + name, [&, t = type](Digest& digest) { attend(isa, t, digest); });
    each(std::string("attend_windowed_") + name, [&, t = type](Digest& digest) { attend_windowed(isa, t, digest); });
  }
  each("draw", [&](Digest& digest) { draw(isa, LogprobsOf::nothing, digest); });
  each("draw_changed", [&](Digest& digest) { draw_changed(isa, digest); });
  each("rank", [&](Digest& digest) { rank(isa, digest); });
  each("explain", [&](Digest& digest) { explain(isa, digest); });
  each("logprobs_model", [&](Digest& digest) { draw(isa, LogprobsOf::model, digest); });
  each("logprobs_sampled", [&](Digest& digest) { draw(isa, LogprobsOf::sampled, digest); });
}

void report_common() {  // what has one version only
  for (const AffineForm form : test::all_forms()) {
    report("all", "round_" + form_name(form), [&](Digest& digest) { round_weights(form, digest); });
  }
  report("all", "load_q4_0", [](Digest& digest) { load_blocks({false, true, true}, pack_q4_0, 18, 2, digest); });
  report("all", "load_q4_1", [](Digest& digest) { load_blocks({false, false, true}, pack_q4_1, 20, 4, digest); });
  report("all", "load_q8_0", [](Digest& digest) { load_blocks({true, true, true}, pack_q8_0, 34, 2, digest); });
  report("all", "rope_table", [](Digest& digest) { rope_table(false, digest); });
  report("all", "rope_table_stretched", [](Digest& digest) { rope_table(true, digest); });
  report("all", "uniforms", [](Digest& digest) {
    for (std::uint64_t i = 0; i < 100; ++i) digest.add(philox_uniform(i * i * 0x9E3779B97F4A7C15u, i, 3 * i));
  });
}

}  // namespace

TEST(digests) {
  report_common();
  for (const Isa isa : test::available_isas()) report_set(isa);
}
