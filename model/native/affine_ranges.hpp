// How a range of tokens and blocks is cut into tiles. Included by each vector file and compiled with its instructions, so all
// of it has internal linkage: no other file may end up with this code.
#pragma once

#include <immintrin.h>

#include "affine.hpp"

namespace tane {
namespace {

template <bool EightBits, bool Centred, bool HalfScales>
struct Form {
  static constexpr bool eight_bits = EightBits, centred = Centred, half_scales = HalfScales;
  static constexpr int code_step = EightBits ? 512 : 256;                            // bytes of a block's group
  static constexpr int scale_step = (Centred ? 16 : 32) * (HalfScales ? 2 : 4);
};

// A block of 16 rows, of which `rows` are written, by a number of tokens of one tile, from `lane` on; may ask for the memory of
// the next block meanwhile.
using MultiplyTile = void (*)(const std::uint8_t* codes, const std::uint8_t* scales, int groups, const TokenGroup* x, int lane,
                              float* y, std::size_t y_stride, int rows, bool fetch_ahead);

// Asks for the lines of the group that comes `ahead` groups later; past the end of the weights that does nothing.
template <typename F, _mm_hint Hint>
[[gnu::always_inline]] inline void prefetch_group(const std::uint8_t* codes, const std::uint8_t* scales, int ahead) {
  codes += static_cast<std::ptrdiff_t>(ahead) * F::code_step;
  scales += static_cast<std::ptrdiff_t>(ahead) * F::scale_step;
#pragma GCC unroll 8
  for (int line = 0; line < F::code_step / 64; ++line) _mm_prefetch(reinterpret_cast<const char*>(codes + 64 * line), Hint);
  _mm_prefetch(reinterpret_cast<const char*>(scales), Hint);
}

struct Tiles {  // for one form: by_tokens[n - 1] multiplies n tokens, n up to `most`
  MultiplyTile by_tokens[tile_tokens];
  int most, code_step, scale_step;
};

inline int form_index(AffineForm form) { return 4 * form.eight_bits + 2 * form.centred + form.half_scales; }

// One block by one tile, in as few equal parts as the registers allow.
inline void multiply_lanes(const Tiles& tiles, const std::uint8_t* codes, const std::uint8_t* scales, int groups,
                           const TokenGroup* x, int lane, int lane_end, float* y, std::size_t y_stride, int rows,
                           bool fetch_ahead) {
  int parts = (lane_end - lane + tiles.most - 1) / tiles.most;
  for (; parts > 0; --parts) {
    const int tokens = (lane_end - lane + parts - 1) / parts;
    tiles.by_tokens[tokens - 1](codes, scales, groups, x, lane, y + static_cast<std::size_t>(lane) * y_stride, y_stride, rows,
                               fetch_ahead);
    lane += tokens;
    fetch_ahead = false;
  }
}

// Tokens are taken in passes whose activations stay in the second-level cache while every block of the range goes by.
inline int tiles_per_pass(int groups) {
  constexpr int pass_bytes = 256 * 1024;
  const int tiles = pass_bytes / static_cast<int>(sizeof(TokenGroup)) / groups;
  return tiles > 0 ? tiles : 1;
}

inline void multiply_range(const Tiles& tiles, const AffineWeights& weights, const Activations& x, int token_begin,
                           int token_end, int block_begin, int block_end, float* y, std::size_t y_stride) {
  const auto* all_scales = static_cast<const std::uint8_t*>(weights.scales);
  const auto groups = static_cast<std::size_t>(x.groups);
  const int tile_end = (token_end + tile_tokens - 1) / tile_tokens, pass = tiles_per_pass(x.groups);
  for (int first = token_begin / tile_tokens; first < tile_end; first += pass) {
    const int last = first + pass < tile_end ? first + pass : tile_end;
    for (int block = block_begin; block < block_end; ++block) {
      const std::size_t before = static_cast<std::size_t>(block) * groups;
      const std::uint8_t* codes = weights.codes + before * static_cast<std::size_t>(tiles.code_step);
      const std::uint8_t* scales = all_scales + before * static_cast<std::size_t>(tiles.scale_step);
      const int row = block * block_rows, rows = weights.outputs - row < block_rows ? weights.outputs - row : block_rows;
      for (int tile = first; tile < last; ++tile) {
        const int token = tile * tile_tokens;
        const int lane = token < token_begin ? token_begin - token : 0;
        const int lane_end = token + tile_tokens > token_end ? token_end - token : tile_tokens;
        multiply_lanes(tiles, codes, scales, x.groups, x.tiles + static_cast<std::size_t>(tile) * groups, lane, lane_end,
                       y + static_cast<std::size_t>(token) * y_stride + row, y_stride, rows, tile == first);
      }
    }
  }
}

}  // namespace
}  // namespace tane
