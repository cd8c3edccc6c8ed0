"""Parameter servers: rows a second, round trips, the wire, slow workers, collectives beside them.

    python3 tests/bench/parameter_servers.py                  all of it; "wire" needs root, "rows" a redis-server
    python3 tests/bench/parameter_servers.py rows --launches 5

It needs hvd, PyTorch, and the target `benchmarks`. Competitors are launched by turns. Shown are the least and the
median time of all launches' rounds, and the load of the machine before and after; compare only within a run.

- rows: two workers and one server on this host, 100,000 rows of 1 KB, calls of 64 random keys. hvd from Python and from
  C++, a call at a time and eight under way; a server over torch.distributed's gloo (a message with keys and gradients,
  one with rows or a byte back; SGD in place); Redis over a unix socket, from commands that are made beforehand: MGET as
  a pull, MSET as a push (it only stores), both in one write as push_pull. Redis's answers are not even taken apart.
- trip: one row, from C++, with one worker and one server.
- wire: one worker and its server in network namespaces with links of 1 Gb/s. Share: rows, without keys and headers.
- steps: four workers on rows of their own, of which one takes twice as long for a step (it sleeps, so that
  the number of CPUs does not matter); steps of all together, asynchronous against synchronous.
- beside: allreduces of 64 MB of two ranks: alone, while a second thread of each calls a server (push_pull, one call
  after the other), and while it counts, which is as much as that can ask of the CPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/tests/bench/bench_parameter_servers"
HVDRUN = Path(sys.executable).parent / "hvdrun"
NETLAB = ROOT / "tests/support/netlab.sh"

ROWS, WIDTH, TABLE_ROWS, BATCHES = 64, 256, 100_000, 64
WORKERS = 2
KINDS = ("pull", "push", "push_pull")
RATE = 0.5
WIRE = 125e6  # bytes a second
STEP = 0.02  # seconds

Times = dict[str, list[float]]  # microseconds by kind


# ---- Workers, under hvdrun


def keys_of(rank: int) -> list:
    import numpy as np

    return list(np.random.default_rng(rank).integers(0, TABLE_ROWS, (BATCHES, ROWS)))


def timed(rounds: int, calls: int, run: Callable[[str], None]) -> Times:
    """`run(kind)` makes the calls of a round. All ranks call it."""
    import torch

    import hvd.torch as hvd

    times: Times = {kind: [] for kind in KINDS}
    for number in range(rounds + 1):
        for kind in KINDS:
            hvd.barrier()
            start = time.perf_counter()
            run(kind)
            taken = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
            slowest = hvd.allreduce(taken, op=hvd.Max).item()
            if number > 0:  # the first round warms up
                times[kind].append(slowest / calls * 1e6)
    return times


def report(times: Times) -> None:
    import hvd.torch as hvd

    if hvd.rank() == 0:
        print(json.dumps(times), flush=True)


def work_hvd(rounds: int, calls: int) -> None:
    import numpy as np

    import hvd.torch as hvd
    from hvd import ps

    hvd.init()
    with ps.connect() as servers:
        table = servers.table("bench", width=WIDTH, optimizer=ps.SGD(RATE))
        zeros = np.zeros((ROWS, WIDTH), dtype=np.float32)
        for first in range(0, TABLE_ROWS, ROWS):
            table.push(np.arange(first, first + ROWS) % TABLE_ROWS, zeros)
        keys = keys_of(hvd.rank())
        gradients, rows = np.full_like(zeros, 0.25), np.empty_like(zeros)

        def run(kind: str) -> None:
            for number in range(calls):
                batch = keys[number % BATCHES]
                if kind == "pull":
                    table.pull(batch, out=rows)
                elif kind == "push":
                    table.push(batch, gradients)
                else:
                    table.push_pull(batch, gradients, out=rows)

        times = timed(rounds, calls, run)
        assert (rows < 0).all() and (rows % (RATE * 0.25) == 0).all(), "the rows are wrong"
        report(times)


def work_gloo(rounds: int, calls: int) -> None:
    import torch
    import torch.distributed as dist

    import hvd.torch as hvd
    from beside_hvd import start_gloo

    torch.set_num_threads(1)
    hvd.init()
    start_gloo()
    server = WORKERS
    words = 2 * ROWS  # of the keys
    batches = [torch.from_numpy(keys) for keys in keys_of(hvd.rank())]
    asked, pushed = torch.empty(words), torch.full((words + ROWS * WIDTH,), 0.25)
    rows, done = torch.empty(ROWS, WIDTH), torch.empty(1)

    def call(kind: str) -> None:
        for number in range(calls):
            request = asked if kind == "pull" else pushed
            request[:words] = batches[number % BATCHES].view(torch.float32)
            dist.send(request, server)
            dist.recv(done if kind == "push" else rows, server)

    table = torch.zeros(TABLE_ROWS, WIDTH) if hvd.rank() == server else None

    def serve(kind: str) -> None:
        request = asked if kind == "pull" else pushed
        for _ in range(WORKERS * calls):
            worker = dist.recv(request)
            keys = request[:words].view(torch.int64)
            if kind != "pull":
                table.index_add_(0, keys, request[words:].view(ROWS, WIDTH), alpha=-RATE)
            if kind == "push":
                dist.send(done, worker)
            else:
                dist.send(torch.index_select(table, 0, keys, out=rows), worker)

    times = timed(rounds, calls, serve if hvd.rank() == server else call)
    assert (rows < 0).all() and (rows % (RATE * 0.25) == 0).all(), "the rows are wrong"
    report(times)
    hvd.barrier()
    dist.destroy_process_group()


def command_of(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def work_redis(path: str, rounds: int, calls: int) -> None:
    import hvd.torch as hvd

    hvd.init()
    value = b"v" * (4 * WIDTH)
    answer_of_pull = len(command_of(*[value] * ROWS))
    answer_of_push = len(b"+OK\r\n")
    batches = [[b"%d" % key for key in keys] for keys in keys_of(hvd.rank())]
    pulls = [command_of(b"MGET", *batch) for batch in batches]
    pushes = [command_of(b"MSET", *[word for key in batch for word in (key, value)]) for batch in batches]
    requests = {"pull": pulls, "push": pushes, "push_pull": [push + pull for push, pull in zip(pushes, pulls)]}
    sizes = {"pull": answer_of_pull, "push": answer_of_push, "push_pull": answer_of_push + answer_of_pull}
    answer = memoryview(bytearray(max(sizes.values())))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)

        def ask(request: bytes, size: int) -> None:
            connection.sendall(request)
            there = 0
            while there < size:
                count = connection.recv_into(answer[there:size])
                assert count, "Redis has closed the connection"
                there += count

        for first in range(0, TABLE_ROWS, ROWS):
            keys = [b"%d" % (key % TABLE_ROWS) for key in range(first, first + ROWS)]
            ask(command_of(b"MSET", *[word for key in keys for word in (key, value)]), answer_of_push)

        def run(kind: str) -> None:
            for number in range(calls):
                ask(requests[kind][number % BATCHES], sizes[kind])

        times = timed(rounds, calls, run)
        assert bytes(answer[: sizes["push_pull"]]) == b"+OK\r\n" + command_of(*[value] * ROWS), "the rows are wrong"
        report(times)


def work_steps(rounds: int, steps: int) -> None:
    """Rounds of so many synchronous steps, and of asynchronous ones for about as long."""
    import numpy as np
    import torch

    import hvd.torch as hvd
    from hvd import ps

    hvd.init()
    own = 2 * STEP if hvd.rank() == 0 else STEP
    keys = np.arange(hvd.rank(), 4 * ROWS, 4)
    gradients = np.ones((len(keys), WIDTH), dtype=np.float32)
    times: Times = {"synchronous": [], "asynchronous": []}
    with ps.connect() as servers:
        tables = {how: servers.table(how, width=WIDTH, optimizer=ps.SGD(RATE), consistency=how) for how in times}

        def step(how: str) -> None:
            tables[how].pull(keys)
            time.sleep(own)
            tables[how].push(keys, gradients)
            if how == "synchronous":
                servers.clock()

        for _ in range(rounds):
            for how in times:
                hvd.barrier()
                start, done = time.perf_counter(), 0
                while done < steps if how == "synchronous" else time.perf_counter() - start < steps * 2 * STEP:
                    step(how)
                    done += 1
                rate = torch.tensor(done / (time.perf_counter() - start), dtype=torch.float64)
                times[how].append(1e6 / hvd.allreduce(rate, op=hvd.Sum).item())
        report(times)


# ---- Launches


def launch(command: list[object]) -> Times:
    """The last line of what it prints, which is JSON."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=280, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if done.returncode != 0:
        sys.exit(f"{shlex.join(words)}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def worker(*words: object) -> list[object]:
    return [sys.executable, __file__, "--worker", *words]


@contextmanager
def redis() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:
        path = f"{folder}/socket"
        settings = ["--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", folder]
        with subprocess.Popen(["redis-server", *settings], stdout=subprocess.DEVNULL) as server:
            try:
                deadline = time.monotonic() + 20
                while not os.path.exists(path):
                    if time.monotonic() > deadline or server.poll() is not None:
                        sys.exit("redis-server does not start")
                    time.sleep(0.05)
                yield path
            finally:
                server.terminate()


def by_turns(commands: dict[str, list[object]], launches: int) -> dict[str, Times]:
    print(f"load {load()}", end="", flush=True)
    results: dict[str, Times] = {name: {} for name in commands}
    for _ in range(launches):
        for name, command in commands.items():
            for kind, times in launch(command).items():
                results[name].setdefault(kind, []).extend(times)
    print(f" before, {load()} after")
    return results


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def both(times: list[float]) -> tuple[float, float]:
    return min(times), statistics.median(times)


# ---- What is measured


def measure_rows(launches: int, rounds: int) -> None:
    servers = [HVDRUN, "-np", WORKERS, "--servers", 1]
    program = [*servers, PROGRAM, "--rounds", rounds, "--calls", 200]
    with redis() as path:
        results = by_turns(
            {
                "hvd, C++": program,
                "hvd, C++, 8 under way": [*program, "--window", 8],
                "hvd, Python": [*servers, *worker("hvd", rounds, 200)],
                "gloo": [HVDRUN, "-np", WORKERS + 1, *worker("gloo", rounds, 50)],
                "Redis": [HVDRUN, "-np", WORKERS, *worker("redis", path, rounds, 100)],
            },
            launches,
        )
    print("thousand rows a second of both workers, by the least time and by the median; against hvd from Python")
    for kind in KINDS:
        base = both(results["hvd, Python"][kind])
        for name, times in results.items():
            taken = both(times[kind])
            rates = [WORKERS * ROWS / time * 1e3 for time in taken]
            ratios = [theirs / ours for theirs, ours in zip(taken, base)]
            print(f"{kind:10} {name:22}" + "".join(f"{r:9.0f}" for r in rates) + "".join(f"{r:8.2f}x" for r in ratios))


def measure_trip(launches: int, rounds: int) -> None:
    command = [HVDRUN, "-np", 1, "--servers", 1, PROGRAM, "--rows", 1, "--table-rows", 1000, "--pin", "--calls", 100]
    results = by_turns({"trip": [*command, "--rounds", 100 * rounds]}, launches)
    print("microseconds for one row, there and back: least, a tenth are below, median")
    for kind, times in results["trip"].items():
        print(
            f"{kind:10} {min(times):6.2f} {statistics.quantiles(times, n=10)[0]:6.2f} {statistics.median(times):6.2f}"
        )


def measure_wire(launches: int, rounds: int) -> None:
    commands = {}
    for rows in (16, 64, 1024):
        program = [PROGRAM, "--rows", rows, "--window", 8, "--idle", 1, "--table-rows", 4096]
        program += ["--rounds", rounds, "--calls", 16384 // rows]
        inside = [HVDRUN, "-np", 2, "-H", "h1:1,h2:1", "--servers", 1, "--rsh", f"{NETLAB} on", *program]
        commands[f"{rows} KB"] = [NETLAB, 2, "1gbit", *inside]
    results = by_turns(commands, launches)
    print("share of the wire by the least time and by the median; push_pull uses both directions at once")
    for name, of in results.items():
        size = int(name.split()[0]) << 10
        for kind, times in of.items():
            print(f"{name:8} {kind:10}" + "".join(f"{size / time * 1e6 / WIRE:7.1%}" for time in both(times)))


def measure_steps(launches: int, rounds: int) -> None:
    results = by_turns({"": [HVDRUN, "-np", 4, "--servers", 1, *worker("steps", rounds, 50)]}, launches)[""]
    rates = {how: 1e6 / statistics.median(times) for how, times in results.items()}
    ratio = rates["asynchronous"] / rates["synchronous"]
    print("steps a second of all: " + ", ".join(f"{how} {rate:.0f}" for how, rate in rates.items()) + f"; {ratio:.2f}x")


def measure_beside(launches: int, rounds: int) -> None:
    command = [HVDRUN, "-np", 2, "--servers", 1, PROGRAM, "--allreduce", 64 << 20, "--rounds", rounds]
    results = by_turns({"": command}, launches)[""]
    print("milliseconds of an allreduce, least and median; its speed against alone")
    for load in ("alone", "calls", "busy"):
        taken = both(results[load])
        print(f"{load:6}" + "".join(f"{time / 1e3:8.1f}" for time in taken), end="")
        print("".join(f"{alone / time:7.2f}x" for alone, time in zip(both(results["alone"]), taken)))
    print(f"beside them a call of {ROWS} rows takes {statistics.median(results['call']):.0f} us by the median")


WORK = {"hvd": work_hvd, "gloo": work_gloo, "redis": work_redis, "steps": work_steps}
MEASURE = {
    "rows": measure_rows,
    "trip": measure_trip,
    "wire": measure_wire,
    "steps": measure_steps,
    "beside": measure_beside,
}


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        name, *numbers = sys.argv[2:]
        WORK[name](*[int(word) if word.isdigit() else word for word in numbers])
        return
    parser = argparse.ArgumentParser(description="parameter servers, beside other ways to do the same")
    parser.add_argument("what", nargs="*", choices=[[], *MEASURE], help="default: all")
    parser.add_argument("--launches", type=int, default=3, help="of each competitor (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="of each launch (default: %(default)s)")
    options = parser.parse_args()
    for name in options.what or MEASURE:
        print(f"== {name}", flush=True)
        MEASURE[name](options.launches, options.rounds)


if __name__ == "__main__":
    main()
