// The instruction sets that reductions are compiled for, and which of them this processor has.
//
//   scalar   one number at a time, on any processor
//   avx2     x86-64 with AVX2 and F16C
//   avx512   x86-64 with AVX-512 F, BW, DQ and VL
//   neon     AArch64
//
// They differ in speed alone: a reduction has the same bits with all of them, on all processors.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace hvd {

enum class InstructionSet : std::uint8_t { automatic, scalar, avx2, avx512, neon };

const char* instruction_set_name(InstructionSet set);  // of `automatic`: "auto"

// What this processor, and its operating system, can run; the best last.
std::span<const InstructionSet> available_instruction_sets();

// Throws InvalidArgument that says which there are, if it is none of those or "auto".
InstructionSet instruction_set_from(const std::string& name);

struct Kernels;
// Of an available set; `automatic` is the best.
const Kernels& kernels_for(InstructionSet set);

}  // namespace hvd
