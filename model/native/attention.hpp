// Causal attention of rows over pages of keys and values, in blocks of 128 absolute positions.
//
// Definition, for one query head at position t of its sequence, over block b (positions 128·b … min(128·b + 127, t), of which a
// row with a sliding window of w positions sees only those after t − w, and of which only blocks with such a position count):
//
//   x[j] = score of position j in base 2, that is q·k[j] · F                 F = log₂e times the model's scale, often 1/√D
//   m    = ⌈max x[j]⌉                                                        a whole number: rescaling by 2^m is exact
//   p[j] = 2^(x[j] − m),   s = Σ p[j],   o[i] = Σ p[j] · v[j][i]             s: a partial sum per lane, lane = j mod 8
//
// Blocks combine in ascending order, from the first one's (m, s, o): with M = max(m₁, m₂), a = 2^(m₁ − M), b = 2^(m₂ − M)
//
//   m = M,   s = s₁·a + s₂·b,   o = o₁·a + o₂·b                              (one rounding each; factors below 2⁻¹²⁶ are 0)
//
// and the answer is o · (1 / s). A block's numbers depend on its own positions and on the row alone, so whole prompts, chunks,
// single rows, cached prefixes and rows split among threads all give the same bits.
//
// int8 pages: everything between floats is exact integers, whose sums have no order. A query head has one scale, absmax / 32767,
// and int16 codes; x[j] = (Σ codes · key codes) · (key scale[j] · (query scale · F)). The weights p[j] · value scale[j]
// of a block are rounded to int16 against their maximum W: codes w · (32767 / W), o[i] = (Σ codes · value codes) · (W / 32767).
// So the rounding adds at most 2⁻¹⁶ of the greatest contribution for each position, far below that of the int8 values.
//
// float16 pages: x[j] is a chain of fma over the inputs, ascending, of k and q · F; o[i] one over the positions.
//
// Knows rows, pages and heads; nothing of sequences, threads or where rows come from. Always: what stands at positions
// after a row's own, or before its window, changes nothing in it, whatever it is; pages with no position that a row sees are not
// touched. Numbers that are not finite make the row's heads NaN.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "kv_pages.hpp"

namespace tane {

constexpr int block_positions = 128;
constexpr int block_pages = block_positions / page_positions;
constexpr int most_group = 32;            // query heads for one key/value head
constexpr int every_position = INT_MAX;  // the window of rows that have none

// Consecutive rows of one sequence. Row r stands at position start + r; pages[i] holds positions 32·i … 32·i + 31.
struct AttentionRows {
  const float* queries;  // row r, head h: queries + r · query_stride + h · D, rotated
  std::ptrdiff_t query_stride;
  float* outputs;  // laid out likewise
  std::ptrdiff_t output_stride;
  const std::int32_t* pages;
  int start;
  float score_factor;           // F
  int window = every_position;  // positions that a row sees, its own among them
};

// The numbers of one block for one query head, as the two forms of the work hand them on: m, s, o[0] … o[D − 1].
static inline std::size_t partial_floats(int head_width) { return static_cast<std::size_t>(head_width) + 2; }
static inline int block_count(int position) { return position / block_positions + 1; }  // of a row at this position
static inline int first_seen(int position, int window) { return position < window ? 0 : position - window + 1; }
static inline int first_block(int position, int window) { return first_seen(position, window) / block_positions; }
static inline int blocks_seen(int position, int window) { return block_count(position) - first_block(position, window); }

float score_factor(double scale);  // F for what a model multiplies scores by

bool attention_supports(int heads, int kv_heads, int head_width);  // else refuse the model at load

struct AttentionKernels {
  // The whole of rows [first, last) for the query heads of one key/value head. Rows that go together share each load of a page;
  // 8 to 32 of them are a good piece of work.
  void (*attend)(const KvPages& pages, int layer, int group, const AttentionRows& rows, int first, int last, int kv_head);

  // Blocks [first, last) of one row, for splitting a long context among threads: partials[block][head of the group][2 + D],
  // counted from the first block that the row sees.
  void (*attend_blocks)(const KvPages& pages, int layer, int group, const AttentionRows& rows, int row, int kv_head, int first,
                        int last, float* partials);

  // Combines all blocks that one row sees into the `group` heads at `output`: the bits of `attend`.
  void (*combine)(const float* partials, int blocks, int group, int head_width, float* output);
};

const AttentionKernels& attention_scalar();  // the definition
const AttentionKernels& attention_avx2();
const AttentionKernels& attention_kernels(Isa isa);

}  // namespace tane
