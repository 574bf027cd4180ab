// What is left of the speed when another process takes a core: steps a second of a decoding model's linear layers, quiet and
// beside a busy loop that may run anywhere or is held on one core. bench_pool [threads] [seconds] [tokens]
#include <csignal>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "affine.hpp"
#include "affine_fixtures.hpp"
#include "pool.hpp"

using namespace tane;
using namespace tane::test;

namespace {

using Clock = std::chrono::steady_clock;

// A child process that never rests; on CPU `cpu`, or anywhere if that is negative.
pid_t start_busy_loop(int cpu) {
  const pid_t child = fork();
  if (child != 0) return child;
  if (cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
  }
  for (volatile unsigned long count = 0;;) count = count + 1;
}

struct Steps {
  Pool& pool;
  std::vector<Layer> layers;
  std::vector<float> x, y;
  Input codes;
  int tokens;

  void step() {
    const Pool::Call call(pool);
    const AffineKernels& kernels = affine_kernels(best_isa());
    for (const Layer& layer : layers) {
      const AffineWeights& weights = layer.weights;
      const Activations view{codes.view.tiles, weights.inputs / group_inputs};
      kernels.quantise(x.data(), static_cast<std::size_t>(weights.inputs), 0, tokens, view);
      const int blocks = affine_blocks(weights.outputs), parts = pool.threads() * 6, each = (blocks + parts - 1) / parts;
      pool.run((blocks + each - 1) / each, [&](int chunk) {
        const int end = (chunk + 1) * each;
        kernels.multiply(weights, view, 0, tokens, chunk * each, end < blocks ? end : blocks, y.data(),
                         static_cast<std::size_t>(weights.outputs));
      });
    }
  }

  double per_second(double seconds) {
    int count = 0;
    double elapsed = 0;
    for (const auto start = Clock::now(); elapsed < seconds; ++count) {
      step();
      elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    }
    return count / elapsed;
  }
};

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 2;
  const double seconds = count > 2 ? std::atof(arguments[2]) : 2;
  const int tokens = count > 3 ? std::atoi(arguments[3]) : 1;
  Pool pool(threads);
  std::mt19937 random(1);
  Steps steps{pool, {}, random_floats(static_cast<std::size_t>(tokens) * 1536, random),
              std::vector<float>(static_cast<std::size_t>(tokens) * 3072), empty_input(tokens, 1536), tokens};
  const int shapes[][2] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}};
  for (int layer = 0; layer < 30; ++layer) {
    for (const auto& [outputs, inputs] : shapes) {
      steps.layers.push_back(random_layer({false, false, true}, outputs, inputs, random));
    }
  }
  std::printf("%d threads, %d tokens:", threads, tokens);
  for (const int cpu : {-1, threads - 1}) {
    const pid_t child = start_busy_loop(cpu);
    double quiet = 0, beside = 0;
    int rounds = 0;
    for (const auto start = Clock::now(); std::chrono::duration<double>(Clock::now() - start).count() < seconds; ++rounds) {
      kill(child, SIGSTOP);  // the two are measured in turns, so that other changes of the machine touch both
      quiet += steps.per_second(0.1);
      kill(child, SIGCONT);
      steps.per_second(0.02);
      beside += steps.per_second(0.2);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    std::printf(" quiet %.0f steps/s, beside a busy loop %s %.0f (%.0f %%)", quiet / rounds,
                cpu < 0 ? "anywhere" : "held on one core", beside / rounds, 100 * beside / quiet);
  }
  std::printf("\n");
}
