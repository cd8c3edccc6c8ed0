"""Strangers throw bytes at every listening socket of a job: its sums, its speed and its memory stay as they are."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from under_attack import (
    RATE,
    Stranger,
    attack_in_turns,
    await_line,
    family_of,
    key_of,
    listening_sockets,
    median_steps_us,
    resident_kb,
    targets_of,
)

HERE = pathlib.Path(__file__).parent
BUILD = HERE.parents[1] / "build/release"
PROGRAM, HVDRUN = BUILD / "tests/end_to_end/allreduce_loop", BUILD / "launcher/hvdrun"


@pytest.fixture
def start(tmp_path):
    """Starts a job of four ranks on what they take for two hosts; each with a shell's line before it."""
    if not (PROGRAM.exists() and HVDRUN.exists()):
        pytest.skip("build/release is not built")
    jobs = []

    def start(*options, before=":"):
        loop = [str(word) for word in ("bash", "-c", f'{before}; exec "$@"', "bash", PROGRAM, *options)]
        hosts = [["-np", "2", "-x", f"HVD_HOST_ID={host}", *loop] for host in ("one", "other")]
        command = [str(HVDRUN), *hosts[0], ":", *hosts[1]]
        files = [tmp_path / f"{stream}.{len(jobs)}" for stream in ("out", "err")]
        with files[0].open("w") as out, files[1].open("w") as err:
            jobs.append(subprocess.Popen(command, stdout=out, stderr=err))
        jobs[-1].said = lambda: [file.read_text() for file in files]
        return jobs[-1]

    yield start
    for job in jobs:
        if job.poll() is None:
            job.terminate()
        job.wait(30)


def check_end(job, stranger):
    code = job.wait(60)
    out, err = job.said()
    assert code == 0, out + err
    assert out.count("done ") == 4
    # One line for each port, not for each stranger.
    assert err.count("dropped a connection") <= 8, err
    assert set(stranger.outcomes) <= {"dropped", "held", "refused"}, stranger.outcomes
    assert stranger.outcomes["dropped"] > 0


# Who attacks takes processor time from the job by that alone. So the same attack goes to a decoy too, another job that
# sleeps; the three kinds of windows take turns. Three windows tell whether the job is held up, and many what it costs.
@pytest.mark.long
@pytest.mark.parametrize(
    "streams, slower, cpu_us",
    [pytest.param(450, 2, 1000, id="450"), pytest.param(10_000, 1.05, 500, id="10000")],
)
def test_a_running_job_does_not_notice_strangers(start, tmp_path, streams, slower, cpu_us):
    enough, times = tmp_path / "enough", tmp_path / "times"
    decoy = start("--bytes", "64", "--delay", "500", "--until", enough)
    job = start("--bytes", "65536", "--announce", "1000", "--until", enough, "--times", times)
    await_line(decoy, "step 0", 4)
    await_line(job, "step 1000", 4)
    targets, family = targets_of(job.pid), family_of(job.pid)
    assert targets
    stranger, decoyed = (Stranger("stranger.py", key_of(each.pid), RATE, streams) for each in (job, decoy))
    before = {pid: resident_kb(pid) for pid in family}
    kinds, cpu = attack_in_turns(
        (stranger, lambda: targets), (decoyed, lambda: targets_of(decoy.pid)), streams, job.pid
    )
    grown = {pid: resident_kb(pid) - kb for pid, kb in before.items()}
    enough.touch()
    check_end(job, stranger)
    check_end(decoy, decoyed)
    stranger.leave()
    decoyed.leave()

    alone, decoyed_us, attacked_us = median_steps_us(times, kinds)
    thrown = sum(stranger.outcomes.values())
    print(
        f"{thrown} streams at {targets}: {stranger.outcomes}; a step {alone:.0f} us, {decoyed_us:.0f} us while a decoy"
        f" is attacked, {attacked_us:.0f} us under attack; {cpu / thrown * 1e6:.0f} us of hvdrun's CPU a stream; grown"
        f" by {max(grown.values())} KB"
    )
    assert max(grown.values()) < 4096, grown
    assert cpu / thrown * 1e6 < cpu_us
    assert attacked_us < slower * decoyed_us


def stop_while_others_listen(job):
    """Stops the last rank as soon as another one listens for it. Its number, and the sockets; or None: it was late."""
    *_, last = ranks = family_of(job.pid)[1:]
    while "joined" not in job.said()[0]:
        try:
            if not any(True for rank in ranks[:-1] for _ in listening_sockets(rank)):
                continue
            os.kill(last, signal.SIGSTOP)
            time.sleep(0.2)
            targets = sorted({socket for rank in ranks for socket in listening_sockets(rank)}, key=str)
        except (FileNotFoundError, ProcessLookupError):
            return None  # it is over
        if targets:
            return last, targets
        os.kill(last, signal.SIGCONT)
    return None


@pytest.fixture
def busy_cpu():
    """One on which there is no time for whoever is nice."""
    cpu = min(os.sched_getaffinity(0))
    hog = subprocess.Popen(["taskset", "-c", str(cpu), sys.executable, "-c", "while True: pass"])
    yield cpu
    hog.kill()
    hog.wait()


# Ranks listen for a few milliseconds, until all of them have joined; so the last one is slow, and stopped on its way.
@pytest.mark.long
@pytest.mark.parametrize("streams", [100, 2000])
def test_a_job_whose_ranks_still_meet_does_not_notice_strangers(start, busy_cpu, streams):
    slow = f'if [ "$HVD_RANK" = 3 ]; then taskset -p -c {busy_cpu} $$; renice -n 19 $$; fi > /dev/null'
    for _ in range(10):
        job = start("--bytes", "65536", "--steps", "200", before=slow)
        await_line(job, "starting", 3)
        stopped = stop_while_others_listen(job)
        if stopped is not None:
            break
        assert job.wait(30) == 0
    else:
        pytest.skip("on this machine ranks meet too fast to be seen")
    last, targets = stopped
    stranger = Stranger("stranger.py", key_of(job.pid), RATE, 1)
    stranger.attack(targets, streams)
    os.kill(last, signal.SIGCONT)
    check_end(job, stranger)
    stranger.leave()
    print(f"{sum(stranger.outcomes.values())} streams at {targets}: {stranger.outcomes}")
