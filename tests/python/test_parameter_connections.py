"""Connections of hvd.ps: from the first call to the last. A process has one at a time, and each test its own."""

from __future__ import annotations

import os
import re
import signal
import threading
import time

import numpy as np
import pytest

import hvd

ps = hvd.ps


def rows_of(count, width=4, seed=0):
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


@pytest.mark.ranks(1)
def test_closed_servers_say_so(ranks):
    hvd.init()
    with ps.connect() as servers:
        table = servers.table("closed", 4)
        forgotten = table.pull([1], wait=False)
    servers.close()  # once more is nothing
    calls = [lambda: table.pull([1]), lambda: table.push([1], rows_of(1)), lambda: servers.table("another", 4)]
    calls += [forgotten.wait, forgotten.poll, servers.stats, servers.flush, servers.clock, lambda: servers.count]
    for call in calls:
        with pytest.raises(ValueError, match="connections with the parameter servers are closed"):
            call()


@pytest.mark.ranks(1)
def test_other_servers_take_over_a_snapshot(ranks, tmp_path):
    hvd.init()

    def opened(servers):
        momentum = ps.SGD(0.1, momentum=0.9)
        return servers.table("kept", 4, momentum), servers.dense("kept dense", np.zeros((3, 2)), momentum)

    keys, gradients, rows = np.arange(100), rows_of(100), rows_of(100, seed=1)
    with ps.connect() as servers:
        table, dense = opened(servers)
        table.push(keys, gradients)
        dense.push(np.ones((3, 2), np.float32))
        servers.snapshot(tmp_path)
        expected = table.push_pull(keys, rows)  # not in the snapshot
    with ps.connect() as servers:
        table, dense = opened(servers)
        servers.restore(tmp_path)
        assert np.allclose(dense.pull(np.empty((3, 2), np.float32)), -0.1)
        assert np.array_equal(table.push_pull(keys, rows), expected)  # momentum was kept, too
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:-8])
    with ps.connect() as servers:
        opened(servers)
        with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
            servers.restore(tmp_path)


@pytest.mark.ranks(1)
def test_a_process_is_connected_once_at_a_time(ranks):
    hvd.init()
    with ps.connect() as servers:
        table = servers.table("once", 4, ps.Add())
        table.push([1], np.ones((1, 4), np.float32))
        with pytest.raises(ValueError, match="connected with the parameter servers already: use that connection, or"):
            ps.connect()
        assert np.all(table.pull([1]) == 1)
        assert ps.find_table("once") is table
        with pytest.raises(ValueError, match=r"no table 'twice' is open: open it by servers.table\(\)"):
            ps.find_table("twice")
    with pytest.raises(ValueError, match="no table 'once' is open"):
        ps.find_table("once")
    forgotten = ps.connect()  # which closes nothing, and then goes
    del forgotten
    with ps.connect() as servers:
        assert np.all(servers.table("once", 4, ps.Add()).pull([1]) == 0)


@pytest.mark.ranks(1)
def test_a_wait_for_all_servers_ends_with_its_time_and_by_ctrl_c(ranks, tmp_path):
    hvd.init()
    os.mkfifo(tmp_path / "shard-0-of-1.hvdps.unfinished")  # whose writer waits for a reader
    with ps.connect() as servers:
        table = servers.table("waited for", 4, ps.Add())
        table.push([1], np.ones((1, 4), np.float32))
        with pytest.raises(TimeoutError, match=r"have not answered within 0\.05 s; the call goes on: wait again, or"):
            servers.snapshot(tmp_path, timeout=0.05)
        for call in (servers.stats, lambda: servers.restore(tmp_path), lambda: table.set_learning_rate(0.5)):
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))  # each waits behind the snapshot
            with pytest.raises(KeyboardInterrupt):
                timer.start()
                call()
            timer.join()
        (tmp_path / "shard-0-of-1.hvdps.unfinished").read_bytes()
        with pytest.raises(hvd.HorovodInternalError, match=f"the snapshot in {tmp_path} has failed"):
            servers.flush(timeout=30)  # the first error of the calls that were given up
        assert servers.stats(timeout=30)[0]["waited for"]["rows"] == 1


@pytest.mark.ranks(2)
def test_ctrl_c_ends_a_close_that_waits_for_the_others(ranks):
    hvd.init()
    servers = ps.connect()
    table = servers.table("interrupted", 4, ps.Add())
    table.push([1, 2, 3], np.ones((3, 4), np.float32))
    hvd.barrier()
    if hvd.rank() == 0:
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            servers.close()
        timer.join()
    hvd.barrier()
    if hvd.rank() == 1:
        assert np.all(table.pull([1, 2, 3]) == 2)  # rank 0 still serves
    servers.close()
    with pytest.raises(ValueError, match="are closed"):
        table.pull([1])


@pytest.mark.ranks(2)
def test_a_connection_is_forgotten_while_its_server_is_in_an_update(ranks):
    entered = threading.Event()

    def slow(rows, gradients, state, learning_rate):
        entered.set()
        time.sleep(0.05)  # until the connection goes
        rows += gradients

    ps.register_update("slow", slow)
    hvd.init()
    servers = ps.connect()
    table = servers.table("forgotten", 4, ps.Custom("slow"))
    hvd.barrier()
    if hvd.rank() == 1:
        table.push(range(20), rows_of(20))  # some rows of each rank
    else:
        assert entered.wait(20)
    del table, servers
    hvd.barrier()
