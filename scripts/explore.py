"""Search for faults with random inputs: `python3 scripts/explore.py --minutes 10 --seed 7`.

Not part of the gate. Each failure is printed as a regression test to paste into the tests. Equal
seeds draw equal inputs.

properties   random examples of every hypothesis test
scenarios    2,000 random scenarios over all policies, with events just before each deadline
engines      random scenarios with equal results on the fast engine and the kernel
fuzz         damaged files for every reader of the app
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from _venv import DEV, ROOT, prepare

SCENARIOS = 2000
_BLOB = re.compile(r"@reproduce_failure\(.*?\)")
_FAILED = re.compile(r"^FAILED (\S+)", re.MULTILINE)


class Budget:
    """Wall time for one part, which always runs at least one round."""

    def __init__(self, minutes: float) -> None:
        self._ends_s = time.monotonic() + 60 * minutes

    def rounds(self, first: int, most: int | None = None) -> Iterator[int]:
        """Yield seeds from `first` upwards until the time is over or `most` are drawn."""
        seed = first
        yield seed
        while time.monotonic() < self._ends_s and (most is None or seed + 1 < first + most):
            seed += 1
            yield seed

    @property
    def minutes_left(self) -> float:
        """Remaining minutes, at least 0."""
        return max(0.0, self._ends_s - time.monotonic()) / 60


def explore_properties(seed: int, budget: Budget) -> int:
    """Run all hypothesis tests with new examples; return the number of failed tests."""
    failures = 0
    for drawn in budget.rounds(seed):
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "hypothesis"]
        command += ["--hypothesis-profile=explore", f"--hypothesis-seed={drawn}"]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        print(f"properties, seed {drawn}: {result.stdout.strip().splitlines()[-1]}", flush=True)
        if not result.returncode:
            continue
        failed = _FAILED.findall(result.stdout)
        failures += max(1, len(failed))
        print(result.stdout)
        print(f"Paste the falsifying examples above as @example(...) of {', '.join(failed)}.")
        for line in dict.fromkeys(_BLOB.findall(result.stdout)):
            print(f"Until then this repeats it: {line}")
    return failures


def explore_seeds(
    check: Callable[[int], object], seed: int, budget: Budget, most: int | None = None
) -> int:
    """Call `check` with consecutive seeds; return the number of failures."""
    failures = tried = 0
    for drawn in budget.rounds(seed, most):
        tried += 1
        try:
            check(drawn)
        except Exception:
            failures += 1
            traceback.print_exc()
            print(f"Paste into {check.__module__.replace('.', '/')}.py:")
            print(f"def test_seed_{drawn}() -> None:\n    {check.__name__}({drawn})", flush=True)
    print(f"{check.__name__}: {tried:,} seeds from {seed} on, {failures} failed", flush=True)
    return failures


def explore_scenarios(seed: int, budget: Budget) -> int:
    """Run random scenarios of all policies; return the number of failures."""
    from tests.properties.test_every_run_ends import check_scenario

    return explore_seeds(check_scenario, seed, budget, SCENARIOS)


def explore_engines(seed: int, budget: Budget) -> int:
    """Compare both engines on random scenarios; return the number of differences."""
    from tests import conftest  # noqa: F401 - loads the profile of hypothesis
    from tests.properties.test_engines import check_engines
    from trainyard.runs import engines

    remark = engines.warm()
    if remark:
        raise SystemExit(remark)
    return explore_seeds(check_engines, seed, budget)


def explore_files(seed: int, budget: Budget) -> int:
    """Open damaged files; return 1 if a file shows a fault."""
    import fuzz

    limits = ["--inputs", "1000000", "--minutes", str(max(budget.minutes_left, 0.1))]
    return fuzz.main(["--seed", str(seed), *limits])


PARTS: dict[str, Callable[[int, Budget], int]] = {
    "properties": explore_properties,
    "scenarios": explore_scenarios,
    "engines": explore_engines,
    "fuzz": explore_files,
}


def main(arguments: Sequence[str]) -> int:
    """Run the chosen parts, each for an equal share of the time; return 1 after a failure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="for all parts together")
    parser.add_argument("--seed", type=int, help="drawn and printed if left out")
    parser.add_argument("--part", choices=tuple(PARTS), action="append", help="default: all")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    parts = options.part or list(PARTS)
    print(f"seed {seed}", flush=True)
    failures = sum(PARTS[part](seed, Budget(options.minutes / len(parts))) for part in parts)
    return 1 if failures else 0


if __name__ == "__main__":
    python = prepare(DEV)
    if Path(sys.prefix) != python.parents[1]:
        again = subprocess.run([str(python), __file__, *sys.argv[1:]], cwd=ROOT, check=False)
        raise SystemExit(again.returncode)
    sys.path.insert(0, str(ROOT))
    raise SystemExit(main(sys.argv[1:]))
