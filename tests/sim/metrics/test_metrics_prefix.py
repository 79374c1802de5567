from __future__ import annotations

from math import inf, isnan

import pytest

from sim.contract import Grant
from sim.metrics import first_difference_s
from sim.result import RunResult
from tests.sim.scripted import Script, jobs, on, run


def result(script: dict[float, dict[int, Grant | None]], cluster: str = "3x1:v100") -> RunResult:
    return run(jobs((0, 1, 20), (0, 1, 40)), cluster, Script(script))


START: dict[int, Grant | None] = {0: on(0), 1: on(1)}


@pytest.mark.parametrize(
    ("other", "until_s", "differs_s"),
    [
        ({0: START, 5: {1: on(2)}}, 5, None),  # what begins at that instant comes after it
        (
            {0: START, 5: {1: on(2)}},
            5.5,
            0,
        ),  # the first segment ends at 5 then, and the other runs on
        ({0: START, 5: {1: None}, 9: {1: on(1)}}, inf, 0),
        ({0: {0: on(2), 1: on(1)}}, 1, 0),  # the same sizes on other nodes
        ({0: {0: on(0)}, 3: {1: on(1)}}, 2, 0),  # fewer rows
        ({0: START}, inf, None),
    ],
)
def test_where_two_runs_part(
    other: dict[float, dict[int, Grant | None]], until_s: float, differs_s: float | None
) -> None:
    for one, two in ((result({0: START}), result(other)), (result(other), result({0: START}))):
        found = first_difference_s(one, two, until_s)
        assert isnan(found) if differs_s is None else found == differs_s


def test_more_nodes_that_nobody_uses_are_no_difference() -> None:
    assert isnan(first_difference_s(result({0: START}), result({0: START}, "9x1:v100"), inf))
