"""Which algorithm serves what: asked for in Python, written at start, changed by HVD_ALGORITHM."""

from __future__ import annotations

import pytest

from launching import run_job

SAY = "import hvd; hvd.init(); print(f'<{hvd.algorithm_table()}>')"
OVER_TCP = {"HVD_SHARED_MEMORY": "0", "HVD_ALGORITHM": "allreduce:0-64k=direct;64k-=ring"}


@pytest.mark.ranks
def test_the_table_is_text(ranks):
    import hvd

    text = hvd.algorithm_table()
    assert text.startswith("allreduce by size in bytes")
    assert ("alone" if ranks == 1 else f"{ranks} ranks of a host") in text


@pytest.mark.parametrize("ranks", [2, 3])
def test_hvd_algorithm_decides_between_ranks_that_use_tcp(ranks):
    job = run_job(ranks, ["-c", SAY], OVER_TCP)
    assert job.returncode == 0, job.output
    assert job.output.count(f"<allreduce by size in bytes, {ranks} ranks over TCP:") == ranks
    assert job.output.count("0-64k  direct  HVD_ALGORITHM says so") == ranks


def test_rank_0_writes_the_table_at_start_for_those_who_want_to_know():
    silent = "import hvd; hvd.init()"
    job = run_job(2, ["-c", silent], {**OVER_TCP, "HVD_LOG_LEVEL": "info"})
    assert job.output.count("0-64k  direct  HVD_ALGORITHM says so") == 1, job.output
    assert "[hvd rank 0] info: allreduce by size in bytes" in job.output
    assert run_job(2, ["-c", silent], OVER_TCP).output == ""


@pytest.mark.parametrize("shared_memory", ["0", "1"])
def test_what_makes_no_sense_is_a_value_error_on_every_rank(shared_memory):
    program = "import hvd\ntry:\n  hvd.init()\nexcept ValueError as error:\n  print(f'refused: {error}')"
    wrong = {"HVD_SHARED_MEMORY": shared_memory, "HVD_ALGORITHM": "allreduce:0-64k=direct;32k-=ring"}
    job = run_job(3, ["-c", program], wrong)
    assert job.returncode == 0, job.output
    said = "refused: HVD_ALGORITHM='allreduce:0-64k=direct;32k-=ring': '0-64k' and '32k-' overlap"
    assert job.output.count(said) == 3, job.output
