"""Jobs of workers and parameter servers at other sizes: what they ask for there, and how fast they are believed to be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from allocators.placement import Placer
from sim.contract import Demand, Floats, Grant, JobId, Shape, View

_GROWTH = 4  # a job without GPUs has no limits of its own: up to so many times the workers it asked for
_AT_ONCE = 512


class Size(NamedTuple):
    """Workers and parameter servers of a job."""

    workers: int
    servers: int


class Staff:
    """Knows the demand of every job at any size, and its believed rates at all of them.

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
        """Tell whether a job with GPU workers is believed to run on CPU workers at all; under most performance models none does."""
        known = self._on_cpus.get(job)
        if known is None:
            shape = Shape((0,) * len(view.cluster.types), kind="cpu", workers=view.demand(job).replicas)
            known = self._on_cpus[job] = bool(view.belief.rates(np.array([job]), [shape])[0, 0] > 0)
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
        key = (id(asked), size, cores)
        known = self._demands.get(key)
        if known is None:
            servers = asked.servers
            if servers is not None and servers.replicas != size.servers:
                servers = servers._replace(replicas=size.servers)
            known = asked._replace(replicas=size.workers, servers=servers)
            if cores:
                known = known._replace(gpus=0, cpus=cores, pools=known.pools if servers is None else servers.pools)
            self._demands[key] = known
        return known

    def range(self, view: View, job: JobId) -> tuple[Size, Size]:
        """Return the smallest and the largest size of a job; never with fewer servers than it asks for if it says what memory they need."""
        demand = view.demand(job)
        if demand.gpus:
            least, most = max(1, int(view.one("min_gpus", job)) // demand.gpus), max(demand.replicas, int(view.one("max_gpus", job)) // demand.gpus)
        else:
            least, most = 1, _GROWTH * demand.replicas
        if demand.servers is None:
            return Size(least, 0), Size(most, 0)
        asked = demand.servers.replicas
        return Size(least, asked if demand.servers.mem_gb else 1), Size(most, max(self._most_servers, asked))

    def learn(self, view: View, jobs: Iterable[JobId]) -> None:
        """Ask for the rates of jobs at every size; once for each."""
        new = [job for job in jobs if job not in self._rates]
        for start in range(0, len(new), _AT_ONCE):
            some = new[start : start + _AT_ONCE]
            most = {job: self.range(view, job)[1] for job in some}
            shapes: dict[Shape, int] = {}
            columns = {job: [shapes.setdefault(shape, len(shapes)) for shape in self._shapes(view, job, most[job])] for job in some}
            rates = view.belief.rates(np.array(some, np.int64), list(shapes))
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
            return [Shape((0,) * types, servers=count, kind="cpu", workers=workers) for workers, count in sizes]
        groups = self._place.ways(view, demand).groups
        kind = view.room.pools[groups[0][0]].type_at if groups else 0
        gpus = [tuple(workers * demand.gpus if at == kind else 0 for at in range(types)) for workers in range(most.workers + 1)]
        return [Shape(gpus[workers], servers=count) for workers, count in sizes]


def size_of(demand: Demand) -> Size:
    """Return the size that a demand is for."""
    return Size(demand.replicas, demand.servers.replicas if demand.servers is not None else 0)


def held_size(grant: Grant) -> Size:
    """Return the size that a grant is of."""
    workers, servers = grant.gangs[0]
    return Size(sum(workers.count), sum(servers.count) if servers is not None else 0)
