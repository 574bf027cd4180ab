#include "sampling_select.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "vector_math.hpp"

namespace tane {
namespace {

constexpr int few_keys = 48;  // below this a comparison sort is faster
constexpr double least_finite = std::numeric_limits<float>::lowest();
constexpr float everything = -std::numeric_limits<float>::infinity();

// The keys of `count` candidates in scratch.positions, sorted.
const std::uint64_t* rank_candidates(const Logits& logits, int count, SamplingScratch& scratch) {
  for (int i = 0; i < count; ++i) {
    const std::int32_t position = scratch.positions[i];
    scratch.keys[i] = rank_key(logits.values[position], position);
  }
  return sort_keys(scratch.keys.get(), scratch.spare_keys.get(), count);
}

// Of `count` candidates in scratch.positions, keeps those up to `last` in the ranking; they stay in ascending order.
int keep_up_to(const Logits& logits, int count, std::uint64_t last, SamplingScratch& scratch) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const std::int32_t position = scratch.positions[i];
    scratch.positions[kept] = position;
    kept += rank_key(logits.values[position], position) <= last;
  }
  return kept;
}

}  // namespace

std::uint64_t rank_key(float logit, std::int32_t position) {
  const std::uint32_t bits = bits_of(logit + 0.0f);  // −0 becomes 0, its equal
  const std::uint32_t falling = bits >> 31 != 0 ? bits : bits ^ 0x7FFFFFFFu;
  return std::uint64_t{falling} << 32 | static_cast<std::uint32_t>(position);
}

std::uint64_t* sort_keys(std::uint64_t* keys, std::uint64_t* spare, int count) {
  if (count <= few_keys) {
    std::sort(keys, keys + count);
    return keys;
  }
  std::uint32_t counts[4][256] = {};
  for (int i = 0; i < count; ++i) {
    for (int digit = 0; digit < 4; ++digit) ++counts[digit][keys[i] >> (32 + 8 * digit) & 255];
  }
  for (int digit = 0; digit < 4; ++digit) {  // stable, so that positions keep ascending among equal logits
    const int shift = 32 + 8 * digit;
    std::uint32_t* const starts = counts[digit];
    if (starts[keys[0] >> shift & 255] == static_cast<std::uint32_t>(count)) continue;
    for (std::uint32_t value = 0, next = 0; value < 256; ++value) next += std::exchange(starts[value], next);
    for (int i = 0; i < count; ++i) spare[starts[keys[i] >> shift & 255]++] = keys[i];
    std::swap(keys, spare);
  }
  return keys;
}

std::span<const std::uint64_t> leading(const SamplingKernels& kernels, const Logits& logits, int wanted,
                                       SamplingScratch& scratch) {
  wanted = std::min(wanted, logits.count);
  if (wanted <= 0) return {};
  const int runs = (logits.count + run_tokens - 1) / run_tokens;
  float level = everything;
  if (wanted <= runs) {  // as many runs have a peak of at least this level, so as many logits have
    float* const peaks = scratch.spare_peaks.get();
    std::copy_n(logits.peaks, runs, peaks);
    std::nth_element(peaks, peaks + wanted - 1, peaks + runs, std::greater<float>());
    level = peaks[wanted - 1];
  }
  const int count = kernels.at_least(logits.values, logits.count, logits.peaks, level, scratch.positions.get());
  return {rank_candidates(logits, count, scratch), static_cast<std::size_t>(wanted)};
}

int leading_positions(const SamplingKernels& kernels, const Logits& logits, int wanted, SamplingScratch& scratch) {
  const std::span<const std::uint64_t> first = leading(kernels, logits, wanted, scratch);
  if (first.empty()) return 0;
  for (std::size_t i = 0; i < first.size(); ++i) scratch.positions[i] = position_of(first[i]);
  std::sort(scratch.positions.get(), scratch.positions.get() + first.size());
  return static_cast<int>(first.size());
}

int reaching_positions(const SamplingKernels& kernels, const Logits& logits, const double* weights, double target,
                       double temperature, SamplingScratch& scratch) {
  const float peak = *std::max_element(logits.peaks, logits.peaks + (logits.count + run_tokens - 1) / run_tokens);
  for (int depth = 1;; depth += 1 + depth / 8) {  // logits at most depth·τ below the peak: a prefix of the ranking
    const float level =
        depth < 64 ? static_cast<float>(std::max(double{peak} - depth * temperature, least_finite)) : everything;
    const int count = kernels.at_least(logits.values, logits.count, logits.peaks, level, scratch.positions.get());
    double mass = 0;
    for (int i = 0; i < count; ++i) mass += weights[scratch.positions[i]];
    if (mass < target && count < logits.count) continue;
    const std::uint64_t* const sorted = rank_candidates(logits, count, scratch);
    double reached = 0;
    for (int i = 0; i < count; ++i) {
      reached += weights[position_of(sorted[i])];
      if (reached >= target) return keep_up_to(logits, count, sorted[i], scratch);
    }
    if (count == logits.count) return count;
  }
}

}  // namespace tane
