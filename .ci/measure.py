#!/usr/bin/env python3
"""How large the product's C++ is: files, lines, and classes with many members.

Prints the numbers of files and of lines, the median file, how many headers have a single includer outside their folder,
and the classes with more than 25 member functions or more than 20 fields; exits with 1 if there is any. Reads the
sources as clang-format leaves them, without a compiler: members of nested classes count for these, those of unnamed
ones for the class around them, macros for nothing.
"""

from __future__ import annotations

import os
import pathlib
import re
import statistics
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRODUCT = ("include", "core", "ops", "parameters", "bindings", "launcher", "simulation", "tools")
MOST_METHODS, MOST_FIELDS = 25, 20

NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'|^\s*#(?:[^\n]*\\\n)*[^\n]*", re.S | re.M
)
CLASS = re.compile(
    r"(?:class|struct)\s+(?:alignas\([^)]*\)\s*|CAPABILITY\([^)]*\)\s*|SCOPED_CAPABILITY\s*)?(\w+)\s*(?:final\s*)?(?::[^;{]*)?$"
)
UNNAMED = re.compile(r"(?:class|struct|union)(?:\s+alignas\([^)]*\))?$")
NOT_MEMBERS = re.compile(
    r"(?:using|friend|static_assert|typedef|enum|template\s*<.*>\s*(?:class|struct)|class|struct)\b"
)
ACCESS = re.compile(r"^(?:\s*(?:public|private|protected)\s*:)+")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


@dataclass
class Class:
    name: str
    place: str
    methods: int = 0
    fields: int = 0


def members_of(name: str, place: str, body: str) -> list[Class]:
    """The class whose braces hold `body`, and those nested in it."""
    found = [Class(name, place)]
    statement, at = "", 0
    while at < len(body):
        character = body[at]
        at += 1
        if character == "{":
            end = closing(body, at)
            head = ACCESS.sub("", statement).strip()
            nested = CLASS.search(head)
            if UNNAMED.match(head):
                unnamed, *inner = members_of(name, place, body[at:end])
                found[0].methods += unnamed.methods
                found[0].fields += unnamed.fields
                found += inner
                statement = "class "
            elif nested:
                found += members_of(f"{name}::{nested.group(1)}", place, body[at:end])
                statement = "class "  # maybe with fields of that type behind it
            at = end + 1
            if is_function(statement) and not re.match(r"\s*[,;({]", body[at:]):  # with its body
                found[0].methods += 1
                statement = ""
            continue
        if character == ";":
            count(found[0], ACCESS.sub("", statement).strip())
            statement = ""
            continue
        statement += character
    return found


def is_function(statement: str) -> bool:
    if re.search(r"\(\s*\*\s*\w+\s*\)", statement):  # a pointer to one
        return False
    head = re.split(r"=(?!=)", re.sub(r"operator\s*\W+?\(", "operator(", without_angles(statement)))[0]
    return (
        re.search(
            r"[\w)]\s*\(", re.sub(r"\b(?:alignas|decltype|noexcept|GUARDED_BY|ACQUIRED_AFTER)\([^)]*\)", "", head)
        )
        is not None
    )


def without_angles(text: str) -> str:
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    return text


def count(into: Class, statement: str) -> None:
    if not statement or NOT_MEMBERS.match(statement):
        return
    if is_function(statement):
        into.methods += not re.search(r"=\s*(?:delete|default)\s*$", statement)
    else:
        into.fields += 1 + re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", without_angles(statement)).count(",")


def closing(text: str, at: int) -> int:
    """Where the brace is closed that was opened before `at`."""
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at - 1


def classes_of(path: pathlib.Path) -> list[Class]:
    text = NOISE.sub(lambda noise: '""' if noise.group()[0] in "\"'" else " ", path.read_text(encoding="utf-8"))
    found, at = [], 0
    for head in re.finditer(r"[^;{}]*\{", text):
        name = CLASS.search(head.group()[:-1].strip())
        if head.start() >= at and name:
            at = closing(text, head.end())
            found += members_of(name.group(1), path.relative_to(ROOT).as_posix(), text[head.end() : at])
    return found


def main() -> int:
    files = [
        path
        for top in PRODUCT
        for path in sorted((ROOT / top).rglob("*"))
        if path.suffix in {".h", ".hpp", ".cc", ".cu"}
    ]
    lines = [len(path.read_text(encoding="utf-8").splitlines()) for path in files]
    includers: dict[str, set[str]] = {}
    for path in files:
        for target in INCLUDE.findall(path.read_text(encoding="utf-8")):
            if target.rpartition("/")[0] != path.parent.relative_to(ROOT).as_posix():
                includers.setdefault(target, set()).add(path.as_posix())
    single = sum(len(each) == 1 for each in includers.values())
    print(f"{len(files)} files, {sum(lines)} lines, median {statistics.median(lines):.0f};", end=" ")
    print(f"{single} headers with one includer outside their folder")
    classes = [each for path in files for each in classes_of(path)]
    large = [each for each in classes if each.methods > MOST_METHODS or each.fields > MOST_FIELDS]
    for one in sorted(large, key=lambda each: -each.methods):
        print(f"large: {one.place}: {one.name} has {one.methods} member functions and {one.fields} fields")
    return 1 if large else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # the reader, head for instance, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
