"""A process that writes while a test goes on."""

import re
import threading


class WatchedProcess:
    """Reads what a process writes to `stdout`, a text pipe, so that a test can wait for it, up to `timeout` seconds."""

    def __init__(self, process, timeout=60):
        self.process, self.timeout = process, timeout
        self.text = ""
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.text += line
                self.changed.notify_all()

    def await_text(self, pattern, begin=0):
        """Waits for text that matches; returns where it ends. `begin`: the index from which on it is searched."""
        with self.changed:
            found = self.changed.wait_for(lambda: re.search(pattern, self.text[begin:]), self.timeout)
            assert found, (pattern, self.text)
            return begin + found.end()
