#include "choice.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace tane {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

bool is_finite(float value) { return value - value == 0; }

void check_row(const Rows& rows, int row) { require(row >= 0 && row < rows.count, "a choice names a row that did not ask"); }

void check_ids(const Rows& rows, std::span<const std::int32_t> ids, const char* what) {
  for (const std::int32_t id : ids) require(id >= 0 && id < rows.vocabulary, what);
}

void check_top(const Rows& rows, int top) {
  require(top >= 0 && top <= rows.vocabulary, "more likely tokens are wanted than there are");
}

void check(const Rows& rows, const Changes& changes) {
  const Edits& edits = changes.edits;
  require(edits.bias_ids.size() == edits.bias_values.size(), "a bias has another number of ids than of values");
  require(edits.seen_ids.size() == edits.seen_counts.size(), "seen tokens are another number than their counts");
  check_ids(rows, edits.bias_ids, "a token with a bias does not exist");
  check_ids(rows, edits.seen_ids, "a seen token does not exist");
  check_ids(rows, changes.banned, "a banned token does not exist");
  for (const float value : edits.bias_values) require(is_finite(value), "a bias is not finite");
  for (const std::int32_t count : edits.seen_counts) require(count >= 0, "a token was seen less than never");
  require(edits.repetition >= 0 && is_finite(edits.repetition), "a repetition penalty is not a number of at least 0");
  require(is_finite(edits.presence) && is_finite(edits.frequency), "a penalty is not finite");
  const auto words = static_cast<std::size_t>(rows.vocabulary + 31) / 32;
  require(!changes.allowed || changes.allowed->size() == words, "a mask has another number of words than the vocabulary needs");
}

void check(const Rows& rows, const DrawRequest& request) {
  const Draw& draw = request.draw;
  check_row(rows, request.row);
  require(draw.temperature >= 0 && draw.temperature < infinity, "a temperature is not a number of at least 0");
  require(draw.top_p > 0 && draw.top_p <= 1 && draw.min_p >= 0 && draw.min_p <= 1 && draw.top_k >= 0, "a filter's bound is no bound");
  require(draw.uniform >= 0 && draw.uniform < 1, "a uniform number is not in [0, 1)");
  check_top(rows, draw.top);
  check(rows, draw.changes);
}

void check(const Rows& rows, const RankRequest& request) {
  check_row(rows, request.row);
  require(request.ranking.count >= 1, "a ranking of no token");
  check(rows, request.ranking.changes);
}

void check(const Rows& rows, const ScoreRequest& request) {
  check_row(rows, request.row);
  check_ids(rows, {&request.token_id, 1}, "a token to be scored does not exist");
  check_top(rows, request.top);
}

}  // namespace

Chooser::Chooser(Pool& pool, Isa isa) : pool_(pool), kernels_(sampling_kernels(isa)) {}

template <typename Work>
void Chooser::each(const Rows& rows, std::size_t count, const Work& work) {
  const auto workers = std::min(count, static_cast<std::size_t>(pool_.threads()));
  if (rows.vocabulary != vocabulary_) scratches_.clear();
  vocabulary_ = rows.vocabulary;
  while (scratches_.size() < workers) scratches_.emplace_back(vocabulary_);
  Pool::Call call(pool_);
  pool_.run(static_cast<int>(workers), [&](int worker) {
    for (auto i = static_cast<std::size_t>(worker); i < count; i += workers) work(i, scratches_[static_cast<std::size_t>(worker)]);
  });
}

std::vector<Answer> Chooser::choose(const Rows& rows, const std::vector<DrawRequest>& requests) {
  std::vector<Answer> answers(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    check(rows, requests[i]);
    answers[i].list.resize(static_cast<std::size_t>(requests[i].draw.top));
    if (requests[i].explain) answers[i].explanation = std::make_unique<Explanation>();
  }
  each(rows, requests.size(), [&](std::size_t i, SamplingScratch& scratch) {
    const Draw& draw = requests[i].draw;
    const float* const row = rows.row(requests[i].row);
    Answer& answer = answers[i];
    answer.drawn = draw_token(kernels_, row, rows.vocabulary, draw, scratch, answer.list.data());
    answer.list.resize(static_cast<std::size_t>(answer.drawn.listed));
    if (answer.drawn.token_id < 0) answer.explanation = nullptr;
    if (answer.explanation) explain_draw(kernels_, row, rows.vocabulary, draw, scratch, *answer.explanation);
  });
  return answers;
}

std::vector<std::vector<RankedToken>> Chooser::rank(const Rows& rows, const std::vector<RankRequest>& requests) {
  std::vector<std::vector<RankedToken>> answers(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    check(rows, requests[i]);
    answers[i].resize(static_cast<std::size_t>(std::min(requests[i].ranking.count, rows.vocabulary)));
  }
  each(rows, requests.size(), [&](std::size_t i, SamplingScratch& scratch) {
    const float* const row = rows.row(requests[i].row);
    const int listed = rank_tokens(kernels_, row, rows.vocabulary, requests[i].ranking, scratch, answers[i].data());
    answers[i].resize(static_cast<std::size_t>(listed));
  });
  return answers;
}

std::vector<Answer> Chooser::score(const Rows& rows, const std::vector<ScoreRequest>& requests) {
  std::vector<Answer> answers(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    check(rows, requests[i]);
    answers[i].list.resize(static_cast<std::size_t>(requests[i].top));
  }
  each(rows, requests.size(), [&](std::size_t i, SamplingScratch& scratch) {
    const ScoreRequest& request = requests[i];
    Answer& answer = answers[i];
    answer.drawn = report_token(kernels_, rows.row(request.row), rows.vocabulary, request.token_id, request.top, scratch,
                                answer.list.data());
    answer.list.resize(static_cast<std::size_t>(answer.drawn.listed));
  });
  return answers;
}

}  // namespace tane
