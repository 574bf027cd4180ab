// Attention of SmolLM2-135M (30 layers, 9 heads on 3, width 64): milliseconds for one row at a context, and for a prompt of 512 rows.
// Usage: bench_attention [threads]. Layers follow one another with a barrier between them, as in a decoder. Best of many runs.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "attention.hpp"

using namespace tane;

namespace {

constexpr int layers = 30, heads = 9, kv_heads = 3, width = 64, group = heads / kv_heads;

// Runs `work(layer, item)` for every item of a layer before any of the next, items taken as threads come free.
double milliseconds(int threads, int items, const std::function<void(int, int)>& work) {
  std::vector<std::atomic<int>> taken(layers), done(layers);
  const auto worker = [&] {
    for (int layer = 0; layer < layers; ++layer) {
      for (int item; (item = taken[layer].fetch_add(1)) < items; done[layer].fetch_add(1)) work(layer, item);
      while (done[layer].load(std::memory_order_acquire) < items) __builtin_ia32_pause();
    }
  };
  std::vector<std::thread> others;
  std::atomic<int> ready{0};
  for (int i = 1; i < threads; ++i)
    others.emplace_back([&] {
      ready.fetch_add(1);
      while (ready.load() < threads) __builtin_ia32_pause();
      worker();
    });
  while (ready.load() < threads - 1) __builtin_ia32_pause();
  const auto start = std::chrono::steady_clock::now();
  ready.fetch_add(1);
  worker();
  const double elapsed = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  for (auto& other : others) other.join();
  return elapsed;
}

struct Cache {
  KvPages pages;
  std::vector<std::byte> memory;
  std::vector<std::int32_t> table;
  std::vector<float> queries, outputs, partials;

  Cache(KvType type, int positions) {
    const int count = (positions + page_positions - 1) / page_positions;
    const KvShape shape{type, layers, kv_heads, width, count};
    memory.resize(shape.total_bytes() + 64);
    pages = {shape, memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64};
    for (int page = 0; page < count; ++page) table.push_back((page * 7 + 3) % count);  // a permutation unless 7 divides
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> row(kv_heads * width);
    for (auto& x : row) x = normal(random);
    for (int layer = 0; layer < layers; ++layer) {
      for (int t = 0; t < count * page_positions; ++t) {
        row[t % row.size()] = normal(random);
        kv_avx2().store(pages, layer, t / page_positions, t % page_positions, row.data(), row.data());
      }
    }
    queries.resize(512 * heads * width);
    for (auto& q : queries) q = normal(random);
    outputs.resize(queries.size());
    partials.resize(kv_heads * (positions / block_positions + 1) * group * partial_floats(width));
  }
};

double decode(Cache& cache, int threads, int position) {
  const AttentionRows rows{cache.queries.data(), heads * width,      cache.outputs.data(),
                           heads * width,        cache.table.data(), position,
                           score_factor(1 / std::sqrt(double(width)))};
  const int blocks = block_count(position);
  if (blocks == 1) {
    return milliseconds(threads, kv_heads,
                        [&](int layer, int head) { attention_avx2().attend(cache.pages, layer, group, rows, 0, 1, head); });
  }
  const int each = 2, pieces = (blocks + each - 1) / each;
  const std::size_t head_floats = blocks * group * partial_floats(width);
  return milliseconds(threads, kv_heads * pieces, [&](int layer, int item) {
    const int head = item % kv_heads, first = item / kv_heads * each;
    attention_avx2().attend_blocks(cache.pages, layer, group, rows, 0, head, first, std::min(first + each, blocks),
                                   cache.partials.data() + head * head_floats);
    if (first == 0) {  // stands for the combination after the barrier: the same work
      attention_avx2().combine(cache.partials.data() + head * head_floats, blocks, group, width,
                               cache.outputs.data() + head * group * width);
    }
  });
}

double prefill(Cache& cache, int threads, int count, int start) {
  const AttentionRows rows{cache.queries.data(), heads * width, cache.outputs.data(), heads * width, cache.table.data(), start, score_factor(1 / std::sqrt(double(width)))};
  constexpr int each = 16;
  const int tiles = (count + each - 1) / each;
  return milliseconds(threads, kv_heads * tiles, [&](int layer, int item) {
    const int first = (tiles - 1 - item / kv_heads) * each;  // the longest first
    attention_avx2().attend(cache.pages, layer, group, rows, first, std::min(first + each, count), item % kv_heads);
  });
}

template <typename Run>
double best(int runs, Run run) {
  double least = 1e9;
  for (int i = 0; i < runs; ++i) least = std::min(least, run());
  return least;
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 1;
  for (const KvType type : {KvType::int8, KvType::float16}) {
    const char* name = type == KvType::int8 ? "int8" : "float16";
    for (const int context : {16, 128, 256, 512, 1024, 2048, 4096, 8000}) {
      Cache cache(type, context);
      const double ms = best(12, [&] { return decode(cache, threads, context - 1); });
      const double bytes = double(cache.pages.shape.head_bytes()) / page_positions * kv_heads * layers * context;
      std::printf("%-7s one row at %4d: %7.3f ms  %5.1f G multiply-adds/s  %5.1f GB/s\n", name, context, ms,
                  2.0 * layers * heads * width * context / ms * 1e-6, bytes / ms * 1e-6);
    }
    for (const int start : {0, 1024, 4096}) {
      Cache cache(type, start + 512);
      const double ms = best(5, [&] { return prefill(cache, threads, 512, start); });
      std::printf("%-7s 512 rows from %4d: %7.2f ms  %5.1f G multiply-adds/s\n", name, start, ms,
                  2.0 * layers * heads * width * 512 * (start + 256.5) / ms * 1e-6);
    }
  }
}
