from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allocators import REGISTRY, make
from allocators.inner_policies import is_tick, next_tick
from allocators.placement import RUN_TIME_NEEDS
from allocators.queue.wrappers import Partition, Switch
from sim.cluster import Cluster, NodeGroup
from sim.contract import (
    EMPTY,
    Allocator,
    Cadence,
    Card,
    JobId,
    Needs,
    ParameterError,
    Plan,
    Spec,
    View,
    parameters,
)
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.result import RunResult
from sim.trace import Trace
from tests.allocators.queue.walk import gantt, trace_of
from tests.conformance import DRAWN


def run(
    spec: str, trace: Trace, cluster: Cluster, conditions: Conditions | None = None
) -> RunResult:
    return Simulator(trace, cluster, make(Spec.parse(spec)), conditions).run()


def homes(*sizes: tuple[int, int, tuple[str, ...]]) -> Cluster:
    return Cluster(
        tuple(NodeGroup(count, gpus, "v100", partitions=names) for count, gpus, names in sizes)
    )


# -- Partition
# --------------------------------------------------------------------------------------------------


def test_each_part_has_a_queue_of_its_own() -> None:
    # a and b have 2 GPUs each. Job 1 (a) waits for job 0 (a) until 4; job 2 (b) starts although it
    # came later; job 3 (b) waits for it. FIFO on all 4 GPUs would have started job 1 at once.
    trace = trace_of([(0, 2, 4), (1, 1, 2), (2, 2, 3), (2, 1, 1)], vc=["a", "a", "b", "b"])
    assert gantt(run("partition", trace, homes((1, 2, ("a",)), (1, 2, ("b",))))).splitlines() == [
        "####",
        " ...##",
        "  ###",
        "  ...#",
    ]


def test_nodes_without_a_name_are_shared() -> None:
    # One node of a, one of nobody. Job 0 (a) takes a's node, job 1 (a) the shared one until 3. Job
    # 2 (b) has only the shared one: it waits, and starts as soon as job 1 has left, because room
    # given back by others is news of that node.
    trace = trace_of([(0, 2, 6), (0, 2, 3), (1, 2, 2)], vc=["a", "a", "b"])
    assert gantt(run("partition", trace, homes((1, 2, ("a",)), (1, 2, ())))).splitlines() == [
        "######",
        "###",
        " ..##",
    ]


def test_a_job_without_a_home_goes_anywhere() -> None:
    trace = trace_of([(0, 2, 6), (0, 2, 3)], vc=["a", None])
    assert run("partition", trace, homes((1, 2, ("b",)), (1, 2, ("a",)))).jobs[
        "first_start_s"
    ].tolist() == [0, 0]


def test_larger_than_its_part_is_impossible() -> None:
    trace = trace_of([(0, 3, 6), (0, 2, 3)], vc=["a", "b"])
    assert run("partition", trace, homes((1, 2, ("a",)), (1, 2, ("b",)))).jobs[
        "outcome"
    ].tolist() == ["impossible", "completed"]


def test_the_column_is_a_choice() -> None:
    trace = trace_of([(0, 2, 4), (1, 2, 2)], vc=["a", "a"], partition=["b", "a"])
    cluster = homes((1, 2, ("a",)), (1, 2, ("b",)))
    assert run("partition", trace, cluster).jobs["first_start_s"].tolist() == [0, 4]
    assert run("partition:by=partition", trace, cluster).jobs["first_start_s"].tolist() == [0, 1]


def test_what_an_inside_refuses_is_refused() -> None:
    trace = trace_of(
        [(0, 1, 4), (0, 1, 4), (1, 1, 4)], vc=["a", "b", "a"], start_time_s=[2, None, None]
    )
    result = run("partition:inner=recorded()", trace, homes((1, 2, ("a",)), (1, 2, ("b",))))
    assert result.jobs["outcome"].tolist() == ["completed", "refused", "refused"]


POLICIES = [name for name in REGISTRY if name not in {"partition", "switch", "recorded"}]


def random_trace(seed: int, jobs: int = 60, names: tuple[str, ...] = ("a", "b", "c")) -> Trace:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "job_id": [f"j{at}" for at in range(jobs)],
            "submit_time_s": np.concatenate(
                [[0.0], np.sort(rng.choice(4000, jobs - 1, replace=False) / 4)]
            ),
            "num_gpus": rng.choice([1, 1, 2, 3, 4], jobs),
            "duration_s": rng.integers(1, 200, jobs) / 4,
            "vc": rng.choice(names, jobs),
        }
    )
    return Trace.of(frame)


# A clock that ticks from the first submission of all is another one than that of a part, and so is
# one whose phase is drawn.
@pytest.mark.parametrize(
    "inner",
    [name for name in POLICIES if make(Spec(name)).cadence.every_s == inf and name not in DRAWN],
)
def test_separate_parts_do_what_separate_runs_do(inner: str) -> None:
    trace = random_trace(1)
    together = run(
        f"partition:inner={inner}()", trace, homes((2, 2, ("a",)), (1, 4, ("b",)), (2, 2, ("c",)))
    )
    for name, size in {"a": (2, 2), "b": (1, 4), "c": (2, 2)}.items():
        rows = np.flatnonzero(trace.frame["vc"] == name)
        first_s = trace.frame["submit_time_s"].iloc[rows[0]]
        alone = run(inner, Trace.of(trace.frame.iloc[rows]), homes((*size, ())))
        for column in ("first_start_s", "finish_s"):
            np.testing.assert_allclose(
                together.jobs[column].to_numpy()[rows],
                alone.jobs[column].to_numpy() + first_s,
                atol=2e-3,
            )


@dataclass
class Curious:
    """Reads tables at every call, every 7 s, on its own wake-ups, and starts whatever fits; checks
    that it sees its own jobs only.
    """

    calls: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)
    needs = Needs(frozenset({"remaining_work"}))
    cadence = Cadence(on_finish=False, every_s=7.0)
    card = Card("Curious", "A.", "B.", "C.", "D", "exact")

    def allocate(self, view: View) -> Plan:
        codes = {int(view.one("vc", job)) for job in view.active.ids.tolist()}
        assert len(codes) <= 1
        for table in (view.waiting, view.running, view.active):
            assert (
                len(table)
                == len(table.ids)
                == len(table.gpus)
                == len(table.remaining_work)
                == len(table.preemptible)
            )
            assert table.column("vc").tolist() == [
                view.one("vc", job) for job in table.ids.tolist()
            ]
            assert table.remaining_work.tolist() == [
                view.one("remaining_work", job) for job in table.ids.tolist()
            ]
            with pytest.raises(ValueError, match="read-only"):
                table.gpus[:] = 0
        assert (
            sorted(view.grants)
            == view.running.ids.tolist()
            == sorted({*view.active.ids.tolist()} - {*view.waiting.ids.tolist()})
        )
        assert all(view.grants[job].gangs for job in view.grants)
        assert -1 not in view.grants
        assert not hasattr(view.active, "_anything")
        assert (view.free_gpus <= view.capacity).all()
        self.calls.append((view.now_s, tuple(view.active.ids.tolist())))
        return EMPTY


def partition_of(allocators: Iterator[Allocator], **params: Any) -> Partition:
    made = Partition(**params)
    made.assemble(lambda spec: next(allocators))
    return made


def test_each_sees_only_what_is_its_own_and_is_asked_only_when_concerned() -> None:
    inner = [Curious() for _ in range(3)]
    trace = trace_of([(0, 1, 5), (3, 1, 5), (10, 1, 5)], vc=["a", "b", "a"])
    Simulator(
        trace,
        homes((1, 2, ("a",)), (1, 2, ("b",))),
        partition_of(iter(inner)),
        Conditions(horizon_s=22),
    ).run()
    model, a, b = inner
    assert model.calls == []
    assert a.calls == [(0, (0,)), (7, (0,)), (10, (0, 2)), (14, (0, 2)), (21, (0, 2))]
    assert b.calls == [(3, (1,)), (7, (1,)), (14, (1,)), (21, (1,))]


def test_rooms_of_others_look_empty() -> None:
    seen: dict[str, tuple[list[int], list[int]]] = {}

    class Looking(Curious):
        def allocate(self, view: View) -> Plan:
            name = view.names("vc")[int(view.one("vc", view.active.ids.tolist()[0]))]
            seen[name] = view.capacity.tolist(), view.free_gpus.tolist()
            assert (
                view.free_cpus.tolist()
                == [inf if gpus else 0 for gpus in view.capacity.tolist()]
                == view.free_mem_gb.tolist()
            )
            return EMPTY

    trace = trace_of([(0, 1, 5), (0, 1, 5)], vc=["a", "b"])
    cluster = homes((1, 2, ("a",)), (1, 3, ("b",)), (1, 4, ()), (1, 5, ("a", "b")))
    Simulator(
        trace, cluster, partition_of(Looking() for _ in range(3)), Conditions(horizon_s=1)
    ).run()
    assert seen == {"a": ([2, 0, 4, 5],) * 2, "b": ([0, 3, 4, 5],) * 2}


class Sleeper(Curious):
    """Starts its first job only at the wake-up that it asked for, 2.5 s after the arrival."""

    cadence = Cadence()
    needs = Needs()

    def allocate(self, view: View) -> Plan:
        waiting: list[JobId] = view.waiting.ids.tolist()
        due = [job for job in waiting if view.one("arrival_s", job) + 2.5 <= view.now_s]
        self.calls.append((view.now_s, tuple(waiting)))
        later = [view.one("arrival_s", job) + 2.5 for job in waiting if job not in due]
        place = make(Spec("fifo"))._place  # type: ignore[attr-defined]
        return Plan(
            {job: place(view, view.demand(job)) for job in due},
            wake_at_s=min(later, default=inf),
            notes={"due": len(due)},
        )


def test_each_keeps_its_own_wake_up_and_its_notes() -> None:
    trace = trace_of([(0, 1, 5), (1, 1, 5), (4, 1, 1)], vc=["a", "b", "a"])
    _, a, b = insides = [Sleeper() for _ in range(3)]
    result = Simulator(
        trace, homes((1, 2, ("a",)), (1, 2, ("b",))), partition_of(iter(insides))
    ).run()
    assert result.jobs["first_start_s"].tolist() == [2.5, 3.5, 6.5]
    # a: arrivals at 0 and 4, wake-ups at 2.5 and 6.5, ends at 7.5 (both); b: arrival at 1, wake-up
    # at 3.5, end at 8.5, which is the end of the run.
    assert [now_s for now_s, _ in a.calls] == [0, 2.5, 4, 6.5, 7.5]
    assert [now_s for now_s, _ in b.calls][:2] == [1, 3.5]
    assert len(b.calls) <= 3
    assert set(result.notes["name"]) == {"a.due", "b.due"}


@pytest.mark.parametrize(
    "inner", [name for name in POLICIES if make(Spec(name)).needs.confine_by in {"", "vc"}]
)
@given(st.integers(0, 10_000))
@example(177)  # the only node of a part is down when its jobs come
@settings(max_examples=4, deadline=None)
def test_overlapping_parts_finish_with_failures_on(inner: str, seed: int) -> None:
    trace = random_trace(seed, 40, ("a", "b", "c", ""))
    cluster = homes((1, 4, ("a",)), (1, 4, ("a", "b")), (2, 2, ()), (1, 4, ("c",)))
    result = run(
        f"partition:inner={inner}()",
        trace,
        cluster,
        Conditions(faults=Faults(mtbf_h=0.05, mttr_h=0.01), seed=seed),
    )
    assert set(result.jobs["outcome"]) == {"completed"}


def test_cost_does_not_grow_with_the_parts() -> None:
    # 40 parts, each with a job that waits for ever behind a running one; one part is busy. Only
    # that one's allocator is asked.
    class Counting(Curious):
        cadence = Cadence()
        asked = 0

        def __init__(self) -> None:
            super().__init__()
            self.fifo = make(Spec("fifo"))

        def allocate(self, view: View) -> Plan:
            Counting.asked += 1
            return self.fifo.allocate(view)

    quiet = [(0, 1, 1e6) for _ in range(40)] + [(0, 1, 1) for _ in range(40)]
    busy = [(float(at), 1, 0.5) for at in range(1, 201)]
    names = [f"p{at}" for at in range(40)] * 2 + ["busy"] * 200
    cluster = homes(*((1, 1, (name,)) for name in [*names[:40], "busy"]))
    Simulator(
        trace_of(quiet + busy, vc=names),
        cluster,
        partition_of(Counting() for _ in range(50)),
        Conditions(horizon_s=300),
    ).run()
    assert Counting.asked == 40 + 400


# -- Switch
# --------------------------------------------------------------------------------------------------


def test_switch_by_hand() -> None:
    # One node of 4. FIFO: job 1 (4 GPUs) blocks jobs 2 and 3 behind it. At 5 EASY takes over: job 0
    # ends at 10, so job 3 (until 5 + 3) passes, job 2 (until 14) does not.
    trace = trace_of([(0, 3, 10), (1, 4, 5), (2, 1, 9), (3, 1, 3)])
    result = run("switch:at_s=5", trace, Cluster.parse("1x4:v100"))
    assert gantt(result).splitlines() == [
        "##########",
        " .........#####",
        "  .............#########",
        "   ..###",
    ]
    assert result.remarks == ()
    # The last decision is at 15, when job 2 starts.
    never = run("switch:at_s=50", trace, Cluster.parse("1x4:v100")).remarks
    assert never[0].startswith("switch never changed: nothing was left to decide at 50 s")


def test_at_the_instant_itself_the_second_decides() -> None:
    # At 4 job 0 leaves and the switch is due: SJF sees both waiting jobs and takes the shorter one,
    # FIFO would have taken job 1.
    trace = trace_of([(0, 1, 4), (1, 1, 5), (2, 1, 2)])
    assert run("switch:at_s=4,then=sjf()", trace, Cluster.parse("1x1:v100")).jobs[
        "first_start_s"
    ].tolist() == [0, 6, 4]


def until(result: RunResult, at_s: float) -> pd.DataFrame:
    segments = result.segments[result.segments["t0"] < at_s].copy()
    segments.loc[segments["t1"] >= at_s, ["t1", "ended", "paused_s"]] = None
    return segments.sort_values(["job", "t0"]).reset_index(drop=True)[["job", "t0", "t1", "gpus"]]


@pytest.mark.parametrize(
    "first",
    [f"{name}()" for name in POLICIES]
    + ["partition(inner=srtf())", "switch(at_s=100,first=sjf(),then=las())"],
)
@pytest.mark.parametrize("then", ["fifo()", "srtf()"])
def test_what_was_before_is_as_if_nothing_happened_after(first: str, then: str) -> None:
    trace, cluster = random_trace(2), homes((2, 4, ()))
    at_s = 400.25
    switched = run(f"switch:at_s={at_s},first={first},then={then}", trace, cluster)
    pd.testing.assert_frame_equal(
        until(switched, at_s), until(Simulator(trace, cluster, make(Spec.parse(first))).run(), at_s)
    )
    assert set(switched.jobs["outcome"]) == {"completed"}


class Periodic(Curious):
    needs = Needs()

    def __init__(self, every_s: float) -> None:
        super().__init__()
        self.fifo = make(Spec("fifo"))
        self.cadence = Cadence(False, False, False, every_s)  # type: ignore[misc]

    def allocate(self, view: View) -> Plan:
        self.calls.append((view.now_s, view.delta.arrived))
        return self.fifo.allocate(view)


def test_ticks() -> None:
    assert [next_tick(now_s, 3.0) for now_s in (0.0, 2.5, 3.0, 3.1)] == [3.0, 3.0, 6.0, 6.0]
    assert next_tick(5.0, inf) == inf
    assert [is_tick(now_s, 0.1) for now_s in (0.0, 0.3, 0.300001)] == [True, True, False]
    assert not is_tick(5.0, inf)


def test_each_keeps_its_own_period() -> None:
    # The first is asked every 3 s up to 10, the second every 4 s from then on, and once when it is
    # installed, with all that wait.
    first, then = Periodic(3.0), Periodic(4.0)
    made = Switch(at_s=10)
    made.assemble(lambda spec: first if spec.name == "fifo" else then)
    assert made.cadence.every_s == 4.0
    trace = trace_of([(0, 1, 30), (1, 1, 2), (4, 1, 2), (5, 2, 2), (11, 1, 1)])
    Simulator(trace, Cluster.parse("1x2:v100"), made, Conditions(horizon_s=17)).run()
    assert [now_s for now_s, _ in first.calls] == [0, 3, 6, 9]
    # Jobs 1 (3..5) and 2 (6..8) have run; job 3 wants both GPUs.
    assert then.calls == [(10, (3,)), (12, (4,)), (16, ())]


def test_an_allocator_without_a_period_gets_none_from_the_other() -> None:
    first, then = Periodic(inf), Periodic(4.0)
    first.cadence = Cadence()  # type: ignore[misc]
    made = Switch(at_s=10)
    made.assemble(lambda spec: first if spec.name == "fifo" else then)
    Simulator(
        trace_of([(0, 1, 30), (1, 1, 2)]), Cluster.parse("1x2:v100"), made, Conditions(horizon_s=13)
    ).run()
    assert [now_s for now_s, _ in first.calls] == [0, 1, 3]
    assert [now_s for now_s, _ in then.calls] == [10, 12]


def test_what_only_the_first_could_place_is_refused() -> None:
    # Recorded starts may use an overflow node: job 1 (8 GPUs on a cluster of 4) would have started
    # at 20. After the switch at 10 nobody can place it.
    trace = trace_of([(0, 1, 5), (1, 8, 5), (2, 1, 5), (12, 8, 5)], start_time_s=[2, 20, 30, 40])
    result = run("switch:at_s=10,first=recorded(),then=fifo()", trace, Cluster.parse("1x4:v100"))
    assert result.jobs["outcome"].tolist() == ["completed", "refused", "completed", "refused"]
    assert result.jobs["first_start_s"].tolist()[:3:2] == [2, 10]


# -- both
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("partition:inner=nobody()", "There is no policy 'nobody'"),
        ("partition:inner=fifo(backfill=neither)", "fifo: backfill = neither is not one of none"),
        ("partition:inner=partition(by=partition)", "confines jobs by another column"),
        ("switch:first=nobody()", "There is no policy 'nobody'"),
        (
            "switch:first=partition(),then=partition(by=partition)",
            "confine jobs by different columns",
        ),
        ("switch:at_s=-1", "outside 0 to inf"),
    ],
)
def test_wrong_insides_are_refused_at_once(spec: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make(Spec.parse(spec))


@pytest.mark.parametrize("cls", [Partition, Switch])
def test_without_insides_it_says_so(cls: type[Partition] | type[Switch]) -> None:
    with pytest.raises(ParameterError, match="not built yet"):
        _ = cls().needs
    with pytest.raises(ParameterError, match="not built yet"):
        _ = cls().cadence


def test_insides_are_written_down_as_specs() -> None:
    text = "partition:inner=switch(at_s=5,first=fifo(backfill=first_fit),then=sjf())"
    made = make(Spec.parse(text))
    assert (
        str(
            Spec.of(
                "partition",
                **{
                    info.name: getattr(made, info.name)
                    for info in parameters(Partition)
                    if info.name == "inner"
                },
            )
        )
        == text
    )
    assert made.needs == Needs(RUN_TIME_NEEDS, confine_by="vc")


def test_what_one_part_has_to_say_names_the_part() -> None:
    # Part a has 2 GPUs: job 1 waits for both, job 2 passes it. In part b there is nobody to pass.
    rows = [(0, 1, 10), (1, 2, 5), (2, 1, 2), (0, 1, 4)]
    trace = trace_of(rows, vc=["a", "a", "a", "b"])
    result = run("partition:inner=easy", trace, homes((1, 2, ("a",)), (1, 2, ("b",))))
    nothing = "EASY backfilled nothing: the schedule is that of FIFO."
    assert result.remarks == (f"b: {nothing}",)
    alone = trace_of([(0, 1, 10), (0, 1, 4)], vc=["a", "b"])
    both = run("partition:inner=easy", alone, homes((1, 2, ("a",)), (1, 2, ("b",))))
    assert both.remarks == (nothing,)
