// Between tensors and the packed buffers that an algorithm works on (slice_layout.h): scaling, conversion to the
// accumulator type, joined ranks; and where such buffers lie.
#pragma once

#include <cstddef>

#include "core/collective/collective_call.h"
#include "ops/algorithms/scratch.h"
#include "ops/algorithms/slice_layout.h"
#include "ops/reduction/instruction_set.h"

namespace hvd {

// Values and results of a reduction, packed. Results may be `tensor`, the memory of the call's only output (null:
// none), since one tensor is its own packed buffer; values are the same memory if their type is. What is left is
// scratch.
struct PackedMemory {
  std::byte* values = nullptr;
  std::byte* results = nullptr;
};
PackedMemory packed_memory(const SliceLayout& layout, DType value_type, DType result_type, std::byte* tensor,
                           Scratch& scratch);
// The call's only output, or null.
std::byte* only_output(const CollectiveCall& call);

// How an allreduce cuts its tensors.
SliceLayout balanced_layout(const CollectiveCall& call, int slices);

// Fills the elements [begin, end) of `packed`, which is of `value_type`: the accumulator type, with prescale * input;
// or the tensors' own type if that is another one, with the input as it is. Where the input is null (a joined rank)
// the operation's identity stands, such that a prescale that is still to come leaves it what it is. `packed` may be
// the only piece's own memory.
void pack(const CollectiveCall& call, const SliceLayout& layout, std::int64_t begin, std::int64_t end, DType value_type,
          std::byte* packed, InstructionSet instruction_set);

// Copies the results [begin, end) to output[piece][at + i], where `at` is the part's offset in the piece for an
// allreduce, and 0 if the slice is all that this rank gets. Pieces without output are skipped.
enum class UnpackTo { place_in_piece, start_of_output };
void unpack(const CollectiveCall& call, const SliceLayout& layout, std::int64_t begin, std::int64_t end, UnpackTo place,
            const std::byte* packed);

}  // namespace hvd
