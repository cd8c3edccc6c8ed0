"""What is measured of each version: a case is one kind of work in one place."""

from __future__ import annotations

from dataclasses import dataclass

from comparison.cases import KB, MB, PINNED_PAIR, Place

OLD, NEW = "old", "new"

# Programs, by what measures or counts.
CPP, PYTHON, TRAINING, SYSTEM_CALLS, INSTRUCTIONS = "C++", "Python", "training", "system calls", "instructions"

SIZES = (8, 64 * KB, MB, 16 * MB, 64 * MB)
PLACES = {"np=2 pinned": PINNED_PAIR, "np=4": Place(ranks=4), "4 hosts": Place(ranks=1, hosts=4)}
TENSORS = {
    "sizes": ("--sizes", ",".join(map(str, SIZES))),
    "100 tensors": ("--tensors", "100x64M"),
    "ResNet-50's gradients": ("--tensors", "resnet50"),
}


@dataclass(frozen=True)
class Case:
    name: str
    place: Place
    program: str
    options: tuple[str, ...] = ()  # of the program
    locked: bool = True

    contenders = (OLD, NEW)

    @property
    def unit(self) -> str:
        return self.program if self.program in (SYSTEM_CALLS, INSTRUCTIONS) else "time"


def cases_of(title: str, place: Place, locked: bool) -> list[Case]:
    how = "" if locked else ", unlocked"
    return [
        *(
            Case(f"{title}, {work} from {program}{how}", place, program, options, locked)
            for program in (CPP, PYTHON)
            for work, options in TENSORS.items()
        ),
        Case(f"{title}, training{how}", place, TRAINING, ("--only", "MLP"), locked),
        Case(f"{title}, system calls of a step of 10 tensors{how}", place, SYSTEM_CALLS, ("--tensors", "10"), locked),
    ]


CASES = (
    *(case for title, place in PLACES.items() for locked in (True, False) for case in cases_of(title, place, locked)),
    Case("np=1, instructions of a call", Place(ranks=1), INSTRUCTIONS),
)
