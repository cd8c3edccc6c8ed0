"""hvd.data: what of a data set each rank reads, in which order, and what remains when the ranks change."""

from __future__ import annotations

import datetime
import itertools
import random
import re
import struct
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import hvd
from hvd import _native
from hvd.data import prefetch
from hvd.data.division import Division, Group, Order
from hvd.data.tfrecord_files import masked_crc
from launching import PROGRAMS, hvdrun, run_command

ROWS = 101


# ---- pure parts


def positions(intervals):
    return [row for start, stop in intervals for row in range(start, stop)]


@pytest.mark.parametrize("uneven", ["repeat", "drop", "join"])
def test_division(uneven):
    for rows in (1, 2, 5, 12, 13, 64):
        for size in (1, 2, 3, 4, 7):
            for batch_size in (1, 3, 8, 100):
                division = Division([(10, 10 + rows)], size, batch_size, uneven)
                shares = [positions(division.intervals(rank)) for rank in range(size)]
                steps = [division.steps(rank) for rank in range(size)]
                assert [len(share) for share in shares] == [division.rows_of(rank) for rank in range(size)]
                read = [row for share in shares for row in share]
                every = set(range(10, 10 + rows))
                if uneven == "drop":
                    assert len(set(steps)) == 1 and len(set(read)) == len(read) == steps[0] * batch_size * size
                    assert rows - len(read) < batch_size * size + size
                elif uneven == "join":
                    assert max(steps) - min(steps) <= 1 and sorted(read) == sorted(every)
                else:
                    assert len(set(steps)) == 1 and set(read) == every and len(read) < rows + size


@pytest.mark.parametrize("uneven", ["repeat", "join"])
def test_ranks_come_and_go(uneven):
    """Whatever the ranks were, each row is read once, but for the last division's repetitions."""
    for seed in range(200):
        chance = random.Random(seed)
        rows = chance.randint(1, 300)
        remaining, read = [(0, rows)], []
        while True:
            division = Division(remaining, chance.randint(1, 5), chance.randint(1, 20), uneven)
            most = max(division.steps(rank) for rank in range(division.size))
            done = chance.randint(0, most)
            shares = [
                positions(division.intervals(rank))[: done * division.batch_size] for rank in range(division.size)
            ]
            is_whole = done == most
            read += [row for share in shares for row in (set(share) if is_whole else share)]
            remaining = division.after(done)
            if is_whole:
                break
            assert len(set(read)) == len(read), "a row was read twice"
            assert sorted(read + positions(remaining)) == list(range(rows))
        assert set(read) == set(range(rows)) and len(read) < rows + division.size
        assert remaining == []


def test_order():
    groups = [Group(0, number, number + 1, rows) for number, rows in enumerate([3, 0, 4, 5, 1, 6])]
    orders = [Order(groups, 2, True, seed, epoch).blocks for seed, epoch in ((0, 0), (0, 0), (0, 1), (1, 0))]
    assert orders[0] == orders[1] and orders[0] != orders[2] != orders[3]
    assert sorted(group for block in orders[0] for group in block) == [group for group in groups if group.rows]
    plain = Order(groups, 2, False, 0, 0)
    assert [block[0].start for block in plain.blocks] == [0, 2, 3, 4, 5] and plain.rows == 19
    assert list(plain.pieces([(2, 8), (12, 13)])) == [(0, 2, 3), (1, 0, 4), (2, 0, 1), (3, 0, 1)]


def test_ahead_is_bounded_and_ends():
    taken = []

    def numbers():
        try:
            for number in range(100):
                taken.append(number)
                yield number
        finally:
            taken.append("closed")

    running = prefetch.ahead(numbers(), 3, 20)
    assert [next(running) for _ in range(2)] == [0, 1]
    deadline = time.monotonic() + 20
    while len(taken) < 6 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert taken == [0, 1, 2, 3, 4, 5]  # two were taken, three are ready, one waits for its place
    running.close()
    assert taken[-1] == "closed"
    assert not [thread for thread in threading.enumerate() if thread.name == "hvd-data"]


def test_ahead_raises():
    def broken():
        yield 1
        raise KeyError("no such file")

    running = prefetch.ahead(broken(), 3, 20)
    assert next(running) == 1
    with pytest.raises(KeyError, match="no such file"):
        next(running)

    released = threading.Event()

    def silent():
        released.wait(20)
        yield 1

    with pytest.raises(TimeoutError, match=r"no data has been read for 0\.01 s"):
        next(prefetch.ahead(silent(), 3, 0.01))
    released.set()


# ---- one process


def write_parquet(folder, sizes=(7, 60, 34), row_group_size=5):
    first = 0
    for number, rows in enumerate(sizes):
        ids = np.arange(first, first + rows)
        first += rows
        table = pa.table({"id": ids, "x": [[row / 2, 1.0] for row in ids], "name": [str(row) for row in ids]})
        pyarrow.parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=row_group_size)
    (folder / "_SUCCESS").touch()
    return str(folder)


def write_records(path, records):
    with open(path, "wb") as file:
        for record in records:
            length = struct.pack("<Q", len(record))
            file.write(length + struct.pack("<I", masked_crc(length)) + record + struct.pack("<I", masked_crc(record)))
    return str(path)


def ids(batches):
    return [int(row) for batch in batches for row in batch["id"]]


def test_folders_behind_links(tmp_path):
    for name in ("data", "elsewhere"):
        (tmp_path / name).mkdir()
    write_parquet(tmp_path / "elsewhere")
    (tmp_path / "data" / "part").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "up").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "again").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "back").symlink_to(tmp_path / "data" / "part")
    assert sorted(ids(hvd.data.parquet(tmp_path / "data", 8))) == list(range(ROWS))


def test_parquet(tmp_path):
    reader = hvd.data.parquet(write_parquet(tmp_path), 8)
    assert len(reader) == 13 and reader.rows == ROWS
    first, second = list(reader), list(reader)
    assert [len(batch["id"]) for batch in first] == [8] * 12 + [5]
    assert sorted(ids(first)) == sorted(ids(second)) == list(range(ROWS)) and ids(first) != ids(second)
    assert reader.epoch == 2
    for batch in first:
        np.testing.assert_array_equal(batch["x"], np.stack([batch["id"] / 2, np.ones(len(batch["id"]))], axis=1))
        assert list(batch["name"]) == [str(row) for row in batch["id"]]
    reader.set_epoch(0)
    assert ids(reader) == ids(first)
    plain = hvd.data.parquet([str(tmp_path)], 8, shuffle=False, columns=["id"], uneven="drop")
    batches = list(plain)
    assert ids(batches) == list(range(96)) and set(batches[0]) == {"id"}
    assert set(next(iter(hvd.data.parquet(tmp_path, 8, columns="name")))) == {"name"}
    by_url = hvd.data.parquet(f"file://{tmp_path}", 8)
    assert ids(by_url) == ids(first)


def test_folders_that_name_columns(tmp_path):
    """Those in the data set, and not those that it lies in."""
    folder = tmp_path / "id=a" / "train"
    for year in (1, 2):
        (folder / f"year={year}").mkdir(parents=True)
        pyarrow.parquet.write_table(pa.table({"id": [year]}), folder / f"year={year}" / "one.parquet")
    files = sorted(folder.rglob("*.parquet"))
    for source in (folder, f"file://{folder}", [path.parent for path in files], files):
        batch = next(iter(hvd.data.parquet(source, 2, shuffle=False)))
        assert {name: list(values) for name, values in batch.items()} == {"id": [1, 2], "year": [1, 2]}
    for source in (files[0], files[0].parent):
        assert set(next(iter(hvd.data.parquet(source, 2)))) == {"id"}


def test_a_reader_goes_on(tmp_path):
    reader = hvd.data.parquet(write_parquet(tmp_path), 10)
    seen = []
    for batch in reader:
        seen += ids([batch])
        if len(seen) == 30:
            break
    position = reader.state_dict()
    rest = ids(reader)
    assert sorted(seen + rest) == list(range(ROWS)) and reader.epoch == 1
    other = hvd.data.parquet(str(tmp_path), 7)
    other.load_state_dict(position)
    assert sorted(seen + ids(other)) == list(range(ROWS))


@pytest.mark.parametrize("uneven", ["repeat", "drop", "join"])
def test_loops_that_count_their_batches(tmp_path, uneven):
    reader = hvd.data.parquet(write_parquet(tmp_path), 8, uneven=uneven)
    epochs = [ids(itertools.islice(reader, len(reader))) for _ in range(3)]
    assert [len(set(rows)) for rows in epochs] == [96 if uneven == "drop" else ROWS] * 3
    assert reader.epoch == 3 and epochs[0] != epochs[1]


def test_tensors_of_arrow(tmp_path):
    values = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    kind = pa.fixed_shape_tensor(pa.int32(), [2])
    hole = pa.ExtensionArray.from_storage(kind, pa.array([[1, 2], None] * 2, kind.storage_type))
    table = pa.table({"image": pa.FixedShapeTensorArray.from_numpy_ndarray(values), "hole": hole})
    pyarrow.parquet.write_table(table, tmp_path / "one.parquet")
    reader = hvd.data.parquet(tmp_path, 4, columns=["image"], shuffle=False)
    np.testing.assert_array_equal(next(iter(reader))["image"], values)
    with pytest.raises(ValueError, match=r"'hole'.* has nulls"):
        next(iter(hvd.data.parquet(tmp_path, 4, columns=["hole"])))


def test_columns_that_no_array_has(tmp_path):
    table = pa.table(
        {
            "hole": pa.array([1, None]),
            "gap": pa.array([1.5, None]),
            "uneven": [[1], [1, 2]],
            "struct": [{"a": 1}, {"a": 2}],
            "matrix": [[[1, 2], [3, 4]]] * 2,
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "one.parquet")

    def read(column):
        return next(iter(hvd.data.parquet(tmp_path, 2, columns=[column], shuffle=False)))[column]

    np.testing.assert_array_equal(read("gap"), [1.5, np.nan])
    assert [list(row) for row in read("uneven")] == [[1], [1, 2]]
    assert read("matrix").shape == (2, 2, 2)
    with pytest.raises(ValueError, match="'hole', of type int64, has nulls"):
        read("hole")
    with pytest.raises(ValueError, match="'struct' is of type struct"):
        read("struct")
    with pytest.raises(ValueError, match=r"no column tree in .*, which has hole, gap"):
        read("tree")
    (twice,) = hvd.data.parquet(tmp_path, 2, columns=["matrix", "gap", "gap"], shuffle=False)
    assert list(twice) == ["matrix", "gap"]


@pytest.mark.parametrize("lists", [[[1, 2], [3, 4], [5], [6, 7, 8]], [[1, 2], [3, 4], [5, 6, 7], [8, 9, 10]]], ids=str)
def test_lists_that_are_equally_long_only_within_a_block(tmp_path, lists):
    pyarrow.parquet.write_table(pa.table({"lists": lists}), tmp_path / "one.parquet", row_group_size=2)
    (batch,) = hvd.data.parquet(tmp_path, 4, shuffle=False)
    assert batch["lists"].dtype == object and [list(row) for row in batch["lists"]] == lists
    first, last = hvd.data.parquet(tmp_path, 3, shuffle=False)
    assert [list(row) for row in [*first["lists"], *last["lists"]]] == lists


def test_wrong_arguments(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not there"):
        hvd.data.parquet(tmp_path / "nowhere", 2)
    with pytest.raises(FileNotFoundError, match="there are no files in"):
        hvd.data.parquet(tmp_path, 2)
    write_parquet(tmp_path, sizes=(0,))
    with pytest.raises(ValueError, match="there are no rows in"):
        list(hvd.data.parquet(tmp_path, 2))
    with pytest.raises(ValueError, match="uneven is 'ceil': expected one of repeat, drop, join"):
        hvd.data.parquet(tmp_path, 2, uneven="ceil")
    with pytest.raises(ValueError, match="batch_size must be at least 1, not 0"):
        hvd.data.parquet(tmp_path, 0)
    with pytest.raises(ValueError, match="columns is empty: name one at least, or leave it out to read all"):
        hvd.data.parquet(tmp_path, 2, columns=[])


def test_sources_are_of_one_file_system(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    paths = [write_parquet(tmp_path / name) for name in ("a", "b")]
    assert ids(hvd.data.parquet([f"file://{paths[0]}", paths[1]], 8, shuffle=False))  # both are local
    with pytest.raises(ValueError, match=r"memory://there and /.*a are on different file systems: read each by a read"):
        hvd.data.parquet([paths[0], "memory://there"], 8)


def test_tfrecord(tmp_path, monkeypatch):
    assert _native.crc32c(b"123456789") == 0xE3069283  # the check value of the polynomial
    assert [_native.crc32c(bytes(count)) for count in (0, 32)] == [0, 0x8A9136AA]
    monkeypatch.setattr("hvd.data.tfrecord_files._GROUP_BYTES", 100)
    records = [str(number).encode() * (number % 9) for number in range(50)]
    path = write_records(tmp_path / "some.tfrecord", records)
    reader = hvd.data.tfrecord(path, 8)
    got = [record for batch in reader for record in batch["record"]]
    assert sorted(got) == sorted(records) and got != records
    assert [bytes(one) for b in hvd.data.tfrecord(path, 8, shuffle=False) for one in b["record"]] == records

    content = bytearray((tmp_path / "some.tfrecord").read_bytes())
    (tmp_path / "cut").write_bytes(content[:-3])
    with pytest.raises(ValueError, match="cut is cut off"):
        list(hvd.data.tfrecord(tmp_path / "cut", 8))
    content[-5] ^= 1
    (tmp_path / "changed").write_bytes(content)
    with pytest.raises(ValueError, match=r"changed: the record at byte .* is damaged: its checksum differs"):
        list(hvd.data.tfrecord(tmp_path / "changed", 8))
    (tmp_path / "other").write_bytes(b"PAR1" * 10)
    with pytest.raises(ValueError, match="other has no record at byte 0: it is damaged, compressed, or no TFRecord"):
        list(hvd.data.tfrecord(tmp_path / "other", 8))


def test_torch(tmp_path):
    import torch

    import hvd.torch.elastic

    reader = hvd.data.parquet(write_parquet(tmp_path), 4)
    data = reader.torch()
    batches = list(torch.utils.data.DataLoader(data, batch_size=None))
    assert len(batches) == len(data) == 26 and batches[0]["x"].shape == (4, 2)
    assert sorted(ids(batches)) == list(range(ROWS)) and isinstance(batches[0]["name"], list)
    assert data.state_dict() == {"epoch": 1, "remaining": None}
    state = hvd.torch.elastic.TorchState(reader=reader)
    rows = []
    for number, batch in enumerate(data):
        if number == 4:
            break
        rows += ids([batch])
        if number == 2:
            state.save()
            rows_at_save = list(rows)
    state.restore()
    assert sorted(rows_at_save + ids(data)) == list(range(ROWS))
    with pytest.raises(RuntimeError, match="num_workers=0"):
        next(iter(torch.utils.data.DataLoader(data, batch_size=None, num_workers=1)))


def test_columns_that_no_tensor_of_tensorflow_has(tmp_path):
    table = pa.table({"word": pa.array([None, "a"]), "time": [datetime.datetime(2026, 1, 1)] * 2})
    pyarrow.parquet.write_table(table, tmp_path / "one.parquet")
    for column, found in (("word", "has a NoneType"), ("time", r"is of type datetime64\[us\]")):
        with pytest.raises(ValueError, match=f"column .{column}. {found}, which no tensor has"):
            hvd.data.parquet(tmp_path, 2, columns=[column]).tensorflow()


def test_tensorflow(tmp_path):
    import tensorflow as tf

    reader = hvd.data.parquet(write_parquet(tmp_path), 8)
    data = reader.tensorflow("id")
    assert len(data) == 13
    assert data.element_spec[0]["x"] == tf.TensorSpec((None, 2), tf.float64)
    assert sorted(int(row) for _, labels in data for row in labels) == list(range(ROWS))
    assert reader.epoch == 1
    seen: list[int] = []
    for _, labels in data.map(lambda features, labels: (features, labels)):
        seen += map(int, labels)
        time.sleep(0.02)  # in which TensorFlow would read ahead
        if len(seen) == 40:
            break
    assert sorted(seen + ids(reader)) == list(range(ROWS)), "what the loop has not had counts as processed"

    def example(number):
        feature = {"number": tf.train.Feature(int64_list=tf.train.Int64List(value=[number, 2 * number]))}
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    with tf.io.TFRecordWriter(str(tmp_path / "tf.tfrecord")) as writer:  # our checksums against TensorFlow's
        for number in range(20):
            writer.write(example(number))
    features = {"number": tf.io.FixedLenFeature([2], tf.int64)}
    rows = np.concatenate([b["number"] for b in hvd.data.tfrecord(tmp_path / "tf.tfrecord", 8, features=features)])
    assert sorted(rows.tolist()) == [[number, 2 * number] for number in range(20)]


def test_keras_goes_on_in_the_middle_of_an_epoch(tmp_path):
    import keras

    reader = hvd.data.parquet(write_parquet(tmp_path), 8, columns=["x", "id"])
    reader.load_state_dict({"epoch": 1, "remaining": [[85, ROWS]]})
    steps = []
    counting = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(reader.epoch))
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    for last in (2, 4):
        model.fit(reader.tensorflow("id"), initial_epoch=reader.epoch, epochs=last, callbacks=[counting], verbose=0)
    assert len(steps) == 2 + 13 + 13 and reader.epoch == 4


# ---- ranks


def folder_of_all(path):
    """Rank 0's, with a Parquet file."""
    path = hvd.broadcast_object(path)
    if hvd.rank() == 0:
        write_parquet(path)
    hvd.barrier()
    return path


@pytest.mark.ranks(2)
def test_loops_that_count_their_batches_where_ranks_have_different_numbers(tmp_path):
    reader = hvd.data.parquet(folder_of_all(tmp_path), 4, uneven="join")
    reader.load_state_dict({"epoch": 0, "remaining": [[0, 9]]})
    epochs = [ids(itertools.islice(reader, len(reader))) for _ in range(2)]
    assert [len(rows) for rows in epochs] == [[4, 5][hvd.rank()], (ROWS + hvd.rank()) // 2] and reader.epoch == 2
    reader.load_state_dict({"epoch": 0, "remaining": [[0, 1]]})  # of which rank 0 gets nothing
    epochs = [ids(itertools.islice(reader, len(reader))) for _ in range(2)]
    assert [len(rows) for rows in epochs] == [hvd.rank(), (ROWS + hvd.rank()) // 2] and reader.epoch == 2
    hvd.barrier()  # rank 0's folder stays until all have read it


def gathered(mine):
    return [row for rows in hvd.allgather_object(mine) for row in rows]


@pytest.mark.ranks(2, 4)
def test_ranks_share_an_epoch(tmp_path, ranks):
    folder = folder_of_all(tmp_path)
    for uneven in ("repeat", "drop", "join"):
        batches = list(hvd.data.parquet(folder, 4, uneven=uneven))
        sizes = hvd.allgather_object([len(batch["id"]) for batch in batches])
        rows = gathered(ids(batches))
        if uneven == "join":
            hvd.join()
            assert sorted(rows) == list(range(ROWS))
        else:
            assert all(each == sizes[0] for each in sizes), "a rank has other batches"
            assert len(set(rows)) == (ROWS if uneven == "repeat" else len(sizes[0]) * 4 * ranks)


@pytest.mark.ranks(2, 4)
def test_ranks_go_on_with_what_others_left(tmp_path, ranks):
    folder = folder_of_all(tmp_path)
    before = hvd.data.parquet(folder, 3)
    with_three = Division([(0, ROWS)], 3, 3, "repeat")
    before.load_state_dict({"epoch": 4, "remaining": with_three.after(5)})
    rows = gathered(ids(before))
    assert len(set(rows)) == ROWS - 5 * 3 * 3 and before.epoch == 5


@pytest.mark.ranks(2)
def test_ranks_that_do_not_agree(tmp_path, ranks):
    folder = folder_of_all(tmp_path)
    with pytest.raises(ValueError, match=r"the readers of ranks 0 and 1 differ .*seed"):
        list(hvd.data.parquet(folder, 4, seed=hvd.rank()))
    if hvd.rank() == 0:
        (folder / "broken.tfrecord").write_bytes(b"PAR1" * 10)
    hvd.barrier()
    with pytest.raises(ValueError, match=r"broken\.tfrecord has no record at byte 0"):
        len(hvd.data.tfrecord(folder / "broken.tfrecord", 4))


def test_an_elastic_job_reads_each_row_once(tmp_path):
    options = ["-np", "3", "--min-np", "2", "--max-np", "3", "--cooldown-range", "100,100"]
    program = [sys.executable, str(PROGRAMS / "reads_elastically.py"), write_parquet(tmp_path), "3"]
    job = run_command([hvdrun(), *options, *program])
    found = re.search(r"(\d+) rows, (\d+) twice, with \[2, 3\] ranks", job.output)
    assert job.returncode == 0 and found, job.output
    assert int(found[1]) == 2 * ROWS, "rows are missing"
    assert int(found[2]) < 2 * 3, "more were read twice than an epoch's end repeats"
