"""Check style, format and types, and import every benchmark; no test runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from _venv import DEV, ROOT, prepare

TYPED = ("sim", "allocators", "jobtraces", "trainyard", "ui", "pages", "app.py")
STEPS = (
    ("style", ("ruff", "check", ".")),
    ("format", ("ruff", "format", "--check", ".")),
    ("types", ("mypy", "--strict", *TYPED)),
    ("benchmarks", ("benchmarks", "--help")),
)


def run_steps(python: Path) -> list[tuple[str, str]]:
    """Run all steps; return the names and outputs of the failed steps."""
    failures = []
    for name, step in STEPS:
        command = [str(python), "-m", *step]
        result = subprocess.run(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if result.returncode:
            failures.append((name, f"== {name}: {' '.join(step)}\n{result.stdout}"))
    return failures


def print_verdict(failures: list[tuple[str, str]]) -> int:
    """Print the output of failed steps and a verdict; return the exit code."""
    for _, output in failures:
        print(output)
    names = ", ".join(name for name, _ in failures)
    print(f"Checks failed: {names}." if failures else "Style, format and types are clean.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(print_verdict(run_steps(prepare(DEV))))
