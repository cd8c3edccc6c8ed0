"""What a rank can ask about the Spark task that it is."""

from __future__ import annotations

__all__ = ["get_available_devices"]


def get_available_devices() -> list[str]:
    """The addresses of the GPUs that Spark has given this task (spark.task.resource.gpu.amount), as text: indices into
    the executor's CUDA_VISIBLE_DEVICES if that is set, or else the host's. Empty if it has none."""
    from pyspark import TaskContext

    context = TaskContext.get()
    resources = {} if context is None else context.resources()
    return list(resources["gpu"].addresses) if "gpu" in resources else []
