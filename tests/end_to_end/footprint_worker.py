"""What the runtime itself costs: run under hvdrun by footprint_test.py, prints one JSON object per rank."""

import argparse
import json
import pathlib
import time

import arrays
import hvd


def thread_seconds():
    """CPU seconds and voluntary context switches of each thread of this process, by thread name (several add up)."""
    cpu, switches = {}, {}
    for task in pathlib.Path("/proc/self/task").iterdir():
        name = (task / "comm").read_text().strip()
        cpu[name] = cpu.get(name, 0.0) + int((task / "schedstat").read_text().split()[0]) / 1e9
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                switches[name] = switches.get(name, 0) + int(line.split()[1])
    return cpu, switches


def runtime_share(before, after):
    return sum(after[name] - before.get(name, 0.0) for name in after if name.startswith("hvd-"))


def idle(seconds):
    """CPU share and wake-ups per second of the whole process while nothing is submitted.

    Of three spans the quietest: looking at the threads takes milliseconds too, more on a busy machine.
    """
    arrays.allreduce([1.0] * 10, name="warm")
    return min((idle_span(seconds) for _ in range(3)), key=lambda span: span["cpu_share"])


def idle_span(seconds):
    cpu, switches = thread_seconds()
    start = time.perf_counter()
    time.sleep(seconds)
    elapsed = time.perf_counter() - start
    cpu_after, switches_after = thread_seconds()
    return {
        "cpu_share": (sum(cpu_after.values()) - sum(cpu.values())) / elapsed,
        "wakeups_per_second": runtime_share(switches, switches_after) / elapsed,
    }


def train(seconds):
    """The runtime's threads' share of the CPU time of a compute-bound training loop.

    For each byte of gradient it computes as much as ResNet-50 does with 32 images a rank: 7.7 GFLOP/MB.
    """
    import torch  # slow to import

    import hvd.torch as hvd

    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    batch = torch.randn(5120, 512)

    def step():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    for _ in range(3):
        step()
    cpu, _ = thread_seconds()
    start = time.perf_counter()
    steps = 0
    while not hvd.allreduce(torch.tensor(float(time.perf_counter() - start > seconds)), op=hvd.Max).item():
        step()
        steps += 1
    cpu_after, _ = thread_seconds()
    total = sum(cpu_after.values()) - sum(cpu.values())
    return {"runtime_share": runtime_share(cpu, cpu_after) / total, "steps": steps}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["idle", "train"])
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    hvd.init()
    result = {"idle": idle, "train": train}[options.what](options.seconds)
    arrays.allreduce(
        [0.0], name="end"
    )  # a rank that leaves ends the others' engine, and with it the account of its time
    print(json.dumps({"rank": hvd.rank(), **result}), flush=True)
    hvd.shutdown()
