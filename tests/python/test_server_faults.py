"""Parameter servers that are killed under load, each row on two of them."""

import re
import sys

from launching import PROGRAMS, hvdrun, run_command

KILLS = 10  # as often as hvdrun starts servers again


def test_killed_servers_lose_nothing_that_was_acknowledged():
    command = [hvdrun(), "-np", "2", "--servers", "2", sys.executable, str(PROGRAMS / "servers_killed.py"), str(KILLS)]
    job = run_command(command, {"HVD_SERVER_COPIES": "2"}, limit_s=300)
    assert job.returncode == 0, job.output
    workers = re.findall(r"worker \d: (\d+) pushes, 0 wrong rows, (\d+) kills", job.output)
    assert len(workers) == 2 and {int(kills) for _, kills in workers} == {KILLS}, job.output
    assert all(int(pushes) >= 10 * KILLS for pushes, _ in workers), job.output
    assert job.output.count("it is started again") == KILLS, job.output


def test_two_copies_need_two_servers():
    command = [hvdrun(), "-np", "1", "--servers", "1", sys.executable, "-c", "import hvd; hvd.init(); hvd.ps.connect()"]
    job = run_command(command, {"HVD_SERVER_COPIES": "2", "HVD_START_TIMEOUT": "20"})
    assert job.returncode != 0
    assert "two copies of a shard need two servers" in job.output
    assert "server 0 failed first" in job.output or "parameter server 0 cannot be reached" in job.output
