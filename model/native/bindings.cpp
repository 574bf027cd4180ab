// The one binding file: what Python sees of the compiled code, and nothing else.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

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
  for (const auto& [known, kind] : {std::pair{"embed", tane::Kind::embed}, {"linear", tane::Kind::linear},
                                    {"attend", tane::Kind::attend}, {"gather", tane::Kind::gather},
                                    {"rms_norm", tane::Kind::rms_norm}, {"silu_multiply", tane::Kind::silu_multiply},
                                    {"add", tane::Kind::add}}) {
    if (name == known) return kind;
  }
  throw std::invalid_argument("no instruction is called " + name);
}

tane::Source source_named(const std::string& name) {
  for (const auto& [known, source] : {std::pair{"plain", tane::Source::plain}, {"rms_norm", tane::Source::rms_norm},
                                      {"silu_multiply", tane::Source::silu_multiply}}) {
    if (name == known) return source;
  }
  throw std::invalid_argument("no source is called " + name);
}

using Stretch = std::optional<std::tuple<double, double, double, int>>;

tane::Engine* make_engine(int layers, int heads, int kv_heads, int head_width, int context, int pages, const std::string& kv_type,
                          double rope_base, const Stretch& rope_stretch, const std::string& isa, int threads) {
  if (kv_type != "int8" && kv_type != "float16") throw std::invalid_argument("no cache is called " + kv_type);
  const tane::ModelShape shape{layers, heads, kv_heads, head_width, context, pages,
                               kv_type == "int8" ? tane::KvType::int8 : tane::KvType::float16};
  tane::RopeStretch stretch{};
  if (rope_stretch) std::tie(stretch.factor, stretch.low_frequency_factor, stretch.high_frequency_factor, stretch.original_context_length) = *rope_stretch;
  return new tane::Engine(shape, rope_base, rope_stretch ? &stretch : nullptr, tane::isa_named(isa), threads);
}

void check_range(const tane::Engine& engine, int matrix, int first_row, std::size_t rows, std::size_t width, std::size_t expected) {
  const auto outputs = static_cast<std::size_t>(engine.memory().matrix(matrix).outputs);
  if (first_row < 0 || static_cast<std::size_t>(first_row) + rows > outputs || width != expected) {
    throw std::invalid_argument("rows do not fit the matrix");
  }
}

// row, temperature, top_k, top_p, min_p, uniform, banned, of which distribution log-probabilities are wanted, how many
using DrawTuple = std::tuple<int, double, int, double, double, double, std::vector<std::int32_t>, std::string, int>;
// token id or -1, log-probability, the likeliest tokens with theirs
using DrawnTuple = std::tuple<int, double, std::vector<std::tuple<int, double>>>;

using FloatRows = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

FloatRows new_rows(std::size_t rows, std::size_t width) {
  auto* memory = new float[rows * width];
  nb::capsule owner(memory, [](void* each) noexcept { delete[] static_cast<float*>(each); });
  return FloatRows(memory, {rows, width}, owner);
}

FloatRows round_rows(const Floats& rows, bool eight_bits, bool centred) {
  FloatRows rounded = new_rows(rows.shape(0), rows.shape(1));
  bool packed = false;
  {
    nb::gil_scoped_release released;
    packed = tane::round_rows({eight_bits, centred, true}, static_cast<int>(rows.shape(0)), static_cast<int>(rows.shape(1)),
                              rows.data(), rounded.data());
  }
  if (!packed) throw std::invalid_argument("weights are not finite, or too great for float16");
  return rounded;
}

std::vector<DrawnTuple> choose(tane::Engine& engine, const std::vector<DrawTuple>& draws) {
  std::vector<tane::Engine::Request> requests;
  for (const auto& [row, temperature, top_k, top_p, min_p, uniform, banned, of, top] : draws) {
    if (!of.empty() && of != "model" && of != "sampled") throw std::invalid_argument("no distribution is called " + of);
    const auto wanted = of == "model" ? tane::LogprobsOf::model : of == "sampled" ? tane::LogprobsOf::sampled : tane::LogprobsOf::nothing;
    requests.push_back({row, {.temperature = temperature, .top_p = top_p, .min_p = min_p, .uniform = uniform, .top_k = top_k,
                              .banned = banned, .logprobs = wanted, .top = top}});
  }
  std::vector<DrawnTuple> drawn;
  for (const auto& answer : engine.choose(requests)) {
    std::vector<std::tuple<int, double>> list;
    for (const auto& each : answer.list) list.emplace_back(each.token_id, each.logprob);
    drawn.emplace_back(answer.drawn.token_id, answer.drawn.logprob, std::move(list));
  }
  return drawn;
}

}  // namespace

NB_MODULE(_native, module) {
  module.def("philox_uniform", &tane::philox_uniform, "seed"_a, "sample"_a, "position"_a,
             "A float64 in [0, 1) that depends on these three numbers only.");

  module.def("best_isa", [] { return static_cast<int>(tane::best_isa()); }, "0 scalar, 1 AVX2, 2 AVX-512 with VNNI.");

  module.def("round_rows", &round_rows, "rows"_a, "eight_bits"_a, "centred"_a,
             "What packing makes of rows of floats, as float32 again.");

  nb::class_<tane::Instruction>(module, "Instruction")
      .def(
          "__init__",
          [](tane::Instruction* self, const std::string& kind, const std::string& source, bool asked, const ViewTuple& out,
             const ViewTuple& a, const ViewTuple& b, const ViewTuple& c, int matrix, int vector, int layer, double epsilon) {
            new (self) tane::Instruction{kind_named(kind), source_named(source), asked,  view_of(out), view_of(a), view_of(b),
                                         view_of(c),       matrix,               vector, layer,        epsilon};
          },
          "kind"_a, "source"_a, "asked"_a, "out"_a, "a"_a, "b"_a, "c"_a, "matrix"_a, "vector"_a, "layer"_a, "epsilon"_a);

  nb::class_<tane::Engine>(module, "Engine")
      .def(nb::new_(&make_engine), "layers"_a, "heads"_a, "kv_heads"_a, "head_width"_a, "context"_a, "pages"_a, "kv_type"_a,
           "rope_base"_a, "rope_stretch"_a.none(), "isa"_a, "threads"_a)
      .def_prop_ro("isa", [](const tane::Engine& engine) { return std::string(tane::isa_name(engine.isa())); })
      .def_prop_ro("weight_bytes", [](const tane::Engine& engine) { return engine.memory().weight_bytes(); })
      .def("add_matrix", [](tane::Engine& engine, bool eight_bits, bool centred, bool half_scales, int outputs,
                            int inputs) { return engine.memory().add_matrix({eight_bits, centred, half_scales}, outputs, inputs); },
           "eight_bits"_a, "centred"_a, "half_scales"_a, "outputs"_a, "inputs"_a)
      .def("inputs_of", [](const tane::Engine& engine, int matrix) { return engine.memory().matrix(matrix).inputs; })
      .def("add_vector", [](tane::Engine& engine, const Gains& values) {
             return engine.memory().add_vector(values.data(), static_cast<int>(values.shape(0)));
           })
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
      .def("poison_pages", &tane::Engine::poison_pages, "Fills every page with NaN: nothing unwritten may reach a result.")
      .def("load", &tane::Engine::load, "buffer_widths"_a, "instructions"_a)
      .def("run", &tane::Engine::run, "token_ids"_a, "segments"_a, "pages"_a, "asked"_a, "copies"_a,
           nb::call_guard<nb::gil_scoped_release>())
      .def("choose", &choose, "draws"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("logits", [](const tane::Engine& engine) {
        const std::size_t rows = static_cast<std::size_t>(engine.asked()), width = static_cast<std::size_t>(engine.vocabulary());
        FloatRows copy = new_rows(rows, width);
        std::copy_n(engine.logits(), rows * width, copy.data());
        return copy;
      });
}
