// Choices from rows of logits, over the pool of threads: tokens drawn, rankings for beams, scores of given tokens.
//
// Knows rows and what is asked of them. Always: what is asked is checked here, so that the kernels never meet a row or a token
// that does not exist; and an answer depends on its own row and question, not on threads, neighbours or their order.
#pragma once

#include <memory>
#include <vector>

#include "isa.hpp"
#include "pool.hpp"
#include "sampling.hpp"
#include "sampling_explain.hpp"

namespace tane {

struct Rows {
  const float* logits;
  int count, vocabulary;

  const float* row(int index) const { return logits + static_cast<std::size_t>(index) * static_cast<std::size_t>(vocabulary); }
};

struct DrawRequest {
  int row;
  Draw draw;
  bool explain = false;
};

struct RankRequest {
  int row;
  Ranking ranking;
};

struct ScoreRequest {
  int row;
  std::int32_t token_id;
  int top = 0;
};

struct Answer {
  Drawn drawn;
  std::vector<TokenLogprob> list;
  std::unique_ptr<Explanation> explanation = nullptr;  // when one was asked for and a token was drawn
};

class Chooser {
 public:
  Chooser(Pool& pool, Isa isa);

  // Each throws std::invalid_argument before anything is computed.
  std::vector<Answer> choose(const Rows& rows, const std::vector<DrawRequest>& requests);
  std::vector<std::vector<RankedToken>> rank(const Rows& rows, const std::vector<RankRequest>& requests);
  std::vector<Answer> score(const Rows& rows, const std::vector<ScoreRequest>& requests);

 private:
  template <typename Work>
  void each(const Rows& rows, std::size_t count, const Work& work);

  Pool& pool_;
  const SamplingKernels& kernels_;
  std::vector<SamplingScratch> scratches_;
  int vocabulary_ = 0;  // that the scratches are for
};

}  // namespace tane
