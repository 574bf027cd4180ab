// From rows of weights as files hold them to packed memory, and back.
#include <bit>
#include <climits>
#include <cmath>
#include <cstring>

#include "affine.hpp"
#include "affine_layout.hpp"

namespace tane {
namespace {

std::size_t to_lines(std::size_t bytes) { return (bytes + line_bytes - 1) / line_bytes * line_bytes; }

std::size_t groups_of(int outputs, int inputs) {
  return static_cast<std::size_t>(affine_blocks(outputs)) * static_cast<std::size_t>(inputs / group_inputs);
}

std::size_t scale_bytes(AffineForm form) {
  return static_cast<std::size_t>(scales_per_group(form)) * (form.half_scales ? 2 : 4);
}

std::uint16_t read_half(const std::uint8_t* bytes) { return static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8); }

// The 32 codes of one row and group.
void put_codes(const AffineWeights& weights, int row, int group, const std::uint8_t* codes) {
  std::uint8_t* lines = &code_byte(weights, row, group, 0);
  if (weights.form.eight_bits) {
    for (int line = 0; line < 8; ++line) std::memcpy(lines + line * line_bytes, codes + 4 * line, 4);
    return;
  }
  for (int line = 0; line < 4; ++line, codes += 8) {
    for (int j = 0; j < 4; ++j) lines[line * line_bytes + j] = static_cast<std::uint8_t>(codes[j] | codes[4 + j] << 4);
  }
}

bool put_scale(const AffineWeights& weights, std::size_t index, float value) {
  if (!std::isfinite(value)) return false;
  if (!weights.form.half_scales) {
    static_cast<float*>(weights.scales)[index] = value;
    return true;
  }
  const std::uint16_t half = float16_of(value);
  static_cast<std::uint16_t*>(weights.scales)[index] = half;
  return std::bit_cast<std::uint32_t>(float32_of(half)) == std::bit_cast<std::uint32_t>(value);
}

bool put_scales(const AffineWeights& weights, int row, int group, float d, float m) {
  const std::size_t index = scale_index(weights, row, group);
  return put_scale(weights, index, d) && (weights.form.centred || put_scale(weights, index + block_rows, m));
}

// Nibbles of GGUF's 4-bit blocks: byte j holds element j and, in its high half, element j + 16.
void put_nibbles(const AffineWeights& weights, int row, int group, const std::uint8_t* bytes) {
  std::uint8_t codes[group_inputs];
  for (int j = 0; j < 16; ++j) {
    codes[j] = bytes[j] & 15;
    codes[j + 16] = bytes[j] >> 4;
  }
  put_codes(weights, row, group, codes);
}

struct Grid {  // values are d * (code - zero) + m; codes lie in [low, high]
  double d, m;
  int zero, low, high;
};

float to_scale(AffineForm form, double value) {
  const float nearest = static_cast<float>(value);
  return form.half_scales ? float32_of(float16_of(nearest)) : nearest;
}

// Codes are then rounded against the scales as stored, so that storing them in float16 costs next to nothing.
Grid grid_of(AffineForm form, const float* values) {
  double least = values[0], greatest = values[0];
  for (int k = 1; k < group_inputs; ++k) {
    least = values[k] < least ? values[k] : least;
    greatest = values[k] > greatest ? values[k] : greatest;
  }
  if (!form.centred) {
    const double m = to_scale(form, least);
    return {to_scale(form, (greatest - m) / code_limit(form)), m, 0, 0, code_limit(form)};
  }
  const int centre = code_centre(form);
  if (form.eight_bits) return {to_scale(form, std::fmax(-least, greatest) / 127), 0, centre, 1, 255};
  const double extreme = -least > greatest ? least : greatest;  // the lone code -8 goes to the number of greatest magnitude
  return {to_scale(form, extreme / -8), 0, centre, 0, 15};
}

// Half to even, as the last bit of 1.5 * 2^52 is rounded; no library call.
int nearest_code(const Grid& grid, double value) {
  double code = grid.d == 0 ? grid.zero : (value - grid.m) / grid.d + grid.zero;
  code = code > grid.low ? code : grid.low;
  code = code < grid.high ? code : grid.high;
  return static_cast<int>((code + 0x1.8p52) - 0x1.8p52);
}

}  // namespace

bool affine_supports(int outputs, int inputs) {
  return outputs > 0 && outputs <= INT_MAX - block_rows && inputs > 0 && inputs % group_inputs == 0;
}

std::size_t affine_bytes(AffineForm form, int outputs, int inputs) {
  const std::size_t groups = groups_of(outputs, inputs);
  return groups * code_bytes(form) + to_lines(groups * scale_bytes(form));
}

AffineWeights affine_place(AffineForm form, int outputs, int inputs, void* memory) {
  const std::size_t groups = groups_of(outputs, inputs), last = static_cast<std::size_t>(inputs / group_inputs);
  auto* codes = static_cast<std::uint8_t*>(memory);
  std::uint8_t* scales = codes + groups * code_bytes(form);
  std::memset(codes + (groups - last) * code_bytes(form), 0, last * code_bytes(form));
  std::memset(scales + (groups - last) * scale_bytes(form), 0, last * scale_bytes(form));
  return {form, outputs, inputs, codes, scales};
}

bool pack_codes(const AffineWeights& weights, int row, const std::uint8_t* codes, const float* d, const float* m) {
  for (int k = 0; k < weights.inputs; ++k) {
    if (codes[k] > code_limit(weights.form)) return false;
  }
  for (int group = 0; group < weights.inputs / group_inputs; ++group) {
    put_codes(weights, row, group, codes + group * group_inputs);
    if (!put_scales(weights, row, group, d[group], weights.form.centred ? 0 : m[group])) return false;
  }
  return true;
}

bool pack_q4_0(const AffineWeights& weights, int row, const std::uint8_t* blocks) {
  for (int group = 0; group < weights.inputs / group_inputs; ++group, blocks += 18) {
    put_nibbles(weights, row, group, blocks + 2);
    if (!put_scales(weights, row, group, float32_of(read_half(blocks)), 0)) return false;
  }
  return true;
}

bool pack_q4_1(const AffineWeights& weights, int row, const std::uint8_t* blocks) {
  for (int group = 0; group < weights.inputs / group_inputs; ++group, blocks += 20) {
    put_nibbles(weights, row, group, blocks + 4);
    const float d = float32_of(read_half(blocks)), m = float32_of(read_half(blocks + 2));
    if (!put_scales(weights, row, group, d, m)) return false;
  }
  return true;
}

bool pack_q8_0(const AffineWeights& weights, int row, const std::uint8_t* blocks) {
  for (int group = 0; group < weights.inputs / group_inputs; ++group, blocks += 34) {
    std::uint8_t codes[group_inputs];
    for (int k = 0; k < group_inputs; ++k) codes[k] = blocks[2 + k] ^ 128;  // int8 + 128
    put_codes(weights, row, group, codes);
    if (!put_scales(weights, row, group, float32_of(read_half(blocks)), 0)) return false;
  }
  return true;
}

bool pack_floats(const AffineWeights& weights, int row, const float* values) {
  for (int group = 0; group < weights.inputs / group_inputs; ++group, values += group_inputs) {
    for (int k = 0; k < group_inputs; ++k) {
      if (!std::isfinite(values[k])) return false;
    }
    const Grid grid = grid_of(weights.form, values);
    if (!put_scales(weights, row, group, static_cast<float>(grid.d), static_cast<float>(grid.m))) return false;
    std::uint8_t codes[group_inputs];
    for (int k = 0; k < group_inputs; ++k) codes[k] = static_cast<std::uint8_t>(nearest_code(grid, values[k]));
    put_codes(weights, row, group, codes);
  }
  return true;
}

void unpack_row(const AffineWeights& weights, int row, float* values) {
  const AffineForm form = weights.form;
  for (int group = 0; group < weights.inputs / group_inputs; ++group) {
    const std::size_t scale = scale_index(weights, row, group);
    const float d = scale_at(weights, scale), m = form.centred ? 0 : scale_at(weights, scale + block_rows);
    for (int k = 0; k < group_inputs; ++k) {
      const int code = code_at(weights, row, group, k);
      values[group * group_inputs + k] =
          form.centred ? d * static_cast<float>(code - code_centre(form)) : std::fma(d, static_cast<float>(code), m);
    }
  }
}

}  // namespace tane
