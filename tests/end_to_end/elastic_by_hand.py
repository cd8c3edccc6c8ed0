"""An elastic job without hvd.elastic.run: process 1 is lost, and another takes its place."""

import os
import signal
import time

from hvd import _native, basics, elastic, objects
from hvd.exceptions import HorovodInternalError

PROCESS = int(os.environ["HVD_PROCESS"])
STEPS = 200

basics.init()
step = 0
while step < STEPS:
    try:
        first = step == 0
        step = max(objects.allgather_object(step, name="step")) + 1
        if first:
            _native.report_synchronized()
        if PROCESS == 2 and first:
            print(f"process 2 joined at rank {basics.rank()} of {basics.size()}", flush=True)
        if PROCESS == 1 and step == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)
        elastic.ObjectState(objects.broadcast_object, basics.rank).check_host_updates()
    except (elastic.HostsUpdatedInterrupt, HorovodInternalError):
        elastic.join_anew()
print(f"process {PROCESS} has finished", flush=True)
