#include "ops/reduction/reduce.h"

#if HVD_KERNELS_AVX2
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "core/base/error.h"
#include "ops/reduction/kernels.h"

namespace hvd {

namespace {

// Elements that are carried through all steps at a time: four inputs and the accumulators (4 KiB each at most) stay in
// the first-level cache.
constexpr std::size_t kBlockElements = 512;
constexpr std::size_t kBlockBytes = kBlockElements * 8;

#if HVD_KERNELS_AVX2
// Clang 16 cannot ask __builtin_cpu_supports for it.
bool cpu_has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

const Kernels& find_best_kernels() {
#if HVD_KERNELS_AVX2
  if (__builtin_cpu_supports("avx2") && cpu_has_f16c()) return kKernelsAvx2;
#endif
  return kKernelsBaseline;
}

// Asked once: in a virtual machine the question goes to the host and takes tens of microseconds.
const Kernels& best_kernels() {
  static const Kernels& best = find_best_kernels();
  return best;
}

const void* advance(const void* base, std::size_t bytes) { return static_cast<const std::byte*>(base) + bytes; }
void* advance(void* base, std::size_t bytes) { return static_cast<std::byte*>(base) + bytes; }

// One reduction, block by block. Each block goes through: widen and prescale each input (staged), fold up to four at a
// time, postscale, narrow. Steps that change nothing are left out, and the last one writes to the output directly.
class BlockReducer {
 public:
  BlockReducer(const Reduction& reduction, DType in_type, std::span<const void* const> inputs, DType out_type)
      : inputs_(inputs),
        in_size_(size_of(in_type)),
        out_size_(size_of(out_type)),
        prescale_(reduction.prescale),
        postscale_(reduction.postscale) {
    const Kernels& kernels = best_kernels();
    const DType accumulator = accumulator_of(reduction.dtype);
    fold_ = kernels.fold(accumulator, reduction.op);
    if (prescale_ != 1.0 || postscale_ != 1.0) scale_ = kernels.scale(reduction.dtype);
    if (in_type != accumulator) widen_ = kernels.widen(in_type);
    if (out_type != accumulator) narrow_ = kernels.narrow(out_type);
  }

  // Nothing to convert or scale, and one fold is enough: then cutting into blocks would only cost.
  bool is_single_fold() const {
    return widen_ == nullptr && narrow_ == nullptr && scale_ == nullptr && inputs_.size() >= 2 &&
           inputs_.size() <= kMaxFoldInputs;
  }

  void run_single_fold(void* out, std::size_t elements) const {
    fold_(out, inputs_.data(), static_cast<int>(inputs_.size()), elements);
  }

  void run_block(void* out, std::size_t first, std::size_t elements) {
    void* destination = advance(out, first * out_size_);
    const bool last_step_is_fold = narrow_ == nullptr && !postscales();
    const void* folded = fold_block(first, elements, last_step_is_fold ? destination : accumulators_);
    if (postscales()) {
      void* scaled = narrow_ == nullptr ? destination : accumulators_;
      scale_(scaled, folded, postscale_, elements);
      folded = scaled;
    }
    if (narrow_ != nullptr) {
      narrow_(destination, folded, elements);
    } else if (folded != destination) {
      std::memmove(destination, folded, elements * out_size_);
    }
  }

 private:
  bool prescales() const { return scale_ != nullptr && prescale_ != 1.0; }
  bool postscales() const { return scale_ != nullptr && postscale_ != 1.0; }

  // Input `index` as prescaled accumulators: the user's memory itself where nothing has to be done.
  const void* stage(std::size_t index, std::size_t first, std::size_t elements, void* staging) const {
    const void* source = advance(inputs_[index], first * in_size_);
    if (widen_ != nullptr) {
      widen_(staging, source, elements);
      source = staging;
    }
    if (prescales()) {
      scale_(staging, source, prescale_, elements);
      source = staging;
    }
    return source;
  }

  // The fold of all inputs: in `last`, in accumulators_, or the single input itself. An output that is also an input
  // is written only by the last fold, when all inputs of the block have been read.
  const void* fold_block(std::size_t first, std::size_t elements, void* last) {
    const void* group[kMaxFoldInputs];
    const void* folded = nullptr;
    for (std::size_t next = 0; next < inputs_.size();) {
      int count = 0;
      if (folded != nullptr) group[count++] = folded;
      for (; count < kMaxFoldInputs && next < inputs_.size(); ++count, ++next) {
        group[count] = stage(next, first, elements, staging_[count]);
      }
      if (count == 1) return group[0];
      void* target = next == inputs_.size() ? last : accumulators_;
      fold_(target, group, count, elements);
      folded = target;
    }
    return folded;
  }

  std::span<const void* const> inputs_;
  std::size_t in_size_;
  std::size_t out_size_;
  double prescale_;
  double postscale_;
  Kernels::Fold fold_ = nullptr;
  Kernels::Scale scale_ = nullptr;     // null: nothing is scaled
  Kernels::Convert widen_ = nullptr;   // null: inputs are accumulators already
  Kernels::Convert narrow_ = nullptr;  // null: the output takes accumulators
  alignas(64) std::byte accumulators_[kBlockBytes];
  alignas(64) std::byte staging_[kMaxFoldInputs][kBlockBytes];
};

template <typename T>
void fill(void* out, T value, std::size_t elements) {
  std::fill_n(static_cast<T*>(out), elements, value);
}

// Floats have infinities for the ends of the order, integers their limits.
template <typename T>
void fill_number(ReduceOp op, void* out, std::size_t elements) {
  using Limits = std::numeric_limits<T>;
  constexpr T kLowest = Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
  constexpr T kHighest = Limits::has_infinity ? Limits::infinity() : Limits::max();
  fill(out,
       op == ReduceOp::sum       ? T{0}
       : op == ReduceOp::product ? T{1}
       : op == ReduceOp::min     ? kHighest
                                 : kLowest,
       elements);
}

void fill_16_bit_float(ReduceOp op, std::uint16_t one, std::uint16_t infinity, void* out, std::size_t elements) {
  const std::uint16_t negative_infinity = infinity | 0x8000u;
  const std::uint16_t value = op == ReduceOp::sum       ? std::uint16_t{0}
                              : op == ReduceOp::product ? one
                              : op == ReduceOp::min     ? infinity
                                                        : negative_infinity;
  fill(out, value, elements);
}

}  // namespace

bool reduction_exists(DType dtype, ReduceOp op) {
  if (op == ReduceOp::min || op == ReduceOp::max) return true;
  return (op == ReduceOp::sum || op == ReduceOp::product) && dtype != DType::boolean;
}

void check_reduction(DType dtype, ReduceOp op) {
  if (!reduction_exists(dtype, op)) {
    throw Unsupported(std::string("no reduction with ") + reduce_op_name(op) + " on tensors of " + dtype_name(dtype));
  }
}

void reduce(const Reduction& reduction, DType in_type, std::span<const void* const> inputs, DType out_type, void* out,
            std::size_t elements) {
  check_reduction(reduction.dtype, reduction.op);
  if (elements == 0) return;
  const bool scaled = reduction.prescale != 1.0 || reduction.postscale != 1.0;
  if (inputs.size() == 1 && in_type == out_type && !scaled) {
    if (inputs[0] != out) std::memcpy(out, inputs[0], elements * size_of(in_type));
    return;
  }
  BlockReducer reducer(reduction, in_type, inputs, out_type);
  if (reducer.is_single_fold()) {
    reducer.run_single_fold(out, elements);
    return;
  }
  for (std::size_t first = 0; first < elements; first += kBlockElements) {
    reducer.run_block(out, first, std::min(kBlockElements, elements - first));
  }
}

void fill_identity(DType dtype, ReduceOp op, void* out, std::size_t elements) {
  check_reduction(dtype, op);
  switch (dtype) {
    case DType::uint8: return fill_number<std::uint8_t>(op, out, elements);
    case DType::int8: return fill_number<std::int8_t>(op, out, elements);
    case DType::int16: return fill_number<std::int16_t>(op, out, elements);
    case DType::int32: return fill_number<std::int32_t>(op, out, elements);
    case DType::int64: return fill_number<std::int64_t>(op, out, elements);
    case DType::float16: return fill_16_bit_float(op, 0x3c00, 0x7c00, out, elements);
    case DType::bfloat16: return fill_16_bit_float(op, 0x3f80, 0x7f80, out, elements);
    case DType::float32: return fill_number<float>(op, out, elements);
    case DType::float64: return fill_number<double>(op, out, elements);
    case DType::boolean: return fill(out, static_cast<std::uint8_t>(op == ReduceOp::min), elements);
  }
}

}  // namespace hvd
