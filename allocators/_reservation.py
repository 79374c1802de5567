"""When the job at the head of a queue could start, and what may run beside it: the reservation of EASY backfilling."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from allocators._ends import End, Ends
from allocators._patience import Patience
from allocators.placement import Placer
from sim.contract import Demand, Grant, JobId, View


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


def reserve(view: View, placer: Placer, ends: Ends, job: JobId, patience: Patience | None) -> Reservation:
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
    patience : Patience or None
        Until when it takes its preferred type only.

    Notes
    -----
    Where only counts of GPUs matter, they are counted for each group of pools that the job admits, and the group with the earliest start gets the
    reservation, the preferred one where equal (our reading for mixed clusters). Elsewhere running jobs are taken off the sketch of free room in order of
    their ends until the placement finds room, and the nodes found are reserved.

    The instant from which a job that waits for its preferred type takes any other stands among the
    ends, as one of a job that holds nothing.
    """
    demand, order, until_s = view.demand(job), ends.order, patience.until_s(view, job) if patience else -inf
    if until_s > view.now_s:
        order = order.copy()
        insort(order, (until_s, -1, Grant(()), ()))
    if not placer.counts(view, demand):
        return _reserve_nodes(view, _Sketch(view, order, _Places(placer, patience, until_s)), job)
    best, (groups, _, preferred) = Reservation(job, inf), placer.ways(view, demand)
    for at, group in enumerate(groups):
        need = demand.replicas, until_s if at >= preferred else -inf
        at_s, free = _free_at(order, frozenset(group), view.room.gpus_free(group), need, best.at_s)
        if at_s < best.at_s:
            best = Reservation(job, at_s, frozenset(group), free - demand.replicas)
    return best


def _free_at(order: list[End], pools: frozenset[int], free: int, need: tuple[int, float], before_s: float) -> tuple[float, int]:
    gpus_needed, not_before_s = need
    found_s = inf
    for at_s, _, _, gpus in order:
        if at_s > found_s or at_s >= before_s:
            break
        for pool, count in gpus:
            if pool in pools:
                free += count
        if free >= gpus_needed and found_s == inf and at_s >= not_before_s:
            found_s = at_s
    return found_s, free


class _Places(NamedTuple):
    """How the head would be placed at an instant."""

    place: Placer
    patience: Patience | None
    until_s: float

    def __call__(self, view: View, demand: Demand, at_s: float) -> Grant | None:
        place = self.patience.place if self.patience and at_s < self.until_s else self.place
        return place(view, demand)


def _reserve_nodes(view: View, sketch: _Sketch, job: JobId) -> Reservation:
    demand, order = view.demand(job), sketch.order
    low, high, step = 0, 1, 1
    while not sketch.has_room(demand, min(high, len(order))):
        if high >= len(order):
            sketch.show(0)
            return Reservation(job, inf)
        low, step = high, 2 * step
        high += step
    high = min(high, len(order))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if sketch.has_room(demand, middle) else (middle, high)
    at_s, enough = order[high - 1][0], high
    while high < len(order) and order[high][0] <= at_s:
        high += 1
    # With servers to be placed after the workers, more free room may hurt: then what ends at the same instant as the last one needed is left out.
    grant = _first_place(demand, sketch, (high, enough))
    free = view.free_gpus.tolist(), view.free_cpus.tolist(), view.free_mem_gb.tolist()
    slack = {node: (free[0][node], free[1][node], free[2][node]) for part in grant.gangs[0] if part is not None for node in part.nodes}
    view.room.give(grant)
    sketch.show(0)
    return Reservation(job, at_s, slack=slack)


def _first_place(demand: Demand, sketch: _Sketch, ended: tuple[int, ...]) -> Grant:
    for count in ended:
        grant = sketch.place(demand, count)
        if grant is not None:
            return grant
    raise AssertionError("a place that was found a moment ago is gone")


class _Sketch:
    """The free room as it will be when the first so many jobs have ended."""

    def __init__(self, view: View, order: list[End], places: _Places) -> None:
        self._view, self._places, self._ended = view, places, 0
        self.order = order

    def show(self, ended: int) -> None:
        room, order = self._view.room, self.order
        while self._ended < ended:
            room.give(order[self._ended][2])
            self._ended += 1
        while self._ended > ended:
            self._ended -= 1
            room.take(order[self._ended][2])

    def place(self, demand: Demand, ended: int) -> Grant | None:
        self.show(ended)
        at_s = self.order[ended - 1][0] if ended else -inf
        return self._places(self._view, demand, at_s)

    def has_room(self, demand: Demand, ended: int) -> bool:
        grant = self.place(demand, ended)
        if grant is None:
            return False
        self._view.room.give(grant)
        return True
