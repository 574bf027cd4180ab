// Rotary positions: frequencies, tables of cosines and sines, and the rotation of heads.
//
// Frequencies follow the float32 steps of the reference implementation, so that angles are its angles: 1 / base^(2i/d), each of
// the two operations rounded to float32, then Llama 3's stretching in float32. The angle is the float32 product of position and
// frequency; its cosine and sine come from our own code in float64 and are rounded once.
//
// Layout: a table holds one row of head_width / 2 numbers for each position. Pair i of a head is (x[i], x[i + head_width / 2]):
//
//   out[i]        = x[i] · cos − x[i + half] · sin           each product and the sum rounded, nothing fused
//   out[i + half] = x[i + half] · cos + x[i] · sin
//
// Knows nothing of layers, pages or threads. Always: a head's numbers depend on that head and its position alone.
#pragma once

#include <cstddef>

#include "isa.hpp"

namespace tane {

struct RopeStretch {  // Llama 3: long waves are stretched by the factor, short ones left alone, those between interpolated
  double factor, low_frequency_factor, high_frequency_factor;
  int original_context_length;
};

// Fills head_width / 2 frequencies; `stretch` may be null. The base is positive.
void rope_frequencies(double base, int head_width, const RopeStretch* stretch, float* frequencies);

struct RopeTable {
  int half;  // head_width / 2
  const float* cosines;
  const float* sines;

  const float* cosines_at(int position) const { return cosines + static_cast<std::size_t>(position) * half; }
  const float* sines_at(int position) const { return sines + static_cast<std::size_t>(position) * half; }
};

// Fills the rows of positions [begin, end) of both tables, half numbers each; rows may be filled by different threads.
void fill_rope_rows(const float* frequencies, int half, int begin, int end, float* cosines, float* sines);

struct RopeKernels {
  // Rotates `heads` heads of 2·half numbers that follow one another; `out` may be `x`.
  void (*rotate)(const float* x, int heads, int half, const float* cosines, const float* sines, float* out);
};

const RopeKernels& rope_scalar();  // the definition
const RopeKernels& rope_avx2();
const RopeKernels& rope_kernels(Isa isa);

}  // namespace tane
