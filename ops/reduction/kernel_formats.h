// Vectors, and the formats of elements in memory. Included by one source file per instruction set (kernels.h), after it
// has defined
//
//   kRegisterBytes                                      the length of a vector; 0: no vectors, a number at a time
//   load_float16(from), store_float16(to, values)       a vector of float32 from float16 and back
//   multiply_in_double(values, factor)                  a vector of float32 by a double, rounded once
//
// A format loads kVectors vectors of its carrier type, and stores them. Lanes may be in a different order than in
// memory if load and store agree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/reduction/half.h"

namespace hvd {
namespace {

template <typename T, std::size_t kBytes>
struct Register {
  using Type [[gnu::vector_size(kBytes)]] = T;
};
template <typename T>
struct Register<T, 0> {
  using Type = T;
};

template <typename T>
using Vector = typename Register<T, kRegisterBytes>::Type;
template <typename T>
constexpr std::size_t kLanes = kRegisterBytes == 0 ? 1 : kRegisterBytes / sizeof(T);

// Copies, so that neither alignment nor the pointer's type matters.
template <typename V>
[[gnu::always_inline]] inline V load_as(const void* from) {
  V values;
  __builtin_memcpy(&values, from, sizeof values);
  return values;
}
template <typename V>
[[gnu::always_inline]] inline void store_as(void* to, V values) {
  __builtin_memcpy(to, &values, sizeof values);
}

// Elements in their own type.
template <typename T>
struct Plain {
  using Memory = T;
  using Carrier = T;
  static constexpr int kVectors = 1;
  static void load(const T* from, Vector<T>* to) { *to = load_as<Vector<T>>(from); }
  static void store(T* to, const Vector<T>* from) { store_as(to, *from); }
};

struct Float16 {
  using Memory = HalfBits;
  using Carrier = float;
  static constexpr int kVectors = 1;
  static void load(const Memory* from, Vector<float>* to) { *to = load_float16(from); }
  static void store(Memory* to, const Vector<float>* from) { store_float16(to, *from); }
};

using Words = Vector<std::uint32_t>;

// A bfloat16 is the upper half of a float32: two neighbours, as one 32-bit word, are converted to floats and back by
// shifts, masks and two additions.
//
// AVX-512's instruction for the conversion back (VCVTNEPS2BF16) is not used. It treats denormals as zero, which would
// have to be detected and corrected; and it needs the elements in memory order, which costs more than it saves: sums
// are 1.2 to 1.5 times as fast without it (Zen 4). Only pure conversions would gain, by a factor of 1.2, which is not
// worth another instruction set.
struct Bfloat16 {
  using Memory = Bfloat16Bits;
  using Carrier = float;
  static constexpr int kVectors = 2;
  static constexpr std::uint32_t kUpper = 0xffff0000u;

  // The element in the lower half goes into the first vector, the one in the upper half into the second.
  static void load(const Memory* from, Vector<float>* to) {
    const auto words = load_as<Words>(from);
    to[0] = __builtin_bit_cast(Vector<float>, words << 16);
    to[1] = __builtin_bit_cast(Vector<float>, words & kUpper);
  }
  static void store(Memory* to, const Vector<float>* from) {
    const Words lower = round_to_bfloat16(__builtin_bit_cast(Words, from[0]));
    const Words upper = round_to_bfloat16(__builtin_bit_cast(Words, from[1]));
    store_as(to, (lower >> 16) | (upper & kUpper));
  }
};

// For conversions between bfloat16 and float32, both of which must be in memory order.
struct Bfloat16InOrder {
  using Memory = Bfloat16Bits;
  using Carrier = float;
  static constexpr int kVectors = 1;
  using Halves = typename Register<Bfloat16Bits, kRegisterBytes / 2>::Type;

  static void load(const Memory* from, Vector<float>* to) {
    *to = __builtin_bit_cast(Vector<float>, convert<Words>(load_as<Halves>(from)) << 16);
  }
  static void store(Memory* to, const Vector<float>* from) {
    store_as(to, convert<Halves>(round_to_bfloat16(__builtin_bit_cast(Words, *from)) >> 16));
  }

 private:
  template <typename To, typename From>
  static To convert(From from) {
    if constexpr (kRegisterBytes == 0) {
      return static_cast<To>(from);
    } else {
      return __builtin_convertvector(from, To);
    }
  }
};

}  // namespace
}  // namespace hvd
