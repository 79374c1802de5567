"""A scripted allocator and a model that bends: what the kernel is exercised with when no real
policy is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, ClassVar, NamedTuple

import pandas as pd

from sim.clock import instant
from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.contract import (
    EMPTY,
    Cadence,
    Card,
    Delta,
    Floats,
    Gang,
    Grant,
    Ints,
    JobId,
    Needs,
    Part,
    Plan,
    Shape,
    Telemetry,
    View,
)
from sim.engine.faults import Faults
from sim.engine.simulator import Simulator
from sim.overheads import Overheads
from sim.perf.copy_cost import FREE
from sim.perf.model import Limits, PerfModel, Rate
from sim.perf.rigid import Rigid
from sim.result import RunResult
from sim.trace import Trace

Step = Plan | Mapping[JobId, Grant | None] | Callable[[View], Plan]
CARD = Card("Script", "Does what it is told.", "", "", "", "exact")


class Call(NamedTuple):
    """What the script was shown at one decision."""

    now_s: float
    delta: Delta
    waiting: list[int]
    running: list[int]


@dataclass
class Script:
    """Carries out plans at given times, wakes itself for them, and remembers what it was shown."""

    steps: Mapping[float, Step]
    cadence: Cadence = field(default_factory=Cadence)
    seamless: bool = True
    needs: Needs = field(default_factory=Needs)
    calls: list[Call] = field(default_factory=list)
    card: Card = CARD

    def __post_init__(self) -> None:
        self.steps = {instant(at): step for at, step in self.steps.items()}

    def allocate(self, view: View, /) -> Plan:
        self.calls.append(
            Call(view.now_s, view.delta, view.waiting.ids.tolist(), view.running.ids.tolist())
        )
        step = self.steps.get(view.now_s, EMPTY)
        plan = step if isinstance(step, Plan) else step(view) if callable(step) else Plan(step)
        moves = [job for job, grant in plan.changes.items() if grant is not None and self.seamless]
        return plan._replace(
            wake_at_s=min([plan.wake_at_s, *(at for at in self.steps if at > view.now_s)]),
            seamless=plan.seamless.union(moves),
        )

    @property
    def times(self) -> list[float]:
        return [call.now_s for call in self.calls]


@dataclass
class Greedy:
    """Starts every waiting job on the first node that holds all of it; knows nothing of earlier
    decisions.
    """

    cadence: Cadence = field(default_factory=Cadence)
    needs: Needs = field(default_factory=Needs)
    card: Card = CARD
    times: list[float] = field(default_factory=list)

    def allocate(self, view: View, /) -> Plan:
        self.times.append(view.now_s)
        changes: dict[JobId, Grant | None] = {}
        for job in view.waiting.ids.tolist():
            demand = view.demand(job)
            nodes = [
                node
                for at in demand.pools
                for node in view.room.pools[at].nodes
                if view.room.replicas_that_fit(node, demand) >= demand.replicas
            ]
            if nodes:
                changes[job] = on(
                    nodes[0], demand.replicas, demand.gpus, demand.cpus, demand.mem_gb
                )
                view.room.take(changes[job])
        return Plan(changes)


def on(node: int, count: int = 1, gpus: int = 1, cpus: float = 0.0, mem_gb: float = 0.0) -> Grant:
    """Return a grant of so many replicas on one node."""
    return across({node: count}, gpus, cpus, mem_gb)


def across(
    counts: Mapping[int, int], gpus: int = 1, cpus: float = 0.0, mem_gb: float = 0.0
) -> Grant:
    """Return a grant of one gang on several nodes."""
    return Grant((Gang(Part(tuple(counts), tuple(counts.values()), gpus, cpus, mem_gb)),))


def jobs(*rows: Sequence[float], **columns: Sequence[Any]) -> Trace:
    """Build a trace from (submit, GPUs, duration) rows and further columns."""
    frame = pd.DataFrame({"job_id": [f"j{at}" for at in range(len(rows))]})
    for at, name in enumerate(("submit_time_s", "num_gpus", "duration_s")):
        frame[name] = [row[at] for row in rows]
    return Trace.of(frame.assign(**columns))


def run(
    trace: Trace,
    cluster: str | Cluster,
    allocator: Any,
    overheads: Overheads | None = None,
    faults: Faults | None = None,
    **more: Any,
) -> RunResult:
    """Simulate."""
    machines = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    more.setdefault("perf", Rigid(**FREE))  # copies are worked by hand without a price
    conditions = Conditions(overheads=overheads or Overheads(), faults=faults or Faults(), **more)
    return Simulator(trace, machines, allocator, conditions).run()


def gantt(result: RunResult) -> list[str]:
    """Write every segment as one line: job, time, where, how it ended; pauses and the rate only
    where they are not 0 and 1.
    """
    lines = []
    rows = result.placements
    for at, segment in enumerate(result.segments.itertuples()):
        where = " ".join(
            f"n{row.node}x{row.count}" for row in rows[rows["segment"] == at].itertuples()
        )
        extra = (f" pause {segment.paused_s:g}" if segment.paused_s else "") + (
            f" rate {segment.rate:g}" if segment.rate != 1 else ""
        )
        lines.append(f"j{segment.job} {segment.t0:g}-{segment.t1:g} {where}{extra} {segment.ended}")
    return lines


@dataclass(frozen=True)
class Bends:
    """A performance model whose rate is any function of (job, grant, work done, instant); the work
    is the duration.
    """

    rate: Callable[[JobId, Grant, float, float], Rate]
    scales: ClassVar[bool] = True
    staffed: ClassVar[bool] = False

    def assumptions(self, trace: Trace) -> tuple[str, ...]:
        return ()

    def bind(self, trace: Trace, cluster: Cluster) -> BendingModel:
        return BendingModel(self.rate, Rigid().bind(trace, cluster), trace)


class BendingModel:
    """`Bends`, bound."""

    def __init__(
        self, rate: Callable[[JobId, Grant, float, float], Rate], rest: PerfModel, trace: Trace
    ) -> None:
        self.rate = rate
        self._rest, self._work = rest, trace.numbers("duration_s")

    def work(self) -> Floats:
        return self._work

    def limits(self) -> Limits:
        return self._rest.limits()

    def fastest(self) -> Floats:
        return self._rest.fastest()

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        return self._rest.rates(ids, shapes)

    def telemetry(self, job: JobId, grant: Grant, done: float, now_s: float) -> Telemetry:
        return self._rest.telemetry(job, grant, done, now_s)


__all__ = [
    "Bends",
    "Call",
    "Greedy",
    "Script",
    "across",
    "gantt",
    "inf",
    "jobs",
    "on",
    "replace",
    "run",
]
