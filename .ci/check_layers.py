#!/usr/bin/env python3
"""The allowed includes, checked against every #include "..." of the sources; docs/style.md summarises them.

Prints each include that the table does not allow, each include cycle between folders, each use of the standard
library's mutexes outside core/base/mutex.h, and each vendor's header; prints nothing and exits with 0 if there is none.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Folder -> what it may include besides itself: folders (with those below them) or single headers. The longest folder
# that a file lies in counts.
BASE = ["core/base"]
VALUES = [*BASE, "core/device", "core/tensor"]
OPS = [*VALUES, "core/net", "core/bootstrap", "core/config.h", "core/operation/collective_call.h"]
OPS += ["core/execution/backend.h", "core/execution/tensor_arena.h"]
SPEC = ["core/operation/operation_spec.h"]
CONTROL = [*VALUES, *SPEC, "core/net", "core/bootstrap", "core/config.h"]
ALLOWED = {
    "core/base": [],
    "core": BASE,  # config.h
    "core/device": BASE,
    "core/tensor": BASE,
    "core/net": BASE,
    "core/timeline": [*BASE, *SPEC, "core/net/socket.h"],
    "core/flight": [*BASE, "core/net/shared_memory.h", "core/net/endpoint.h", "core/tensor"],
    "core/tuning": [*BASE, *SPEC, "core/config.h"],
    "core/bootstrap": [*BASE, "core/net", "core/config.h"],
    # In the order of time: a stage knows its own product and those of the stages before it.
    "core/operation": [*VALUES, "core/flight"],
    "core/control/protocol": CONTROL,
    "core/control/schedule": [*VALUES, "core/control/protocol"],
    "core/control/coordinator": [*CONTROL, "core/control/protocol", "core/control/schedule"],
    "core/control/tree": [*CONTROL, "core/control/protocol"],
    "core/control": [*CONTROL, "core/control", "core/timeline/timeline.h"],
    "core/execution": [
        *[*VALUES, "core/net", "core/bootstrap", "core/operation", "core/config.h"],
        *["core/timeline/timeline.h", "core/control/protocol/messages.h", "core/flight/flight_layout.h"],
    ],
    "core/engine": ["core"],
    "core/runtime": ["core"],
    "ops/transport": OPS,
    "ops/reduction": OPS,
    "ops/algorithms": [*OPS, "ops/transport", "ops/reduction"],
    "ops/choice": [*OPS, "ops/transport", "ops/reduction", "ops/algorithms"],
    "ops/host": [*OPS, "ops/transport", "ops/reduction", "ops/algorithms", "ops/choice"],
    "ops/two_level": [*OPS, "ops/transport", "ops/reduction", "ops/algorithms", "ops/choice", "ops/host"],
    "ops/channel": [*OPS, "core/operation/operation.h", "core/execution/channel.h", "ops/host/peer_memory.h"],
    "ops/gpu": [*OPS, "ops/reduction"],
    "ops/plugin": [*OPS, "ops/transport/transport.h", "hvd_plugin.h"],
    "ops/mpi": [*OPS, "ops/plugin"],
    "ops/mpi/plugin": [
        "core/base/mutex.h",
        "core/operation/collective_call.h",
        "core/tensor",
        "ops/algorithms/packing.h",
        "ops/reduction/reduce.h",
        "hvd_plugin.h",
        "mpi_types.h",  # of one of its folders, which CMake chooses
    ],  # a library of its own
    "ops": ["core", "ops"],  # registry
    # The parameter servers and their workers: beside the collectives, on the network and the store alone.
    "parameters": [*BASE, "core/net", "core/bootstrap", "core/config.h"],
    "bindings/c": ["core", "ops/registry.h", "parameters", "hvd.h", "hvd_ps.h"],
    "include": ["hvd.h", "hvd_ps.h", "hvd"],
    "tools/bench": [],  # <hvd.hpp>, as its users' programs do
    "bindings/python": ["hvd.h", "hvd_ps.h"],
    "bindings/tensorflow": ["hvd.h", "core/base/mutex.h"],
    "bindings/jax": ["hvd.h"],
    "bindings/mxnet": ["hvd.h"],
    "simulation": [
        *["core/base", "core/net", "core/bootstrap", *SPEC, "core/control", "core/execution/bucket.h"],
    ],
    # hvdrun, in the order in which a folder may include another: those above it in this list.
    "launcher/processes": [*BASE, "core/net"],
    "launcher/plan": [*BASE, "core/bootstrap/launch_environment.h"],
    # The processes of an elastic job, and what they tell in its store.
    "launcher/membership": [
        *BASE,
        *[f"launcher/{folder}" for folder in ("processes", "plan", "output")],
        *[f"core/bootstrap/{part}.h" for part in ("elastic", "store_origin")],
    ],
    "launcher/watch": [*VALUES, "core/net", "core/flight", "launcher/processes"],
    "launcher/output": [*BASE, "core/net", "launcher/processes"],
    "launcher/job": [
        *[*VALUES, "core/net", "core/flight"],
        # The job's store: how it is served, not how ranks use it.
        *[f"core/bootstrap/{part}.h" for part in ("elastic", "store_origin", "store_server")],
        *[f"launcher/{folder}" for folder in ("processes", "plan", "membership", "watch", "output")],
    ],
    "launcher/cli": [
        *[*BASE, "core/net", "core/bootstrap/launch_environment.h"],
        *[f"launcher/{folder}" for folder in ("processes", "plan", "output", "job")],
    ],
    "launcher/remote": [
        *[*BASE, "core/net", "launcher"],
        *[f"core/bootstrap/{part}.h" for part in ("store_origin", "store_server")],
    ],
    "launcher": [  # main
        *[*BASE, "core/net", "launcher"],
        *[f"core/bootstrap/{part}.h" for part in ("store_origin", "store_server")],
    ],
}

PUBLIC = ("hvd.h", "hvd_plugin.h", "hvd.hpp")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# Locks that the thread-safety analysis does not see.
LOCKS = re.compile(
    r"std::(?:\w*mutex|lock_guard|unique_lock|scoped_lock|shared_lock|condition_variable\w*)\b"
    r"|#\s*include\s*<(?:mutex|shared_mutex|condition_variable)>"
)
LOCKS_OF = "core/base/mutex.h"
# What may be absent where hvd is built: it is declared anew.
VENDORS = re.compile(r'^\s*#\s*include\s*[<"]((?:mpi|mpi_abi|cuda|nccl)\.h|tensorflow/[^>"]+)[>"]', re.MULTILINE)


def home_of(path):
    """The folder of the table in which a file lies."""
    return max((folder for folder in ALLOWED if path.startswith(folder + "/")), key=len, default=None)


def is_allowed(home, target):
    inside = target.startswith(home + "/") and home_of(target) == home
    return inside or any(target == entry or target.startswith(entry + "/") for entry in ALLOWED[home])


def find_cycle(edges):
    """A list of folders that include one another in a cycle, or None."""
    state = {}

    def visit(folder, trail):
        state[folder] = "open"
        for target in sorted(edges.get(folder, ())):
            if state.get(target) == "open":
                return [*trail[trail.index(target) :], target]
            if target not in state and (cycle := visit(target, [*trail, target])):
                return cycle
        state[folder] = "done"
        return None

    for start in sorted(edges):
        if start not in state and (cycle := visit(start, [start])):
            return cycle
    return None


def main():
    faults = []
    edges = {}
    for top in ("include", "core", "ops", "parameters", "bindings", "launcher", "simulation", "tools"):
        for file in sorted(path for path in (ROOT / top).rglob("*") if path.suffix in {".h", ".hpp", ".cc"}):
            path = file.relative_to(ROOT).as_posix()
            text = file.read_text(encoding="utf-8")
            home = home_of(path)
            if home is None:
                faults.append(f"{path}: its folder is missing from the table in .ci/check_layers.py")
                continue
            for target in INCLUDE.findall(text):
                if (file.parent / target).exists() and "/" not in target:
                    continue
                if not is_allowed(home, target):
                    faults.append(f'{path}: {home} may not include "{target}"')
                elif target in PUBLIC:
                    edges.setdefault(file.parent.relative_to(ROOT).as_posix(), set()).add("include")
                elif "/" in target:
                    edges.setdefault(file.parent.relative_to(ROOT).as_posix(), set()).add(target.rpartition("/")[0])
            if path != LOCKS_OF:
                for lock in LOCKS.findall(re.sub(r"//.*", "", text)):
                    faults.append(f"{path}: {lock}, not the Mutex of {LOCKS_OF}")
            for header in VENDORS.findall(text):
                faults.append(f"{path}: <{header}> may be absent where hvd is built")
    for folder, targets in edges.items():
        targets.discard(folder)
    if cycle := find_cycle(edges):
        faults.append("folders include one another: " + " -> ".join(cycle))
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
