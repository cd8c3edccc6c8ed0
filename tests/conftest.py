"""For all Python tests."""

import signal

# Whoever starts a command in the background of a shell script has it ignore Ctrl-C, and so would every program that a
# test starts. Signals that have a handler here have their default there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
