"""Documents that are generated, or that show commands, say what is true."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def test_environment_document_is_the_config_table():
    printed = subprocess.run([sys.executable, "-m", "hvd", "--environment"], capture_output=True, text=True, check=True)
    document = (ROOT / "docs" / "environment.md").read_text()
    assert printed.stdout.strip() == document.strip(), "run: python -m hvd --environment > docs/environment.md"
