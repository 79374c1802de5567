"""Run the tests: the fast tier, `--all` for the full one, `--nightly` for 10,000 random scenarios
on both engines, or `[arguments of pytest]`.

The full tier draws other random examples for every commit; a failure is printed with what repeats
it, and is kept as a test.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from _venv import DEV, ROOT, prepare

# A file stays in one process and in its order, so that its servers and workers are made once;
# files go in the order of the folders, the long ones first.
SIDE_BY_SIDE = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
FAST = (*SIDE_BY_SIDE, "-m", "not slow")
FAST_BUT_RANDOM = (*SIDE_BY_SIDE, "-m", "not slow and not hypothesis")
NIGHTLY = ("-s", "-k", "compiled_loops", "tests/properties/test_engines.py")
SCENARIOS = "10000"
SLOW = (*SIDE_BY_SIDE, "-m", "slow or hypothesis", "--hypothesis-profile=random")


def test_commands(python: Path, arguments: Sequence[str]) -> list[list[str]]:
    """Return the command lines, to be run until one fails.

    What the user adds goes to pytest as it is, in one process.
    """
    if list(arguments) == ["--all"]:
        chosen: list[Sequence[str]] = [FAST_BUT_RANDOM, (*SLOW, f"--hypothesis-seed={seed()}")]
    elif list(arguments) == ["--nightly"]:
        os.environ.setdefault("TRAINYARD_SCENARIOS", SCENARIOS)
        chosen = [(*NIGHTLY, "--hypothesis-profile=random", f"--hypothesis-seed={seed()}")]
    else:
        chosen = [arguments or FAST]
    return [[str(python), "-m", "pytest", *one] for one in chosen]


def seed() -> int:
    """Return the seed of the random examples: another for each commit, so that new cases are tried
    and a failure can be repeated; without git another for each run.
    """
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return secrets.randbits(32)
    return int(done.stdout[:8], 16)


def main(arguments: Sequence[str]) -> int:
    """Prepare the environment and run pytest in it."""
    for command in test_commands(prepare(DEV), arguments):
        failed = subprocess.run(command, cwd=ROOT, check=False).returncode
        if failed:
            return failed
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
