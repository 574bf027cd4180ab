#include "sampling_edits.hpp"

#include <algorithm>
#include <limits>

namespace tane {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

bool below_infinity(const float* row, std::span<const std::int32_t> ids) {  // a NaN is not
  return std::all_of(ids.begin(), ids.end(), [row](std::int32_t id) { return row[id] < infinity; });
}

}  // namespace

void add_bias(const Edits& edits, float* row) {
  for (std::size_t i = 0; i < edits.bias_ids.size(); ++i) row[edits.bias_ids[i]] += edits.bias_values[i];
}

void add_penalties(const Edits& edits, float* row) {
  for (std::size_t i = 0; i < edits.seen_ids.size(); ++i) {
    float& z = row[edits.seen_ids[i]];
    z = z > 0 ? z / edits.repetition : z * edits.repetition;
    if (edits.seen_counts[i] <= 0) continue;
    const float taken = edits.frequency * static_cast<float>(edits.seen_counts[i]);
    z -= taken + edits.presence;
  }
}

const float* edited_row(const float* logits, int vocabulary, const Edits& edits, SamplingScratch& scratch) {
  if (!edits.any()) return logits;
  float* const row = scratch.edited.get();
  std::copy_n(logits, vocabulary, row);
  add_bias(edits, row);
  add_penalties(edits, row);
  return below_infinity(row, edits.bias_ids) && below_infinity(row, edits.seen_ids) ? row : nullptr;
}

const float* masked_row(const SamplingKernels& kernels, const float* row, int vocabulary, const Changes& changes,
                        SamplingScratch& scratch) {
  if (!changes.mask()) return row;
  float* const masked = scratch.edited.get();
  if (changes.allowed) {
    kernels.mask(row, vocabulary, changes.allowed->data(), masked);
  } else if (row != masked) {
    std::copy_n(row, vocabulary, masked);
  }
  for (const std::int32_t id : changes.banned) masked[id] = -infinity;
  return masked;
}

}  // namespace tane
