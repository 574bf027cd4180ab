// The definition of what a page holds, number by number.
#include <limits>

#include "kv_pages.hpp"
#include "vector_math.hpp"

namespace tane {
namespace {

// Codes of one vector in int8, and its scale.
float quantise(const float* x, int width, std::int8_t* codes) {
  std::uint32_t greatest = 0;  // the bits of |x|, which order like the numbers and put NaN on top
  for (int i = 0; i < width; ++i) {
    const std::uint32_t magnitude = bits_of(x[i]) & 0x7FFFFFFFu;
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  const float top = float_of_bits(greatest);
  const bool is_zero = top < 0x1.0p-100f, is_finite = greatest < 0x7F800000u;
  const float inverse = is_zero || !is_finite ? 0.0f : 127.0f / top;
  for (int i = 0; i < width; ++i) codes[i] = is_finite ? static_cast<std::int8_t>(nearest(x[i] * inverse)) : std::int8_t{0};
  if (!is_finite) return std::numeric_limits<float>::quiet_NaN();
  return is_zero ? 0.0f : top / 127.0f;
}

void store_int8(const KvHead& head, int width, int position, const float* keys, const float* values) {
  std::int8_t codes[256];
  head.key_scales()[position] = quantise(keys, width, codes);
  for (int i = 0; i < width; ++i) head.int8_keys()[(i / 2 * page_positions + position) * 2 + i % 2] = codes[i];
  head.value_scales()[position] = quantise(values, width, codes);
  for (int i = 0; i < width; ++i) head.int8_values()[(position / 2 * width + i) * 2 + position % 2] = codes[i];
}

Float16 finite_or_nan(float x) {
  const Float16 half = float16_of(x);
  return static_cast<Float16>((half & 0x7C00u) == 0x7C00u ? half | 0x0200u : half);
}

void store_float16(const KvHead& head, int width, int position, const float* keys, const float* values) {
  for (int i = 0; i < width; ++i) head.float16_keys()[i * page_positions + position] = finite_or_nan(keys[i]);
  for (int i = 0; i < width; ++i) head.float16_values()[position * width + i] = finite_or_nan(values[i]);
}

void store(const KvPages& pages, int layer, int page, int position, const float* keys, const float* values) {
  const int width = pages.shape.head_width;
  const auto store_head = pages.shape.type == KvType::int8 ? store_int8 : store_float16;
  for (int head = 0; head < pages.shape.kv_heads; ++head) {
    store_head(pages.head(layer, page, head), width, position, keys + head * width, values + head * width);
  }
}

constexpr KvKernels kernels{store};

}  // namespace

const KvKernels& kv_scalar() { return kernels; }

}  // namespace tane
