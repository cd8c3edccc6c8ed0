"""Runs other programs of this folder in turn, in the same processes: importing a framework takes longer than a program.

    python in_turn.py [NAME=VALUE...] PROGRAM [ARGUMENT...] [-- [NAME=VALUE...] PROGRAM [ARGUMENT...]]...

Each begins without hvd initialised, and with the variables NAME for as long as it runs. After each, every rank prints
the words with which it was started and "has ended"; one that fails ends the job. All ranks must leave hvd with the
same names: a program of which one rank makes an optimizer more, or that ends the process, is the last one.
"""

from __future__ import annotations

import itertools
import os
import runpy
import sys
from pathlib import Path

import hvd

HERE = Path(__file__).parent


def run(words: list[str]) -> None:
    variables = dict(word.split("=", 1) for word in itertools.takewhile(lambda word: "=" in word, words))
    program, *arguments = words[len(variables) :]
    sys.argv = [program, *arguments]
    os.environ.update(variables)
    try:
        runpy.run_path(str(HERE / program), run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    for name in variables:
        del os.environ[name]
    print(*words, "has ended", flush=True)


if __name__ == "__main__":
    for is_separator, words in itertools.groupby(sys.argv[1:], "--".__eq__):
        if not is_separator:
            hvd.shutdown()
            run([*words])
