"""What a process that ends with a failure tells the other ranks before it leaves: which exception, and where in the
user's script. Their errors, and hvdrun's report, then name this rank and the cause, whoever ends first."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import threading
import traceback
from types import FrameType, TracebackType
from typing import Any, NoReturn

from hvd import _native

_OWN_FOLDER = os.path.dirname(__file__) + os.sep
_LONGEST_TEXT = 200  # characters of an exception's own words


def tell(error: BaseException) -> None:
    """This rank fails with `error`: the other ranks' operations end with this cause. Does nothing if hvd is not
    initialised, or the job has ended already."""
    if _native.is_initialized():
        _native.fail(describe(error))


def describe(error: BaseException) -> str:
    """What follows the rank's name: "raised ValueError: bad data (train.py:31)"."""
    if isinstance(error, SystemExit):
        return _exit_text(error.code)
    text = f"raised {type(error).__qualname__}"
    if words := _first_line(error):
        text += f": {words}"
    place = _place_in_script(error.__traceback__)
    # Names of files that are not UTF-8 have surrogates, which no message can carry.
    return (f"{text} ({place})" if place else text).encode(errors="backslashreplace").decode()


def _first_line(error: BaseException) -> str:
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # whose __str__ fails, too
        return ""
    line = lines[0] if lines else ""
    return line if len(line) <= _LONGEST_TEXT else line[: _LONGEST_TEXT - 3] + "..."


def _place_in_script(trace: TracebackType | None) -> str:
    """The innermost line that is the user's: of no installed package, and not of Python's library; else the last."""
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(trace)]
    installed = {os.path.realpath(path) + os.sep for path in sysconfig.get_paths().values()}
    own = [place for place in places if not os.path.realpath(place[0]).startswith(tuple(installed))]
    for name, line in reversed(own or places):
        return f"{os.path.basename(name)}:{line}"
    return ""


def _exit_text(code: object) -> str:
    return f"called sys.exit({code!r:.{_LONGEST_TEXT}})"


# ---- Noticing that the process ends


class _Ending:
    """How this process is about to end, as far as it can be seen before it does."""

    watched = False
    exit_code: object = None  # of the last sys.exit(), unless the script has caught it
    mark = 0  # id() of the mark of its exception


class _Mark:
    """Is attached to the exception of sys.exit(). If the script catches the exception, the mark is freed while Python
    frames still run; if the exception ends the script, after the last frame is gone."""

    def __del__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()  # others collect cycles while it has ended
        if is_main and id(self) == _Ending.mark and sys._getframe().f_back is not None:
            _Ending.exit_code = None


def watch() -> None:
    """From now on an exception that ends the script is told to the other ranks as soon as it has left the script:
    before its traceback is written, other threads are waited for and modules are torn down."""
    if _Ending.watched:
        return
    _Ending.watched = True
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        if _ends_script(error, sys._getframe()):
            tell(error)
            if not _is_debugged():
                trace = _leave_own_frames_out(error)
        return previous(kind, error, trace)

    # Ctrl-C comes to all ranks, and so to one that is about to end because another one was faster.
    sys.excepthook = functools.partial(_native.call_uninterrupted, hook)
    sys.exit = _exit


def _exit(status: Any = None, /) -> NoReturn:
    """sys.exit(), whose code nobody can ask for once the script has ended."""
    raise _marked(SystemExit(status))  # in no local variable: it would form a cycle with its frame


def _marked(error: SystemExit) -> SystemExit:
    if threading.current_thread() is threading.main_thread():  # in another one it ends that thread alone
        mark = _Mark()
        _Ending.exit_code, _Ending.mark = error.code, id(mark)
        error.__dict__["_hvd_mark"] = mark
    return error


def _ends_script(error: BaseException, frame: FrameType) -> bool:
    """Whether a call of sys.excepthook means that: programs call it to print, and at a prompt the session goes on."""
    outermost = frame
    while outermost.f_back is not None:
        outermost = outermost.f_back
    is_called_by_script = outermost.f_code.co_name in ("<module>", "_run_module_as_main")
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and not is_called_by_script and getattr(sys, "last_value", None) is error and not _is_prompt()


def _is_debugged() -> bool:
    level = os.environ.get("HVD_LOG_LEVEL") or os.environ.get("HOROVOD_LOG_LEVEL") or ""
    return level.lower() in ("debug", "trace")


def _leave_own_frames_out(error: BaseException) -> TracebackType | None:
    """From the tracebacks of an exception and of those it came from: where in hvd it was raised says nothing to users.
    One that is hvd's alone stays. Returns that of the exception."""
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        one = chain.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _without_own_frames(one.__traceback__) or one.__traceback__
        chain += [one.__cause__, one.__context__]
    return error.__traceback__


def _without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    others = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER):
            others.append(trace)
        trace = trace.tb_next
    result: TracebackType | None = None
    for one in reversed(others):
        result = TracebackType(result, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return result


def _is_prompt() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def tell_at_exit() -> None:
    """When the interpreter ends: tells what no hook has noticed, for somebody has replaced it."""
    if not _Ending.watched or _is_prompt():
        return
    error = getattr(sys, "last_value", None)
    if error is not None:
        tell(error)
    elif _Ending.exit_code not in (None, 0) and _native.is_initialized():
        _native.fail(_exit_text(_Ending.exit_code))
