// A stream of pseudo-random numbers that is the same on every rank, platform and standard library (splitmix64).
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "tests/support/random_bits.h"

namespace hvd::trace {

using testing::mix;

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mix(seed + testing::kSplitMixStep)) {}

  std::uint64_t next() { return mix(state_ += testing::kSplitMixStep); }
  // 0 to limit - 1.
  int below(int limit) { return static_cast<int>(next() % static_cast<std::uint64_t>(limit)); }
  // Both included.
  int between(int least, int most) { return least + below(most - least + 1); }
  bool one_in(int chances) { return below(chances) == 0; }

  template <typename T>
  const T& pick(std::span<const T> choices) {
    return choices[static_cast<std::size_t>(below(static_cast<int>(choices.size())))];
  }
  template <typename T, std::size_t N>
  const T& pick(const T (&choices)[N]) {
    return pick(std::span<const T>(choices));
  }

  std::vector<int> permutation(int size) {
    std::vector<int> order(static_cast<std::size_t>(size));
    std::iota(order.begin(), order.end(), 0);
    for (int i = size - 1; i > 0; --i) {
      std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(below(i + 1))]);
    }
    return order;
  }

 private:
  std::uint64_t state_;
};

}  // namespace hvd::trace
