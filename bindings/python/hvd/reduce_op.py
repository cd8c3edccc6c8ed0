"""Reduce operations, as the plain integers that scripts pass on."""

Average = 0
Sum = 1
Adasum = 2  # adaptive sum: allreduce of floating-point tensors only
Min = 3
Max = 4
Product = 5


def check_gradient_reduction(op: int, predivide_factor: float) -> None:
    """Raises ValueError if gradients cannot be reduced so."""
    if op not in (Average, Sum, Adasum, Min, Max, Product):
        raise ValueError(f"op is {op!r}: expected Average, Sum, Min, Max, Product or Adasum")
    if predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=Average")
    if not predivide_factor > 0:
        raise ValueError(f"gradient_predivide_factor must be positive, not {predivide_factor}")
