"""Reduce operations, as the plain integers that scripts pass on."""

Average = 0
Sum = 1
Adasum = 2  # not available yet: operations refuse it with a ValueError
Min = 3
Max = 4
Product = 5
