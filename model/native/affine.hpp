// Linear layers over quantised weights: y = W x for many tokens, W's rows being outputs. The weights are affine, 4 or 8 bits:
//
//   w = d * q + m              affine form: Q4_1, Q5_1, Q4_K, every uniform grid
//   w = d * (q - c)            centred form, c = 8 or 128: Q4_0, Q8_0, symmetric grids; no m is stored or multiplied
//
// with one d (and m) for each row and group of 32 inputs, float16 or float32; larger groups repeat theirs.
//
// Definition of one output, groups ascending, all float32, fma rounding once (affine_scalar.cpp is this and nothing more):
//   affine:   acc = fma(d * dx, float(sum of q * code), acc), then acc = fma(m, scaled_sum, acc)
//   centred:  acc = fma(d * dx, float(sum of q * code - c * sum of codes), acc)
// Sums of integers are exact in any order (at most 32 * 255 * 127, so exact in float32 too), and the float operations of one
// output are the same for every tile, range, thread and instruction set: so are the bits.
//
// Layout: rows are padded to 16 and interleaved by 16, so that vector lanes are rows and no horizontal sum exists. For each
// block of 16 rows, for each group of 32 inputs, lines of 64 bytes, byte row * 4 + j of a line belonging to that row:
//   4 bits: 4 lines; line v holds input 8v + j in the low nibble and input 8v + 4 + j in the high one
//   8 bits: 8 lines; line v holds input 4v + j
//   scales: 16 d, then in the affine form 16 m
// Codes are kept as unsigned numbers. Padding rows have d = m = 0 and are computed but never written.
//
// Knows nothing of threads, files or what a row means: callers cut the work into ranges of tokens and blocks. By blocks for few
// tokens, so that each weight is read once; by tokens (16 to 64 at a time, quantised by the thread that multiplies them) when
// there are at least 16 for each thread, so that activations and outputs stay with one core.
#pragma once

#include <cstddef>
#include <cstdint>

#include "activations.hpp"
#include "isa.hpp"

namespace tane {

static constexpr int block_rows = 16;

struct AffineForm {
  bool eight_bits;   // codes of 8 bits, else of 4
  bool centred;      // w = d * (q - c), else w = d * q + m
  bool half_scales;  // d and m are float16, else float32
};

struct AffineWeights {  // a view of memory that the caller owns, aligned to 64 bytes
  AffineForm form;
  int outputs, inputs;  // inputs are a multiple of 32
  std::uint8_t* codes;
  void* scales;
};

struct AffineKernels {
  // Reads tokens [token_begin, token_end) of x, rows of out.groups * 32 floats that lie x_stride apart, and writes their lanes.
  void (*quantise)(const float* x, std::size_t x_stride, int token_begin, int token_end, const Activations& out);

  // y[token * y_stride + output] for a range of tokens and a range of blocks of 16 outputs; writes nothing else.
  void (*multiply)(const AffineWeights& weights, const Activations& x, int token_begin, int token_end, int block_begin,
                   int block_end, float* y, std::size_t y_stride);
};

const AffineKernels& affine_scalar();  // the definition
const AffineKernels& affine_avx2();    // only on a machine that has it, as below
const AffineKernels& affine_avx512();
const AffineKernels& affine_kernels(Isa isa);

// ---- Shapes and memory -------------------------------------------------------------------------------------------------

static inline int affine_blocks(int outputs) { return (outputs + block_rows - 1) / block_rows; }
static inline int scales_per_group(AffineForm form) { return form.centred ? block_rows : 2 * block_rows; }

bool affine_supports(int outputs, int inputs);                             // else refuse the model at load
std::size_t affine_bytes(AffineForm form, int outputs, int inputs);        // a multiple of 64
AffineWeights affine_place(AffineForm form, int outputs, int inputs, void* memory);  // clears the padding rows

// ---- Packing, one row at a time, so that fused layers and permuted rows need no copy -----------------------------------

// Codes as they are, d and m for each group of 32; m is not read in the centred form. False when a code has more bits than the
// form, when a scale is not finite, or when float16 would change it: such weights take float32 scales.
bool pack_codes(const AffineWeights& weights, int row, const std::uint8_t* codes, const float* d, const float* m);

// The block formats of GGUF, exact as stored: inputs / 32 blocks of 18, 20 and 34 bytes. Q4_0 and Q8_0 are centred, Q4_1 is
// affine, all have float16 scales. False when a scale is not finite.
bool pack_q4_0(const AffineWeights& weights, int row, const std::uint8_t* blocks);
bool pack_q4_1(const AffineWeights& weights, int row, const std::uint8_t* blocks);
bool pack_q8_0(const AffineWeights& weights, int row, const std::uint8_t* blocks);

// Rounds a row of floats to the grid of the form: centred, symmetric about 0; affine, from the least to the greatest number.
// False when a number is not finite or a scale overflows float16.
bool pack_floats(const AffineWeights& weights, int row, const float* values);

// The weights of one row as float32, d * (q - c) or fma(d, q, m): embedding rows, tests and reports.
void unpack_row(const AffineWeights& weights, int row, float* values);

}  // namespace tane
