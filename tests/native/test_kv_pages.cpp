// What pages hold after a store and a copy, and what they leave alone.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <thread>

#include "harness.hpp"
#include "kv_pages.hpp"

using namespace tane;

namespace {

constexpr KvType types[] = {KvType::int8, KvType::float16};

struct Pool {
  std::vector<std::byte> storage;
  KvPages pages;

  Pool(KvType type, int layers, int kv_heads, int width, int count) {
    const KvShape shape{type, layers, kv_heads, width, count};
    storage.resize(shape.total_bytes() + 64);
    pages = {shape, storage.data() + (64 - reinterpret_cast<std::uintptr_t>(storage.data()) % 64) % 64};
    for (int page = 0; page < count; ++page) poison(pages, page);
  }

  std::vector<std::byte> bytes() const { return {pages.memory, pages.memory + pages.shape.total_bytes()}; }

  double number(bool value, int layer, int page, int head, int j, int i) const {
    const KvHead at = pages.head(layer, page, head);
    const int width = pages.shape.head_width;
    if (pages.shape.type == KvType::float16)
      return float32_of(value ? at.float16_values()[j * width + i] : at.float16_keys()[i * 32 + j]);
    return value ? double{at.value_scales()[j]} * at.int8_values()[(j / 2 * width + i) * 2 + j % 2]
                 : double{at.key_scales()[j]} * at.int8_keys()[(i / 2 * 32 + j) * 2 + i % 2];
  }
};

std::vector<float> numbers(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> all(count);
  for (auto& x : all) x = normal(random);
  return all;
}

}  // namespace

TEST(what_is_stored_is_what_is_read_up_to_rounding) {
  for (const KvType type : types) {
    for (const int width : {8, 24, 64, 80, 256}) {
      Pool pool(type, 2, 3, width, 2);
      for (int j = 0; j < 32; ++j) {
        const std::vector<float> keys = numbers(3 * width, j), values = numbers(3 * width, j + 100);
        kv_scalar().store(pool.pages, 1, 1, j, keys.data(), values.data());
        for (int head = 0; head < 3; ++head) {
          for (const bool value : {false, true}) {
            const float* x = (value ? values : keys).data() + head * width;
            float top = 0;
            for (int i = 0; i < width; ++i) top = std::max(top, std::fabs(x[i]));
            for (int i = 0; i < width; ++i) {
              const double error = std::fabs(pool.number(value, 1, 1, head, j, i) - x[i]);
              CHECK(error <= (type == KvType::int8 ? top / 254 * 1.0001 : std::max(std::fabs(x[i]) * 0x1p-11, 0x1p-25)));
            }
          }
        }
      }
    }
  }
}

TEST(vectors_store_the_bytes_of_the_scalar_definition) {
  constexpr float special[] = {
      0.0f,     -0.0f, 1e-40f, 3e38f, 7e4f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
      0x1p-101f};
  for (const KvType type : types) {
    for (const int width : {8, 16, 40, 64, 128, 256}) {
      Pool scalar(type, 1, 2, width, 1), vectors(type, 1, 2, width, 1);
      for (int j = 0; j < 32; ++j) {
        std::vector<float> keys = numbers(2 * width, j), values = numbers(2 * width, j + 50);
        if (j % 3 == 1) keys[width / 2] = values[width + 1] = special[j / 3 % std::size(special)];
        if (j % 7 == 2) std::fill(keys.begin(), keys.begin() + width, special[j % std::size(special)]);
        if (j % 5 == 4) std::fill(values.begin(), values.end(), 0x1p-104f);
        kv_scalar().store(scalar.pages, 0, 0, j, keys.data(), values.data());
        kv_avx2().store(vectors.pages, 0, 0, j, keys.data(), values.data());
      }
      CHECK(scalar.bytes() == vectors.bytes());
    }
  }
}

TEST(a_vector_that_is_not_finite_has_a_nan_scale_and_no_codes) {
  Pool pool(KvType::int8, 1, 2, 64, 1);
  std::vector<float> keys(128, 1.0f), values(128, 0.0f);
  keys[70] = std::numeric_limits<float>::infinity();
  kv_avx2().store(pool.pages, 0, 0, 5, keys.data(), values.data());
  CHECK(pool.pages.head(0, 0, 0).key_scales()[5] == 1.0f / 127.0f);
  CHECK(std::isnan(pool.pages.head(0, 0, 1).key_scales()[5]));
  CHECK(pool.pages.head(0, 0, 1).value_scales()[5] == 0.0f);
  for (int i = 0; i < 64; ++i) CHECK(pool.pages.head(0, 0, 1).int8_keys()[(i / 2 * 32 + 5) * 2 + i % 2] == 0);
}

// The bytes of a store at one position differ from what stood there in that position alone.
TEST(a_store_writes_one_position_of_one_page_of_one_layer) {
  for (const KvType type : types) {
    for (const KvKernels* kernels : {&kv_scalar(), &kv_avx2()}) {
      Pool pool(type, 2, 2, 24, 3), once(type, 2, 2, 24, 3);
      const std::vector<float> keys = numbers(48, 1), values = numbers(48, 2);
      for (int j = 0; j < 32; ++j) kernels->store(pool.pages, 1, 2, j, keys.data(), values.data());
      kernels->store(once.pages, 1, 2, 7, keys.data(), values.data());
      const std::size_t begin = pool.pages.shape.layer_bytes() + 2 * pool.pages.shape.page_bytes();
      std::vector<std::byte> untouched = once.bytes();
      const std::vector<std::byte> poisoned = Pool(type, 2, 2, 24, 3).bytes();
      CHECK(std::equal(untouched.begin(), untouched.begin() + begin, poisoned.begin()));
      std::size_t changed = 0;
      for (std::size_t i = begin; i < untouched.size(); ++i) changed += untouched[i] != poisoned[i];
      CHECK(changed <= pool.pages.shape.page_bytes() / 32 && changed > pool.pages.shape.page_bytes() / 64);
      for (int j = 31; j >= 0; --j) {  // every other position still reads as before
        if (j != 7) kernels->store(once.pages, 1, 2, j, keys.data(), values.data());
      }
      CHECK(pool.bytes() == once.bytes());
    }
  }
}

TEST(positions_of_a_page_may_be_stored_by_different_threads) {
  for (const KvType type : types) {
    Pool together(type, 1, 3, 64, 1), apart(type, 1, 3, 64, 1);
    const auto store = [](Pool& pool, int j) {
      kv_avx2().store(pool.pages, 0, 0, j, numbers(192, j).data(), numbers(192, j + 40).data());
    };
    for (int j = 0; j < 32; ++j) store(apart, j);
    std::vector<std::thread> threads;
    for (int first = 0; first < 4; ++first) {
      threads.emplace_back([&, first] {
        for (int j = first; j < 32; j += 4) store(together, j);
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(together.bytes() == apart.bytes());
  }
}

TEST(a_copy_takes_the_first_positions_of_every_layer_and_no_other) {
  for (const KvType type : types) {
    for (int count = 0; count <= 32; ++count) {
      Pool pool(type, 3, 2, 40, 4), expected(type, 3, 2, 40, 4);
      for (int layer = 0; layer < 3; ++layer) {
        for (int j = 0; j < 32; ++j) {
          const std::vector<float> keys = numbers(80, 32 * layer + j), values = numbers(80, 500 + 32 * layer + j);
          kv_scalar().store(pool.pages, layer, 2, j, keys.data(), values.data());
          kv_scalar().store(expected.pages, layer, 2, j, keys.data(), values.data());
          if (j < count) kv_scalar().store(expected.pages, layer, 1, j, keys.data(), values.data());
        }
      }
      copy_positions(pool.pages, 2, 1, count);
      CHECK(pool.bytes() == expected.bytes());
      copy_positions(pool.pages, 2, 2, count);
      CHECK(pool.bytes() == expected.bytes());
    }
  }
}

TEST(sizes_are_those_of_the_layout) {
  constexpr KvShape int8{KvType::int8, 30, 3, 64, 10}, half{KvType::float16, 30, 3, 64, 10};
  CHECK(int8.head_bytes() == 2 * (32 * 64 + 128) && half.head_bytes() == 2 * 32 * 64 * 2);
  CHECK(int8.total_bytes() == int8.head_bytes() * 3 * 10 * 30);
  CHECK(kv_supports(3, 64) && kv_supports(1, 256) && !kv_supports(3, 60) && !kv_supports(0, 64) && !kv_supports(3, 264) &&
        !kv_supports(3, 0));
}
