"""Ends while a daemon thread is, mostly, inside hvd without the GIL."""

import contextlib
import threading
import time

import hvd


def come_and_go():
    while True:
        # The exit shuts hvd down in between. Python ends with an error if a daemon thread writes a traceback then.
        with contextlib.suppress(ValueError, hvd.HorovodInternalError):
            hvd.init()
            hvd.shutdown()


threading.Thread(target=come_and_go, daemon=True).start()
time.sleep(0.2)
print("done", flush=True)
