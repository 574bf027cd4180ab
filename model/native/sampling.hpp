// From a row of logits to a token: edits, mask, temperature, top-k, top-p, min-p, the draw, and log-probabilities.
//
// Definitions, for logits z (float32) of tokens 0 … V − 1. A row with a NaN or +∞, before or after its edits, or with nothing
// finite left after the mask, gives no token.
//
//   edits     in float32, each operation rounded. Bias: z + b. Then for every seen token z / r where z > 0, else z · r. Then for
//             every seen token whose count c is above 0: z − (f · c + p), c rounded to float32
//   mask      z = −∞ for tokens that are banned, and for those that a constraint does not allow
//   ranking   z descending, id ascending among equals (−0 equals 0); the softmax is strictly increasing, so this is also the
//             ranking by probability, untouched by what exponentials round to
//   τ = 0     the first of the ranking
//   top-k     the first k of the ranking; 0 keeps all
//   weights   w[i] = e^((z[i] − max z) / τ) in float64, differences first; they are not divided by their sum
//   sums      C[j] = w[0] + … + w[j] over the tokens still in, added one after the other, ids ascending, float64
//   top-p     c[j]: likewise along the ranking. The shortest prefix of the ranking with c[j] ≥ ρ · C[last]; all where rounding
//             keeps every c[j] below; ρ = 1 keeps all
//   min-p     w ≥ ratio (the likeliest has 1); 0 keeps all
//   draw      the first token still in, ids ascending, with C[j] > u · C[last]
//
// So every filter sees the distribution renormalised over what the earlier ones kept. Tokens of weight 0 are never drawn or
// listed. Log-probabilities of the model are of the row as it came: z − max z − log Σ e^(z − max z), the sum in four lanes
// (lane = id mod 4) added in the tree of `sum_of_4`; those of the distribution drawn from are (z − max z) / τ − log C[last].
// Lists are sorted by log-probability descending, id ascending.
//
// Candidates are selected, not sorted: only as many tokens are ranked as a filter needs. That changes no answer.
// Knows one row and one draw; nothing of sequences, seeds or threads. Always: the answer depends on them alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "isa.hpp"

namespace tane {

enum class LogprobsOf : std::uint8_t { nothing, model, sampled };

struct Edits {
  std::span<const std::int32_t> bias_ids = {};
  std::span<const float> bias_values = {};  // one for each of bias_ids
  std::span<const std::int32_t> seen_ids = {};
  std::span<const std::int32_t> seen_counts = {};  // one for each of seen_ids
  float repetition = 1, presence = 0, frequency = 0;

  bool penalise() const { return !seen_ids.empty() && (repetition != 1 || presence != 0 || frequency != 0); }
  bool any() const { return !bias_ids.empty() || penalise(); }
};

// What a row goes through before it is chosen from.
struct Changes {
  Edits edits = {};
  std::span<const std::int32_t> banned = {};
  std::optional<std::span<const std::uint32_t>> allowed = {};  // bit (id mod 32) of word (id / 32) allows a token; none: all

  bool mask() const { return !banned.empty() || allowed.has_value(); }
};

struct Draw {
  double temperature = 1, top_p = 1, min_p = 0, uniform = 0;
  int top_k = 0;
  Changes changes = {};
  LogprobsOf logprobs = LogprobsOf::nothing;
  int top = 0;  // how many of the likeliest tokens to list
};

// The likeliest tokens that are left of a row.
struct Ranking {
  int count = 1;
  Changes changes = {};
};

struct RankedToken {
  std::int32_t token_id;
  double logprob;  // of the row after its edits and before the mask: masked tokens keep their probability
  float logit;     // after its edits
};

struct TokenLogprob {
  std::int32_t token_id;
  double logprob;
};

struct Drawn {
  std::int32_t token_id = -1;  // −1: nothing could be chosen
  double logprob = 0;          // when log-probabilities were asked for
  int listed = 0;              // entries written to the list
};

constexpr int run_tokens = 64;  // logits are summarised in runs of 64

struct SamplingKernels {
  // The greatest logit of each run; gives the greatest of all, or NaN when one is NaN.
  float (*peaks)(const float* logits, int count, float* peaks);
  // Positions of logits of at least `level`, ascending; runs whose peak is below are skipped.
  int (*at_least)(const float* logits, int count, const float* peaks, float level, std::int32_t* positions);
  // The weights of all logits; gives C[last], and in run_sums[r] the sum before run r.
  double (*weigh)(const float* logits, int count, double peak, double temperature, double* weights, double* run_sums);
  // The same, faster where many weights are 0.
  double (*weigh_masked)(const float* logits, int count, double peak, double temperature, double* weights, double* run_sums);
  // Σ e^(z − peak) in four lanes.
  double (*total)(const float* logits, int count, double peak);
  // The logits with −∞ where no bit allows a token; `masked` may be `logits`.
  void (*mask)(const float* logits, int count, const std::uint32_t* allowed, float* masked);
};

const SamplingKernels& sampling_scalar();  // the definition
const SamplingKernels& sampling_avx2();
const SamplingKernels& sampling_kernels(Isa isa);

// The memory one draw works in; one for each thread.
struct SamplingScratch {
  explicit SamplingScratch(int vocabulary);

  std::unique_ptr<float[]> edited, logits, raw_peaks, peaks, spare_peaks;
  std::unique_ptr<double[]> weights, kept_weights, run_sums;
  std::unique_ptr<std::int32_t[]> positions, token_ids;
  std::unique_ptr<std::uint64_t[]> keys, spare_keys;
};

// Draws one token from a row. `list` has room for draw.top entries; logits are not changed.
Drawn draw_token(const SamplingKernels& kernels, const float* logits, int vocabulary, const Draw& draw,
                 SamplingScratch& scratch, TokenLogprob* list);

// The model's log-probability of a given token, and of the `top` likeliest ones, as `draw_token` would report them.
Drawn report_token(const SamplingKernels& kernels, const float* logits, int vocabulary, std::int32_t token_id, int top,
                   SamplingScratch& scratch, TokenLogprob* list);

// The first ranking.count of the ranking that have a finite logit, in its order; gives how many. `list` has room for as many, or
// for the whole vocabulary. A row that gives no token gives none.
int rank_tokens(const SamplingKernels& kernels, const float* logits, int vocabulary, const Ranking& ranking,
                SamplingScratch& scratch, RankedToken* list);

}  // namespace tane
