"""What is told of an exception that ends a script, and what its user sees of it; without a job."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import types

import pytest

from hvd import _native, failure

pytestmark = pytest.mark.quick


def raised(source: str, name: str) -> BaseException:
    """What a script of this name raises."""
    with pytest.raises(BaseException) as caught:
        exec(compile(textwrap.dedent(source), name, "exec"), {})
    return caught.value


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("raise ValueError('bad data')", "raised ValueError: bad data (train.py:1)"),
        ("\n\n1 / 0", "raised ZeroDivisionError: division by zero (train.py:3)"),
        ("raise KeyError('a\\nb')", r"raised KeyError: 'a\nb' (train.py:1)"),
        ("raise ValueError('one\\ntwo')", "raised ValueError: one (train.py:1)"),
        ("raise ValueError()", "raised ValueError (train.py:1)"),
        ("raise ValueError('no \\udcff.csv')", r"raised ValueError: no \udcff.csv (train.py:1)"),
        ("raise ValueError('x' * 1000)", f"raised ValueError: {'x' * 197}... (train.py:1)"),
        ("class E(Exception):\n  def __str__(self): raise E\nraise E", "raised E (train.py:3)"),
        ("import json\njson.loads('{')", "raised JSONDecodeError: Expecting property name"),
        ("raise SystemExit(3)", "called sys.exit(3)"),
        ("raise SystemExit('no data')", "called sys.exit('no data')"),
    ],
)
def test_a_cause_is_one_line_with_the_place_in_the_script(source, text):
    assert failure.describe(raised(source, "/home/me/train.py")).startswith(text)


def test_the_place_is_the_users_even_if_a_library_raised():
    text = failure.describe(raised("import json\njson.loads('{')", "/home/me/train.py"))
    assert text.endswith("(train.py:2)")


def frames(error: BaseException) -> list[str]:
    return [frame.tb_frame.f_code.co_filename for frame in iter_traceback(error.__traceback__)]


def iter_traceback(trace: types.TracebackType | None):
    while trace is not None:
        yield trace
        trace = trace.tb_next


def test_frames_of_hvd_are_left_out_of_all_tracebacks_of_a_chain():
    own = failure.__file__
    inner = raised("raise ValueError", own)
    error = raised("exec(compile('raise ValueError', own, 'exec'))".replace("own", repr(own)), "train.py")
    error.__cause__, inner.__context__ = inner, error  # a circle ends, too
    failure._leave_own_frames_out(error)
    assert frames(error)[-1] == "train.py" and own not in frames(error)
    assert own not in frames(inner) and frames(inner)


def test_a_deep_traceback():
    error = raised("def f(): f()\nf()", "train.py")
    assert isinstance(error, RecursionError)
    assert failure._leave_own_frames_out(error) is not None


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("raise ValueError('bad')", ["raised ValueError: bad (script.py:9)"]),
        ("sys.exit(3)", ["called sys.exit(3)"]),
        ("try:\n    sys.exit(3)\nexcept SystemExit:\n    pass", []),
        ("try:\n    sys.exit(3)\nexcept SystemExit as error:\n    assert error.code == 3", []),
        ("try:\n    sys.exit(3)\nfinally:\n    sys.stdout.flush()", ["called sys.exit(3)"]),
        ("try:\n    sys.exit(3)\nexcept SystemExit:\n    sys.exit(4)", ["called sys.exit(4)"]),
        ("try:\n    sys.exit(3)\nexcept SystemExit:\n    pass\nsys.exit(4)", ["called sys.exit(4)"]),
        ("import threading\nthreading.Thread(target=sys.exit, args=(3,)).start()", []),
        ("sys.exit()", []),
        ("sys.exit(0)", []),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    sys.excepthook(*sys.exc_info())", []),
        ("sys.excepthook = sys.__excepthook__\nraise ValueError('bad')", ["raised ValueError: bad (script.py:10)"]),
        ("import threading\nthreading.Thread(target=lambda: 1 / 0).start()", []),
        ("", []),
    ],
)
def test_what_ends_a_script_is_told(tmp_path, end, told):
    script = tmp_path / "script.py"
    script.write_text(
        "import atexit, sys\n"
        "from hvd import _native, failure\n"
        "told = []\n"
        "_native.is_initialized = lambda: not told\n"
        "_native.fail = told.append\n"
        "atexit.register(lambda: print(told))\n"
        "atexit.register(failure.tell_at_exit)\n"
        "failure.watch()\n" + end
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.stdout == f"{told}\n", done.stderr


def test_an_interrupt_does_not_disturb_what_is_told_at_the_end():
    """Ctrl-C comes to all ranks, and so to one that ends because another one was faster."""
    program = textwrap.dedent("""
        import signal, sys
        sys.excepthook = lambda *error: (signal.raise_signal(signal.SIGINT), print("told", error[0].__name__))
        from hvd import failure
        failure.watch()
        raise ValueError
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (1, "told ValueError\n", "")


def test_what_cannot_be_interrupted_leaves_the_signal_as_it_was():
    assert _native.call_uninterrupted(lambda number: (signal.raise_signal(signal.SIGINT), number), 5) == (None, 5)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
