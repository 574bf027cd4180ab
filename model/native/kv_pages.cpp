#include "kv_pages.hpp"

#include <cstring>
#include <limits>

namespace tane {
namespace {

// Lines of `count` numbers out of 32, for layouts whose last index is the position.
void copy_lines(const std::byte* source, std::byte* target, int lines, std::size_t position_bytes, int count) {
  const std::size_t line_bytes = page_positions * position_bytes;
  for (int line = 0; line < lines; ++line)
    std::memcpy(target + line * line_bytes, source + line * line_bytes, count * position_bytes);
}

void copy_int8(const KvHead& source, const KvHead& target, int head_width, int count) {
  copy_lines(source.memory, target.memory, head_width / 2, 2, count);
  std::memcpy(target.key_scales(), source.key_scales(), count * sizeof(float));
  std::memcpy(target.value_scales(), source.value_scales(), count * sizeof(float));
  const std::size_t whole_pairs = static_cast<std::size_t>(count / 2) * 2 * head_width;
  std::memcpy(target.int8_values(), source.int8_values(), whole_pairs);
  if (count % 2 == 0) return;
  for (int i = 0; i < head_width; ++i) target.int8_values()[whole_pairs + 2 * i] = source.int8_values()[whole_pairs + 2 * i];
}

void copy_float16(const KvHead& source, const KvHead& target, int head_width, int count) {
  copy_lines(source.memory, target.memory, head_width, sizeof(Float16), count);
  std::memcpy(target.float16_values(), source.float16_values(), sizeof(Float16) * count * head_width);
}

void poison_head(const KvShape& shape, const KvHead& head) {
  if (shape.type == KvType::float16) {
    for (std::size_t i = 0; i < shape.head_bytes() / sizeof(Float16); ++i) head.float16_keys()[i] = 0x7E00u;
    return;
  }
  std::memset(head.memory, 0x80, shape.head_bytes());
  for (int i = 0; i < page_positions; ++i) {
    head.key_scales()[i] = std::numeric_limits<float>::quiet_NaN();
    head.value_scales()[i] = std::numeric_limits<float>::quiet_NaN();
  }
}

}  // namespace

bool kv_supports(int kv_heads, int head_width) {
  return kv_heads >= 1 && head_width >= 8 && head_width <= 256 && head_width % 8 == 0;
}

void copy_positions(const KvPages& pages, int source, int target, int positions) {
  if (positions <= 0 || source == target) return;
  for (int layer = 0; layer < pages.shape.layers; ++layer) {
    for (int head = 0; head < pages.shape.kv_heads; ++head) {
      const KvHead from = pages.head(layer, source, head), to = pages.head(layer, target, head);
      const auto copy = pages.shape.type == KvType::int8 ? copy_int8 : copy_float16;
      copy(from, to, pages.shape.head_width, positions);
    }
  }
}

void poison(const KvPages& pages, int page) {
  for (int layer = 0; layer < pages.shape.layers; ++layer) {
    for (int head = 0; head < pages.shape.kv_heads; ++head) poison_head(pages.shape, pages.head(layer, page, head));
  }
}

const KvKernels& kv_kernels(Isa isa) { return isa == Isa::scalar ? kv_scalar() : kv_avx2(); }

}  // namespace tane
