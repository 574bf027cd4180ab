// A decoder as a list of instructions, recorded once and run for every batch: one call is one step.
//
// Knows kernels, weights, buffers and pages; knows nothing of requests, text or how the list was made.
// Always: each number is made by one thread from its own row, so bits do not depend on the batch, the cut of the work or the
// number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "affine.hpp"
#include "attention.hpp"
#include "elementwise.hpp"
#include "memory.hpp"
#include "pool.hpp"

namespace tane {

struct View {  // columns [first, first + width) of a buffer
  int buffer = -1, first = 0, width = 0;
};

enum class Kind : std::uint8_t {
  embed, embed_positions, linear, attend, gather, rms_norm, layer_norm, head_norm, silu_multiply, gelu_multiply, gelu, add_bias, add
};

// What a linear layer reads: the rows as they are, normalised, or through their gate. The rows go straight into int8.
enum class Source : std::uint8_t { plain, rms_norm, layer_norm, silu_multiply, gelu_multiply, gelu };

struct Instruction {
  Kind kind;
  Source source = Source::plain;
  bool asked = false;  // works on the rows that asked for logits, which `gather` picked
  // attend: queries, keys, values. linear: c is added to the product and its bias, unless it has no buffer
  View out = {}, a = {}, b = {}, c = {};
  int matrix = -1, vector = -1, layer = -1;  // vector: the gain of a norm
  double epsilon = 0;
  int shift = -1;               // the vector that a LayerNorm adds
  int bias = -1;                // the vector added to a product or to rows; -1 for a product without one
  int rope = -1;                // attend: the table that turns queries and keys; -1 for none
  int window = every_position;  // attend: positions that a row sees, its own among them
  double scale = 1;             // attend: of the scores. embed: of the rows
};

struct Segment {  // consecutive rows of one sequence
  int start, rows;
  const std::int32_t* pages;
};

struct Copy {
  int source, target, positions;
};

struct Batch {
  std::span<const std::int32_t> token_ids;
  std::span<const Segment> segments;
  std::span<const std::int32_t> asked;  // rows whose logits are wanted
  std::span<const Copy> copies;         // done in order, before any row is written
};

class Program {
 public:
  // Throws std::invalid_argument when an instruction names what does not exist, or shapes that do not fit.
  Program(ModelMemory& memory, Pool& pool, Isa isa, std::vector<int> buffer_widths, std::vector<Instruction> instructions);

  // Runs every row; the logits of the rows that asked stand in `logits()` until the next run, vocabulary() numbers each.
  void run(const Batch& batch);
  const float* logits() const { return buffers_[static_cast<std::size_t>(instructions_.back().out.buffer)].floats(); }
  int vocabulary() const { return instructions_.back().out.width; }

 private:
  struct Piece {  // a part of one attention call that one thread does, the same for every layer of one window
    const Segment* segment;
    int first_row;            // of the segment in the batch
    int kv_head;
    int first, last;          // whole rows of the segment; or blocks of its only row, when there are partials
    std::ptrdiff_t partials;  // where the row's blocks leave their numbers, or -1
  };

  struct Plan {  // who does which rows and blocks
    int window;
    std::vector<Piece> pieces;
    std::vector<Piece> merges;  // rows whose blocks were split, once for each key/value head
  };

  void check() const;
  void check_view(const View& view) const;
  void check_shapes(const Instruction& instruction) const;
  void check_vectors(const Instruction& instruction) const;
  void check_attention(const Instruction& instruction) const;
  void reserve(const Batch& batch);
  void plan_attention(const Batch& batch, Plan& plan);
  void plan_segment(const Segment& segment, int first_row, int blocks_each, Plan& plan, std::ptrdiff_t& partial_numbers);
  const Plan& plan_of(const Instruction& instruction) const;
  void attend_piece(const Instruction& instruction, const Piece& piece);

  void execute(const Instruction& instruction, const Batch& batch);
  void embed(const Instruction& instruction, const Batch& batch);
  void embed_positions(const Instruction& instruction);
  void linear(const Instruction& instruction);
  void quantise_row(const Instruction& instruction, int index);
  void multiply(const Instruction& instruction, int first, int last, int block_begin, int block_end);
  Activations codes(const Instruction& instruction) const;
  void attend(const Instruction& instruction);
  void rotate_and_store(const Instruction& instruction);
  void gather(const Instruction& instruction, const Batch& batch);
  void elementwise(const Instruction& instruction);
  void head_norm(const Instruction& instruction, const float* a, float* out) const;
  void layer_norm(const Instruction& instruction, const float* a, float* out) const;

  void source_row(const Instruction& instruction, int row, float* out) const;
  float* row(const View& view, int index) const;
  int rows(const Instruction& instruction) const { return instruction.asked ? asked_rows_ : batch_rows_; }
  template <typename Function>
  void for_rows(int count, const Function& function);

  ModelMemory& memory_;
  Pool& pool_;
  const AffineKernels& affine_;
  const ElementwiseKernels& elementwise_;
  const AttentionKernels& attention_;
  const KvKernels& kv_;
  const RopeKernels& rope_;
  std::vector<int> widths_;
  std::vector<Instruction> instructions_;

  std::vector<Block> buffers_;
  Block source_, product_, codes_, partials_;
  int source_width_ = 0, product_width_ = 0;
  int batch_rows_ = 0, asked_rows_ = 0;
  std::vector<int> positions_;               // of each row
  std::vector<const std::int32_t*> tables_;  // page table of each row
  std::vector<Plan> plans_;  // one for each window
};

}  // namespace tane
