"""When the job at the head of a queue could start, and what may run beside it: the reservation of EASY backfilling."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from allocators._ends import End, Ends
from allocators.placement import Placer
from sim.contract import Demand, Grant, JobId, View

TOLERANCE_S = 1e-3


@dataclass
class Reservation:
    """The promise to the head of the queue.

    Parameters
    ----------
    job : int
        The head.
    at_s : float, seconds
        The shadow time: when it can start if running jobs end as estimated.
    pools : frozenset of int
        Where its GPUs are counted.
    extra : int
        GPUs of these pools that it leaves free at that time.
    slack : dict
        Instead of a count, where cores, memory or the shape of the gang matter: node -> (GPUs, cores, GB) that it leaves free on its nodes.
    """

    job: JobId
    at_s: float
    pools: frozenset[int] = frozenset()
    extra: int = 0
    slack: dict[int, tuple[float, float, float]] = field(default_factory=dict)

    def may_spare(self, gpus: int, group: tuple[int, ...]) -> bool:
        """Tell whether a job that outlives the shadow time might run in this group; `spares` gives the verdict on its grant."""
        return bool(self.slack) or gpus <= self.extra or not self.pools.issuperset(group)

    def spares(self, gpus: tuple[tuple[int, int], ...], grant: Grant) -> bool:
        """Tell whether a grant may outlive the shadow time, and if so count it."""
        if self.slack:
            return self._spares_nodes(grant)
        wanted = sum(count for pool, count in gpus if pool in self.pools)
        if wanted > self.extra:
            return False
        self.extra -= wanted
        return True

    def _spares_nodes(self, grant: Grant) -> bool:
        left: dict[int, tuple[float, float, float]] = {}
        for part in (part for gang in grant.gangs for part in gang if part is not None):
            for node, count in zip(part.nodes, part.count, strict=True):
                if node in self.slack:
                    gpus, cpus, mem_gb = left.get(node, self.slack[node])
                    left[node] = gpus - count * part.gpus, cpus - count * part.cpus, mem_gb - count * part.mem_gb
        if any(min(free) < -1e-6 for free in left.values()):
            return False
        self.slack.update(left)
        return True


def reserve(view: View, placer: Placer, ends: Ends, job: JobId) -> Reservation:
    """Find out when a job that has no room now can start.

    Parameters
    ----------
    view : View
        Whose room already shows what starts at this instant.
    placer : Placer
        How the job would be placed.
    ends : Ends
        The running jobs.
    job : int
        The head of the queue.

    Notes
    -----
    Where only counts of GPUs matter, they are counted for each group of pools that the job admits, and the group with the earliest start gets the
    reservation, the preferred one where equal (our reading for mixed clusters). Elsewhere running jobs are taken off the sketch of free room in order of
    their ends until the placement finds room, and the nodes found are reserved.
    """
    demand = view.demand(job)
    if not placer.counts(view, demand):
        return _reserve_nodes(view, placer, ends.order, job)
    best = Reservation(job, inf)
    for group in placer.ways(view, demand).groups:
        at_s, free = _free_at(ends.order, frozenset(group), view.room.gpus_free(group), demand.replicas, best.at_s)
        if at_s < best.at_s:
            best = Reservation(job, at_s, frozenset(group), free - demand.replicas)
    return best


def _free_at(order: list[End], pools: frozenset[int], free: int, need: int, before_s: float) -> tuple[float, int]:
    found_s = inf
    for at_s, _, _, gpus in order:
        if at_s > found_s or at_s >= before_s:
            break
        for pool, count in gpus:
            if pool in pools:
                free += count
        if free >= need and found_s == inf:
            found_s = at_s
    return found_s, free


def _reserve_nodes(view: View, placer: Placer, order: list[End], job: JobId) -> Reservation:
    demand, sketch = view.demand(job), _Sketch(view, order)
    low, high, step = 0, 1, 1
    while not sketch.has_room(placer, demand, min(high, len(order))):
        if high >= len(order):
            sketch.show(0)
            return Reservation(job, inf)
        low, step = high, 2 * step
        high += step
    high = min(high, len(order))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if sketch.has_room(placer, demand, middle) else (middle, high)
    at_s, enough = order[high - 1][0], high
    while high < len(order) and order[high][0] <= at_s:
        high += 1
    # With servers to be placed after the workers, more free room may hurt: then what ends at the same instant as the last one needed is left out.
    grant = _first_place(view, placer, demand, sketch, (high, enough))
    free = view.free_gpus.tolist(), view.free_cpus.tolist(), view.free_mem_gb.tolist()
    slack = {node: (free[0][node], free[1][node], free[2][node]) for part in grant.gangs[0] if part is not None for node in part.nodes}
    view.room.give(grant)
    sketch.show(0)
    return Reservation(job, at_s, slack=slack)


def _first_place(view: View, placer: Placer, demand: Demand, sketch: _Sketch, ended: tuple[int, ...]) -> Grant:
    for count in ended:
        sketch.show(count)
        grant = placer(view, demand)
        if grant is not None:
            return grant
    raise AssertionError("a place that was found a moment ago is gone")


class _Sketch:
    """The free room as it will be when the first so many jobs have ended."""

    def __init__(self, view: View, order: list[End]) -> None:
        self._view, self._order, self._ended = view, order, 0

    def show(self, ended: int) -> None:
        room, order = self._view.room, self._order
        while self._ended < ended:
            room.give(order[self._ended][2])
            self._ended += 1
        while self._ended > ended:
            self._ended -= 1
            room.take(order[self._ended][2])

    def has_room(self, placer: Placer, demand: Demand, ended: int) -> bool:
        self.show(ended)
        grant = placer(self._view, demand)
        if grant is None:
            return False
        self._view.room.give(grant)
        return True
