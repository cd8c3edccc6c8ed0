"""Agents that listen on this machine, as they do in pods and in tasks of clusters, and hvdrun that calls them."""

import os
import re
import secrets
import signal
import subprocess

from watched_process import WatchedProcess

TIMEOUT = 300


class Agents:
    """`hvdrun agent --listen` by name, and the file of their addresses."""

    def __init__(self, folder):
        self.key = secrets.token_hex(32)
        self.file = folder / "addresses"
        self.file.touch()
        self.processes, self.ports = {}, {}

    def environment(self, **more):
        return {**os.environ, "HVD_JOB_KEY": self.key, **more}

    def start(self, name, *options, place="127.0.0.1:0", stdin=subprocess.DEVNULL, **variables):
        command = ["hvdrun", "agent", "--listen", place, *options]
        pipes = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        agent = subprocess.Popen(command, env=self.environment(**variables), **pipes)
        line = agent.stdout.readline()
        self.ports[name] = int(re.fullmatch(r"hvdrun agent: listening on (\d+)\n", line)[1])
        self.processes[name] = agent
        self.name(name, self.ports[name])
        return agent

    def name(self, name, port):
        with self.file.open("a") as file:
            file.write(f"{name} 127.0.0.1:{port}\n")

    def end(self, name, number=signal.SIGTERM):
        """Its exit code, and what it has said."""
        agent = self.processes.pop(name)
        agent.send_signal(number)
        _, said = agent.communicate(timeout=TIMEOUT)
        return agent.returncode, said

    def close(self):
        for name in list(self.processes):
            self.end(name)

    def hvdrun(self, *arguments, **variables):
        command = ["hvdrun", "--agent-addresses", self.file, *arguments]
        return Running([str(word) for word in command], self.environment(**variables))


class Running(WatchedProcess):
    """A process of this machine, with both of its streams."""

    def __init__(self, command, environment):
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        super().__init__(subprocess.Popen(command, env=environment, **pipes))

    def finish(self):
        """Its exit code."""
        try:
            return self.process.wait(TIMEOUT)
        finally:
            self.process.terminate()
            self.process.wait()
            self.reader.join()
