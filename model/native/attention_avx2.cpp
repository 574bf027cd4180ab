// attention.hpp with vectors: up to six queries share each load of a page, and eight positions or inputs stand in the lanes.
#include "attention_forms_avx2.hpp"

namespace tane {
namespace {

constexpr int most_queries = 48;  // of the rows that go together

int smaller(int a, int b) { return a < b ? a : b; }

// All lanes for a whole vector, the first few for the last one of a row.
struct Whole {
  __m256 keep(__m256 x, __m256) const { return x; }
};
struct Tail {
  __m256 seen;
  __m256 keep(__m256 x, __m256 otherwise) const { return _mm256_blendv_ps(otherwise, x, seen); }
};

// Calls use(j, lanes) for the vectors that cover positions 0 … count − 1.
template <typename Use>
inline void for_vectors(int count, Use use) {
  const int whole = count & ~7;
  for (int j = 0; j < whole; j += 8) use(j, Whole{});
  if (whole < count) use(whole, Tail{_mm256_castsi256_ps(first_lanes(count - whole))});
}

// x = the scaled scores; gives m.
template <typename Form>
float scale_scores(const Block& block, const Query& query, const typename Form::Sum* scores, float* x) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff()), scale = _mm256_set1_ps(query.scale);
  __m256 greatest = lowest;
  for_vectors(query.count, [&](int j, auto lanes) {
    const __m256 seen = lanes.keep(Form::score(block, scale, scores, j), lowest);
    _mm256_store_ps(x + j, seen);
    greatest = _mm256_max_ps(seen, greatest);
  });
  return whole_above(greatest_of_8(greatest));
}

// x = the weights of the values, zero from the query's count up to `padded`; gives s, and in `tops` the greatest weights.
template <typename Form>
float weigh(const Block& block, const Query& query, float m, int padded, float* x, __m256i* tops) {
  const __m256 shift = _mm256_set1_ps(m), zero = _mm256_setzero_ps();
  __m256 sums = zero;
  __m256i greatest = _mm256_setzero_si256();
  for_vectors(query.count, [&](int j, auto lanes) {
    const __m256 p = power_of_2(_mm256_sub_ps(_mm256_load_ps(x + j), shift));
    sums = _mm256_add_ps(sums, p);
    const __m256 weights = lanes.keep(Form::weight(block, p, j), zero);
    _mm256_store_ps(x + j, weights);
    greatest = _mm256_max_epi32(greatest, magnitudes(weights));
  });
  for (int j = (query.count + 7) & ~7; j < padded; j += 8) _mm256_store_ps(x + j, zero);
  *tops = greatest;
  return sum_of_8(sums);
}

// One block for one to six queries: m[n], s[n] and outputs[n] = o. Each step is done for all of them before the next, so that
// they do not wait for each other's maxima and sums.
template <typename Form>
struct BlockWork {
  alignas(32) typename Form::Sum scores[most_queries_of_a_tile][block_positions];
  alignas(32) float x[most_queries_of_a_tile][block_positions];
  alignas(32) typename Form::Number weights[most_queries_of_a_tile][block_positions];
  alignas(32) typename Form::Sum sums[most_queries_of_a_tile][most_width];
  __m256i tops[most_queries_of_a_tile];
  float m[most_queries_of_a_tile], s[most_queries_of_a_tile], scales[most_queries_of_a_tile];

  void run(const Block& block, const typename Form::Number* numbers, const Query* queries, int count, int width) {
    int seen = 0;
    for (int n = 0; n < count; ++n) seen = queries[n].count > seen ? queries[n].count : seen;
    const int padded = (seen + 7) & ~7;
    for (int page = 0; page * page_positions < seen; ++page) {
      const int lanes = smaller(padded - page * page_positions, page_positions);
      products(Form::keys(block, page, width), lanes, count, numbers, width, &scores[0][page * page_positions],
               block_positions);
    }
    for (int n = 0; n < count; ++n) m[n] = scale_scores<Form>(block, queries[n], scores[n], x[n]);
    for (int n = 0; n < count; ++n) s[n] = weigh<Form>(block, queries[n], m[n], padded, x[n], &tops[n]);
    for (int n = 0; n < count; ++n) scales[n] = Form::round_weights(x[n], tops[n], padded, weights[n]);
    products(Form::values(block, seen, width), width, count, weights[0], block_positions, sums[0], most_width);
  }

  // As the first block of query n, and as the next one: the formula of attention.hpp.
  void begin(int n, int width, float* m1, float* s1, float* o) const {
    const __m256 scale = _mm256_set1_ps(scales[n]);
    for (int i = 0; i < width; i += 8) _mm256_storeu_ps(o + i, Form::output(sums[n] + i, scale));
    *m1 = m[n], *s1 = s[n];
  }

  void merge(int n, int width, float* m1, float* s1, float* o) const {
    const Merging factors = merging(*m1, m[n]);
    const __m256 scale = _mm256_set1_ps(scales[n]), first = _mm256_set1_ps(factors.first),
                 second = _mm256_set1_ps(factors.second);
    for (int i = 0; i < width; i += 8) {
      const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(o + i), first);
      _mm256_storeu_ps(o + i, _mm256_fmadd_ps(Form::output(sums[n] + i, scale), second, scaled));
    }
    *m1 = factors.m;
    *s1 = __builtin_fmaf(s[n], factors.second, *s1 * factors.first);
  }
};

template <typename Form>
Block block_of(const KvPages& pages, int layer, const std::int32_t* table, int kv_head, int last_position, int index) {
  Block block;
  for (int i = 0; i < block_pages; ++i) {
    const int page = index * block_pages + i, ahead = page + block_pages;
    if (page * page_positions > last_position) break;
    block.pages[i] = pages.head(layer, table[page], kv_head);
    block.ahead[i] = pages.head(layer, table[ahead * page_positions > last_position ? page : ahead], kv_head);
    Form::gather_scales(block, i);
  }
  return block;
}

void merge(const float* next, int width, float* m, float* s, float* o) {
  const Merging factors = merging(*m, next[0]);
  const __m256 first = _mm256_set1_ps(factors.first), second = _mm256_set1_ps(factors.second);
  *m = factors.m;
  *s = __builtin_fmaf(next[1], factors.second, *s * factors.first);
  for (int i = 0; i < width; i += 8) {
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(o + i), first);
    _mm256_storeu_ps(o + i, _mm256_fmadd_ps(_mm256_loadu_ps(next + 2 + i), second, scaled));
  }
}

void finish(float s, int width, float* o) {
  const __m256 inverse = _mm256_set1_ps(1.0f / s);
  for (int i = 0; i < width; i += 8) _mm256_storeu_ps(o + i, _mm256_mul_ps(_mm256_loadu_ps(o + i), inverse));
}

// Rows that go together: at most most_queries queries. The outputs hold each query's o until its row is done.
template <typename Form>
void attend_together(const KvPages& pages, int layer, int group, const AttentionRows& rows, int first, int last, int kv_head) {
  const int width = pages.shape.head_width, count = (last - first) * group;
  alignas(32) typename Form::Number numbers[most_queries * most_width];
  BlockWork<Form> work;
  Query queries[most_queries];
  float m[most_queries], s[most_queries];
  float* outputs[most_queries];
  for (int n = 0; n < count; ++n) {
    const int row = first + n / group, column = (kv_head * group + n % group) * width;
    queries[n].scale = Form::prepare(rows.queries + row * rows.query_stride + column, width, numbers + n * width);
    outputs[n] = rows.outputs + row * rows.output_stride + column;
  }
  const int last_position = rows.start + last - 1;
  for (int index = 0; index < block_count(last_position); ++index) {
    const Block block = block_of<Form>(pages, layer, rows.pages, kv_head, last_position, index);
    const int first_position = index * block_positions, skipped = first_position - (rows.start + first);
    for (int n = skipped > 0 ? skipped * group : 0; n < count;) {
      const int row_end = (n / group + 1) * group;
      const int size = smaller(most_queries_of_a_tile, (Form::rows_share_tiles ? count : row_end) - n);
      for (int i = 0; i < size; ++i) {
        queries[n + i].count = smaller(rows.start + first + (n + i) / group + 1 - first_position, block_positions);
      }
      work.run(block, numbers + n * width, queries + n, size, width);
      for (int i = 0; i < size; ++i, ++n) {
        index == 0 ? work.begin(i, width, &m[n], &s[n], outputs[n]) : work.merge(i, width, &m[n], &s[n], outputs[n]);
      }
    }
  }
  for (int n = 0; n < count; ++n) finish(s[n], width, outputs[n]);
}

template <typename Form>
void attend_rows(const KvPages& pages, int layer, int group, const AttentionRows& rows, int first, int last, int kv_head) {
  const int together = most_queries / group;
  for (int row = first; row < last; row += together) {
    attend_together<Form>(pages, layer, group, rows, row, smaller(row + together, last), kv_head);
  }
}

template <typename Form>
void attend_row_blocks(const KvPages& pages, int layer, int group, const AttentionRows& rows, int row, int kv_head, int first,
                       int last, float* partials) {
  const int width = pages.shape.head_width, position = rows.start + row;
  alignas(32) typename Form::Number numbers[most_group * most_width];
  BlockWork<Form> work;
  Query queries[most_group];
  for (int n = 0; n < group; ++n) {
    queries[n].scale =
        Form::prepare(rows.queries + row * rows.query_stride + (kv_head * group + n) * width, width, numbers + n * width);
  }
  const int tiles = (group + most_queries_of_a_tile - 1) / most_queries_of_a_tile, size = (group + tiles - 1) / tiles;
  for (int index = first; index < last; ++index) {
    const Block block = block_of<Form>(pages, layer, rows.pages, kv_head, position, index);
    for (int n = 0; n < group; n += size) {
      const int here = smaller(size, group - n);
      for (int i = 0; i < here; ++i) queries[n + i].count = smaller(position + 1 - index * block_positions, block_positions);
      work.run(block, numbers + n * width, queries + n, here, width);
      for (int i = 0; i < here; ++i) {
        float* const partial = partials + (index * group + n + i) * partial_floats(width);
        work.begin(i, width, partial, partial + 1, partial + 2);
      }
    }
  }
}

void attend(const KvPages& pages, int layer, int group, const AttentionRows& rows, int first, int last, int kv_head) {
  const auto form = pages.shape.type == KvType::int8 ? attend_rows<Int8> : attend_rows<Half>;
  form(pages, layer, group, rows, first, last, kv_head);
}

void attend_blocks(const KvPages& pages, int layer, int group, const AttentionRows& rows, int row, int kv_head, int first,
                   int last, float* partials) {
  const auto form = pages.shape.type == KvType::int8 ? attend_row_blocks<Int8> : attend_row_blocks<Half>;
  form(pages, layer, group, rows, row, kv_head, first, last, partials);
}

void combine(const float* partials, int blocks, int group, int head_width, float* output) {
  for (int head = 0; head < group; ++head, output += head_width) {
    const float* partial = partials + head * partial_floats(head_width);
    float m = partial[0], s = partial[1];
    for (int i = 0; i < head_width; i += 8) _mm256_storeu_ps(output + i, _mm256_loadu_ps(partial + 2 + i));
    for (int index = 1; index < blocks; ++index) {
      merge(partials + (index * group + head) * partial_floats(head_width), head_width, &m, &s, output);
    }
    finish(s, head_width, output);
  }
}

constexpr AttentionKernels kernels{attend, attend_blocks, combine};

}  // namespace

const AttentionKernels& attention_avx2() { return kernels; }

}  // namespace tane
