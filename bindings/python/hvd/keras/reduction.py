"""What happens between a Keras optimizer's gradients and its update."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Callable

from hvd.keras.backend import Backend
from hvd.process_set import ProcessSet, numbered_name

Update = Callable[[list[Any]], object]


class Reduction:
    """Reduces the gradients of one optimizer, in eager mode and while a graph is traced.

    Args:
        backend: of the optimizer's Keras.
        passes: calls whose gradients are added up before they are reduced.
        averages_passes: whether these are then divided by their number.
        settings: of the backend's `GradientReducer`. One without a name gets it when it first reduces: a rank may have
            loaded the optimizer for itself alone, and then counts no differently for that.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        passes: int,
        averages_passes: bool,
        process_set: ProcessSet,
        **settings: Any,
    ) -> None:
        self._process_set, self.passes = process_set, passes
        self._local_layers: list[Any] = []
        self._is_done = False
        self._has_taken = False
        self._reducer = backend.reducer(process_set=process_set, **settings)
        self.aggregation = backend.aggregation(passes, self.reduced, averages_passes)

    def register_local(self, variable: Any) -> None:
        self._reducer.register_local_source(variable)

    def leave_out(self, layers: Iterable[Any]) -> None:
        """The variables of these layers, which need not be built yet, are each rank's own."""
        self._local_layers.extend(layers)

    def take(self, gradients: list[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients as the step that follows is to be given them: reduced, if this was the last pass of a step."""
        self._has_taken = False
        taken = list(self.aggregation.compute_gradients(gradients, variables))
        self._has_taken = True
        return taken

    def step(
        self,
        gradients: list[Any],
        variables: Sequence[Any],
        update: Update,
        optimizer: Any,
        are_reduced: bool = False,
    ) -> None:
        """Calls `update` with the reduced gradients, if this was the last pass of a step.

        Args:
            gradients: each rank's own, or what `take` has made of them.
            optimizer: the one that is updated.
            are_reduced: whether this pass's gradients have been reduced already, and are only to be added up.
        """
        if self._is_done:
            update(gradients)
            return
        if self._has_taken:
            reduced = gradients
        else:
            with self.done() if are_reduced else nullcontext():
                reduced = self.aggregation.compute_gradients(gradients, variables)
        self._has_taken = False

        def act() -> None:
            with self.done():
                update(reduced)

        self.aggregation.apply_gradients(act, optimizer)

    def reduced(self, gradients: list[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients, reduced over the ranks; None stays None."""
        if self._is_done or self._has_taken:
            return gradients
        for layer in self._local_layers:  # which are built by now
            for variable in layer.trainable_weights:
                self.register_local(variable)
        self._local_layers.clear()
        if self._reducer.name is None:
            self._reducer.name = numbered_name(self._process_set, "loaded_keras_optimizer")
        return list(self._reducer(gradients, variables))

    @contextmanager
    def applying(self) -> Iterator[None]:
        """Around an update of what `take` has returned, if it was called since the one before: as `done` then."""
        if not self._has_taken:
            yield
            return
        self._has_taken = False
        with self.done():
            yield

    @contextmanager
    def done(self) -> Iterator[None]:
        """Within it gradients are taken for reduced ones: an optimizer around this one has seen to them."""
        before, self._is_done = self._is_done, True
        try:
            yield
        finally:
            self._is_done = before

    def forget(self) -> None:
        """Drops what was added up, when training goes back to an earlier state."""
        self.aggregation.forget()


def reduction_of(optimizer: Any) -> Reduction | None:
    """That of a distributed optimizer; None for any other one."""
    found = getattr(optimizer, "__dict__", {}).get("_reduction")
    return found if isinstance(found, Reduction) else None


def reduction_within(optimizer: Any) -> Reduction | None:
    """That of a distributed optimizer, or of the one in a LossScaleOptimizer; None for any other one."""
    return reduction_of(optimizer) or reduction_of(getattr(optimizer, "inner_optimizer", None))


def is_distributed(optimizer: Any) -> bool:
    """Whether this is a distributed optimizer, or one around it."""
    return reduction_within(optimizer) is not None
