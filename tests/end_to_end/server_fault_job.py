"""Workers that push and pull, step by step, until something happens to their job, or SIGUSR1 ends it. An argument
is the table's consistency; without, they are at most two clocks apart.

Workers say their steps, and in which time server 1's shard had a second copy again; a call that fails is said, and is
exit code 3.
"""

import os
import sys
import time

import numpy as np

import hvd

hvd.init()
servers = hvd.ps.connect()
table = servers.table("t", 4, hvd.ps.Add(), consistency=sys.argv[1] if len(sys.argv) > 1 else 2)
own = int(os.environ.get("HVD_PROCESS", os.environ.get("HVD_RANK", "0")))
keys = np.arange(10)
step = 0
try:
    while True:
        table.push(keys, np.ones((10, 4), np.float32))
        servers.clock()
        table.pull(keys)
        step += 1
        if step % 20 == 0:
            copies = [one["-"]["copies"] for one in servers.stats()]
            print(f"worker {own} step {step} copies {copies}", flush=True)
        time.sleep(0.005)
except hvd.HorovodInternalError as error:
    print(f"worker {own} failed: {error}", flush=True)
    sys.stdout.flush()
    os._exit(3)
