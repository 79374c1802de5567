from __future__ import annotations

from hypothesis import given, settings

from allocators.srtf import Srtf
from sim.contract import JobId, View
from tests.allocators.walk import Situation, Walk, compare, placer, situations


def remaining(walk: Walk, view: View, job: JobId, runs: bool) -> tuple[float, ...]:
    # With the rigid model work is seconds on a GPU of speed 1 times the speed of the first type, which is what durations were measured on.
    return (view.one("remaining_work", job), 0.0 if runs else 1.0)


def beats(walk: Walk, view: View, waiting: JobId, running: JobId) -> bool:
    return view.one("remaining_work", running) > view.one("remaining_work", waiting) + 1e-3


@given(situations())
@settings(max_examples=400, deadline=None)
def test_does_what_the_walk_does(situation: Situation) -> None:
    compare(situation, Srtf(**situation.params), Walk(remaining, beats, placer(situation.params), situation.params["head"]))


@given(situations(simple=True))
@settings(max_examples=200, deadline=None)
def test_runs_what_fits_from_an_empty_cluster(situation: Situation) -> None:
    compare(situation, Srtf(**situation.params), Walk(remaining, beats, placer(situation.params), situation.params["head"]), counts=True)
