"""horovodrun: what becomes of each of its options, of its configuration file and of hosts, and what it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from horovod.runner import launch, translation
from horovod.runner.arguments import make_parser
from horovod.runner.common.util import config_parser, env, hosts
from launching import ROOT

PROGRAM = ["python", "train.py", "--lr", "0.1"]

# Options, and the variables that the ranks get.
VARIABLES = [
    ("--fusion-threshold-mb 10", {"HOROVOD_FUSION_THRESHOLD": "10485760"}),
    ("--cycle-time-ms 2.5", {"HOROVOD_CYCLE_TIME": "2.5"}),
    ("--cache-capacity 512", {"HOROVOD_CACHE_CAPACITY": "512"}),
    ("--hierarchical-allreduce", {"HOROVOD_HIERARCHICAL_ALLREDUCE": "1"}),
    ("--no-hierarchical-allreduce", {"HOROVOD_HIERARCHICAL_ALLREDUCE": "0"}),
    ("--hierarchical-allgather", {"HOROVOD_HIERARCHICAL_ALLGATHER": "1"}),
    ("--no-hierarchical-allgather", {"HOROVOD_HIERARCHICAL_ALLGATHER": "0"}),
    ("--torus-allreduce", {"HOROVOD_TORUS_ALLREDUCE": "1"}),
    ("--no-torus-allreduce", {"HOROVOD_TORUS_ALLREDUCE": "0"}),
    ("--autotune", {"HOROVOD_AUTOTUNE": "1"}),
    ("--no-autotune", {"HOROVOD_AUTOTUNE": "0"}),
    ("--autotune-log-file log.csv", {"HOROVOD_AUTOTUNE_LOG": "log.csv"}),
    ("--autotune-warmup-samples 1", {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1"}),
    ("--autotune-steps-per-sample 5", {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "5"}),
    ("--autotune-bayes-opt-max-samples 10", {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "10"}),
    ("--autotune-gaussian-process-noise 0.2", {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "0.2"}),
    ("--timeline-filename t.json", {"HOROVOD_TIMELINE": "t.json"}),
    ("--timeline-mark-cycles", {"HOROVOD_TIMELINE_MARK_CYCLES": "1"}),
    ("--no-timeline-mark-cycles", {"HOROVOD_TIMELINE_MARK_CYCLES": "0"}),
    ("--no-stall-check", {"HOROVOD_STALL_CHECK_DISABLE": "1"}),
    ("--stall-check", {"HOROVOD_STALL_CHECK_DISABLE": "0"}),
    ("--stall-check-warning-time-seconds 20", {"HOROVOD_STALL_CHECK_TIME_SECONDS": "20"}),
    ("--stall-check-shutdown-time-seconds 30", {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "30"}),
    ("--mpi-threads-disable", {"HOROVOD_MPI_THREADS_DISABLE": "1"}),
    ("--no-mpi-threads-disable", {"HOROVOD_MPI_THREADS_DISABLE": "0"}),
    ("--num-nccl-streams 2", {"HOROVOD_NUM_NCCL_STREAMS": "2"}),
    ("--thread-affinity 1", {"HOROVOD_THREAD_AFFINITY": "1"}),
    (
        "--gloo-timeout-seconds 60",
        {"HOROVOD_GLOO_TIMEOUT_SECONDS": "60", "HVD_COLLECTIVE_TIMEOUT_SECONDS": "60"},
    ),
    ("--log-level INFO", {"HOROVOD_LOG_LEVEL": "INFO"}),
    ("--log-with-timestamp", {"HOROVOD_LOG_HIDE_TIME": "0"}),
    ("--log-without-timestamp", {"HOROVOD_LOG_HIDE_TIME": "1"}),
    ("--log-hide-timestamp", {"HOROVOD_LOG_HIDE_TIME": "1"}),
    ("--no-log-hide-timestamp", {"HOROVOD_LOG_HIDE_TIME": "0"}),
    ("--start-timeout 90", {"HOROVOD_START_TIMEOUT": "90"}),
    ("--tcp", {"NCCL_IB_DISABLE": "1"}),
    ("--network-interfaces eth0,eth1", {"NCCL_SOCKET_IFNAME": "eth0,eth1"}),
    ("--network-interface eth0 --network-interface eth1", {"NCCL_SOCKET_IFNAME": "eth0,eth1"}),
    ("--network-interfaces 10.1.0.0/16,eth1", {"NCCL_SOCKET_IFNAME": "eth1"}),
    ("--network-interfaces 10.1.0.0/16", {}),
]

# Options, and what hvdrun is told instead of "-np 2 -H localhost:2".
OPTIONS = [
    ("-np 3", "-np 3 -H localhost:3"),
    ("--num-proc 3", "-np 3 -H localhost:3"),
    ("-H localhost:4", "-np 2 -H localhost:4"),
    ("--hosts localhost:4", "-np 2 -H localhost:4"),
    ("-hostfile machines", "-np 2 --hostfile machines"),
    ("--hostfile machines", "-np 2 --hostfile machines"),
    ("--verbose", "-np 2 -H localhost:2 --verbose"),
    ("--gloo", "-np 2 -H localhost:2 --gloo"),
    ("--output-filename logs", "-np 2 -H localhost:2 --output-filename logs"),
    ("-prefix-timestamp", "-np 2 -H localhost:2 --timestamp-output"),
    ("--prefix-output-with-timestamp", "-np 2 -H localhost:2 --timestamp-output"),
    ("-p 22", "-np 2 -H localhost:2 --ssh-port 22"),
    ("--ssh-port 22", "-np 2 -H localhost:2 --ssh-port 22"),
    ("-i key", "-np 2 -H localhost:2 --ssh-identity-file key"),
    ("--ssh-identity-file key", "-np 2 -H localhost:2 --ssh-identity-file key"),
    ("--network-interfaces eth0,eth1", "-np 2 -H localhost:2 --network-interface eth0,eth1"),
    ("--network-interface eth0 --network-interface eth1", "-np 2 -H localhost:2 --network-interface eth0,eth1"),
    ("--start-timeout 90", "-np 2 -H localhost:2 --start-timeout 90"),
    ("--binding-args=--bind-to~core", "-np 2 -H localhost:2 --bind-to core"),
    ("--min-np 1", "-np 2 --min-np 1 -H localhost:2"),
    ("--host-discovery-script hosts.sh", "-np 2 --host-discovery-script hosts.sh"),
    ("--min-num-proc 3", "-np 3 --min-np 3 -H localhost:3"),
    ("--min-np 1 -H localhost:4", "-np 2 --min-np 1 -H localhost:4"),
    ("--max-np 4", "-np 2 --max-np 4 -H localhost:4"),
    ("--max-num-proc 4", "-np 2 --max-np 4 -H localhost:4"),
    ("--elastic-timeout 60", "-np 2 -H localhost:2 --elastic-timeout 60"),
    ("--reset-limit 0", "-np 2 -H localhost:2 --reset-limit 0"),
    ("--blacklist-cooldown-range 10 20", "-np 2 -H localhost:2 --cooldown-range 10,20"),
    ("--mpi-args=-x~A=1~--tag-output", "-np 2 -H localhost:2 -x A=1 --tag-output"),
]

NO_EFFECT = [
    *(
        "--disable-cache",
        "--hierarchical-allreduce",
        "--hierarchical-allgather",
        "--torus-allreduce",
        "--mpi-threads-disable",
    ),
    *("--autotune-gaussian-process-noise 0.1", "--num-nccl-streams 2", "--thread-affinity 1"),
    *("--log-with-timestamp", "--log-without-timestamp", "--slots-per-host 2"),
]

REFUSED = ["--jsrun"]


def words(text: str) -> list[str]:
    return [word.replace("~", " ") for word in text.split()]


def parse(options: str):
    return launch.parse_args(["-np", "2", *words(options), *PROGRAM])


# What Horovod's own parse_args() gives for `horovodrun -np 2`.
SWITCHES = "disable_cache verbose tcp_flag prefix_output_with_timestamp use_gloo use_mpi use_jsrun"
UNSET = """
check_build start_timeout nics output_filename config_file ssh_port ssh_identity_file fusion_threshold_mb cycle_time_ms
cache_capacity hierarchical_allreduce hierarchical_allgather torus_allreduce autotune autotune_log_file
autotune_warmup_samples autotune_steps_per_sample autotune_bayes_opt_max_samples autotune_gaussian_process_noise
min_num_proc max_num_proc slots elastic_timeout reset_limit cooldown_range timeline_filename timeline_mark_cycles
no_stall_check stall_check_warning_time_seconds stall_check_shutdown_time_seconds mpi_threads_disable mpi_args
binding_args num_nccl_streams thread_affinity gloo_timeout_seconds log_level log_with_timestamp hosts hostfile
host_discovery_script run_func executable
"""


def test_parse_args_returns_what_horovods_returns(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["horovodrun", "-np", "2"])
    defaults = {**dict.fromkeys(SWITCHES.split(), False), **dict.fromkeys(UNSET.split())}
    assert vars(launch.parse_args()) == {**defaults, "num_proc": 2, "command": []}
    given = (
        "-np 2 --network-interface eth0 --network-interface eth1,eth2 --blacklist-cooldown-range 10 20 --tcp python -x"
    )
    monkeypatch.setattr(sys, "argv", ["horovodrun", *given.split()])
    changed = {"nics": {"eth0", "eth1", "eth2"}, "cooldown_range": [10, 20], "tcp_flag": True}
    assert vars(launch.parse_args()) == {**defaults, **changed, "num_proc": 2, "command": ["python", "-x"]}


def test_parse_args_ends_after_check_build(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["horovodrun", "-cb"])
    with pytest.raises(SystemExit) as ended:
        launch.parse_args()
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("Horovod v")


@pytest.mark.parametrize("options, variables", VARIABLES, ids=[options for options, _ in VARIABLES])
def test_variables(options, variables):
    assert translation.environment_of_ranks(parse(options), {"KEPT": "1"}) == {"KEPT": "1", **variables}


@pytest.mark.parametrize("options, told", OPTIONS, ids=[options for options, _ in OPTIONS])
def test_options_of_hvdrun(options, told):
    command = translation.hvdrun_command(parse(options), {})
    assert os.path.basename(command[0]) == "hvdrun"
    assert command[1:] == [*told.split(), *PROGRAM]


@pytest.mark.parametrize("options", NO_EFFECT)
def test_what_has_no_effect_is_said(options):
    (note,) = translation.notes(parse(options))
    assert " has no effect" in note


@pytest.mark.parametrize("options", [line for line, _ in VARIABLES[:3] + VARIABLES[9:12] + OPTIONS])
def test_nothing_is_said_of_what_has_an_effect(options):
    assert translation.notes(parse(options)) == []


@pytest.mark.parametrize("options", REFUSED)
def test_what_is_refused_says_so(options):
    with pytest.raises(ValueError, match=options.split()[0]):
        translation.hvdrun_command(parse(options), {})


def test_every_option_is_tried():
    tried = " ".join([line for line, _ in VARIABLES + OPTIONS] + NO_EFFECT + REFUSED).replace("=", " ").split()
    other = ["-h", "--help", "-v", "--version", "-cb", "--check-build", "--config-file", "--mpi", "-np"]
    known = [name for action in make_parser()._actions for name in action.option_strings]
    assert [name for name in known if name not in tried and name not in other] == []


def test_several_at_once():
    args = parse("--fusion-threshold-mb 1 --no-stall-check --verbose")
    assert args.command == PROGRAM and args.num_proc == 2 and args.fusion_threshold_mb == 1 and args.no_stall_check
    assert args.cycle_time_ms is None


def test_an_option_counts_more_than_hvds_own_variable():
    surroundings = {"HVD_FUSION_THRESHOLD": "1", "HVD_CYCLE_TIME": "1", "HOROVOD_CACHE_CAPACITY": "7"}
    ranks = translation.environment_of_ranks(parse("--fusion-threshold-mb 1 --cache-capacity 8"), surroundings)
    assert ranks == {"HOROVOD_FUSION_THRESHOLD": "1048576", "HVD_CYCLE_TIME": "1", "HOROVOD_CACHE_CAPACITY": "8"}


@pytest.mark.parametrize(
    "options, text",
    [
        ("--cycle-time-ms -1", "cycle_time_ms=-1.0 must be >= 0"),
        ("--fusion-threshold-mb -1", "fusion_threshold_mb=-1 must be >= 0"),
        ("--autotune-gaussian-process-noise 1.5", r"must be in \[0, 1\]"),
        ("--config-file /nowhere.yaml", "nowhere"),
    ],
)
def test_values_that_make_no_sense(options, text):
    with pytest.raises(ValueError, match=text):
        parse(options)


@pytest.mark.parametrize(
    "options",
    [
        "python train.py",
        "-np 2 --hosts a:1 --hostfile b x",
        "-np 2 --gloo --mpi x",
        "-np 2 --autotune --no-autotune x",
        "-np 2 --blacklist-cooldown-range 20 10 x",
        "-np 2 --blacklist-cooldown-range 0 10 x",
        "-np 2 --log-level LOUD x",
        "-np 2 --nonsense x",
    ],
)
def test_lines_that_make_no_sense(options, capsys):
    with pytest.raises(SystemExit) as ended:
        launch.parse_args(options.split())
    assert ended.value.code == 2 and "horovodrun: error:" in capsys.readouterr().err


def test_elastic_jobs_begin_with_the_fewest():
    args = launch.parse_args(["--min-np", "3", "--max-np", "5", "train"])
    told = "-np 3 --min-np 3 --max-np 5 -H localhost:5 train"
    assert translation.hvdrun_command(args, {})[1:] == told.split()


CONFIG = """
controller: gloo
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 10
  cache_capacity: 2048
  hierarchical_allreduce: true
  hierarchical_allgather: false
  torus_allreduce: false
autotune:
  enabled: true
  log_file: log.csv
  warmup_samples: 5
  steps_per_sample: 20
  bayes_opt_max_samples: 50
  gaussian_process_noise: 0.9
timeline:
  filename: t.json
  mark_cycles: true
stall_check:
  enabled: false
  warning_time_seconds: 120
  shutdown_time_seconds: 240
library_options:
  mpi_threads_disable: true
  num_nccl_streams: 2
  thread_affinity: 1
  gloo_timeout_seconds: 60
logging:
  level: INFO
  with_timestamp: false
"""
FROM_CONFIG = {
    "HOROVOD_FUSION_THRESHOLD": "33554432",
    "HOROVOD_CYCLE_TIME": "10",
    "HOROVOD_CACHE_CAPACITY": "2048",
    "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
    "HOROVOD_HIERARCHICAL_ALLGATHER": "0",
    "HOROVOD_TORUS_ALLREDUCE": "0",
    "HOROVOD_AUTOTUNE": "1",
    "HOROVOD_AUTOTUNE_LOG": "log.csv",
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "5",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "20",
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "50",
    "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "0.9",
    "HOROVOD_TIMELINE": "t.json",
    "HOROVOD_TIMELINE_MARK_CYCLES": "1",
    "HOROVOD_STALL_CHECK_DISABLE": "1",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "120",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "240",
    "HOROVOD_MPI_THREADS_DISABLE": "1",
    "HOROVOD_NUM_NCCL_STREAMS": "2",
    "HOROVOD_THREAD_AFFINITY": "1",
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "60",
    "HVD_COLLECTIVE_TIMEOUT_SECONDS": "60",
    "HOROVOD_LOG_LEVEL": "INFO",
    "HOROVOD_LOG_HIDE_TIME": "1",
}


@pytest.fixture
def config(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return f"--config-file {path}"

    return write


def test_configuration_file(config):
    args = parse(config(CONFIG))
    assert translation.environment_of_ranks(args, {}) == FROM_CONFIG
    assert args.use_gloo and not args.use_mpi
    assert len(FROM_CONFIG) == len(config_parser.SETTINGS) + 1


def test_the_command_line_counts_more_than_the_file_and_that_more_than_the_environment(config):
    options = f"--cycle-time-ms 1 --stall-check --mpi {config(CONFIG)}"
    surroundings = {"HOROVOD_CYCLE_TIME": "3", "HOROVOD_CACHE_CAPACITY": "4", "HOROVOD_OTHER": "5"}
    args = parse(options)
    ranks = translation.environment_of_ranks(args, surroundings)
    changed = {"HOROVOD_CYCLE_TIME": "1.0", "HOROVOD_STALL_CHECK_DISABLE": "0", "HOROVOD_OTHER": "5"}
    assert ranks == {**FROM_CONFIG, **changed}
    assert args.use_mpi and not args.use_gloo


@pytest.mark.parametrize(
    "text, said",
    [
        ("controller: smoke", "controller=smoke must be mpi or gloo"),
        ("params: {cycle_time_ms: -1}", "cycle_time_ms=-1 must be >= 0"),
        ("params: {cache_capacity: many}", "cache_capacity=many must be a number"),
        ("just words", "sections"),
        ("params: [", "config.yaml"),
    ],
)
def test_files_that_make_no_sense(config, text, said):
    with pytest.raises(ValueError, match=said):
        parse(config(text))


def test_keys_that_mean_nothing_are_named(config):
    done = run("-np", "1", *config("params: {fusion_treshold_mb: 3}\nverbose: true").split(), "true")
    assert done.returncode == 0
    names = re.findall(
        r"^horovodrun: .*config.yaml: (.*) is not a known key, and is ignored$", done.stderr, re.MULTILINE
    )
    assert names == ["params.fusion_treshold_mb", "verbose"]
    assert parse(config("")).verbose is False


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "horovod.runner.launch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=360, env={**os.environ, **variables})


CHECK_BUILD = """\
Horovod v0.28.1:

Available Frameworks:
    [T] TensorFlow
    [X] PyTorch
    [ ] MXNet

Available Controllers:
    [M] MPI
    [X] Gloo

Available Tensor Operations:
    [N] NCCL
    [ ] DDL
    [ ] CCL
    [M] MPI
    [X] Gloo
"""


def test_check_build():
    done = run("--check-build")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.rstrip("\n").splitlines()
    wanted = CHECK_BUILD.splitlines()
    assert len(lines) == len(wanted)
    # T, M and N depend on what is installed.
    marks = {line[5]: seen[5] for line, seen in zip(wanted, lines) if line[4:5] == "["}
    assert set(marks.values()) <= {"X", " "} and marks["X"] == "X" and marks[" "] == " "
    assert [line[:5] + marks[line[5]] + line[6:] if line[4:5] == "[" else line for line in wanted] == lines
    assert done.stdout == run("-cb").stdout


def test_a_job():
    code = "import os; print(os.environ['HOROVOD_RANK'], os.environ['HOROVOD_FUSION_THRESHOLD'])"
    done = run(
        "-np", "2", "--fusion-threshold-mb", "1", "--ssh-port", "22", "--disable-cache", sys.executable, "-c", code
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 1048576", "1 1048576"]
    assert done.stderr == "horovodrun: --disable-cache has no effect: hvdrun has no start-up checks to cache\n"


def test_an_elastic_job():
    job = ROOT / "tests" / "end_to_end" / "elastic_job.py"
    options = "-np 2 --min-np 1 --max-np 2 --reset-limit 1 --elastic-timeout 60 --blacklist-cooldown-range 60 60"
    done = run(*options.split(), sys.executable, str(job), "20", "1@5=kill")
    assert done.returncode == 0 and "epoch 2 with 1 rank" in done.stderr, done.stderr
    assert "process 0 done" in done.stdout and "process 1 done" not in done.stdout


def test_a_job_that_fails():
    done = run("-np", "2", "--", sys.executable, "-c", "import sys; sys.exit(3)")
    assert done.returncode == 3 and "failed first: exit code 3" in done.stderr


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["-np", "2", "--jsrun", "true"], "horovodrun: --jsrun"),
        (["-np", "2", "--cycle-time-ms", "-2", "true"], "horovodrun: cycle_time_ms=-2.0 must be >= 0"),
        (["-np", "2"], "horovodrun: which program?"),
        (["-np", "0", "true"], "horovodrun: -np: at least one process"),
        (["-np", "2", "-H", "localhost", "true"], "number of slots"),
    ],
)
def test_what_cannot_be_is_said(arguments, said):
    done = run(*arguments)
    assert done.returncode == 2 and said in done.stderr


def test_a_host_that_cannot_be_reached_is_named():
    done = run("-np", "2", "-H", "node.invalid:2", "true")
    assert done.returncode == 1
    assert "hvdrun: host node.invalid: `ssh" in done.stderr


def test_version():
    assert run("--version").stdout == run("-v").stdout == "0.28.1\n"


# Hosts and the environment


def test_hosts():
    assert hosts.parse_hosts("one:2, other-1.org:4") == [hosts.HostInfo("one", 2), hosts.HostInfo("other-1.org", 4)]
    for wrong in ("", "one", "one:", "one:two", "one:2,", "o/ne:2"):
        with pytest.raises(ValueError):
            hosts.parse_hosts(wrong)


def test_host_files(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("one slots=2\n\n# a comment\nother slots=4 max_slots=8\n")
    assert hosts.parse_host_files(str(path)) == "one:2,other:4"
    path.write_text("one\n")
    with pytest.raises(ValueError, match="line 1"):
        hosts.parse_host_files(str(path))


def test_slots_are_given_host_by_host():
    slots = hosts.get_host_assignments(hosts.parse_hosts("one:2,other:3"), 2, 4)
    assert [slot.to_response_string() for slot in slots] == [
        "0,4,0,2,0,2",
        "1,4,1,2,0,2",
        "2,4,0,2,1,2",
        "3,4,1,2,1,2",
    ]
    assert [slot.hostname for slot in slots] == ["one", "one", "other", "other"]
    assert len(hosts.get_host_assignments(hosts.parse_hosts("one:2,other:3"), 2)) == 5
    uneven = hosts.get_host_assignments(hosts.parse_hosts("one:1,other:2"), 3)
    assert [(slot.local_rank, slot.cross_rank, slot.cross_size) for slot in uneven] == [(0, 0, 2), (0, 1, 2), (1, 0, 1)]
    with pytest.raises(ValueError, match="only 5 slots"):
        hosts.get_host_assignments(hosts.parse_hosts("one:2,other:3"), 6)


def test_variables_between_launcher_and_ranks(monkeypatch):
    assert env.is_exportable("PATH") and not env.is_exportable("OLDPWD") and not env.is_exportable("BASH_FUNC_f%%")
    for name in ("HOROVOD", "OMPI_COMM_WORLD", "PMI"):
        monkeypatch.delenv(f"{name}_RANK", raising=False)
        monkeypatch.delenv(f"{name}_SIZE", raising=False)
    assert env.get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "3")
    assert env.get_env_rank_and_size() == (1, 3)
    monkeypatch.setenv("HOROVOD_RANK", "2")
    monkeypatch.setenv("HOROVOD_SIZE", "4")
    assert env.get_env_rank_and_size() == (2, 4)
