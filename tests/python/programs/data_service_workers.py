"""Compute workers of two data services, one after the other, as their command runs them.

Arguments: the file of the service that has a dispatcher here, and of the one for a dispatcher in the training.
"""

import runpy
import sys

there, here = sys.argv[1:]
for file, side in ((there, "compute"), (here, "training")):
    sys.argv[1:] = [file, "--dispatcher-side", side]
    try:
        runpy.run_module("horovod.tensorflow.data.compute_worker", run_name="__main__")
    except SystemExit as ended:
        assert ended.code == 0, ended
print("workers are fine")
