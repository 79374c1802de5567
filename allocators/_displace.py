"""From an order of all jobs, best first, to grants: each gets what it wants if that fits, and worse jobs give way to better ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from allocators.placement import Placer
from sim.contract import Demand, Gang, Grant, JobId, Part, View

Wants = Callable[[JobId], Sequence[Demand]]
"""What a job would take, the best first; for all but the first nobody else is stopped."""


def settle(view: View, place: Placer, order: Sequence[JobId], wants: Wants) -> dict[JobId, Grant | None]:
    """Return the changes after which the best jobs run.

    Parameters
    ----------
    view : View
        The instant.
    place : Placer
        Chooses nodes.
    order : sequence of int
        All jobs that may run, best first; running jobs that are not named are stopped if they may be.
    wants : callable
        Job -> demands.

    Notes
    -----
    A running job that holds what it wants stays where it is. One that wants another size is placed anew and keeps what it has where that fails. Otherwise a
    job goes where there is room; if there is none for its first wish, worse jobs are stopped, the worst first, until there is, or none is if that would not
    help. A job stopped so is looked at again at its own place in the order, its old nodes first.
    """
    return _Walk(view, place, order, wants).changes


class _Walk:
    def __init__(self, view: View, place: Placer, order: Sequence[JobId], wants: Wants) -> None:
        self._view, self._place, self._wants = view, place, wants
        self.changes: dict[JobId, Grant | None] = {}
        named = set(order)
        self._holding: dict[JobId, Grant] = {}
        for job, grant in view.grants.items():
            if job in named or not view.one("preemptible", job):
                self._holding[job] = grant
            else:
                view.room.give(grant)
                self.changes[job] = None
        self._worst = deque(job for job in order if job in self._holding and view.one("preemptible", job))
        self._worse_gpus = sum([_gpus(self._holding[job]) for job in self._worst])
        for job in order:
            if self._worst and self._worst[0] == job:
                self._worst.popleft()
                self._worse_gpus -= _gpus(self._holding[job])
            if job in self._holding:
                self._stay(job, self._holding[job])
            else:
                self._come(job)

    def _stay(self, job: JobId, grant: Grant) -> None:
        first = self._wants(job)[0]
        if matches(grant, first) or not self._view.one("preemptible", job):
            return
        room = self._view.room
        room.give(grant)
        found = self._place(self._view, first)
        if found is None:
            room.take(grant)
        else:
            self._holding[job] = self.changes[job] = found

    def _come(self, job: JobId) -> None:
        wishes = self._wants(job)
        old = self._view.grants.get(job)
        if old is not None and any(matches(old, wish) and takes(self._view, old, wish) for wish in wishes):
            self._holding[job] = old
            del self.changes[job]
            return
        found = self._place(self._view, wishes[0]) or self._displace(wishes[0])
        for wish in wishes[1:]:
            found = found or self._place(self._view, wish)
        if found is not None:
            self._holding[job] = self.changes[job] = found

    def _displace(self, demand: Demand) -> Grant | None:
        """Stop as many worse jobs, the worst first, as give a demand a place; none if all together do not."""
        room = self._view.room
        need = demand.replicas * demand.gpus - room.gpus_free(demand.pools)
        if not self._worst or (demand.gpus and need > self._worse_gpus):
            return None
        given: list[JobId] = []
        while self._worst:
            job = self._worst.pop()
            given.append(job)
            room.give(self._holding[job])
            need -= _gpus(self._holding[job])
            found = self._place(self._view, demand) if need <= 0 or not demand.gpus else None
            if found is not None:
                for victim in given:
                    self._worse_gpus -= _gpus(self._holding.pop(victim))
                    self.changes[victim] = None
                return found
        for job in reversed(given):
            room.take(self._holding[job])
            self._worst.append(job)
        return None


def matches(grant: Grant, demand: Demand) -> bool:
    """Tell whether a grant is of the size and kind that a demand is for."""
    workers, servers = grant.gangs[0]
    return len(grant.gangs) == 1 and _same(workers, demand) and (demand.servers is None if servers is None else _same(servers, demand.servers))


def _same(part: Part, demand: Demand | None) -> bool:
    if demand is None:
        return False
    return (sum(part.count), part.gpus, part.cpus, part.mem_gb) == (demand.replicas, demand.gpus, demand.cpus, demand.mem_gb)


def takes(view: View, grant: Grant, demand: Demand) -> bool:
    """Reserve a grant if there is still room for it, role by role."""
    room, (workers, servers) = view.room, grant.gangs[0]
    if not _has_room(view, workers, demand):
        return False
    if servers is not None and demand.servers is not None:
        alone = Grant((Gang(workers),))
        room.take(alone)
        beside = _has_room(view, servers, demand.servers)
        room.give(alone)
        if not beside:
            return False
    room.take(grant)
    return True


def _has_room(view: View, part: Part, demand: Demand) -> bool:
    return all(view.room.replicas_that_fit(node, demand) >= count for node, count in zip(part.nodes, part.count, strict=True))


def _gpus(grant: Grant) -> int:
    return sum([sum(part.count) * part.gpus for gang in grant.gangs for part in gang if part is not None])
