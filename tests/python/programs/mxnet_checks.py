"""All checks of hvd.mxnet in one job of two ranks, since MXNet takes seconds to import: in the order of their
definitions, so that the last one may lose a rank. Each prints "RANK NAME passed"; test_mxnet.py makes a test of each.
"""

from __future__ import annotations

import sys
import traceback

import mxnet_collectives

import hvd.mxnet as hvd
import mxnet_training


def main():
    hvd.init()
    rank = hvd.rank()
    for module in (mxnet_collectives, mxnet_training):
        for name, check in list(vars(module).items()):
            if not name.startswith("check_"):
                continue
            try:
                check()
            except Exception:
                traceback.print_exc()
                sys.exit(f"{name} failed")  # the other rank may wait for what comes no more
            print(f"{rank} {name} passed", flush=True)


if __name__ == "__main__":
    main()
