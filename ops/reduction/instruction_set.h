// The instruction sets that reductions are compiled for, and those that this processor supports.
//
//   scalar   one number at a time, on any processor
//   avx2     x86-64 with AVX2 and F16C
//   avx512   x86-64 with AVX-512 F, BW, DQ and VL
//   neon     AArch64
//
// They differ only in speed: a reduction has the same bits with all of them, on all processors.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace hvd {

enum class InstructionSet : std::uint8_t { automatic, scalar, avx2, avx512, neon };

const char* instruction_set_name(InstructionSet set);  // of `automatic`: "auto"

// Returns the sets that this processor, and its operating system, support; the best last.
std::span<const InstructionSet> available_instruction_sets();

// Throws InvalidArgument that lists the available sets, unless the name is one of those or "auto".
InstructionSet instruction_set_from(const std::string& name);

struct Kernels;
// Returns the kernels of an available set; `automatic` is the best.
const Kernels& kernels_for(InstructionSet set);

}  // namespace hvd
