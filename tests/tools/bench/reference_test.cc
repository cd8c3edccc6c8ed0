// What the benchmark takes for right, against plain loops in the element type itself.
#include "tools/bench/reference.h"

#include <vector>

#include "tests/support/catch.h"
#include "tools/bench/command_line.h"

namespace hvd::bench {
namespace {

constexpr std::size_t kElements = 2500;  // more than two periods
constexpr std::int64_t kFirst = 700;

template <typename T>
std::vector<T> written(const Pattern<T>& pattern, std::int64_t first = kFirst) {
  std::vector<T> values(kElements);
  pattern.write(values, first);
  return values;
}

// In which hvd adds: 16-bit floats in float, all others in their own type.
template <typename T>
using Accumulator = std::conditional_t<Float<T> && sizeof(T) == 2, float, T>;

// Integers wrap round, in an unsigned type, because C++ does not define it for the signed ones.
template <typename A>
using Unsigned = std::conditional_t<std::integral<A>, std::uint64_t, A>;

template <typename T>
T one_call(ReduceOp op, const std::vector<T>& of_ranks) {
  using A = Accumulator<T>;
  A result = static_cast<A>(of_ranks[0]);
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
    const A other = static_cast<A>(of_ranks[rank]);
    if (op == min) result = std::min(result, other);
    if (op == max) result = std::max(result, other);
    if constexpr (!std::same_as<T, boolean>) {
      const auto a = static_cast<Unsigned<A>>(result), b = static_cast<Unsigned<A>>(other);
      if (op == product) result = static_cast<A>(a * b);
      if (op == sum || op == average) result = static_cast<A>(a + b);
    }
  }
  if constexpr (!std::same_as<T, boolean>) {
    if (op == average) result = static_cast<A>(static_cast<double>(result) / static_cast<double>(of_ranks.size()));
  }
  return static_cast<T>(result);
}

template <typename T>
std::vector<T> simulated(ReduceOp op, int ranks, int round, int calls) {
  std::vector<std::vector<T>> inputs;
  const Reference<T> reference(op, ranks, round);
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(written(reference.contribution(rank)));
  std::vector<T> result(kElements);
  for (std::size_t i = 0; i < kElements; ++i) {
    std::vector<T> of_ranks;
    for (const auto& input : inputs) of_ranks.push_back(input[i]);
    for (int call = 0; call < calls; ++call) {
      result[i] = one_call(op, of_ranks);
      of_ranks.assign(of_ranks.size(), result[i]);
    }
  }
  return result;
}

bool exists(hvd_dtype dtype, ReduceOp op) { return dtype != HVD_BOOL || op == min || op == max; }

TEST_CASE("what is expected of a reduction is what plain loops give, in place and again and again") {
  for (const auto& dtype : kDTypes) {
    with_type(dtype.value, [&]<typename T>(std::type_identity<T>) {
      for (const auto& op : kReduceOps) {
        if (!exists(dtype.value, op.value)) continue;
        for (const int ranks : {1, 2, 3, 8, 50}) {
          const int most = std::min(max_calls<T>(op.value, ranks, true), 10);
          for (const int calls : {1, std::min(2, most), most}) {
            CAPTURE(dtype.text, op.text, ranks, calls);
            const Reference<T> reference(op.value, ranks, 5);
            CHECK(reference.reduced(calls).count_errors(simulated<T>(op.value, ranks, 5, calls), kFirst) == 0);
          }
        }
      }
    });
  }
}

TEST_CASE("every wrong element is counted, and the wrong place or round too") {
  for (const auto& dtype : kDTypes) {
    with_type(dtype.value, [&]<typename T>(std::type_identity<T>) {
      for (const auto& op : kReduceOps) {
        if (!exists(dtype.value, op.value)) continue;
        CAPTURE(dtype.text, op.text);
        const Pattern<T> right = Reference<T>(op.value, 3, 0).reduced(1);
        std::vector<T> values = written(right);
        CHECK(right.count_errors(values, kFirst) == 0);
        CHECK(right.count_errors(values, kFirst + 1) > 0);
        CHECK(Reference<T>(op.value, 3, 1).reduced(1).count_errors(values, kFirst) > 0);
        CHECK(right.count_errors(written(Reference<T>::stale()), kFirst) > 0);
        for (const std::size_t i : {std::size_t{0}, kElements / 2, kElements - 1}) {
          values[i] = static_cast<T>(std::same_as<T, boolean> ? 1.0f - static_cast<float>(values[i]) : 99.0f);
        }
        CHECK(right.count_errors(values, kFirst) == 3);
      }
    });
  }
}

TEST_CASE("ranks and rounds contribute different values") {
  const Reference<float> reference(std::nullopt, 4, 0);
  const std::vector<float> first = written(reference.contribution(0));
  CHECK(reference.contribution(1).count_errors(first, kFirst) > static_cast<std::int64_t>(kElements / 2));
  CHECK(Reference<float>(std::nullopt, 4, 1).contribution(0).count_errors(first, kFirst) >
        static_cast<std::int64_t>(kElements / 2));
}

TEST_CASE("how often a sum may be repeated in place depends on what the type holds") {
  CHECK(max_calls<float>(sum, 4, false) == kMaxCalls);
  CHECK(max_calls<float>(max, 4, true) == kMaxCalls);
  CHECK(max_calls<float>(sum, 1, true) == kMaxCalls);
  CHECK(max_calls<std::int8_t>(sum, 3, true) == kMaxCalls);
  CHECK(max_calls<float>(sum, 2, true) > 100);
  CHECK(max_calls<float16>(sum, 2, true) < 16);
  CHECK(max_calls<bfloat16>(sum, 3, true) == 4);  // 9, 27, 81, 243
  CHECK(max_calls<bfloat16>(sum, 1000, true) == 1);
}

}  // namespace
}  // namespace hvd::bench
