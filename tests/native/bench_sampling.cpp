// Microseconds to choose one token of 49,152 on one thread (its processor time, the best of many), by kind of draw and of row.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <random>
#include <vector>

#include "sampling.hpp"
#include "sampling_explain.hpp"

using namespace tane;

namespace {

constexpr int vocabulary = 49152;

double microseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

// A few likely tokens over a broad background, as models give them; `boost` says by how much they stand out.
std::vector<float> row_of(float spread, float boost) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> row(vocabulary);
  for (auto& z : row) z = normal(random);
  for (int i = 0; i < 200; ++i) row[random() % row.size()] += boost * static_cast<float>(200 - i) / 200;
  return row;
}

}  // namespace

int main() {
  const struct {
    const char* name;
    float spread, boost;
  } rows[] = {{"sure", 2.5f, 25}, {"unsure", 2.5f, 14}, {"flat", 2.5f, 0}, {"almost even", 0.5f, 0}};
  struct Case {
    const char* name;
    Draw draw;
  };
  Draw greedy, plain, nucleus, nucleus_logprobs, top_k, all;
  greedy.temperature = 0;
  plain.temperature = 1;
  nucleus.temperature = 0.8, nucleus.top_p = 0.9;
  nucleus_logprobs = nucleus, nucleus_logprobs.logprobs = LogprobsOf::model, nucleus_logprobs.top = 5;
  top_k.temperature = 0.8, top_k.top_k = 50;
  all.temperature = 0.8, all.top_k = 50, all.top_p = 0.9, all.min_p = 0.05;
  const std::int32_t banned[] = {2};
  Draw nucleus_ban = nucleus;
  nucleus_ban.changes.banned = banned;
  std::vector<std::int32_t> seen, counts;
  for (int i = 0; i < 300; ++i) seen.push_back(i * 160), counts.push_back(i % 5);
  Draw nucleus_penalties = nucleus, nucleus_mask = nucleus;
  nucleus_penalties.changes.edits = {.seen_ids = seen, .seen_counts = counts, .repetition = 1.1f, .frequency = 0.1f};
  const std::vector<std::uint32_t> allowed(vocabulary / 32, 0xFFFF00FF);
  nucleus_mask.changes.allowed = allowed;
  std::vector<std::uint32_t> few(vocabulary / 32);
  for (std::size_t i = 0; i < few.size(); i += 50) few[i] = 0x100;
  Draw nucleus_few = nucleus;
  nucleus_few.changes.allowed = few;
  const Case cases[] = {{"greedy", greedy},
                        {"tau 1", plain},
                        {"tau 0.8, top-p 0.9", nucleus},
                        {"... and a ban", nucleus_ban},
                        {"... and 300 penalised tokens", nucleus_penalties},
                        {"... and a mask of a quarter", nucleus_mask},
                        {"... and a mask of all but few", nucleus_few},
                        {"... and model logprobs, top 5", nucleus_logprobs},
                        {"tau 0.8, top-k 50", top_k},
                        {"top-k 50, top-p 0.9, min-p", all}};
  SamplingScratch scratch(vocabulary);
  TokenLogprob list[20];
  std::printf("%-32s", "");
  for (const auto& row : rows) std::printf("%14s", row.name);
  std::printf("\n");
  for (const Case& each : cases) {
    std::printf("%-32s", each.name);
    for (const auto& kind : rows) {
      const std::vector<float> row = row_of(kind.spread, kind.boost);
      double best = 1e9;
      for (int i = 0; i < 60; ++i) {
        Draw draw = each.draw;
        draw.uniform = (i + 0.5) / 60;
        const double start = microseconds();
        draw_token(sampling_avx2(), row.data(), vocabulary, draw, scratch, list);
        best = std::min(best, microseconds() - start);
      }
      std::printf("%11.1f us", best);
    }
    std::printf("\n");
  }
  const std::vector<float> row = row_of(rows[1].spread, rows[1].boost);
  const auto measure = [](const char* name, const auto& work) {
    double best = 1e9;
    for (int i = 0; i < 60; ++i) {
      const double start = microseconds();
      work();
      best = std::min(best, microseconds() - start);
    }
    std::printf("%-32s%11.1f us\n", name, best);
  };
  RankedToken ranked[32];
  measure("the 16 likeliest", [&] { rank_tokens(sampling_avx2(), row.data(), vocabulary, {16}, scratch, ranked); });
  measure("an explanation", [&] {
    Explanation explanation;
    explain_draw(sampling_avx2(), row.data(), vocabulary, all, scratch, explanation);
  });
}
