"""Run the tests: the gate, or with `--all` also the browser suite, servers and launchers.

The gate is ruff, mypy and every test that is not marked `slow`. Other arguments go to pytest; a
package means its tests: `python3 scripts/test.py allocators/sites -k quota`. Nothing is random;
`scripts/explore.py` draws random examples.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from _venv import DEV, ROOT, prepare
from check import print_verdict, run_steps

# Each file runs in one process and in order, so that its servers and workers start once.
PARALLEL = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
GATE = (*PARALLEL, "-m", "not slow")
ALL = PARALLEL
WITH_VALUE = ("-c", "-k", "-m", "-n", "-o", "-p", "-W")
CLOSING = "Took {minutes:.1f} minutes and {cpu_s:,.0f} CPU seconds."


def run_with_checks(python: Path, arguments: Sequence[str]) -> int:
    """Run pytest and the static checks at the same time; return the exit code."""
    began_s = time.monotonic()
    # Compiles the loops once for all processes.
    subprocess.run([str(python), "-m", "trainyard.runs.engines"], cwd=ROOT, check=False)
    with ThreadPoolExecutor(max_workers=1) as executor:
        checks = executor.submit(run_steps, python)
        failed = run_pytest(python, arguments)
        failed = print_verdict(checks.result()) or failed
    used = os.times()
    cpu_s = used.children_user + used.children_system
    print(CLOSING.format(minutes=(time.monotonic() - began_s) / 60, cpu_s=cpu_s))
    return failed


def run_pytest(python: Path, arguments: Sequence[str]) -> int:
    """Run pytest in the checkout's environment and return its exit code."""
    return subprocess.run(
        [str(python), "-m", "pytest", *arguments], cwd=ROOT, check=False
    ).returncode


def main(arguments: Sequence[str]) -> int:
    """Prepare the environment, run the requested tests, and return the exit code."""
    python = prepare(DEV)
    if not arguments or list(arguments) == ["--all"]:
        return run_with_checks(python, ALL if arguments else GATE)
    return run_pytest(python, folders_of_tests(arguments))


def folders_of_tests(arguments: Sequence[str]) -> list[str]:
    """Return pytest arguments with each package replaced by the folder of its tests."""
    before = ("", *arguments)
    return [
        f"tests/{argument}"
        if option not in WITH_VALUE and argument and (ROOT / "tests" / argument).is_dir()
        else argument
        for option, argument in zip(before, arguments, strict=False)
    ]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
