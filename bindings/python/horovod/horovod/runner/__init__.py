"""`horovod.run`: a function on several ranks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["run"]


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: tuple[int, int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | bool | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
    *,
    elastic_timeout: int | None = None,
) -> list[Any]:
    """Calls a function on `num_proc` new processes (1 by default); see `hvd.run`, which does it.

    Args:
        func, args, kwargs: as for `hvd.run`.
        num_proc: number of ranks; `np` is the older name. An elastic job begins with so many, or with `min_num_proc` if
            these are more.
        min_num_proc, max_num_proc: either makes the job elastic: the fewest ranks with which it goes on, by default
            those that it begins with, and the most that it may have, by default all slots; `min_np` and `max_np` are
            the older names.
        elastic_timeout: seconds that an elastic job waits for enough ranks; 600 by default.
        reset_limit: how often the ranks may change before the job fails; any number of times by default.
        cooldown_range: seconds for which a host gets no process after a failure there, at least and at most: they are
            doubled with each failure; (1, 300) by default.
        hosts, hostfile: slots per host, "localhost:4", or a file with lines "localhost slots=4".
        start_timeout: seconds that hvdrun waits for the hosts, and `init()` for the other ranks.
        ssh_port, ssh_identity_file, network_interface, network_interfaces: how other hosts are reached.
        output_filename: a folder for what the ranks print, besides the caller's output.
        verbose: have hvdrun say what it does.
        use_mpi, mpi_args: start the ranks with mpirun; with these options. use_gloo: the default.
        executable: the Python for the ranks.
        host_discovery_script: a command that prints the hosts that an elastic job may use now, as lines "HOST:SLOTS";
            it is run again and again.
        others: without effect; a warning says so.

    Returns:
        What the function returned, by rank. In an elastic job, on all ranks of the last epoch, of which there are
        `min_num_proc` or more; Horovod returns the first `min_num_proc` of them.

    Raises:
        RuntimeError: the function raised something, or its process died, and the job could not go on; with the rank
            (of an elastic job, the process) and its traceback, and the function's own exception as its cause.
        ValueError: arguments that make no sense.
    """
    from horovod.runner import translation
    from horovod.runner.arguments import make_parser
    from hvd.arguments import positive
    from hvd.exceptions import RankFailedError
    from hvd.run_function import run as run_on_ranks

    _require_one_at_most(hosts=hosts, hostfile=hostfile, host_discovery_script=host_discovery_script)
    _require_one_at_most(use_gloo=use_gloo, use_mpi=use_mpi)
    options = make_parser().parse_args([])
    num_proc = _newer("np", np, "num_proc", num_proc)
    options.num_proc = None if num_proc is None else positive(num_proc, "num_proc")
    options.min_num_proc = _newer("min_np", min_np, "min_num_proc", min_num_proc)
    options.max_num_proc = _newer("max_np", max_np, "max_num_proc", max_num_proc)
    options.slots, options.reset_limit, options.cooldown_range = slots, reset_limit, cooldown_range
    options.elastic_timeout = elastic_timeout
    options.hosts, options.hostfile, options.host_discovery_script = hosts, hostfile, host_discovery_script
    options.ssh_port, options.ssh_identity_file = ssh_port, ssh_identity_file
    options.disable_cache, options.output_filename, options.verbose = disable_cache, output_filename, verbose
    options.use_gloo, options.use_mpi, options.mpi_args = use_gloo, use_mpi, mpi_args
    options.nics = {name for names in (network_interface, network_interfaces) if names for name in names.split(",")}
    for note in translation.notes(options):
        warnings.warn(f"horovod.run: {note}", stacklevel=2)
    try:
        return run_on_ranks(
            func,
            args,
            kwargs,
            translation.number_of_processes(options),
            min_np=options.min_num_proc,
            max_np=options.max_num_proc,
            env=translation.environment_of_ranks(options, {}),
            start_timeout=start_timeout,
            options=translation.hvdrun_options(options, os.environ),
            executable=executable,
        )
    except Exception as error:
        of_rank = error.__cause__
        if isinstance(of_rank, RankFailedError):
            raise RankFailedError(str(of_rank), of_rank.rank) from error
        raise


def _require_one_at_most(**arguments: Any) -> None:
    """As the parser does for the options of these names."""
    given = [name for name, value in arguments.items() if value]
    if len(given) > 1:
        raise ValueError(f"horovod.run: {' and '.join(given)} exclude each other: give one of them")


def _newer(old_name: str, old: int | None, name: str, value: int | None) -> int | None:
    if old is None:
        return value
    warnings.warn(f"horovod.run: {old_name} is now called {name}", DeprecationWarning, stacklevel=3)
    return old
