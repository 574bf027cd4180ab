// Rows and draws of every kind, and the choice of a token in a version that sorts everything: what tests of sampling share.
#pragma once

#include <algorithm>
#include <limits>

#include "harness.hpp"
#include "sampling.hpp"
#include "vector_math.hpp"

namespace tane::test {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float largest = std::numeric_limits<float>::max();
constexpr double last_uniform = 1.0 - 0x1.0p-53;

struct Answer {
  Drawn drawn;
  std::vector<TokenLogprob> list;
};

inline bool same(const Answer& a, const Answer& b) {
  bool equal = a.drawn.token_id == b.drawn.token_id && test::same_bits(a.drawn.logprob, b.drawn.logprob) &&
               a.list.size() == b.list.size();
  for (std::size_t i = 0; equal && i < a.list.size(); ++i) {
    equal = a.list[i].token_id == b.list[i].token_id && test::same_bits(a.list[i].logprob, b.list[i].logprob);
  }
  return equal;
}

inline Answer answer(const SamplingKernels& kernels, const std::vector<float>& logits, const Draw& draw) {
  const int vocabulary = static_cast<int>(logits.size());
  SamplingScratch scratch(vocabulary);
  Answer answer;
  answer.list.resize(draw.top);
  answer.drawn = draw_token(kernels, logits.data(), vocabulary, draw, scratch, answer.list.data());
  answer.list.resize(answer.drawn.listed);
  return answer;
}

// ---- The slow, plain version: the rules of sampling.hpp one after the other ---------------------------------------------

inline std::vector<int> ranking(const std::vector<float>& z, std::vector<int> ids) {
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return z[a] > z[b] || (z[a] == z[b] && a < b); });
  return ids;
}

inline std::vector<TokenLogprob> sorted(std::vector<TokenLogprob> list) {
  std::stable_sort(list.begin(), list.end(), [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob > b.logprob || (a.logprob == b.logprob && a.token_id < b.token_id);
  });
  return list;
}

inline bool usable(const std::vector<float>& z) {
  return std::all_of(z.begin(), z.end(), [](float x) { return x < infinity; });
}

inline std::vector<float> biased(std::vector<float> z, const Edits& edits) {
  for (std::size_t i = 0; i < edits.bias_ids.size(); ++i) z[edits.bias_ids[i]] += edits.bias_values[i];
  return z;
}

inline std::vector<float> penalised(std::vector<float> z, const Edits& edits) {
  for (const std::int32_t id : edits.seen_ids) z[id] = z[id] > 0 ? z[id] / edits.repetition : z[id] * edits.repetition;
  for (std::size_t i = 0; i < edits.seen_ids.size(); ++i) {
    const float count = static_cast<float>(edits.seen_counts[i]);
    if (count > 0) z[edits.seen_ids[i]] = z[edits.seen_ids[i]] - (edits.frequency * count + edits.presence);
  }
  return z;
}

inline std::vector<float> masked(std::vector<float> z, const Changes& changes) {
  for (const std::int32_t id : changes.banned) z[id] = -infinity;
  for (std::size_t id = 0; id < z.size() && changes.allowed; ++id) {
    if (((*changes.allowed)[id / 32] >> id % 32 & 1) == 0) z[id] = -infinity;
  }
  return z;
}

inline Answer plain(const std::vector<float>& raw, const Draw& draw) {
  std::vector<float> z = raw;
  const float raw_peak = *std::max_element(raw.begin(), raw.end());
  if (!usable(raw) || raw_peak == -infinity) return {};
  z = biased(z, draw.changes.edits);
  z = penalised(z, draw.changes.edits);
  if (!usable(z)) return {};
  z = masked(z, draw.changes);
  std::vector<int> ids(z.size());
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int>(i);
  std::vector<int> order = ranking(z, ids);
  const float peak = z[order[0]];
  if (peak == -infinity) return {};
  Answer result;
  if (draw.temperature == 0) {
    result.drawn.token_id = order[0];
    if (draw.logprobs == LogprobsOf::sampled && draw.top > 0) result.list = {{order[0], 0.0}};
  } else {
    std::vector<double> weight(z.size());
    for (const int id : order) weight[id] = exponential((double{z[id]} - double{peak}) / draw.temperature);
    const auto sum = [&](std::vector<int> of) {
      std::sort(of.begin(), of.end());
      double total = 0;
      for (const int id : of) total += weight[id];
      return total;
    };
    if (draw.top_k > 0 && draw.top_k < static_cast<int>(order.size())) order.resize(draw.top_k);
    std::erase_if(order, [&](int id) { return weight[id] == 0; });
    if (draw.top_p < 1) {
      const double target = draw.top_p * sum(order);
      double reached = 0;
      for (std::size_t i = 0; i < order.size(); ++i) {
        reached += weight[order[i]];
        if (reached >= target) order.resize(i + 1);
      }
    }
    std::erase_if(order, [&](int id) { return weight[id] < draw.min_p; });
    const double total = sum(order);
    std::vector<int> ascending = order;
    std::sort(ascending.begin(), ascending.end());
    double reached = 0;
    for (const int id : ascending) {
      reached += weight[id];
      if (reached > draw.uniform * total && result.drawn.token_id < 0) result.drawn.token_id = id;
    }
    if (draw.logprobs == LogprobsOf::sampled) {
      const auto logprob = [&](int id) { return (double{z[id]} - double{peak}) / draw.temperature - logarithm(total); };
      result.drawn.logprob = logprob(result.drawn.token_id);
      for (int i = 0; i < std::min<int>(draw.top, order.size()); ++i) result.list.push_back({order[i], logprob(order[i])});
    }
  }
  if (draw.logprobs == LogprobsOf::model) {
    double lanes[4] = {};
    for (std::size_t i = 0; i < raw.size(); ++i) lanes[i % 4] += exponential(double{raw[i]} - double{raw_peak});
    const double log_total = logarithm(sum_of_4(lanes));
    const auto logprob = [&](int id) { return double{raw[id]} - double{raw_peak} - log_total; };
    const std::vector<int> all = ranking(raw, ids);
    result.drawn.logprob = logprob(result.drawn.token_id);
    for (int i = 0; i < std::min<int>(draw.top, all.size()); ++i) {
      if (raw[all[i]] > -infinity) result.list.push_back({all[i], logprob(all[i])});
    }
  }
  result.list = sorted(result.list);
  result.drawn.listed = static_cast<int>(result.list.size());
  return result;
}

// ---- Rows and draws of every kind --------------------------------------------------------------------------------------

inline std::vector<float> random_row(std::mt19937_64& random, int count, int kind) {
  constexpr float tied[] = {0.0f, -0.0f, 1.0f, 1.0f, -1.5f, 2.25f, 0x1p-149f, -0x1p-149f, largest, -largest, -infinity};
  std::normal_distribution<float> normal(0, kind == 1 ? 0.3f : 4.0f);
  std::vector<float> row(count);
  for (auto& z : row) {
    z = kind == 0   ? tied[random() % std::size(tied)]
        : kind == 3 ? static_cast<float>(static_cast<int>(random() % 7))
                    : normal(random);
    if (kind == 4 && random() % 50 != 0) z -= 60;
  }
  return row;
}

// Changes of every kind, and what they look into. Ids at both ends of the vocabulary come up often.
struct RandomChanges {
  std::vector<std::int32_t> bias_ids, seen_ids, seen_counts, banned;
  std::vector<float> bias_values;
  std::vector<std::uint32_t> allowed;
  Changes changes;

  RandomChanges(std::mt19937_64& random, int count) {
    constexpr float biases[] = {0, 1, -1.5f, 100, -100, 0x1p-149f, largest};
    constexpr std::int32_t counts[] = {0, 0, 1, 2, 17, 1 << 24, (1 << 24) + 1, std::numeric_limits<std::int32_t>::max()};
    constexpr float repetitions[] = {1, 1.3f, 0.5f, 2, 0x1p-100f, 1}, others[] = {0, 0, 0.1f, 2, -2};
    bias_ids = some_ids(random, count);
    for (std::size_t i = 0; i < bias_ids.size(); ++i) bias_values.push_back(biases[random() % std::size(biases)]);
    seen_ids = some_ids(random, count);
    for (std::size_t i = 0; i < seen_ids.size(); ++i) seen_counts.push_back(counts[random() % std::size(counts)]);
    banned = some_ids(random, count);
    allowed.assign((count + 31) / 32, 0);
    const bool few = random() % 2 == 0;
    for (auto& word : allowed) word = static_cast<std::uint32_t>(random() & (few ? random() & random() & random() : ~0ull));
    changes.edits = {bias_ids, bias_values, seen_ids, seen_counts, repetitions[random() % std::size(repetitions)],
                     others[random() % std::size(others)], others[random() % std::size(others)]};
    changes.banned = banned;
    if (random() % 3 == 0) changes.allowed = allowed;
  }

  // Distinct, in any order, often none.
  static std::vector<std::int32_t> some_ids(std::mt19937_64& random, int count) {
    std::vector<std::int32_t> ids;
    for (int i = static_cast<int>(random() % 3 * (random() % 3)); i > 0; --i) {
      const std::int32_t ends[] = {0, count - 1, static_cast<std::int32_t>(random() % count), static_cast<std::int32_t>(random() % count)};
      const std::int32_t id = ends[random() % 4];
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
    return ids;
  }
};

inline Draw random_draw(std::mt19937_64& random, int count, const Changes& changes) {
  constexpr double temperatures[] = {0, 5e-324, 1e-45, 1e-9, 0.2, 0.5, 0.8, 1, 2, 1e30};
  constexpr double masses[] = {1, 1, 0.25, 0.5, 0.75, 0.9, 0.95, 1e-6, last_uniform};
  constexpr double ratios[] = {0, 0, 0, 0.1, 0.36787944117144233, 1};
  constexpr double uniforms[] = {0, 0.25, 0.5, last_uniform};
  std::uniform_real_distribution<double> any(0, 1);
  Draw draw;
  draw.temperature = temperatures[random() % std::size(temperatures)];
  draw.top_p = random() % 3 == 0 ? 1 - any(random) : masses[random() % std::size(masses)];
  draw.min_p = ratios[random() % std::size(ratios)];
  draw.uniform = random() % 2 == 0 ? any(random) : uniforms[random() % std::size(uniforms)];
  draw.top_k = random() % 2 == 0 ? 0 : static_cast<int>(random() % (count + 5));
  draw.logprobs = static_cast<LogprobsOf>(random() % 3);
  draw.top = static_cast<int>(random() % 21);
  draw.changes = changes;
  return draw;
}

inline std::vector<float> model_like_row(int seed) {  // a vocabulary of 49,152 with a few likely tokens
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 2.5f);
  std::vector<float> row(49152);
  for (auto& z : row) z = normal(random);
  for (int i = 0; i < 40; ++i) row[random() % row.size()] += 12 - 0.2f * i;
  return row;
}

}  // namespace tane::test
