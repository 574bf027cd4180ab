// The choice of a token against a version that sorts everything, and its rules at their edges.
#include <algorithm>
#include <limits>

#include "harness.hpp"
#include "sampling.hpp"
#include "vector_math.hpp"

using namespace tane;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float largest = std::numeric_limits<float>::max();
constexpr double last_uniform = 1.0 - 0x1.0p-53;

struct Answer {
  Drawn drawn;
  std::vector<TokenLogprob> list;
};

bool same(const Answer& a, const Answer& b) {
  bool equal = a.drawn.token_id == b.drawn.token_id && test::same_bits(a.drawn.logprob, b.drawn.logprob) &&
               a.list.size() == b.list.size();
  for (std::size_t i = 0; equal && i < a.list.size(); ++i) {
    equal = a.list[i].token_id == b.list[i].token_id && test::same_bits(a.list[i].logprob, b.list[i].logprob);
  }
  return equal;
}

Answer answer(const SamplingKernels& kernels, const std::vector<float>& logits, const Draw& draw) {
  const int vocabulary = static_cast<int>(logits.size());
  SamplingScratch scratch(vocabulary);
  Answer answer;
  answer.list.resize(draw.top);
  answer.drawn = draw_token(kernels, logits.data(), vocabulary, draw, scratch, answer.list.data());
  answer.list.resize(answer.drawn.listed);
  return answer;
}

// ---- The slow, plain version: the rules of sampling.hpp one after the other ---------------------------------------------

std::vector<int> ranking(const std::vector<float>& z, std::vector<int> ids) {
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return z[a] > z[b] || (z[a] == z[b] && a < b); });
  return ids;
}

std::vector<TokenLogprob> sorted(std::vector<TokenLogprob> list) {
  std::stable_sort(list.begin(), list.end(), [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob > b.logprob || (a.logprob == b.logprob && a.token_id < b.token_id);
  });
  return list;
}

Answer plain(const std::vector<float>& raw, const Draw& draw) {
  std::vector<float> z = raw;
  const float raw_peak = *std::max_element(raw.begin(), raw.end());
  for (const float x : raw) {
    if (std::isnan(x) || x == infinity) return {};
  }
  if (raw_peak == -infinity) return {};
  for (const std::int32_t id : draw.banned) z[id] = -infinity;
  for (std::size_t id = 0; id < z.size() && draw.allowed != nullptr; ++id) {
    if ((draw.allowed[id / 32] >> id % 32 & 1) == 0) z[id] = -infinity;
  }
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

std::vector<float> random_row(std::mt19937_64& random, int count, int kind) {
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

Draw random_draw(std::mt19937_64& random, int count, std::vector<std::int32_t>& banned, std::vector<std::uint32_t>& allowed) {
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
  banned.clear();
  for (int i = static_cast<int>(random() % 4); i > 0; --i) banned.push_back(static_cast<std::int32_t>(random() % count));
  draw.banned = banned;
  allowed.assign(count / 32 + 1, 0);
  for (auto& word : allowed) word = static_cast<std::uint32_t>(random());
  if (random() % 4 == 0) draw.allowed = allowed.data();
  return draw;
}

void compare(std::mt19937_64& random, int count, int kind) {
  std::vector<std::int32_t> banned;
  std::vector<std::uint32_t> allowed;
  const std::vector<float> row = random_row(random, count, kind);
  const Draw draw = random_draw(random, count, banned, allowed);
  const Answer expected = plain(row, draw);
  CHECK(same(expected, answer(sampling_scalar(), row, draw)));
  CHECK(same(expected, answer(sampling_avx2(), row, draw)));
}

std::vector<float> model_like_row(int seed) {  // a vocabulary of 49,152 with a few likely tokens
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 2.5f);
  std::vector<float> row(49152);
  for (auto& z : row) z = normal(random);
  for (int i = 0; i < 40; ++i) row[random() % row.size()] += 12 - 0.2f * i;
  return row;
}

}  // namespace

TEST(the_answer_is_that_of_the_full_sort) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 4000; ++i) compare(random, 1 + static_cast<int>(random() % 40), i % 5);
  for (int i = 0; i < 1500; ++i) compare(random, 1 + static_cast<int>(random() % 700), i % 5);
}

TEST(the_answer_is_that_of_the_full_sort_over_a_whole_vocabulary) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 20; ++i) compare(random, 49152 - i % 2 * 5, i % 5);
  for (int i = 0; i < 12; ++i) {
    const std::vector<float> row = model_like_row(i);
    Draw draw;
    draw.temperature = 0.8, draw.top_p = i % 3 == 0 ? 1.0 : 0.9, draw.uniform = (i + 0.5) / 12,
    draw.top_k = i % 4 == 1 ? 50 : 0;
    draw.logprobs = i % 2 == 0 ? LogprobsOf::model : LogprobsOf::sampled, draw.top = 20;
    const Answer expected = plain(row, draw);
    CHECK(same(expected, answer(sampling_scalar(), row, draw)));
    CHECK(same(expected, answer(sampling_avx2(), row, draw)));
  }
}

TEST(kernels_give_the_bits_of_the_scalar_definition) {
  std::mt19937_64 random(3);
  for (const int count : {1, 3, 4, 7, 63, 64, 65, 127, 128, 1000, 4099}) {
    for (int kind = 0; kind < 5; ++kind) {
      const std::vector<float> row = random_row(random, count, kind);
      const std::size_t runs = (row.size() + 63) / 64;
      std::vector<float> peaks[2] = {std::vector<float>(runs), std::vector<float>(runs)};
      std::vector<double> weights[2] = {std::vector<double>(count), std::vector<double>(count)},
                          sums[2] = {std::vector<double>(runs), std::vector<double>(runs)};
      std::vector<std::int32_t> positions[2] = {std::vector<std::int32_t>(count), std::vector<std::int32_t>(count)};
      double totals[2], exponentials[2];
      int found[2];
      for (int k = 0; k < 2; ++k) {
        const SamplingKernels& kernels = k == 0 ? sampling_scalar() : sampling_avx2();
        const float peak = kernels.peaks(row.data(), count, peaks[k].data());
        CHECK(peak == *std::max_element(row.begin(), row.end()));
        totals[k] = kernels.weigh(row.data(), count, peak, 0.7, weights[k].data(), sums[k].data());
        exponentials[k] = kernels.total(row.data(), count, peak);
        found[k] = kernels.at_least(row.data(), count, peaks[k].data(), peak - 2, positions[k].data());
      }
      CHECK(test::same_bits(weights[0], weights[1]) && test::same_bits(sums[0], sums[1]) &&
            test::same_bits(totals[0], totals[1]));
      CHECK(test::same_bits(exponentials[0], exponentials[1]));
      CHECK(found[0] == found[1] && positions[0] == positions[1]);
      for (std::size_t r = 0; r < runs; ++r) CHECK(peaks[0][r] == peaks[1][r]);
    }
  }
}

TEST(a_row_that_is_not_finite_gives_no_token) {
  for (const SamplingKernels* kernels : {&sampling_scalar(), &sampling_avx2()}) {
    for (const int count : {1, 8, 63, 64, 200, 49152}) {
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(), infinity}) {
        for (const int at : {0, count / 2, count - 1}) {
          std::vector<float> row(count, 1.0f);
          row[at] = bad;
          const std::int32_t banned[] = {at};
          Draw draw;
          CHECK(answer(*kernels, row, draw).drawn.token_id == -1);
          draw.banned = banned;  // a ban does not hide it
          CHECK(answer(*kernels, row, draw).drawn.token_id == -1);
        }
      }
      CHECK(answer(*kernels, std::vector<float>(count, -infinity), Draw{}).drawn.token_id == -1);
    }
    const std::int32_t banned[] = {0, 1};
    Draw draw;
    draw.banned = banned;
    CHECK(answer(*kernels, {1.0f, 2.0f}, draw).drawn.token_id == -1);
    CHECK(answer(*kernels, {1.0f, 2.0f, -infinity}, draw).drawn.token_id == -1);
    CHECK(answer(*kernels, {1.0f, 2.0f, -largest}, draw).drawn.token_id == 2);
  }
}

TEST(greedy_takes_the_lowest_id_among_the_greatest) {
  std::vector<float> row(300, -1.0f);
  row[77] = row[130] = row[299] = 3.5f;
  Draw draw;
  draw.temperature = 0;
  CHECK(answer(sampling_avx2(), row, draw).drawn.token_id == 77);
  CHECK(answer(sampling_avx2(), {-1.0f, -0.0f, 0.0f}, draw).drawn.token_id == 1);
}

TEST(model_logprobs_sum_to_one_and_sampled_ones_do) {
  const std::vector<float> row = model_like_row(7);
  for (const LogprobsOf of : {LogprobsOf::model, LogprobsOf::sampled}) {
    Draw draw;
    draw.temperature = 0.8, draw.top_k = of == LogprobsOf::sampled ? 300 : 0, draw.logprobs = of, draw.top = 49152,
    draw.uniform = 0.3;
    const Answer all = answer(sampling_avx2(), row, draw);
    double sum = 0;
    for (const TokenLogprob& entry : all.list) sum += std::exp(entry.logprob);
    CHECK(std::fabs(sum - 1) < 1e-12);
    CHECK(all.list.size() == (of == LogprobsOf::sampled ? 300u : 49152u));
  }
}

TEST(a_reported_token_has_the_log_probability_of_a_drawn_one) {
  const std::vector<float> row = model_like_row(8);
  Draw draw;
  draw.temperature = 0.5, draw.uniform = 0.7, draw.logprobs = LogprobsOf::model, draw.top = 5;
  const Answer drawn = answer(sampling_avx2(), row, draw);
  SamplingScratch scratch(49152);
  Answer reported{{}, std::vector<TokenLogprob>(5)};
  reported.drawn = report_token(sampling_scalar(), row.data(), 49152, drawn.drawn.token_id, 5, scratch, reported.list.data());
  CHECK(same(drawn, reported));
}

TEST(tokens_are_drawn_as_often_as_they_are_likely) {
  const std::vector<float> row{0.0f, 1.0f, -1.0f, 2.0f};
  std::vector<int> counts(4);
  Draw draw;
  double total = 0;
  for (const float z : row) total += std::exp(double{z});
  for (int i = 0; i < 20000; ++i) {
    draw.uniform = (i + 0.5) / 20000;
    ++counts[answer(sampling_avx2(), row, draw).drawn.token_id];
  }
  for (int i = 0; i < 4; ++i) CHECK(std::fabs(counts[i] / 20000.0 - std::exp(double{row[i]}) / total) < 1e-3);
}
