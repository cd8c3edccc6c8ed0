"""`RayExecutor`: functions on ranks that Ray places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvd.ray.actors import ActorsJob, Layout
from hvd.ray.elastic import ElasticJob, Limits
from hvd.ray.messages import Callbacks
from hvd.ray.worker import Worker


@dataclass
class Settings:
    """How long to wait.

    Attributes:
        timeout_s: seconds that `hvd.init()` waits for the other ranks (HVD_START_TIMEOUT).
        placement_group_timeout_s: seconds until the placement group has room, and then until its actors run.
        nics, verbose, ssh_identity_file: without effect: all addresses are tried, and nothing is started by ssh.
        discovery: of an elastic executor with `override_discovery=False`; its `find_available_hosts_and_slots()` says
            how many ranks each node may have, by its address or NAME of its resources "node:NAME"; all its names count.
    """

    timeout_s: float = 30
    placement_group_timeout_s: float = 100
    nics: Sequence[str] | None = None
    verbose: int = 1
    ssh_identity_file: str | None = None
    discovery: Any = None


class RayExecutor:
    """Ranks in actors of Ray, for one function after the other. `ray.init()` comes before.

    Either `num_workers` or `num_hosts` says how many ranks there are, or the job is elastic and has `min_workers` or
    more. Ranks are numbered host by host.

    Args:
        settings: as from `create_settings`.
        num_workers: ranks, each in a bundle of a placement group.
        num_hosts, num_workers_per_host: so many hosts, each with so many ranks in one bundle.
        cpus_per_worker: CPUs that Ray sets aside for a rank.
        use_gpu, gpus_per_worker: whether ranks have GPUs, and how many each; 1 by default. CUDA_VISIBLE_DEVICES has
            those of all ranks of the host, in the order of their local ranks.
        use_current_placement_group: use the placement group that the caller runs in, if it does, as trials of Ray Tune
            do.
        min_workers, max_workers: the fewest ranks with which an elastic job goes on, and the most that it may have; by
            default as many as the cluster has room for.
        reset_limit, cooldown_range, elastic_timeout: as hvdrun's `--reset-limit`, `--cooldown-range` and
            `--elastic-timeout`: how often ranks may change; seconds without new ranks on a host where one has failed;
            seconds to wait for enough of them.
        override_discovery: elastic jobs use all nodes of the cluster. If False, those of `settings.discovery`.
        strategy: of a new placement group with `num_workers`: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.

    Raises:
        ValueError: the numbers make no sense.
    """

    _worker_class: type[Worker] = Worker

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: float = 100,
        nics: Sequence[str] | None = None,
    ) -> Settings:
        """See `Settings`. ssh_str: without effect."""
        return Settings(timeout_s, placement_group_timeout_s, nics, ssh_identity_file=ssh_identity_file)

    def __init__(
        self,
        settings: Any = None,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: float = 1,
        use_gpu: bool = False,
        gpus_per_worker: float | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: Sequence[int] | None = None,
        elastic_timeout: int = 600,
        override_discovery: bool = True,
        *,
        strategy: str = "PACK",
    ) -> None:
        if gpus_per_worker is not None and not use_gpu:
            raise ValueError(
                f"gpus_per_worker is {gpus_per_worker}, but use_gpu is False: give use_gpu=True, or leave "
                "gpus_per_worker out"
            )
        self.settings = Settings() if settings is None else settings
        gpus = (gpus_per_worker or 1) if use_gpu else 0
        self._job: ActorsJob | ElasticJob
        if min_workers is None:
            if max_workers is not None:
                raise ValueError(
                    f"max_workers is {max_workers}, but there is no min_workers, which makes a job elastic: give both, "
                    "or num_workers alone"
                )
            layout = Layout(
                workers=num_workers,
                hosts=num_hosts,
                workers_per_host=num_workers_per_host,
                cpus=cpus_per_worker,
                gpus=gpus,
                use_current_group=use_current_placement_group,
                strategy=strategy,
            )
            self._job = ActorsJob(self.settings, layout, self._worker_class)
        else:
            if num_workers is not None or num_hosts is not None:
                other = "num_hosts" if num_workers is None else "num_workers"
                raise ValueError(f"Both `min_workers` and `{other}` provided. An elastic executor takes only the first")
            limits = Limits(min_workers, max_workers, reset_limit, cooldown_range, elastic_timeout)
            discovery = None if override_discovery else self.settings.discovery
            if discovery is None and not override_discovery:
                raise ValueError(
                    "override_discovery is False, and settings.discovery is not set: set it, or leave "
                    "override_discovery out to use all nodes"
                )
            self._job = ElasticJob(self.settings, limits, cpus_per_worker, gpus, discovery)

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, Any] | None = None,
    ) -> None:
        """Starts the actors, and returns when all run. An elastic executor starts them when it is called.

        Args:
            executable_cls: called with `executable_args` and `executable_kwargs` on every rank, where it may call
                `hvd.init()`; what it returns is what `execute` gives its function.
            extra_env_vars: for the ranks' environment.

        Raises:
            TimeoutError: the cluster has no room, or the actors did not start in time.
            ValueError: started already; or the current placement group has no room.
            Exception: as from `run`, from `executable_cls`.
        """
        variables = {name: str(value) for name, value in (extra_env_vars or {}).items()}
        self._job.start(executable_cls, executable_args or (), executable_kwargs or {}, variables)

    def shutdown(self) -> None:
        """Ends the actors. `start` may be called again."""
        self._job.shutdown()

    @property
    def workers(self) -> list[Any]:
        """The actors, by rank; none of an elastic executor."""
        return list(self._job.actors)

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        callbacks: Callbacks | None = None,
    ) -> list[Any]:
        """Calls `fn(*args, **kwargs)` on every rank, and returns what it returned, by rank. It calls `hvd.init()`.

        If one fails, the others learn why in their next operation. Those that have not returned five seconds later are
        killed, and then the executor has to be started anew; else it can be used again. An elastic executor goes on, as
        `hvd.run` with `min_np` does.

        Args:
            callbacks: each is called in the driver with what a rank gives `hvd.ray.log`.

        Raises:
            Exception: what a rank raised first; its cause, a RankFailedError, names the rank and has its traceback.
            RankFailedError: a rank's actor has died, or an elastic job could not go on.
        """
        return self._job.execute(_bound(fn, args, kwargs), callbacks)

    def run_remote(
        self, fn: Callable[..., Any], args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """As `run`, but returns at once, with ObjectRefs by rank for `ray.get`. After a failure call `shutdown`.

        Raises:
            NotImplementedError: the executor is elastic.
        """
        return self._job.execute_remote(_bound(fn, args, kwargs))

    def execute(self, fn: Callable[[Any], Any], callbacks: Callbacks | None = None) -> list[Any]:
        """As `run`, for `fn(executable)`: what `executable_cls` has made on this rank, or None."""
        return self._job.execute(fn, callbacks)

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """As `execute`, on rank 0 alone; returns its result.

        Raises:
            NotImplementedError: the executor is elastic.
        """
        return self._job.execute_single(fn)


def _bound(
    fn: Callable[..., Any], args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> Callable[[Any], Any]:
    return lambda executable: fn(*(args or ()), **(kwargs or {}))
