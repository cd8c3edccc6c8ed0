"""Compute workers of two data services, one after the other: as their command runs them, and as a script does.

Arguments: the file of the service that has a dispatcher here, and of the one for a dispatcher in the training.
"""

import runpy
import sys

there, here = sys.argv[1:]
sys.argv[1:] = [there, "--dispatcher-side", "compute"]
try:
    runpy.run_module("horovod.tensorflow.data.compute_worker", run_name="__main__")
except SystemExit as ended:
    assert ended.code == 0, ended

from horovod.tensorflow.data.compute_worker import main  # noqa: E402

main(1, "training", here, 60)
try:
    main(3, "training", here, 60)
except ValueError as error:
    assert "2 processes for 3 dispatchers" in str(error), error
else:
    raise AssertionError("two processes served three dispatchers")
print("workers are fine")
