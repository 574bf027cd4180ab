// A sequence of random keys and values in pages, in any order, and attention over it in plain float64: what the tests share.
#pragma once

#include <algorithm>
#include <numeric>

#include "attention.hpp"
#include "harness.hpp"

namespace tane::test {

struct AttentionCase {
  int heads, kv_heads, width, positions;
  KvType type;
  std::vector<std::byte> storage;
  KvPages pages;
  std::vector<std::int32_t> table;
  std::vector<float> queries;  // a row for every position
  double scale = 1 / std::sqrt(double(width));
  int window = every_position;

  int group() const { return heads / kv_heads; }
  int row_numbers() const { return heads * width; }

  // Layer 1 of two; every page of the pool is poisoned first, and one page more than needed stays so.
  AttentionCase(int heads, int kv_heads, int width, int positions, KvType type, unsigned seed, float spread = 1.0f)
      : heads(heads), kv_heads(kv_heads), width(width), positions(positions), type(type) {
    const int used = (positions + page_positions - 1) / page_positions;
    const KvShape shape{type, 2, kv_heads, width, used + 1};
    storage.resize(shape.total_bytes() + 64);
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(storage.data());
    pages = {shape, storage.data() + (64 - address % 64) % 64};
    table.resize(used);
    std::iota(table.begin(), table.end(), 0);
    std::mt19937 random(seed);
    std::shuffle(table.begin(), table.end(), random);
    for (int page = 0; page <= used; ++page) poison(pages, page);
    std::normal_distribution<float> normal;
    queries.resize(static_cast<std::size_t>(positions) * row_numbers());
    for (auto& q : queries) q = spread * normal(random);
    std::vector<float> keys(kv_heads * width), values(kv_heads * width);
    for (int t = 0; t < positions; ++t) {
      for (auto& k : keys) k = normal(random);
      for (auto& v : values) v = normal(random);
      store(t, keys, values);
    }
  }

  void store(int t, const std::vector<float>& keys, const std::vector<float>& values) {
    kv_scalar().store(pages, 1, table[t / page_positions], t % page_positions, keys.data(), values.data());
  }

  AttentionRows rows(int start, std::vector<float>& outputs) const {
    return {queries.data() + static_cast<std::ptrdiff_t>(start) * row_numbers(),
            row_numbers(),
            outputs.data(),
            row_numbers(),
            table.data(),
            start,
            score_factor(scale),
            window};
  }

  // Rows [start, start + count) in pieces of `step` rows.
  std::vector<float> attend(const AttentionKernels& kernels, int start, int count, int step) const {
    std::vector<float> outputs(static_cast<std::size_t>(count) * row_numbers(), -7.0f);
    const AttentionRows all = rows(start, outputs);
    for (int head = 0; head < kv_heads; ++head) {
      for (int row = 0; row < count; row += step)
        kernels.attend(pages, 1, group(), all, row, std::min(row + step, count), head);
    }
    return outputs;
  }

  // The last row in pieces of `step` blocks.
  std::vector<float> attend_blocks(const AttentionKernels& kernels, int position, int step) const {
    std::vector<float> outputs(row_numbers(), -7.0f);
    const AttentionRows all = rows(position, outputs);
    const int begin = first_block(position, window), end = block_count(position);
    std::vector<float> partials((end - begin) * group() * partial_floats(width));
    for (int head = 0; head < kv_heads; ++head) {
      for (int last = end; last > begin; last -= step) {  // in any order: here the last one first
        kernels.attend_blocks(pages, 1, group(), all, 0, head, std::max(last - step, begin), last, partials.data());
      }
      kernels.combine(partials.data(), end - begin, group(), width, outputs.data() + head * group() * width);
    }
    return outputs;
  }

  double key(int t, int head, int i) const {
    const KvHead at = pages.head(1, table[t / page_positions], head);
    const int j = t % page_positions;
    if (type == KvType::float16) return float32_of(at.float16_keys()[i * page_positions + j]);
    return double{at.key_scales()[j]} * at.int8_keys()[(i / 2 * page_positions + j) * 2 + i % 2];
  }

  double value(int t, int head, int i) const {
    const KvHead at = pages.head(1, table[t / page_positions], head);
    const int j = t % page_positions;
    if (type == KvType::float16) return float32_of(at.float16_values()[j * width + i]);
    return double{at.value_scales()[j]} * at.int8_values()[(j / 2 * width + i) * 2 + j % 2];
  }

  // One head of the row at `position`, over what the pages hold, in float64.
  std::vector<double> plain(int position, int head) const {
    const float* q = queries.data() + static_cast<std::ptrdiff_t>(position) * row_numbers() + head * width;
    const int begin = std::max(0, position - std::min(window, position + 1) + 1);
    std::vector<double> scores(position + 1), output(width);
    for (int t = begin; t <= position; ++t) {
      for (int i = 0; i < width; ++i) scores[t] += q[i] * key(t, head / group(), i) * scale;
    }
    const double peak = *std::max_element(scores.begin() + begin, scores.end());
    double total = 0;
    for (int t = begin; t <= position; ++t) {
      const double weight = std::exp(scores[t] - peak);
      total += weight;
      for (int i = 0; i < width; ++i) output[i] += weight * value(t, head / group(), i);
    }
    for (auto& o : output) o /= total;
    return output;
  }
};

}  // namespace tane::test
