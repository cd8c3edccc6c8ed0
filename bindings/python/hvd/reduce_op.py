"""Reduce operations, as the plain integers that scripts pass on."""

from __future__ import annotations

from hvd import arguments

Average = 0
Sum = 1
Adasum = 2  # adaptive sum: allreduce of floating-point tensors only
Min = 3
Max = 4
Product = 5


def resolve_op(op: int | None, average: bool | None) -> int:
    """The reduce operation meant by `op` and the older `average`, of which at most one may be given."""
    if op is None:
        return Average if average is None or average else Sum
    if average is not None:
        raise ValueError("op and average say the same thing: give only op")
    return op


def check_gradient_reduction(op: int, predivide_factor: float) -> None:
    """Raises ValueError or TypeError if gradients cannot be reduced so."""
    arguments.reduce_op(op)
    arguments.factor(predivide_factor, "gradient_predivide_factor")
    if predivide_factor != 1.0 and op != Average:
        raise ValueError(
            f"gradient_predivide_factor={predivide_factor} needs op=Average, not {arguments.OPERATIONS[op]}: only "
            "averages can be divided before the sum"
        )
    if not predivide_factor > 0:
        raise ValueError(f"gradient_predivide_factor must be positive, not {predivide_factor}")
