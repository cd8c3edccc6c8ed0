#!/usr/bin/env python3
"""clang-tidy over those of the given sources that belong to the library or the launcher, on all CPUs.

Usage: tidy.py BUILD SOURCE...    BUILD holds compile_commands.json. Files that are compiled together
(hvd_unite_sources()) are looked at together. What passed is not looked at again until it, a header of ours in it, its
options or the settings change: it is remembered in ~/.cache/hvd-tidy for all clones.
"""

import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("include/", "core/", "ops/", "parameters/", "bindings/", "launcher/", "simulation/", "tools/")
GCC_ONLY = {
    "-fno-gnu-unique",
    "-Wno-restrict",
    "-Wno-maybe-uninitialized",
    "-Wno-subobject-linkage",
    "--param=ggc-min-heapsize=524288",
}
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "hvd-tidy")
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


@functools.cache
def included(path):
    """The files of ours that a file includes, in its own words."""
    places = [path.parent, ROOT, ROOT / "include"]
    found = [place / name for name in INCLUDE.findall(path.read_text()) for place in places]
    found = [file for file in found if file.is_file()]
    return tuple(file.resolve() for file in found)


def closure(path):
    """A file and all of ours that it includes, directly or not."""
    seen, waiting = set(), [path.resolve()]
    while waiting:
        file = waiting.pop()
        if file not in seen:
            seen.add(file)
            waiting.extend(included(file))
    return sorted(seen)


def sources_of(file):
    """The sources that are compiled as this one."""
    return [path for path in included(file) if path.suffix == ".cc"] if file.suffix == ".cxx" else [file]


def relative(path):
    return os.path.relpath(path, ROOT)


def stamp_of(entry, surroundings):
    """Where it is remembered that this passed; paths in it are relative, so that all clones share it."""
    total = hashlib.sha256(surroundings)
    total.update(entry["command"].replace(str(ROOT), "").encode())
    for path in closure(pathlib.Path(entry["file"])):
        total.update(relative(path).encode() + b"\n" + path.read_bytes().replace(str(ROOT).encode(), b""))
    return CACHE / total.hexdigest()


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    settings = build / "tidy"
    settings.mkdir(exist_ok=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    entries = json.loads((build / "compile_commands.json").read_text())
    for entry in entries:
        entry["command"] = " ".join(word for word in entry["command"].split(" ") if word not in GCC_ONLY)
    (settings / "compile_commands.json").write_text(json.dumps(entries))
    wanted = {pathlib.Path(source).resolve() for source in sys.argv[2:] if source.startswith(FOLDERS)}
    entries = [entry for entry in entries if wanted & set(sources_of(pathlib.Path(entry["file"])))]
    version = subprocess.run(["clang-tidy-16", "--version"], capture_output=True, check=True).stdout
    surroundings = version + (ROOT / ".clang-tidy").read_bytes()

    def check(entry):
        stamp = stamp_of(entry, surroundings)
        if stamp.exists():
            return entry, 0, ""
        run = subprocess.run(
            ["clang-tidy-16", "-p", settings, "--quiet", entry["file"]], capture_output=True, text=True
        )
        if run.returncode == 0:
            stamp.touch()
        return entry, run.returncode, run.stdout

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for entry, code, output in pool.map(check, entries):
            if code != 0:
                failed += 1
                print(f"{relative(entry['file'])}:\n{output}", flush=True)
    print(f"clang-tidy: {len(entries)} units, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
