#include "program.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace tane {
namespace {

// Chunks per thread that a piece of work is cut into: enough that a thread which loses its core for a while holds little.
constexpr int chunks_per_thread = 8;
constexpr int rows_per_piece = 16;  // of one attention call: they share each load of a page
constexpr int many_rows = 16;       // for each thread: from here on work is cut by rows, not by outputs
constexpr int few_rows = 4;         // fewer rows than this are not worth waking a thread for

int parts(int count, int each) { return (count + each - 1) / each; }

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

std::size_t floats(int rows, int width) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width) * sizeof(float);
}

}  // namespace

Program::Program(ModelMemory& memory, Pool& pool, Isa isa, std::vector<int> buffer_widths, std::vector<Instruction> instructions)
    : memory_(memory),
      pool_(pool),
      affine_(affine_kernels(isa)),
      elementwise_(elementwise_kernels(isa)),
      attention_(attention_kernels(isa)),
      kv_(kv_kernels(isa)),
      rope_(rope_kernels(isa)),
      widths_(std::move(buffer_widths)),
      instructions_(std::move(instructions)),
      buffers_(widths_.size()) {
  check();
  for (const Instruction& each : instructions_) {
    const auto same = [&](const Plan& plan) { return plan.window == each.window; };
    if (each.kind == Kind::attend && std::none_of(plans_.begin(), plans_.end(), same)) plans_.push_back({each.window, {}, {}});
    if (each.kind != Kind::linear) continue;
    source_width_ = std::max(source_width_, memory_.matrix(each.matrix).inputs);
    if (each.c.buffer >= 0) product_width_ = std::max(product_width_, memory_.matrix(each.matrix).outputs);
  }
}

void Program::check() const {
  std::vector<bool> written(widths_.size());
  bool gathered = false;
  for (const Instruction& each : instructions_) {
    gathered = gathered || each.kind == Kind::gather;
    require(each.asked == gathered, "an instruction works on other rows than there are at its place");
    for (const View& view : {each.a, each.b, each.c}) {
      if (view.buffer < 0) continue;
      check_view(view);
      require(written[static_cast<std::size_t>(view.buffer)], "an instruction reads what none before it has made");
    }
    check_view(each.out);
    written[static_cast<std::size_t>(each.out.buffer)] = true;
    check_shapes(each);
  }
  require(!instructions_.empty() && instructions_.back().kind == Kind::linear, "a program ends with the linear layer that makes logits");
  const View& logits = instructions_.back().out;
  require(logits.width == widths_[static_cast<std::size_t>(logits.buffer)], "logits do not fill their buffer");
}

void Program::check_view(const View& view) const {
  const auto known = static_cast<int>(widths_.size());
  require(view.buffer >= 0 && view.buffer < known && view.first >= 0 && view.width >= 1 &&
              view.width <= widths_[static_cast<std::size_t>(view.buffer)] - view.first,
          "an instruction reaches outside its buffer");
}

// An input that is missing has width 0, and so fits nothing.
void Program::check_shapes(const Instruction& each) const {
  const ModelShape& shape = memory_.shape();
  const auto fit = [&](int inputs, int outputs) {
    require(each.a.width == inputs && each.out.width == outputs, "an instruction's arrays do not fit its weights or its heads");
  };
  check_vectors(each);
  if (each.kind == Kind::silu_multiply || each.kind == Kind::gelu_multiply || each.kind == Kind::add ||
      each.source == Source::silu_multiply || each.source == Source::gelu_multiply) {
    require(each.a.width == each.b.width, "two arrays that go together have different widths");
  }
  switch (each.kind) {
    case Kind::embed:
      require(std::isfinite(each.scale), "embeddings are scaled by no finite number");
      return fit(0, memory_.matrix(each.matrix).inputs);
    case Kind::embed_positions:
      require(memory_.matrix(each.matrix).outputs >= shape.context, "there are more positions than have an embedding");
      return fit(0, memory_.matrix(each.matrix).inputs);
    case Kind::linear:
      require(each.c.buffer < 0 || each.c.width == each.out.width, "what is added to a product has another width");
      return fit(memory_.matrix(each.matrix).inputs, memory_.matrix(each.matrix).outputs);
    case Kind::attend:
      check_attention(each);
      return fit(shape.heads * shape.head_width, shape.heads * shape.head_width);
    default: return fit(each.a.width, each.a.width);
  }
}

void Program::check_vectors(const Instruction& each) const {
  const auto width_of = [&](int vector) { return static_cast<int>(memory_.vector(vector).size()); };
  const bool is_layer_norm = each.kind == Kind::layer_norm || each.source == Source::layer_norm;
  if (each.kind == Kind::rms_norm || each.source == Source::rms_norm || is_layer_norm) {
    require(width_of(each.vector) == each.a.width, "a norm's gain has another width than what it reads");
  }
  if (is_layer_norm) require(width_of(each.shift) == each.a.width, "a norm's bias has another width than what it reads");
  if (each.kind == Kind::head_norm) {
    require(width_of(each.vector) == memory_.shape().head_width, "a norm of heads has a gain of another width than theirs");
    require(each.a.width % memory_.shape().head_width == 0, "a norm of heads reads a part of a head");
  }
  if (each.kind == Kind::add_bias || (each.kind == Kind::linear && each.bias != -1)) {
    require(width_of(each.bias) == each.out.width, "a bias has another width than what it is added to");
  }
}

void Program::check_attention(const Instruction& each) const {
  const ModelShape& shape = memory_.shape();
  require(each.layer >= 0 && each.layer < shape.layers, "attention in a layer that has no pages");
  require(each.b.width == shape.kv_heads * shape.head_width && each.c.width == each.b.width, "keys or values do not fit the heads");
  require(each.window >= 1, "attention with a window of no position");
  require(std::isfinite(each.scale), "scores are scaled by no finite number");
  if (each.rope != -1) memory_.rope(each.rope);
}

void Program::run(const Batch& batch) {
  Pool::Call call(pool_);
  for (const Copy& copy : batch.copies) copy_positions(memory_.pages(), copy.source, copy.target, copy.positions);
  reserve(batch);
  for (Plan& plan : plans_) plan_attention(batch, plan);
  for (const Instruction& each : instructions_) execute(each, batch);
}

void Program::reserve(const Batch& batch) {
  batch_rows_ = static_cast<int>(batch.token_ids.size());
  asked_rows_ = static_cast<int>(batch.asked.size());
  std::vector<int> needed(widths_.size(), 0);
  for (const Instruction& each : instructions_) {
    int& rows_needed = needed[static_cast<std::size_t>(each.out.buffer)];
    rows_needed = std::max(rows_needed, rows(each));
  }
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].reserve(floats(needed[i], widths_[i]));
  source_.reserve(floats(batch_rows_, source_width_));
  product_.reserve(floats(batch_rows_, product_width_));
  codes_.reserve(activation_bytes(batch_rows_, source_width_));
  positions_.clear();
  tables_.clear();
  for (const Segment& segment : batch.segments) {
    for (int i = 0; i < segment.rows; ++i) {
      positions_.push_back(segment.start + i);
      tables_.push_back(segment.pages);
    }
  }
}

// ---- Attention: who does which rows and blocks, the same for every layer of one window ----------------------------------

void Program::plan_attention(const Batch& batch, Plan& plan) {
  plan.pieces.clear();
  plan.merges.clear();
  const int kv_heads = memory_.shape().kv_heads, wanted = pool_.threads() * chunks_per_thread;
  int whole = 0, blocks = 0;
  for (const Segment& segment : batch.segments) {
    whole += kv_heads * parts(segment.rows, rows_per_piece);
    if (segment.rows == 1) blocks += kv_heads * blocks_seen(segment.start, plan.window);
  }
  const bool splits = pool_.threads() > 1 && whole < wanted;
  int first_row = 0;
  std::ptrdiff_t partial_numbers = 0;
  for (const Segment& segment : batch.segments) {
    plan_segment(segment, first_row, splits ? std::max(1, blocks / wanted) : 0, plan, partial_numbers);
    first_row += segment.rows;
  }
  partials_.reserve(static_cast<std::size_t>(partial_numbers) * sizeof(float));
}

// blocks_each: how many blocks of a single row go to one thread, 0 when rows stay whole.
void Program::plan_segment(const Segment& segment, int first_row, int blocks_each, Plan& plan, std::ptrdiff_t& partial_numbers) {
  const ModelShape& shape = memory_.shape();
  const int begin = first_block(segment.start, plan.window), end = block_count(segment.start);
  for (int kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
    if (segment.rows > 1 || !blocks_each || end - begin == 1) {
      for (int first = 0; first < segment.rows; first += rows_per_piece) {
        plan.pieces.push_back({&segment, first_row, kv_head, first, std::min(first + rows_per_piece, segment.rows), -1});
      }
      continue;
    }
    plan.merges.push_back({&segment, first_row, kv_head, begin, end, partial_numbers});
    for (int first = begin; first < end; first += blocks_each) {
      plan.pieces.push_back({&segment, first_row, kv_head, first, std::min(first + blocks_each, end), partial_numbers});
    }
    const auto each = static_cast<std::ptrdiff_t>(partial_floats(shape.head_width)) * (shape.heads / shape.kv_heads);
    partial_numbers += each * (end - begin);
  }
}

const Program::Plan& Program::plan_of(const Instruction& instruction) const {
  return *std::find_if(plans_.begin(), plans_.end(), [&](const Plan& plan) { return plan.window == instruction.window; });
}

void Program::attend(const Instruction& instruction) {
  rotate_and_store(instruction);
  const Plan& plan = plan_of(instruction);
  pool_.run(static_cast<int>(plan.pieces.size()),
            [&](int chunk) { attend_piece(instruction, plan.pieces[static_cast<std::size_t>(chunk)]); });
  const int group = memory_.shape().heads / memory_.shape().kv_heads, width = memory_.shape().head_width;
  for (const Piece& merge : plan.merges) {
    float* output = row(instruction.out, merge.first_row) + static_cast<std::ptrdiff_t>(merge.kv_head) * group * width;
    attention_.combine(partials_.floats() + merge.partials, merge.last - merge.first, group, width, output);
  }
}

void Program::attend_piece(const Instruction& instruction, const Piece& piece) {
  const int group = memory_.shape().heads / memory_.shape().kv_heads;
  const AttentionRows rows{
      .queries = row(instruction.a, piece.first_row),
      .query_stride = widths_[static_cast<std::size_t>(instruction.a.buffer)],
      .outputs = row(instruction.out, piece.first_row),
      .output_stride = widths_[static_cast<std::size_t>(instruction.out.buffer)],
      .pages = piece.segment->pages,
      .start = piece.segment->start,
      .score_factor = score_factor(instruction.scale),
      .window = instruction.window,
  };
  if (piece.partials >= 0) {
    attention_.attend_blocks(memory_.pages(), instruction.layer, group, rows, 0, piece.kv_head, piece.first, piece.last,
                             partials_.floats() + piece.partials);
  } else {
    attention_.attend(memory_.pages(), instruction.layer, group, rows, piece.first, piece.last, piece.kv_head);
  }
}

void Program::rotate_and_store(const Instruction& instruction) {
  const ModelShape& shape = memory_.shape();
  const bool rotates = instruction.rope != -1;
  const RopeTable table = rotates ? memory_.rope(instruction.rope) : RopeTable{};
  for_rows(batch_rows_, [&](int index) {
    const int position = positions_[static_cast<std::size_t>(index)];
    float* keys = row(instruction.b, index);
    if (rotates) {
      const float *cosines = table.cosines_at(position), *sines = table.sines_at(position);
      float* queries = row(instruction.a, index);
      rope_.rotate(queries, shape.heads, table.half, cosines, sines, queries);
      rope_.rotate(keys, shape.kv_heads, table.half, cosines, sines, keys);
    }
    const int page = tables_[static_cast<std::size_t>(index)][position / page_positions];
    kv_.store(memory_.pages(), instruction.layer, page, position % page_positions, keys, row(instruction.c, index));
  });
}

// ---- The other instructions ---------------------------------------------------------------------------------------------

void Program::execute(const Instruction& instruction, const Batch& batch) {
  switch (instruction.kind) {
    case Kind::embed: return embed(instruction, batch);
    case Kind::embed_positions: return embed_positions(instruction);
    case Kind::linear: return linear(instruction);
    case Kind::attend: return attend(instruction);
    case Kind::gather: return gather(instruction, batch);
    default: return elementwise(instruction);
  }
}

void Program::embed(const Instruction& instruction, const Batch& batch) {
  const AffineWeights& table = memory_.matrix(instruction.matrix);
  const float factor = static_cast<float>(instruction.scale);
  for_rows(batch_rows_, [&](int index) {
    float* out = row(instruction.out, index);
    unpack_row(table, batch.token_ids[static_cast<std::size_t>(index)], out);
    if (factor != 1.0f) elementwise_.scale(out, factor, table.inputs, out);
  });
}

void Program::embed_positions(const Instruction& instruction) {
  const AffineWeights& table = memory_.matrix(instruction.matrix);
  for_rows(batch_rows_, [&](int index) { unpack_row(table, positions_[static_cast<std::size_t>(index)], row(instruction.out, index)); });
}

void Program::linear(const Instruction& instruction) {
  const int count = rows(instruction);
  if (!count) return;
  const int threads = pool_.threads(), blocks = affine_blocks(memory_.matrix(instruction.matrix).outputs);
  if (count >= many_rows * threads) {  // a thread makes the codes that it multiplies, while they are in its cache
    const int wanted = std::clamp(count / (threads * chunks_per_thread), many_rows, 4 * many_rows);
    const int each = parts(wanted, tile_tokens) * tile_tokens;
    pool_.run(parts(count, each), [&](int chunk) {
      const int first = chunk * each, last = std::min(first + each, count);
      for (int index = first; index < last; ++index) quantise_row(instruction, index);
      multiply(instruction, first, last, 0, blocks);
    });
    return;
  }
  for_rows(count, [&](int index) { quantise_row(instruction, index); });
  const int each = std::max(1, blocks / (threads * chunks_per_thread));
  pool_.run(parts(blocks, each),
            [&](int chunk) { multiply(instruction, 0, count, chunk * each, std::min((chunk + 1) * each, blocks)); });
}

void Program::quantise_row(const Instruction& instruction, int index) {
  const auto inputs = static_cast<std::size_t>(memory_.matrix(instruction.matrix).inputs);
  source_row(instruction, index, source_.floats() + static_cast<std::size_t>(index) * inputs);
  affine_.quantise(source_.floats(), inputs, index, index + 1, codes(instruction));
}

Activations Program::codes(const Instruction& instruction) const {
  return {reinterpret_cast<TokenGroup*>(codes_.data()), memory_.matrix(instruction.matrix).inputs / group_inputs};
}

// Rows [first, last) of the product, in a range of blocks of outputs, with the bias and the row that are added to it.
void Program::multiply(const Instruction& instruction, int first, int last, int block_begin, int block_end) {
  const AffineWeights& weights = memory_.matrix(instruction.matrix);
  const bool adds = instruction.c.buffer >= 0;
  const auto stride = static_cast<std::size_t>(adds ? weights.outputs : widths_[static_cast<std::size_t>(instruction.out.buffer)]);
  float* product = adds ? product_.floats() : row(instruction.out, 0);
  affine_.multiply(weights, codes(instruction), first, last, block_begin, block_end, product, stride);
  if (!adds && instruction.bias == -1) return;
  const int column = block_begin * block_rows, width = std::min(block_end * block_rows, weights.outputs) - column;
  const float* bias = instruction.bias == -1 ? nullptr : memory_.vector(instruction.bias).data() + column;
  for (int i = first; i < last; ++i) {
    float* const made = product + static_cast<std::size_t>(i) * stride + column;
    if (bias != nullptr) elementwise_.add(made, bias, width, made);
    if (adds) elementwise_.add(row(instruction.c, i) + column, made, width, row(instruction.out, i) + column);
  }
}

void Program::source_row(const Instruction& instruction, int index, float* out) const {
  const float* a = row(instruction.a, index);
  const int width = instruction.a.width;
  switch (instruction.source) {
    case Source::plain:
      std::memcpy(out, a, static_cast<std::size_t>(width) * sizeof(float));
      return;
    case Source::rms_norm:
      elementwise_.rms_norm(a, memory_.vector(instruction.vector).data(), instruction.epsilon, width, out);
      return;
    case Source::layer_norm: return layer_norm(instruction, a, out);
    case Source::silu_multiply:
      elementwise_.silu_multiply(a, row(instruction.b, index), width, out);
      return;
    case Source::gelu_multiply:
      elementwise_.gelu_multiply(a, row(instruction.b, index), width, out);
      return;
    case Source::gelu:
      elementwise_.gelu(a, width, out);
      return;
  }
}

void Program::layer_norm(const Instruction& instruction, const float* a, float* out) const {
  elementwise_.layer_norm(a, memory_.vector(instruction.vector).data(), memory_.vector(instruction.shift).data(),
                          instruction.epsilon, instruction.a.width, out);
}

void Program::head_norm(const Instruction& instruction, const float* a, float* out) const {
  const std::vector<float>& gain = memory_.vector(instruction.vector);
  const auto width = static_cast<int>(gain.size());
  for (int first = 0; first < instruction.a.width; first += width) {
    elementwise_.rms_norm(a + first, gain.data(), instruction.epsilon, width, out + first);
  }
}

void Program::gather(const Instruction& instruction, const Batch& batch) {
  for (int i = 0; i < asked_rows_; ++i) {
    std::memcpy(row(instruction.out, i), row(instruction.a, batch.asked[static_cast<std::size_t>(i)]),
                static_cast<std::size_t>(instruction.a.width) * sizeof(float));
  }
}

void Program::elementwise(const Instruction& instruction) {
  const int width = instruction.out.width;
  for_rows(rows(instruction), [&](int index) {
    const float* a = row(instruction.a, index);
    float* out = row(instruction.out, index);
    switch (instruction.kind) {
      case Kind::rms_norm:
        return elementwise_.rms_norm(a, memory_.vector(instruction.vector).data(), instruction.epsilon, width, out);
      case Kind::layer_norm: return layer_norm(instruction, a, out);
      case Kind::head_norm: return head_norm(instruction, a, out);
      case Kind::silu_multiply: return elementwise_.silu_multiply(a, row(instruction.b, index), width, out);
      case Kind::gelu_multiply: return elementwise_.gelu_multiply(a, row(instruction.b, index), width, out);
      case Kind::gelu: return elementwise_.gelu(a, width, out);
      case Kind::add_bias: return elementwise_.add(a, memory_.vector(instruction.bias).data(), width, out);
      default: return elementwise_.add(a, row(instruction.b, index), width, out);
    }
  });
}

float* Program::row(const View& view, int index) const {
  const auto buffer = static_cast<std::size_t>(view.buffer);
  return buffers_[buffer].floats() + static_cast<std::size_t>(index) * static_cast<std::size_t>(widths_[buffer]) + view.first;
}

template <typename Function>
void Program::for_rows(int count, const Function& function) {
  if (count < few_rows || pool_.threads() == 1) {
    for (int index = 0; index < count; ++index) function(index);
    return;
  }
  const int each = std::clamp(count / (pool_.threads() * 2), 1, tile_tokens);
  pool_.run(parts(count, each), [&](int chunk) {
    for (int index = chunk * each; index < std::min((chunk + 1) * each, count); ++index) function(index);
  });
}

}  // namespace tane
