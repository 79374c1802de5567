"""Run the benchmarks: `python3 scripts/bench.py` passes its arguments to `python -m benchmarks`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from _venv import DEV, ROOT, prepare


def main(arguments: Sequence[str]) -> int:
    """Prepare the environment and run the benchmarks in it."""
    return subprocess.run(
        [str(prepare(DEV)), "-m", "benchmarks", *arguments], cwd=ROOT, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
