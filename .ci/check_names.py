#!/usr/bin/env python3
"""No two classes of the product have the same qualified name.

Two of one name compile and link, since their functions are weak symbols of which the linker keeps one each, and crash
where the wrong one runs (the one-definition rule; -Wodr needs link-time optimisation). Prints each name that two files
define, and exits with 1 if there is any. Classes in unnamed namespaces and in functions are nobody else's. The MPI
plugin's declarations of each vendor's types are never compiled together.
"""

from __future__ import annotations

import pathlib
import re
import sys

from measure import CLASS, NOISE, PRODUCT, ROOT

NEVER_TOGETHER = "ops/mpi/plugin/"
NAMESPACE = re.compile(r"(?:inline\s+)?namespace\s*([\w:]*)$")
NESTED_ELSEWHERE = re.compile(r"(?:class|struct)\s+((?:\w+::)+\w+)\s*(?:final\s*)?(?::[^:;{][^;{]*)?$")


def names_in(path: pathlib.Path) -> set[str]:
    """Qualified names of the classes that a file defines."""
    text = NOISE.sub(" ", path.read_text(encoding="utf-8"))
    names: set[str] = set()
    scopes: list[str | None] = []  # None: a function, or an unnamed namespace
    statement = ""
    for character in text:
        if character == "{":
            head = statement.strip()
            namespace = NAMESPACE.search(head)
            scopes.append((namespace.group(1) or None) if namespace else class_of(head))
            if not namespace and None not in scopes:
                names.add("::".join(filter(None, scopes)))
        elif character == "}" and scopes:
            scopes.pop()
        statement = "" if character in "{};" else statement + character
    return names


def class_of(head: str) -> str | None:
    """The class whose definition a brace after `head` opens."""
    name = NESTED_ELSEWHERE.search(head) or CLASS.search(head)
    return name.group(1) if name else None


def main() -> int:
    files_of: dict[str, list[str]] = {}
    for top in PRODUCT:
        for path in sorted((ROOT / top).rglob("*")):
            file = path.relative_to(ROOT).as_posix()
            if path.suffix in {".h", ".hpp", ".cc"} and not file.startswith(NEVER_TOGETHER):
                for name in names_in(path):
                    files_of.setdefault(name, []).append(file)
    twice = {name: files for name, files in sorted(files_of.items()) if len(files) > 1}
    for name, files in twice.items():
        print(f"{name} is defined in {' and in '.join(files)}: rename one, or put it into an unnamed namespace")
    return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main())
