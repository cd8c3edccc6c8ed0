"""Ends while a daemon thread is, mostly, inside hvd without the GIL."""

import threading
import time

import hvd


def come_and_go():
    while True:
        hvd.init()
        hvd.shutdown()


threading.Thread(target=come_and_go, daemon=True).start()
time.sleep(0.2)
print("done", flush=True)
