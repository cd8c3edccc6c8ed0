#include "ops/reduction/instruction_set.h"

#if HVD_KERNELS_X86
#include <cpuid.h>
#endif

#include <algorithm>
#include <iterator>

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

}  // namespace hvd
