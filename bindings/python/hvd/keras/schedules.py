"""Learning rates for large batches as a schedule of Keras. `hvd.learning_rate` says what is calculated, and why."""

from __future__ import annotations

from typing import Any

from hvd import basics, learning_rate
from hvd.keras.framework import keras


def _cast(value: Any, dtype: str) -> Any:
    if hasattr(keras, "ops"):
        return keras.ops.cast(value, dtype)
    import tensorflow

    return tensorflow.cast(value, dtype)


@keras.saving.register_keras_serializable(package="hvd")
class LinearScaling(keras.optimizers.schedules.LearningRateSchedule):
    """Linear scaling with gradual warm-up (Goyal et al., 2017, arXiv:1706.02677) of a learning rate, step by step.

    >>> rate = LinearScaling(0.1, warmup_steps=5 * steps_per_epoch)  # 0.1 is right for one rank's batch
    >>> model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=0.9)), ...)

    It is saved with the model, the factor as a number: a model loaded into a job of another size goes on with the
    factor that it was saved with, until it gets another schedule.

    `hvd.keras.callbacks.LearningRateWarmupCallback` does the same to an optimizer whose learning rate is a number.

    Args:
        rate: the learning rate that is right for the reference batch: a number, or a schedule of Keras, which is called
            with the same step and multiplied. So a decay goes on below the warm-up.
        warmup_steps: the rate rises from the unscaled one over that many steps; 0: scaled from the start. The paper
            takes five epochs.
        factor: how many times the reference batch all ranks' batches of a step are together; by default the number of
            ranks, as it is now.

    Raises:
        ValueError: as `hvd.learning_rate.LinearScaling`.
    """

    def __init__(
        self,
        rate: Any,
        warmup_steps: float = 0,
        factor: float | None = None,
    ) -> None:
        self.scaling = learning_rate.LinearScaling(rate, warmup_steps, basics.size() if factor is None else factor)

    def __call__(self, step: Any) -> Any:
        # TensorFlow adds no integers to floats. float32 whatever keras.config.floatx() is: float16 ends at 65504.
        return self.scaling(_cast(step, "float32"))

    def get_config(self) -> dict[str, Any]:
        return {
            "rate": keras.saving.serialize_keras_object(self.scaling.rate),
            "warmup_steps": self.scaling.warmup_steps,
            "factor": self.scaling.factor,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LinearScaling:
        return cls(**{**config, "rate": keras.saving.deserialize_keras_object(config["rate"])})
