// The one binding file: what Python sees of the compiled code, and nothing else.
#include <nanobind/nanobind.h>

#include "philox.hpp"

namespace nb = nanobind;

NB_MODULE(_native, module) {
  module.def("philox_uniform", &tane::philox_uniform, nb::arg("seed"), nb::arg("sample"), nb::arg("position"),
             "A float64 in [0, 1) that depends on these three numbers only.");
}
