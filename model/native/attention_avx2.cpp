// attention.hpp with vectors: up to six queries share each load of a page, and eight positions or inputs stand in the lanes.
#include "attention_forms_avx2.hpp"

namespace tane {
namespace {

constexpr int most_queries = 48;  // of the rows that go together

int smaller(int a, int b) { return a < b ? a : b; }

// All lanes for a whole vector, some of them where what a row may see begins or ends.
struct Whole {
  __m256 keep(__m256 x, __m256) const { return x; }
};
struct Tail {
  __m256 seen;
  __m256 keep(__m256 x, __m256 otherwise) const { return _mm256_blendv_ps(otherwise, x, seen); }
};

// Calls use(j, lanes) for the vectors that cover positions first … count − 1; without a window, first is 0.
template <bool windowed, typename Use>
inline void for_vectors(const Query& query, Use use) {
  const int count = query.count, whole = count & ~7;
  int j = 0;
  if constexpr (windowed) {
    j = query.first & ~7;
    if (j < query.first) {
      use(j, Tail{_mm256_castsi256_ps(_mm256_andnot_si256(first_lanes(query.first - j), first_lanes(count - j)))});
      j += 8;
    }
  }
  for (; j < whole; j += 8) use(j, Whole{});
  if (j < count) use(j, Tail{_mm256_castsi256_ps(first_lanes(count - j))});
}

// x = the scaled scores; gives m.
template <typename Form, bool windowed>
float scale_scores(const Block& block, const Query& query, const typename Form::Sum* scores, float* x) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff()), scale = _mm256_set1_ps(query.scale);
  __m256 greatest = lowest;
  for_vectors<windowed>(query, [&](int j, auto lanes) {
    const __m256 seen = lanes.keep(Form::score(block, scale, scores, j), lowest);
    _mm256_store_ps(x + j, seen);
    greatest = _mm256_max_ps(seen, greatest);
  });
  return whole_above(greatest_of_8(greatest));
}

// x = the weights of the values, zero outside what the query sees up to `padded`; gives s, and in `tops` the greatest weights.
template <typename Form, bool windowed>
float weigh(const Block& block, const Query& query, float m, int padded, float* x, __m256i* tops) {
  const __m256 shift = _mm256_set1_ps(m), zero = _mm256_setzero_ps();
  __m256 sums = zero;
  __m256i greatest = _mm256_setzero_si256();
  for_vectors<windowed>(query, [&](int j, auto lanes) {
    const __m256 p = power_of_2(_mm256_sub_ps(_mm256_load_ps(x + j), shift));
    sums = _mm256_add_ps(sums, p);
    const __m256 weights = lanes.keep(Form::weight(block, p, j), zero);
    _mm256_store_ps(x + j, weights);
    greatest = _mm256_max_epi32(greatest, magnitudes(weights));
  });
  for (int j = (query.count + 7) & ~7; j < padded; j += 8) _mm256_store_ps(x + j, zero);
  if constexpr (windowed) {
    for (int j = 0; j + 8 <= query.first; j += 8) _mm256_store_ps(x + j, zero);
  }
  *tops = greatest;
  return sum_of_8(sums);
}

// One block for one to six queries: m[n], s[n] and outputs[n] = o. Each step is done for all of them before the next, so that
// they do not wait for each other's maxima and sums.
template <typename Form, bool windowed>
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
    const int padded = (seen + 7) & ~7, first = windowed ? queries[0].first : 0;  // rows ascend, so the first sees furthest back
    for (int page = first / page_positions; page * page_positions < seen; ++page) {
      const int lanes = smaller(padded - page * page_positions, page_positions);
      products(Form::keys(block, page, width), lanes, count, numbers, width, &scores[0][page * page_positions],
               block_positions);
    }
    for (int n = 0; n < count; ++n) m[n] = scale_scores<Form, windowed>(block, queries[n], scores[n], x[n]);
    for (int n = 0; n < count; ++n) s[n] = weigh<Form, windowed>(block, queries[n], m[n], padded, x[n], &tops[n]);
    for (int n = 0; n < count; ++n) scales[n] = Form::round_weights(x[n], tops[n], padded, weights[n]);
    const int begin = Form::values_begin(first);
    products(Form::values(block, begin, seen, width), width, count, weights[0] + begin, block_positions, sums[0], most_width);
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

// Of the pages that hold a position from `first_position` to `last_position`.
template <typename Form>
Block block_of(const KvPages& pages, int layer, const std::int32_t* table, int kv_head, int first_position, int last_position,
               int index) {
  Block block;
  const int before = first_position - index * block_positions;
  for (int i = before > 0 ? before / page_positions : 0; i < block_pages; ++i) {
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

// What row `position` may see of a block that has a position for it.
template <bool windowed>
void look(int position, int window, int index, Query* query) {
  const int first_position = index * block_positions;
  query->count = smaller(position + 1 - first_position, block_positions);
  if constexpr (windowed) {
    const int before = first_seen(position, window) - first_position;
    query->first = before > 0 ? before : 0;
  }
}

// Rows that go together: at most most_queries queries. The outputs hold each query's o until its row is done.
template <typename Form, bool windowed>
void attend_together(const KvPages& pages, int layer, int group, const AttentionRows& rows, int first, int last, int kv_head) {
  const int width = pages.shape.head_width, count = (last - first) * group;
  alignas(32) typename Form::Number numbers[most_queries * most_width];
  BlockWork<Form, windowed> work;
  Query queries[most_queries];
  float m[most_queries], s[most_queries];
  float* outputs[most_queries];
  for (int n = 0; n < count; ++n) {
    const int row = first + n / group, column = (kv_head * group + n % group) * width;
    const float* q = rows.queries + row * rows.query_stride + column;
    queries[n].scale = Form::prepare(q, width, rows.score_factor, numbers + n * width);
    outputs[n] = rows.outputs + row * rows.output_stride + column;
  }
  const int start = rows.start + first, last_position = rows.start + last - 1;
  const int begin = windowed ? first_seen(start, rows.window) : 0;
  for (int index = begin / block_positions; index < block_count(last_position); ++index) {
    const Block block = block_of<Form>(pages, layer, rows.pages, kv_head, begin, last_position, index);
    const int skipped = index * block_positions - start;
    int end = count;  // rows whose windows begin after the block are done without it
    if constexpr (windowed) end = smaller(last - first, skipped + block_positions + rows.window - 1) * group;
    for (int n = skipped > 0 ? skipped * group : 0; n < end;) {
      const int row_end = (n / group + 1) * group;
      const int size = smaller(most_queries_of_a_tile, (Form::rows_share_tiles ? end : row_end) - n);
      for (int i = 0; i < size; ++i) look<windowed>(start + (n + i) / group, rows.window, index, &queries[n + i]);
      work.run(block, numbers + n * width, queries + n, size, width);
      for (int i = 0; i < size; ++i, ++n) {
        const bool begins = index == (windowed ? first_block(start + n / group, rows.window) : 0);
        begins ? work.begin(i, width, &m[n], &s[n], outputs[n]) : work.merge(i, width, &m[n], &s[n], outputs[n]);
      }
    }
  }
  for (int n = 0; n < count; ++n) finish(s[n], width, outputs[n]);
}

template <typename Form>
void attend_rows(const KvPages& pages, int layer, int group, const AttentionRows& rows, int first, int last, int kv_head) {
  const int together = most_queries / group;
  for (int row = first; row < last; row += together) {
    const int end = smaller(row + together, last);
    const auto form = rows.start + end <= rows.window ? attend_together<Form, false> : attend_together<Form, true>;
    form(pages, layer, group, rows, row, end, kv_head);
  }
}

template <typename Form, bool windowed>
void attend_row_blocks(const KvPages& pages, int layer, int group, const AttentionRows& rows, int row, int kv_head, int first,
                       int last, float* partials) {
  const int width = pages.shape.head_width, position = rows.start + row;
  alignas(32) typename Form::Number numbers[most_group * most_width];
  BlockWork<Form, windowed> work;
  Query queries[most_group];
  for (int n = 0; n < group; ++n) {
    const float* q = rows.queries + row * rows.query_stride + (kv_head * group + n) * width;
    queries[n].scale = Form::prepare(q, width, rows.score_factor, numbers + n * width);
  }
  const int tiles = (group + most_queries_of_a_tile - 1) / most_queries_of_a_tile, size = (group + tiles - 1) / tiles;
  const int begin = windowed ? first_seen(position, rows.window) : 0, first_index = begin / block_positions;
  for (int index = first; index < last; ++index) {
    const Block block = block_of<Form>(pages, layer, rows.pages, kv_head, begin, position, index);
    for (int n = 0; n < group; n += size) {
      const int here = smaller(size, group - n);
      for (int i = 0; i < here; ++i) look<windowed>(position, rows.window, index, &queries[n + i]);
      work.run(block, numbers + n * width, queries + n, here, width);
      for (int i = 0; i < here; ++i) {
        float* const partial = partials + ((index - first_index) * group + n + i) * partial_floats(width);
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
  const bool is_int8 = pages.shape.type == KvType::int8, windowed = rows.start + row >= rows.window;
  const auto int8 = windowed ? attend_row_blocks<Int8, true> : attend_row_blocks<Int8, false>;
  const auto half = windowed ? attend_row_blocks<Half, true> : attend_row_blocks<Half, false>;
  (is_int8 ? int8 : half)(pages, layer, group, rows, row, kv_head, first, last, partials);
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
