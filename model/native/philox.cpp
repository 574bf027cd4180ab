#include "philox.hpp"

namespace tane {
namespace {

constexpr int rounds = 10;
constexpr std::uint64_t multiplier0 = 0xD2E7470EE14C6C93u;
constexpr std::uint64_t multiplier1 = 0xCA5A826395121157u;
constexpr std::uint64_t weyl0 = 0x9E3779B97F4A7C15u;
constexpr std::uint64_t weyl1 = 0xBB67AE8584CAA73Bu;

struct Product {
  std::uint64_t high, low;
};

Product multiply(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return {static_cast<std::uint64_t>(product >> 64), static_cast<std::uint64_t>(product)};
}

}  // namespace

Counter philox4x64(Key key, Counter counter) {
  for (int round = 0; round < rounds; ++round) {
    const Product first = multiply(multiplier0, counter[0]);
    const Product second = multiply(multiplier1, counter[2]);
    counter = {second.high ^ counter[1] ^ key[0], second.low, first.high ^ counter[3] ^ key[1], first.low};
    key[0] += weyl0;
    key[1] += weyl1;
  }
  return counter;
}

double philox_uniform(std::uint64_t seed, std::uint64_t sample, std::uint64_t position) {
  const Counter block = philox4x64({seed, sample}, {position, 0, 0, 0});
  return static_cast<double>(block[0] >> 11) * 0x1.0p-53;
}

}  // namespace tane
