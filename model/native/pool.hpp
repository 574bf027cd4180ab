// A fixed set of threads that runs one piece of work at a time, cut into chunks.
//
// Knows nothing of the work. A chunk runs exactly once, on any thread, so bits may depend on the chunk but never on the thread.
// The calling thread works too; with one thread there are no workers and a chunk is a plain call.
//
// Each thread begins with an equal part of consecutive chunks and takes them one by one in order, which touches no other
// thread's memory; one that is through takes from the far end of the others' parts. So memory is read in order, and a thread
// that lost its core delays the rest by the chunk it holds and no more.
//
// Waiting is a short spin, then sleep, on both sides. Between runs of one call a worker that spins answers at once; one that
// sleeps costs nothing. When another process takes a core, whoever holds the last chunk may be off its core for milliseconds:
// the caller then sleeps rather than spins, its core goes idle, and the scheduler moves the stopped thread there.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace tane {

class Pool {
 public:
  using Body = void (*)(void* context, int chunk);  // must not throw and must not use the pool

  explicit Pool(int threads);  // at least 1, the caller included
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // body(context, chunk) once for each chunk in [0, chunks); back when all are done. One caller at a time.
  void run(int chunks, Body body, void* context);

  template <typename Function>
  void run(int chunks, const Function& function) {
    run(chunks, [](void* context, int chunk) { (*static_cast<const Function*>(context))(chunk); },
        const_cast<Function*>(&function));
  }

  // Lives as long as a call that makes several runs: wakes the workers ahead of the first one, and sees to it that floats are
  // rounded to nearest, subnormals kept, whatever the calling thread had set; its setting comes back at the end.
  class Call {
   public:
    explicit Call(Pool& pool);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    unsigned float_control_;
  };

 private:
  struct alignas(64) Share {  // chunks [begin, end) that are left of one thread's part of a run: begin << 32 | end
    std::atomic<std::uint64_t> left{0};
  };

  void work(int thread);
  void stop();
  void take_chunks(int thread);
  int take(Share& share, bool own);
  void wake();
  std::uint32_t wait_for_run(std::uint32_t seen);
  void wait_for_chunks();

  std::vector<Share> shares_;
  Body body_ = nullptr;  // these two belong to the run whose chunks are in shares_
  void* context_ = nullptr;
  alignas(64) std::atomic<int> pending_{0};  // chunks of this run that are not known to be finished
  std::atomic<bool> caller_sleeps_{false};
  alignas(64) std::atomic<std::uint32_t> run_{0};  // grows with each run and each wake
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stopped_{false};
  std::vector<std::thread> workers_;
};

}  // namespace tane
