"""Check style, format, types, and that every benchmark can be imported, without running a test."""

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
    """Run all steps, also after one has failed; return the name and output of each that failed."""
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
    """Print the output of the failed steps and one closing line; return the exit code."""
    for _, output in failures:
        print(output)
    names = ", ".join(name for name, _ in failures)
    print(f"Checks failed: {names}." if failures else "Style, format and types are clean.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(print_verdict(run_steps(prepare(DEV))))
