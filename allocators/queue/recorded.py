"""Replays the start times that the trace itself recorded: what happened, beside what if."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from allocators.placement import Placer, mix_param, placement_param, types_param
from sim.contract import (
    EMPTY,
    LATEST_S,
    Allocator,
    Cadence,
    Card,
    Decided,
    Demand,
    Gang,
    Grant,
    JobId,
    Needs,
    Part,
    Plan,
    Reason,
    View,
)


@dataclass
class Recorded(Allocator):
    """Start every job exactly when the trace says that it started.

    Notes
    -----
    A job goes to the GPU type on which its run time was recorded, where the trace names it and that
    type has room; else to the type that ``types`` prefers. Where the described cluster has no room,
    the whole gang goes to the unpriced overflow node; the time spent there says when and by how
    much the described cluster would not have done. A start before the submission happens at the
    submission; an evicted job, whose start is over, starts again at once; a job without a recorded
    start, or with one after the clock ends, is refused. The start is exact, the end follows the
    performance model.
    """

    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    _due: list[tuple[float, JobId]] = field(init=False, repr=False, default_factory=list)
    _place: Placer = field(init=False, repr=False)

    cadence = Cadence(on_finish=True, on_capacity=False)
    card = Card(
        title="Recorded schedule",
        brief="what the trace says was done",
        what="Starts every job at its recorded start.",
        cost="No decisions: it shows what happened, not what could have happened.",
        limits=(
            "Jobs without a recorded start are rejected. Where the described cluster is too"
            " small, a job runs on an overflow node."
        ),
        source="The trace",
        certainty="exact",
        goals=("baseline",),
        how=(
            "Every job starts when the trace says that it started.",
            "It goes to the GPU type on which it was recorded, if that has room.",
            (
                "Where the described cluster has no room, the whole job runs on an overflow node,"
                " which is counted."
            ),
            "When it ends follows from its duration and the performance model.",
        ),
    )

    def __post_init__(self) -> None:
        """Prepare the placement."""
        self._place = Placer(self.placement, self.types, self.mix)

    @property
    def needs(self) -> Needs:
        """Recorded starts, and somewhere to go where the cluster is too small."""
        return Needs(frozenset({"recorded_start"}), frozenset({"overflow"}), mixes_types=self.mix)

    def allocate(self, view: View, /) -> Plan:
        """Start what is due."""
        delta, due, now_s = view.delta, self._due, view.now_s
        without: list[JobId] = []
        for job in delta.arrived:
            start_s = view.one("recorded_start_s", job)
            if start_s <= LATEST_S:
                heappush(due, (start_s, job))
            else:
                without.append(job)
        for eviction in delta.evicted:
            if eviction.job not in delta.finished:
                heappush(due, (now_s, eviction.job))
        started: dict[JobId, Grant] = {}
        while due and due[0][0] <= now_s:
            job = heappop(due)[1]
            demand = view.demand(job)
            started[job] = (
                self._where_it_ran(view, job, demand)
                or self._place(view, demand)
                or _overflowing(view, demand)
            )
        wake_at_s = due[0][0] if due else inf
        if not started and not without and wake_at_s == inf:
            return EMPTY
        return Plan(started, frozenset(without), wake_at_s)

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """State when the recording started it."""
        return Reason(
            "the recording started it at {start:instant}",
            {"start": decided.view.one("recorded_start_s", job)},
        )

    def _where_it_ran(self, view: View, job: JobId, demand: Demand) -> Grant | None:
        kind = view.cluster.type_index.get(
            view.names("gpu_type")[int(view.one("gpu_type", job))], -1
        )
        if kind < 0 or not demand.gpus:
            return None
        for pools in self._place.ways(view, demand).groups:
            if all(view.room.pools[at].type_at == kind for at in pools):
                return self._place.within(view, demand, pools)
        return None


def _overflowing(view: View, demand: Demand) -> Grant:
    node = view.room.overflow
    assert node is not None, "the simulator appends an overflow node for those that declare it"
    roles = (demand,) if demand.servers is None else (demand, demand.servers)
    parts = [Part((node,), (role.replicas,), role.gpus, role.cpus, role.mem_gb) for role in roles]
    return Grant((Gang(*parts),))
