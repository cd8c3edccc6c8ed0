// Copies between tensors and the packed buffers that an algorithm works on (slice_layout.h): scales, converts to the
// accumulator type, replaces the tensors of joined ranks; and chooses the memory of such buffers.
#pragma once

#include <cstddef>

#include "core/operation/collective_call.h"
#include "ops/algorithms/scratch.h"
#include "ops/algorithms/slice_layout.h"
#include "ops/reduction/instruction_set.h"

namespace hvd {

// The packed values and results of a reduction. Results may be in `tensor`, the memory of the call's only output (null:
// none), since one tensor is its own packed buffer; values are in the same memory if of the same type. The rest is
// scratch.
struct PackedMemory {
  std::byte* values = nullptr;
  std::byte* results = nullptr;
};
PackedMemory packed_memory(const SliceLayout& layout, DType value_type, DType result_type, std::byte* tensor,
                           Scratch& scratch);
// Returns the call's only output, or null.
std::byte* only_output(const CollectiveCall& call);

// The layout of an allreduce's tensors.
SliceLayout balanced_layout(const CollectiveCall& call, int slices);

// Fills the elements [begin, end) of `packed`, which is of `value_type`: the accumulator type, with prescale * input;
// or the tensors' own type if that is different, with the unchanged input. If the input is null (a joined rank) it
// writes the operation's identity, chosen such that a later prescale preserves it. `packed` may be the only piece's
// memory.
void pack(const CollectiveCall& call, const SliceLayout& layout, std::int64_t begin, std::int64_t end, DType value_type,
          std::byte* packed, InstructionSet instruction_set);

// Copies the results [begin, end) to output[piece][at + i], where `at` is the part's offset in the piece for an
// allreduce, and 0 if this rank receives only this slice. Pieces without output are skipped.
enum class UnpackTo { place_in_piece, start_of_output };
void unpack(const CollectiveCall& call, const SliceLayout& layout, std::int64_t begin, std::int64_t end, UnpackTo place,
            const std::byte* packed);

}  // namespace hvd
