"""HadarE: jobs are forked into copies that train at the same time on several nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from typing import Final, NamedTuple

import numpy as np

from allocators.heterogeneous.hadar.rounds import (
    Free,
    FreeJobs,
    RoundLoop,
    Sites,
    Spots,
    fill_in_order,
    gang_of,
    shape,
    spots_of,
)
from allocators.placement import RUN_TIME_NEEDS
from allocators.reasons import next_decision_reason, outranked_reason, room_reason
from allocators.toolkit import DEFAULT_ROUND_S, round_param
from sim.contract import (
    Allocator,
    Cadence,
    Card,
    Decided,
    Demand,
    Floats,
    Grant,
    Ints,
    JobId,
    Needs,
    Plan,
    Reason,
    View,
    param,
)

Copies = dict[JobId, list[Spots]]
"""Job -> nodes of each of its copies: one node, or several for the only copy of a gang that no node
can hold.
"""


class Speeds:
    """Estimated work per second of copies on one node, for all jobs of a round.

    A job's estimates stay the same, so they are kept for later rounds.

    Parameters
    ----------
    sites : Sites
        Nodes that demands may use.
    """

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self._by_id: dict[tuple[int, int], tuple[Floats, Ints]] = {}
        self._cache: dict[tuple[int, int], tuple[Floats, Ints]] = {}

    def begin_round(self, view: View, jobs: FreeJobs) -> None:
        """Set the instant and the jobs of a round."""
        self._view, self._jobs, self._types = view, jobs, len(view.cluster.types)
        self._cache.clear()
        self.demands = [view.demand(job) for job in jobs.ids.tolist()]

    def speeds_on(self, kind: int, gpus: int) -> tuple[Floats, Ints]:
        """Return speed and size of each job's copy on at most `gpus` GPUs of one node; cached.

        The size is the gang, or the largest part of it that the performance model supports.
        """
        speeds_and_sizes = self._cache.get((kind, gpus))
        if speeds_and_sizes is None:
            ids = self._jobs.ids
            speeds, sizes = self._by_id.get((kind, gpus), (np.zeros(0), np.zeros(0, np.int64)))
            missing = max(int(ids.max(initial=-1)) + 1 - len(speeds), 0)
            if missing:
                speeds = np.append(speeds, np.full(missing, nan))
                sizes = np.append(sizes, np.zeros(missing, np.int64))
                self._by_id[kind, gpus] = speeds, sizes
            unknown = np.isnan(speeds[ids])
            if unknown.any():
                self._estimate(kind, gpus, np.flatnonzero(unknown))
            speeds_and_sizes = self._cache[kind, gpus] = speeds[ids], sizes[ids]
        return speeds_and_sizes

    def _estimate(self, kind: int, gpus: int, rows: Ints) -> None:
        """Store speed and size of the copies of some jobs of the round, by their index in it."""
        jobs, (speeds, sizes) = self._jobs, self._by_id[kind, gpus]
        for gang in np.unique(jobs.gangs[rows]).tolist():
            ids = jobs.ids[rows[jobs.gangs[rows] == gang]]
            tried = [gang] if gang <= gpus else list(range(gpus, 0, -1))
            rates = self._view.estimates.rates(
                ids, [shape(self._types, {kind: size}, 1) for size in tried]
            )
            first = (rates > 0).argmax(axis=1)
            speeds[ids], sizes[ids] = rates[np.arange(len(ids)), first], np.array(tried)[first]

    def are_wide(self) -> list[bool]:
        """Return, for each job, whether no node could hold a copy even when empty."""
        verdicts: dict[int, list[tuple[int, int]]] = {}
        flags = []
        for at, demand in enumerate(self.demands):
            most = verdicts.get(demand.key)
            if most is None:
                most = [
                    (kind, self.sites.max_replicas(self._view, demand, kind))
                    for kind in self.sites.nodes(self._view, demand)
                ]
                verdicts[demand.key] = most
            flags.append(
                not any(
                    fit >= demand.replicas
                    or (fit and self.speeds_on(kind, fit * demand.gpus)[0][at] > 0)
                    for kind, fit in most
                )
            )
        return flags


ORDERS: Final[Mapping[str, str]] = {
    "submission": "submitted earlier, or at the same time with more time left,",
    "longest": "with more time left than its {left:duration}",
    "shortest": "with less time left than its {left:duration}",
    "slowdown": "with a longer wait for the time they have left",
}
"""Order of the first nodes -> the clause of a reason about the jobs that go first."""


def first_node_ranks(order: str, jobs: FreeJobs, left_s: Floats, now_s: float) -> Ints:
    """Return the rank of each job for its first node, 0 = first; ties by job id.

    Parameters
    ----------
    order : str
        One of `ORDERS`. submission: the earliest first, of jobs submitted together the one with the
        most time left; longest, shortest: by time left; slowdown: by time since submission / time
        left, the largest first.
    jobs : FreeJobs
        The jobs of the round.
    left_s : array of shape (jobs,), seconds
        Time left on the best type of each job.
    now_s : float, seconds
        The instant.
    """
    keys = {
        "submission": (-left_s, jobs.arrival_s),
        "longest": (-left_s,),
        "shortest": (left_s,),
        "slowdown": ((jobs.arrival_s - now_s) / left_s,),
    }[order]
    ranks = np.empty(len(jobs.ids), np.int64)
    ranks[np.lexsort((jobs.ids, *keys))] = np.arange(len(ranks))
    return ranks


class DealRules(NamedTuple):
    """Order of jobs for their first node, and limits of forking.

    Parameters
    ----------
    ranks : array of int, shape (jobs,)
        From `first_node_ranks`.
    max_copies : int
        Most copies of a job; 0 = one on every node.
    fill : bool
        Whether a copy is made even if it does not make its job faster.
    """

    ranks: Ints
    max_copies: int
    fill: bool


class Deal:
    """Assignment of all nodes to jobs and their copies in one round.

    Parameters
    ----------
    view, jobs, paces : View, FreeJobs, array of shape (jobs, types)
        The instant, and the work per second of complete gangs on each type.
    free : Free
        Free resources.
    speeds : Speeds
        Speeds of copies, and nodes that demands may use.
    rules : DealRules
        Ranks of the jobs and limits of forking.

    Notes
    -----
    Each node is filled in turn. Candidates are the jobs that have no copy there, fit, and have
    fewer than the most copies. Jobs without any copy go first, in order of their ranks; then the
    job with the most time left at the speed that it has been given so far. Ties go by job id.
    """

    def __init__(
        self,
        view: View,
        jobs: FreeJobs,
        paces: Floats,
        free: Free,
        speeds: Speeds,
        rules: DealRules,
    ) -> None:
        self._view, self._free, self._fill = view, free, rules.fill
        self._speeds, self._sites = speeds, speeds.sites
        speeds.begin_round(view, jobs)
        self._demands, self._ids = self._speeds.demands, jobs.ids.tolist()
        self._wide = np.array(self._speeds.are_wide(), bool)
        self._left, self._given = jobs.left, np.zeros(len(jobs.ids))
        self._ranks = rules.ranks
        self._most = np.where(self._wide, 1, rules.max_copies or len(view.cluster.nodes))
        self._number = np.zeros(len(jobs.ids), np.int64)
        self._paces = paces
        self._kinds = [
            view.cluster.type_index.get(node.gpu_type, -1) for node in view.cluster.nodes
        ]
        self._admit: dict[int, np.ndarray[tuple[int], np.dtype[np.bool_]]] = {}
        self.copies: Copies = {}

    def assign_copies(self) -> Copies:
        """Fill nodes one by one with job copies while GPUs and jobs last; return them by job."""
        for node in self._nodes():
            barred = np.zeros(len(self._ids), bool)
            while self._free.gpus[node]:
                at = self._next_job(node, barred)
                if at is None:
                    break
                spots = self._copy_nodes(at, node)
                if spots:
                    self._add_copy(at, spots)
                barred[at] = True
        return self.copies

    def _nodes(self) -> Iterator[int]:
        """Yield the nodes with free GPUs, the fastest type first."""
        # The fastest type has the largest mean of speed over best speed of the jobs.
        share = (self._paces / self._paces.max(axis=1, keepdims=True)).mean(axis=0)
        there = [node for node, gpus in enumerate(self._free.gpus) if gpus]
        yield from sorted(there, key=lambda node: (-share[self._kinds[node]], node))

    def _next_job(
        self, node: int, barred: np.ndarray[tuple[int], np.dtype[np.bool_]]
    ) -> int | None:
        """Return the index of the job that gets the next copy on a node, or None.

        Jobs without a copy go first, by rank; then the job with the most time left.
        """
        kind = self._kinds[node]
        speed, _ = self._speeds.speeds_on(kind, self._free.gpus[node])
        runs = np.where(self._wide, self._paces[:, kind], speed) > 0
        can = runs & ~barred & (self._number < self._most) & self._allowed_jobs(node)
        if not can.any():
            return None
        first = can & (self._number == 0)
        if first.any():
            return int(np.where(first, self._ranks, len(self._ranks)).argmin())
        return int(
            np.where(can, self._left / np.where(self._given > 0, self._given, 1.0), -inf).argmax()
        )

    def _allowed_jobs(self, node: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return, as one boolean per job, which jobs may use a node; cached by pool."""
        pool = (
            next(at for at, pool in enumerate(self._view.room.pools) if node in pool.nodes)
            if node not in self._admit
            else -1
        )
        if pool >= 0:
            mask = np.array([pool in demand.pools for demand in self._demands], bool)
            self._admit |= dict.fromkeys(self._view.room.pools[pool].nodes, mask)
        return self._admit[node]

    def _copy_nodes(self, at: int, node: int) -> Spots:
        """Return (node, replicas) pairs of a job's copy on a node; empty without room or gain.

        A job that no single node can hold also uses other nodes of the type.
        """
        demand, kind = self._demands[at], self._kinds[node]
        fit = self._free.fit(node, demand)
        if self._wide[at]:
            others = [
                (self._free.fit(other, demand), other)
                for other in self._sites.nodes(self._view, demand)[kind]
                if other != node
            ]
            return (
                tuple(
                    fill_in_order(
                        [(fit, node), *sorted(others, key=lambda fit: (-fit[0], fit[1]))],
                        demand.replicas,
                    )
                )
                if fit
                else ()
            )
        speeds, sizes = (
            self._speeds.speeds_on(kind, fit * demand.gpus) if fit else (self._given, self._number)
        )
        if not fit or not speeds[at]:
            return ()
        spots = ((node, int(sizes[at]) // demand.gpus),)
        return spots if self._fill or not self._number[at] or self._is_faster(at, spots) else ()

    def _is_faster(self, at: int, spots: Spots) -> bool:
        """Return True if a further copy on these nodes makes a job faster."""
        job, demand = self._ids[at], self._demands[at]
        before, after = (
            grant_of(demand, copies) for copies in (self.copies[job], [*self.copies[job], spots])
        )
        return self._view.estimates.rate(job, after) > self._view.estimates.rate(job, before)

    def _add_copy(self, at: int, spots: Spots) -> None:
        """Record a copy of a job with its speed, and subtract its resources."""
        kind, demand = self._kinds[spots[0][0]], self._demands[at]
        speed = (
            self._paces[at, kind]
            if self._wide[at]
            else self._speeds.speeds_on(kind, self._free.fit(spots[0][0], demand) * demand.gpus)[0][
                at
            ]
        )
        self._free.take(demand, spots)
        self._given[at] += speed
        self._number[at] += 1
        self.copies.setdefault(self._ids[at], []).append(spots)


def grant_of(demand: Demand, copies: Sequence[Spots]) -> Grant:
    """Return the grant of a job with these copies, in order of their nodes."""
    return Grant(tuple(gang_of(demand, spots) for spots in sorted(copies)))


def keep_in_place(
    view: View, dealt: Copies, before: Mapping[JobId, Sequence[Spots]], free: Free
) -> Copies:
    """Return the assignment with equal nodes exchanged so that most copies keep their nodes.

    Parameters
    ----------
    view : View
        The instant.
    dealt, before : mappings
        Assigned and present nodes of the copies.
    free : Free
        Free resources before the assignment: nodes of one pool with the same free resources are
        equal.
    """
    likes = _node_keys(view, free)
    was: dict[tuple[JobId, int], list[int]] = {}
    for job, copies in before.items():
        for node, count in (spot for spots in copies for spot in spots):
            was.setdefault((job, count), []).append(node)
    gains: dict[tuple[int, int], int] = {}
    for job, copies in dealt.items():
        for node, count in (spot for spots in copies for spot in spots):
            for other in was.get((job, count), ()):
                if likes[node] == likes[other]:
                    gains[node, other] = gains.get((node, other), 0) + count
    moved: dict[int, int] = {}
    taken: set[int] = set()
    for (node, other), _ in sorted(
        gains.items(), key=lambda gain: (-gain[1], gain[0][0] != gain[0][1], gain[0])
    ):
        if node not in moved and other not in taken:
            moved[node] = other
            taken.add(other)
    used = sorted(
        {node for copies in dealt.values() for spots in copies for node, _ in spots} - moved.keys()
    )
    at_home = {node: node for node in used if node not in taken}
    moved, taken = moved | at_home, taken | at_home.keys()
    others: dict[tuple[int, int, float, float], list[int]] = {}
    for node in sorted(likes.keys() - taken, reverse=True):
        others.setdefault(likes[node], []).append(node)
    moved |= {node: others[likes[node]].pop() for node in used if node not in at_home}
    return {
        job: [tuple((moved[node], count) for node, count in spots) for spots in copies]
        for job, copies in dealt.items()
    }


def _node_keys(view: View, free: Free) -> dict[int, tuple[int, int, float, float]]:
    """Return a key for each node with free GPUs; nodes with equal keys are interchangeable."""
    cpus, mem_gb = free.cpus or [inf] * len(free.gpus), free.mem_gb or [inf] * len(free.gpus)
    return {
        node: (at, free.gpus[node], cpus[node], mem_gb[node])
        for at, pool in enumerate(view.room.pools)
        for node in pool.nodes
        if free.gpus[node]
    }


@dataclass
class HadarE(Allocator):
    """Assign all nodes in every round: each job gets one, then further nodes with copies of it.

    Notes
    -----
    Our reading of the abstract of [1]_. Every job may be forked into as many copies as there are
    nodes; a copy runs on one node, and a node has at most one copy of a job. Nodes are assigned one
    by one, the fastest first: first to jobs without a node, in the order of ``order``, so every job
    has a node before any has two. A further node goes to the job with the largest remaining time,
    which is estimated work left over the sum of its speeds so far, if a copy there makes the job
    faster; with ``fill`` even if it does not. The performance model decides how the steps of a
    round are split and what joining copies costs: rates of copies add up, less the time for joining
    once a round (``consolidate_s``, ``round_s``) and the loss of steps made separately
    (``efficiency``).

    Ours, chosen from the stated objectives, utilization and total time: ``order=submission`` is
    longest first for jobs that are submitted together, which ends a batch early, and does not
    starve a stream; a copy that makes its job slower raises utilization and the total time, so
    ``fill`` is off. See decision 0039.

    Also ours: the fastest type has the largest mean of speed over best speed of the jobs. On a node
    of several GPUs a copy takes as many as the job requests, or the largest smaller number that the
    performance model supports; other GPUs go to the next job. A job that no node can hold runs as
    one copy on the fewest nodes of one type. Equal nodes are exchanged so that copies keep their
    nodes. Rounds are as in Hadar: back to back while a job runs, then from the next arrival. CPU
    jobs start when they fit and are never stopped.

    Observed: with about as many jobs as nodes nearly all of the gain over Hadar comes from
    assigning a batch by time left, which makes jobs end together, and little from forking;
    ``max_copies = 1`` shows how much. Forking itself pays with fewer jobs than nodes.

    References
    ----------
    .. [1] A. Sultana, N. Pakka, F. Xu, X. Yuan, L. Chen, N.-F. Tzeng, "Resource Heterogeneity-Aware
    and Utilization-Enhanced Scheduling for Deep Learning
       Clusters", arXiv 2503.10918.
    """

    order: str = param(
        "submission",
        title="First nodes go to",
        choices=tuple(ORDERS),
        labels={
            "submission": "Earliest submission",
            "longest": "Most time left",
            "shortest": "Least time left",
            "slowdown": "Longest wait per time left",
        },
        help=(
            "Of equal submissions the longest first. Sample week, mean completion time (longest"
            " wait): submission 3.9 h (8 h), most left 13.3 h (40 h), least left 2.6 h (22 h), wait"
            " per time left 2.9 h (9 h)."
        ),
    )
    max_copies: int = param(
        0,
        title="Most copies per job",
        low=0,
        high=100_000,
        help="Most copies of one job; 0 = one on every node.",
    )
    fill: bool = param(
        False,
        title="Fork beyond the gain",
        help=(
            "Whether idle GPUs get another copy even without a speed-up. Sample pai-like: GPUs"
            " busy 96 instead of 87 %, mean completion time 0.9 instead of 0.8 h."
        ),
    )
    round_s: float = round_param()
    _rounds: RoundLoop = field(init=False, repr=False)
    _speeds: Speeds = field(init=False, repr=False)
    _last_s: float = field(init=False, repr=False, default=-inf)
    _last_ranks: dict[JobId, int] = field(init=False, repr=False, default_factory=dict)
    _left_s: dict[JobId, float] = field(init=False, repr=False, default_factory=dict)
    _dealt: int = field(init=False, repr=False, default=0)
    _forked: int = field(init=False, repr=False, default=0)

    cadence = Cadence(on_finish=False)
    card = Card(
        title="HadarE",
        brief="copies of one job on several nodes",
        what=(
            "Splits the steps of each job among copies on separate nodes, so no node idles while a"
            " job exists."
        ),
        cost=(
            "Merging copies takes time every round; a step of a copy may be worth less than a"
            " joint step."
        ),
        limits=(
            "Assumes that averaging weights once a round loses nothing; the loss is a"
            " parameter of the performance model."
        ),
        source="Sultana et al., arXiv 2503.10918",
        certainty=(
            "our reading of the abstract alone: order of jobs, limit of forking, gangs of several"
            " GPUs and ties"
        ),
        goals=("heterogeneous",),
        how=(
            (
                "Time is divided into rounds; in each, all nodes are assigned again, the"
                " fastest type first."
            ),
            (
                "Every job has a node before any has two: the earliest submission first, of jobs"
                " submitted together the longest."
            ),
            (
                "A further node runs a copy of the job with the most time left, if that makes it"
                " faster."
            ),
            "Copies train at the same time and are joined once a round.",
        ),
    )

    @property
    def needs(self) -> Needs:
        """Need remaining work, rates, and several gangs per job if jobs may have copies."""
        return Needs(RUN_TIME_NEEDS, frozenset({"forks"} if self.max_copies != 1 else ()))

    def __post_init__(self) -> None:
        """Create the rounds, and keep the speeds of copies for all of them."""
        self._rounds = RoundLoop(self.round_s)
        self._speeds = Speeds(self._rounds.sites)

    def remarks(self) -> tuple[str, ...]:
        """Return notes on a changed round length, and if no job was ever forked."""
        notes = []
        if self.round_s != DEFAULT_ROUND_S:
            joining_note = (
                "Joining copies is charged once per round of the performance model (Trace), whose"
                " length should be the same."
            )
            notes.append(f"Rounds are {self.round_s:g} s long. {joining_note}")
        if self._dealt and not self._forked:
            notes.append(
                f"HadarE forked nothing: in {self._dealt:,} round{'s' if self._dealt > 1 else ''}"
                " no job had a second copy."
            )
        return tuple(notes)

    def allocate(self, view: View, /) -> Plan:
        """Assign the nodes if a round begins now; otherwise only start jobs without GPUs."""
        return self._rounds.plan(view, self._decide)

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait by the jobs ahead in the order, or between rounds by the next one."""
        if not decided.wants(job):
            return room_reason(decided, job)
        if self._last_s != decided.view.now_s or job not in self._last_ranks:
            return next_decision_reason(self._rounds.ends_s, "the next round began")
        own = self._last_ranks[job]
        ahead = [one for one in decided.grants if self._last_ranks.get(one, own) < own]
        return outranked_reason(
            decided,
            job,
            ahead,
            f"{ORDERS[self.order]} got their nodes first and",
            left=self._left_s[job],
        )

    def _decide(
        self, view: View, jobs: FreeJobs, paces: Floats, free: Free
    ) -> tuple[dict[JobId, Grant], Mapping[str, float]]:
        """Return the grants of a round by job, and its notes; jobs left out hold no GPUs."""
        ids, left_s = jobs.ids.tolist(), jobs.left / paces.max(axis=1)
        ranks = first_node_ranks(self.order, jobs, left_s, view.now_s)
        rules = DealRules(ranks, self.max_copies, self.fill)
        dealt = Deal(view, jobs, paces, free.copy(), self._speeds, rules).assign_copies()
        held = {
            job: _copy_spots(grant) for job in ids if (grant := view.grants.get(job)) is not None
        }
        self._last_s, self._last_ranks = view.now_s, dict(zip(ids, ranks.tolist(), strict=True))
        self._left_s = dict(zip(ids, left_s.tolist(), strict=True))
        forked = sum([len(copies) > 1 for copies in dealt.values()])
        self._dealt, self._forked = self._dealt + 1, self._forked + forked
        target = {}
        for job, copies in keep_in_place(view, dealt, held, free).items():
            grant = grant_of(view.demand(job), copies)
            now = view.grants.get(job)
            target[job] = now if now is not None and now.gangs == grant.gangs else grant
        return target, {"copies": sum([len(copies) for copies in dealt.values()]), "forked": forked}


def _copy_spots(grant: Grant) -> Sequence[tuple[tuple[int, int], ...]]:
    """Return the (node, replicas) pairs of each copy in a grant."""
    return [spots_of(gang) for gang in grant.gangs]
