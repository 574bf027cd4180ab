#include "pool.hpp"

#include <xmmintrin.h>

#include <chrono>

namespace tane {
namespace {

constexpr unsigned default_float_control = 0x1F80;  // round to nearest, subnormals kept, no exception traps

// Longer than the serial work between two runs, far shorter than the slice of time that a neighbour on this core would get.
constexpr std::chrono::microseconds spin_limit{20};

// Looks again and again until `done()` holds or the time is over.
template <typename Done>
bool spin(Done done) {
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int look = 0; look < 32; ++look) {
      if (done()) return true;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() - start < spin_limit);
  return done();
}

}  // namespace

Pool::Pool(int threads) : shares_(static_cast<std::size_t>(threads > 1 ? threads : 1)) {
  workers_.reserve(shares_.size() - 1);
  try {
    for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
  } catch (...) {  // the system has no more threads for us
    stop();
    throw;
  }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  stopped_.store(true);
  wake();
  for (auto& worker : workers_) worker.join();
}

void Pool::run(int chunks, Body body, void* context) {
  if (workers_.empty() || chunks <= 1) {
    for (int chunk = 0; chunk < chunks; ++chunk) body(context, chunk);
    return;
  }
  body_ = body;
  context_ = context;
  pending_.store(chunks, std::memory_order_relaxed);
  const auto count = static_cast<std::uint64_t>(chunks), threads = static_cast<std::uint64_t>(shares_.size());
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    const std::uint64_t begin = count * thread / threads, end = count * (thread + 1) / threads;
    shares_[thread].left.store(begin << 32 | end, std::memory_order_release);
  }
  wake();
  take_chunks(0);
  wait_for_chunks();
}

// A worker counts itself among the sleepers before it looks at run_ for the last time, the caller changes run_ before it
// looks for sleepers, all in one total order: one of them sees the other.
void Pool::wake() {
  run_.fetch_add(1);
  if (sleepers_.load() > 0) run_.notify_all();
}

std::uint32_t Pool::wait_for_run(std::uint32_t seen) {
  const auto changed = [&] { return run_.load(std::memory_order_acquire) != seen; };
  if (!spin(changed)) {
    sleepers_.fetch_add(1);
    while (run_.load() == seen) run_.wait(seen);
    sleepers_.fetch_sub(1);
  }
  return run_.load();
}

void Pool::work(int thread) {
  _mm_setcsr(default_float_control);
  for (std::uint32_t seen = 0; !stopped_.load();) {
    take_chunks(thread);
    seen = wait_for_run(seen);
  }
}

// The next chunk of a share, the first one for its owner and the last one for others; -1 when none is left. Whoever succeeds
// has a chunk of the run that is on, even if it came late: that run cannot end before the chunk does.
int Pool::take(Share& share, bool own) {
  std::uint64_t left = share.left.load(std::memory_order_acquire);
  for (;;) {
    const auto begin = static_cast<std::uint32_t>(left >> 32), end = static_cast<std::uint32_t>(left);
    if (begin == end) return -1;
    const std::uint64_t rest = own ? left + (std::uint64_t{1} << 32) : left - 1;
    if (share.left.compare_exchange_weak(left, rest, std::memory_order_acquire, std::memory_order_acquire)) {
      return static_cast<int>(own ? begin : end - 1);
    }
  }
}

void Pool::take_chunks(int thread) {
  const int threads = static_cast<int>(shares_.size());
  int finished = 0;
  for (int offset = 0; offset < threads; ++offset) {
    Share& share = shares_[static_cast<std::size_t>((thread + offset) % threads)];
    for (int chunk; (chunk = take(share, offset == 0)) >= 0; ++finished) body_(context_, chunk);
  }
  if (finished > 0 && pending_.fetch_sub(finished) == finished && caller_sleeps_.load()) pending_.notify_one();
}

void Pool::wait_for_chunks() {
  if (spin([&] { return pending_.load(std::memory_order_acquire) == 0; })) return;
  caller_sleeps_.store(true);
  for (int pending; (pending = pending_.load()) != 0;) pending_.wait(pending);
  caller_sleeps_.store(false);
}

Pool::Call::Call(Pool& pool) : float_control_(_mm_getcsr()) {
  _mm_setcsr(default_float_control);
  pool.wake();
}

Pool::Call::~Call() { _mm_setcsr(float_control_); }

}  // namespace tane
