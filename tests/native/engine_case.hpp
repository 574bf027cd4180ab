// A small decoder of one layer on the whole engine, written down by hand, with random weights: what tests of its border share.
#pragma once

#include <tuple>
#include <utility>

#include "engine.hpp"
#include "harness.hpp"

namespace tane::test {

using SegmentTuple = std::tuple<int, int, int>;  // start, rows, pages
using CopyTuple = std::tuple<int, int, int>;

struct EngineCase {
  static constexpr int width = 64, heads = 4, kv_heads = 2, head_width = 8, vocabulary = 72, context = 288, pages = 12;
  static constexpr int queries = heads * head_width, keys = kv_heads * head_width;

  static ModelShape shape(KvType type) { return {1, heads, kv_heads, head_width, context, pages, type}; }
  static std::vector<int> widths() { return {width, queries + 2 * keys, queries, width, vocabulary}; }

  Engine engine;

  explicit EngineCase(Isa isa = Isa::scalar, int threads = 1, KvType type = KvType::int8)
      : engine(shape(type), isa, threads) {
    std::mt19937 random(7);
    for (const auto& [outputs, inputs] : {std::pair{vocabulary, width}, {queries + 2 * keys, width}, {width, queries}}) {
      const int matrix = engine.memory().add_matrix({true, true, true}, outputs, inputs);
      std::vector<float> values(static_cast<std::size_t>(outputs) * static_cast<std::size_t>(inputs));
      for (auto& value : values) value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 0x1p-12f;
      CHECK(engine.pack_floats(matrix, 0, outputs, values.data()));
    }
    const std::vector<float> gain(width, 1.25f);
    engine.memory().add_vector(gain.data(), width);
    engine.memory().add_rope(10000.0, nullptr);
    engine.poison_pages();
    engine.load(widths(), instructions());
  }

  // x = embedding; x += W · attention of (rms_norm(x)); logits = table · rms_norm(x) of the rows that ask.
  static std::vector<Instruction> instructions() {
    const View x{0, 0, width}, fused{1, 0, queries + 2 * keys}, attended{2, 0, queries}, asking{3, 0, width}, logits{4, 0, vocabulary};
    const View q{1, 0, queries}, k{1, queries, keys}, v{1, queries + keys, keys};
    return {
        {.kind = Kind::embed, .out = x, .matrix = 0},
        {.kind = Kind::linear, .source = Source::rms_norm, .out = fused, .a = x, .matrix = 1, .vector = 0, .epsilon = 1e-5},
        {.kind = Kind::attend, .out = attended, .a = q, .b = k, .c = v, .layer = 0, .rope = 0, .scale = 1 / std::sqrt(double{head_width})},
        {.kind = Kind::linear, .out = x, .a = attended, .c = x, .matrix = 2},
        {.kind = Kind::gather, .asked = true, .out = asking, .a = x},
        {.kind = Kind::linear, .source = Source::rms_norm, .asked = true, .out = logits, .a = asking, .matrix = 0, .vector = 0, .epsilon = 1e-5},
    };
  }

  static std::vector<std::int32_t> tokens(int count, unsigned seed = 0) {
    std::mt19937 random(seed);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    for (auto& id : ids) id = static_cast<std::int32_t>(random() % vocabulary);
    return ids;
  }

  static std::vector<std::int32_t> table(int positions, int first = 0) {
    std::vector<std::int32_t> all;
    for (int page = 0; page * page_positions < positions; ++page) all.push_back(first + page);
    return all;
  }

  std::vector<float> logits() const {
    return {engine.logits(), engine.logits() + static_cast<std::ptrdiff_t>(engine.asked()) * engine.vocabulary()};
  }

  // Logits of the last of these tokens, computed in chunks.
  std::vector<float> last_logits(const std::vector<std::int32_t>& ids, int chunk, int first_page = 0) {
    const int count = static_cast<int>(ids.size());
    for (int start = 0; start < count; start += chunk) {
      const int rows = std::min(chunk, count - start), end = start + rows;
      const auto pages_used = table(end, first_page);
      engine.run({ids.begin() + start, ids.begin() + end}, {SegmentTuple{start, rows, static_cast<int>(pages_used.size())}}, pages_used,
                 end == count ? std::vector<std::int32_t>{rows - 1} : std::vector<std::int32_t>{}, {});
    }
    return logits();
  }
};

}  // namespace tane::test
