"""What hvd.keras needs of the framework on which a Keras runs. `on_tensorflow`, `on_torch` and `on_jax` provide it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable


class Backend:
    """One framework. Tensors are its own, variables its own or those of Keras 3."""

    package: Any  # hvd's for the framework

    def tensor(self, value: Any) -> Any:
        """A tensor of a number, a list of them or a NumPy array; anything else as it is."""
        raise NotImplementedError

    def copied(self, variable: Any) -> Any:
        """What is in a variable now, as something to assign to it later."""
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

    def broadcast_variables(self, variables: Sequence[Any], root_rank: int) -> None:
        """Overwrites variables, of the same shapes and dtypes on every rank, with the root's."""
        raise NotImplementedError

    def reducer(self, **settings: Any) -> Any:
        """What reduces an optimizer's gradients: settings and methods as of `hvd.keras.gradients.GradientReducer`."""
        raise NotImplementedError

    def aggregation(self, passes: int, reduce: Callable[..., Any], averages: bool) -> Any:
        """What adds gradients up: methods as of `hvd.tensorflow.LocalGradientAggregationHelper`."""
        raise NotImplementedError

    def behaviour(self) -> tuple[type, ...]:
        """Classes that stand before Keras 3's in a distributed optimizer."""
        return ()

    def adopt(self, optimizer: Any) -> None:
        """Called when an optimizer of Keras 3 has become a distributed one."""

    def gradients_of(self, loss: Any, variables: Sequence[Any], grad_loss: Any, tape: Any) -> Sequence[Any]:
        """The gradients of a loss.

        Raises:
            NotImplementedError: the framework has no tapes.
        """
        raise NotImplementedError("_compute_gradients() needs the TensorFlow backend: give apply() the gradients")

    def attach(self, keras: Any) -> None:
        """Called once for each Keras, when its first optimizer becomes a distributed one: changes what has to know of
        it."""

    def attach_state(self, model: Any) -> None:
        """Makes a model's variables be what has been trained so far, also within an epoch."""

    def loaded(self, model: Any) -> None:
        """Called when a model with a distributed optimizer was loaded."""
