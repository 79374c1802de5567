"""Jobs of workers and parameter servers at other sizes: demand, estimated speed, and the
placement of new replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from allocators.placement import Placer
from sim.contract import Demand, Floats, Gang, Grant, JobId, Part, Shape, View


class Rebuild:
    """Places new replicas of running jobs beside the old ones.

    Parameters
    ----------
    place : Placer
        Chooses nodes.
    """

    def __init__(self, place: Placer) -> None:
        self._place = place
        self._demands: dict[Demand, Demand] = {}

    def interned(self, demand: Demand) -> Demand:
        """Return the one object for all equal demands; it lives as long as this."""
        return self._demands.setdefault(demand, demand)

    def __call__(
        self, view: View, held: Grant, wanted: Demand, avoid: Collection[int], *, beside: bool
    ) -> Grant | None:
        """Return what a job shall hold, reserved on ``view.room``, or None if there is no room for
        it.

        Parameters
        ----------
        view : View
            The instant.
        held : Grant
            What it holds now: one gang with servers.
        wanted : Demand
            What it shall be made of. Where there is no room for all workers it gets fewer, if they
            are still more than now.
        avoid : collection of int
            Nodes on which it shall not have replicas.
        beside : bool
            Whether what it leaves stays reserved until all has moved; else that is free at once.
        """
        assert wanted.servers is not None
        workers, servers = held.gangs[0]
        assert servers is not None
        kept = _kept(workers, wanted, avoid), _kept(servers, wanted.servers, avoid)
        taken: list[Grant] = []
        if not beside:
            view.room.give(held)
            for part in kept:
                if part is not None:
                    taken.append(Grant((Gang(part),)))
                    view.room.take(taken[-1])
        beyond = sum(workers.count)
        many = self._added(view, wanted.servers, kept[1], avoid, taken, beyond=None)
        crew = (
            self._added(view, wanted, kept[0], avoid, taken, beyond=beyond)
            if many is not None
            else None
        )
        if crew is not None and many is not None:
            return Grant((Gang(crew, many),), held.tuning)
        for grant in reversed(taken):
            view.room.give(grant)
        if not beside:
            view.room.take(held)
        return None

    def _added(
        self,
        view: View,
        wanted: Demand,
        kept: Part | None,
        avoid: Collection[int],
        taken: list[Grant],
        *,
        beyond: int | None,
    ) -> Part | None:
        """Return all replicas of a role, the new ones reserved; with `beyond` also fewer than
        wanted, but more than that.
        """
        stay = sum(kept.count) if kept is not None else 0
        missing = wanted.replicas - stay
        if not missing:
            return kept
        if beyond is not None:
            nodes = [
                node
                for at in wanted.pools
                for node in view.room.pools[at].nodes
                if node not in avoid
            ]
            missing = min(
                missing, sum([view.room.replicas_that_fit(node, wanted) for node in nodes])
            )
        found = None
        if missing and (
            stay + missing == wanted.replicas or beyond is None or stay + missing > beyond
        ):
            found = self._place(
                view, self.interned(replace(wanted, replicas=missing, servers=None)), avoid
            )
        if found is None:
            return None
        taken.append(found)
        return _joined(kept, found.gangs[0].workers)


def _kept(part: Part, wanted: Demand, avoid: Collection[int]) -> Part | None:
    """Return the replicas that may stay: of the same kind, no more than wanted, and none on nodes
    to avoid.
    """
    if (part.gpus, part.cpus, part.mem_gb) != (wanted.gpus, wanted.cpus, wanted.mem_gb):
        return None
    spots, left = [], wanted.replicas
    for node, count in zip(part.nodes, part.count, strict=True):
        if left and node not in avoid:
            spots.append((node, min(count, left)))
            left -= spots[-1][1]
    return (
        part._replace(
            nodes=tuple(node for node, _ in spots), count=tuple(count for _, count in spots)
        )
        if spots
        else None
    )


def _joined(kept: Part | None, added: Part) -> Part:
    if kept is None:
        return added
    count = dict(zip(kept.nodes, kept.count, strict=True))
    for node, more in zip(added.nodes, added.count, strict=True):
        count[node] = count.get(node, 0) + more
    return added._replace(nodes=tuple(count), count=tuple(count.values()))


def fit_together(view: View, demand: Demand) -> bool:
    """Tell whether the empty cluster has room for workers and servers, those where these leave
    it.
    """
    servers = demand.servers
    assert servers is not None
    crew, many = demand.replicas, servers.replicas
    unknown = view.cluster.unknown(view.now_s)
    for node in (
        view.cluster.nodes[node]
        for at in demand.pools
        for node in view.room.pools[at].nodes
        if node not in unknown
    ):
        took = _most((node.cpus, node.mem_gb), demand, crew)
        left = node.cpus - took * demand.cpus, node.mem_gb - took * demand.mem_gb
        crew, many = crew - took, many - _most(left, servers, many)
    return crew <= 0 and many <= 0


def _most(free: tuple[float, float], demand: Demand, wanted: int) -> int:
    amounts = [(free[0], demand.cpus), (free[1], demand.mem_gb)]
    return int(min([wanted, *((have + 1e-9) // each for have, each in amounts if each)]))


_GROWTH = (
    4  # a job without GPUs has no limits of its own: up to so many times the workers it asked for
)
_AT_ONCE = 512


class Size(NamedTuple):
    """Workers and parameter servers of a job."""

    workers: int
    servers: int


class Staff:
    """Knows the demand of every job at any size, and its estimated rates at all of them.

    Parameters
    ----------
    place : Placer
        Whose first GPU type for a job is the one that rates are asked for.
    most_servers : int
        No job is given more, unless it asks for more itself.
    """

    def __init__(self, place: Placer, most_servers: int) -> None:
        self._place, self._most_servers = place, most_servers
        self._demands: dict[tuple[int, Size, float], Demand] = {}
        self._rates: dict[JobId, Floats] = {}
        self._on_cpus: dict[JobId, bool] = {}

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Drop what is known of jobs that are gone."""
        for job in jobs:
            self._rates.pop(job, None)
            self._on_cpus.pop(job, None)

    def runs_on_cpus(self, view: View, job: JobId) -> bool:
        """Tell whether a job with GPU workers is estimated to run on CPU workers at all; under most
        performance models none does.
        """
        known = self._on_cpus.get(job)
        if known is None:
            shape = Shape(
                (0,) * len(view.cluster.types), kind="cpu", workers=view.demand(job).replicas
            )
            known = self._on_cpus[job] = bool(
                view.estimates.rates(np.array([job]), [shape])[0, 0] > 0
            )
        return known

    def demand(self, asked: Demand, size: Size, cores: float = 0.0) -> Demand:
        """Return what a job asks for at another size; always the same object.

        Parameters
        ----------
        asked : Demand
            What the job asks for itself.
        size : Size
            Workers and servers.
        cores : float
            Cores of each worker if they shall run on CPUs; 0 = as the job asks.
        """
        key = (asked.key, size, cores)
        known = self._demands.get(key)
        if known is None:
            servers = asked.servers
            if servers is not None and servers.replicas != size.servers:
                servers = replace(servers, replicas=size.servers)
            known = replace(asked, replicas=size.workers, servers=servers)
            if cores:
                known = replace(
                    known,
                    gpus=0,
                    cpus=cores,
                    pools=known.pools if servers is None else servers.pools,
                )
            self._demands[key] = known
        return known

    def range(self, view: View, job: JobId) -> tuple[Size, Size]:
        """Return the smallest and the largest size of a job; never with fewer servers than it asks
        for if it says what memory they need.
        """
        demand = view.demand(job)
        if demand.gpus:
            least, most = (
                max(1, int(view.one("min_gpus", job)) // demand.gpus),
                max(demand.replicas, int(view.one("max_gpus", job)) // demand.gpus),
            )
        else:
            least, most = 1, _GROWTH * demand.replicas
        if demand.servers is None:
            return Size(least, 0), Size(most, 0)
        asked = demand.servers.replicas
        return Size(least, asked if demand.servers.mem_gb else 1), Size(
            most, max(self._most_servers, asked)
        )

    def learn(self, view: View, jobs: Iterable[JobId]) -> None:
        """Ask for the rates of jobs at every size; once for each."""
        new = [job for job in jobs if job not in self._rates]
        for start in range(0, len(new), _AT_ONCE):
            some = new[start : start + _AT_ONCE]
            most = {job: self.range(view, job)[1] for job in some}
            shapes: dict[Shape, int] = {}
            columns = {
                job: [
                    shapes.setdefault(shape, len(shapes))
                    for shape in self._shapes(view, job, most[job])
                ]
                for job in some
            }
            rates = view.estimates.rates(np.array(some, np.int64), list(shapes))
            for row, job in enumerate(some):
                self._rates[job] = rates[row, columns[job]].reshape(most[job].workers, -1)

    def rate(self, job: JobId, size: Size) -> float:
        """Return one of these."""
        return float(self._rates[job][size.workers - 1, max(size.servers - 1, 0)])

    def _shapes(self, view: View, job: JobId, most: Size) -> list[Shape]:
        demand = view.demand(job)
        servers = range(1, most.servers + 1) if demand.servers is not None else range(1)
        sizes = [(workers, count) for workers in range(1, most.workers + 1) for count in servers]
        types = len(view.cluster.types)
        if not demand.gpus:
            return [
                Shape((0,) * types, servers=count, kind="cpu", workers=workers)
                for workers, count in sizes
            ]
        groups = self._place.ways(view, demand).groups
        kind = view.room.pools[groups[0][0]].type_at if groups else 0
        gpus = [
            tuple(workers * demand.gpus if at == kind else 0 for at in range(types))
            for workers in range(most.workers + 1)
        ]
        return [Shape(gpus[workers], servers=count) for workers, count in sizes]


def size_of(demand: Demand) -> Size:
    """Return the size that a demand is for."""
    return Size(demand.replicas, demand.servers.replicas if demand.servers is not None else 0)


def held_size(grant: Grant) -> Size:
    """Return the size that a grant is of."""
    workers, servers = grant.gangs[0]
    return Size(sum(workers.count), sum(servers.count) if servers is not None else 0)
