"""State that survives a change of the job's ranks; see `hvd.elastic`."""

from hvd.elastic import ObjectState, State, run_fn

__all__ = ["ObjectState", "State", "run_fn"]
