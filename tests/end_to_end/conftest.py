"""A shell starts background jobs with Ctrl-C ignored, and programs inherit that: these tests send it on purpose."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
