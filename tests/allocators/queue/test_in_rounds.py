"""Any policy in rounds: `allocators.queue.rounds`."""

from __future__ import annotations

import dataclasses

import pytest

from allocators import REGISTRY, make
from allocators.queue.rounds import Rounds
from sim.cluster import Change, Cluster
from sim.contract import Allocator, ParameterError, Spec
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.result import RunResult
from tests.allocators.queue.test_wrappers import Periodic, Sleeper, homes, random_trace, run
from tests.allocators.queue.walk import gantt, trace_of

ONE = Cluster.parse("1x1:v100")


def chart(
    spec: str, jobs: list[tuple[float, int, float]], conditions: Conditions | None = None
) -> list[str]:
    return gantt(run(spec, trace_of(jobs), ONE, conditions)).splitlines()


def with_inside(inner: Allocator, every_s: float) -> Rounds:
    made = Rounds(every_s=every_s)
    made.assemble(lambda spec: inner)
    return made


def test_jobs_start_when_a_round_begins() -> None:
    # Rounds of 10 s. Job 0 runs from 0 to 4. Job 1 came at 1 and starts at 10, job 2 came at 12,
    # with the GPU idle from 13 on, and starts at 20.
    assert chart("rounds:every_s=10", [(0, 1, 4), (1, 1, 3), (12, 1, 5)]) == [
        "####",
        " .........###",
        "            ........#####",
    ]


def test_all_that_gathered_in_a_round_is_weighed_at_once() -> None:
    # At 10 jobs 1 (8 s) and 2 (2 s) wait. The shorter one goes first, though the GPU was idle from
    # 5 on and job 1 came first; job 1 follows at 20, not at 12.
    assert chart("rounds:every_s=10,inner=sjf()", [(0, 1, 5), (1, 1, 8), (6, 1, 2)]) == [
        "#####",
        " ...................########",
        "      ....##",
    ]


def test_jobs_are_stopped_when_a_round_begins() -> None:
    # At 10 job 0 needs 20 s more and job 1 5 s: job 1 runs from 10 to 15, job 0 again from 20.
    assert chart("rounds:every_s=10,inner=srtf()", [(0, 1, 30), (3, 1, 5)]) == [
        "##########..........####################",
        "   .......#####",
    ]


def test_a_wake_up_is_put_off_to_the_next_round() -> None:
    # Job 0 has attained 12 GPU-s at 12, which counts at 20: job 1 runs from 20 to 24, and job 0
    # does the other 20 of its 40 s from 30 on.
    assert chart("rounds:every_s=10,inner=las(thresholds=12)", [(0, 1, 40), (1, 1, 4)]) == [
        "####################..........####################",
        " ...................####",
    ]


def test_what_a_failure_stopped_starts_again_in_the_next_round() -> None:
    # The node is down from 3 to 5; job 0 has lost 3 s and has the GPU again from 10 to 18.
    assert chart("rounds:every_s=10", [(0, 1, 8)], Conditions(faults=Faults(outages="0:3:5"))) == [
        "###.......########"
    ]


def test_nothing_is_decided_when_a_plan_lands_in_the_middle_of_a_round() -> None:
    # A decision takes 4 s. That of 0 lands at 4, that of 10 at 14. Job 2 comes at 12: it is decided
    # on at 20, though there is room at 14, and starts at 24.
    slow = Conditions(overheads=Overheads(latency_s=4))
    result = run(
        "rounds:every_s=10",
        trace_of([(0, 1, 50), (1, 1, 50), (12, 1, 50)]),
        Cluster.parse("1x3:v100"),
        slow,
    )
    assert result.jobs["first_start_s"].tolist() == [4, 14, 24]


def test_installed_in_the_middle_of_a_round() -> None:
    # FIFO alone would start job 1 at 15. From 13 on there are rounds: at 20.
    assert chart("switch:at_s=13,then=rounds(every_s=10)", [(0, 1, 15), (1, 1, 3)]) == [
        "###############",
        " ...................###",
    ]


def test_it_ends_with_the_switch_to_another() -> None:
    # Job 1 would wait until 20; at 13 FIFO takes over, which starts it at once.
    assert chart(
        "switch:at_s=13,first=rounds(every_s=10),then=fifo()", [(0, 1, 3), (11, 1, 3)]
    ) == [
        "###",
        "           ..###",
    ]


def test_own_ticks_are_put_off_to_the_next_round() -> None:
    # The policy inside ticks every 7 s, rounds of 5 s begin at 0, 10 (for 7), 15 (for 14), 25 (for
    # 21) and 30 (for 28).
    inner = Periodic(7.0)
    Simulator(trace_of([(0, 1, 33)]), ONE, with_inside(inner, 5.0)).run()
    assert [now_s for now_s, _ in inner.calls] == [0, 10, 15, 25, 30]


def test_a_wake_up_keeps_the_run_alive() -> None:
    # The policy inside starts a job 2.5 s after its arrival: when the next round begins, though
    # nothing else happens until then. It hears at 20 of the end at 11.
    inner = Sleeper()
    result = Simulator(trace_of([(0, 1, 1), (27, 1, 1)]), ONE, with_inside(inner, 10.0)).run()
    assert result.jobs["first_start_s"].tolist() == [10, 30]
    assert [now_s for now_s, _ in inner.calls] == [0, 10, 20, 30]


def test_ticks_far_apart_keep_the_run_alive() -> None:
    # The policy inside looks every 72 s: job 1, which came at 1, starts when the first round after
    # that begins, at 75, though a run is given up that waits for three rounds in vain. So is this
    # one for job 2, after three looks: node 1 is gone from 2 on.
    inner = Periodic(72.0)
    cluster = dataclasses.replace(
        homes((1, 1, ()), (1, 2, ())), changes=(Change(2.0, (1,), False),)
    )
    result = Simulator(
        trace_of([(0, 1, 3), (1, 1, 3), (1, 2, 3)]), cluster, with_inside(inner, 5.0)
    ).run()
    assert result.jobs["first_start_s"].tolist()[:2] == [0, 75]
    assert result.jobs["outcome"].tolist() == ["completed", "completed", "unfinished"]
    assert result.end_s < 400


def test_rounds_in_a_part_are_those_of_the_whole() -> None:
    trace = trace_of([(0, 1, 4), (3, 1, 4)], vc=["a", "b"])
    result = run("partition:inner=rounds(every_s=10)", trace, homes((1, 1, ("a",)), (1, 1, ("b",))))
    assert result.jobs["first_start_s"].tolist() == [0, 10]


@pytest.mark.parametrize(
    "inner", [name for name in REGISTRY if name not in {"partition", "switch", "recorded"}]
)
def test_nothing_begins_or_is_stopped_between_two_rounds(inner: str) -> None:
    for faults in (Faults(), Faults(mtbf_h=0.05, mttr_h=0.01)):
        result = run(
            f"rounds:every_s=20,inner={inner}()",
            random_trace(3),
            homes((2, 4, ())),
            Conditions(faults=faults, seed=1),
        )
        assert set(result.jobs["outcome"]) == {"completed"}
        assert starts_and_stops(result)
        assert not [at_s for at_s in starts_and_stops(result) if at_s % 20]


def starts_and_stops(result: RunResult) -> list[float]:
    segments = result.segments
    stops = segments.loc[segments["ended"] == "preempted", "t1"].tolist()
    return [*result.jobs["first_start_s"].tolist(), *stops]


def test_wrong_insides_are_refused_at_once() -> None:
    with pytest.raises(ParameterError, match="There is no policy 'nobody'"):
        make(Spec.parse("rounds:inner=nobody()"))
    with pytest.raises(ParameterError, match="rounds: every_s"):
        make(Spec.parse("rounds:every_s=0"))
    with pytest.raises(ParameterError, match="not built yet"):
        _ = Rounds().needs
