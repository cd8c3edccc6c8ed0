// The loop of every reduction. Included by one source file per instruction set (kernels.h), which defines HVD_KERNELS
// as the name of its table.
//
// One pass: a few vectors of elements at a time are loaded from the first source, folded with those of the second, the
// third and so on, scaled, rounded and stored. Only results are written, whatever the number of sources, and a
// destination that is also a source is written after it has been read.
//
// With more than kAtOnce sources, which mostly have the same offsets in pages, the first-level cache has no room for
// the data that is prefetched for all of them. Then a block of partial results stays in that cache while kGroup sources
// after another are folded into it.
#pragma once

#include <cstddef>
#include <type_traits>

#include "ops/reduction/kernel_vectors.h"
#include "ops/reduction/kernels.h"

namespace hvd {
namespace {

// Vectors at a time: enough for independent additions that do not wait for each other. Without vectors, the numbers
// that a format needs.
constexpr int kVectors = kRegisterBytes == 0 ? 2 : 4;
constexpr std::size_t kAtOnce = 16;
constexpr std::size_t kGroup = 8;
constexpr std::size_t kCarriedBytes = 8192;

template <typename In, typename Out, typename Op, typename Prescale, typename Postscale>
class Folding {
 public:
  explicit Folding(const Operands& operands)
      : sources_(operands.sources),
        count_(operands.count),
        out_(static_cast<Result*>(operands.destination)),
        prescale_(operands.prescale),
        postscale_(operands.postscale) {}

  void run(std::size_t elements) const {
    std::size_t done = 0;
    // Only for sums: the other operations are rare, and this code is long.
    if constexpr (std::is_same_v<Op, Sum>) done = count_ > kAtOnce ? by_groups(elements) : 0;
    done = at_once(done, elements);
    if (done < elements) rest(done, elements - done);
  }

 private:
  using T = typename In::Carrier;
  using Source = typename In::Memory;
  using Result = typename Out::Memory;

  static constexpr std::size_t kStep = kVectors * kLanes<T>;

  // Processes whole steps from element `first` on; returns the first element that is left.
  std::size_t at_once(std::size_t first, std::size_t elements) const {
    // Locals, because the compiler must assume that storing a result may change a member.
    const void* const* const sources = sources_;
    const std::size_t count = count_;
    Result* const out = out_;
    const Prescale prescale = prescale_;
    const Postscale postscale = postscale_;
    for (; first + kStep <= elements; first += kStep) {
      Vector<T> folded[kVectors];
      load(sources[0], first, prescale, folded);
      fold(folded, sources + 1, count - 1, first, prescale);
      store(folded, postscale, out + first);
    }
    return first;
  }

  // Processes whole blocks.
  [[gnu::noinline]] std::size_t by_groups(std::size_t elements) const {
    constexpr std::size_t kSteps = kCarriedBytes / sizeof(Vector<T>) / kVectors;
    Vector<T> carried[kSteps][kVectors];
    std::size_t block = 0;
    for (; block + kSteps * kStep <= elements; block += kSteps * kStep) {
      for (std::size_t s = 0; s < kSteps; ++s) load(sources_[0], block + s * kStep, prescale_, carried[s]);
      for (std::size_t next = 1; next < count_; next += kGroup) {
        const std::size_t group = count_ - next < kGroup ? count_ - next : kGroup;
        for (std::size_t s = 0; s < kSteps; ++s) {
          Vector<T> folded[kVectors];
          for (int v = 0; v < kVectors; ++v) folded[v] = carried[s][v];
          fold(folded, sources_ + next, group, block + s * kStep, prescale_);
          for (int v = 0; v < kVectors; ++v) carried[s][v] = folded[v];
        }
      }
      for (std::size_t s = 0; s < kSteps; ++s) store(carried[s], postscale_, out_ + block + s * kStep);
    }
    return block;
  }

  // Processes less than a step, through copies of the length of a step.
  void rest(std::size_t first, std::size_t elements) const {
    Source padded[kStep]{};
    const void* const source = padded;
    const auto copy = [&](const void* from) {
      __builtin_memcpy(padded, static_cast<const Source*>(from) + first, elements * sizeof(Source));
    };
    Vector<T> folded[kVectors];
    copy(sources_[0]);
    load(source, 0, prescale_, folded);
    for (std::size_t k = 1; k < count_; ++k) {
      copy(sources_[k]);
      fold(folded, &source, 1, 0, prescale_);
    }
    Result results[kStep];
    store(folded, postscale_, results);
    __builtin_memcpy(out_ + first, results, elements * sizeof(Result));
  }

  [[gnu::always_inline]] static inline void load(const void* source, std::size_t at, const Prescale& prescale,
                                                 Vector<T>* to) {
    const Source* from = static_cast<const Source*>(source) + at;
    for (int v = 0; v < kVectors; v += In::kVectors) In::load(from + v * kLanes<T>, to + v);
    prescale.template apply<kVectors>(to);
  }

  [[gnu::always_inline]] static inline void fold(Vector<T>* folded, const void* const* sources, std::size_t count,
                                                 std::size_t at, const Prescale& prescale) {
    for (std::size_t k = 0; k < count; ++k) {
      Vector<T> values[kVectors];
      load(sources[k], at, prescale, values);
      for (int v = 0; v < kVectors; ++v) folded[v] = Op::template of<T>(folded[v], values[v]);
    }
  }

  [[gnu::always_inline]] static inline void store(Vector<T>* folded, const Postscale& postscale, Result* to) {
    postscale.template apply<kVectors>(folded);
    for (int v = 0; v < kVectors; ++v) folded[v] = with_one_nan<T>(folded[v]);
    for (int v = 0; v < kVectors; v += Out::kVectors) Out::store(to + v * kLanes<T>, folded + v);
  }

  const void* const* const sources_;
  const std::size_t count_;
  Result* const out_;
  const Prescale prescale_;
  const Postscale postscale_;
};

// NaN counts as representable: its products are NaN in any type.
template <typename T>
bool holds(double factor) {
  return static_cast<double>(static_cast<T>(factor)) == factor || factor != factor;
}

// Multiplying each result by 1 costs less than another copy of the code, and most sums are averages; multiplying every
// source, too, would be measurable.
template <typename In, typename Out, typename Op, typename Scale>
void fold_scaled(const Operands& operands) {
  if (operands.prescale == 1.0) {
    Folding<In, Out, Op, Unscaled, Scale>(operands).run(operands.elements);
  } else {
    Folding<In, Out, Op, Scale, Scale>(operands).run(operands.elements);
  }
}

template <typename In, typename Out, typename Op>
void fold(const Operands& operands) {
  using T = typename In::Carrier;
  if constexpr (std::is_integral_v<T>) {
    const bool scales = operands.prescale != 1.0 || operands.postscale != 1.0;
    if (scales) return Folding<In, Out, Op, Truncated<T>, Truncated<T>>(operands).run(operands.elements);
    return Folding<In, Out, Op, Unscaled, Unscaled>(operands).run(operands.elements);
  } else {
    if constexpr (std::is_same_v<In, Plain<float>> && std::is_same_v<Out, Plain<float>>) {
      const bool both_held = holds<T>(operands.prescale) && holds<T>(operands.postscale);
      if (!both_held) return fold_scaled<In, Out, Op, InDouble>(operands);
    }
    return fold_scaled<In, Out, Op, InOwnType<T>>(operands);
  }
}

template <typename In, typename Out = In>
Kernels::Fold fold_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return fold<In, Out, Sum>;
    case ReduceOp::min: return fold<In, Out, Min>;
    case ReduceOp::max: return fold<In, Out, Max>;
    case ReduceOp::product: return fold<In, Out, Product>;
    case ReduceOp::average:
    case ReduceOp::adasum: return nullptr;
  }
  return nullptr;
}

Kernels::Fold select_fold(DType in, DType out, ReduceOp op) {
  using Float = Plain<float>;
  switch (in) {
    case DType::boolean:  // 0 or 1: min is "and", max is "or"
    case DType::uint8: return fold_of<Plain<std::uint8_t>>(op);
    case DType::int8: return fold_of<Plain<std::int8_t>>(op);
    case DType::int16: return fold_of<Plain<std::int16_t>>(op);
    case DType::int32: return fold_of<Plain<std::int32_t>>(op);
    case DType::int64: return fold_of<Plain<std::int64_t>>(op);
    case DType::float64: return fold_of<Plain<double>>(op);
    case DType::float16: return out == in ? fold_of<Float16>(op) : fold_of<Float16, Float>(op);
    case DType::bfloat16: return out == in ? fold_of<Bfloat16>(op) : fold_of<Bfloat16InOrder, Float>(op);
    case DType::float32:
      if (out == DType::float16) return fold_of<Float, Float16>(op);
      return out == DType::bfloat16 ? fold_of<Float, Bfloat16InOrder>(op) : fold_of<Float>(op);
    case DType::uint16:
    case DType::uint32:
    case DType::uint64: return nullptr;
  }
  return nullptr;
}

}  // namespace

constinit const Kernels HVD_KERNELS{.fold = select_fold};

}  // namespace hvd
