// Numbers that look random and depend on their place only, so that each rank makes any rank's tensor.
#pragma once

#include <cstdint>

namespace hvd::testing {

// SplitMix64's mix of a number's bits (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014): a
// few instructions an element, where a generator of the standard library takes most of a test's time.
inline std::uint64_t random_bits(std::uint64_t number) {
  number = (number + 1) * 0x9e3779b97f4a7c15u;
  number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
  number = (number ^ number >> 27) * 0x94d049bb133111ebu;
  return number ^ number >> 31;
}

}  // namespace hvd::testing
