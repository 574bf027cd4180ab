#include "isa.hpp"

namespace tane {
namespace {

// The compiler's test includes the operating system's part: registers that it does not save are not reported.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

}  // namespace

Isa best_isa() {
  __builtin_cpu_init();
  if (has_avx512()) return Isa::avx512;
  return has_avx2() ? Isa::avx2 : Isa::scalar;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::avx512: return "avx512";
    case Isa::avx2: return "avx2";
    case Isa::scalar: return "scalar";
  }
  return "unknown";
}

}  // namespace tane
