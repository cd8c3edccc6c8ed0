"""The job of failing_job.py; each rank that ends by itself says when, as the last thing that it does.

python leaving_job.py HOW RANK
"""

import atexit
import os
import time


def tell() -> None:
    os.write(2, f"process {os.environ['OMPI_COMM_WORLD_RANK']} left at {time.monotonic()}\n".encode())


if __name__ == "__main__":
    atexit.register(tell)  # before hvd's own, and so called after it

    import failing_job

    failing_job.main()
