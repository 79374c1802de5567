"""What changes cost."""

from __future__ import annotations

from math import inf, isinf

import pytest

from sim.errors import ParameterError
from sim.overheads import Overheads
from sim.params import Spec, build
from tests.sim.scripted import on


def test_a_start_a_restart_and_a_change() -> None:
    costs = Overheads(start_s=1, restart_s=2, overlap_s=3)
    assert costs.transition(0, None, on(0), restarted=False) == (0, 1)
    assert costs.transition(0, None, on(0), restarted=True) == (0, 2)
    assert costs.transition(0, on(1), on(0), restarted=True) == (3, 2)


@pytest.mark.parametrize(
    ("every", "cost", "share"), [(9, 1, 0.9), (100, 0, 1.0), (0, 50, 1.0), (1, 3, 0.25)]
)
def test_periodic_checkpoints_take_their_share(every: float, cost: float, share: float) -> None:
    assert Overheads(checkpoint_every_s=every, checkpoint_s=cost).efficiency == share


@pytest.mark.parametrize(
    ("running_s", "saves"),
    [(0, 0), (9.99, 0), (9.999999, 0), (9.9999999, 1), (10, 1), (19.9, 1), (20, 2)],
)
def test_checkpoints_within_a_time(running_s: float, saves: int) -> None:
    assert Overheads(checkpoint_every_s=9, checkpoint_s=1).saves_within(running_s) == saves
    assert Overheads(checkpoint_every_s=0).saves_within(running_s) == 0


def test_latency_grows_with_the_active_jobs() -> None:
    assert Overheads(latency_s=2, latency_per_job_s=0.5).latency(6) == 5
    assert Overheads().latency(1000) == 0


@pytest.mark.parametrize(
    "name",
    [
        "start_s",
        "restart_s",
        "checkpoint_every_s",
        "checkpoint_s",
        "latency_s",
        "latency_per_job_s",
    ],
)
@pytest.mark.parametrize("value", [-1.0, inf])
def test_bounds(name: str, value: float) -> None:
    assert isinf(value) or value < 0
    with pytest.raises(ParameterError, match=f"overheads: {name} = .* is outside"):
        build(Overheads, Spec.of("overheads", **{name: value}))
