"""horovodrun's settings for the runtime: each is an option, a key of the file given with --config-file, and a variable
that the ranks read. What stands on the command line counts first, then the file, then the environment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Set
from dataclasses import dataclass
from typing import Any

HOROVOD_FUSION_THRESHOLD = "HOROVOD_FUSION_THRESHOLD"
HOROVOD_CYCLE_TIME = "HOROVOD_CYCLE_TIME"
HOROVOD_CACHE_CAPACITY = "HOROVOD_CACHE_CAPACITY"
HOROVOD_HIERARCHICAL_ALLREDUCE = "HOROVOD_HIERARCHICAL_ALLREDUCE"
HOROVOD_HIERARCHICAL_ALLGATHER = "HOROVOD_HIERARCHICAL_ALLGATHER"
HOROVOD_TORUS_ALLREDUCE = "HOROVOD_TORUS_ALLREDUCE"
HOROVOD_AUTOTUNE = "HOROVOD_AUTOTUNE"
HOROVOD_AUTOTUNE_LOG = "HOROVOD_AUTOTUNE_LOG"
HOROVOD_AUTOTUNE_WARMUP_SAMPLES = "HOROVOD_AUTOTUNE_WARMUP_SAMPLES"
HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE = "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE"
HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES = "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES"
HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE = "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE"
HOROVOD_TIMELINE = "HOROVOD_TIMELINE"
HOROVOD_TIMELINE_MARK_CYCLES = "HOROVOD_TIMELINE_MARK_CYCLES"
HOROVOD_STALL_CHECK_DISABLE = "HOROVOD_STALL_CHECK_DISABLE"
HOROVOD_STALL_CHECK_TIME_SECONDS = "HOROVOD_STALL_CHECK_TIME_SECONDS"
HOROVOD_STALL_SHUTDOWN_TIME_SECONDS = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
HOROVOD_MPI_THREADS_DISABLE = "HOROVOD_MPI_THREADS_DISABLE"
HOROVOD_NUM_NCCL_STREAMS = "HOROVOD_NUM_NCCL_STREAMS"
HOROVOD_THREAD_AFFINITY = "HOROVOD_THREAD_AFFINITY"
HOROVOD_GLOO_TIMEOUT_SECONDS = "HOROVOD_GLOO_TIMEOUT_SECONDS"
HOROVOD_LOG_LEVEL = "HOROVOD_LOG_LEVEL"
HOROVOD_LOG_HIDE_TIME = "HOROVOD_LOG_HIDE_TIME"


@dataclass(frozen=True)
class Kind:
    """What a setting's value is. Numbers begin at 0 and have an upper limit."""

    to_text: Callable[[Any], str] = str  # as the ranks read it
    at_most: float | None = None


def _flag(value: Any) -> str:
    return "1" if value else "0"


TEXT = Kind()
FLAG = Kind(_flag)
OPPOSITE = Kind(lambda value: _flag(not value))
NUMBER = Kind(str, math.inf)
SHARE = Kind(str, 1)
MEGABYTES = Kind(lambda value: str(int(value * 1024 * 1024)), math.inf)


@dataclass(frozen=True)
class Setting:
    argument: str  # of parse_args()
    key: str  # in the file: "section.name"
    variable: str
    hvd_variable: str  # with the same meaning, which the ranks read first; empty: hvd has no such thing
    kind: Kind
    inverted: bool = False  # the file says the opposite of the argument


SETTINGS = (
    Setting(
        "fusion_threshold_mb", "params.fusion_threshold_mb", HOROVOD_FUSION_THRESHOLD, "HVD_FUSION_THRESHOLD", MEGABYTES
    ),
    Setting("cycle_time_ms", "params.cycle_time_ms", HOROVOD_CYCLE_TIME, "HVD_CYCLE_TIME", NUMBER),
    Setting("cache_capacity", "params.cache_capacity", HOROVOD_CACHE_CAPACITY, "HVD_CACHE_CAPACITY", NUMBER),
    Setting("hierarchical_allreduce", "params.hierarchical_allreduce", HOROVOD_HIERARCHICAL_ALLREDUCE, "", FLAG),
    Setting("hierarchical_allgather", "params.hierarchical_allgather", HOROVOD_HIERARCHICAL_ALLGATHER, "", FLAG),
    Setting("torus_allreduce", "params.torus_allreduce", HOROVOD_TORUS_ALLREDUCE, "", FLAG),
    Setting("autotune", "autotune.enabled", HOROVOD_AUTOTUNE, "HVD_AUTOTUNE", FLAG),
    Setting("autotune_log_file", "autotune.log_file", HOROVOD_AUTOTUNE_LOG, "HVD_AUTOTUNE_LOG", TEXT),
    Setting(
        "autotune_warmup_samples",
        "autotune.warmup_samples",
        HOROVOD_AUTOTUNE_WARMUP_SAMPLES,
        "HVD_AUTOTUNE_WARMUP_SAMPLES",
        NUMBER,
    ),
    Setting(
        "autotune_steps_per_sample",
        "autotune.steps_per_sample",
        HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE,
        "HVD_AUTOTUNE_STEPS_PER_SAMPLE",
        NUMBER,
    ),
    Setting(
        "autotune_bayes_opt_max_samples",
        "autotune.bayes_opt_max_samples",
        HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES,
        "HVD_AUTOTUNE_MAX_SAMPLES",
        NUMBER,
    ),
    Setting(
        "autotune_gaussian_process_noise",
        "autotune.gaussian_process_noise",
        HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE,
        "",
        SHARE,
    ),
    Setting("timeline_filename", "timeline.filename", HOROVOD_TIMELINE, "HVD_TIMELINE", TEXT),
    Setting(
        "timeline_mark_cycles", "timeline.mark_cycles", HOROVOD_TIMELINE_MARK_CYCLES, "HVD_TIMELINE_MARK_CYCLES", FLAG
    ),
    Setting(
        "no_stall_check",
        "stall_check.enabled",
        HOROVOD_STALL_CHECK_DISABLE,
        "HVD_STALL_CHECK_DISABLE",
        FLAG,
        inverted=True,
    ),
    Setting(
        "stall_check_warning_time_seconds",
        "stall_check.warning_time_seconds",
        HOROVOD_STALL_CHECK_TIME_SECONDS,
        "HVD_STALL_CHECK_TIME_SECONDS",
        NUMBER,
    ),
    Setting(
        "stall_check_shutdown_time_seconds",
        "stall_check.shutdown_time_seconds",
        HOROVOD_STALL_SHUTDOWN_TIME_SECONDS,
        "HVD_STALL_SHUTDOWN_TIME_SECONDS",
        NUMBER,
    ),
    Setting("mpi_threads_disable", "library_options.mpi_threads_disable", HOROVOD_MPI_THREADS_DISABLE, "", FLAG),
    Setting("num_nccl_streams", "library_options.num_nccl_streams", HOROVOD_NUM_NCCL_STREAMS, "", NUMBER),
    Setting("thread_affinity", "library_options.thread_affinity", HOROVOD_THREAD_AFFINITY, "", NUMBER),
    Setting(
        "gloo_timeout_seconds",
        "library_options.gloo_timeout_seconds",
        HOROVOD_GLOO_TIMEOUT_SECONDS,
        "",
        NUMBER,
    ),
    Setting("log_level", "logging.level", HOROVOD_LOG_LEVEL, "HVD_LOG_LEVEL", TEXT),
    Setting("log_with_timestamp", "logging.with_timestamp", HOROVOD_LOG_HIDE_TIME, "", OPPOSITE),
)

_CONTROLLERS = {"mpi": "use_mpi", "gloo": "use_gloo"}


def set_args_from_config(args: Any, config: Mapping[str, Any], override_args: Set[str]) -> list[str]:
    """Gives arguments the values that a file has for them.

    Args:
        args: the attributes that parse_args() returns.
        config: the file's content.
        override_args: attributes that were given on the command line, and stay.

    Returns:
        Keys of the file that mean nothing.

    Raises:
        ValueError: the file has no sections, or the controller is neither mpi nor gloo.
    """
    values = dict(_flat(config))
    controller = values.pop("controller", None)
    if controller is not None:
        if controller not in _CONTROLLERS:
            raise ValueError(f"controller={controller} must be mpi or gloo")
        if not override_args & {"use_mpi", "use_gloo", "use_jsrun"}:
            setattr(args, _CONTROLLERS[controller], True)
    for setting in SETTINGS:
        value = values.pop(setting.key, None)
        if value is not None and setting.argument not in override_args:
            setattr(args, setting.argument, not value if setting.inverted else value)
    return list(values)


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if not isinstance(config, Mapping):
        raise ValueError("the file must have sections: params:, autotune: and so on")
    for section, content in config.items():
        if isinstance(content, Mapping):
            yield from ((f"{section}.{name}", value) for name, value in content.items())
        elif content is not None:
            yield section, content


def validate_config_args(args: Any) -> None:
    """ValueError for numbers below 0 or above what they may be."""
    for setting in SETTINGS:
        value, at_most = getattr(args, setting.argument, None), setting.kind.at_most
        if value is None or at_most is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{setting.argument}={value} must be a number")
        if not 0 <= value <= at_most:
            limits = ">= 0" if at_most == math.inf else f"in [0, {at_most}]"
            raise ValueError(f"{setting.argument}={value} must be {limits}")


def set_env_from_args(env: MutableMapping[str, str], args: Any) -> MutableMapping[str, str]:
    """Sets the variables of those arguments that have a value, and returns the environment.

    The variable that the ranks would read instead goes: what is asked for now counts more than what was set before.
    """
    for setting in SETTINGS:
        value = getattr(args, setting.argument, None)
        if value is not None:
            env[setting.variable] = setting.kind.to_text(value)
            env.pop(setting.hvd_variable, None)
    return env
