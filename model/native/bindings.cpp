// The one binding file: what Python sees of the compiled code, and nothing else.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine.hpp"
#include "philox.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Gains = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ViewTuple = std::tuple<int, int, int>;

tane::View view_of(const ViewTuple& view) { return {std::get<0>(view), std::get<1>(view), std::get<2>(view)}; }

tane::Kind kind_named(const std::string& name) {
  for (const auto& [known, kind] : {std::pair{"embed", tane::Kind::embed}, {"embed_positions", tane::Kind::embed_positions},
                                    {"linear", tane::Kind::linear}, {"attend", tane::Kind::attend},
                                    {"gather", tane::Kind::gather}, {"rms_norm", tane::Kind::rms_norm},
                                    {"layer_norm", tane::Kind::layer_norm}, {"head_norm", tane::Kind::head_norm},
                                    {"silu_multiply", tane::Kind::silu_multiply}, {"gelu_multiply", tane::Kind::gelu_multiply},
                                    {"gelu", tane::Kind::gelu}, {"add_bias", tane::Kind::add_bias}, {"add", tane::Kind::add}}) {
    if (name == known) return kind;
  }
  throw std::invalid_argument("no instruction is called " + name);
}

tane::Source source_named(const std::string& name) {
  for (const auto& [known, source] : {std::pair{"plain", tane::Source::plain}, {"rms_norm", tane::Source::rms_norm},
                                      {"layer_norm", tane::Source::layer_norm}, {"silu_multiply", tane::Source::silu_multiply},
                                      {"gelu_multiply", tane::Source::gelu_multiply}, {"gelu", tane::Source::gelu}}) {
    if (name == known) return source;
  }
  throw std::invalid_argument("no source is called " + name);
}

using Stretch = std::optional<std::tuple<double, double, double, int>>;

tane::Engine* make_engine(int layers, int heads, int kv_heads, int head_width, int context, int pages, const std::string& kv_type,
                          const std::string& isa, int threads) {
  if (kv_type != "int8" && kv_type != "float16") throw std::invalid_argument("no cache is called " + kv_type);
  const tane::ModelShape shape{layers, heads, kv_heads, head_width, context, pages,
                               kv_type == "int8" ? tane::KvType::int8 : tane::KvType::float16};
  return new tane::Engine(shape, tane::isa_named(isa), threads);
}

int add_rope(tane::Engine& engine, double base, const Stretch& given) {
  tane::RopeStretch stretch{};
  if (given) std::tie(stretch.factor, stretch.low_frequency_factor, stretch.high_frequency_factor, stretch.original_context_length) = *given;
  return engine.memory().add_rope(base, given ? &stretch : nullptr);
}

void check_range(const tane::Engine& engine, int matrix, int first_row, std::size_t rows, std::size_t width, std::size_t expected) {
  const auto outputs = static_cast<std::size_t>(engine.memory().matrix(matrix).outputs);
  if (first_row < 0 || static_cast<std::size_t>(first_row) + rows > outputs || width != expected) {
    throw std::invalid_argument("rows do not fit the matrix");
  }
}

using Ids = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Words = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// ids with a bias, the biases, ids that were seen, how often each, repetition, presence, frequency
using EditsTuple = std::tuple<Ids, Gains, Ids, Ids, double, double, double>;
// banned ids, edits, mask
using ChangesTuple = std::tuple<std::vector<std::int32_t>, std::optional<EditsTuple>, std::optional<Words>>;
using GivenChanges = std::optional<ChangesTuple>;
// row, temperature, top_k, top_p, min_p, uniform, changes, of which distribution log-probabilities are wanted, how many, whether
// to explain
using DrawTuple = std::tuple<int, double, int, double, double, double, GivenChanges, std::string, int, bool>;
using RankTuple = std::tuple<int, int, GivenChanges>;  // row, count, changes
using ScoreTuple = std::tuple<int, int, int>;          // row, token id, how many of the likeliest
using Numbered = std::vector<std::tuple<int, double>>;                        // ids and a number of each
using StageTuple = std::tuple<const char*, int, double, Numbered>;            // name, candidates, mass, the likeliest
using ExplanationTuple = std::tuple<double, std::vector<StageTuple>>;         // entropy, stages
// token id or -1, log-probability, the likeliest tokens with theirs, explanation
using DrawnTuple = std::tuple<int, double, Numbered, std::optional<ExplanationTuple>>;
using RankedTuple = std::tuple<int, double, float>;  // token id, log-probability, logit

template <typename T>
std::span<const T> span_of(const nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>& array) {
  return {array.data(), array.shape(0)};
}

// Looks into what Python handed over, which outlives the call.
tane::Changes changes_of(const GivenChanges& given) {
  if (!given) return {};
  const auto& [banned, edits, allowed] = *given;
  tane::Changes changes{.banned = banned};
  if (allowed) changes.allowed = span_of<std::uint32_t>(*allowed);
  if (edits) {
    const auto& [bias_ids, bias_values, seen_ids, seen_counts, repetition, presence, frequency] = *edits;
    changes.edits = {.bias_ids = span_of<std::int32_t>(bias_ids), .bias_values = span_of<float>(bias_values),
                     .seen_ids = span_of<std::int32_t>(seen_ids), .seen_counts = span_of<std::int32_t>(seen_counts),
                     .repetition = static_cast<float>(repetition), .presence = static_cast<float>(presence),
                     .frequency = static_cast<float>(frequency)};
  }
  return changes;
}

std::vector<tane::DrawRequest> requests_of(const std::vector<DrawTuple>& draws) {
  std::vector<tane::DrawRequest> requests;
  requests.reserve(draws.size());
  for (const auto& [row, temperature, top_k, top_p, min_p, uniform, changes, of, top, explain] : draws) {
    if (!of.empty() && of != "model" && of != "sampled") throw std::invalid_argument("no distribution is called " + of);
    const auto wanted = of == "model" ? tane::LogprobsOf::model : of == "sampled" ? tane::LogprobsOf::sampled : tane::LogprobsOf::nothing;
    requests.push_back({row, {.temperature = temperature, .top_p = top_p, .min_p = min_p, .uniform = uniform, .top_k = top_k,
                              .changes = changes_of(changes), .logprobs = wanted, .top = top}, explain});
  }
  return requests;
}

std::vector<tane::RankRequest> requests_of(const std::vector<RankTuple>& rankings) {
  std::vector<tane::RankRequest> requests;
  for (const auto& [row, count, changes] : rankings) requests.push_back({row, {.count = count, .changes = changes_of(changes)}});
  return requests;
}

std::vector<tane::ScoreRequest> requests_of(const std::vector<ScoreTuple>& scores) {
  std::vector<tane::ScoreRequest> requests;
  for (const auto& [row, token_id, top] : scores) requests.push_back({row, token_id, top});
  return requests;
}

ExplanationTuple told(const tane::Explanation& explanation) {
  constexpr const char* names[] = {"model", "bias", "penalties", "mask", "temperature", "top_k", "top_p", "min_p"};
  std::vector<StageTuple> stages;
  for (int i = 0; i < explanation.count; ++i) {
    const tane::Stage& stage = explanation.stages[i];
    Numbered top;
    for (int j = 0; j < stage.listed; ++j) top.emplace_back(stage.top[j].token_id, stage.top[j].probability);
    stages.emplace_back(names[static_cast<int>(stage.name)], stage.candidates, stage.mass, std::move(top));
  }
  return {explanation.entropy, std::move(stages)};
}

std::vector<DrawnTuple> told(const std::vector<tane::Answer>& answers) {
  std::vector<DrawnTuple> drawn;
  drawn.reserve(answers.size());
  for (const auto& answer : answers) {
    Numbered list;
    for (const auto& each : answer.list) list.emplace_back(each.token_id, each.logprob);
    std::optional<ExplanationTuple> explanation;
    if (answer.explanation) explanation = told(*answer.explanation);
    drawn.emplace_back(answer.drawn.token_id, answer.drawn.logprob, std::move(list), std::move(explanation));
  }
  return drawn;
}

std::vector<std::vector<RankedTuple>> told(const std::vector<std::vector<tane::RankedToken>>& rankings) {
  std::vector<std::vector<RankedTuple>> lists;
  for (const auto& ranking : rankings) {
    auto& list = lists.emplace_back();
    for (const auto& each : ranking) list.emplace_back(each.token_id, each.logprob, each.logit);
  }
  return lists;
}

// Choices from rows that are handed over, with threads of its own.
class RowChooser {
 public:
  RowChooser(const std::string& isa, int threads) : pool_(threads), chooser_(pool_, tane::isa_named(isa)) {}

  auto choose(const Floats& rows, const std::vector<DrawTuple>& draws) { return told(chooser_.choose(rows_of(rows), requests_of(draws))); }
  auto rank(const Floats& rows, const std::vector<RankTuple>& rankings) { return told(chooser_.rank(rows_of(rows), requests_of(rankings))); }
  auto score(const Floats& rows, const std::vector<ScoreTuple>& scores) { return told(chooser_.score(rows_of(rows), requests_of(scores))); }

 private:
  static tane::Rows rows_of(const Floats& rows) {
    return {rows.data(), static_cast<int>(rows.shape(0)), static_cast<int>(rows.shape(1))};
  }

  tane::Pool pool_;
  tane::Chooser chooser_;
};

using FloatRows = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

FloatRows new_rows(std::size_t rows, std::size_t width) {
  auto* memory = new float[rows * width];
  nb::capsule owner(memory, [](void* each) noexcept { delete[] static_cast<float*>(each); });
  return FloatRows(memory, {rows, width}, owner);
}

FloatRows round_rows(const Floats& rows, bool eight_bits, bool centred, bool half_scales) {
  FloatRows rounded = new_rows(rows.shape(0), rows.shape(1));
  bool packed = false;
  {
    nb::gil_scoped_release released;
    packed = tane::round_rows({eight_bits, centred, half_scales}, static_cast<int>(rows.shape(0)), static_cast<int>(rows.shape(1)),
                              rows.data(), rounded.data());
  }
  if (!packed) throw std::invalid_argument("weights are not finite, or too great for their scales");
  return rounded;
}

}  // namespace

NB_MODULE(_native, module) {
  module.def("philox_uniform", &tane::philox_uniform, "seed"_a, "sample"_a, "position"_a,
             "A float64 in [0, 1) that depends on these three numbers only.");

  module.def("best_isa", [] { return static_cast<int>(tane::best_isa()); }, "0 scalar, 1 AVX2, 2 AVX-512 with VNNI.");

  module.def("round_rows", &round_rows, "rows"_a, "eight_bits"_a, "centred"_a, "half_scales"_a,
             "What packing makes of rows of floats, as float32 again.");

  nb::class_<tane::Instruction>(module, "Instruction")
      .def(
          "__init__",
          [](tane::Instruction* self, const std::string& kind, const std::string& source, bool asked, const ViewTuple& out,
             const ViewTuple& a, const ViewTuple& b, const ViewTuple& c, int matrix, int vector, int layer, double epsilon, int shift,
             int bias, int rope, std::optional<int> window, double scale) {
            new (self) tane::Instruction{kind_named(kind), source_named(source), asked,   view_of(out), view_of(a), view_of(b),
                                         view_of(c),       matrix,               vector,  layer,        epsilon,    shift,
                                         bias,             rope,                 window.value_or(tane::every_position), scale};
          },
          "kind"_a, "source"_a, "asked"_a, "out"_a, "a"_a, "b"_a, "c"_a, "matrix"_a, "vector"_a, "layer"_a, "epsilon"_a, "shift"_a,
          "bias"_a, "rope"_a, "window"_a.none(), "scale"_a);

  nb::class_<RowChooser>(module, "Chooser")
      .def(nb::init<const std::string&, int>(), "isa"_a, "threads"_a)
      .def("choose", &RowChooser::choose, "rows"_a, "draws"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("rank", &RowChooser::rank, "rows"_a, "rankings"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("score", &RowChooser::score, "rows"_a, "scores"_a, nb::call_guard<nb::gil_scoped_release>());

  nb::class_<tane::Engine>(module, "Engine")
      .def(nb::new_(&make_engine), "layers"_a, "heads"_a, "kv_heads"_a, "head_width"_a, "context"_a, "pages"_a, "kv_type"_a,
           "isa"_a, "threads"_a)
      .def_prop_ro("isa", [](const tane::Engine& engine) { return std::string(tane::isa_name(engine.isa())); })
      .def_prop_ro("weight_bytes", [](const tane::Engine& engine) { return engine.memory().weight_bytes(); })
      .def("add_matrix", [](tane::Engine& engine, bool eight_bits, bool centred, bool half_scales, int outputs,
                            int inputs) { return engine.memory().add_matrix({eight_bits, centred, half_scales}, outputs, inputs); },
           "eight_bits"_a, "centred"_a, "half_scales"_a, "outputs"_a, "inputs"_a)
      .def("inputs_of", [](const tane::Engine& engine, int matrix) { return engine.memory().matrix(matrix).inputs; })
      .def("add_vector", [](tane::Engine& engine, const Gains& values) {
             return engine.memory().add_vector(values.data(), static_cast<int>(values.shape(0)));
           })
      .def("add_rope", &add_rope, "base"_a, "stretch"_a.none())
      .def("pack_blocks",
           [](tane::Engine& engine, int matrix, int first_row, const std::string& format, const Bytes& rows) {
             const tane::PackRow pack = tane::packer_named(format);
             check_range(engine, matrix, first_row, rows.shape(0), rows.shape(1), engine.row_bytes(format, matrix));
             nb::gil_scoped_release released;
             return engine.pack(matrix, first_row, static_cast<int>(rows.shape(0)), pack, rows.data(), rows.shape(1));
           })
      .def("pack_floats",
           [](tane::Engine& engine, int matrix, int first_row, const Floats& rows) {
             check_range(engine, matrix, first_row, rows.shape(0), rows.shape(1),
                         static_cast<std::size_t>(engine.memory().matrix(matrix).inputs));
             nb::gil_scoped_release released;
             return engine.pack_floats(matrix, first_row, static_cast<int>(rows.shape(0)), rows.data());
           })
      .def("pack_codes",
           [](tane::Engine& engine, int matrix, int first_row, const Bytes& codes, const Floats& d, const Floats& m) {
             const auto inputs = static_cast<std::size_t>(engine.memory().matrix(matrix).inputs);
             check_range(engine, matrix, first_row, codes.shape(0), codes.shape(1), inputs);
             check_range(engine, matrix, first_row, d.shape(0), d.shape(1), inputs / tane::group_inputs);
             check_range(engine, matrix, first_row, m.shape(0), m.shape(1), inputs / tane::group_inputs);
             if (d.shape(0) != codes.shape(0) || m.shape(0) != codes.shape(0)) throw std::invalid_argument("rows lack scales");
             nb::gil_scoped_release released;
             return engine.pack_codes(matrix, first_row, static_cast<int>(codes.shape(0)), codes.data(), d.data(), m.data());
           })
      .def("unpack",
           [](const tane::Engine& engine, int matrix, int first_row, int rows) {
             const auto inputs = static_cast<std::size_t>(engine.memory().matrix(matrix).inputs);
             if (rows < 0) throw std::invalid_argument("rows do not fit the matrix");
             check_range(engine, matrix, first_row, static_cast<std::size_t>(rows), inputs, inputs);
             FloatRows copy = new_rows(static_cast<std::size_t>(rows), inputs);
             engine.unpack(matrix, first_row, rows, copy.data());
             return copy;
           })
      .def("poison_pages", &tane::Engine::poison_pages, "Fills every page with NaN: nothing unwritten may reach a result.")
      .def("load", &tane::Engine::load, "buffer_widths"_a, "instructions"_a)
      .def("run", &tane::Engine::run, "token_ids"_a, "segments"_a, "pages"_a, "asked"_a, "copies"_a,
           nb::call_guard<nb::gil_scoped_release>())
      .def("choose", [](tane::Engine& engine, const std::vector<DrawTuple>& draws) { return told(engine.choose(requests_of(draws))); },
           "draws"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("rank", [](tane::Engine& engine, const std::vector<RankTuple>& rankings) { return told(engine.rank(requests_of(rankings))); },
           "rankings"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("score", [](tane::Engine& engine, const std::vector<ScoreTuple>& scores) { return told(engine.score(requests_of(scores))); },
           "scores"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("logits", [](const tane::Engine& engine) {
        const std::size_t rows = static_cast<std::size_t>(engine.asked()), width = static_cast<std::size_t>(engine.vocabulary());
        FloatRows copy = new_rows(rows, width);
        std::copy_n(engine.logits(), rows * width, copy.data());
        return copy;
      });
}
