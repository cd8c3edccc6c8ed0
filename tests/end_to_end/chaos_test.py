"""Faults of all kinds, one after the other, at random, in one elastic job over the hosts of a lab.

After each the job must go on. At its end all ranks must have the same parameters, bit by bit: those of a replay of the
steps with the processes that took part in them.
"""

import collections
import contextlib
import os
import pathlib
import random
import re
import signal
import time
import zlib

import numpy as np
import pytest
from chaos_job import SIZE, contribution, updated
from elastic_hosts_test import Job
from standing_lab import StandingLab, read

JOB = pathlib.Path(__file__).parent / "chaos_job.py"
RECOVERY_S = 60  # on a busy machine; the pauses themselves are measured by tests/bench/elastic.py
HOSTS = ("h1", "h2", "h3")

Step = collections.namedtuple("Step", "when host pid epoch step checksum members")


class Logs:
    """What the processes have logged: their steps."""

    def __init__(self, folder):
        self.folder = folder
        self.read_to = collections.Counter()
        self.steps = collections.defaultdict(list)

    def look(self):
        for path in self.folder.iterdir():
            if not path.name.isdigit():
                continue
            process = int(path.name)
            if path.stat().st_size == self.read_to[process]:
                continue  # as those of the many processes that have gone
            with open(path) as log:
                log.seek(self.read_to[process])
                text = log.read()
            whole = text.rfind("\n") + 1
            self.read_to[process] += whole
            for line in text[:whole].splitlines():
                when, host, pid, epoch, step, checksum, *members = line.split()
                self.steps[process].append(
                    Step(float(when), host, int(pid), int(epoch), int(step), int(checksum), tuple(map(int, members)))
                )

    def members(self):
        """The processes of the newest epoch, which have all finished a step in it; empty if some have not yet."""
        self.look()
        newest = max((steps[-1] for steps in self.steps.values()), key=lambda step: step.epoch, default=None)
        if newest is None:
            return {}
        last = {process: self.steps[process][-1] for process in newest.members if process in self.steps}
        is_complete = len(last) == len(newest.members) and all(step.epoch == newest.epoch for step in last.values())
        return last if is_complete else {}


def signal_agent(pid, number):
    """That of a host which was cut off may have ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Chaos:
    def __init__(self, hosts, folder, seed):
        self.random = random.Random(seed)
        self.hosts, self.folder = hosts, folder
        self.cut_host = None
        self.slots = dict.fromkeys(HOSTS, 2)
        self.write_hosts()
        (folder / "logs").mkdir()
        self.logs = Logs(folder / "logs")
        self.job = Job(
            *(hosts, "--host-discovery-script", f"cat {folder / 'hosts'}", "--discovery-interval", 0.1, "-np", 4),
            *("--min-np", 1, "--max-np", 6, "--cooldown-range", "0,1", "--stopped-limit", 1, "--lease", 1.5),
            program=(JOB, folder / "logs"),
        )

    def write_hosts(self):
        new = self.folder / "new"
        new.write_text("".join(f"{host}:{slots}\n" for host, slots in self.slots.items() if slots))
        new.rename(self.folder / "hosts")

    def await_progress(self, since, least=1, epoch=0):
        """Until all ranks of an epoch, not older than `epoch`, have finished a step that began after `since`."""
        deadline = time.monotonic() + RECOVERY_S
        while True:
            members = self.logs.members()
            if (
                len(members) >= least
                and all(step.when > since + 0.05 for step in members.values())
                and max(step.epoch for step in members.values()) >= epoch
            ):
                return members
            assert self.job.process.poll() is None and time.monotonic() < deadline, self.job.text[-4000:]
            time.sleep(0.01)

    def await_calm(self):
        """As await_progress(), once nothing more has changed for a while; on several hosts."""
        deadline = time.monotonic() + RECOVERY_S
        while True:
            members = self.await_progress(time.monotonic())
            time.sleep(0.3)
            later = self.await_progress(time.monotonic())
            hosts = {step.host for step in later.values()}
            if members.keys() == later.keys() and len(hosts) > 1 and len(later) > 2:
                return later
            assert time.monotonic() < deadline, self.job.text[-4000:]

    def fault(self):
        """Does something, and waits until the ranks that there are have gone on. Never all that have the state are
        lost, since that ends the job. So what a whole host suffers waits until the last fault is over."""
        of_processes = [self.kill, self.stop, self.fail, self.preempt]
        of_hosts = [self.kill_agent, self.preempt_host, self.change_slots, self.join if self.cut_host else self.cut]
        if self.random.random() < 0.5:
            fault, members = self.random.choice(of_processes), self.await_progress(time.monotonic(), least=3)
        else:
            fault, members = self.random.choice(of_hosts), self.await_calm()
        before = time.monotonic()
        epoch = max(step.epoch for step in members.values())
        must_change = fault(members)
        self.await_progress(before, epoch=epoch + 1 if must_change else 0)
        if fault in of_hosts:
            self.await_calm()
        return fault.__name__

    def signal_one(self, members, number):
        os.kill(self.pid_outside(self.random.choice(sorted(members)), members), number)
        return True

    def pid_outside(self, process, members):
        inside = members[process].pid
        for pid in self.hosts.left():
            status = read(f"/proc/{pid}/status").decode()
            if re.search(rf"^NSpid:.*\t{inside}$", status, re.MULTILINE):
                return pid
        raise AssertionError(f"process {process} has gone by itself: {self.job.text[-4000:]}")

    def kill(self, members):
        return self.signal_one(members, signal.SIGKILL)

    def stop(self, members):
        return self.signal_one(members, signal.SIGSTOP)

    def fail(self, members):
        return self.signal_one(members, signal.SIGUSR1)

    def preempt(self, members):
        return self.signal_one(members, signal.SIGTERM)

    def kill_agent(self, _):
        signal_agent(self.random.choice(self.hosts.agents()), signal.SIGKILL)
        return False  # it may have had no ranks

    def preempt_host(self, _):
        """Its machine is taken when its ranks have left."""
        if self.cut_host:
            return False  # too few would be left
        self.slots = dict.fromkeys(HOSTS, 2)
        self.write_hosts()
        self.await_calm()
        agent = self.random.choice(self.hosts.agents())
        signal_agent(agent, signal.SIGTERM)
        self.await_calm()
        signal_agent(agent, signal.SIGKILL)
        return False

    def change_slots(self, _):
        self.slots[self.random.choice(HOSTS)] = self.random.choice([0, 1, 2, 2, 3])
        self.keep_enough()
        return False

    def cut(self, _):
        self.cut_host = self.random.choice(HOSTS)
        self.keep_enough()
        self.hosts.cut(self.cut_host)
        return False

    def keep_enough(self):
        """Slots on two hosts, for three ranks."""
        slots = [count for host, count in self.slots.items() if host != self.cut_host and count > 0]
        if len(slots) < 2 or sum(slots) < 3:
            self.slots = dict.fromkeys(HOSTS, 2)
        self.write_hosts()

    def join(self, _):
        self.hosts.join(self.cut_host)
        self.cut_host = None
        return False

    def finish(self):
        if self.cut_host:
            self.join(None)
        self.await_calm()
        (self.folder / "logs" / "stop").touch()
        self.job.finish()
        self.logs.look()

    def close_output(self):
        """The last fault, in the midst of another: it ends the job."""
        members = self.await_calm()
        self.job.stop_reading()
        self.kill(members)
        assert self.job.await_end() == 128 + signal.SIGPIPE, self.job.text[-4000:]
        self.logs.look()

    def check(self):
        wrong = self.folder / "logs" / "wrong"
        assert not wrong.exists(), wrong.read_text()
        last_step = max(steps[-1].step for steps in self.logs.steps.values())
        # Whoever has finished the last step has all that went before in its parameters. A step of a process that was
        # lost before it could give it to anybody is done again.
        taken, candidates = {}, {}
        for steps in self.logs.steps.values():
            assert all(one.step < other.step for one, other in zip(steps, steps[1:])), steps
            for one, other in zip(steps, [*steps[1:], None]):
                candidates[one.step] = one[5:]
                if other is None and one.step < last_step:
                    continue
                assert taken.setdefault(one.step, one[5:]) == one[5:], (one, taken[one.step])
        parameters = np.zeros(SIZE)
        for step in range(1, last_step + 1):
            checksum, members = taken.get(step) or candidates[step]
            total = sum(contribution(process, step) for process in members)
            parameters = updated(parameters, total, len(members))
            assert zlib.crc32(parameters) == checksum, step
        return last_step


@pytest.fixture(scope="module")
def standing(lab):
    standing = StandingLab(lab, len(HOSTS))
    yield standing
    standing.close()


@pytest.mark.parametrize(
    ("faults", "end"), [(19, Chaos.close_output), pytest.param(2000, Chaos.finish, marks=pytest.mark.long)]
)
def test_a_job_goes_on_after_faults_of_all_kinds(standing, tmp_path, faults, end):
    seed = int(os.environ.get("CHAOS_SEED", time.time()))
    chaos = Chaos(standing, tmp_path, seed)
    done = []
    try:
        for _ in range(faults):
            done.append(chaos.fault())
        end(chaos)
    except BaseException:
        chaos.job.end()
        print(f"CHAOS_SEED={seed}, after {len(done)} faults: {done[-10:]}\n{chaos.job.text[-6000:]}")
        raise
    steps = chaos.check()
    print(f"{faults} faults, {steps} steps: {collections.Counter(done)}")
    standing.await_nothing_left()
