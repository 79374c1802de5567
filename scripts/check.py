"""Run everything a machine can check without running the app: style, format, types, and the rules
of the architecture.
"""

from __future__ import annotations

import subprocess
import sys

from _venv import DEV, ROOT, prepare

TYPED = ("sim", "allocators", "trainyard", "views", "ui", "pages", "app.py")
STEPS = (
    ("style", ("ruff", "check", ".")),
    ("format", ("ruff", "format", "--check", ".")),
    ("types", ("mypy", "--strict", *TYPED)),
    ("architecture", ("pytest", "-q", "tests/test_architecture.py")),
    # What types do not cover: every test and every benchmark can be imported.
    ("tests", ("pytest", "-q", "--collect-only", "-qq")),
    ("benchmarks", ("benchmarks", "--help")),
)


def main() -> int:
    """Run all steps, also after one has failed; return 1 if any did."""
    python = prepare(DEV)
    failed = []
    for name, step in STEPS:
        print(f"== {name}: {' '.join(step)}", flush=True)
        if subprocess.run([str(python), "-m", *step], cwd=ROOT, check=False).returncode:
            failed.append(name)
    print(f"Failed: {', '.join(failed)}." if failed else "All checks passed.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
