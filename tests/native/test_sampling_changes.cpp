// Masks, rankings and explanations against plain versions of their definitions.
#include <climits>
#include <string>

#include "sampling_case.hpp"
#include "sampling_explain.hpp"

using namespace tane;
using namespace tane::test;

namespace {

const SamplingKernels* const all_kernels[] = {&sampling_scalar(), &sampling_avx2()};

std::vector<int> all_ids(const std::vector<float>& row) {
  std::vector<int> ids(row.size());
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int>(i);
  return ids;
}

float greatest(const std::vector<float>& z) { return *std::max_element(z.begin(), z.end()); }

// ---- Rankings ----------------------------------------------------------------------------------------------------------

std::vector<RankedToken> ranked(const SamplingKernels& kernels, const std::vector<float>& row, const Ranking& ranking) {
  const int vocabulary = static_cast<int>(row.size());
  SamplingScratch scratch(vocabulary);
  std::vector<RankedToken> list(static_cast<std::size_t>(std::min(ranking.count, vocabulary)));
  list.resize(static_cast<std::size_t>(rank_tokens(kernels, row.data(), vocabulary, ranking, scratch, list.data())));
  return list;
}

std::vector<RankedToken> plain_ranked(const std::vector<float>& row, const Ranking& ranking) {
  const std::vector<float> edited = penalised(biased(row, ranking.changes.edits), ranking.changes.edits);
  if (!usable(row) || !usable(edited) || greatest(row) == -infinity || greatest(edited) == -infinity) return {};
  const double peak = greatest(edited);
  double lanes[4] = {};
  for (std::size_t i = 0; i < edited.size(); ++i) lanes[i % 4] += exponential(double{edited[i]} - peak);
  const std::vector<float> left = masked(edited, ranking.changes);
  std::vector<RankedToken> list;
  for (const int id : test::ranking(left, all_ids(left))) {
    if (static_cast<int>(list.size()) == ranking.count || left[id] == -infinity) break;
    list.push_back({id, double{edited[id]} - peak - logarithm(sum_of_4(lanes)), edited[id]});
  }
  return list;
}

bool same(const std::vector<RankedToken>& a, const std::vector<RankedToken>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const RankedToken& x, const RankedToken& y) {
    return x.token_id == y.token_id && same_bits(x.logprob, y.logprob) && same_bits(x.logit, y.logit);
  });
}

// ---- Explanations ------------------------------------------------------------------------------------------------------

Explanation explained(const SamplingKernels& kernels, const std::vector<float>& row, const Draw& draw) {
  SamplingScratch scratch(static_cast<int>(row.size()));
  Explanation explanation;
  explain_draw(kernels, row.data(), static_cast<int>(row.size()), draw, scratch, explanation);
  return explanation;
}

// The weights of a row, by id.
std::vector<double> weights_of(const std::vector<float>& z, double temperature) {
  std::vector<double> weights;
  for (const float x : z) weights.push_back(exponential((double{x} - double{greatest(z)}) / temperature));
  return weights;
}

double total_of(const std::vector<double>& weights) {
  double total = 0;
  for (const double weight : weights) total += weight;
  return total;
}

class PlainExplanation {
 public:
  Explanation told;

  PlainExplanation(const std::vector<float>& row, const Draw& draw) : weights_(row.size()) {
    const Edits& edits = draw.changes.edits;
    std::vector<float> z = row;
    tell(StageName::model, z, weights_of(z, 1));
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (weights_[i] > 0) told.entropy += weights_[i] * (double{z[i]} - double{greatest(z)});
    }
    told.entropy = logarithm(total_of(weights_)) - told.entropy / total_of(weights_);
    if (!edits.bias_ids.empty()) z = biased(z, edits), tell(StageName::bias, z, weights_of(z, 1));
    if (edits.penalise()) z = penalised(z, edits), tell(StageName::penalties, z, weights_of(z, 1));
    if (draw.changes.mask()) z = masked(z, draw.changes), tell(StageName::mask, z, weights_of(z, 1));
    if (draw.temperature == 0) return;
    if (draw.temperature != 1) tell(StageName::temperature, z, weights_of(z, draw.temperature));
    const std::vector<int> order = test::ranking(z, all_ids(z));
    if (draw.top_k > 0) {
      std::vector<double> left(z.size());
      for (int i = 0; i < std::min<int>(draw.top_k, order.size()); ++i) left[order[i]] = weights_[order[i]];
      tell(StageName::top_k, z, left);
    }
    if (draw.top_p < 1) {
      std::vector<double> left(z.size());
      double reached = 0;
      for (const int id : order) {
        if (reached >= draw.top_p * total_of(weights_)) break;
        reached += left[id] = weights_[id];
      }
      tell(StageName::top_p, z, left);
    }
    if (draw.min_p > 0) {
      std::vector<double> left = weights_;
      for (double& weight : left) weight = weight >= draw.min_p ? weight : 0;
      tell(StageName::min_p, z, left);
    }
  }

 private:
  void tell(StageName name, const std::vector<float>& z, const std::vector<double>& left) {
    Stage& stage = told.stages[told.count++];
    double share = 0;
    bool dropped = false;
    std::vector<int> candidates;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (left[i] > 0) candidates.push_back(static_cast<int>(i)), share += weights_[i];
      if (left[i] == 0 && weights_[i] > 0) dropped = true;
    }
    stage = {name, static_cast<int>(candidates.size()), dropped ? share / total_of(weights_) : 1.0, 0, {}};
    std::vector<int> order = test::ranking(z, candidates);
    order.resize(std::min<std::size_t>(order.size(), 10));
    for (const int id : order) stage.top[stage.listed++] = {id, left[id] / total_of(left)};
    std::stable_sort(stage.top, stage.top + stage.listed, [](const TokenProbability& a, const TokenProbability& b) {
      return a.probability > b.probability || (a.probability == b.probability && a.token_id < b.token_id);
    });
    weights_ = left;
  }

  std::vector<double> weights_;
};

bool same(const Explanation& a, const Explanation& b) {
  bool equal = same_bits(a.entropy, b.entropy) && a.count == b.count;
  for (int i = 0; equal && i < a.count; ++i) {
    const Stage &x = a.stages[i], &y = b.stages[i];
    equal = x.name == y.name && x.candidates == y.candidates && same_bits(x.mass, y.mass) && x.listed == y.listed;
    for (int j = 0; equal && j < x.listed; ++j) {
      equal = x.top[j].token_id == y.top[j].token_id && same_bits(x.top[j].probability, y.top[j].probability);
    }
  }
  return equal;
}

void compare_ranking(std::mt19937_64& random, int count, int kind) {
  const std::vector<float> row = random_row(random, count, kind);
  const RandomChanges given(random, count);
  const Ranking ranking{1 + static_cast<int>(random() % 40), given.changes};
  const auto expected = plain_ranked(row, ranking);
  for (const auto* kernels : all_kernels) CHECK(same(expected, ranked(*kernels, row, ranking)));
}

void compare_explanation(std::mt19937_64& random, int count, int kind) {
  const std::vector<float> row = random_row(random, count, kind);
  const RandomChanges given(random, count);
  Draw draw = random_draw(random, count, random() % 3 == 0 ? Changes{} : given.changes);
  draw.logprobs = LogprobsOf::sampled, draw.top = count;
  const Answer chosen = answer(sampling_avx2(), row, draw);
  if (chosen.drawn.token_id < 0) return;
  const Explanation expected = PlainExplanation(row, draw).told;
  for (const auto* kernels : all_kernels) CHECK(same(expected, explained(*kernels, row, draw)));
  const Stage& last = expected.stages[expected.count - 1];
  if (draw.temperature == 0) {
    CHECK(chosen.list.size() == 1 && last.listed > 0);
  } else {
    CHECK(static_cast<int>(chosen.list.size()) == last.candidates);
  }
}

std::string stages_of(const Draw& draw, const std::vector<float>& row) {
  std::string names;
  const Explanation explanation = explained(sampling_avx2(), row, draw);
  for (int i = 0; i < explanation.count; ++i) names += "mbpxtknq"[static_cast<int>(explanation.stages[i].name)];
  return names;
}

}  // namespace

TEST(a_mask_has_the_bits_of_the_scalar_definition) {
  std::mt19937_64 random(20);
  for (const int count : {1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 1000, 4099}) {
    const std::vector<float> row = random_row(random, count, 2);
    for (const std::uint32_t word : {0u, 1u, 0x80000000u, 0xFFFFFFFFu, 0xA5A5A5A5u}) {
      const std::vector<std::uint32_t> allowed((count + 31) / 32, word);
      const std::vector<float> expected = masked(row, {.allowed = allowed});
      for (const auto* kernels : all_kernels) {
        std::vector<float> apart(row.size()), in_place = row;
        kernels->mask(row.data(), count, allowed.data(), apart.data());
        kernels->mask(in_place.data(), count, allowed.data(), in_place.data());
        CHECK(same_bits(expected, apart) && same_bits(expected, in_place));
      }
    }
  }
}

TEST(a_ranking_is_that_of_the_full_sort) {
  std::mt19937_64 random(21);
  for (int i = 0; i < 3000; ++i) compare_ranking(random, 1 + static_cast<int>(random() % 40), i % 5);
  for (int i = 0; i < 500; ++i) compare_ranking(random, 1 + static_cast<int>(random() % 700), i % 5);
  for (int i = 0; i < 10; ++i) compare_ranking(random, 49152 - i % 2 * 5, i % 5);
}

TEST(an_explanation_is_that_of_the_plain_version_and_of_the_draw) {
  std::mt19937_64 random(22);
  for (int i = 0; i < 4000; ++i) compare_explanation(random, 1 + static_cast<int>(random() % 40), i % 5);
  for (int i = 0; i < 500; ++i) compare_explanation(random, 1 + static_cast<int>(random() % 700), i % 5);
  for (int i = 0; i < 5; ++i) compare_explanation(random, 49152, i);
}

TEST(edits_leave_the_row_as_it_was) {
  const std::vector<float> row{1.0f, -2.0f, 3.0f, 0.5f};
  const std::int32_t ids[] = {0, 1, 2}, counts[] = {1, 0, 3};
  const float bias[] = {5, 5, 5};
  const std::vector<std::uint32_t> allowed{0xB};
  const Changes changes{{ids, bias, ids, counts, 1.5f, 1, 1}, {}, allowed};
  std::vector<float> given = row;
  answer(sampling_avx2(), given, {.changes = changes, .logprobs = LogprobsOf::model, .top = 4});
  ranked(sampling_avx2(), given, {2, changes});
  explained(sampling_avx2(), given, {.changes = changes});
  CHECK(same_bits(row, given));
}

TEST(an_edit_that_leaves_the_range_gives_no_token) {
  const std::vector<float> row{1.0f, largest, -infinity};
  const std::int32_t middle[] = {1}, last[] = {2}, once[] = {1}, often[] = {INT_MAX};
  const float up[] = {largest}, down[] = {-largest};
  const Edits too_great[] = {{.bias_ids = middle, .bias_values = up},
                             {.seen_ids = middle, .seen_counts = once, .repetition = 0.5f},
                             {.seen_ids = middle, .seen_counts = once, .repetition = 0},
                             {.seen_ids = last, .seen_counts = once, .repetition = 0},
                             {.seen_ids = middle, .seen_counts = often, .frequency = -largest},
                             {.seen_ids = last, .seen_counts = often, .frequency = -largest}};
  for (const auto* kernels : all_kernels) {
    for (const Edits& edits : too_great) {
      CHECK(answer(*kernels, row, {.changes = {edits}}).drawn.token_id == -1);
      CHECK(answer(*kernels, row, {.changes = {edits, edits.seen_ids}}).drawn.token_id == -1);  // a ban does not hide it
      CHECK(ranked(*kernels, row, {3, {edits}}).empty());
    }
    CHECK(answer(*kernels, row, {.changes = {{.bias_ids = middle, .bias_values = down}}}).drawn.token_id == 0);
    CHECK(answer(*kernels, row, {.temperature = 0, .changes = {{.seen_ids = middle, .seen_counts = often, .frequency = largest}}})
              .drawn.token_id == 0);
  }
}

TEST(a_masked_token_keeps_its_probability_in_a_ranking) {
  const std::vector<float> row{0.0f, 0.0f, 0.0f, 0.0f};
  const std::vector<std::uint32_t> allowed{0b0110};
  const auto list = ranked(sampling_avx2(), row, {4, {.allowed = allowed}});
  CHECK(list.size() == 2 && list[0].token_id == 1 && list[1].token_id == 2);
  CHECK(list[0].logprob == -logarithm(4.0));
}

TEST(only_stages_that_are_switched_on_are_told) {
  const std::vector<float> row{0.5f, 1.0f, 2.0f};
  const std::int32_t ids[] = {1}, counts[] = {1};
  const float bias[] = {1};
  const std::vector<std::uint32_t> allowed{7};
  const Changes all{{ids, bias, ids, counts, 1.1f}, {}, allowed};
  CHECK(stages_of({.temperature = 1}, row) == "m");
  CHECK(stages_of({.temperature = 0}, row) == "m");
  CHECK(stages_of({.temperature = 1, .changes = {.edits = {.seen_ids = ids, .seen_counts = counts}}}, row) == "m");
  CHECK(stages_of({.temperature = 1, .changes = {.banned = ids}}, row) == "mx");
  CHECK(stages_of({.temperature = 0, .top_p = 0.5, .min_p = 0.1, .top_k = 2, .changes = all}, row) == "mbpx");
  CHECK(stages_of({.temperature = 0.5, .top_p = 0.5, .min_p = 0.1, .top_k = 2, .changes = all}, row) == "mbpxtknq");
}

TEST(the_entropy_of_even_logits_is_that_of_their_number) {
  const std::vector<float> row(64, -3.0f);
  CHECK(explained(sampling_avx2(), row, {}).entropy == logarithm(64.0));
  CHECK(explained(sampling_avx2(), {1.0f, -infinity}, {}).entropy == 0);
}
