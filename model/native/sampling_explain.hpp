// How a token was chosen, stage by stage: what each left, and how much of the probability that was.
//
// A plain computation beside that of sampling.hpp, by the same definitions: the weights, the totals and therefore the tokens that
// are left are the same bits. Stages that are switched off are not told; at temperature 0 the mask is the last.
#pragma once

#include "sampling.hpp"

namespace tane {

enum class StageName : std::uint8_t { model, bias, penalties, mask, temperature, top_k, top_p, min_p };

constexpr int most_stages = 8, stage_top = 10;

struct TokenProbability {
  std::int32_t token_id;
  double probability;  // among the tokens that are left
};

struct Stage {
  StageName name;
  int candidates;  // tokens of positive weight that are left
  double mass;     // their share of the probability before the stage; 1 where it dropped none
  int listed;
  TokenProbability top[stage_top];  // the first of the ranking, by probability descending, id ascending
};

struct Explanation {
  double entropy = 0;  // of the row as it came, in nats: log W − Σ w · (z − max z) / W, sums one by one, ids ascending
  int count = 0;
  Stage stages[most_stages];
};

// Of a draw that gave a token.
void explain_draw(const SamplingKernels& kernels, const float* logits, int vocabulary, const Draw& draw,
                  SamplingScratch& scratch, Explanation& explanation);

}  // namespace tane
