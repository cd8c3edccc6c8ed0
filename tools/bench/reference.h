// The ranks' contributions to a collective and its expected results, computed without hvd. Pure.
//
// An element of a contribution is a pseudo-random integer, shifted by rank and round, such that every element type
// represents every result exactly:
//   moved, min, max   0 to 126 (bool: 0 or 1)
//   sum, average      0 to 3 from at most 42 ranks per element, 0 from the others: up to 126 in total
//   product           1 or -1
// Each call in place takes the result of the previous one: a sum is then multiplied by the number of ranks each time,
// so that integers wrap around; max_calls() returns how long floats stay exact. Only an average may be a fraction, and
// has a tolerance.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <hvd.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <type_traits>

namespace hvd::bench {

// Calls body with std::type_identity<T>.
template <typename Body>
auto with_type(hvd_dtype dtype, const Body& body) {
  switch (dtype) {
    case HVD_UINT8: return body(std::type_identity<std::uint8_t>());
    case HVD_INT8: return body(std::type_identity<std::int8_t>());
    case HVD_INT16: return body(std::type_identity<std::int16_t>());
    case HVD_INT32: return body(std::type_identity<std::int32_t>());
    case HVD_INT64: return body(std::type_identity<std::int64_t>());
    case HVD_FLOAT16: return body(std::type_identity<float16>());
    case HVD_BFLOAT16: return body(std::type_identity<bfloat16>());
    case HVD_FLOAT32: return body(std::type_identity<float>());
    case HVD_FLOAT64: return body(std::type_identity<double>());
    case HVD_BOOL: return body(std::type_identity<boolean>());
    case HVD_UINT16:
    case HVD_UINT32:
    case HVD_UINT64: break;
  }
  throw std::invalid_argument("no such element type");
}

// The precision of T: integers up to 2^kDigits are exact, and numbers below 2^kExponent are finite.
template <typename T>
struct FloatFormat;
template <>
struct FloatFormat<float16> {
  static constexpr int kDigits = 11, kExponent = 16;
};
template <>
struct FloatFormat<bfloat16> {
  static constexpr int kDigits = 8, kExponent = 128;
};
template <>
struct FloatFormat<float> {
  static constexpr int kDigits = 24, kExponent = 128;
};
template <>
struct FloatFormat<double> {
  static constexpr int kDigits = 53, kExponent = 1024;
};

template <typename T>
concept Float = requires { FloatFormat<T>::kDigits; };

inline constexpr std::size_t kPeriod = 1021;

// A periodic sequence of values: written to tensors and compared with results, in blocks, because that is most of a
// benchmark's work. The period is prime, so that it is aligned with no chunk, slice or tensor.
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

// Fills memory that a collective must overwrite: occurs in no result except of bool, which has no third value.
inline constexpr int kStale = 127;

inline constexpr int kMaxCalls = 20'000;

// One round of one collective. Results are computed in double or modulo 2^64, and are exact in both.
template <typename T>
class Reference {
 public:
  // Without op: the collective only moves data.
  Reference(std::optional<ReduceOp> op, int ranks, int round) : op_(op), ranks_(ranks), round_(round) {}

  Pattern<T> contribution(int rank) const { return Pattern<T>(narrow(numbers(rank))); }

  Pattern<T> reduced(int calls) const {
    Numbers result = numbers(0);
    for (int rank = 1; rank < ranks_; ++rank) {
      const Numbers other = numbers(rank);
      for (std::size_t i = 0; i < kPeriod; ++i) result[i] = fold(result[i], other[i]);
    }
    const Wide factor = growth(calls);
    for (Wide& value : result) value = op_ == average ? value / static_cast<Wide>(ranks_) : value * factor;
    if (op_ == product && calls > 1 && ranks_ % 2 == 0) result.fill(1);
    return Pattern<T>(narrow(result), op_ == average ? tolerance(calls) : 0);
  }

  static Pattern<T> stale() {
    Numbers numbers;
    numbers.fill(Wide{kStale});
    return Pattern<T>(narrow(numbers));
  }

 private:
  using Wide = std::conditional_t<Float<T>, double, std::uint64_t>;
  using Numbers = std::array<Wide, kPeriod>;

  static constexpr int kContributors = 42;

  Numbers numbers(int rank) const {
    const auto shift =
        std::size_t{131} * static_cast<std::size_t>(rank) + std::size_t{17} * static_cast<std::size_t>(round_);
    const auto stride = static_cast<std::size_t>((ranks_ + kContributors - 1) / kContributors);
    Numbers numbers;
    for (std::size_t i = 0; i < kPeriod; ++i) {
      const bool adds = (i + static_cast<std::size_t>(rank)) % stride == 0;
      numbers[i] = number((i + shift) % kPeriod, adds);
    }
    return numbers;
  }

  Wide number(std::size_t place, bool adds) const {
    const std::uint64_t random = (place + 1) * 0x9e37'79b9'7f4a'7c15u >> 32;  // 2^64 divided by the golden ratio
    if (op_ == sum || op_ == average) return static_cast<Wide>(adds ? random % 4 : 0);
    if (op_ == product) return random % 2 == 0 ? Wide{1} : Wide{0} - 1;
    return static_cast<Wide>(random % (std::same_as<T, boolean> ? 2 : kStale));
  }

  Wide fold(Wide a, Wide b) const {
    if (op_ == min) return std::min(a, b);
    if (op_ == max) return std::max(a, b);
    return op_ == product ? a * b : a + b;
  }

  // In all calls but the first, each rank contributes the same values.
  Wide growth(int calls) const {
    Wide growth = 1;
    for (int call = 1; op_ == sum && call < calls; ++call) growth *= static_cast<Wide>(ranks_);
    return growth;
  }

  // For fractions: they are rounded to T and, in each call and with each rank, to float or double.
  double tolerance(int calls) const {
    if constexpr (Float<T>) {
      using Accumulator = std::conditional_t<std::same_as<T, double>, double, float>;
      return 2 * (epsilon<T>() + calls * ranks_ * epsilon<Accumulator>());
    }
    return 0;
  }

  template <typename F>
  static double epsilon() {
    return std::ldexp(1.0, 1 - FloatFormat<F>::kDigits);
  }

  static std::array<T, kPeriod> narrow(const Numbers& numbers) {
    std::array<T, kPeriod> values;
    for (std::size_t i = 0; i < kPeriod; ++i) {
      if constexpr (std::same_as<T, boolean>) {
        values[i] = numbers[i] != 0;
      } else if constexpr (Float<T> && sizeof(T) == 2) {
        values[i] = T(static_cast<float>(numbers[i]));
      } else {
        values[i] = static_cast<T>(numbers[i]);
      }
    }
    return values;
  }

  std::optional<ReduceOp> op_;
  int ranks_;
  int round_;
};

// The number of consecutive calls whose result reduced() can compute.
template <typename T>
int max_calls(std::optional<ReduceOp> op, int ranks, bool in_place) {
  if constexpr (Float<T>) {
    if (op == sum && in_place && ranks > 1) {
      // A power of two increases only the exponent, other factors also the number of digits.
      const bool shifts = std::has_single_bit(static_cast<unsigned>(ranks));
      const int bits = shifts ? FloatFormat<T>::kExponent - 1 : FloatFormat<T>::kDigits;
      const double growth = (bits - std::log2(std::min(3 * ranks, kStale - 1))) / std::log2(ranks);
      return 1 + std::clamp(static_cast<int>(growth), 0, kMaxCalls - 1);
    }
  }
  return kMaxCalls;
}

}  // namespace hvd::bench
