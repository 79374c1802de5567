from __future__ import annotations

from hypothesis import given, settings

from allocators.las import Las
from sim.contract import JobId, View
from tests.allocators.walk import Situation, Walk, compare, placer, situations

LIMITS = (24.0, 80.0)


def level(view: View, job: JobId, start: float = 0.0) -> int:
    served = view.one("served_gpu_s", job) - start
    return sum(served >= limit - 1e-3 * view.demand(job).replicas for limit in LIMITS)


def queue_first(walk: Walk, view: View, job: JobId, runs: bool) -> tuple[float, ...]:
    return (level(view, job), 0, walk.started_s[job]) if runs else (level(view, job), 1, walk.since_s[job])


def beats(walk: Walk, view: View, waiting: JobId, running: JobId) -> bool:
    return level(view, waiting) < level(view, running)


@given(situations(pauses=True))
@settings(max_examples=400, deadline=None)
def test_does_what_the_walk_does(situation: Situation) -> None:
    compare(situation, Las(thresholds=LIMITS, **situation.params), Walk(queue_first, beats, placer(situation.params), situation.params["head"]))


@given(situations(simple=True))
@settings(max_examples=200, deadline=None)
def test_runs_what_fits_from_an_empty_cluster(situation: Situation) -> None:
    compare(situation, Las(thresholds=LIMITS, **situation.params), Walk(queue_first, beats, placer(situation.params), situation.params["head"]), counts=True)
