#!/usr/bin/env python3
"""clang-tidy over the library's and the launcher's sources, two at a time or as many as there are CPUs.

Usage: tidy.py BUILD    BUILD holds compile_commands.json. A file that passed is not looked at again until it, a header
or the settings change: what passed is remembered in BUILD/tidy/.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("core/", "ops/", "bindings/", "launcher/", "simulation/")
GCC_ONLY = {"-fno-gnu-unique", "-Wno-restrict", "-Wno-maybe-uninitialized"}


def digest(paths):
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(path.read_bytes())
    return total.hexdigest()


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    passed = build / "tidy"
    passed.mkdir(exist_ok=True)
    commands = json.loads((build / "compile_commands.json").read_text())
    for entry in commands:
        entry["command"] = " ".join(word for word in entry["command"].split(" ") if word not in GCC_ONLY)
    (passed / "compile_commands.json").write_text(json.dumps(commands))
    files = sorted({pathlib.Path(entry["file"]) for entry in commands})
    files = [file for file in files if file.relative_to(ROOT).as_posix().startswith(FOLDERS)]
    headers = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.h*")]
    surroundings = digest([ROOT / ".clang-tidy", *headers])

    def check(file):
        stamp = passed / hashlib.sha256(str(file).encode()).hexdigest()
        content = surroundings + digest([file])
        if stamp.exists() and stamp.read_text() == content:
            return file, 0, ""
        run = subprocess.run(
            ["clang-tidy-16", "-p", passed, "--quiet", file],
            capture_output=True,
            text=True,
        )
        if run.returncode == 0:
            stamp.write_text(content)
        return file, run.returncode, run.stdout

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, code, output in pool.map(check, files):
            if code != 0:
                failed += 1
                print(f"{file.relative_to(ROOT)}:\n{output}", flush=True)
    print(f"clang-tidy: {len(files)} files, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
