from __future__ import annotations

import pytest

from allocators import make
from allocators.placement import Placer
from sim.cluster import Cluster
from sim.contract import Demand, Spec
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from tests.allocators.queue.walk import gantt, trace_of

# (submission, GPUs, duration) on one node of 4 GPUs.
JOBS = [(0, 3, 4), (1, 2, 3), (2, 1, 2), (2, 1, 5)]


def chart(spec: str, conditions: Conditions | None = None, **columns: list[object]) -> str:
    trace = trace_of(JOBS, **columns)
    return gantt(
        Simulator(trace, Cluster.parse("1x4:v100"), make(Spec.parse(spec)), conditions).run()
    )


def test_the_first_that_has_no_room_holds_up_the_others() -> None:
    # Job 0 leaves 1 GPU free, job 1 needs 2: it waits until 4, and jobs 2 and 3, which would fit,
    # wait behind it. At 4 all three fit (2 + 1 + 1).
    assert chart("fifo").splitlines() == [
        "####",
        " ...###",
        "  ..##",
        "  ..#####",
    ]


def test_others_may_pass_it() -> None:
    # At 2 job 2 takes the free GPU and ends at 4, when job 0 ends too; then jobs 1 (2 GPUs) and 3
    # (1 GPU) fit.
    assert chart("fifo:backfill=first_fit").splitlines() == [
        "####",
        " ...###",
        "  ##",
        "  ..#####",
    ]


def test_priority_goes_before_submission() -> None:
    # Job 3 has priority: at 2 it is the head of the queue, takes the free GPU and keeps it until 7.
    # At 4 job 1 (2 GPUs) and job 2 (1) fit beside it.
    assert chart("fifo:order=priority", priority=[0, 0, 0, 1]).splitlines() == [
        "####",
        " ...###",
        "  ..##",
        "  #####",
    ]


def test_of_equal_priority_the_earlier_goes_first() -> None:
    assert chart("fifo:order=priority", priority=[5, 5, 5, 5]) == chart("fifo")


def test_an_evicted_job_queues_at_its_old_place() -> None:
    # The node is down from 3 to 5: job 0 has lost its 3 s and is still the first; at 5 it starts
    # again (3 GPUs), and again nobody fits behind job 1.
    outage = Conditions(faults=Faults(outages="0:3:5"))
    assert chart("fifo", outage).splitlines() == [
        "###..####",
        " ........###",
        "  .......##",
        "  .......#####",
    ]


@pytest.mark.parametrize("backfill", ["none", "first_fit"])
def test_a_blocked_queue_is_looked_at_again_only_when_something_came_free(
    backfill: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One GPU stays free all the time, the queue wants two; every arrival asks, but only the first
    # of the demand is ever tried.
    trace = trace_of([(0, 3, 1000), *((at, 2, 1) for at in range(1, 400))])
    tried: list[Demand] = []
    place = Placer.__call__
    monkeypatch.setattr(
        Placer,
        "__call__",
        lambda self, view, demand: tried.append(demand) or place(self, view, demand),
    )  # type: ignore[func-returns-value]
    Simulator(
        trace,
        Cluster.parse("1x4:v100"),
        make(Spec.of("fifo", backfill=backfill)),
        Conditions(horizon_s=500),
    ).run()
    assert len(tried) == 2
