"""What compare.py makes of measurements: all of it but the measuring."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from comparison import commands, limits, machine, report, rows
from comparison.cases import (
    ALL_MPI,
    CASES,
    COPY,
    GLOO,
    GLOO_ROUND_ROBIN,
    HVD,
    HVD_AND_GLOO,
    KB,
    MB,
    MPI,
    MPI_IN_PLACE,
    Case,
    Place,
    format_size,
)
from comparison.gates import BEST_MPI, FAST_MEMORY, GATES, MACHINE, PEERS, SLOW_MEMORY, WIRE, Gate
from comparison.samples import Sample, Samples, Time

CASE = Case("pair", Place(ranks=2, pinned=True), (8, 4 * MB), (HVD, COPY, *ALL_MPI))
LAB = Case("lab", Place(ranks=2, hosts=4), (32 * MB,), (HVD, MPI, GLOO, GLOO_ROUND_ROBIN))


def sample(contender, size, *times, case=CASE, launch=0):
    """Of a launch whose shortest and median times are these."""
    return Sample(case.name, contender, launch, size, times[0], times[-1], times[-1])


def row_of(samples, peer, size=8, gates=(), cases=(CASE,)):
    (row,) = (row for row in rows.rows(Samples(samples), cases, gates) if (row.peer, row.size) == (peer, size))
    return row


def test_of_several_launches_the_median_of_medians_and_the_shortest_count():
    samples = Samples(sample(HVD, 8, least, median) for least, median in ((3, 5), (2, 9), (4, 6)))
    assert samples.time("pair", (HVD,), 8) == Time(median=6, min=2)
    assert samples.time("pair", (HVD,), 16) is None
    assert samples.time("other", (HVD,), 8) is None


def test_the_best_setting_counts_by_itself_for_each_number():
    samples = Samples([sample(MPI, 8, 1, 10), sample(MPI_IN_PLACE, 8, 2, 7)])
    assert samples.time("pair", ALL_MPI, 8) == Time(median=7, min=1)


def test_a_ratio_is_the_others_time_by_hvds():
    measured = [sample(HVD, 8, 2, 4), sample(MPI, 8, 3, 10), sample(MPI_IN_PLACE, 8, 3, 8)]
    row = row_of(measured, MPI)
    assert (row.by_medians, row.by_minima) == (2.5, 1.5)
    assert row_of(measured, BEST_MPI).by_medians == 2
    assert row.verdict == ""


@pytest.mark.parametrize(("times", "verdict"), [((4, 4), "met"), ((4, 3), "by minima"), ((3, 3), "missed")])
def test_a_gate_is_met_by_medians(times, verdict):
    gate = Gate(("pair",), (MPI,), (8,), 2.0)
    assert row_of([sample(HVD, 8, 2, 2), sample(MPI, 8, *times)], MPI, gates=[gate]).verdict == verdict


@pytest.mark.parametrize(("copy_ms", "kind", "gate"), [(1, SLOW_MEMORY, 0.9), (0.1, FAST_MEMORY, 1.2)])
def test_a_gate_may_be_for_one_kind_of_machine(copy_ms, kind, gate):
    # 4 MB in a millisecond are 4 GB/s.
    measured = [sample(HVD, 8, 1), sample(MPI, 8, 1), sample(COPY, 4 * MB, copy_ms * 1000)]
    gates = [Gate(("pair",), (MPI,), (8,), 0.9, SLOW_MEMORY), Gate(("pair",), (MPI,), (8,), 1.2, FAST_MEMORY)]
    assert rows.machine_kind(Samples(measured), [CASE]) == kind
    assert row_of(measured, MPI, gates=gates).gate == gate


def test_no_copy_no_kind_of_machine():
    assert rows.machine_kind(Samples(), [CASE]) is None


def test_the_share_of_the_machines_limit():
    # Five bytes moved for each of the tensor, and a copy moves two.
    row = row_of([sample(HVD, 4 * MB, 500), sample(COPY, 4 * MB, 100)], MACHINE, 4 * MB)
    assert row.by_medians == 0.5
    assert report.cells(row)[5] == "50%"


def test_the_wires_limit():
    # 3/2 of 32 MB at 1 Gb/s, whatever the ranks on a host.
    assert limits.wire_time(Place(ranks=1, hosts=4), 32 * MB) == pytest.approx(402_653.184)
    assert limits.wire_time(Place(ranks=2, hosts=4), 32 * MB) == pytest.approx(402_653.184)
    measured = [sample(HVD, 32 * MB, 805_306.368, case=LAB)]
    assert row_of(measured, WIRE, 32 * MB, cases=[LAB]).by_medians == pytest.approx(0.5)


def test_where_a_peer_has_one_setting_it_has_one_row():
    measured = [sample(HVD, 32 * MB, 1, case=LAB), sample(MPI, 32 * MB, 2, case=LAB)]
    assert [row.peer for row in rows.rows(Samples(measured), [LAB], [])] == [MPI, WIRE]


def test_a_geometric_mean_needs_all_of_its_rows():
    gate = Gate(("pair",), (MPI,), (8, 4 * MB), 2.9, mean=True)
    measured = [sample(HVD, 8, 1), sample(MPI, 8, 1), sample(HVD, 4 * MB, 1)]
    assert not any(row.gate for row in rows.rows(Samples(measured), [CASE], [gate]))
    mean = rows.rows(Samples([*measured, sample(MPI, 4 * MB, 9)]), [CASE], [gate])[-1]
    assert (mean.size, mean.verdict) == (None, "met")
    assert mean.by_medians == pytest.approx(3)


def test_what_gates_ask_for_and_nobody_measured():
    gates = [Gate(("pair",), (MPI, BEST_MPI), (8, KB), 1.0), Gate(("pair",), (MPI,), (MB,), 1.0, SLOW_MEMORY)]
    found = rows.rows(Samples([sample(HVD, 8, 1), sample(MPI, 8, 1)]), [CASE], gates)
    missing = rows.not_measured(gates, found, FAST_MEMORY)
    assert missing == [("pair", MPI, KB), ("pair", BEST_MPI, KB)]
    assert "2 met, 0 met by minima only, 0 missed, 2 not measured" in report.summary(found, missing)


@pytest.mark.parametrize("gate", GATES)
def test_every_gate_has_cases_that_measure_it(gate):
    cases = {case.name: case for case in CASES}
    for name in gate.cases:
        assert set(gate.sizes) <= set(cases[name].sizes)
        for peer in gate.peers:
            contenders = {MACHINE: (COPY,), WIRE: (HVD,)}.get(peer) or PEERS[peer]
            present = {*cases[name].contenders, *((HVD, GLOO) if HVD_AND_GLOO in cases[name].contenders else ())}
            assert set(contenders) & present


def test_the_table_lines_up():
    found = rows.rows(Samples([sample(HVD, 8, 0.25), sample(MPI, 8, 0.5)]), [CASE], [Gate(("pair",), (MPI,), (8,), 3)])
    headline, first, _ = report.table(found).splitlines()
    assert first.split("  ")[0] == "pair" and first.endswith("3.00x  missed")
    assert headline.index("medians") + len("medians") == first.index("2.00x") + len("2.00x")


def test_the_table_of_the_document_has_a_line_for_each_size_and_a_column_for_each_peer():
    gates = [Gate(("pair",), (MPI,), (8,), 3), Gate(("pair",), (MACHINE,), (4 * MB,), 0.4)]
    measured = [sample(HVD, 8, 0.25), sample(MPI, 8, 0.5), sample(HVD, 4 * MB, 500), sample(COPY, 4 * MB, 100)]
    assert report.markdown(rows.rows(Samples(measured), [CASE], gates)).splitlines() == [
        "| case | size | hvd | Open MPI | Open MPI at its best | the machine's limit |",
        "| --- | --- | --- | --- | --- | --- |",
        "| pair | 8 B | 0.25 us | **2.00x** (≥ 3.00x) | 2.00x |  |",
        "| pair | 4 MB | 500.00 us |  |  | 50% (≥ 40%) |",
    ]


@pytest.mark.parametrize(("size", "text"), [(8, "8 B"), (KB, "1 KB"), (1500, "1500 B"), (64 * MB, "64 MB")])
def test_sizes_as_text(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(("time", "text"), [(0.123, "0.12 us"), (1500, "1.50 ms"), (2e6, "2.00 s")])
def test_times_as_text(time, text):
    assert report.format_time(time) == text


def test_cpu_lists():
    assert machine.parse_cpus("0-2,8") == {0, 1, 2, 8}
    assert machine.parse_cpus("") == set()


def command(contender, case):
    return commands.COMMANDS[contender](commands.Launch(case, 0.1, Path("/results")))


def test_a_lab_gets_a_command_for_each_rank():
    lab, hosts, rate, *_, script = command(GLOO_ROUND_ROBIN, LAB)
    assert (Path(lab).name, hosts, rate) == ("netlab.sh", "4", "1gbit")
    starts = [line for line in script.splitlines() if "RANK=" in line]
    assert len(starts) == 8
    assert "10.9.0.2 " in starts[1] and "RANK=1 " in starts[1]
    assert "10.9.0.2 " in starts[5] and "RANK=5 " in starts[5]
    assert "10.9.0.1 " in command(GLOO, LAB)[-1].splitlines()[1]


def test_a_copy_is_started_like_hvd():
    started = command(COPY, CASE)
    assert started[started.index("--collective") + 1] == "copy"
    assert "--pin" in started


def test_everything_can_be_told_as_json():
    samples = Samples([sample(HVD, 8, 1), sample(MPI, 8, 2)])
    told = report.as_json({"launches": 1}, samples, rows.rows(samples, [CASE]), {"lab": "no root"})
    assert json.loads(json.dumps(told))["rows"][0]["by_medians"] == 2


def test_the_list_of_cases_needs_nothing_installed():
    script = Path(__file__).with_name("compare.py")
    done = subprocess.run([sys.executable, "-S", str(script), "--list"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "at least 0.93 beside the wire's limit at 32 MB" in done.stdout
