"""hvd.run: what comes back from the ranks, and what is said when one of them fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import hvd
from hvd.exceptions import RankFailedError
from timeouts import wait_until


def place(offset: int, *, scale: int = 1) -> tuple[int, int, str]:
    hvd.init()
    return hvd.rank() * scale + offset, hvd.size(), os.getcwd()


def on_rank(chosen: int, does: str) -> str:
    hvd.init()
    if hvd.rank() == chosen:
        if does == "raise":
            raise KeyError("a deep reason")
        if does == "refuse pickling":
            raise Unpicklable(1, 2)
        if does == "exit":
            sys.exit("no more")
        if does == "_exit":
            os._exit(7)
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.shutdown()
    time.sleep(60)
    return "not reached"


class Unpicklable(Exception):
    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")  # unpickling gives one argument


@pytest.mark.parametrize("np", [1, 3])
def test_results_come_by_rank(np, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = hvd.run(place, (10,), {"scale": 2}, np=np)
    assert results == [(10 + 2 * rank, np, str(tmp_path)) for rank in range(np)]


def test_what_is_defined_here_travels_by_value_and_modules_are_found(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("answer = 42\n")
    program = textwrap.dedent("""
        import sys
        sys.path.insert(0, sys.argv[1])
        import hvd, only_here

        class Point:
            def __init__(self, x): self.x = x

        two = 2
        def double(point):
            return Point(two * point.x + only_here.answer)

        print([point.x for point in hvd.run(double, (Point(4),), np=2)])
    """)
    done = subprocess.run(
        [sys.executable, "-", str(tmp_path)], input=program, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, "[50, 50]\n"), done.stderr


def test_output_and_variables(capsys):
    def say() -> None:
        print(f"{os.environ['WORD']} on {hvd.rank()}" if hvd.init() is None else "")
        print("to stderr", file=sys.stderr)

    hvd.run(say, np=2, env={"WORD": "hello"})
    written = capsys.readouterr()
    assert sorted(written.out.splitlines()) == ["hello on 0", "hello on 1"]
    assert written.err == "to stderr\n" * 2


@pytest.mark.parametrize("stdout", ["None", "types.SimpleNamespace(write=len)"])
def test_the_ranks_go_on_whatever_is_in_place_of_stdout(stdout):
    program = textwrap.dedent(f"""
        import sys, types
        import hvd

        def write_much():
            for _ in range(4000):  # more than pipes hold
                print("y" * 80)
            return "done"

        sys.stdout = {stdout}  # None: as Python has it where the descriptor is closed
        results = hvd.run(write_much, np=1)
        sys.stdout = sys.__stdout__
        print(results)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("['done']\n", "")


def test_start_timeout_and_options():
    def settings() -> tuple[str, str]:
        return os.environ["HVD_START_TIMEOUT"], os.environ["EXTRA"]

    assert hvd.run(settings, np=1, start_timeout=7, options=["-x", "EXTRA=1"]) == [("7", "1")]
    assert hvd.run(settings, np=1, start_timeout=7, env={"EXTRA": 2}) == [("7", "2")]
    with pytest.raises(TypeError, match="np is '2': expected a whole number"):
        hvd.run(settings, np="2")


def test_an_exception_comes_with_its_ranks_traceback():
    with pytest.raises(KeyError, match="a deep reason") as raised:
        hvd.run(on_rank, (1, "raise"), np=2)
    assert type(raised.value) is KeyError and raised.value.args == ("a deep reason",)
    cause = raised.value.__cause__
    assert isinstance(cause, RankFailedError) and cause.rank == 1
    assert "rank 1 of 2" in str(cause) and 'raise KeyError("a deep reason")' in str(cause)


@pytest.mark.parametrize(
    "does, text",
    [
        ("refuse pickling", "Unpicklable: 1 and 2"),
        ("exit", "SystemExit: no more"),
        ("_exit", "rank 1 of 2 died before the function had returned: exit code 7"),
        ("kill", "rank 1 of 2 died before the function had returned: killed by SIGKILL"),
    ],
)
def test_what_cannot_be_raised_names_the_rank(does, text):
    with pytest.raises(RankFailedError, match=text) as raised:
        hvd.run(on_rank, (1, does), np=2)
    assert isinstance(raised.value, RuntimeError) and raised.value.rank == 1


def test_a_rank_that_died_is_named_however_much_it_wrote():
    def die() -> None:
        print("a line\n" * 100, end="", file=sys.stderr)
        os._exit(7)

    with pytest.raises(RankFailedError, match="rank 0 of 1 died before the function had returned: exit code 7"):
        hvd.run(die, np=1)


def test_the_exception_that_was_first_is_raised():
    def fail() -> None:
        hvd.init()
        if hvd.rank() == 1:
            raise ZeroDivisionError
        hvd.process_set.add_process_set([0])  # waits for rank 1, and then hears that it is lost

    with pytest.raises(ZeroDivisionError):
        hvd.run(fail, np=2)


def test_results_that_cannot_travel():
    with pytest.raises(TypeError, match="pickle"):
        hvd.run(lambda: (part for part in "ab"), np=1)


@pytest.mark.parametrize("arguments", [{"np": 0}, {"np": 2, "options": ["--nonsense"]}])
def test_wrong_arguments(arguments):
    with pytest.raises(ValueError):
        hvd.run(place, (0,), **arguments)


def test_a_host_that_cannot_be_reached_is_named():
    with pytest.raises(RankFailedError, match=r"host node\.invalid: "):
        hvd.run(place, (0,), np=2, hosts="node.invalid:2")


@pytest.mark.parametrize("elastic", [{}, {"min_np": 1}])
def test_it_stays_on_this_host_of_an_allocation(elastic, monkeypatch):
    """The other hosts do not have its folder."""
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node.invalid,other.invalid")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "1(x2)")
    for options in ([], ["--gloo"]):
        assert [size for _, size, _ in hvd.run(place, (0,), np=2, options=options, **elastic)] == [2, 2]
    with pytest.raises(RankFailedError, match=r"host (node|other)\.invalid: "):
        hvd.run(place, (0,), np=2, options=["--launcher", "ssh"])


@pytest.mark.parametrize("option", ["--host", "--hosts", "-hostlist", "-machine", "-machinelist"])
def test_options_of_any_launcher_name_hosts(option):
    with pytest.raises(RankFailedError, match=r"host node\.invalid: "):
        hvd.run(place, (0,), np=2, options=[option, "node.invalid:2"])


def test_a_time_limit_ends_it():
    began = time.monotonic()
    with pytest.raises(RankFailedError, match="timeout"):
        hvd.run(time.sleep, (60,), np=2, options=["--timeout", "1"])
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_caller_that_ends_ends_its_ranks(tmp_path, end):
    program = tmp_path / "waits.py"
    program.write_text(
        "import hvd, os, pathlib, sys, time\n"
        "def wait():\n"
        "    pathlib.Path(sys.path[0], f'pid{os.environ[\"HVD_RANK\"]}').write_text(str(os.getpid()))\n"
        "    time.sleep(60)\n"
        "hvd.run(wait, np=2)\n"
    )
    caller = subprocess.Popen([sys.executable, program], stderr=subprocess.PIPE, text=True)
    files = [tmp_path / f"pid{rank}" for rank in range(2)]
    wait_until(lambda: all(file.exists() and file.read_text() for file in files))
    caller.send_signal(end)  # to the caller alone, as a notebook's interrupt button does
    _, errors = caller.communicate(timeout=300)
    if end == signal.SIGINT:
        assert "KeyboardInterrupt" in errors
    else:  # hvdrun notices that its output has no reader any more
        wait_until(lambda: not any(Path("/proc", file.read_text()).exists() for file in files))
    assert not any(Path("/proc", file.read_text()).exists() for file in files)


def test_nothing_is_left_behind_and_nobody_else_may_look(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def mode() -> int:
        (folder,) = tmp_path.iterdir()
        return folder.stat().st_mode & 0o777

    assert hvd.run(mode, np=1) == [0o700]
    assert not list(tmp_path.iterdir())


def test_importing_hvd_does_not_bring_what_run_needs():
    code = "import sys, hvd; assert not {'subprocess', 'cloudpickle'} & sys.modules.keys(); hvd.run"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


# Elastic jobs


def train(until: str, deeds: dict[int, str]) -> tuple[int, int, list[list[int]]]:
    """Takes steps until there are five, or until a process has taken the place of another. Process P does deeds[P] in
    its third step. Returns process, rank at the end, and the processes of each step."""
    from hvd import elastic, objects

    process = int(os.environ["HVD_PROCESS"])

    def take_steps(state: elastic.ObjectState) -> int:
        while len(state.seen) < 5 if until == "five steps" else not any(set(seen) - {0, 1, 2} for seen in state.seen):
            state.seen = [*state.seen, objects.allgather_object(process)]
            if len(state.seen) == 3:
                do(deeds.get(process, "nothing"))
            time.sleep(0.02)
            state.commit()
        return hvd.rank()

    hvd.init()
    state = elastic.ObjectState(objects.broadcast_object, hvd.rank, seen=[])
    rank = elastic.run_fn(take_steps, elastic.join_anew)(state)
    if deeds.get(process) == "leave":
        hvd.shutdown()
    return process, rank, state.seen


def do(deed: str) -> None:
    if deed == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "raise":
        raise KeyError("a deep reason")
    if deed == "exit":
        sys.exit("no more")


NO_NEW_ONES = ["--cooldown-range", "60,60"]
NO_RESET = [*NO_NEW_ONES, "--reset-limit", "0"]


@pytest.mark.parametrize("deed", ["kill", "raise", "exit"])
def test_survivors_return_their_results(deed, capsys):
    results = hvd.run(train, ("five steps", {1: deed}), np=3, min_np=2, options=NO_NEW_ONES)
    seen = results[0][2]
    assert results == [(0, 0, seen), (2, 1, seen)]
    assert seen[:2] == [[0, 1, 2]] * 2 and seen[3:] == [[0, 2]] * 2
    assert "epoch 2 with 2 ranks" in capsys.readouterr().err


def test_results_come_by_the_last_rank_also_after_shutdown():
    deeds = {0: "kill", 1: "leave", 2: "leave", 3: "leave"}
    results = hvd.run(train, ("five steps", deeds), np=4, min_np=1, options=NO_NEW_ONES)
    assert [(process, rank) for process, rank, _ in results] == [(1, 0), (2, 1), (3, 2)]


def test_a_process_that_takes_the_place_of_another_returns_its_result_too():
    results = hvd.run(train, ("a new one", {1: "kill"}), np=3, min_np=2, options=["--cooldown-range", "0,0"])
    assert [(process, rank) for process, rank, _ in results] == [(0, 0), (2, 1), (3, 2)]
    assert len({str(seen) for *_, seen in results}) == 1


def test_an_elastic_job_may_have_fewer_ranks_than_its_hosts_have_slots():
    results = hvd.run(train, ("five steps", {}), np=1, max_np=2, hosts="localhost:3")
    assert len(results) <= 2 and [rank for _, rank, _ in results] == [*range(len(results))]


def test_an_elastic_job_that_cannot_go_on_raises_what_its_last_process_raised():
    with pytest.raises(KeyError, match="a deep reason") as raised:
        hvd.run(train, ("five steps", {1: "raise"}), np=2, min_np=1, options=NO_RESET)
    cause = raised.value.__cause__
    assert isinstance(cause, RankFailedError) and cause.rank is None
    assert "process 1 failed" in str(cause) and 'raise KeyError("a deep reason")' in str(cause)


class OfAnotherVersion:
    def __reduce__(self):
        return {}.__getitem__, ("a name that is not there",)


def test_an_elastic_job_whose_function_cannot_be_unpickled_ends_at_once(capsys):
    with pytest.raises(KeyError, match="a name that is not there"):
        hvd.run(OfAnotherVersion(), np=2, min_np=1, options=["--cooldown-range", "0,0", "--timeout", "60"])
    failure = "a process exited with code 78 (EX_CONFIG), so it is not restarted; the last failure: process"
    assert failure in capsys.readouterr().err


def test_an_elastic_job_that_cannot_go_on_names_the_process_that_died():
    with pytest.raises(RankFailedError, match="process 1 died before the function had returned: killed by SIGKILL"):
        hvd.run(train, ("five steps", {1: "kill"}), np=2, min_np=1, options=NO_RESET)


def test_a_failure_that_the_job_survived_is_not_blamed_for_its_timeout():
    with pytest.raises(RankFailedError, match="--timeout"):
        hvd.run(train, ("a new one", {1: "raise"}), np=3, min_np=2, options=[*NO_NEW_ONES, "--timeout", "3"])


def test_an_elastic_job_without_init_has_results_by_process():
    def number() -> str:
        return os.environ["HVD_PROCESS"]

    assert hvd.run(number, np=3, min_np=2) == ["0", "1", "2"]


def test_no_result_of_an_elastic_job():
    with pytest.raises(RankFailedError, match="no result of ranks: all; hvdrun ended with exit code 0"):
        hvd.run(os._exit, (0,), np=2, min_np=1)


def test_a_process_without_a_place_has_not_failed(capsys):
    def leave_or_stay() -> int:
        if os.environ["HVD_PROCESS"] == "1":
            raise SystemExit(0)  # as init() does
        hvd.init()
        return hvd.size()

    assert hvd.run(leave_or_stay, np=2, min_np=1, verbose=True) == [1]
    assert "process 1 has ended: exit code 0" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [{"min_np": 0}, {"np": 3, "max_np": 2}, {"min_np": 1, "options": ["--mpi"]}])
def test_wrong_arguments_of_elastic_jobs(arguments):
    with pytest.raises(ValueError, match=r"--m(in|ax)-np"):
        hvd.run(place, (0,), **arguments)
