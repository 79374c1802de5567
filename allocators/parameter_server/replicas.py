"""Jobs of workers and parameter servers: demands, rates and placement at other sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from allocators.placement import Placer
from sim.contract import Demand, Floats, Gang, Grant, JobId, Part, Shape, View


class Rebuild:
    """Finds nodes for running jobs that get other replicas.

    Parameters
    ----------
    place : Placer
        Chooses nodes.
    """

    def __init__(self, place: Placer) -> None:
        self._place = place
        self._demands: dict[Demand, Demand] = {}

    def intern_demand(self, demand: Demand) -> Demand:
        """Return the shared object for all equal demands."""
        return self._demands.setdefault(demand, demand)

    def __call__(
        self, view: View, held: Grant, wanted: Demand, avoid: Collection[int], *, beside: bool
    ) -> Grant | None:
        """Reserve and return the new grant of a job, or return None if it does not fit.

        Parameters
        ----------
        view : View
            The instant.
        held : Grant
            Its present grant: one gang with servers.
        wanted : Demand
            Its new workers and servers. If not all workers fit it gets fewer, but more than now.
        avoid : collection of int
            Nodes without replicas of this job.
        beside : bool
            Whether nodes that it leaves stay reserved until all replicas have moved; otherwise they
            are free at once.
        """
        assert wanted.servers is not None
        workers, servers = held.gangs[0]
        assert servers is not None
        kept = (
            _remaining_replicas(workers, wanted, avoid),
            _remaining_replicas(servers, wanted.servers, avoid),
        )
        taken: list[Grant] = []
        if not beside:
            view.room.give(held)
            for part in kept:
                if part is not None:
                    taken.append(Grant((Gang(part),)))
                    view.room.take(taken[-1])
        beyond = sum(workers.count)
        many = self._add_replicas(view, wanted.servers, kept[1], avoid, taken, beyond=None)
        crew = (
            self._add_replicas(view, wanted, kept[0], avoid, taken, beyond=beyond)
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

    def _add_replicas(
        self,
        view: View,
        wanted: Demand,
        kept: Part | None,
        avoid: Collection[int],
        taken: list[Grant],
        *,
        beyond: int | None,
    ) -> Part | None:
        """Return all replicas of a role, with the new ones reserved; None if they do not fit.

        With `beyond` fewer than wanted are accepted, if they are more than `beyond`.
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
        added = None
        if missing and (
            stay + missing == wanted.replicas or beyond is None or stay + missing > beyond
        ):
            added = self._place(
                view, self.intern_demand(replace(wanted, replicas=missing, servers=None)), avoid
            )
        if added is None:
            return None
        taken.append(added)
        return _merge_replicas(kept, added.gangs[0].workers)


def _remaining_replicas(part: Part, wanted: Demand, avoid: Collection[int]) -> Part | None:
    """Return the replicas that may stay: of the same kind and not on nodes to avoid.

    None if there are none; never more than wanted.
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


def _merge_replicas(kept: Part | None, added: Part) -> Part:
    """Return one part with the replicas of both, added up by node."""
    if kept is None:
        return added
    count = dict(zip(kept.nodes, kept.count, strict=True))
    for node, more in zip(added.nodes, added.count, strict=True):
        count[node] = count.get(node, 0) + more
    return added._replace(nodes=tuple(count), count=tuple(count.values()))


def fit_together(view: View, demand: Demand) -> bool:
    """Return True if the empty cluster has room for the workers and servers together."""
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
        took = _max_replicas((node.cpus, node.mem_gb), demand, crew)
        left = node.cpus - took * demand.cpus, node.mem_gb - took * demand.mem_gb
        crew, many = crew - took, many - _max_replicas(left, servers, many)
    return crew <= 0 and many <= 0


def _max_replicas(free: tuple[float, float], demand: Demand, wanted: int) -> int:
    """Return how many replicas, at most `wanted`, fit into these free cores and GB."""
    amounts = [(free[0], demand.cpus), (free[1], demand.mem_gb)]
    return int(min([wanted, *((have + 1e-9) // each for have, each in amounts if each)]))


_GROWTH = 4  # most workers of a job without GPUs, as a multiple of its request
_JOBS_PER_CALL = 512  # jobs per call for rates


class Size(NamedTuple):
    """Workers and parameter servers of a job."""

    workers: int
    servers: int


class Staff:
    """Demands of every job at any size, and its estimated rates at all of them.

    Parameters
    ----------
    place : Placer
        Orders the GPU types; rates are estimated on the first type of a job.
    most_servers : int
        Most servers of a job, unless it requests more.
    """

    def __init__(self, place: Placer, most_servers: int) -> None:
        self._place, self._most_servers = place, most_servers
        self._demands: dict[tuple[int, Size, float], Demand] = {}
        self._rates: dict[JobId, Floats] = {}
        self._on_cpus: dict[JobId, bool] = {}

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Delete the records of finished jobs."""
        for job in jobs:
            self._rates.pop(job, None)
            self._on_cpus.pop(job, None)

    def runs_on_cpus(self, view: View, job: JobId) -> bool:
        """Return True if a job with GPU workers could run on CPU workers.

        Under most performance models no job can.
        """
        runs = self._on_cpus.get(job)
        if runs is None:
            shape = Shape(
                (0,) * len(view.cluster.types), kind="cpu", workers=view.demand(job).replicas
            )
            runs = self._on_cpus[job] = bool(
                view.estimates.rates(np.array([job]), [shape])[0, 0] > 0
            )
        return runs

    def demand(self, request: Demand, size: Size, cores: float = 0.0) -> Demand:
        """Return the demand of a job at another size; cached.

        Parameters
        ----------
        request : Demand
            Request of the job.
        size : Size
            Workers and servers.
        cores : float
            Cores of each worker on CPUs; 0 = as requested.
        """
        key = (request.key, size, cores)
        demand = self._demands.get(key)
        if demand is None:
            servers = request.servers
            if servers is not None and servers.replicas != size.servers:
                servers = replace(servers, replicas=size.servers)
            demand = replace(request, replicas=size.workers, servers=servers)
            if cores:
                demand = replace(
                    demand,
                    gpus=0,
                    cpus=cores,
                    pools=demand.pools if servers is None else servers.pools,
                )
            self._demands[key] = demand
        return demand

    def size_range(self, view: View, job: JobId) -> tuple[Size, Size]:
        """Return the smallest and the largest size of a job.

        A job with a memory request for its servers never gets fewer of them.
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
        requested = demand.servers.replicas
        return Size(least, requested if demand.servers.mem_gb else 1), Size(
            most, max(self._most_servers, requested)
        )

    def estimate_rates(self, view: View, jobs: Iterable[JobId]) -> None:
        """Store the estimated rates of new jobs at every size up to their largest."""
        new = [job for job in jobs if job not in self._rates]
        for start in range(0, len(new), _JOBS_PER_CALL):
            some = new[start : start + _JOBS_PER_CALL]
            most = {job: self.size_range(view, job)[1] for job in some}
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
        """Return the stored rate of a job at a size."""
        return float(self._rates[job][size.workers - 1, max(size.servers - 1, 0)])

    def _shapes(self, view: View, job: JobId, most: Size) -> list[Shape]:
        """Return the shapes of a job at all sizes up to `most`, by workers, then by servers."""
        demand = view.demand(job)
        servers = range(1, most.servers + 1) if demand.servers is not None else range(1)
        sizes = [(workers, count) for workers in range(1, most.workers + 1) for count in servers]
        types = len(view.cluster.types)
        if not demand.gpus:
            return [
                Shape((0,) * types, servers=count, kind="cpu", workers=workers)
                for workers, count in sizes
            ]
        groups = self._place.options(view, demand).groups
        kind = view.room.pools[groups[0][0]].type_at if groups else 0
        gpus = [
            tuple(workers * demand.gpus if at == kind else 0 for at in range(types))
            for workers in range(most.workers + 1)
        ]
        return [Shape(gpus[workers], servers=count) for workers, count in sizes]


def size_of(demand: Demand) -> Size:
    """Return the number of workers and servers of a demand."""
    return Size(demand.replicas, demand.servers.replicas if demand.servers is not None else 0)


def held_size(grant: Grant) -> Size:
    """Return the number of workers and servers of a grant."""
    workers, servers = grant.gangs[0]
    return Size(sum(workers.count), sum(servers.count) if servers is not None else 0)
