"""Random situations in which to compare preemptive policies with the walk that defines them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from hypothesis import strategies as st

from allocators.placement import PLACEMENTS, Placer
from sim.cluster import Cluster, GpuType
from sim.contract import Cadence, Delta, JobId, Plan, View
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf.estimators import Biased, Exact
from sim.result import RunResult
from sim.trace import Trace
from tests.allocators.queue.oracle import Walk


def trace_of(jobs: Sequence[tuple[float, int, float]], **columns: list[Any]) -> Trace:
    """Jobs as (submission, GPUs, duration)."""
    submit, gpus, duration = zip(*jobs, strict=True)
    frame = pd.DataFrame(
        {
            "job_id": [f"j{at}" for at in range(len(jobs))],
            "submit_time_s": submit,
            "num_gpus": gpus,
            "duration_s": duration,
        }
    )
    return Trace.of(frame.assign(**columns))


def gantt(result: RunResult, tick_s: float = 1.0) -> str:
    """One line per job, one letter per tick: '#' runs, '.' waits, ' ' is not there."""
    lines = []
    for job, row in result.jobs.iterrows():
        ran = result.segments[result.segments["job"] == job]
        end = row["finish_s"] if row["finish_s"] == row["finish_s"] else result.end_s
        letters = ""
        for tick in range(round(end / tick_s)):
            middle = (tick + 0.5) * tick_s
            runs = bool(((ran["t0"] <= middle) & (middle < ran["t1"])).any())
            letters += "#" if runs else "." if middle >= row["submit_s"] else " "
        lines.append(letters)
    return "\n".join(lines)


def greedy(view: View, order: list[JobId]) -> set[JobId]:
    """Who runs if, from an empty cluster of one type, every job gets its gang if it fits, those
    first that must not be stopped.
    """
    free = int(view.capacity.sum())
    chosen: set[JobId] = set()
    fixed = [job for job in order if job in view.grants and not view.one("preemptible", job)]
    for job in [*fixed, *(job for job in order if job not in fixed)]:
        gpus = view.demand(job).replicas
        if gpus <= free:
            free -= gpus
            chosen.add(job)
    return chosen


class Compared:
    """Asks both at every decision, and follows the fast one."""

    def __init__(self, fast: Any, walk: Walk, *, counts: bool = False) -> None:
        self.fast, self.walk, self.counts = fast, walk, counts
        self.cadence, self.needs, self.card = fast.cadence, fast.needs, fast.card
        self.starts = self.moves = self.stops = 0

    def allocate(self, view: Any) -> Plan:
        expected = self.walk.allocate(view)
        view.room.undo()
        before = [list(masks) for masks in view.room.masks]
        plan: Plan = self.fast.allocate(view)
        assert dict(plan.changes) == expected, (view.now_s, dict(plan.changes), expected)
        started = {job for job, grant in plan.changes.items() if grant}
        # In the instant of an outage a job that it hit may stand before running ones of its queue,
        # which it must not stop.
        if self.counts and not view.delta.evicted:
            assert set(view.grants) - set(plan.changes) | started == greedy(view, self.walk.order)
        if not plan.changes:
            assert [list(masks) for masks in view.room.masks] == before
        self.starts += len(started - set(view.grants))
        self.moves += len(started & set(view.grants))
        self.stops += sum(grant is None for grant in plan.changes.values())
        return plan


class After:
    """Lets one allocator decide before an instant and another from then on, which finds jobs
    running and waiting that it has not seen.
    """

    cadence = Cadence()

    def __init__(self, at_s: float, first: Any, then: Any) -> None:
        self.at_s, self.first, self.then = at_s, first, then
        self.needs, self.card = first.needs | then.needs, then.card

    def allocate(self, view: Any) -> Plan:
        if view.now_s >= self.at_s and self.first is not self.then:
            self.first = self.then
            view.delta = Delta(tuple(view.waiting.ids.tolist()))
        plan: Plan = self.first.allocate(view)
        return plan


@dataclass(frozen=True)
class Situation:
    trace: Trace
    cluster: Cluster
    conditions: Conditions
    params: dict[str, Any]


TYPES = (GpuType("a", 1.0, 1.0), GpuType("b", 0.5, 0.2), GpuType("c", 2.0, 5.0))
CLUSTERS = ("1x8:a", "2x4:a", "4x2:b", "3x4:a,2x4:b", "1x2:a,2x4:b,1x4:c")
MIGRATE = st.sampled_from(["upgrade", "upgrade", "never"])
LIMITED = ("2x4:a/8c/16g", "1x4:a/4c/64g,2x2:b/8c/8g")


def clusters(spec: str) -> Cluster:
    parsed = Cluster.parse(spec)
    used = {group.gpu_type for group in parsed.groups}
    return Cluster(parsed.groups, tuple(kind for kind in TYPES if kind.name in used))


@st.composite
def situations(
    draw: st.DrawFn, *, simple: bool = False, pauses: bool = False, migrate: bool = False
) -> Situation:
    """Small traces with whole seconds and speeds that are powers of two, so that all arithmetic is
    exact.

    Parameters of every queue policy, and with `migrate` that of the preemptive ones.
    """
    n = draw(st.integers(2, 14))
    limited = not simple and draw(st.booleans())
    cluster = clusters(
        draw(st.sampled_from(CLUSTERS[:3] if simple else LIMITED if limited else CLUSTERS))
    )
    many = lambda values: draw(st.lists(values, min_size=n, max_size=n))  # noqa: E731
    jobs = list(
        zip(
            many(st.integers(0, 40)),
            many(st.sampled_from([1, 1, 1, 2, 2, 3, 4, 6, 8])),
            many(st.integers(1, 60)),
            strict=True,
        )
    )
    columns: dict[str, list[Any]] = {}
    if draw(st.booleans()):
        columns["preemptible"] = many(st.sampled_from([1.0, 1.0, 1.0, 0.0]))
    if limited:
        columns["cpus"] = many(st.sampled_from([0.0, 2.0, 4.0, 8.0]))
        columns["mem_gb"] = many(st.sampled_from([0.0, 8.0, 16.0]))
    if not simple and draw(st.booleans()):
        columns["gpu_types_allowed"] = many(st.sampled_from([None, None, "a", "b", "a|b"]))
    outages = [
        f"{draw(st.integers(0, len(cluster.nodes) - 1))}:{(start := draw(st.integers(0, 60)))}:{start + draw(st.integers(1, 30))}"  # noqa: E501
        for _ in range(draw(st.integers(0, 2)))
    ]
    params = {"backfill": draw(st.sampled_from(["first_fit", "first_fit", "none"]))}
    if not simple:
        params |= {
            "placement": draw(st.sampled_from(PLACEMENTS)),
            "types": draw(st.sampled_from(["fastest", "cheapest"])),
            "mix": draw(st.booleans()),
        }
        if migrate:
            params["migrate"] = draw(st.sampled_from(["upgrade", "upgrade", "never"]))
    overheads = Overheads(
        restart_s=draw(st.sampled_from([0.0, 1.0])) if pauses else 0.0,
        start_s=draw(st.sampled_from([0.0, 2.0])) if pauses else 0.0,
        # A moved job would lose its work too, which the policy learns only at its believed finish.
        on_preempt=(
            draw(st.sampled_from(["checkpoint", "lose_all", "forbidden"]))
            if simple
            else "checkpoint"
        ),
    )
    estimator = draw(st.sampled_from([Exact(), Biased(0.5), Biased(2.0)]))
    conditions = Conditions(
        estimator=estimator, overheads=overheads, faults=Faults(outages=";".join(outages))
    )
    return Situation(trace_of(jobs, **columns), cluster, conditions, params)


def compare(situation: Situation, fast: Any, walk: Walk, *, counts: bool = False) -> Compared:
    compared = Compared(fast, walk, counts=counts and situation.params["backfill"] == "first_fit")
    result = Simulator(situation.trace, situation.cluster, compared, situation.conditions).run()
    assert set(result.jobs["outcome"]) <= {"completed", "impossible"}
    return compared


def placer(params: dict[str, Any]) -> Placer:
    return Placer(
        params.get("placement", "fewest"), params.get("types", "fastest"), params.get("mix", False)
    )
