"""Run the tests: `python3 scripts/test.py [arguments of pytest]`; without arguments the whole suite on two processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from _venv import DEV, ROOT, prepare

# A file stays in one process and in its order, so that its servers and workers are made once; files go in the order of the folders, the long ones first.
WHOLE_SUITE = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")


def test_command(python: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command line; whatever the user adds goes to pytest as it is, in one process."""
    return [str(python), "-m", "pytest", *(arguments or WHOLE_SUITE)]


def main(arguments: Sequence[str]) -> int:
    """Prepare the environment and run pytest in it."""
    return subprocess.run(test_command(prepare(DEV), arguments), cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
