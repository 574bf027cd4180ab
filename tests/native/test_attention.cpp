// Attention against float64, against itself in every split, and against what must not be read.
#include <limits>
#include <thread>
#include <utility>

#include "attention_case.hpp"
#include "vector_math.hpp"

using namespace tane;
using test::AttentionCase;
using test::same_bits;

namespace {

struct Shape {
  int heads, kv_heads, width;
};

constexpr Shape shapes[] = {{9, 3, 64},  {4, 4, 8},   {8, 1, 16},  {7, 1, 40},  {14, 2, 64}, {6, 3, 80},
                            {32, 8, 64}, {4, 2, 128}, {13, 1, 24}, {2, 1, 256}, {32, 1, 72}};
constexpr KvType types[] = {KvType::int8, KvType::float16};

double distance(const std::vector<double>& expected, const float* actual) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::fabs(expected[i] - actual[i]));
  return worst;
}

std::vector<float> part(const std::vector<float>& all, std::size_t begin, std::size_t count) {
  return {all.begin() + begin, all.begin() + begin + count};
}

}  // namespace

// Values are of size one. int8: the rounding of the query and of the weights; float16: float32 arithmetic.
TEST(attention_is_that_of_float64_over_the_same_pages) {
  for (const KvType type : types) {
    double worst = 0;
    for (const Shape& shape : shapes) {
      const AttentionCase all(shape.heads, shape.kv_heads, shape.width, 300, type, 1);
      for (const int t : {0, 1, 7, 31, 32, 127, 128, 256, 299}) {
        const std::vector<float> outputs = all.attend(attention_scalar(), t, 1, 1);
        for (int head = 0; head < shape.heads; head += 1 + shape.heads / 8) {
          worst = std::max(worst, distance(all.plain(t, head), &outputs[head * shape.width]));
        }
      }
    }
    std::printf("  %s pages: %.2e\n", type == KvType::int8 ? "int8" : "float16", worst);
    CHECK(worst < (type == KvType::int8 ? 4e-4 : 2e-6));
  }
}

TEST(sharp_and_flat_distributions_are_those_of_float64) {
  for (const KvType type : types) {
    for (const float spread : {0.0f, 0.01f, 8.0f, 60.0f}) {
      const AttentionCase all(9, 3, 64, 400, type, 2, spread);
      const std::vector<float> outputs = all.attend(attention_avx2(), 399, 1, 1);
      for (int head = 0; head < 9; ++head) {
        const double error = distance(all.plain(399, head), &outputs[head * 64]);
        CHECK(error < (type == KvType::int8 ? 2e-4 : 1e-6) * (1 + spread * spread / 8));
      }
    }
  }
}

TEST(vectors_give_the_bits_of_the_scalar_definition) {
  for (const KvType type : types) {
    for (const Shape& shape : shapes) {
      for (const float spread : {0.3f, 6.0f}) {
        const AttentionCase all(shape.heads, shape.kv_heads, shape.width, 290, type, 3, spread);
        for (const auto& [start, count] : {std::pair{0, 18}, {31, 3}, {121, 12}, {277, 13}}) {
          CHECK(same_bits(all.attend(attention_scalar(), start, count, count),
                          all.attend(attention_avx2(), start, count, count)));
        }
        const std::vector<float> expected = all.attend(attention_scalar(), 289, 1, 1);
        CHECK(same_bits(expected, all.attend_blocks(attention_avx2(), 289, 1)));
        CHECK(same_bits(expected, all.attend_blocks(attention_scalar(), 289, 2)));
      }
    }
  }
}

TEST(no_split_of_the_rows_changes_a_bit) {
  for (const KvType type : types) {
    for (const Shape& shape : {shapes[0], shapes[4], shapes[8]}) {
      const AttentionCase all(shape.heads, shape.kv_heads, shape.width, 280, type, 4);
      const std::vector<float> expected = all.attend(attention_avx2(), 0, 280, 280);
      for (const int step : {1, 2, 3, 7, 16, 33, 128}) CHECK(same_bits(expected, all.attend(attention_avx2(), 0, 280, step)));
      for (int start = 0; start < 280; start += 1 + start / 7) {  // a cached prefix of any length, then one chunk
        const std::vector<float> rest = all.attend(attention_avx2(), start, 280 - start, 64);
        CHECK(same_bits(part(expected, static_cast<std::size_t>(start) * all.row_numbers(), rest.size()), rest));
      }
    }
  }
}

TEST(no_split_of_the_blocks_changes_a_bit) {
  for (const KvType type : types) {
    const AttentionCase all(9, 3, 64, 1500, type, 5);
    for (const int t : {0, 127, 128, 129, 255, 256, 800, 1499}) {
      const std::vector<float> expected = all.attend(attention_scalar(), t, 1, 1);
      for (const int step : {1, 2, 3, 5, 100}) CHECK(same_bits(expected, all.attend_blocks(attention_avx2(), t, step)));
    }
  }
}

TEST(threads_that_share_the_work_give_the_same_bits) {
  const AttentionCase all(9, 3, 64, 700, KvType::int8, 6);
  const std::vector<float> expected = all.attend(attention_avx2(), 500, 200, 200);
  std::vector<float> outputs(200 * all.row_numbers());
  std::vector<std::thread> threads;
  for (int head = 0; head < 3; ++head) {
    threads.emplace_back([&, head] {
      for (int row = 0; row < 200; row += 16)
        attention_avx2().attend(all.pages, 1, 3, all.rows(500, outputs), row, std::min(row + 16, 200), head);
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(same_bits(expected, outputs));

  const int blocks = block_count(699);
  std::vector<float> partials(3 * blocks * 3 * partial_floats(64)), last(all.row_numbers());
  threads.clear();
  for (int piece = 0; piece < 3 * blocks; ++piece) {
    threads.emplace_back([&, piece] {
      float* const of_head = partials.data() + piece / blocks * blocks * 3 * partial_floats(64);
      attention_avx2().attend_blocks(all.pages, 1, 3, all.rows(699, last), 0, piece / blocks, piece % blocks,
                                     piece % blocks + 1, of_head);
    });
  }
  for (auto& thread : threads) thread.join();
  for (int head = 0; head < 3; ++head) {
    attention_avx2().combine(partials.data() + head * blocks * 3 * partial_floats(64), blocks, 3, 64,
                             last.data() + head * 3 * 64);
  }
  CHECK(same_bits(part(expected, 199 * all.row_numbers(), all.row_numbers()), last));
}

// Positions after a row's own are poisoned in the pool from the start; here they are also filled with every kind of number.
TEST(what_stands_after_a_row_never_shows) {
  for (const KvType type : types) {
    for (const Shape& shape : {shapes[0], shapes[3], shapes[5]}) {
      AttentionCase all(shape.heads, shape.kv_heads, shape.width, 160, type, 7);
      const std::vector<float> expected = all.attend(attention_avx2(), 0, 160, 160);
      const int numbers = shape.kv_heads * shape.width;
      for (const float filler :
           {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30f, 0.0f}) {
        for (int t = 159; t > 120; --t) {
          all.store(t, std::vector<float>(numbers, filler), std::vector<float>(numbers, filler));
          const std::vector<float> seen = part(expected, 0, static_cast<std::size_t>(t) * all.row_numbers());
          CHECK(same_bits(seen, all.attend(attention_avx2(), 0, t, t)));
        }
        all = AttentionCase(shape.heads, shape.kv_heads, shape.width, 160, type, 7);
      }
    }
  }
}

TEST(a_row_that_is_not_finite_fails_itself_and_later_rows_alone) {
  for (const KvType type : types) {
    for (const bool in_key : {true, false}) {
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        AttentionCase all(9, 3, 64, 200, type, 8);
        const std::vector<float> expected = all.attend(attention_avx2(), 0, 200, 200);
        std::vector<float> keys(3 * 64, 0.5f), values(3 * 64, 0.25f);
        (in_key ? keys : values)[64 + 5] = bad;  // in the second key/value head
        all.store(151, keys, values);            // row 150 shares its loads with this one
        const std::vector<float> outputs = all.attend(attention_avx2(), 0, 200, 200);
        CHECK(same_bits(part(expected, 0, 151 * 576), part(outputs, 0, 151 * 576)));
        for (int t = 151; t < 200; ++t) {
          for (int head = 3; head < 6; ++head) {
            CHECK(std::isnan(outputs[t * 576 + head * 64 + 5]));
            CHECK(std::isnan(outputs[t * 576 + head * 64]) == (in_key || type == KvType::int8));
          }
        }
        CHECK(same_bits(part(outputs, 148 * 576, 5 * 576), all.attend(attention_scalar(), 148, 5, 5)));
      }
    }
    AttentionCase all(9, 3, 64, 50, type, 9);
    all.queries[40 * 576 + 64 + 3] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> outputs = all.attend(attention_avx2(), 0, 50, 50);
    for (int i = 0; i < 50 * 576; ++i) CHECK(std::isnan(outputs[i]) == (i / 576 == 40 && i % 576 / 64 == 1));
  }
}

TEST(a_sink_with_small_values_leaves_the_others_their_digits) {
  AttentionCase all(9, 3, 64, 256, KvType::int8, 10, 0.05f);
  std::vector<float> keys(3 * 64), values(3 * 64, 1e-3f);
  for (int i = 0; i < 3 * 64; ++i)
    keys[i] = all.queries[255 * 576 + i / 64 * 192 + i % 64] * 3000;  // the score of head 0 is high
  all.store(0, keys, values);
  const std::vector<float> outputs = all.attend(attention_avx2(), 255, 1, 1);
  for (int head = 0; head < 9; head += 3) CHECK(distance(all.plain(255, head), &outputs[head * 64]) < 2e-5);
}

TEST(the_longest_context_is_exact_in_every_form) {
  for (const KvType type : types) {
    const AttentionCase all(9, 3, 64, 8192, type, 11);
    const std::vector<float> expected = all.attend(attention_scalar(), 8191, 1, 1);
    CHECK(same_bits(expected, all.attend(attention_avx2(), 8191, 1, 1)));
    CHECK(same_bits(expected, all.attend_blocks(attention_avx2(), 8191, 7)));
    CHECK(distance(all.plain(8191, 4), &expected[4 * 64]) < (type == KvType::int8 ? 1e-4 : 1e-6));
  }
}

TEST(a_window_is_that_of_float64_over_the_same_pages) {
  for (const KvType type : types) {
    double worst = 0;
    for (const Shape& shape : shapes) {
      AttentionCase all(shape.heads, shape.kv_heads, shape.width, 500, type, 13);
      for (const int window : {1, 2, 31, 100, 128, 300}) {
        all.window = window;
        for (const int t : {0, 30, 99, 127, 128, 255, 400, 499}) {
          const std::vector<float> outputs = all.attend(attention_scalar(), t, 1, 1);
          for (int head = 0; head < shape.heads; head += 1 + shape.heads / 4) {
            worst = std::max(worst, distance(all.plain(t, head), &outputs[head * shape.width]));
          }
        }
      }
    }
    std::printf("  %s pages: %.2e\n", type == KvType::int8 ? "int8" : "float16", worst);
    CHECK(worst < (type == KvType::int8 ? 4e-4 : 2e-6));
  }
}

TEST(vectors_and_every_split_of_a_window_give_the_bits_of_the_scalar_definition) {
  for (const KvType type : types) {
    for (const Shape& shape : {shapes[0], shapes[3], shapes[8], shapes[9], shapes[10], Shape{4, 1, 256}}) {
      AttentionCase all(shape.heads, shape.kv_heads, shape.width, 420, type, 14, 3.0f);
      for (const int window : {1, 5, 8, 33, 127, 128, 129, 200, 419, 420}) {
        all.window = window;
        const std::vector<float> expected = all.attend(attention_scalar(), 0, 420, 420);
        for (const int step : {1, 7, 48, 420}) CHECK(same_bits(expected, all.attend(attention_avx2(), 0, 420, step)));
        for (const int t : {0, 128, 254, 300, 419}) {
          const std::vector<float> row = part(expected, static_cast<std::size_t>(t) * all.row_numbers(), all.row_numbers());
          CHECK(same_bits(row, all.attend(attention_avx2(), t, 1, 1)));
          for (const AttentionKernels* kernels : {&attention_scalar(), &attention_avx2()}) {
            for (const int step : {1, 3}) CHECK(same_bits(row, all.attend_blocks(*kernels, t, step)));
          }
        }
      }
    }
  }
}

TEST(a_window_of_the_whole_context_is_none) {
  for (const KvType type : types) {
    AttentionCase all(9, 3, 64, 300, type, 15);
    const std::vector<float> expected = all.attend(attention_avx2(), 0, 300, 16);
    all.window = 300;
    for (const AttentionKernels* kernels : {&attention_scalar(), &attention_avx2()}) {
      CHECK(same_bits(expected, all.attend(*kernels, 0, 300, 16)));
    }
  }
}

TEST(what_stands_before_a_window_never_shows) {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const KvType type : types) {
    for (const Shape& shape : {shapes[0], shapes[3], shapes[9]}) {
      for (const int window : {1, 40, 140}) {
        AttentionCase all(shape.heads, shape.kv_heads, shape.width, 330, type, 16);
        all.window = window;
        const int numbers = shape.kv_heads * shape.width, start = 290;
        const std::vector<float> expected = all.attend(attention_avx2(), start, 40, 40);
        for (int t = 0; t <= start - window; ++t) {
          const float filler = t % 3 == 0 ? infinity : t % 3 == 1 ? nan : 1e30f;
          all.store(t, std::vector<float>(numbers, filler), std::vector<float>(numbers, filler));
        }
        for (const AttentionKernels* kernels : {&attention_scalar(), &attention_avx2()}) {
          CHECK(same_bits(expected, all.attend(*kernels, start, 40, 16)));
          CHECK(same_bits(part(expected, 0, all.row_numbers()), all.attend_blocks(*kernels, start, 1)));
        }
      }
    }
  }
}

// A page table entry that leads nowhere: the sanitizers would see a read.
TEST(pages_before_a_window_are_not_touched) {
  for (const KvType type : types) {
    AttentionCase all(4, 1, 256, 400, type, 17);
    all.window = 70;
    const std::vector<float> expected = all.attend(attention_scalar(), 399, 1, 1);
    for (int page = 0; page < (399 - 69) / page_positions; ++page) all.table[page] = 1 << 20;
    for (const AttentionKernels* kernels : {&attention_scalar(), &attention_avx2()}) {
      CHECK(same_bits(expected, all.attend(*kernels, 399, 1, 1)));
      CHECK(same_bits(expected, all.attend_blocks(*kernels, 399, 1)));
    }
  }
}

TEST(scores_are_scaled_as_asked) {
  for (const KvType type : types) {
    AttentionCase all(4, 1, 256, 200, type, 18);
    all.scale = 0.11;
    const std::vector<float> outputs = all.attend(attention_scalar(), 199, 1, 1);
    for (int head = 0; head < 4; ++head) CHECK(distance(all.plain(199, head), &outputs[head * 256]) < 1e-3);
    CHECK(same_bits(outputs, all.attend(attention_avx2(), 199, 1, 1)));
  }
}

// The greatest codes of all: 256 keys of 127 times 32,767 stay far below 2³¹.
TEST(sums_of_the_widest_heads_stay_in_their_integers) {
  AttentionCase all(1, 1, 256, 130, KvType::int8, 19);
  for (auto& q : all.queries) q = 1.0f;
  for (int t = 0; t < 130; ++t) all.store(t, std::vector<float>(256, t % 2 == 0 ? 1.0f : -1.0f), std::vector<float>(256, 1.0f));
  for (const AttentionKernels* kernels : {&attention_scalar(), &attention_avx2()}) {
    for (const float o : all.attend(*kernels, 129, 1, 1)) CHECK(std::fabs(o - 1.0f) < 1e-4f);
  }
}

// What models with no scale of their own multiply by is log₂e/√D rounded once, however it is handed over.
TEST(the_usual_scale_is_rounded_once) {
  for (int width = 8; width <= 256; width += 8) {
    const float expected = static_cast<float>(log2_e_double / std::sqrt(double(width)));
    CHECK(same_bits(expected, score_factor(1 / std::sqrt(double(width)))));
  }
}

TEST(empty_work_writes_nothing) {
  const AttentionCase all(9, 3, 64, 10, KvType::int8, 12);
  std::vector<float> outputs(576, -7.0f);
  for (const AttentionKernels* kernels : {&attention_scalar(), &attention_avx2()}) {
    kernels->attend(all.pages, 1, 3, all.rows(9, outputs), 0, 0, 0);
    kernels->attend_blocks(all.pages, 1, 3, all.rows(9, outputs), 0, 0, 0, 0, nullptr);
  }
  CHECK(same_bits(std::vector<float>(576, -7.0f), outputs));
}

TEST(shapes_that_no_kernel_fits_are_refused) {
  CHECK(attention_supports(9, 3, 64) && attention_supports(32, 1, 256) && attention_supports(1, 1, 8));
  CHECK(!attention_supports(9, 2, 64) && !attention_supports(33, 1, 64) && !attention_supports(8, 8, 20));
  CHECK(!attention_supports(8, 8, 264) && !attention_supports(8, 8, 0) && !attention_supports(0, 1, 64) &&
        !attention_supports(4, 0, 64));
}
