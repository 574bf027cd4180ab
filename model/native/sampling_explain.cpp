#include "sampling_explain.hpp"

#include <algorithm>
#include <utility>

#include "sampling_edits.hpp"
#include "sampling_select.hpp"
#include "vector_math.hpp"

namespace tane {
namespace {

// The first tokens of the ranking among those of positive weight.
int list_top(const float* row, int vocabulary, const double* weights, double total, TokenProbability* top) {
  std::uint64_t first[stage_top + 1];
  int listed = 0;
  for (int id = 0; id < vocabulary; ++id) {
    if (!(weights[id] > 0)) continue;
    const std::uint64_t key = rank_key(row[id], id);
    if (listed == stage_top && key > first[stage_top - 1]) continue;
    std::uint64_t* const place = std::upper_bound(first, first + listed, key);
    std::copy_backward(place, first + listed, first + listed + 1);
    *place = key;
    listed = std::min(listed + 1, stage_top);
  }
  for (int i = 0; i < listed; ++i) top[i] = {position_of(first[i]), weights[position_of(first[i])] / total};
  std::sort(top, top + listed, [](const TokenProbability& a, const TokenProbability& b) {
    return a.probability > b.probability || (a.probability == b.probability && a.token_id < b.token_id);
  });
  return listed;
}

class Explainer {
 public:
  Explainer(const SamplingKernels& kernels, const float* logits, int vocabulary, SamplingScratch& scratch, Explanation& told)
      : kernels_(kernels), vocabulary_(vocabulary), scratch_(scratch), told_(told), row_(logits),
        before_(scratch.kept_weights.get()), after_(scratch.weights.get()) {
    std::fill_n(before_, vocabulary, 0.0);
  }

  void tell_changes(const Changes& changes) {
    const Edits& edits = changes.edits;
    float* const edited = scratch_.edited.get();
    reweigh(StageName::model, 1);
    told_.entropy = entropy();
    if (edits.any()) {
      std::copy_n(row_, vocabulary_, edited);
      row_ = edited;
    }
    if (!edits.bias_ids.empty()) {
      add_bias(edits, edited);
      reweigh(StageName::bias, 1);
    }
    if (edits.penalise()) {
      add_penalties(edits, edited);
      reweigh(StageName::penalties, 1);
    }
    if (changes.mask()) {
      row_ = masked_row(kernels_, row_, vocabulary_, changes, scratch_);
      reweigh(StageName::mask, 1);
    }
  }

  void tell_filters(const Draw& draw) {
    if (draw.temperature != 1) reweigh(StageName::temperature, draw.temperature);
    if (draw.top_k == 0 && draw.top_p >= 1 && draw.min_p == 0) return;
    for (int id = 0; id < vocabulary_; ++id) scratch_.keys[id] = rank_key(row_[id], id);
    const std::uint64_t* const sorted = sort_keys(scratch_.keys.get(), scratch_.spare_keys.get(), vocabulary_);
    if (draw.top_k > 0) keep_first(StageName::top_k, sorted, std::min(draw.top_k, vocabulary_));
    if (draw.top_p < 1) keep_first(StageName::top_p, sorted, reaching(sorted, draw.top_p * total_));
    if (draw.min_p > 0) {
      for (int id = 0; id < vocabulary_; ++id) after_[id] = before_[id] >= draw.min_p ? before_[id] : 0;
      tell(StageName::min_p);
    }
  }

 private:
  void reweigh(StageName name, double temperature) {
    const float peak = kernels_.peaks(row_, vocabulary_, scratch_.peaks.get());
    kernels_.weigh_masked(row_, vocabulary_, peak, temperature, after_, scratch_.run_sums.get());
    peak_ = peak;
    tell(name);
  }

  void keep_first(StageName name, const std::uint64_t* sorted, int count) {
    std::fill_n(after_, vocabulary_, 0.0);
    for (int i = 0; i < count; ++i) after_[position_of(sorted[i])] = before_[position_of(sorted[i])];
    tell(name);
  }

  // How many of the ranking it takes until the weights that are left reach `target`.
  int reaching(const std::uint64_t* sorted, double target) const {
    double reached = 0;
    int count = 0;
    while (count < vocabulary_ && reached < target) reached += before_[position_of(sorted[count++])];
    return count;
  }

  // Notes what a stage left in `after_`, which is then what the next one is given.
  void tell(StageName name) {
    Stage& stage = told_.stages[told_.count++];
    stage.name = name;
    stage.candidates = 0;
    double total = 0, share = 0;
    bool dropped = false;
    for (int id = 0; id < vocabulary_; ++id) {
      const bool left = after_[id] > 0;
      stage.candidates += left;
      total += after_[id];
      share += left ? before_[id] : 0;
      dropped = dropped || (!left && before_[id] > 0);
    }
    stage.mass = dropped ? share / total_ : 1;
    stage.listed = list_top(row_, vocabulary_, after_, total, stage.top);
    total_ = total;
    std::swap(before_, after_);
  }

  double entropy() const {
    double sum = 0;
    for (int id = 0; id < vocabulary_; ++id) {
      if (before_[id] > 0) sum += before_[id] * (double{row_[id]} - peak_);
    }
    return logarithm(total_) - sum / total_;
  }

  const SamplingKernels& kernels_;
  const int vocabulary_;
  SamplingScratch& scratch_;
  Explanation& told_;
  const float* row_;          // as the last stage left it
  double *before_, *after_;   // weights that the present stage is given, and that it leaves; 0 is out
  double total_ = 0, peak_ = 0;  // C[last] of those before it; the greatest of the row
};

}  // namespace

void explain_draw(const SamplingKernels& kernels, const float* logits, int vocabulary, const Draw& draw,
                  SamplingScratch& scratch, Explanation& explanation) {
  Explainer explainer(kernels, logits, vocabulary, scratch, explanation);
  explainer.tell_changes(draw.changes);
  if (draw.temperature > 0) explainer.tell_filters(draw);
}

}  // namespace tane
