"""hvdrun's options as users of mpirun, mpiexec, torchrun and horovodrun type them, and their completion in a shell."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.quick

TIMEOUT = 300
HVDRUN = os.environ.get("HVDRUN") or shutil.which("hvdrun")
SHOW = "import os, sys; print(os.environ['RANK'], os.environ.get('SEEN'), *sys.argv[1:])"


@pytest.fixture(autouse=True)
def there_is_one():
    assert HVDRUN, "hvdrun is neither on the PATH nor named by the variable HVDRUN"


def run(*arguments, **options):
    command = [HVDRUN, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL, **options)


def lines(done):
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "show.py"
    path.write_text(SHOW)
    return path


@pytest.mark.parametrize(
    "options",
    [
        "--standalone --nnodes=1 --nproc_per_node=2 --rdzv-id 1",
        "--nproc-per-node 2 --max-restarts 0",
        "-N 2 --python",
        "--pernode -np 1 --python SHOW 5 : -np 1 --python",
    ],
)
def test_scripts_as_torchrun_starts_them(options, script):
    words = [str(script) if word == "SHOW" else word for word in options.split()]
    assert lines(run(*words, script, "5")) == ["0 None 5", "1 None 5"]


def test_modules(script):
    done = run("--nproc-per-node", 2, "-m", "show", "-x", env={**os.environ, "PYTHONPATH": str(script.parent)})
    assert lines(done) == ["0 None -x", "1 None -x"] and done.stderr == ""


def test_variables_as_mpiexec_sets_them():
    show = ["sh", "-c", "echo $RANK $SEEN $OTHER"]
    done = run("-genv", "SEEN", "1", "-np", 1, "-env", "OTHER", "2", *show, ":", "-env", "SEEN", "3", "-np", 1, *show)
    assert lines(done) == ["0 1 2", "1 3"]


def test_output_goes_to_files_alone(tmp_path):
    done = run("-np", 2, "--log-dir", tmp_path, "--redirects", 3, "sh", "-c", "echo out; echo err >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [(tmp_path / f"rank.{rank}/stdout").read_text() for rank in (0, 1)] == ["out\n"] * 2
    assert (tmp_path / "rank.1/stderr").read_text() == "err\n"


def test_settings_come_from_options_before_the_file_before_the_environment(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("params: {fusion_threshold_mb: 2, cycle_time_ms: 3}\nautotune: {enabled: true, pace: 7}\n")
    show = ["sh", "-c", "echo $HVD_FUSION_THRESHOLD $HVD_CYCLE_TIME $HVD_AUTOTUNE"]
    surroundings = {**os.environ, "HVD_FUSION_THRESHOLD": "1", "HVD_AUTOTUNE": "0"}
    done = run("--config-file", config, "--cycle-time-ms", 4, "-np", 1, *show, env=surroundings)
    assert lines(done) == ["2097152 4 1"]
    assert done.stderr == f"hvdrun: {config}: autotune.pace is not a known key, and is ignored\n"
    missing = run("--config-file", tmp_path / "none.yaml", "true")
    assert missing.returncode == 2 and "none.yaml: cannot be read" in missing.stderr


@pytest.mark.parametrize("option", ["--config-file", "--hostfile"])
def test_a_folder_is_no_file(tmp_path, option):
    done = run(option, tmp_path, "-np", 1, "true")
    assert done.returncode == 2 and f"hvdrun: {tmp_path}: cannot be read" in done.stderr, done


def test_what_changes_nothing_is_said_once_unless_nobody_wants_to_hear_it():
    done = run("--prefix", "/opt/openmpi", "-np", 2, "true")
    assert done.returncode == 0 and re.fullmatch(r"hvdrun: --prefix has no effect: .*\n", done.stderr)
    assert run("-q", "--prefix", "/opt/openmpi", "-np", 2, "true").stderr == ""
    refused = run("--rankfile", "ranks", "-np", 2, "true")
    assert refused.returncode == 2 and refused.stderr.startswith("hvdrun: --rankfile: ranks are placed with")


def test_the_plan_is_shown_before_the_start():
    shown = run("--display-map", "-np", 2, "echo", "started").stdout
    assert shown.index("2 ranks on 1 host") < shown.index("started")


def test_ranks_stay_on_the_cpus_that_are_named():
    cpu = max(os.sched_getaffinity(0))
    done = run("--cpu-set", cpu, "-np", 2, sys.executable, "-c", "import os; print(os.sched_getaffinity(0))")
    assert lines(done) == [f"{{{cpu}}}"] * 2


def test_mpirun_starts_processes_for_root_and_gets_the_variables_of_the_job():
    """Open MPI's refuses root unless it is told otherwise."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")}
    show = ["sh", "-c", "echo $OMPI_COMM_WORLD_SIZE $HVD_TIMELINE"]
    options = ["--mpi", "--oversubscribe", "--nproc-per-node", 2, "--timeline-filename", "t.json"]
    assert lines(run(*options, *show, env=environment)) == ["2 t.json"] * 2


# --- completion ---


def completed(*words):
    """What bash offers for the last of these words."""
    command = """
source <("$0" --completion bash) && complete -p hvdrun > /dev/null || exit 3
COMP_WORDS=(hvdrun "$@") COMP_CWORD=$#
_hvdrun
printf '%s\\n' "${COMPREPLY[@]}"
"""
    done = subprocess.run(["bash", "--norc", "-c", command, HVDRUN, *words], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_options_values_and_programs_are_completed_in_bash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.txt").touch()
    (tmp_path / "hostile").mkdir()
    assert completed("--oversub") == ["--oversubscribe"]
    assert completed("-np", "2", "--ou") == ["--output-filename"]
    assert completed("-np", "=", "2", "--nol") == ["--nolocal"]
    assert completed("--bind-to", "n") == ["none", "numa"]
    assert completed("--launcher", "=", "s") == ["ssh", "slurm"]
    assert completed("--launcher", "=") == ["local", "ssh", "slurm", "mpi"]
    assert completed("--hostfile", "hosts") == ["hosts.txt"]
    assert completed("--wdir", "host") == ["hostile"]
    assert "bash" in completed("-x", "A=1", "-mca", "btl", "tcp", "--npernode", "2", "bas")
    assert completed("-x", "A", "=", "1", "-H", "a", ":", "2,b", ":", "2", "--nol") == ["--nolocal"]
    assert completed("-np", "2", "ls", "--nol", "hosts") == ["hosts.txt"]
    assert completed("-np", "2", "ls", "--nol") == []


def test_bash_completes_while_one_types():
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(PS1="$ ", TERM="dumb")
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    try:
        os.write(terminal, f'hvdrun() {{ echo got "$@"; }}; source <({HVDRUN} --completion bash)\n'.encode())
        os.write(terminal, b"hvdrun --nolo\t --bind-to hw\t\n")
        text, deadline = "", time.monotonic() + TIMEOUT
        while "got --nolocal --bind-to hwthread" not in text:
            assert select.select([terminal], [], [], deadline - time.monotonic())[0], text
            text += os.read(terminal, 4096).decode()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_zsh_script_names_every_option_that_help_shows():
    script = run("--completion", "zsh").stdout
    assert script.startswith("#compdef hvdrun\n")
    shown = re.findall(r"^  (-\S+)", run("--help").stdout, re.MULTILINE)
    for name in (name for names in shown for name in names.split(",")):
        assert f"'*{name}[" in script
    if shutil.which("zsh"):
        subprocess.run(["zsh", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("options", [("-N", 4, "--min-np", 2), ("--nproc-per-node", 4, "--max-np", 4)])
def test_ranks_of_each_host_in_an_elastic_job(options):
    done = run(*options, "--dry-run", "true")
    assert done.returncode == 0 and "4 ranks on 1 host" in done.stdout, done


def test_a_current_folder_that_is_gone(tmp_path):
    command = f"rmdir {tmp_path}; exec {HVDRUN} --dry-run -H elsewhere true"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 2 and "hvdrun: the current folder: No such file or directory" in done.stderr, done


def test_an_elastic_job_in_an_allocation_starts_its_agents_by_srun(tmp_path):
    srun = tmp_path / "srun"
    srun.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/called\nexit 3\n')
    srun.chmod(0o755)
    allocation = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "nx[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)"}
    environment = {**os.environ, **allocation, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run("-np", 2, "--min-np", 1, "--elastic-timeout", 1, "true", env=environment)
    assert done.returncode != 0 and "ssh" not in done.stderr, done.stderr
    assert "--nodelist=nx1" in (tmp_path / "called").read_text()


def test_mpichs_mpirun_gets_no_option_that_it_does_not_know(tmp_path):
    (tmp_path / "mpirun").write_text('#!/bin/sh\nexec mpirun.mpich "$@"\n')
    (tmp_path / "mpirun").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run("--mpi", "-n", 1, "-hosts", "localhost", "-genv", "A", 1, "printenv", "A", env=environment)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
