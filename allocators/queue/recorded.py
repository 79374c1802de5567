"""Recorded schedule: every job starts at the time recorded in the trace."""

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
    """Start every job exactly at the start time recorded in the trace.

    Notes
    -----
    A job goes to the GPU type on which its run time was recorded, if the trace names it and that
    type has room; otherwise to the type that ``types`` prefers. If the described cluster has no
    room, the whole gang goes to an overflow node without a price; the time spent there shows when
    and by how much the described cluster was too small. A start before the submission happens at
    the submission; an evicted job starts again at once; a job without a recorded start, or with one
    after the end of the clock, is refused. The start is exact; the end follows the performance
    model.
    """

    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    _due: list[tuple[float, JobId]] = field(init=False, repr=False, default_factory=list)
    _place: Placer = field(init=False, repr=False)

    cadence = Cadence(on_finish=True, on_capacity=False)
    card = Card(
        title="Recorded schedule",
        brief="the schedule recorded in the trace",
        what="Starts every job at its recorded start.",
        cost="No decisions: it shows what happened, not what could have happened.",
        limits=(
            "Rejects jobs without a recorded start. Where the cluster is too small, a job runs"
            " on an overflow node."
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
        """Create the placer."""
        self._place = Placer(self.placement, self.types, self.mix)

    @property
    def needs(self) -> Needs:
        """Need recorded starts, and an overflow node for jobs that the cluster cannot hold."""
        return Needs(frozenset({"recorded_start"}), frozenset({"overflow"}), mixes_types=self.mix)

    def allocate(self, view: View, /) -> Plan:
        """Start jobs at their recorded start, evicted ones at once; refuse jobs without one.

        A job without room starts on the overflow node.
        """
        delta, due, now_s = view.delta, self._due, view.now_s
        without_start: list[JobId] = []
        for job in delta.arrived:
            start_s = view.one("recorded_start_s", job)
            if start_s <= LATEST_S:
                heappush(due, (start_s, job))
            else:
                without_start.append(job)
        for eviction in delta.evicted:
            if eviction.job not in delta.finished:
                heappush(due, (now_s, eviction.job))
        started: dict[JobId, Grant] = {}
        while due and due[0][0] <= now_s:
            job = heappop(due)[1]
            demand = view.demand(job)
            started[job] = (
                self._place_on_recorded_type(view, job, demand)
                or self._place(view, demand)
                or _overflow_grant(view, demand)
            )
        wake_at_s = due[0][0] if due else inf
        if not started and not without_start and wake_at_s == inf:
            return EMPTY
        return Plan(started, frozenset(without_start), wake_at_s)

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait by the recorded start of the job."""
        return Reason(
            "the recording started it at {start:instant}",
            {"start": decided.view.one("recorded_start_s", job)},
        )

    def _place_on_recorded_type(self, view: View, job: JobId, demand: Demand) -> Grant | None:
        """Reserve nodes of the GPU type on which a job was recorded, or return None."""
        kind = view.cluster.type_index.get(
            view.names("gpu_type")[int(view.one("gpu_type", job))], -1
        )
        if kind < 0 or not demand.gpus:
            return None
        for pools in self._place.options(view, demand).groups:
            if all(view.room.pools[at].type_at == kind for at in pools):
                return self._place.place_within(view, demand, pools)
        return None


def _overflow_grant(view: View, demand: Demand) -> Grant:
    """Return a grant of a whole gang on the overflow node."""
    node = view.room.overflow
    assert node is not None, "the simulator appends an overflow node for those that declare it"
    roles = (demand,) if demand.servers is None else (demand, demand.servers)
    parts = [Part((node,), (role.replicas,), role.gpus, role.cpus, role.mem_gb) for role in roles]
    return Grant((Gang(*parts),))
