// A periodic sequence of values: written to tensors and compared with results, in blocks, because that is most of a
// benchmark's work. The period is prime, so that it is aligned with no chunk, slice or tensor. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

namespace hvd::bench {

inline constexpr std::size_t kPeriod = 1021;

template <typename T>
class Pattern {
 public:
  // A value is correct if it differs by at most `tolerance` times the expected one.
  explicit Pattern(const std::array<T, kPeriod>& values, double tolerance = 0)
      : values_(values), tolerance_(tolerance) {}

  // Writes the values from index `first` on.
  void write(std::span<T> target, std::int64_t first) const {
    for_blocks(target.size(), first, [&](std::size_t done, std::span<const T> block) {
      std::memcpy(target.data() + done, block.data(), block.size_bytes());
    });
  }

  // Counts the values that differ from those from index `first` on.
  std::int64_t count_errors(std::span<const T> values, std::int64_t first) const {
    std::int64_t errors = 0;
    for_blocks(values.size(), first, [&](std::size_t done, std::span<const T> block) {
      const T* actual = values.data() + done;
      if (std::memcmp(actual, block.data(), block.size_bytes()) == 0) return;
      for (std::size_t i = 0; i < block.size(); ++i) errors += is_right(actual[i], block[i]) ? 0 : 1;
    });
    return errors;
  }

 private:
  template <typename Visit>
  void for_blocks(std::size_t count, std::int64_t first, const Visit& visit) const {
    for (std::size_t done = 0; done < count;) {
      const std::size_t start = (static_cast<std::size_t>(first) + done) % kPeriod;
      const std::size_t length = std::min(kPeriod - start, count - done);
      visit(done, std::span(values_).subspan(start, length));
      done += length;
    }
  }

  bool is_right(T actual, T expected) const {
    if (tolerance_ == 0) return actual == expected;
    const auto wanted = static_cast<double>(expected);
    return std::abs(static_cast<double>(actual) - wanted) <= tolerance_ * std::abs(wanted);  // false for NaN
  }

  std::array<T, kPeriod> values_;
  double tolerance_;
};

}  // namespace hvd::bench
