// Between tensors and the packed buffer that an algorithm works on: scaling, conversion to and from the accumulator
// type, joined ranks.
#pragma once

#include <cstddef>

#include "core/collective/collective_call.h"
#include "ops/algorithms/slice_layout.h"

namespace hvd {

// Fills `packed` with prescale * input in the call's accumulator type, or with the operation's identity where the
// input is null (a joined rank). `packed` may be the only piece's own memory.
void pack(const CollectiveCall& call, const SliceLayout& layout, std::byte* packed);

// Writes postscale * value, rounded once, from slice `slice` to output[piece][at + i], where `at` is the part's offset
// in the piece for an allreduce, and 0 if the slice is all that this rank gets. Pieces without output are skipped.
enum class UnpackTo { place_in_piece, start_of_output };
void unpack_slice(const CollectiveCall& call, const SliceLayout& layout, int slice, UnpackTo place,
                  const std::byte* packed);

}  // namespace hvd
