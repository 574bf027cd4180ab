// Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a block of four random
// words as a pure function of a 128-bit key and a 256-bit counter. Integers only, so the same on every machine.
#pragma once

#include <array>
#include <cstdint>

namespace tane {

using Key = std::array<std::uint64_t, 2>;
using Counter = std::array<std::uint64_t, 4>;

Counter philox4x64(Key key, Counter counter);

// A float64 in [0, 1): the top 53 bits of the first word of the block with key (seed, sample) and counter (position, 0, 0, 0).
double philox_uniform(std::uint64_t seed, std::uint64_t sample, std::uint64_t position);

}  // namespace tane
