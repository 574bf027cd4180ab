// What a row of logits goes through before it is chosen from: bias and penalties, then the mask. See sampling.hpp for both.
#pragma once

#include "sampling.hpp"

namespace tane {

void add_bias(const Edits& edits, float* row);
void add_penalties(const Edits& edits, float* row);

// The row after its edits, in the scratch, or `logits` itself where there are none; null where an edit gave a NaN or +∞.
const float* edited_row(const float* logits, int vocabulary, const Edits& edits, SamplingScratch& scratch);

// The row after the mask, in the scratch, or `row` itself where all tokens may be chosen. `row` may be what `edited_row` gave: it
// is then changed.
const float* masked_row(const SamplingKernels& kernels, const float* row, int vocabulary, const Changes& changes,
                        SamplingScratch& scratch);

}  // namespace tane
