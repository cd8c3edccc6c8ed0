"""A job with servers that serve nothing: served_job.py FOLDER BEHAVIOUR.

A server notes in the folder that it is ready, and ends when it is told to; ranks end when all servers are ready.
`killed`: server 1 is killed at its first start. `one leaves`: server 0 ends at once with exit code 0, and rank 1 fails.
"""

import os
import pathlib
import signal
import sys
import time

folder, behaviour = pathlib.Path(sys.argv[1]), sys.argv[2]
server, start = os.environ.get("HVD_SERVER"), os.environ.get("HVD_SERVER_START")
names = ["HVD_SIZE", "HVD_SERVERS", "HVD_SERVER", "HVD_SERVER_START", "HVD_RANK", "HVD_LOCAL_RANK", "RANK"]
print(*[os.environ.get(name, "-") for name in names])

if server is None:
    deadline = time.monotonic() + 60
    while len(list(folder.iterdir())) < int(os.environ["HVD_SERVERS"]):
        assert time.monotonic() < deadline, "some servers do not come"
        time.sleep(0.01)
    sys.exit(3 if behaviour == "one leaves" and os.environ["HVD_RANK"] == "1" else 0)

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
if behaviour == "killed" and (server, start) == ("1", "0"):
    os.kill(os.getpid(), signal.SIGKILL)
(folder / server).touch()
if behaviour != "one leaves" or server != "0":
    signal.sigwait([signal.SIGTERM])
    print("told to end")
