// The native engine as one object: threads, memory, the recorded program, and the checks at its border.
//
// Knows how the parts go together; the numbers are made by the program. Always: what comes from outside is checked here, so
// that kernels never meet a page, a row or a token that does not exist.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "choice.hpp"
#include "isa.hpp"
#include "memory.hpp"
#include "pool.hpp"
#include "program.hpp"

namespace tane {

using PackRow = bool (*)(const AffineWeights&, int row, const std::uint8_t* blocks);

Isa isa_named(const std::string& name);             // "auto" is the best there is; throws for one this machine lacks
PackRow packer_named(const std::string& format);    // of a block format kept as stored

// What packing makes of rows of floats, as float32 again: for reports. False when a number is not finite or a scale overflows
// float16; throws for a shape that no linear layer has.
bool round_rows(AffineForm form, int rows, int inputs, const float* values, float* rounded);

class Engine {
 public:
  Engine(const ModelShape& shape, Isa isa, int threads);

  ModelMemory& memory() { return memory_; }
  const ModelMemory& memory() const { return memory_; }
  Isa isa() const { return isa_; }

  std::size_t row_bytes(const std::string& format, int matrix) const;

  // Packs consecutive rows; false when one holds a number that is not finite.
  bool pack(int matrix, int first_row, int rows, PackRow pack, const std::uint8_t* blocks, std::size_t row_bytes);
  bool pack_floats(int matrix, int first_row, int rows, const float* values);

  // Rows of codes, with d and m for each group of 32 (`pack_codes` in affine.hpp).
  bool pack_codes(int matrix, int first_row, int rows, const std::uint8_t* codes, const float* d, const float* m);

  // Consecutive rows as float32: what packing left of them.
  void unpack(int matrix, int first_row, int rows, float* values) const;

  void poison_pages();

  void load(const std::vector<int>& buffer_widths, const std::vector<Instruction>& instructions);

  // Segments are (start, rows, pages), copies (source, target, positions); `pages` are those of all segments, one after another.
  void run(const std::vector<std::int32_t>& token_ids, const std::vector<std::tuple<int, int, int>>& segments,
           const std::vector<std::int32_t>& pages, const std::vector<std::int32_t>& asked,
           const std::vector<std::tuple<int, int, int>>& copies);

  // Choices from the rows of the last run's logits.
  std::vector<Answer> choose(const std::vector<DrawRequest>& requests) { return chooser_.choose(rows(), requests); }
  std::vector<std::vector<RankedToken>> rank(const std::vector<RankRequest>& requests) { return chooser_.rank(rows(), requests); }
  std::vector<Answer> score(const std::vector<ScoreRequest>& requests) { return chooser_.score(rows(), requests); }

  int asked() const { return asked_; }
  int vocabulary() const { return program_ ? program_->vocabulary() : 0; }
  const float* logits() const { return program_ ? program_->logits() : nullptr; }

 private:
  Rows rows() const { return {logits(), asked(), vocabulary()}; }
  void check(const Batch& batch, const std::vector<std::tuple<int, int, int>>& segments) const;
  void check_written(const Batch& batch) const;

  Isa isa_;
  Pool pool_;
  Chooser chooser_;
  ModelMemory memory_;
  std::unique_ptr<Program> program_;
  int table_rows_ = 0;  // tokens that have an embedding
  int asked_ = 0;
};

}  // namespace tane
