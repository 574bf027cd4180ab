// The whole engine on a small decoder: odd batches give the same bits, and nothing from outside reaches a kernel unchecked.
#include <climits>
#include <limits>
#include <stdexcept>

#include "engine_case.hpp"

using namespace tane;
using test::CopyTuple;
using test::EngineCase;
using test::SegmentTuple;

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

template <typename Function>
bool refuses(const Function& function) {
  try {
    function();
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

std::vector<Isa> available_isas() {
  std::vector<Isa> all{Isa::scalar};
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    if (isa <= best_isa()) all.push_back(isa);
  }
  return all;
}

constexpr float float_nan = std::numeric_limits<float>::quiet_NaN(), float_infinity = std::numeric_limits<float>::infinity();
constexpr std::int32_t below[] = {-1}, above[] = {EngineCase::vocabulary}, far_off[] = {INT_MAX}, one[] = {5}, two[] = {5, 6};
constexpr float bias[] = {1}, bias_nan[] = {float_nan}, bias_infinity[] = {-float_infinity};
constexpr std::uint32_t words[] = {~0u, ~0u, ~0u, ~0u};  // the vocabulary needs three

const Changes hostile_changes[] = {
    {.banned = below}, {.banned = above}, {.banned = far_off},
    {{.bias_ids = below, .bias_values = bias}}, {{.bias_ids = above, .bias_values = bias}}, {{.bias_ids = far_off, .bias_values = bias}},
    {{.bias_ids = two, .bias_values = bias}}, {{.bias_ids = one}}, {{.bias_values = bias}},
    {{.bias_ids = one, .bias_values = bias_nan}}, {{.bias_ids = one, .bias_values = bias_infinity}},
    {{.seen_ids = below, .seen_counts = one}}, {{.seen_ids = above, .seen_counts = one}}, {{.seen_ids = far_off, .seen_counts = one}},
    {{.seen_ids = two, .seen_counts = one}}, {{.seen_ids = one}}, {{.seen_counts = one}}, {{.seen_ids = one, .seen_counts = below}},
    {{.repetition = -1}}, {{.repetition = float_nan}}, {{.repetition = float_infinity}},
    {{.presence = float_nan}}, {{.presence = float_infinity}}, {{.frequency = float_nan}}, {{.frequency = -float_infinity}},
    {.allowed = std::span(words)}, {.allowed = std::span(words, 2)}, {.allowed = std::span(words, 0)},
    {.allowed = std::span<const std::uint32_t>{}},
};

struct Run {  // one call of the engine; what is not given fits one row at position 0 of page 0
  std::vector<std::int32_t> ids{5};
  std::vector<SegmentTuple> segments{{0, 1, 1}};
  std::vector<std::int32_t> pages{0};
  std::vector<std::int32_t> asked{0};
  std::vector<CopyTuple> copies = {};

  void on(EngineCase& engine) const { engine.engine.run(ids, segments, pages, asked, copies); }
};

}  // namespace

TEST(every_instruction_set_thread_count_and_cut_gives_the_scalar_bits_up_to_the_whole_context) {
  for (const KvType type : {KvType::int8, KvType::float16}) {
    for (const int length : {1, 2, 31, 32, 33, 128, 129, 257, EngineCase::context}) {
      const auto ids = EngineCase::tokens(length);
      const auto expected = EngineCase(Isa::scalar, 1, type).last_logits(ids, length);
      CHECK(expected.size() == EngineCase::vocabulary);
      for (const Isa isa : available_isas()) {
        for (const int threads : {1, 3}) {
          EngineCase engine(isa, threads, type);
          for (const int chunk : {length, 7, 64}) CHECK(test::same_bits(engine.last_logits(ids, chunk), expected));
        }
      }
    }
  }
}

TEST(single_rows_of_several_sequences_in_one_batch_have_their_own_bits) {
  EngineCase alone, together(best_isa(), 3);
  const int lengths[] = {1, 40, 130};
  std::vector<float> expected;
  Run run{{}, {}, {}, {}};
  int first_page = 0;
  for (const int length : lengths) {
    const auto ids = EngineCase::tokens(length, static_cast<unsigned>(length));
    const auto one = alone.last_logits(ids, length);
    expected.insert(expected.end(), one.begin(), one.end());
    if (length > 1) together.last_logits({ids.begin(), ids.end() - 1}, 50, first_page);
    const auto pages = EngineCase::table(length, first_page);
    run.ids.push_back(ids.back());
    run.segments.push_back({length - 1, 1, static_cast<int>(pages.size())});
    run.pages.insert(run.pages.end(), pages.begin(), pages.end());
    run.asked.push_back(static_cast<int>(run.asked.size()));
    first_page += static_cast<int>(pages.size());
  }
  run.on(together);
  CHECK(test::same_bits(together.logits(), expected));
}

TEST(an_empty_batch_and_one_that_asks_for_nothing_have_no_logits) {
  for (const int threads : {1, 3}) {
    EngineCase engine(best_isa(), threads);
    Run{{}, {}, {}, {}}.on(engine);
    CHECK(engine.logits().empty());
    Run{.asked = {}}.on(engine);
    CHECK(engine.logits().empty());
    CHECK(engine.engine.choose({}).empty());
    Run{{}, {}, {}, {}, {{0, 1, 32}}}.on(engine);  // copies alone
    CHECK(engine.logits().empty());
  }
}

TEST(pages_behind_those_that_a_segment_writes_may_repeat) {
  EngineCase engine;
  const auto expected = engine.last_logits({5}, 1);
  Run{.segments = {{0, 1, 4}}, .pages = {3, 3, 3, 11}}.on(engine);
  CHECK(test::same_bits(engine.logits(), expected));
}

TEST(a_hostile_batch_is_refused_before_anything_is_written) {
  const Run hostile[] = {
      {.ids = {}}, {.ids = {-1}}, {.ids = {EngineCase::vocabulary}}, {.ids = {INT_MAX}}, {.ids = {INT_MIN}}, {.ids = {5, 5}},
      {.segments = {}}, {.segments = {{-1, 1, 1}}}, {.segments = {{0, 0, 1}}}, {.segments = {{0, -1, 1}}}, {.segments = {{0, 1, 0}}},
      {.segments = {{0, 1, -1}}}, {.segments = {{0, 1, 2}}}, {.segments = {{0, 1, INT_MAX}}}, {.segments = {{INT_MAX, 1, 1}}},
      {.segments = {{0, INT_MAX, 1}}}, {.segments = {{INT_MIN, 1, 1}}}, {.segments = {{32, 1, 1}}}, {.segments = {{EngineCase::context, 1, 1}}},
      {.segments = {{0, 1, 1}, {0, 1, 0}}}, {.segments = {{0, 1, 1}}, .pages = {0, 1}},
      {.pages = {}}, {.pages = {-1}}, {.pages = {EngineCase::pages}}, {.pages = {INT_MAX}}, {.pages = {INT_MIN}},
      {.asked = {-1}}, {.asked = {1}}, {.asked = {INT_MAX}}, {.asked = {0, 0}}, {.asked = {0, 0, 0, 0, 0, 0, 0, 0}},
      {.ids = {5, 6}, .segments = {{0, 2, 1}}, .asked = {1, 0}},
      {.copies = {{-1, 0, 1}}}, {.copies = {{0, -1, 1}}}, {.copies = {{EngineCase::pages, 0, 1}}}, {.copies = {{0, INT_MAX, 1}}},
      {.copies = {{0, 1, 0}}}, {.copies = {{0, 1, -5}}}, {.copies = {{0, 1, 33}}}, {.copies = {{0, 1, INT_MAX}}},
      {.ids = {5, 6}, .segments = {{0, 1, 1}, {1, 1, 1}}, .pages = {4, 4}, .asked = {0}},  // two sequences write one page
      {.ids = EngineCase::tokens(40), .segments = {{0, 40, 2}}, .pages = {4, 4}, .asked = {39}},  // so does one
  };
  for (const int threads : {1, 3}) {
    EngineCase engine(best_isa(), threads);
    const auto expected = engine.last_logits({5}, 1);
    for (const Run& run : hostile) CHECK(refuses([&] { run.on(engine); }));
    Run{}.on(engine);
    CHECK(test::same_bits(engine.logits(), expected));
  }
}

TEST(a_hostile_draw_is_refused) {
  EngineCase engine(best_isa(), 3);
  Run{}.on(engine);
  const DrawRequest hostile[] = {
      {-1, {}}, {1, {}}, {INT_MAX, {}},
      {0, {.temperature = -1}}, {0, {.temperature = nan_value}}, {0, {.temperature = std::numeric_limits<double>::infinity()}},
      {0, {.top_p = 0}}, {0, {.top_p = 1.5}}, {0, {.top_p = nan_value}}, {0, {.min_p = -0.1}}, {0, {.min_p = nan_value}},
      {0, {.uniform = 1}}, {0, {.uniform = -0.5}}, {0, {.uniform = nan_value}}, {0, {.top_k = -1}}, {0, {.top_k = INT_MIN}},
      {0, {.logprobs = LogprobsOf::model, .top = -1}}, {0, {.logprobs = LogprobsOf::model, .top = INT_MAX}},
      {0, {.logprobs = LogprobsOf::model, .top = EngineCase::vocabulary + 1}},
  };
  for (const auto& request : hostile) CHECK(refuses([&] { engine.engine.choose({request}); }));
  for (const Changes& changes : hostile_changes) CHECK(refuses([&] { engine.engine.choose({{0, {.changes = changes}}}); }));
  const auto answers = engine.engine.choose({{0, {.top_k = INT_MAX, .logprobs = LogprobsOf::model, .top = EngineCase::vocabulary}}});
  CHECK(answers.size() == 1 && answers[0].drawn.token_id >= 0 && answers[0].list.size() == EngineCase::vocabulary);
}

TEST(a_hostile_ranking_or_score_is_refused) {
  EngineCase engine(best_isa(), 3);
  Run{}.on(engine);
  const RankRequest rankings[] = {{-1, {}}, {1, {}}, {INT_MAX, {}}, {0, {.count = 0}}, {0, {.count = -1}}, {0, {.count = INT_MIN}}};
  for (const auto& request : rankings) CHECK(refuses([&] { engine.engine.rank({request}); }));
  for (const Changes& changes : hostile_changes) CHECK(refuses([&] { engine.engine.rank({{0, {.changes = changes}}}); }));
  const ScoreRequest scores[] = {{-1, 0}, {1, 0}, {INT_MAX, 0}, {0, -1}, {0, EngineCase::vocabulary}, {0, INT_MAX}, {0, INT_MIN},
                                 {0, 0, -1}, {0, 0, EngineCase::vocabulary + 1}, {0, 0, INT_MAX}};
  for (const auto& request : scores) CHECK(refuses([&] { engine.engine.score({request}); }));
  CHECK(engine.engine.rank({{0, {.count = INT_MAX}}})[0].size() == EngineCase::vocabulary);
  CHECK(engine.engine.score({{0, EngineCase::vocabulary - 1, EngineCase::vocabulary}})[0].list.size() == EngineCase::vocabulary);
}

TEST(rankings_scores_and_explanations_are_the_same_on_any_number_of_threads) {
  EngineCase alone(Isa::scalar, 1), together(best_isa(), 3);
  const std::int32_t ids[] = {0, 40, EngineCase::vocabulary - 1}, counts[] = {1, 0, 5};
  const std::uint32_t allowed[] = {0x0F0F0F0F, ~0u, 0xFF};
  const Changes changes{{.seen_ids = ids, .seen_counts = counts, .repetition = 1.2f, .frequency = 0.5f}, {}, allowed};
  std::vector<DrawRequest> draws;
  std::vector<RankRequest> rankings;
  std::vector<ScoreRequest> scores;
  for (int i = 0; i < 20; ++i) {
    draws.push_back({0, {.temperature = 0.1 * i, .uniform = i / 20.0, .changes = changes}, i % 2 == 0});
    rankings.push_back({0, {.count = i + 1, .changes = changes}});
    scores.push_back({0, i, i});
  }
  for (auto* each : {&alone, &together}) each->last_logits(EngineCase::tokens(33), 33);
  const auto drawn = together.engine.choose(draws);
  const auto ranked = together.engine.rank(rankings);
  const auto scored = together.engine.score(scores);
  for (std::size_t i = 0; i < draws.size(); ++i) {
    const auto draw = std::move(alone.engine.choose({draws[i]})[0]);
    CHECK(draw.drawn.token_id == drawn[i].drawn.token_id && (draw.explanation != nullptr) == (i % 2 == 0));
    CHECK((drawn[i].explanation != nullptr) == (i % 2 == 0));
    if (i % 2 == 0) CHECK(test::same_bits(draw.explanation->entropy, drawn[i].explanation->entropy));
    const auto ranking = alone.engine.rank({rankings[i]})[0];
    CHECK(ranking.size() == i + 1 && ranked[i].size() == i + 1);
    CHECK(ranking[i].token_id == ranked[i][i].token_id && test::same_bits(ranking[i].logprob, ranked[i][i].logprob));
    const auto score = std::move(alone.engine.score({scores[i]})[0]);
    CHECK(test::same_bits(score.drawn.logprob, scored[i].drawn.logprob) && score.list.size() == i && scored[i].list.size() == i);
  }
}

TEST(more_draws_than_threads_and_than_rows_each_have_their_own_answer) {
  EngineCase engine(best_isa(), 3);
  engine.last_logits(EngineCase::tokens(33), 33);
  std::vector<DrawRequest> requests;
  for (int i = 0; i < 20; ++i) requests.push_back({0, {.uniform = i / 20.0, .logprobs = LogprobsOf::sampled, .top = i}});
  const auto together = engine.engine.choose(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto alone = engine.engine.choose({requests[i]});
    CHECK(alone[0].drawn.token_id == together[i].drawn.token_id);
    CHECK(test::same_bits(alone[0].drawn.logprob, together[i].drawn.logprob));
    CHECK(alone[0].list.size() == i && together[i].list.size() == i);
  }
}

TEST(nothing_runs_before_a_program_is_loaded) {
  Engine engine(EngineCase::shape(KvType::int8), Isa::scalar, 1);
  CHECK(refuses([&] { engine.run({}, {}, {}, {}, {}); }));
  CHECK(refuses([&] { engine.choose({{0, {}}}); }));
  CHECK(engine.asked() == 0 && engine.vocabulary() == 0);
}

TEST(logits_of_another_program_are_not_those_of_the_one_just_loaded) {
  EngineCase engine;
  Run{}.on(engine);
  engine.engine.load(EngineCase::widths(), EngineCase::instructions());
  CHECK(engine.logits().empty());
  CHECK(refuses([&] { engine.engine.choose({{0, {}}}); }));
}

TEST(a_shape_that_no_kernel_works_on_is_refused) {
  const ModelShape good = EngineCase::shape(KvType::int8);
  const auto with = [&](auto change) {
    ModelShape shape = good;
    change(shape);
    return shape;
  };
  const ModelShape hostile[] = {
      with([](ModelShape& s) { s.layers = 0; }), with([](ModelShape& s) { s.layers = -1; }), with([](ModelShape& s) { s.heads = 0; }),
      with([](ModelShape& s) { s.heads = -4; }), with([](ModelShape& s) { s.heads = 3; }), with([](ModelShape& s) { s.heads = 66; }),
      with([](ModelShape& s) { s.kv_heads = 0; }), with([](ModelShape& s) { s.kv_heads = -2; }), with([](ModelShape& s) { s.kv_heads = 3; }),
      with([](ModelShape& s) { s.head_width = 0; }), with([](ModelShape& s) { s.head_width = -8; }), with([](ModelShape& s) { s.head_width = 12; }),
      with([](ModelShape& s) { s.head_width = 264; }), with([](ModelShape& s) { s.context = 0; }), with([](ModelShape& s) { s.context = -1; }),
      with([](ModelShape& s) { s.pages = -1; }), with([](ModelShape& s) { s.pages = s.layers = INT_MAX; s.kv_heads = s.heads = 1 << 20; }),
      with([](ModelShape& s) { s.kv_heads = s.heads = INT_MAX; }),
  };
  for (const ModelShape& shape : hostile) CHECK(refuses([&] { Engine(shape, Isa::scalar, 1); }));
  for (const double base : {0.0, -1.0, nan_value, double(INFINITY)}) {
    CHECK(refuses([&] { Engine(good, Isa::scalar, 1).memory().add_rope(base, nullptr); }));
  }
  Engine engine(good, Isa::scalar, 1);
  for (const auto& [outputs, inputs] : {std::pair{0, 32}, {-8, 32}, {8, 0}, {8, 31}, {8, -32}, {INT_MAX, 32}}) {
    CHECK(refuses([&, o = outputs, i = inputs] { engine.memory().add_matrix({false, false, true}, o, i); }));
  }
}

TEST(a_program_that_does_not_fit_together_is_refused) {
  const auto refused = [](auto change) {
    EngineCase engine;
    auto widths = EngineCase::widths();
    auto all = EngineCase::instructions();
    change(widths, all);
    return refuses([&] { engine.engine.load(widths, all); });
  };
  using Widths = std::vector<int>&;
  using All = std::vector<Instruction>&;
  CHECK(!refused([](Widths, All) {}));
  CHECK(refused([](Widths, All all) { all.clear(); }));
  CHECK(refused([](Widths, All all) { all.pop_back(); }));
  CHECK(refused([](Widths widths, All) { widths.clear(); }));
  CHECK(refused([](Widths widths, All) { widths[0] = -1; }));
  CHECK(refused([](Widths widths, All) { widths[1] -= 1; }));
  CHECK(refused([](Widths widths, All) { widths[4] += 1; }));
  CHECK(refused([](Widths, All all) { all[0].out.first = INT_MAX; }));
  CHECK(refused([](Widths, All all) { all[0].out.first = -1; }));
  CHECK(refused([](Widths, All all) { all[0].out.width = 0; }));
  CHECK(refused([](Widths, All all) { all[0].matrix = 2; }));
  CHECK(refused([](Widths, All all) { all[1].a = {}; }));
  CHECK(refused([](Widths, All all) { all[1].a.buffer = 3; }));  // not made yet
  CHECK(refused([](Widths, All all) { all[1].source = Source::silu_multiply; }));
  CHECK(refused([](Widths, All all) { all[1].asked = true; }));
  CHECK(refused([](Widths, All all) { all[2].layer = 1; }));
  CHECK(refused([](Widths, All all) { all[2].layer = -1; }));
  CHECK(refused([](Widths, All all) { all[2].b.width -= 8; }));
  CHECK(refused([](Widths, All all) { all[2].c = {}; }));
  CHECK(refused([](Widths, All all) { all[2].a.width -= 8; }));
  CHECK(refused([](Widths, All all) { all[3].c.width = 32; }));
  CHECK(refused([](Widths, All all) { all[4].asked = false; }));
  CHECK(refused([](Widths, All all) { all[5].asked = false; }));
  CHECK(refused([](Widths, All all) { all.erase(all.begin() + 4); }));
}
