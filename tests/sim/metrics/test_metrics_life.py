"""The life of single jobs, on runs written down by hand and simulated."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sim.metrics.job_events import job_events, job_periods
from sim.metrics.timeline import Timeline
from sim.overheads import Overheads
from tests.sim.metrics.metrics_cases import Held, Job, cluster_of, failures_of, five, run_of
from tests.sim.scripted import Script, jobs, on, run

FIVE = Timeline(five(), cluster_of())


def told(line: Timeline, job: int) -> list[str]:
    return [
        f"{spell.t0:g}-{spell.t1:g} {spell.state} {spell.gpus}" for spell in job_periods(line, job)
    ]


def what(line: Timeline, job: int) -> list[str]:
    return [
        f"{one.t_s:g} {one.what} {one.cause} {one.role}".rstrip()
        for one in job_events(line, job, job_periods(line, job))
    ]


def test_spells_go_from_submission_to_the_end_without_gap() -> None:
    assert told(FIVE, 0) == ["0-100 running 2"]
    assert told(FIVE, 1) == [
        "10-100 waiting 0",
        "100-150 running 4",
        "150-200 waiting 0",
        "200-210 paused 4",
        "210-260 running 4",
    ]
    assert told(FIVE, 3) == []
    assert told(FIVE, 4) == ["50-260 waiting 0"]


def test_what_befell_a_job() -> None:
    assert what(FIVE, 1) == [
        "10 submitted",
        "100 started",
        "150 preempted",
        "200 started",
        "260 finished",
    ]
    assert what(FIVE, 3) == ["40 submitted", "40 impossible"]
    assert what(FIVE, 4) == ["50 submitted", "260 unfinished"]


def test_failures_are_named_and_a_restart_at_once_is_a_start() -> None:
    rows = [(30.0, 0, 1.0, 0, "oom", "server"), (40.0, 0, 0.0, 1, "interruption", "worker")]
    pieces = [
        Held(0, 0, 30, 2, ended="evicted"),
        Held(0, 30, 40, 2, paused=5, ended="changed"),
        Held(0, 40, 60, 2),
    ]
    line = Timeline(
        run_of([Job(0, 2, 0, 60, evictions=1)], pieces, 60.0, failures=failures_of(rows)),
        cluster_of(),
    )
    assert what(line, 0) == [
        "0 submitted",
        "0 started",
        "30 evicted oom server",
        "30 started",
        "40 relaunched interruption worker",
        "60 finished",
    ]
    assert told(line, 0) == ["0-30 running 2", "30-35 paused 2", "35-60 running 2"]


def test_changes_of_size_and_place() -> None:
    pieces = [Held(0, 0, 10, 2), Held(0, 10, 20, 2, node=1), Held(0, 20, 30, 1, node=1)]
    line = Timeline(run_of([Job(0, 2, 0, 30)], pieces, 30.0), cluster_of())
    assert what(line, 0) == ["0 submitted", "0 started", "10 moved", "20 resized", "30 finished"]


def test_a_job_that_is_held_twice_at_once_adds_up() -> None:
    """While a move overlaps, old and new place are held in one segment; copies of a recording may
    overlap in two.
    """
    line = Timeline(
        run_of([Job(0, 2, 0, 30)], [Held(0, 0, 20, 1), Held(0, 10, 30, 1, paused=15)], 30.0),
        cluster_of(),
    )
    assert told(line, 0) == [
        "0-10 running 1",
        "10-20 running 2",
        "20-25 paused 1",
        "25-30 running 1",
    ]


def test_a_simulated_preemption() -> None:
    trace = jobs((0, 4, 100), (10, 4, 50))
    script = Script({0.0: {0: on(0, 4)}, 10.0: {0: None, 1: on(0, 4)}, 60.0: {0: on(0, 4)}})
    result = run(trace, "1x4:v100", script, Overheads(restart_s=5))
    line = Timeline(result, cluster_of())
    assert what(line, 0) == [
        "0 submitted",
        "0 started",
        "10 preempted",
        "60 started",
        "155 finished",
    ]
    assert told(line, 0) == [
        "0-10 running 4",
        "10-60 waiting 0",
        "60-65 paused 4",
        "65-155 running 4",
    ]


@pytest.mark.parametrize("job", range(5))
def test_time_is_complete(job: int) -> None:
    found = job_periods(FIVE, job)
    assert all(one.t1 == other.t0 for one, other in pairwise(found))
    assert sum(one.t1 - one.t0 for one in found if one.state == "waiting") == pytest.approx(
        FIVE.waited_s[job]
    )
