"""Rounds of Hadar and HadarE: all preemptible jobs are placed again in each round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isinf
from typing import NamedTuple

import numpy as np

from allocators.placement import Placer, Spot, capacity_for
from allocators.toolkit import CpuJobs, RoundClock
from sim.contract import Demand, Floats, Gang, Grant, Ints, JobId, Part, Plan, Shape, View, inf

Spots = tuple[Spot, ...]


class Free:
    """Free resources of each node while a decision is made.

    Parameters
    ----------
    gpus : list of int
        Free GPUs by node.
    cpus, mem_gb : list of float, or None
        Free cores and memory by node; None if no node limits them.
    """

    __slots__ = ("cpus", "gpus", "mem_gb")

    def __init__(
        self, gpus: list[int], cpus: list[float] | None, mem_gb: list[float] | None
    ) -> None:
        self.gpus, self.cpus, self.mem_gb = gpus, cpus, mem_gb

    @classmethod
    def from_view(cls, view: View) -> Free:
        """Return the free resources of a view by node; cores and memory None if never limited."""
        cpus, mem_gb = view.free_cpus, view.free_mem_gb
        limits = [
            node for node in view.cluster.nodes if not (isinf(node.cpus) and isinf(node.mem_gb))
        ]
        return cls(
            view.free_gpus.tolist(),
            cpus.tolist() if limits else None,
            mem_gb.tolist() if limits else None,
        )

    def copy(self) -> Free:
        """Return an independent copy."""
        return Free(
            self.gpus.copy(), self.cpus and self.cpus.copy(), self.mem_gb and self.mem_gb.copy()
        )

    def fit(self, node: int, demand: Demand) -> int:
        """Return how many replicas of a GPU job a node can take."""
        fit = self.gpus[node] // demand.gpus
        if (
            fit
            and self.cpus is not None
            and self.mem_gb is not None
            and (demand.cpus or demand.mem_gb)
        ):
            # The same tolerance as in the engine's ledger.
            fit = (
                min(fit, int((self.cpus[node] + 1e-9) // demand.cpus))
                if demand.cpus and self.cpus[node] < inf
                else fit
            )
            fit = (
                min(fit, int((self.mem_gb[node] + 1e-9) // demand.mem_gb))
                if demand.mem_gb and self.mem_gb[node] < inf
                else fit
            )
        return fit

    def take(self, demand: Demand, spots: Iterable[Spot]) -> None:
        """Subtract the resources of replicas on these nodes."""
        for node, count in spots:
            self.gpus[node] -= count * demand.gpus
            if self.cpus is not None and self.mem_gb is not None:
                self.cpus[node] = round(self.cpus[node] - count * demand.cpus, 6)
                self.mem_gb[node] = round(self.mem_gb[node] - count * demand.mem_gb, 6)


class FreeJobs(NamedTuple):
    """The GPU jobs that a round may place, in order of job id.

    Parameters
    ----------
    ids, gangs : arrays of int, shape (jobs,)
        Job ids, and the GPUs that the jobs request.
    arrival_s, left : arrays of shape (jobs,)
        Seconds of submission, and estimated work left.
    """

    ids: Ints
    gangs: Ints
    arrival_s: Floats
    left: Floats

    @classmethod
    def from_view(cls, view: View) -> FreeJobs:
        """Return all waiting GPU jobs and the running GPU jobs that may be stopped."""
        active = view.active
        mask = (active.gpus > 0) & (
            active.preemptible | ~np.isin(active.ids, np.array(list(view.grants), np.int64))
        )
        return cls(
            active.ids[mask], active.gpus[mask], active.arrival_s[mask], active.remaining_work[mask]
        )


class Sites:
    """Nodes that demands may use, by GPU type; cached, since demands are shared objects."""

    def __init__(self) -> None:
        self._nodes: dict[int, dict[int, tuple[int, ...]]] = {}
        self._most: dict[tuple[int, int], int] = {}
        self._fewest: dict[tuple[int, int], int] = {}

    def nodes(self, view: View, demand: Demand) -> Mapping[int, tuple[int, ...]]:
        """Return the nodes that a demand may use, by index of their GPU type."""
        by_type = self._nodes.get(demand.key)
        if by_type is None:
            by_type = {}
            for at in demand.pools:
                pool = view.room.pools[at]
                by_type[pool.type_at] = tuple(sorted((*by_type.get(pool.type_at, ()), *pool.nodes)))
            self._nodes[demand.key] = by_type
        return by_type

    def max_replicas(self, view: View, demand: Demand, kind: int) -> int:
        """Return the most replicas of a gang that one empty node of a type holds."""
        key = demand.key, kind
        if key not in self._most:
            self._most[key] = max(
                capacity_for(view, node, demand) for node in self.nodes(view, demand)[kind]
            )
        return self._most[key]

    def fewest_nodes(self, view: View, demand: Demand, kind: int) -> int:
        """Return the fewest empty nodes of a type that hold the gang.

        All nodes if it is too large for the type.
        """
        key = demand.key, kind
        if key not in self._fewest:
            need, used = demand.replicas, 0
            for fit in sorted(
                (capacity_for(view, node, demand) for node in self.nodes(view, demand)[kind]),
                reverse=True,
            ):
                if need > 0:
                    need, used = need - fit, used + 1
            self._fewest[key] = max(used, 1)
        return self._fewest[key]


class JobSpeeds:
    """Estimated work per second of complete gangs on each type, on the fewest nodes; cached."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._rows: dict[JobId, Floats] = {}

    def speeds(self, view: View, ids: Sequence[JobId]) -> Floats:
        """Return the work per second, shape (jobs, types); 0 where a job does not run; cached."""
        fresh: dict[int, list[JobId]] = {}
        for job in ids:
            if job not in self._rows:
                fresh.setdefault(view.demand(job).key, []).append(job)
        for jobs in fresh.values():
            self._estimate(view, jobs)
        return np.array([self._rows[job] for job in ids]).reshape(len(ids), len(view.cluster.types))

    def forget(self, finished: Iterable[JobId]) -> None:
        """Delete the records of finished jobs."""
        for job in finished:
            self._rows.pop(job, None)

    def _estimate(self, view: View, jobs: list[JobId]) -> None:
        """Store the estimated work per second on each type, of jobs with the same demand."""
        demand, types = view.demand(jobs[0]), len(view.cluster.types)
        kinds = sorted(self._sites.nodes(view, demand))
        shapes = [
            shape(
                types,
                {kind: demand.replicas * demand.gpus},
                self._sites.fewest_nodes(view, demand, kind),
            )
            for kind in kinds
        ]
        rows = np.zeros((len(jobs), types))
        rows[:, kinds] = view.estimates.rates(np.array(jobs), shapes)
        self._rows |= dict(zip(jobs, rows, strict=True))


Decide = Callable[[View, FreeJobs, Floats, Free], tuple[dict[JobId, Grant], Mapping[str, float]]]


class RoundLoop:
    """Rounds that place all preemptible jobs again.

    Parameters
    ----------
    round_s : float, seconds
        Length of a round.

    Attributes
    ----------
    sites, paces : Sites, JobSpeeds
        Nodes that demands may use, and speeds of jobs.
    """

    def __init__(self, round_s: float) -> None:
        self.sites = Sites()
        self.paces = JobSpeeds(self.sites)
        self._round_s, self._place = round_s, Placer("fewest", "fastest", False)
        self._clock, self._cpu_jobs = RoundClock(round_s), CpuJobs(self._place)

    @property
    def ends_s(self) -> float:
        """End of the current round; inf without one."""
        return self._clock.ends_s

    def plan(self, view: View, decide: Decide) -> Plan:
        """Return the plan of a round if one begins now; jobs without GPUs start at any time.

        Parameters
        ----------
        view : View
            The instant.
        decide : callable
            (view, jobs that run on some type, their `paces`, free resources without them) -> the
            grants of the round, and notes.
        """
        self.paces.forget(view.delta.finished)
        self._cpu_jobs.feed(view)
        if not self._clock.is_due(view, self._cpu_jobs):
            return Plan(self._cpu_jobs.start(view), wake_at_s=self._next_s(view))
        jobs = FreeJobs.from_view(view)
        free = _release_jobs(view, jobs)
        paces = self.paces.speeds(view, jobs.ids.tolist())
        runs = paces.max(axis=1, initial=0.0) > 0
        target, notes = (
            decide(view, FreeJobs(*(column[runs] for column in jobs)), paces[runs], free)
            if runs.any()
            else ({}, {})
        )
        changes = _grant_changes(view, jobs, target, self._place) | self._cpu_jobs.start(view)
        self._clock.begin(view.now_s, goes_on=_needs_next_round(view, changes))
        return Plan(changes, wake_at_s=self._next_s(view), notes=notes)

    def _next_s(self, view: View) -> float:
        """Return when the policy must be called next; inf if only by events."""
        # No event reports that a job without GPUs lost its nodes, so while one runs the policy is
        # called once per round length.
        return min(
            self._clock.ends_s, view.now_s + self._round_s if self._cpu_jobs.running else inf
        )


def _release_jobs(view: View, jobs: FreeJobs) -> Free:
    """Release the grants of these jobs on the view and return the free resources."""
    for job in jobs.ids.tolist():
        if job in view.grants:
            view.room.give(view.grants[job])
    return Free.from_view(view)


def _grant_changes(
    view: View, jobs: FreeJobs, target: Mapping[JobId, Grant], place: Placer
) -> dict[JobId, Grant | None]:
    """Reserve the target's grants; return the changes from the present grants to them.

    Parameter servers go where the workers of all jobs leave room.
    """
    grants, changes = view.grants, dict[JobId, Grant | None]()
    for job, grant in target.items():
        for workers in (
            [grant]
            if view.demand(job).servers is None
            else [_grant_of_part(gang.workers) for gang in grant.gangs]
        ):
            view.room.take(workers)
    for job in jobs.ids.tolist():
        new, servers = target.get(job), view.demand(job).servers
        if new is not None and servers is not None:
            new = _with_servers(view, servers, new, grants.get(job), place)
        if new != grants.get(job):
            changes[job] = new
    return changes


def _with_servers(
    view: View, servers: Demand, grant: Grant, held: Grant | None, place: Placer
) -> Grant | None:
    """Return the grant of these workers with reserved servers; None if no servers fit.

    Uses the job's present servers if its workers stay, otherwise places new ones. Copies without
    room for servers are dropped.
    """
    room = view.room
    if held is not None and [gang.workers for gang in held.gangs] == [
        gang.workers for gang in grant.gangs
    ]:
        parts = [gang.servers for gang in held.gangs if gang.servers is not None]
        if len(parts) == 1 and all(
            room.replicas_that_fit(node, servers) >= count
            for node, count in zip(*parts[0][:2], strict=True)
        ):
            room.take(_grant_of_part(parts[0]))
            return held
    placed = [
        place.with_servers(view, servers, _grant_of_part(gang.workers)) for gang in grant.gangs
    ]
    gangs = tuple(copy.gangs[0] for copy in placed if copy is not None)
    return Grant(gangs, grant.tuning) if gangs else None


def _grant_of_part(part: Part) -> Grant:
    """Return a grant of one part."""
    return Grant((Gang(part),))


def _needs_next_round(view: View, changes: Mapping[JobId, Grant | None]) -> bool:
    """Return True if a job runs after the changes, and one has GPUs or another one waits."""
    # A job that waits while only jobs without GPUs run may wait for cores, and the end of a job is
    # no event here.
    running = [job for job, grant in {**view.grants, **changes}.items() if grant is not None]
    return bool(running) and (
        len(running) < len(view.active) or any(view.demand(job).gpus for job in running)
    )


def shape(types: int, gpus: Mapping[int, int], nodes: int) -> Shape:
    """Return the shape of GPUs of each type on a number of nodes."""
    return Shape(tuple([gpus.get(kind, 0) for kind in range(types)]), nodes)


def gang_of(demand: Demand, spots: Iterable[Spot]) -> Gang:
    """Return a gang of these replicas per node, in order of the nodes' numbers.

    Its parameter servers count as if they were all on the first node until they are placed.
    """
    nodes, count = zip(*sorted(spots), strict=True)
    servers = demand.servers
    server_part = (
        None
        if servers is None
        else Part(nodes[:1], (servers.replicas,), servers.gpus, servers.cpus, servers.mem_gb)
    )
    return Gang(Part(nodes, count, demand.gpus, demand.cpus, demand.mem_gb), server_part)


def spots_of(gang: Gang) -> Spots:
    """Return the (node, replicas) pairs of the workers of a gang."""
    return tuple(zip(gang.workers.nodes, gang.workers.count, strict=True))


def fill_in_order(fits: Iterable[tuple[int, int]], need: int) -> list[Spot]:
    """Return replicas per node for nodes given as (replicas that fit, node), filled in order.

    Empty if the nodes are too few.
    """
    spots = []
    for fit, node in fits:
        if fit:
            spots.append((node, min(fit, need)))
            need -= spots[-1][1]
            if not need:
                return spots
    return []
