"""Reduce operations, as the plain integers that scripts pass on."""

from hvd import arguments

Average = 0
Sum = 1
Adasum = 2  # adaptive sum: allreduce of floating-point tensors only
Min = 3
Max = 4
Product = 5


def check_gradient_reduction(op: int, predivide_factor: float) -> None:
    """Raises ValueError or TypeError if gradients cannot be reduced so."""
    arguments.reduce_op(op)
    arguments.factor(predivide_factor, "gradient_predivide_factor")
    if predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=Average")
    if not predivide_factor > 0:
        raise ValueError(f"gradient_predivide_factor must be positive, not {predivide_factor}")
