"""Elastic jobs under hvdrun, on one host: ranks that die, processes that join, and jobs that cannot go on."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from timeouts import wait_until

TIMEOUT = 600
JOB = Path(__file__).parent / "elastic_job.py"


def start(*options, steps=30, deeds=(), job=(sys.executable, JOB), environment=None, **variables):
    command = ["hvdrun", *options, "-x", "PYTHONUNBUFFERED=1"]
    for name, value in variables.items():
        command += ["-x", f"{name}={value}"]
    return subprocess.Popen(
        [*map(str, command), *map(str, job), *([str(steps)] if job[-1] == JOB else []), *deeds],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )


def run(*options, **more):
    process = start(*options, **more)
    output, errors = process.communicate(timeout=TIMEOUT)
    return process.returncode, output, errors


def steps_of(output):
    """By process: the steps that it has finished, in order, with rank and size."""
    found = {}
    for line in output.splitlines():
        if match := re.fullmatch(r"process (\d+) step (\d+) rank (\d+) of (\d+)", line):
            found.setdefault(int(match[1]), []).append(tuple(map(int, match.group(2, 3, 4))))
    return found


def done(output):
    """By process: the processes that have taken part in each step, as it says at its end."""
    return {int(process): seen for process, seen in re.findall(r"^process (\d+) done (.*)$", output, re.MULTILINE)}


def check_no_step_is_lost(output):
    """No step is done again, and one that a process has not finished another one has, whose state it has taken."""
    by_process = {process: [step for step, _, _ in steps] for process, steps in steps_of(output).items()}
    finished = set().union(*by_process.values())
    for process, numbers in by_process.items():
        assert all(one < next_one for one, next_one in zip(numbers, numbers[1:])), (process, output)
        assert finished >= set(range(numbers[0], numbers[-1] + 1)), (process, output)


@pytest.mark.parametrize(
    ("deed", "cause"),
    [
        ("kill", r"rank 2 has failed: killed by SIGKILL .*"),
        ("exit", r"rank 2 called sys\.exit\(7\)"),
        ("raise", r"rank 2 raised ValueError: bad data \(elastic_job\.py:\d+\)"),
        ("exit_0", r"rank 2 has failed: ended without shutdown \(exit code 0\)"),
    ],
)
def test_the_others_go_on(deed, cause):
    code, output, errors = run("-np", 4, "--min-np", 2, "--cooldown-range", "60,60", deeds=[f"2@10={deed}"])
    assert code == 0, errors
    told = rf"hvdrun: epoch 2 with 3 ranks, after a pause of \d\.\d\d\d s; left: process 2; {cause}\n"
    assert re.search(told, errors), errors
    check_no_step_is_lost(output)
    assert set(done(output)) == {0, 1, 3} and len(set(done(output).values())) == 1, output
    last = {process: steps[-1] for process, steps in steps_of(output).items()}
    assert last[0] == (30, 0, 3) and last[1] == (30, 1, 3) and last[3] == (30, 2, 3), last


def test_nobody_waits_for_the_end_of_a_process_that_has_failed(tmp_path):
    options = ("-np", 3, "--min-np", 2, "--cooldown-range", "0,0")
    deeds = ["1@5=raise_slowly", "3@1=enough"]
    code, output, errors = run(*options, deeds=deeds, steps=10_000, ENOUGH=tmp_path / "enough")
    assert code == 0, errors
    told = r"epoch 2 with 2 ranks, after a pause of (\d\.\d\d\d) s; left: process 1; rank 1 raised ValueError: bad data"
    pause = re.search(told, errors)
    assert pause and float(pause[1]) < 3, errors
    # Its slot is free once it has ended.
    assert "; joined: process 3\n" in errors and errors.count("rank 1 raised") == 1, errors
    check_no_step_is_lost(output)
    assert set(done(output)) == {0, 2, 3}, output


def test_rank_0_is_like_any_other():
    code, output, errors = run("-np", 3, "--min-np", 1, "--cooldown-range", "60,60", deeds=["0@5=kill", "1@9=kill"])
    assert code == 0, errors
    check_no_step_is_lost(output)
    assert steps_of(output)[2][-1] == (30, 0, 1), output


def test_a_process_takes_the_place_of_a_lost_one(tmp_path):
    timeline = tmp_path / "ran.json"
    code, output, errors = run(
        *("-np", 3, "--min-np", 2, "--cooldown-range", "0,0"),
        deeds=["1@5=kill", "3@1=enough"],
        steps=10_000,
        ENOUGH=tmp_path / "enough",
        HVD_TIMELINE=timeline,
    )
    assert code == 0, errors
    # On a busy machine the newcomer may be there before the others have left the first epoch.
    joined = re.search(r"epoch ([23]) with 3 ranks, .*joined: process 3\n", errors)
    assert joined, errors
    timelines = sorted(path.name for path in tmp_path.glob("*.json"))
    assert timelines == [*(f"ran.epoch{epoch}.json" for epoch in range(2, int(joined[1]) + 1)), "ran.json"]
    assert all(json.loads((tmp_path / name).read_text()) for name in timelines)
    check_no_step_is_lost(output)
    assert set(done(output)) == {0, 2, 3} and len(set(done(output).values())) == 1, output
    last = {process: steps[-1] for process, steps in steps_of(output).items()}
    assert last[3] == (last[0][0], 2, 3), last


def test_a_process_that_is_preempted_leaves_without_an_error():
    code, output, errors = run("-np", 3, "--min-np", 2, "--cooldown-range", "60,60", deeds=["1@10=preempt"])
    assert code == 0, errors
    told = r"hvdrun: epoch 2 with 2 ranks, after a pause of \d\.\d\d\d s; left: process 1; process 1 is preempted\n"
    assert re.search(told, errors) and "failed" not in errors, errors
    check_no_step_is_lost(output)
    assert set(done(output)) == {0, 2}, output
    assert steps_of(output)[1][-1][0] in range(10, 25), output


def test_nobody_waits_while_a_newcomer_prepares(tmp_path):
    code, output, errors = run(
        *("-np", 3, "--min-np", 2, "--cooldown-range", "0,0"),
        deeds=["1@5=kill", "3@0=prepare", "3@1=enough"],
        steps=10_000,
        ENOUGH=tmp_path / "enough",
    )
    assert code == 0, errors
    lines = output.splitlines()
    # Its slot is that of the lost process, not the one behind the survivors.
    begins, ends = lines.index("process 3 expects 2 of 3, 1 here"), lines.index("process 3 is prepared")
    meanwhile = steps_of("\n".join(lines[begins:ends]))
    assert set(meanwhile) == {0, 2} and all(len(steps) > 10 for steps in meanwhile.values()), output
    last = {process: steps[-1] for process, steps in steps_of(output).items()}
    assert last[3] == (last[0][0], 2, 3), output
    check_no_step_is_lost(output)


def test_a_newcomer_joins_by_its_first_operation():
    program = (sys.executable, JOB.with_name("elastic_by_hand.py"))
    code, output, errors = run("-np", 2, "--min-np", 1, "--cooldown-range", "0,0", job=program)
    assert code == 0, errors
    assert "process 2 joined at rank 1 of 2\n" in output and output.count(" has finished\n") == 2, (output, errors)


def test_each_epoch_has_the_process_sets_again():
    program = (sys.executable, JOB.with_name("elastic_sets.py"))
    # The other process comes once the others have begun without it, on a busy machine, too.
    code, output, errors = run("-np", 4, "--min-np", 2, "--cooldown-range", "5,5", job=program)
    assert code == 0, errors
    assert "epoch 2 with 3 ranks" in errors and output.count(" has finished\n") == 4, (output, errors)


def test_a_spare_takes_over_at_once():
    code, output, errors = run(
        *("-np", 2, "-H", "localhost:3", "--min-np", 2, "--max-np", 2, "--spares", 1, "--cooldown-range", "60,60"),
        deeds=["1@40=kill"],
        steps=80,
    )
    assert code == 0, errors
    assert re.search(r"epoch 2 with 2 ranks, .*; joined: process 2; left: process 1; rank 1 has failed", errors), errors
    check_no_step_is_lost(output)
    assert set(done(output)) == {0, 2}, output


def test_too_few_are_left():
    code, output, errors = run(
        *("-np", 2, "--min-np", 2, "--cooldown-range", "60,60", "--elastic-timeout", 10), deeds=["1@5=exit"]
    )
    assert code == 7 and not done(output), errors
    assert (
        "the job has failed: only 1 of at least 2 processes joined within 10 s (--elastic-timeout, --min-np)" in errors
    ), errors
    assert "rank 1 called sys.exit(7)" in errors and "hvdrun: process 1 failed: exit code 7" in errors, errors


def test_all_fail_at_once():
    code, output, errors = run("-np", 2, "--min-np", 1, deeds=["0@5=kill", "1@5=kill"])
    assert code == 128 + signal.SIGKILL and not done(output), errors
    assert "the job has failed: every process that had the job's state is gone" in errors, errors


def test_a_process_that_fails_before_the_job_begins():
    code, output, errors = run("-np", 3, "--min-np", 2, "--cooldown-range", "60,60", deeds=["1@0=never"])
    assert code == 0, errors
    assert set(done(output)) == {0, 2}, output


def test_every_process_fails_before_the_job_begins():
    code, output, errors = run("-np", 2, "--min-np", 1, "--cooldown-range", "60,60", deeds=["0@0=never", "1@0=never"])
    assert code == 5 and not output, errors
    assert "the job has failed: every process has failed before the job began" in errors, errors


def test_the_limit_of_resets():
    deeds = ["3@5=kill", "2@8=kill", "1@11=kill"]
    code, output, errors = run(
        *("-np", 4, "--min-np", 1, "--cooldown-range", "60,60", "--reset-limit", 2), deeds=deeds, steps=200
    )
    assert code == 128 + signal.SIGKILL and not done(output), errors
    assert "the job has failed: the job was reset 2 times (--reset-limit)" in errors, errors


def test_a_job_in_which_nothing_happens():
    code, output, errors = run("-np", 2, "--min-np", 1)
    assert (code, errors) == (0, ""), errors
    assert done(output) == {0: str([[0, 1]] * 30), 1: str([[0, 1]] * 30)}


def test_a_program_that_does_not_know_hvd():
    assert run("-np", 2, "--min-np", 1, job=("true",)) == (0, "", "")


def test_ctrl_c_ends_the_job():
    process = start("-np", 2, "--min-np", 1, steps=10**6)
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + signal.SIGINT and "ended by SIGINT" in errors, errors


def newest_checkpoint(folder):
    return max((int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*")), default=0)


def test_a_job_that_is_told_ends_early_and_goes_on_later(tmp_path):
    kept = 0
    squeue = tmp_path / "slurm" / "squeue"  # whose limit somebody has changed
    squeue.parent.mkdir()
    squeue.write_text("#!/bin/sh\necho 0:06\n")
    squeue.chmod(0o755)
    path = f"{squeue.parent}:{os.environ['PATH']}"
    changed = "the allocation's end was changed: the job ends in 3 s, if it is not finished"
    for notice in (signal.SIGUSR1, signal.SIGTERM, "its allocation"):
        in_slurm = {"SLURM_JOB_ID": "1", "SLURM_JOB_END_TIME": str(int(time.time()) + 3600), "PATH": path}
        process = start(
            *("-np", 2, "--min-np", 2, "--resume", tmp_path),
            steps=10**6,
            environment=in_slurm if notice == "its allocation" else {},
        )
        # One byte: communicate() does not see what a buffer holds. None if the allocation ends before the job begins.
        first = os.read(process.stdout.fileno(), 1).decode()
        if first and notice != "its allocation":
            process.send_signal(notice)
        output, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 75 and "failed" not in errors, (output, errors)
        by_slurm = rf"{changed}\nhvdrun: the time of the allocation is .*"
        cause = f"received {notice.name}" if isinstance(notice, signal.Signals) else by_slurm
        told = (
            rf"hvdrun: {cause}: the job ends at its next commit\n"
            r"hvdrun: the job has ended early, as requested; exit code 75: start it again to continue\n"
        )
        assert re.fullmatch(told, errors), errors
        steps = steps_of(first + output)
        last = {process: steps[process][-1][0] for process in steps}
        assert len(set(last.values())) < 2 and all(steps[process][0][0] == kept + 1 for process in steps), output
        kept = max(last.values(), default=kept)
        assert newest_checkpoint(tmp_path) == kept
    code, output, errors = run("-np", 1, "--min-np", 1, "--resume", tmp_path, steps=kept + 3)
    assert (code, errors) == (0, "") and [step for step, _, _ in steps_of(output)[0]] == [kept + 1, kept + 2, kept + 3]


def test_a_job_without_a_commit_is_ended_by_another_sigterm():
    program = "import hvd, time; hvd.init(); print('begun', flush=True); time.sleep(1000)"
    process = start("-np", 1, "--min-np", 1, job=(sys.executable, "-c", program))
    assert process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert "the job ends at its next commit" in process.stderr.readline()
    deadline = time.monotonic() + TIMEOUT
    while process.poll() is None:
        assert time.monotonic() < deadline
        process.send_signal(signal.SIGTERM)  # within two seconds it is taken for the same
        time.sleep(0.1)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + signal.SIGTERM and "ended by SIGTERM" in errors, errors


def test_a_stopped_process_is_given_up():
    code, output, errors = run(
        "-np", 3, "--min-np", 2, "--stopped-limit", 1, "--cooldown-range", "60,60", deeds=["1@5=stop"]
    )
    assert code == 0, errors
    assert "process 1 was stopped for longer than --stopped-limit, and is killed" in errors, errors
    assert set(done(output)) == {0, 2}, output
    check_no_step_is_lost(output)


def test_what_a_lost_process_leaves_is_ended_at_once():
    process = start("-np", 2, "--min-np", 1, "--cooldown-range", "60,60", deeds=["1@5=kill_parent"], steps=10**6)
    child = next(int(line.split()[1]) for line in process.stdout if line.startswith("child"))
    try:
        deadline = time.monotonic() + TIMEOUT
        while Path(f"/proc/{child}").exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT)


def test_a_newcomer_is_not_waited_for(tmp_path):
    """While it starts, which takes it two seconds, the others take a step every few milliseconds."""
    before = time.monotonic()
    code, output, errors = run(
        *("-np", 2, "--min-np", 1, "--cooldown-range", "0,0"),
        deeds=["1@5=kill", "2@0=late", "2@1=enough"],
        steps=10_000,
        ENOUGH=tmp_path / "enough",
        PAUSE=0.01,
    )
    assert code == 0, errors
    alone = sum(1 for _, _, size in steps_of(output)[0] if size == 1)
    assert alone > 20, (alone, time.monotonic() - before)
    assert set(done(output)) == {0, 2}, output


def test_a_program_for_horovod_waits_for_its_hosts(tmp_path):
    """Each change takes one epoch, though the program is slow to come to its training."""
    log, hosts = tmp_path / "log", tmp_path / "hosts.sh"
    (tmp_path / "0").write_text("localhost:1\n")
    (tmp_path / "1").write_text("localhost:1\n127.0.0.1:2\n")
    (tmp_path / "2").write_text("127.0.0.1:2\n")
    hosts.write_text(
        f"#!/bin/sh\nlines=$(cat {log} 2>/dev/null | wc -l)\nexec cat {tmp_path}/$((lines > 2 ? 2 : lines))\n"
    )
    hosts.chmod(0o755)
    command = ["horovodrun", "-np", 1, "--min-num-proc", 1, "--max-num-proc", 4, "--host-discovery-script", hosts]
    command += ["--reset-limit", 2, sys.executable, JOB.with_name("horovod_elastic_job.py"), log, 0, 1]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert log.read_text() == "0 localhost 0 1 1\n1 localhost 0 3 2\n2 127.0.0.1 1 2 3\n", done.stderr


def test_parameter_servers_stay_while_processes_come_and_go():
    options = ["-np", 3, "--min-np", 2, "--servers", 2, "--lease", 1]
    code, output, errors = run(
        *options, job=(sys.executable, JOB.with_name("elastic_servers.py")), HVD_SERVER_COPIES=2, HVD_START_TIMEOUT=60
    )
    assert code == 0, errors
    epochs = [line for line in errors.splitlines() if line.startswith("hvdrun: epoch ")]
    assert "left: process 1;" in epochs[0] and epochs[0].startswith("hvdrun: epoch 2 with 2 ranks"), errors
    assert "joined: process 3" in errors, errors
    assert re.search(r"hvdrun: server 1 \(pid \d+\) was killed by SIGKILL; it is started again$", errors, re.MULTILINE)
    assert "worker 1 is lost: nobody waits for it any longer" in errors, errors
    pushed = re.findall(r"^pushed (\d+)$", output, re.MULTILINE)
    rows = dict(re.findall(r"^row (\d+) (\d+)$", output, re.MULTILINE))
    assert len(rows) > 10 and rows == {step: str(pushed.count(step)) for step in set(pushed)}, output + errors


def test_lines_of_ranks_that_come_later_do_not_mix():
    program = ("sh", "-c", "printf aaa; sleep 0.3; echo bbb")
    code, output, errors = run("--launcher", "ssh", "--min-np", 1, "--max-np", 3, "-H", "localhost:3", job=program)
    assert code == 0 and output.splitlines() == ["aaabbb"] * 3, (output, errors)


def test_a_job_that_was_suspended_for_longer_than_ranks_may_be_stopped_goes_on():
    process = start(*("--launcher", "ssh", "-H", "localhost:2", "-np", 2, "--min-np", 2, "--stopped-limit", 1))
    process.stdout.readline()
    process.send_signal(signal.SIGTSTP)
    time.sleep(3)
    process.send_signal(signal.SIGCONT)
    errors = process.communicate(timeout=TIMEOUT)[1]
    assert process.returncode == 0 and "--stopped-limit" not in errors, errors


def test_a_host_that_is_added_to_the_addresses_of_agents_is_tried_again(tmp_path):
    (tmp_path / "addresses").write_text("")
    process = start(
        *("--host-discovery-script", "echo elsewhere:1", "--agent-addresses", tmp_path / "addresses", "-np", 1),
        *("--elastic-timeout", 4),
        environment={"HVD_JOB_KEY": "0" * 64},
    )
    errors = process.communicate(timeout=TIMEOUT)[1]
    assert process.returncode != 0 and errors.count("does not say where the agent of host elsewhere listens") > 1, (
        errors
    )


LOST_IN_INIT = """
import os, pathlib, signal, subprocess, sys, time
from hvd import basics, elastic, objects
folder, process = pathlib.Path(sys.argv[1]), os.environ["HVD_PROCESS"]
if process == "0":
    (folder / "new").write_text(str(os.getpid()))
    (folder / "new").rename(folder / "pid")
else:
    while not (folder / "pid").exists():
        time.sleep(0.01)
    time.sleep(1)  # process 0 waits for its place by now, and learns of it once this one is lost
    other = int((folder / "pid").read_text())
    os.kill(other, signal.SIGSTOP)
    ending = f"sleep 1; kill -KILL {os.getpid()}; sleep 0.3; kill -CONT {other}"
    subprocess.Popen(["sh", "-c", ending], start_new_session=True)
basics.init()
state = elastic.ObjectState(elastic.from_source(objects.broadcast_object), basics.rank)
elastic.run_fn(lambda state: print(process, basics.rank(), basics.size()), elastic.join_anew)(state)
"""


def test_a_rank_that_is_lost_in_init_is_not_the_end_of_the_others(tmp_path):
    code, output, errors = run(
        *("-np", 2, "--min-np", 1, "--cooldown-range", "60,60"), job=(sys.executable, "-c", LOST_IN_INIT, tmp_path)
    )
    assert (code, output) == (0, "0 0 1\n"), errors


def test_a_job_for_which_no_host_has_come_has_not_finished(tmp_path):
    asked = tmp_path / "asked"
    options = ("--host-discovery-script", f"touch {asked}", "-np", 1, "--min-np", 1)
    code, _, errors = run(*options, "--timeout", 1, job=("true",))
    assert code == 124 and "the job has reached its --timeout" in errors, errors
    asked.unlink()
    process = start(*options, job=("true",))
    wait_until(asked.exists)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + signal.SIGINT and "ended by SIGINT" in errors, errors


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_slot_that_a_host_gets_later_has_a_cpu_of_its_own(tmp_path):
    names = tmp_path / "hosts"
    names.write_text("localhost:1\n")
    new, came = tmp_path / "new", tmp_path / "came"
    grow = f"if [ $HVD_PROCESS = 0 ]; then echo localhost:2 > {new}; mv {new} {names}; else touch {came}; fi; "
    grow += f"while [ ! -e {came} ]; do sleep 0.05; done"
    code, _, errors = run(
        *("--host-discovery-script", f"cat {names}", "--discovery-interval", 0.1, "-np", 1, "--min-np", 1),
        *("--max-np", 2, "--bind-to", "core", "--report-bindings"),
        job=("sh", "-c", grow),
    )
    bound = re.findall(r"process \d on localhost is bound to CPU (\d+)", errors)
    assert code == 0 and len(set(bound)) == 2, errors


def test_ranks_with_other_settings_are_told_at_once():
    program = """
import os
from hvd import basics
os.environ["HVD_CHUNK_BYTES"] = "8192" if os.environ["HVD_PROCESS"] == "0" else "4096"
basics.init()
"""
    code, _, errors = run("-np", 2, "--min-np", 2, job=(sys.executable, "-c", program))
    assert code == 1 and "all ranks must have the same settings" in errors and "epoch 2" not in errors, errors
