"""Everything that the pages open, under files damaged at random: only our own errors, each one
sentence.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from types import ModuleType

import pytest

from sim.errors import TrainyardError
from trainyard.store import Store

ROOT = Path(__file__).resolve().parents[2]
INPUTS = 200
ONE_PER_KIND = [
    (kind, f"1/{kind}") for kind in ("trace", "cluster", "tables", "scenario", "link", "profile")
]
FAILED_ONCE: list[tuple[str, str]] = []
"""Kind and seed of inputs that showed a fault, as printed by scripts/fuzz.py."""


@pytest.mark.slow
def test_damaged_files_of_one_seed_show_no_fault() -> None:
    result = subprocess.run(
        [
            sys.executable,
            "scripts/fuzz.py",
            "--seed",
            "1",
            "--inputs",
            str(INPUTS),
            "--limit-s",
            "inf",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{INPUTS} inputs, 0 kinds of faults" in result.stdout


@pytest.mark.parametrize(("kind", "seed"), [*ONE_PER_KIND, *FAILED_ONCE])
def test_a_damaged_file_shows_no_fault(
    launcher: Callable[[str], ModuleType], tmp_path: Path, kind: str, seed: str
) -> None:
    fuzz = launcher("fuzz")
    assert fuzz.fault(fuzz.Pages(Store(tmp_path)), kind, random.Random(seed), inf) == ""


def test_every_input_follows_from_its_seed(launcher: Callable[[str], ModuleType]) -> None:
    launcher("fuzz")
    inputs = sys.modules["_inputs"]
    for make in (inputs.trace, inputs.cluster, inputs.scenario, inputs.profile):
        assert [make(random.Random(f"3/{at}")) for at in range(8)] == [
            make(random.Random(f"3/{at}")) for at in range(8)
        ]


class Broken:
    """Pages of which one raises."""

    def __init__(self, error: Exception | None) -> None:
        def one(_: random.Random) -> None:
            if error is not None:
                raise error

        self.kinds: Mapping[str, Callable[[random.Random], None]] = {"one": one}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (None, ""),
        (TrainyardError("The file is empty. Choose another file."), ""),
        (KeyError("x"), "KeyError"),
        (TrainyardError(""), "no sentence"),
        (TrainyardError("half a"), "no sentence"),
    ],
)
def test_what_a_fault_is(
    launcher: Callable[[str], ModuleType], error: Exception | None, told: str
) -> None:
    found = launcher("fuzz").fault(Broken(error), "one", random.Random(0))
    assert (told in found) if told else found == ""


def test_an_input_that_takes_too_long_is_a_fault(
    launcher: Callable[[str], ModuleType],
) -> None:
    assert "of CPU time" in launcher("fuzz").fault(Broken(None), "one", random.Random(0), -1.0)
