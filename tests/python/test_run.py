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


def test_start_timeout_and_options():
    def settings() -> tuple[str, str]:
        return os.environ["HVD_START_TIMEOUT"], os.environ["EXTRA"]

    assert hvd.run(settings, np=1, start_timeout=7, options=["-x", "EXTRA=1"]) == [("7", "1")]


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


def test_a_time_limit_ends_it():
    began = time.monotonic()
    with pytest.raises(RankFailedError, match="timeout"):
        hvd.run(time.sleep, (60,), np=2, options=["--timeout", "1"])
    assert time.monotonic() - began < 30


def test_an_interrupted_call_ends_its_ranks(tmp_path):
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
    caller.send_signal(signal.SIGINT)  # to the caller alone, as a notebook's interrupt button does
    _, errors = caller.communicate(timeout=300)
    assert "KeyboardInterrupt" in errors
    assert not any(Path("/proc", file.read_text()).exists() for file in files)


def wait_until(holds, limit_s: float = 30) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


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
