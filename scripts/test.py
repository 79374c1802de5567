"""Run the tests: the fast tier, `--all` for the slow one after it, or `[arguments of pytest]`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from _venv import DEV, ROOT, prepare

# A file stays in one process and in its order, so that its servers and workers are made once;
# files go in the order of the folders, the long ones first.
SIDE_BY_SIDE = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
FAST = (*SIDE_BY_SIDE, "-m", "not slow")
SLOW = (*SIDE_BY_SIDE, "-m", "slow")


def test_commands(python: Path, arguments: Sequence[str]) -> list[list[str]]:
    """Return the command lines, to be run until one fails.

    What the user adds goes to pytest as it is, in one process.
    """
    if list(arguments) == ["--all"]:
        chosen: list[Sequence[str]] = [FAST, SLOW]
    else:
        chosen = [arguments or FAST]
    return [[str(python), "-m", "pytest", *one] for one in chosen]


def main(arguments: Sequence[str]) -> int:
    """Prepare the environment and run pytest in it."""
    for command in test_commands(prepare(DEV), arguments):
        failed = subprocess.run(command, cwd=ROOT, check=False).returncode
        if failed:
            return failed
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
