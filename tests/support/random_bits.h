// Numbers that look random and depend on their place only, so that each rank makes any rank's tensor.
#pragma once

#include <cstdint>

namespace hvd::testing {

// SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014) mixes the bits of multiples
// of a number: a few instructions an element, where a generator of the standard library takes most of a test's time.
inline constexpr std::uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;

constexpr std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// The element of that number of the stream whose seed is zero.
constexpr std::uint64_t random_bits(std::uint64_t number) { return mix((number + 1) * kSplitMixStep); }

}  // namespace hvd::testing
