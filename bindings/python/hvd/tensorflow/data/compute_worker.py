"""The compute workers of a data service, a job of their own (see `compute_service`):

hvdrun -np 4 python -m hvd.tensorflow.data.compute_worker /shared/data-service.json
"""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

import tensorflow as tf

from hvd import _native, basics
from hvd.tensorflow.data.compute_service import SIDES, ComputeService, TfDataServiceConfig, compute_worker_fn


class UnevenShareError(ValueError):
    """The number of processes is no multiple of that of the dispatchers."""


def main(arguments: list[str] | None = None) -> int:
    """The program, on every process of the job. Returns its exit code."""
    options = _options(arguments)
    try:
        run(options.config, options.dispatchers, options.dispatcher_side, options.timeout)
    except UnevenShareError as error:
        print(f"compute_worker: {error}", file=sys.stderr)
        return 2
    return 0


def run(path: Path, dispatchers: int, dispatcher_side: str, timeout: float) -> None:
    """Serves until the data service ends. The first process has the `ComputeService`, and writes the file. Arguments as
    the program's options.

    Raises:
        UnevenShareError: a ValueError.
    """
    if _native.launch()[1] == 0:
        # One of an earlier service would lead the others astray. It is gone before any of them is through init().
        path.unlink(missing_ok=True)
    basics.init()
    if basics.size() % dispatchers != 0:
        raise UnevenShareError(f"{basics.size()} processes for {dispatchers} dispatchers: not equally many for each")
    tf.config.set_visible_devices([], "GPU")  # they are the training's
    if basics.rank() != 0:
        compute_worker_fn(TfDataServiceConfig.read(path, True, timeout))
        return
    key = secrets.token_bytes(32)
    workers_per_dispatcher = basics.size() // dispatchers
    service = ComputeService(dispatchers, workers_per_dispatcher, key)
    config = TfDataServiceConfig(
        dispatchers=dispatchers,
        workers_per_dispatcher=workers_per_dispatcher,
        dispatcher_side=dispatcher_side,
        addresses=service.addresses(),
        key=key,
        timeout=timeout,
    )
    config.write(path)
    try:
        compute_worker_fn(config)
    finally:
        path.unlink(missing_ok=True)
        service.shutdown()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m hvd.tensorflow.data.compute_worker",
        description="Compute workers for a training: started with hvdrun, mpirun or the like, one process for each.",
    )
    parser.add_argument(
        "config", metavar="CONFIG", type=Path, help="file to be written, which all of them and the training can read"
    )
    parser.add_argument(
        "--dispatchers",
        type=int,
        default=1,
        help="1 for all ranks of the training, or one for each of them (default: %(default)s)",
    )
    parser.add_argument(
        "--dispatcher-side",
        choices=SIDES,
        default="compute",
        help="where the dispatchers run (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=60,
        help="seconds to wait for other processes, those of the training included (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.dispatchers < 1:
        parser.error(f"--dispatchers {options.dispatchers}: at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
