#!/usr/bin/env python3
"""Refuses the words and phrases that docs/glossary.md lists under "Words that are not used".

Words are looked for in the identifiers of the C++ sources, phrases in the text of all sources and pages. Prints each
place; exits with 1 if there is any.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GLOSSARY = "docs/glossary.md"
CPP = (".cc", ".h", ".hpp", ".cu", ".proto")
TEXT = (*CPP, ".py", ".md")
# Not ours to word: DLPack's header, and Horovod's own names.
EXEMPT = ("third_party/", "CHANGELOG.md", GLOSSARY, ".ci/check_words.py")


def read_lists(glossary: str) -> tuple[list[str], list[str]]:
    """The words and the phrases of the two tables, in lower case."""
    section = glossary.split("## Words that are not used", 1)[1]
    words, phrases = (
        re.findall(r"^\| ([^|]+?) \| [^|]+ \|$", part, re.M) for part in section.split("These phrases", 1)
    )
    return [word for row in words[1:] for word in row.split(", ")], phrases[1:]


def parts(identifier: str) -> list[str]:
    return [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)]


def find(path: str, text: str, words: set[str], phrases: list[str]) -> list[str]:
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if path.endswith(CPP):
            code = re.sub(r'"(\\.|[^"\\])*"', "", line.split("//", 1)[0])
            for identifier in re.findall(r"[A-Za-z_]\w*", code):
                found += [f"{path}:{number}: '{word}' in {identifier}" for word in parts(identifier) if word in words]
        found += [f"{path}:{number}: '{phrase}'" for phrase in phrases if phrase in line.lower()]
    return found


def main() -> int:
    words, phrases = read_lists((ROOT / GLOSSARY).read_text())
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = []
    for path in listed.splitlines():
        if path.endswith(TEXT) and not path.startswith(EXEMPT):
            found += find(path, (ROOT / path).read_text(), set(words), phrases)
    for line in found:
        print(f"{line}: see {GLOSSARY}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
