#include "engine.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>

namespace tane {
namespace {

constexpr int pack_chunk_rows = 64;

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

}  // namespace

Isa isa_named(const std::string& name) {
  const Isa best = best_isa();
  if (name == "auto") return best;
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
    if (name != isa_name(isa)) continue;
    require(isa <= best, "this machine does not have the instruction set asked for");
    return isa;
  }
  throw std::invalid_argument("no instruction set is called " + name);
}

PackRow packer_named(const std::string& format) {
  if (format == "Q4_0") return pack_q4_0;
  if (format == "Q4_1") return pack_q4_1;
  if (format == "Q8_0") return pack_q8_0;
  throw std::invalid_argument("the native engine does not keep " + format + " as stored");
}

bool round_rows(AffineForm form, int rows, int inputs, const float* values, float* rounded) {
  require(affine_supports(rows, inputs), "the native engine has no linear layer of this shape: inputs must be a multiple of 32");
  const Block block(affine_bytes(form, rows, inputs));
  const AffineWeights weights = affine_place(form, rows, inputs, block.data());
  for (int row = 0; row < rows; ++row) {
    const auto first = static_cast<std::size_t>(row) * static_cast<std::size_t>(inputs);
    if (!pack_floats(weights, row, values + first)) return false;
    unpack_row(weights, row, rounded + first);
  }
  return true;
}

Engine::Engine(const ModelShape& shape, Isa isa, int threads)
    : isa_(isa), pool_(threads), chooser_(pool_, isa), memory_(shape) {}

std::size_t Engine::row_bytes(const std::string& format, int matrix) const {
  const std::size_t groups = static_cast<std::size_t>(memory_.matrix(matrix).inputs / group_inputs);
  return groups * (format == "Q8_0" ? 34 : format == "Q4_1" ? 20 : 18);
}

bool Engine::pack(int matrix, int first_row, int rows, PackRow pack, const std::uint8_t* blocks, std::size_t row_bytes) {
  const AffineWeights& weights = memory_.matrix(matrix);
  std::atomic<bool> finite{true};
  pool_.run((rows + pack_chunk_rows - 1) / pack_chunk_rows, [&](int chunk) {
    for (int row = chunk * pack_chunk_rows; row < std::min(rows, (chunk + 1) * pack_chunk_rows); ++row) {
      if (!pack(weights, first_row + row, blocks + static_cast<std::size_t>(row) * row_bytes)) finite = false;
    }
  });
  return finite;
}

bool Engine::pack_floats(int matrix, int first_row, int rows, const float* values) {
  const AffineWeights& weights = memory_.matrix(matrix);
  const auto inputs = static_cast<std::size_t>(weights.inputs);
  std::atomic<bool> finite{true};
  pool_.run((rows + pack_chunk_rows - 1) / pack_chunk_rows, [&](int chunk) {
    for (int row = chunk * pack_chunk_rows; row < std::min(rows, (chunk + 1) * pack_chunk_rows); ++row) {
      if (!tane::pack_floats(weights, first_row + row, values + static_cast<std::size_t>(row) * inputs)) finite = false;
    }
  });
  return finite;
}

bool Engine::pack_codes(int matrix, int first_row, int rows, const std::uint8_t* codes, const float* d, const float* m) {
  const AffineWeights& weights = memory_.matrix(matrix);
  const auto inputs = static_cast<std::size_t>(weights.inputs), groups = inputs / group_inputs;
  std::atomic<bool> fits{true};
  pool_.run((rows + pack_chunk_rows - 1) / pack_chunk_rows, [&](int chunk) {
    for (int row = chunk * pack_chunk_rows; row < std::min(rows, (chunk + 1) * pack_chunk_rows); ++row) {
      const auto at = static_cast<std::size_t>(row);
      if (!tane::pack_codes(weights, first_row + row, codes + at * inputs, d + at * groups, m + at * groups)) fits = false;
    }
  });
  return fits;
}

void Engine::unpack(int matrix, int first_row, int rows, float* values) const {
  const AffineWeights& weights = memory_.matrix(matrix);
  for (int row = 0; row < rows; ++row) {
    unpack_row(weights, first_row + row, values + static_cast<std::size_t>(row) * static_cast<std::size_t>(weights.inputs));
  }
}

void Engine::poison_pages() {
  for (int page = 0; page < memory_.shape().pages; ++page) poison(memory_.pages(), page);
}

void Engine::load(const std::vector<int>& buffer_widths, const std::vector<Instruction>& instructions) {
  program_ = std::make_unique<Program>(memory_, pool_, isa_, buffer_widths, instructions);
  asked_ = 0;
  for (const Instruction& each : instructions) {
    if (each.kind == Kind::embed) table_rows_ = memory_.matrix(each.matrix).outputs;
  }
}

void Engine::run(const std::vector<std::int32_t>& token_ids, const std::vector<std::tuple<int, int, int>>& segments,
                 const std::vector<std::int32_t>& pages, const std::vector<std::int32_t>& asked,
                 const std::vector<std::tuple<int, int, int>>& copies) {
  require(program_ != nullptr, "no program was loaded");
  for (const std::int32_t page : pages) require(page >= 0 && page < memory_.shape().pages, "a page does not exist");
  std::vector<Segment> cut;
  std::size_t next = 0;
  for (const auto& [start, rows, page_count] : segments) {
    require(page_count >= 0 && next + static_cast<std::size_t>(page_count) <= pages.size(), "segments name more pages than there are");
    cut.push_back({start, rows, pages.data() + next});
    next += static_cast<std::size_t>(page_count);
  }
  require(next == pages.size(), "there are more pages than segments name");
  std::vector<Copy> moves;
  for (const auto& [source, target, positions] : copies) moves.push_back({source, target, positions});
  const Batch batch{token_ids, cut, asked, moves};
  check(batch, segments);
  asked_ = 0;
  program_->run(batch);
  asked_ = static_cast<int>(asked.size());
}

void Engine::check(const Batch& batch, const std::vector<std::tuple<int, int, int>>& segments) const {
  const ModelShape& shape = memory_.shape();
  std::size_t rows = 0;
  for (const auto& [start, count, page_count] : segments) {
    const std::int64_t end = std::int64_t{start} + count;
    require(start >= 0 && count > 0 && end <= shape.context, "a segment is empty or leaves the context");
    require(end <= std::int64_t{page_count} * page_positions, "pages do not cover a segment");
    rows += static_cast<std::size_t>(count);
  }
  require(rows == batch.token_ids.size(), "segments have another number of rows than there are tokens");
  for (const std::int32_t id : batch.token_ids) require(id >= 0 && id < table_rows_, "a token id has no embedding");
  for (std::size_t i = 0; i < batch.asked.size(); ++i) {
    require(batch.asked[i] >= 0 && static_cast<std::size_t>(batch.asked[i]) < rows, "a row that asks does not exist");
    require(i == 0 || batch.asked[i] > batch.asked[i - 1], "rows that ask are not in order, or ask twice");
  }
  for (const Copy& copy : batch.copies) {
    require(copy.source >= 0 && copy.source < shape.pages && copy.target >= 0 && copy.target < shape.pages, "a copied page does not exist");
    require(copy.positions > 0 && copy.positions <= page_positions, "a copy of no position, or of more than a page");
  }
  check_written(batch);
}

// Rows are written by several threads at once, which is only safe when no two of them are the same place.
void Engine::check_written(const Batch& batch) const {
  std::vector<bool> written(static_cast<std::size_t>(memory_.shape().pages));
  for (const Segment& segment : batch.segments) {
    for (int page = segment.start / page_positions; page <= (segment.start + segment.rows - 1) / page_positions; ++page) {
      const auto place = static_cast<std::size_t>(segment.pages[page]);
      require(!written[place], "a page is written twice");
      written[place] = true;
    }
  }
}

}  // namespace tane
