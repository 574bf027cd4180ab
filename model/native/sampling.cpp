#include "sampling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling_edits.hpp"
#include "sampling_select.hpp"
#include "vector_math.hpp"

namespace tane {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// The tokens still in, and their weights. Without token ids a position is a token.
struct Kept {
  Logits logits;
  const std::int32_t* token_ids;
  const double* weights;
  double peak;

  std::int32_t token(int position) const { return token_ids == nullptr ? position : token_ids[position]; }
};

struct Position {
  int index;
  double total;  // C[last]
};

std::int32_t first_at(const Logits& logits, float value) {
  int run = 0;
  while (logits.peaks[run] != value) ++run;
  int token = run * run_tokens;
  while (logits.values[token] != value) ++token;
  return token;
}

// Narrows to scratch.positions[0 … count − 1], in place where the numbers already stand in the scratch.
Kept narrow(const SamplingKernels& kernels, const Kept& kept, int count, SamplingScratch& scratch) {
  for (int i = 0; i < count; ++i) {
    const std::int32_t position = scratch.positions[i];
    scratch.token_ids[i] = kept.token(position);
    scratch.logits[i] = kept.logits.values[position];
    if (kept.weights != nullptr) scratch.kept_weights[i] = kept.weights[position];
  }
  kernels.peaks(scratch.logits.get(), count, scratch.peaks.get());
  return {{scratch.logits.get(), count, scratch.peaks.get()},
          scratch.token_ids.get(),
          kept.weights == nullptr ? nullptr : scratch.kept_weights.get(),
          kept.peak};
}

Kept keep_top_k(const SamplingKernels& kernels, const Kept& all, int count, SamplingScratch& scratch) {
  if (count == 0 || count >= all.logits.count) return all;
  return narrow(kernels, all, leading_positions(kernels, all.logits, count, scratch), scratch);
}

Kept keep_top_p(const SamplingKernels& kernels, const Kept& kept, double mass, double total, double temperature,
                SamplingScratch& scratch) {
  if (mass >= 1.0) return kept;
  return narrow(kernels, kept, reaching_positions(kernels, kept.logits, kept.weights, mass * total, temperature, scratch),
                scratch);
}

Kept keep_min_p(const SamplingKernels& kernels, const Kept& kept, double ratio, SamplingScratch& scratch) {
  if (ratio == 0.0) return kept;
  int count = 0;
  for (int i = 0; i < kept.logits.count; ++i) {
    scratch.positions[count] = i;
    count += kept.weights[i] >= ratio;
  }
  return narrow(kernels, kept, count, scratch);
}

// The first position with C[j] > u·C[last].
Position drawn_position(const Kept& kept, double uniform) {
  double total = 0;
  for (int i = 0; i < kept.logits.count; ++i) total += kept.weights[i];
  const double target = uniform * total;
  double reached = 0;
  for (int i = 0;; ++i) {
    reached += kept.weights[i];
    if (reached > target) return {i, total};
  }
}

// The same where nothing was filtered out, with the sums before each run already known.
Position drawn_position(const Kept& kept, double uniform, double total, const double* run_sums) {
  const double target = uniform * total;
  const int runs = (kept.logits.count + run_tokens - 1) / run_tokens;
  const int run = static_cast<int>(std::upper_bound(run_sums + 1, run_sums + runs, target) - run_sums) - 1;
  double reached = run_sums[run];
  for (int i = run * run_tokens;; ++i) {
    reached += kept.weights[i];
    if (reached > target) return {i, total};
  }
}

bool comes_before(const TokenLogprob& a, const TokenLogprob& b) {
  return a.logprob > b.logprob || (a.logprob == b.logprob && a.token_id < b.token_id);
}

// Insertion: sorted by logit already, the list only lacks order where rounding made log-probabilities equal.
void sort_list(TokenLogprob* list, int count) {
  for (int i = 1; i < count; ++i) {
    const TokenLogprob entry = list[i];
    int j = i;
    for (; j > 0 && comes_before(entry, list[j - 1]); --j) list[j] = list[j - 1];
    list[j] = entry;
  }
}

Drawn report_sampled(const SamplingKernels& kernels, const Kept& kept, Position drawn, const Draw& draw,
                     SamplingScratch& scratch, TokenLogprob* list) {
  const double log_total = logarithm(drawn.total);
  const auto logprob = [&](int position) {
    return (double{kept.logits.values[position]} - kept.peak) / draw.temperature - log_total;
  };
  int listed = 0;
  for (const std::uint64_t key : leading(kernels, kept.logits, draw.top, scratch)) {
    const std::int32_t position = position_of(key);
    if (kept.weights[position] > 0.0) list[listed++] = {kept.token(position), logprob(position)};
  }
  sort_list(list, listed);
  return {kept.token(drawn.index), logprob(drawn.index), listed};
}

Drawn report_model(const SamplingKernels& kernels, const Logits& logits, float peak, std::int32_t token, int top,
                   SamplingScratch& scratch, TokenLogprob* list) {
  const double log_total = logarithm(kernels.total(logits.values, logits.count, peak));
  const auto logprob = [&](std::int32_t id) { return double{logits.values[id]} - double{peak} - log_total; };
  int listed = 0;
  for (const std::uint64_t key : leading(kernels, logits, top, scratch)) {
    const std::int32_t id = position_of(key);
    if (logits.values[id] > minus_infinity) list[listed++] = {id, logprob(id)};
  }
  sort_list(list, listed);
  return {token, logprob(token), listed};
}

Drawn draw_sampled(const SamplingKernels& kernels, const Kept& all, const Draw& draw, SamplingScratch& scratch,
                   TokenLogprob* list) {
  Kept kept = keep_top_k(kernels, all, draw.top_k, scratch);
  const auto weigh = draw.changes.allowed ? kernels.weigh_masked : kernels.weigh;
  const double total = weigh(kept.logits.values, kept.logits.count, kept.peak, draw.temperature, scratch.weights.get(),
                             scratch.run_sums.get());
  kept.weights = scratch.weights.get();
  kept = keep_top_p(kernels, kept, draw.top_p, total, draw.temperature, scratch);
  kept = keep_min_p(kernels, kept, draw.min_p, scratch);
  const bool is_whole = kept.weights == scratch.weights.get();
  const Position drawn =
      is_whole ? drawn_position(kept, draw.uniform, total, scratch.run_sums.get()) : drawn_position(kept, draw.uniform);
  if (draw.logprobs == LogprobsOf::sampled) return report_sampled(kernels, kept, drawn, draw, scratch, list);
  return {kept.token(drawn.index), 0, 0};
}

}  // namespace

SamplingScratch::SamplingScratch(int vocabulary) {
  const auto count = static_cast<std::size_t>(vocabulary), runs = count / run_tokens + 2;
  for (auto* each : {&edited, &logits}) *each = std::make_unique_for_overwrite<float[]>(count);
  for (auto* each : {&raw_peaks, &peaks, &spare_peaks}) *each = std::make_unique_for_overwrite<float[]>(runs);
  for (auto* each : {&weights, &kept_weights}) *each = std::make_unique_for_overwrite<double[]>(count);
  run_sums = std::make_unique_for_overwrite<double[]>(runs);
  // One more than there are tokens: compaction writes a position before it knows whether to keep it.
  for (auto* each : {&positions, &token_ids}) *each = std::make_unique_for_overwrite<std::int32_t[]>(count + 1);
  for (auto* each : {&keys, &spare_keys}) *each = std::make_unique_for_overwrite<std::uint64_t[]>(count);
}

Drawn draw_token(const SamplingKernels& kernels, const float* logits, int vocabulary, const Draw& draw,
                 SamplingScratch& scratch, TokenLogprob* list) {
  const float raw_peak = kernels.peaks(logits, vocabulary, scratch.raw_peaks.get());
  if (!std::isfinite(raw_peak)) return {};
  const Logits raw{logits, vocabulary, scratch.raw_peaks.get()};
  Kept all{raw, nullptr, nullptr, raw_peak};
  if (draw.changes.edits.any() || draw.changes.mask()) {
    const float* const edited = edited_row(logits, vocabulary, draw.changes.edits, scratch);
    if (edited == nullptr) return {};
    const float* const left = masked_row(kernels, edited, vocabulary, draw.changes, scratch);
    all.peak = kernels.peaks(left, vocabulary, scratch.peaks.get());
    all.logits = {left, vocabulary, scratch.peaks.get()};
    if (all.peak == minus_infinity) return {};
  }
  Drawn drawn;
  if (draw.temperature == 0.0) {
    drawn.token_id = first_at(all.logits, static_cast<float>(all.peak));
    if (draw.logprobs == LogprobsOf::sampled && draw.top > 0) list[drawn.listed++] = {drawn.token_id, 0.0};
  } else {
    drawn = draw_sampled(kernels, all, draw, scratch, list);
  }
  return draw.logprobs == LogprobsOf::model ? report_model(kernels, raw, raw_peak, drawn.token_id, draw.top, scratch, list)
                                            : drawn;
}

Drawn report_token(const SamplingKernels& kernels, const float* logits, int vocabulary, std::int32_t token_id, int top,
                   SamplingScratch& scratch, TokenLogprob* list) {
  const float peak = kernels.peaks(logits, vocabulary, scratch.raw_peaks.get());
  if (!std::isfinite(peak)) return {};
  return report_model(kernels, {logits, vocabulary, scratch.raw_peaks.get()}, peak, token_id, top, scratch, list);
}

int rank_tokens(const SamplingKernels& kernels, const float* logits, int vocabulary, const Ranking& ranking,
                SamplingScratch& scratch, RankedToken* list) {
  float peak = kernels.peaks(logits, vocabulary, scratch.peaks.get());
  if (!std::isfinite(peak)) return 0;
  const float* const edited = edited_row(logits, vocabulary, ranking.changes.edits, scratch);
  if (edited == nullptr) return 0;
  if (edited != logits) peak = kernels.peaks(edited, vocabulary, scratch.peaks.get());
  if (peak == minus_infinity) return 0;
  const double log_total = logarithm(kernels.total(edited, vocabulary, peak));
  const float* const left = masked_row(kernels, edited, vocabulary, ranking.changes, scratch);
  if (ranking.changes.mask()) kernels.peaks(left, vocabulary, scratch.peaks.get());
  int listed = 0;
  for (const std::uint64_t key : leading(kernels, {left, vocabulary, scratch.peaks.get()}, ranking.count, scratch)) {
    const std::int32_t id = position_of(key);
    if (left[id] == minus_infinity) break;
    list[listed++] = {id, double{left[id]} - double{peak} - log_total, left[id]};
  }
  return listed;
}

const SamplingKernels& sampling_kernels(Isa isa) { return isa == Isa::scalar ? sampling_scalar() : sampling_avx2(); }

}  // namespace tane
