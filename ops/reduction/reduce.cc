#include "ops/reduction/reduce.h"

#if HVD_KERNELS_X86
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

#include "core/base/error.h"
#include "ops/reduction/kernels.h"

namespace hvd {

namespace {

#if HVD_KERNELS_X86
// Clang 16 has no F16C in __builtin_cpu_supports. It needs only the registers of AVX2, which must be usable as well.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// The built-in function also checks whether the operating system saves the registers.
bool has_avx2() { return __builtin_cpu_supports("avx2") && has_f16c(); }
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

bool always() { return true; }

struct Entry {
  InstructionSet set;
  const Kernels& kernels;
  bool (*is_available)();
};

// In ascending order of preference.
constexpr Entry kEntries[] = {
    {InstructionSet::scalar, kKernelsScalar, always},
#if HVD_KERNELS_X86
    {InstructionSet::avx2, kKernelsAvx2, has_avx2},
    {InstructionSet::avx512, kKernelsAvx512, has_avx512},
#elif HVD_KERNELS_ARM
    {InstructionSet::neon, kKernelsNeon, always},
#endif
};

struct Available {
  Available() {
    for (const Entry& entry : kEntries) {
      if (entry.is_available()) sets[count++] = entry.set;
    }
  }

  InstructionSet sets[std::size(kEntries)] = {};
  std::size_t count = 0;
};

// Returns the kernels of an available set; `automatic` is the best.
const Kernels& kernels_for(InstructionSet set) {
  const auto sets = available_instruction_sets();
  if (set == InstructionSet::automatic) set = sets.back();
  if (std::find(sets.begin(), sets.end(), set) != sets.end()) {
    for (const Entry& entry : kEntries) {
      if (entry.set == set) return entry.kernels;
    }
  }
  throw Internal(std::string("this processor cannot run ") + instruction_set_name(set));
}

// The factor as the kernels apply it.
double factor_for(DType dtype, double factor) {
  if (dtype == DType::boolean) return 1.0;
  return accumulator_of(dtype) == dtype ? factor : static_cast<double>(static_cast<float>(factor));
}

template <typename T>
void fill(ReduceOp op, T one, T lowest, T highest, void* out, std::size_t elements) {
  const T value = op == ReduceOp::sum ? T{0} : op == ReduceOp::product ? one : op == ReduceOp::min ? highest : lowest;
  std::fill_n(static_cast<T*>(out), elements, value);
}

// The limits of the order are infinities for floats, the limits of the type for integers.
template <typename T>
void fill_number(ReduceOp op, void* out, std::size_t elements) {
  using Limits = std::numeric_limits<T>;
  constexpr T kLowest = Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
  constexpr T kHighest = Limits::has_infinity ? Limits::infinity() : Limits::max();
  fill(op, T{1}, kLowest, kHighest, out, elements);
}

}  // namespace

const char* instruction_set_name(InstructionSet set) {
  switch (set) {
    case InstructionSet::automatic: return "auto";
    case InstructionSet::scalar: return "scalar";
    case InstructionSet::avx2: return "avx2";
    case InstructionSet::avx512: return "avx512";
    case InstructionSet::neon: return "neon";
  }
  return "unknown";
}

// Detected once: in a virtual machine the query goes to the host and takes tens of microseconds. Trivially
// destructible, because a thread may still reduce at exit.
std::span<const InstructionSet> available_instruction_sets() {
  static const Available available;
  return {available.sets, available.count};
}

InstructionSet instruction_set_from(const std::string& name) {
  if (name == instruction_set_name(InstructionSet::automatic)) return InstructionSet::automatic;
  std::string names;
  for (const InstructionSet set : available_instruction_sets()) {
    if (name == instruction_set_name(set)) return set;
    names += std::string(names.empty() ? "" : ", ") + instruction_set_name(set);
  }
  throw InvalidArgument("HVD_INSTRUCTION_SET='" + name + "': expected auto or what this processor has: " + names);
}

bool reduction_exists(DType dtype, ReduceOp op) {
  if (only_moves(dtype)) return false;
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
  const double prescale = factor_for(reduction.dtype, reduction.prescale);
  const double postscale = factor_for(reduction.dtype, reduction.postscale);
  if (inputs.size() == 1 && in_type == out_type && prescale == 1.0 && postscale == 1.0) {
    if (inputs[0] != out) std::memcpy(out, inputs[0], elements * size_of(in_type));
    return;
  }
  const Kernels& kernels = kernels_for(reduction.instruction_set);
  kernels.fold(in_type, out_type, reduction.op)({.destination = out,
                                                 .sources = inputs.data(),
                                                 .count = inputs.size(),
                                                 .elements = elements,
                                                 .prescale = prescale,
                                                 .postscale = postscale});
}

void fill_identity(DType dtype, ReduceOp op, void* out, std::size_t elements) {
  check_reduction(dtype, op);
  switch (dtype) {
    case DType::uint8: return fill_number<std::uint8_t>(op, out, elements);
    case DType::int8: return fill_number<std::int8_t>(op, out, elements);
    case DType::int16: return fill_number<std::int16_t>(op, out, elements);
    case DType::int32: return fill_number<std::int32_t>(op, out, elements);
    case DType::int64: return fill_number<std::int64_t>(op, out, elements);
    case DType::float16: return fill<std::uint16_t>(op, 0x3c00, 0xfc00, 0x7c00, out, elements);
    case DType::bfloat16: return fill<std::uint16_t>(op, 0x3f80, 0xff80, 0x7f80, out, elements);
    case DType::float32: return fill_number<float>(op, out, elements);
    case DType::float64: return fill_number<double>(op, out, elements);
    case DType::boolean: return fill<std::uint8_t>(op, 1, 0, 1, out, elements);
    case DType::uint16:
    case DType::uint32:
    case DType::uint64: return;  // refused above
  }
}

}  // namespace hvd
