"""Reduce operations, as the plain integers that scripts pass on."""

Average = 0
Sum = 1
Adasum = 2  # adaptive sum: allreduce of floating-point tensors only
Min = 3
Max = 4
Product = 5
