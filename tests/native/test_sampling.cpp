// The choice of a token against a version that sorts everything, and its rules at their edges.
#include "sampling_case.hpp"

using namespace tane;
using namespace tane::test;

namespace {

void compare(std::mt19937_64& random, int count, int kind) {
  const std::vector<float> row = random_row(random, count, kind);
  const RandomChanges given(random, count);
  const Draw draw = random_draw(random, count, random() % 2 == 0 ? given.changes : Changes{});
  const Answer expected = plain(row, draw);
  CHECK(same(expected, answer(sampling_scalar(), row, draw)));
  CHECK(same(expected, answer(sampling_avx2(), row, draw)));
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
      std::vector<double> masked_weights[2] = {std::vector<double>(count), std::vector<double>(count)},
                          masked_sums[2] = {std::vector<double>(runs), std::vector<double>(runs)};
      double totals[2], exponentials[2], masked_totals[2];
      int found[2];
      for (int k = 0; k < 2; ++k) {
        const SamplingKernels& kernels = k == 0 ? sampling_scalar() : sampling_avx2();
        const float peak = kernels.peaks(row.data(), count, peaks[k].data());
        CHECK(peak == *std::max_element(row.begin(), row.end()));
        totals[k] = kernels.weigh(row.data(), count, peak, 0.7, weights[k].data(), sums[k].data());
        masked_totals[k] = kernels.weigh_masked(row.data(), count, peak, 0.07, masked_weights[k].data(), masked_sums[k].data());
        exponentials[k] = kernels.total(row.data(), count, peak);
        found[k] = kernels.at_least(row.data(), count, peaks[k].data(), peak - 2, positions[k].data());
      }
      CHECK(test::same_bits(weights[0], weights[1]) && test::same_bits(sums[0], sums[1]) &&
            test::same_bits(totals[0], totals[1]));
      CHECK(test::same_bits(masked_weights[0], masked_weights[1]) && test::same_bits(masked_sums[0], masked_sums[1]) &&
            test::same_bits(masked_totals[0], masked_totals[1]));
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
          draw.changes.banned = banned;  // a ban does not hide it
          CHECK(answer(*kernels, row, draw).drawn.token_id == -1);
        }
      }
      CHECK(answer(*kernels, std::vector<float>(count, -infinity), Draw{}).drawn.token_id == -1);
    }
    const std::int32_t banned[] = {0, 1};
    Draw draw;
    draw.changes.banned = banned;
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
