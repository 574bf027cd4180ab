// The pool: each chunk once, whatever the threads; nothing of one run leaks into another; floats behave alike on all threads.
#include "pool.hpp"

#include <xmmintrin.h>

#include <chrono>
#include <ctime>
#include <mutex>
#include <set>

#include "harness.hpp"

using namespace tane;

namespace {

constexpr unsigned rounding_and_subnormals = 0xFFC0;  // MXCSR without its sticky flags

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void work_a_little(int steps) {
  for (volatile int i = 0; i < steps;) i = i + 1;
}

}  // namespace

TEST(each_chunk_runs_once) {
  for (const int threads : {1, 2, 3, 8}) {
    Pool pool(threads);
    CHECK(pool.threads() == threads);
    for (const int chunks : {0, 1, 2, 3, 7, 8, 9, 64, 1000}) {
      std::vector<int> runs(static_cast<std::size_t>(chunks));
      pool.run(chunks, [&](int chunk) { ++runs[static_cast<std::size_t>(chunk)]; });
      CHECK(runs == std::vector<int>(static_cast<std::size_t>(chunks), 1));
    }
  }
}

TEST(a_run_sees_what_the_run_before_wrote) {
  for (const int threads : {2, 4}) {
    Pool pool(threads);
    const Pool::Call call(pool);
    std::vector<long> from(37, 0), to(37, 0);
    for (int step = 0; step < 3000; ++step) {
      pool.run(37, [&](int chunk) {
        to[static_cast<std::size_t>(chunk)] = from[static_cast<std::size_t>((chunk + 1) % 37)] + 1;
      });
      std::swap(from, to);
    }
    CHECK(from == std::vector<long>(37, 3000));
  }
}

TEST(uneven_chunks_are_taken_by_whoever_is_free) {
  Pool pool(3);
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::vector<int> runs(50);
    pool.run(50, [&](int chunk) {
      work_a_little(chunk < 5 ? 20000 : 10);
      ++runs[static_cast<std::size_t>(chunk)];
    });
    CHECK(runs == std::vector<int>(50, 1));
  }
}

TEST(workers_wake_after_any_pause) {
  Pool pool(2);
  for (int pause = 0; pause < 400; ++pause) {
    int sum = 0;
    std::mutex lock;
    // Around the limit of the spin.
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(pause % 60);
    while (std::chrono::steady_clock::now() < until) {
    }
    pool.run(8, [&](int chunk) {
      const std::lock_guard<std::mutex> guard(lock);
      sum += chunk;
    });
    CHECK(sum == 28);
  }
}

TEST(several_threads_take_part) {
  Pool pool(4);
  std::set<std::thread::id> seen;
  std::mutex lock;
  for (int repeat = 0; repeat < 200 && seen.size() < 2; ++repeat) {
    pool.run(64, [&](int) {
      work_a_little(5000);
      const std::lock_guard<std::mutex> guard(lock);
      seen.insert(std::this_thread::get_id());
    });
  }
  CHECK(seen.size() >= 2);
}

TEST(workers_sleep_between_calls) {
  Pool pool(4);
  pool.run(16, [](int) { work_a_little(1000); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = processor_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(processor_seconds() - before < 0.02);
}

TEST(floats_round_to_nearest_on_every_thread_during_a_call) {
  const unsigned own = _mm_getcsr();
  Pool pool(4);
  // As it is by default; subnormals to zero; rounding down.
  for (const unsigned set_by_caller : {0x1F80u, 0x1F80u | 0x8040u, 0x1F80u | 0x2000u}) {
    _mm_setcsr(set_by_caller);
    bool right = true;
    {
      const Pool::Call call(pool);
      std::mutex lock;
      pool.run(64, [&](int) {
        work_a_little(1000);
        const std::lock_guard<std::mutex> guard(lock);
        right &= (_mm_getcsr() & rounding_and_subnormals) == 0x1F80;
      });
    }
    const unsigned after = _mm_getcsr();
    _mm_setcsr(own);
    CHECK(right);
    CHECK(after == set_by_caller);
  }
}

TEST(pools_end_at_any_time) {
  for (int repeat = 0; repeat < 100; ++repeat) {
    Pool pool(1 + repeat % 4);
    if (repeat % 3 == 0) continue;
    const Pool::Call call(pool);
    if (repeat % 3 == 1) pool.run(5, [](int) {});
  }
}
