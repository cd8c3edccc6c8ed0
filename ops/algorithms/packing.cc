#include "ops/algorithms/packing.h"

#include <cmath>
#include <cstring>

namespace hvd {

namespace {

// Joined ranks replace prescaled values in sums only (core/control/protocol/agreement.h). A negative prescale turns
// zero into negative zero, which is not the identity: two of them add up to it. So if the scaling is still to come, the
// value stored is negative zero, which becomes zero.
void fill_packed_identity(const CollectiveCall& call, DType value_type, bool scaled, std::byte* target,
                          std::size_t elements) {
  fill_identity(value_type, call.op, target, elements);
  if (scaled || !std::signbit(call.prescale)) return;
  const void* identity = target;
  reduce({.dtype = call.dtype, .op = call.op, .prescale = -1.0}, value_type, {&identity, 1}, value_type, target,
         elements);
}

}  // namespace

PackedMemory packed_memory(const SliceLayout& layout, DType value_type, DType result_type, std::byte* tensor,
                           Scratch& scratch) {
  const bool one_type = value_type == result_type;
  const std::size_t result_bytes = tensor != nullptr ? 0 : bytes_of(layout.total_elements(), result_type);
  const std::size_t value_bytes = one_type ? 0 : bytes_of(layout.total_elements(), value_type);
  std::byte* const memory = scratch.take(value_bytes + result_bytes);
  std::byte* const results = tensor != nullptr ? tensor : memory + value_bytes;
  return {.values = one_type ? results : memory, .results = results};
}

std::byte* only_output(const CollectiveCall& call) {
  return call.pieces.size() == 1 ? static_cast<std::byte*>(call.pieces.front().output) : nullptr;
}

SliceLayout balanced_layout(const CollectiveCall& call, int slices) {
  std::vector<std::int64_t> elements;
  for (const Piece& piece : call.pieces) elements.push_back(piece.elements);
  return SliceLayout::balanced(elements, slices);
}

void pack(const CollectiveCall& call, const SliceLayout& layout, std::int64_t begin, std::int64_t end, DType value_type,
          std::byte* packed, InstructionSet instruction_set) {
  const bool scales = value_type == accumulator_of(call.dtype);
  const Reduction scaling{
      .dtype = call.dtype, .op = call.op, .prescale = scales ? call.prescale : 1.0, .instruction_set = instruction_set};
  layout.for_each_run(begin, end, [&](const SliceLayout::Run& run) {
    const auto elements = static_cast<std::size_t>(run.elements.count);
    const auto* input = static_cast<const std::byte*>(call.pieces[run.piece].input);
    std::byte* target = packed + bytes_of(run.elements.packed_offset, value_type);
    if (input == nullptr) {
      fill_packed_identity(call, value_type, scales, target, elements);
      return;
    }
    const void* source = input + bytes_of(run.elements.offset, call.dtype);
    reduce(scaling, call.dtype, {&source, 1}, value_type, target, elements);
  });
}

void unpack(const CollectiveCall& call, const SliceLayout& layout, std::int64_t begin, std::int64_t end, UnpackTo place,
            const std::byte* packed) {
  layout.for_each_run(begin, end, [&](const SliceLayout::Run& run) {
    auto* output = static_cast<std::byte*>(call.pieces[run.piece].output);
    if (output == nullptr) return;
    const std::int64_t start = place == UnpackTo::place_in_piece ? 0 : layout.part(run.slice, run.piece).offset;
    std::memcpy(output + bytes_of(run.elements.offset - start, call.dtype),
                packed + bytes_of(run.elements.packed_offset, call.dtype), bytes_of(run.elements.count, call.dtype));
  });
}

}  // namespace hvd
