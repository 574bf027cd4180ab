// Parts of the ranking of a row, found without ranking the rest. See sampling.hpp for the ranking.
#pragma once

#include "sampling.hpp"

namespace tane {

// Logits of the tokens still in, with the greatest of each run of 64.
struct Logits {
  const float* values;
  int count;
  const float* peaks;
};

// Orders like the ranking: the position stands below the logit's falling bits.
std::uint64_t rank_key(float logit, std::int32_t position);
inline std::int32_t position_of(std::uint64_t key) { return static_cast<std::int32_t>(key & 0xFFFFFFFFu); }

// Sorts keys whose positions ascend; gives where the sorted ones stand, in `keys` or in `spare`.
std::uint64_t* sort_keys(std::uint64_t* keys, std::uint64_t* spare, int count);

// The first `wanted` of the ranking, as sorted keys in the scratch. At most `logits.count` are there.
std::span<const std::uint64_t> leading(const SamplingKernels& kernels, const Logits& logits, int wanted,
                                       SamplingScratch& scratch);

// Positions, ascending, of the first `wanted` of the ranking, in scratch.positions; gives how many.
int leading_positions(const SamplingKernels& kernels, const Logits& logits, int wanted, SamplingScratch& scratch);

// Positions, ascending, of the shortest prefix of the ranking whose weights, summed along it, reach `target`; of all where they
// do not. In scratch.positions; gives how many.
int reaching_positions(const SamplingKernels& kernels, const Logits& logits, const double* weights, double target,
                       double temperature, SamplingScratch& scratch);

}  // namespace tane
