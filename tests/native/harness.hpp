// A test harness in one header: `TEST(name) { CHECK(condition); }`, one program per file, `main` included.
// It runs every test of the file, or those whose names contain the first argument, and exits with 1 when one failed.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

namespace tane::test {

struct Case {
  const char* name;
  void (*body)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Registration {
  Registration(const char* name, void (*body)()) { cases().push_back({name, body}); }
};

// Reports the first few failures of a test in full and counts the rest.
inline bool check(bool holds, const char* condition, const char* file, int line) {
  if (!holds && ++failures() <= 20) std::printf("%s:%d: does not hold: %s\n", file, line, condition);
  return holds;
}

// The same bits; NaNs count as the same whatever their payload, which no instruction set promises.
inline bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}
inline bool same_bits(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}
template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) return false;
  }
  return true;
}

}  // namespace tane::test

#define TEST(name)                                                         \
  static void name();                                                      \
  static const ::tane::test::Registration registration_of_##name{#name, name}; \
  static void name()

#define CHECK(...) ::tane::test::check((__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)

int main(int count, char** arguments) {
  int run = 0, failed = 0;
  for (const auto& test : tane::test::cases()) {
    if (count > 1 && std::strstr(test.name, arguments[1]) == nullptr) continue;
    const int before = tane::test::failures();
    test.body();
    ++run;
    if (tane::test::failures() != before) {
      ++failed;
      std::printf("FAILED %s\n", test.name);
    }
  }
  std::printf("%d tests, %d failed\n", run, failed);
  return failed == 0 ? 0 : 1;
}
