"""Started by torchrun, TF_CONFIG and Slurm's srun: the digits example, and clear words where something is missing."""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ports import free_ports

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples/torch/digits.py"
CHILD = ROOT / "tests/python/programs/child_of_rank.py"
SLURM = ROOT / "tests/support/slurm.sh"
TWICE = """
import arrays, hvd
for _ in range(2):
    hvd.init()
    total = arrays.allreduce([hvd.rank() + 1.0], op=arrays.Sum)
    print(f"rank {hvd.rank()} of {hvd.size()}: {total.item()}", flush=True)
    hvd.shutdown()
"""


def run(*command, limit_s=360, **variables):
    done = subprocess.run(
        [*map(str, command)],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit_s,
    )
    return done.returncode, done.stdout


def run_together(*environments, program=TWICE):
    """One process for each environment; their exit codes and outputs."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for variables in environments
    ]
    outputs = [process.communicate(timeout=360)[0] for process in processes]
    return [process.returncode for process in processes], outputs


def torchrun(*arguments, **variables):
    return run(sys.executable, "-m", "torch.distributed.run", *arguments, **variables)


def test_torchrun_starts_a_job_twice(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(TWICE)
    code, output = torchrun("--standalone", "--nproc-per-node", "2", program)
    assert code == 0, output
    assert output.count("of 2: 3.0") == 4


def test_a_child_of_torchruns_rank_is_told_whose_child_it_is():
    code, output = torchrun("--standalone", "--nproc-per-node", "2", CHILD)
    assert code == 0 and "rank 0 is fine" in output and "rank 1 is fine" in output, output


@pytest.mark.long
def test_torchrun_starts_the_digits_example():
    code, output = torchrun("--standalone", "--nproc-per-node", "2", DIGITS)
    assert code == 0, output
    assert "accuracy" in output


def test_torchrun_without_an_agents_store():
    """Variables set by hand, as torch.distributed's own documents have it: rank 0 hosts the store."""
    program = "import torch.distributed as dist; dist.init_process_group('gloo')\n" + TWICE
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(*free_ports(1)), "WORLD_SIZE": "2"}
    codes, outputs = run_together({**variables, "RANK": "0"}, {**variables, "RANK": "1"}, program=program)
    assert codes == [0, 0], outputs
    assert all(output.count("of 2: 3.0") == 2 for output in outputs), outputs


def test_several_of_torchruns_agents_on_a_host():
    """Each of them counts its own ranks in LOCAL_WORLD_SIZE."""
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(*free_ports(1)), "WORLD_SIZE": "2"}
    variables |= {"LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    program = "import hvd; hvd.init(); print(hvd.local_rank(), 'of', hvd.local_size())"
    codes, outputs = run_together({**variables, "RANK": "0"}, {**variables, "RANK": "1"}, program=program)
    assert codes == [0, 0] and outputs == ["0 of 2\n", "1 of 2\n"], outputs


def test_a_program_without_python_says_how_torchrun_is_served():
    bench = Path(sys.prefix, "bin/hvd-bench")
    code, output = run(bench, "allreduce", RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    assert code != 0
    assert "started by torchrun, whose store is reached from Python" in output


@pytest.fixture
def tf_config():
    """The variable for a task of a cluster on this machine."""
    chief, worker, server = (f"localhost:{port}" for port in free_ports(3))
    cluster = {"chief": [chief], "worker": [worker], "ps": [server]}

    def variable_of(task):
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task, "index": 0}})}

    return variable_of


def test_tf_config_starts_a_job_twice_and_an_evaluator_is_alone(tf_config):
    key = {"HVD_JOB_KEY": secrets.token_hex(32)}
    codes, outputs = run_together(
        {**tf_config("chief"), **key}, {**tf_config("worker"), **key}, tf_config("evaluator"), tf_config("ps")
    )
    assert codes == [0, 0, 0, 1], outputs
    assert outputs[0].count("rank 0 of 2: 3.0") == 2
    assert outputs[1].count("rank 1 of 2: 3.0") == 2
    assert outputs[2].count("rank 0 of 1: 1.0") == 2
    message = "started by TF_CONFIG as parameter server 0 of 1, without a secret of the job"
    assert message in outputs[3] and "set HVD_JOB_KEY to it in all processes" in outputs[3], outputs[3]


def test_a_server_of_tf_config_ends_with_its_job(tf_config):
    """Though one of the workers has never come to it."""
    key = {"HVD_JOB_KEY": secrets.token_hex(32)}
    tasks = [{**tf_config(task), **key} for task in ("chief", "worker", "ps")]
    program = "import hvd; hvd.init(); hvd.rank() == 0 and hvd.ps.connect().close(); print('rank', hvd.rank())"
    codes, outputs = run_together(*tasks, program=program)
    assert codes == [0, 0, 0], outputs
    assert [output.strip() for output in outputs] == ["rank 0", "rank 1", ""], outputs


def test_rank_0_has_the_store_and_who_connects_after_it_has_left_is_told(tf_config):
    key = {"HVD_JOB_KEY": secrets.token_hex(32)}
    tasks = [{**tf_config(task), **key} for task in ("chief", "worker", "ps")]
    program = """
import os, time, arrays, hvd
hvd.init()
chief = int(arrays.allreduce([float(os.getpid() if hvd.rank() == 0 else 0)], op=arrays.Sum).item())
while hvd.rank() == 1 and os.path.exists(f"/proc/{chief}/exe"):
    time.sleep(0.01)
hvd.rank() == 1 and hvd.ps.connect()
"""
    codes, outputs = run_together(*tasks, program=program)
    assert codes[:2] == [0, 1], outputs  # a server that begins after rank 0 has left finds no store either
    assert "rank 0 has left this job, and with it the store by which parameter servers are found" in outputs[1], outputs


def test_tf_config_without_a_key_says_how_to_set_one(tf_config):
    codes, outputs = run_together(tf_config("chief"), tf_config("worker"))
    assert codes == [1, 1], outputs
    for rank, output in enumerate(outputs):
        assert f"started by TF_CONFIG as rank {rank} of 2, without a secret of the job" in output
        assert "openssl rand -hex 32, and set HVD_JOB_KEY to it" in output


def test_a_single_worker_with_a_server_has_a_store():
    """So it needs a key, and the runtime works as in a job of several."""
    worker, server = (f"localhost:{port}" for port in free_ports(2))
    cluster = {"worker": [worker], "ps": [server]}
    variable = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})}
    codes, outputs = run_together(variable, {**variable, "HVD_JOB_KEY": secrets.token_hex(32)})
    assert codes == [1, 0], outputs
    assert "started by TF_CONFIG as rank 0 of 1, without a secret of the job" in outputs[0]
    assert outputs[1].count("rank 0 of 1: 1.0") == 2


def test_tf_config_with_two_keys_is_refused(tf_config):
    own = [{"HVD_JOB_KEY": secrets.token_hex(32), "HVD_START_TIMEOUT": "5"} for _ in range(2)]
    codes, outputs = run_together({**tf_config("chief"), **own[0]}, {**tf_config("worker"), **own[1]})
    assert codes == [1, 1], outputs
    assert all("hvd.exceptions.InitError: " in output for output in outputs), outputs


@pytest.fixture(scope="module")
def srun(tmp_path_factory):
    if os.geteuid() != 0 or shutil.which("slurmctld") is None:
        pytest.skip("starting Slurm needs root, and Debian's slurm-wlm and munge")
    state = tmp_path_factory.mktemp("slurm")
    subprocess.run([SLURM, "start", state], check=True, timeout=300)

    def run_step(*arguments, **variables):
        return run(
            "srun", "--overcommit", "--immediate=60", *arguments, SLURM_CONF=str(state / "slurm.conf"), **variables
        )

    run_step.environment = {**os.environ, "SLURM_CONF": str(state / "slurm.conf")}
    yield run_step
    subprocess.run([SLURM, "stop", state], check=True, timeout=300)


@pytest.mark.long
@pytest.mark.xdist_group(name="slurm")
def test_srun_starts_the_digits_example(srun):
    code, output = srun("-n", "2", sys.executable, DIGITS, HVD_JOB_KEY=secrets.token_hex(32))
    assert code == 0, output
    assert "accuracy" in output


@pytest.mark.xdist_group(name="slurm")
@pytest.mark.parametrize("mpi", ["pmix", "pmi2"])
def test_srun_needs_no_key_where_it_serves_mpi(srun, mpi):
    code, output = srun("-n", "2", f"--mpi={mpi}", sys.executable, "-c", TWICE)
    assert code == 0, output
    assert output.count("of 2: 3.0") == 4


@pytest.mark.xdist_group(name="slurm")
@pytest.mark.parametrize("mpi", ["pmix", "pmi2", "none"])
def test_a_child_of_sruns_rank_is_told_whose_child_it_is(srun, mpi):
    key = {"HVD_JOB_KEY": secrets.token_hex(32)} if mpi == "none" else {}
    code, output = srun("-n", "2", f"--mpi={mpi}", sys.executable, CHILD, **key)
    assert code == 0 and "rank 0 is fine" in output and "rank 1 is fine" in output, output


@pytest.mark.xdist_group(name="slurm")
def test_srun_with_a_key_joins_again(srun):
    code, output = srun("-n", "2", sys.executable, "-c", TWICE, HVD_JOB_KEY=secrets.token_hex(32))
    assert code == 0, output
    assert output.count("of 2: 3.0") == 4


TORCH_ALONE = """
import hvd
hvd.init()
import torch.distributed as dist
dist.init_process_group("gloo")  # through PyTorch's own store, at the port that is reserved
gathered = [None] * hvd.size()
dist.all_gather_object(gathered, hvd.rank())
print("gathered", gathered, flush=True)
dist.destroy_process_group()
"""


@pytest.mark.xdist_group(name="slurm")
def test_srun_leaves_torchs_variables_to_init(srun):
    without_ours = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "HVD_JOB_KEY": secrets.token_hex(32)}
    code, output = srun("-n", "2", sys.executable, "-c", TORCH_ALONE, **without_ours)
    assert code == 0, output
    assert output.count("gathered [0, 1]") == 2, output


@pytest.mark.xdist_group(name="slurm")
def test_srun_without_a_key_says_how_to_set_one(srun):
    code, output = srun("-n", "2", sys.executable, "-c", TWICE)
    assert code != 0
    for rank in range(2):
        assert f"started by srun as rank {rank} of 2, without a secret of the job" in output
    assert "export HVD_JOB_KEY=$(openssl rand -hex 32)" in output


BATCH = """#!/bin/bash
trap 'kill -USR1 $job' USR1
hvdrun -np 2 --min-np 1 --verbose --resume {folder}/kept {python} {job} 1000000 &
job=$!
while kill -0 $job 2> /dev/null; do
    wait $job
    code=$?
done
echo "it is over: $code"
if [ $code -eq 75 ]; then scontrol requeue $SLURM_JOB_ID; fi
exit $code
"""


@pytest.mark.xdist_group(name="slurm")
def test_a_batch_script_saves_and_requeues_an_elastic_job(srun, tmp_path):
    """Slurm sends the signal as it does before the time limit, which it looks at once a minute."""

    def slurm(*command):
        return subprocess.check_output([*map(str, command)], env=srun.environment, text=True, timeout=60).strip()

    def wait_for(holds, limit_s=120):
        deadline = time.monotonic() + limit_s
        while not holds():
            assert time.monotonic() < deadline, output()
            time.sleep(0.1)

    def output():
        return (tmp_path / "output").read_text() if (tmp_path / "output").exists() else ""

    script = tmp_path / "script"
    script.write_text(
        BATCH.format(folder=tmp_path, python=sys.executable, job=ROOT / "tests/end_to_end/elastic_job.py")
    )
    options = (
        "--time=10",
        "--ntasks=1",
        "--overcommit",
        "--requeue",
        "--open-mode=append",
        f"--output={tmp_path}/output",
    )
    job = slurm("sbatch", "--parsable", *options, script)
    try:
        wait_for(lambda: re.search(r"step \d+ rank 0 of 2\n", output()))
        slurm("scancel", "--signal=USR1", "--batch", job)
        wait_for(lambda: "Restarts=1 " in slurm("scontrol", "--oneliner", "show", "job", job))
    finally:
        slurm("scancel", "--full", job)
    text = output()
    limit = int(re.search(r"the allocation's time limit ends the job in (\d+) s", text)[1])
    assert 400 < limit <= 540, text  # as squeue says, a minute less than ten
    assert "received SIGUSR1: the job ends at its next commit\n" in text and "it is over: 75\n" in text, text
    last = max(int(step) for step in re.findall(r" step (\d+) ", text))
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [f"checkpoint-{last}"], text


@pytest.mark.xdist_group(name="slurm")
def test_srun_with_two_keys_is_refused(srun):
    program = (
        "import os, secrets; os.environ['HVD_JOB_KEY'] = secrets.token_hex(32); os.environ['HVD_START_TIMEOUT'] = '5'\n"
    )
    code, output = srun("-n", "2", sys.executable, "-c", program + TWICE)
    assert code != 0
    assert "Traceback" in output and "hvd.exceptions.InitError: " in output
