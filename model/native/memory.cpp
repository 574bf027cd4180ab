#include "memory.hpp"

#include <climits>
#include <cmath>
#include <new>
#include <stdexcept>
#include <utility>

#include "attention.hpp"

namespace tane {
namespace {

constexpr std::size_t alignment = 64;
constexpr double most_bytes = 0x1p62;  // so that no offset overflows

KvShape kv_shape(const ModelShape& shape) {
  return {shape.kv_type, shape.layers, shape.kv_heads, shape.head_width, shape.pages};
}

void check(const ModelShape& shape) {
  if (!kv_supports(shape.kv_heads, shape.head_width) ||
      !attention_supports(shape.heads, shape.kv_heads, shape.head_width)) {
    throw std::invalid_argument("the native engine has no attention for these heads");
  }
  const double bytes = static_cast<double>(kv_shape(shape).page_bytes()) * shape.pages * shape.layers;
  if (shape.layers < 1 || shape.context < 1 || shape.pages < 0 || shape.heads > INT_MAX / shape.head_width || bytes > most_bytes) {
    throw std::invalid_argument("the native engine has no model of so many layers, positions or pages");
  }
}

}  // namespace

Block::Block(std::size_t bytes) { reserve(bytes); }

void Block::reserve(std::size_t bytes) {
  if (bytes <= size_) return;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  bytes_.reset();
  size_ = 0;
  bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  if (!bytes_) throw std::bad_alloc();
  size_ = rounded;
}

ModelMemory::ModelMemory(const ModelShape& shape) : shape_(shape) {
  check(shape);
  const KvShape kv = kv_shape(shape);
  page_memory_.reserve(kv.total_bytes());
  pages_ = {kv, page_memory_.data()};
}

int ModelMemory::add_rope(double base, const RopeStretch* stretch) {
  if (!(base > 0 && std::isfinite(base))) throw std::invalid_argument("the base of rotary positions is not above 0");
  const int half = shape_.head_width / 2;
  std::vector<float> frequencies(static_cast<std::size_t>(half));
  rope_frequencies(base, shape_.head_width, stretch, frequencies.data());
  std::vector<float> cosines(static_cast<std::size_t>(shape_.context) * static_cast<std::size_t>(half)), sines(cosines.size());
  fill_rope_rows(frequencies.data(), half, 0, shape_.context, cosines.data(), sines.data());
  ropes_.push_back({half, std::move(cosines), std::move(sines)});
  return static_cast<int>(ropes_.size()) - 1;
}

int ModelMemory::add_matrix(AffineForm form, int outputs, int inputs) {
  if (!affine_supports(outputs, inputs)) {
    throw std::invalid_argument("the native engine has no linear layer of this shape: inputs must be a multiple of 32");
  }
  const std::size_t bytes = affine_bytes(form, outputs, inputs);
  blocks_.emplace_back(bytes);
  matrices_.push_back(affine_place(form, outputs, inputs, blocks_.back().data()));
  weight_bytes_ += bytes;
  return static_cast<int>(matrices_.size()) - 1;
}

int ModelMemory::add_vector(const float* values, int width) {
  vectors_.emplace_back(values, values + width);
  weight_bytes_ += static_cast<std::size_t>(width) * sizeof(float);
  return static_cast<int>(vectors_.size()) - 1;
}

}  // namespace tane
