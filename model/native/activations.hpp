// Activations as the affine layers read them: int8 codes, one scale for each token and group of 32 inputs.
// A token's codes and scales depend on that token's numbers alone, so a row never depends on its neighbours.
//
// Layout: tokens are cut into tiles of 8, inputs into groups of 32. One TokenGroup holds one group of one tile, and the groups
// of a tile follow each other, so a kernel that walks along the inputs of up to 8 tokens reads memory in order and reaches
// every token from one pointer. Lanes of tokens that were never written are never read.
//
//   tile 0: [group 0][group 1]...   tile 1: [group 0][group 1]...     of token t and group g: tiles[t / 8 * groups + g]
//
// Knows nothing of weights, threads or where the numbers come from.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tane {

static constexpr int group_inputs = 32;
static constexpr int tile_tokens = 8;

struct alignas(64) TokenGroup {
  std::int8_t codes[tile_tokens][group_inputs];  // in -127..127
  float scale[tile_tokens];                      // d: x is about d * code; NaN when a number of the group is not finite
  float scaled_sum[tile_tokens];                 // d * sum of codes, what the weights' offset m multiplies
  std::int32_t minus_8_sums[tile_tokens];        // -8 * sum of codes, for 4-bit weights d * (q - 8)
  std::int32_t minus_128_sums[tile_tokens];      // -128 * sum of codes, for 8-bit weights d * (q - 128)
};
static_assert(sizeof(TokenGroup) == 384);

struct Activations {  // a view of memory that the caller owns, aligned to 64 bytes
  TokenGroup* tiles;
  int groups;  // inputs / 32
};

static inline std::size_t activation_bytes(int tokens, int inputs) {
  const std::size_t tiles = (static_cast<std::size_t>(tokens) + tile_tokens - 1) / tile_tokens;
  return tiles * static_cast<std::size_t>(inputs / group_inputs) * sizeof(TokenGroup);
}

}  // namespace tane
