// Which instruction sets this machine has. Kernels come in one version per set; all give the same bits, so the choice is
// one of speed alone.
#pragma once

namespace tane {

enum class Isa { scalar, avx2, avx512 };  // each set includes the ones before it

Isa best_isa();           // the widest set that the machine and the operating system support
const char* isa_name(Isa isa);

}  // namespace tane
