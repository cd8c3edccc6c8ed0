// The arithmetic of Adasum on two vectors:
//
//   adasum(a, b) = (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b
//
// Orthogonal vectors are added and equal ones averaged: a common component counts once. A quotient with a norm of zero
// counts as 0, so that a zero vector changes nothing. A NaN or an infinity affects the whole sum. Source: S. Maleki et
// al., "Scaling Distributed Training with Adaptive Summation", MLSys 2021.
//
// Vectors may be cut into parts if the caller adds up the parts' dot products in an order that it chooses: the bits
// depend on that order and on the cuts only. Same bits on every instruction set, as in reduce.h. Elements are
// accumulators, float32 or float64.
#pragma once

#include <cstddef>

#include "core/tensor/dtype.h"

namespace hvd {

// Of two vectors or of parts of them; sums are computed in double.
struct DotProducts {
  double ab = 0;
  double aa = 0;
  double bb = 0;

  DotProducts& operator+=(const DotProducts& other);
};

DotProducts dot_products(DType accumulator, const void* a, const void* b, std::size_t elements);

// Computes a = adasum(a, b) on a part, where `products` are those of the whole vectors.
void add_adaptively(DType accumulator, const DotProducts& products, void* a, const void* b, std::size_t elements);

}  // namespace hvd
