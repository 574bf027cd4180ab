// The definition of the rotation, number by number.
#include "rope.hpp"

namespace tane {
namespace {

void rotate(const float* x, int heads, int half, const float* cosines, const float* sines, float* out) {
  for (int head = 0; head < heads; ++head, x += 2 * half, out += 2 * half) {
    for (int i = 0; i < half; ++i) {
      const float first = x[i], second = x[i + half];
      out[i] = first * cosines[i] - second * sines[i];
      out[i + half] = second * cosines[i] + first * sines[i];
    }
  }
}

constexpr RopeKernels kernels{rotate};

}  // namespace

const RopeKernels& rope_scalar() { return kernels; }

}  // namespace tane
