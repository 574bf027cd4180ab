// The definition of attention, number by number, in the terms of attention.hpp.
#include <limits>

#include "attention.hpp"
#include "attention_merge.hpp"
#include "vector_math.hpp"

namespace tane {
namespace {

struct Query {              // one head of one row, prepared
  float numbers[256];       // q · F, for float16 pages
  std::int16_t codes[256];  // for int8 pages
  float scale;              // of the codes, times F
};

struct Block {  // the positions [begin, count) of one block that a row may see
  KvHead pages[block_pages];
  int begin, count;
};

Query prepare(const float* q, int width, float factor) {
  Query query;
  std::uint32_t greatest = 0;
  for (int i = 0; i < width; ++i) {
    query.numbers[i] = q[i] * factor;
    const std::uint32_t magnitude = bits_of(q[i]) & 0x7FFFFFFFu;
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  const CodeScale scale = code_scale(float_of_bits(greatest));
  for (int i = 0; i < width; ++i)
    query.codes[i] = static_cast<std::int16_t>(scale.is_finite ? nearest(q[i] * scale.inverse) : 0);
  query.scale = scale.scale * factor;
  return query;
}

float int8_score(const Query& query, const KvHead& page, int width, int position) {
  std::int32_t dot = 0;
  for (int i = 0; i < width; ++i) dot += query.codes[i] * page.int8_keys()[(i / 2 * page_positions + position) * 2 + i % 2];
  return static_cast<float>(dot) * (page.key_scales()[position] * query.scale);
}

float float16_score(const Query& query, const KvHead& page, int width, int position) {
  float sum = 0.0f;
  for (int i = 0; i < width; ++i)
    sum = fused(float32_of(page.float16_keys()[i * page_positions + position]), query.numbers[i], sum);
  return sum;
}

void int8_values(const Block& block, const float* p, int width, float* o) {
  float weights[block_positions];
  std::uint32_t greatest = 0;
  for (int j = block.begin; j < block.count; ++j) {
    weights[j] = p[j] * block.pages[j / page_positions].value_scales()[j % page_positions];
    const std::uint32_t magnitude = bits_of(weights[j]) & 0x7FFFFFFFu;
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  const CodeScale scale = code_scale(float_of_bits(greatest));
  std::int32_t sums[256] = {};
  for (int j = block.begin; j < block.count && scale.is_finite; ++j) {
    const std::int8_t* values = block.pages[j / page_positions].int8_values() + j % page_positions / 2 * width * 2 + j % 2;
    const int code = nearest(weights[j] * scale.inverse);
    for (int i = 0; i < width; ++i) sums[i] += code * values[2 * i];
  }
  for (int i = 0; i < width; ++i) o[i] = static_cast<float>(sums[i]) * scale.scale;
}

void float16_values(const Block& block, const float* p, int width, float* o) {
  for (int i = 0; i < width; ++i) o[i] = 0.0f;
  for (int j = block.begin; j < block.count; ++j) {
    const Float16* values = block.pages[j / page_positions].float16_values() + j % page_positions * width;
    for (int i = 0; i < width; ++i) o[i] = fused(float32_of(values[i]), p[j], o[i]);
  }
}

// partial = m, s, o[width].
void attend_block(KvType type, const Query& query, const Block& block, int width, float* partial) {
  float p[block_positions];
  float greatest = -std::numeric_limits<float>::infinity();
  const auto score = type == KvType::int8 ? int8_score : float16_score;
  for (int j = block.begin; j < block.count; ++j) {
    p[j] = score(query, block.pages[j / page_positions], width, j % page_positions);
    greatest = p[j] > greatest ? p[j] : greatest;
  }
  const float m = whole_above(greatest);
  float sums[8] = {};
  for (int j = block.begin; j < block.count; ++j) {
    p[j] = power_of_2(p[j] - m);
    sums[j % 8] += p[j];
  }
  partial[0] = m;
  partial[1] = sum_of_8(sums);
  const auto values = type == KvType::int8 ? int8_values : float16_values;
  values(block, p, width, partial + 2);
}

Block block_of(const KvPages& pages, int layer, const AttentionRows& rows, int kv_head, int position, int index) {
  Block block;
  const int left = position + 1 - index * block_positions, before = first_seen(position, rows.window) - index * block_positions;
  block.begin = before > 0 ? before : 0;
  block.count = left < block_positions ? left : block_positions;
  for (int i = block.begin / page_positions; i * page_positions < block.count; ++i)
    block.pages[i] = pages.head(layer, rows.pages[index * block_pages + i], kv_head);
  return block;
}

void merge(const float* next, int width, float* state) {
  const Merging factors = merging(state[0], next[0]);
  state[0] = factors.m;
  for (int i = 1; i < width + 2; ++i) state[i] = fused(next[i], factors.second, state[i] * factors.first);
}

void attend_blocks(const KvPages& pages, int layer, int group, const AttentionRows& rows, int row, int kv_head, int first,
                   int last, float* partials) {
  const int width = pages.shape.head_width, position = rows.start + row, begin = first_block(position, rows.window);
  for (int head = 0; head < group; ++head) {
    const float* q = rows.queries + row * rows.query_stride + (kv_head * group + head) * width;
    const Query query = prepare(q, width, rows.score_factor);
    for (int index = first; index < last; ++index) {
      const Block block = block_of(pages, layer, rows, kv_head, position, index);
      float* const partial = partials + ((index - begin) * group + head) * partial_floats(width);
      attend_block(pages.shape.type, query, block, width, partial);
    }
  }
}

void combine(const float* partials, int blocks, int group, int head_width, float* output) {
  for (int head = 0; head < group; ++head) {
    float state[256 + 2];
    for (int index = 0; index < blocks; ++index) {
      const float* partial = partials + (index * group + head) * partial_floats(head_width);
      if (index > 0) merge(partial, head_width, state);
      for (int i = 0; i < head_width + 2 && index == 0; ++i) state[i] = partial[i];
    }
    const float inverse = 1.0f / state[1];
    for (int i = 0; i < head_width; ++i) output[head * head_width + i] = state[2 + i] * inverse;
  }
}

void attend(const KvPages& pages, int layer, int group, const AttentionRows& rows, int first, int last, int kv_head) {
  const int width = pages.shape.head_width;
  for (int row = first; row < last; ++row) {
    for (int head = 0; head < group; ++head) {
      const std::ptrdiff_t column = (kv_head * group + head) * width;
      const Query query = prepare(rows.queries + row * rows.query_stride + column, width, rows.score_factor);
      const int position = rows.start + row, begin = first_block(position, rows.window);
      float state[256 + 2], partial[256 + 2];
      for (int index = begin; index < block_count(position); ++index) {
        const Block block = block_of(pages, layer, rows, kv_head, position, index);
        attend_block(pages.shape.type, query, block, width, index == begin ? state : partial);
        if (index > begin) merge(partial, width, state);
      }
      combine(state, 1, 1, width, rows.outputs + row * rows.output_stride + column);
    }
  }
}

constexpr AttentionKernels kernels{attend, attend_blocks, combine};

}  // namespace

const AttentionKernels& attention_scalar() { return kernels; }

const AttentionKernels& attention_kernels(Isa isa) { return isa == Isa::scalar ? attention_scalar() : attention_avx2(); }

float score_factor(double scale) { return static_cast<float>(log2_e_double * scale); }

bool attention_supports(int heads, int kv_heads, int head_width) {
  return kv_supports(kv_heads, head_width) && heads >= kv_heads && heads % kv_heads == 0 && heads / kv_heads <= most_group;
}

}  // namespace tane
