#include "ops/algorithms/packing.h"

#include "ops/reduction/reduce.h"

namespace hvd {

namespace {

std::size_t bytes_of(std::int64_t elements, DType dtype) { return static_cast<std::size_t>(elements) * size_of(dtype); }

void convert(const Reduction& scaling, DType from, const void* source, DType to, void* target, std::int64_t elements) {
  const bool unscaled = scaling.prescale == 1.0 && scaling.postscale == 1.0;
  if (elements == 0 || (source == target && from == to && unscaled)) return;
  reduce(scaling, from, {&source, 1}, to, target, static_cast<std::size_t>(elements));
}

}  // namespace

void pack(const CollectiveCall& call, const SliceLayout& layout, std::byte* packed) {
  const DType accumulator = accumulator_of(call.dtype);
  const Reduction scaling{.dtype = call.dtype, .op = call.op, .prescale = call.prescale};
  for (int slice = 0; slice < layout.slices(); ++slice) {
    for (std::size_t i = 0; i < call.pieces.size(); ++i) {
      const SliceLayout::Part& part = layout.part(slice, i);
      const auto* input = static_cast<const std::byte*>(call.pieces[i].input);
      std::byte* target = packed + bytes_of(part.packed_offset, accumulator);
      if (input == nullptr) {
        fill_identity(accumulator, call.op, target, static_cast<std::size_t>(part.count));
      } else {
        convert(scaling, call.dtype, input + bytes_of(part.offset, call.dtype), accumulator, target, part.count);
      }
    }
  }
}

void unpack_slice(const CollectiveCall& call, const SliceLayout& layout, int slice, UnpackTo place,
                  const std::byte* packed) {
  const DType accumulator = accumulator_of(call.dtype);
  const Reduction scaling{.dtype = call.dtype, .op = call.op, .postscale = call.postscale};
  for (std::size_t i = 0; i < call.pieces.size(); ++i) {
    auto* output = static_cast<std::byte*>(call.pieces[i].output);
    if (output == nullptr) continue;
    const SliceLayout::Part& part = layout.part(slice, i);
    if (place == UnpackTo::place_in_piece) output += bytes_of(part.offset, call.dtype);
    convert(scaling, accumulator, packed + bytes_of(part.packed_offset, accumulator), call.dtype, output, part.count);
  }
}

}  // namespace hvd
