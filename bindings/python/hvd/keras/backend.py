"""The interface between hvd.keras and the framework that a Keras runs on: `on_tensorflow`, `on_torch` and `on_jax` have
one each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

from hvd.process_set import ProcessSet


class Backend:
    """One framework. Tensors are its own, variables its own or those of Keras 3."""

    package: Any  # hvd's for the framework

    def tensor(self, value: Any) -> Any:
        """A tensor of a number, a list of them or a NumPy array; anything else as it is."""
        raise NotImplementedError

    def to_numpy(self, tensor: Any) -> Any:
        raise NotImplementedError

    def snapshot(self, variable: Any) -> Any:
        """A copy of what is in a variable now, as something to assign to it later."""
        raise NotImplementedError

    def allreduce(self, tensor: Any, compression: Any = None, **options: Any) -> Any:
        """`options` and errors as of the package's allreduce. All ranks must call it, and those that follow."""
        return self.package.allreduce(tensor, compression=compression or self.package.Compression.none, **options)

    def allgather(self, tensor: Any, name: str | None) -> Any:
        return self.package.allgather(tensor, name=name)

    def broadcast(self, tensor: Any, root_rank: int, name: str | None) -> Any:
        return self.package.broadcast(tensor, root_rank, name=name)

    def reducescatter(self, tensor: Any, name: str | None, op: int) -> Any:
        return self.package.reducescatter(tensor, name=name, op=op)

    def why_not_a_variable(self, variable: Any) -> str | None:
        """Why this cannot be overwritten; None: it can."""
        if hasattr(variable, "shape") and hasattr(variable, "dtype"):
            return None
        return f"a variable is needed, not {type(variable).__name__}"

    def broadcast_variables(self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet) -> None:
        """Overwrites variables, which have the same shapes and dtypes on every rank of the set, with the root's."""
        raise NotImplementedError

    def saved_variables(self, optimizer: Any) -> list[Any]:
        """The optimizer's variables that are part of its state between steps."""
        return list(optimizer.variables() if callable(optimizer.variables) else optimizer.variables)

    def reducer(self, **settings: Any) -> Any:
        """What reduces an optimizer's gradients: settings and methods as in `hvd.keras.gradients.GradientReducer`."""
        raise NotImplementedError

    def aggregation(self, passes: int, reduce: Callable[..., Any], averages: bool) -> Any:
        """What adds up the gradients of several passes: methods as of
        `hvd.tensorflow.LocalGradientAggregationHelper`."""
        raise NotImplementedError

    def optimizer_mixins(self, passes: int) -> tuple[type, ...]:
        """Classes that stand before Keras 3's in a distributed optimizer."""
        return ()

    def on_distributed(self, optimizer: Any) -> None:
        """Called when an optimizer of Keras 3 has become a distributed one."""

    def refuse_passes_under_loss_scaling(self) -> None:
        """Called for a LossScaleOptimizer around a distributed optimizer with several passes.

        Raises:
            ValueError: the framework cannot have both.
        """

    def gradients_of(self, loss: Any, variables: Sequence[Any], grad_loss: Any, tape: Any) -> Sequence[Any]:
        """The gradients of a loss.

        Raises:
            NotImplementedError: the framework has no tapes.
        """
        raise NotImplementedError("_compute_gradients() needs the TensorFlow backend: give apply() the gradients")

    def patch_keras(self, keras: Any) -> None:
        """Changes the classes of a Keras that must know about distributed optimizers. Called once for each Keras."""

    def sync_variables(self, model: Any) -> None:
        """Makes a model's variables hold what has been trained so far, also within an epoch."""

    def on_loaded(self, model: Any) -> None:
        """Called when a model with a distributed optimizer was loaded."""

    def forget_ranks(self) -> None:
        """Called when the job's ranks have changed: nothing that was compiled for the old ones is used again."""
