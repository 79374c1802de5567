"""Policies that place all jobs again in each round: when a round begins, which jobs it may place,
and what is free without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isinf
from typing import NamedTuple

import numpy as np

from allocators.placement import Placer, Spot, capacity_for
from allocators.toolkit import Aside, RoundClock
from sim.contract import Demand, Floats, Gang, Grant, Ints, JobId, Part, Plan, Shape, View, inf

Spots = tuple[Spot, ...]


class Free:
    """What is free on each node, as it goes through the hands of one decision.

    Parameters
    ----------
    gpus : list of int
        By node.
    cpus, mem_gb : list of float, or None
        By node; None where no node limits them.
    """

    __slots__ = ("cpus", "gpus", "mem_gb")

    def __init__(
        self, gpus: list[int], cpus: list[float] | None, mem_gb: list[float] | None
    ) -> None:
        self.gpus, self.cpus, self.mem_gb = gpus, cpus, mem_gb

    @classmethod
    def of(cls, view: View) -> Free:
        """Read off what the room of a view has."""
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
        """Return the same in other hands."""
        return Free(
            self.gpus.copy(), self.cpus and self.cpus.copy(), self.mem_gb and self.mem_gb.copy()
        )

    def fit(self, node: int, demand: Demand) -> int:
        """Return how many replicas of a GPU job the node can take."""
        fit = self.gpus[node] // demand.gpus
        if (
            fit
            and self.cpus is not None
            and self.mem_gb is not None
            and (demand.cpus or demand.mem_gb)
        ):
            # A hair's breadth is forgiven, as the ledger does.
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
        """Take replicas."""
        for node, count in spots:
            self.gpus[node] -= count * demand.gpus
            if self.cpus is not None and self.mem_gb is not None:
                self.cpus[node] = round(self.cpus[node] - count * demand.cpus, 6)
                self.mem_gb[node] = round(self.mem_gb[node] - count * demand.mem_gb, 6)


class FreeJobs(NamedTuple):
    """The GPU jobs that a round is free to place, in order of job id.

    Parameters
    ----------
    ids, gangs : arrays of int, shape (jobs,)
        Who, and how many GPUs each asks for.
    arrival_s, left : arrays of shape (jobs,)
        Seconds of submission, and estimated work left.
    """

    ids: Ints
    gangs: Ints
    arrival_s: Floats
    left: Floats

    @classmethod
    def of(cls, view: View) -> FreeJobs:
        """Return all waiting jobs, and the running jobs that may be stopped."""
        active = view.active
        mask = (active.gpus > 0) & (
            active.preemptible | ~np.isin(active.ids, np.array(list(view.grants), np.int64))
        )
        return cls(
            active.ids[mask], active.gpus[mask], active.arrival_s[mask], active.remaining_work[mask]
        )


class Sites:
    """Where demands may go, type by type; built once, since demands are shared objects."""

    def __init__(self) -> None:
        self._nodes: dict[int, dict[int, tuple[int, ...]]] = {}
        self._most: dict[tuple[int, int], int] = {}
        self._fewest: dict[tuple[int, int], int] = {}

    def nodes(self, view: View, demand: Demand) -> Mapping[int, tuple[int, ...]]:
        """Return the nodes that a demand admits, by place of their GPU type in the cluster."""
        known = self._nodes.get(demand.key)
        if known is None:
            known = {}
            for at in demand.pools:
                pool = view.room.pools[at]
                known[pool.type_at] = tuple(sorted((*known.get(pool.type_at, ()), *pool.nodes)))
            self._nodes[demand.key] = known
        return known

    def most(self, view: View, demand: Demand, kind: int) -> int:
        """Return the most replicas that one node of a type holds when it is empty, at most the
        gang.
        """
        key = demand.key, kind
        if key not in self._most:
            self._most[key] = max(
                capacity_for(view, node, demand) for node in self.nodes(view, demand)[kind]
            )
        return self._most[key]

    def fewest(self, view: View, demand: Demand, kind: int) -> int:
        """Return on how few nodes of a type the gang would be if they were empty; all of them if it
        is too large for the type.
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
    """Estimated work per second of every job as a complete gang on each type it admits, on the
    fewest nodes; asked once, since speeds do not change.
    """

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._rows: dict[JobId, Floats] = {}

    def of(self, view: View, ids: Sequence[JobId]) -> Floats:
        """Return work per second, of shape (jobs, types); 0 where a job does not run."""
        fresh: dict[int, list[JobId]] = {}
        for job in ids:
            if job not in self._rows:
                fresh.setdefault(view.demand(job).key, []).append(job)
        for jobs in fresh.values():
            self._ask(view, jobs)
        return np.array([self._rows[job] for job in ids]).reshape(len(ids), len(view.cluster.types))

    def forget(self, finished: Iterable[JobId]) -> None:
        """Drop what is known of jobs that are gone."""
        for job in finished:
            self._rows.pop(job, None)

    def _ask(self, view: View, jobs: list[JobId]) -> None:
        demand, types = view.demand(jobs[0]), len(view.cluster.types)
        kinds = sorted(self._sites.nodes(view, demand))
        shapes = [
            shape(
                types, {kind: demand.replicas * demand.gpus}, self._sites.fewest(view, demand, kind)
            )
            for kind in kinds
        ]
        rows = np.zeros((len(jobs), types))
        rows[:, kinds] = view.estimates.rates(np.array(jobs), shapes)
        self._rows |= dict(zip(jobs, rows, strict=True))


Decide = Callable[[View, FreeJobs, Floats, Free], tuple[dict[JobId, Grant], Mapping[str, float]]]


class RoundLoop:
    """Rounds in which all jobs that may be stopped are placed again.

    Parameters
    ----------
    round_s : float, seconds
        Length of a round.

    Attributes
    ----------
    sites, paces : Sites, JobSpeeds
        Where demands may go, and how fast jobs are.
    """

    def __init__(self, round_s: float) -> None:
        self.sites = Sites()
        self.paces = JobSpeeds(self.sites)
        self._round_s, self._place = round_s, Placer("fewest", "fastest", False)
        self._clock, self._aside = RoundClock(round_s), Aside(self._place)

    @property
    def ends_s(self) -> float:
        """When the round ends that goes on; inf = none does."""
        return self._clock.ends_s

    def plan(self, view: View, decide: Decide) -> Plan:
        """Decide a round if one begins now; jobs without GPUs start at any time.

        Parameters
        ----------
        view : View
            The instant.
        decide : callable
            (view, jobs that run on some type, their `paces`, what is free without them) -> who
            shall hold what, and notes.
        """
        self.paces.forget(view.delta.finished)
        self._aside.feed(view)
        if not self._clock.is_due(view, self._aside):
            return Plan(self._aside.start(view), wake_at_s=self._next_s(view))
        jobs = FreeJobs.of(view)
        free = _lifted(view, jobs)
        paces = self.paces.of(view, jobs.ids.tolist())
        runs = paces.max(axis=1, initial=0.0) > 0
        target, notes = (
            decide(view, FreeJobs(*(column[runs] for column in jobs)), paces[runs], free)
            if runs.any()
            else ({}, {})
        )
        changes = _settled(view, jobs, target, self._place) | self._aside.start(view)
        self._clock.begin(view.now_s, goes_on=_goes_on(view, changes))
        return Plan(changes, wake_at_s=self._next_s(view), notes=notes)

    def _next_s(self, view: View) -> float:
        # A job without GPUs that loses its nodes is no news, so while one runs it is looked after
        # once a round, even if there are no rounds.
        return min(self._clock.ends_s, view.now_s + self._round_s if self._aside.running else inf)


def _lifted(view: View, jobs: FreeJobs) -> Free:
    """Return what is free without these jobs, and free it tentatively on the view."""
    for job in jobs.ids.tolist():
        if job in view.grants:
            view.room.give(view.grants[job])
    return Free.of(view)


def _settled(
    view: View, jobs: FreeJobs, target: Mapping[JobId, Grant], place: Placer
) -> dict[JobId, Grant | None]:
    """Return the changes that lead to the target after `_lifted`; parameter servers go where the
    workers of all leave room for them.
    """
    grants, changes = view.grants, dict[JobId, Grant | None]()
    for job, grant in target.items():
        for workers in (
            [grant]
            if view.demand(job).servers is None
            else [_of(gang.workers) for gang in grant.gangs]
        ):
            view.room.take(workers)
    for job in jobs.ids.tolist():
        found, servers = target.get(job), view.demand(job).servers
        if found is not None and servers is not None:
            found = _with_servers(view, servers, found, grants.get(job), place)
        if found != grants.get(job):
            changes[job] = found
    return changes


def _with_servers(
    view: View, servers: Demand, grant: Grant, held: Grant | None, place: Placer
) -> Grant | None:
    """Return the same workers with servers: the job's present ones, or others; copies without
    servers are dropped.
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
            room.take(_of(parts[0]))
            return held
    found = [place.with_servers(view, servers, _of(gang.workers)) for gang in grant.gangs]
    gangs = tuple(alone.gangs[0] for alone in found if alone is not None)
    return Grant(gangs, grant.tuning) if gangs else None


def _of(part: Part) -> Grant:
    return Grant((Gang(part),))


def _goes_on(view: View, changes: Mapping[JobId, Grant | None]) -> bool:
    # Who waits while only jobs without GPUs run may wait for cores; the end of a job is no news
    # here.
    running = [job for job, grant in {**view.grants, **changes}.items() if grant is not None]
    return bool(running) and (
        len(running) < len(view.active) or any(view.demand(job).gpus for job in running)
    )


def shape(types: int, gpus: Mapping[int, int], nodes: int) -> Shape:
    """Return the shape of so many GPUs of each type on so many nodes."""
    return Shape(tuple([gpus.get(kind, 0) for kind in range(types)]), nodes)


def gang_of(demand: Demand, spots: Iterable[Spot]) -> Gang:
    """Return a gang on these nodes, in order of their numbers; until its parameter servers are
    placed they count as if they were all on the first.
    """
    nodes, count = zip(*sorted(spots), strict=True)
    servers = demand.servers
    beside = (
        None
        if servers is None
        else Part(nodes[:1], (servers.replicas,), servers.gpus, servers.cpus, servers.mem_gb)
    )
    return Gang(Part(nodes, count, demand.gpus, demand.cpus, demand.mem_gb), beside)


def spots_of(gang: Gang) -> Spots:
    """Return where the workers of a gang are."""
    return tuple(zip(gang.workers.nodes, gang.workers.count, strict=True))


def greedily(fits: Iterable[tuple[int, int]], need: int) -> list[Spot]:
    """Fill nodes, given as (replicas that fit, node), in order, until nothing more is needed; empty
    if it is not enough.
    """
    spots = []
    for fit, node in fits:
        if fit:
            spots.append((node, min(fit, need)))
            need -= spots[-1][1]
            if not need:
                return spots
    return []
