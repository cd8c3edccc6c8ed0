"""Documents that are generated, or that show commands, say what is true."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def test_environment_document_is_the_config_table():
    printed = subprocess.run([sys.executable, "-m", "hvd", "--environment"], capture_output=True, text=True, check=True)
    document = (ROOT / "docs" / "environment.md").read_text()
    assert printed.stdout.strip() == document.strip(), "run: python -m hvd --environment > docs/environment.md"


def test_document_of_other_launchers_options_is_the_parsers_table(hvdrun):
    printed = subprocess.run([hvdrun, "--other-options"], capture_output=True, text=True, check=True).stdout
    document = (ROOT / "docs" / "launcher-options.md").read_text()
    assert printed == document, "run: hvdrun --other-options > docs/launcher-options.md"


def help_of(*command):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return done.stdout + done.stderr


def options_of(launcher):
    if launcher == "mpirun":
        rows = re.findall(r"^ *(-[^ ]*)(?: |$)", help_of("mpirun.openmpi", "--help", "full"), re.MULTILINE)
        return {name for row in rows for name in row.split("|")}
    if launcher == "mpiexec":
        rows = re.findall(r"^    (-[a-z].*?)(?:  | \{|$)", help_of("mpiexec.hydra", "-help"), re.MULTILINE)
        return {name for row in rows for name in row.split("/")}
    if launcher == "torchrun":
        rows = re.findall(r"^  (-.*)$", help_of(sys.executable, "-m", "torch.distributed.run", "--help"), re.MULTILINE)
        return {name for row in rows for name in re.findall(r"(?:^|, )(--?[\w-]+)", row)}
    from horovod.runner.arguments import make_parser

    return {name for action in make_parser()._actions for name in action.option_strings}


def in_the_document():
    document = (ROOT / "docs/launcher-options.md").read_text()
    return {name.lstrip("-") for name in re.findall(r"^\| `(-[^`]+)`", document, re.MULTILINE)}


@pytest.mark.parametrize("launcher, at_least", [("mpirun", 100), ("mpiexec", 40), ("torchrun", 25), ("horovodrun", 55)])
def test_no_option_of_a_launcher_is_forgotten(launcher, at_least):
    names = options_of(launcher)
    assert len(names) >= at_least
    known = in_the_document()
    assert sorted(name for name in names if name.lstrip("-").replace("_", "-") not in known) == []


def test_every_port_is_in_the_security_document():
    source = (ROOT / "core/net/authentication.cc").read_text()
    purposes = re.findall(r'case Purpose::\w+: return "([^"]+)";', source)
    assert len(purposes) >= 7
    section = (ROOT / "docs/security.md").read_text().split("## Unauthenticated connections")[1]
    ports = [row.split("|")[1] for row in section.split("\n\n")[1].splitlines()]
    assert [name for name in purposes if not any(name.rstrip("s") in port for port in ports)] == []
