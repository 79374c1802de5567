"""Optimus: one worker or parameter server at a time to the job whose remaining time falls most for
what it takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Final, NamedTuple

from allocators.nesting import next_tick
from allocators.parameter_server.replicas import Size, Staff, held_size, size_of
from allocators.placement import RUN_TIME, Placer, placement_param, types_param
from allocators.reasons import joined, next_decision, room
from allocators.toolkit import none_of, settle
from sim.contract import (
    EMPTY,
    Allocator,
    Cadence,
    Card,
    Decided,
    Demand,
    JobId,
    Needs,
    Plan,
    Reason,
    View,
    param,
)

ORIGINAL, GROW_ONLY = "original", "grow_only"
Amount = tuple[float, float, float]
"""GPUs, cores and GB."""
_SLACK: Final = 1e-6  # amounts are sums of many fractions


class NextReplica(NamedTuple):
    """The best next worker or server of a job; the least goes first."""

    minus_gain: float
    job: JobId
    size: Size
    takes: Amount


@dataclass
class Optimus(Allocator):
    """Allocate the cluster again every interval: the least for each job first, then worker by
    worker and server by server where the gain is largest.

    Notes
    -----
    Every ``interval_s`` each job, in order of arrival, gets one worker and one parameter server if
    they fit; then that worker or server is added for which (fall of the remaining time) / (dominant
    share of the cluster that it takes) is largest over all jobs, until the largest is not above 0
    or does not fit. What fits is counted over all nodes that are in service [1]_. Then nodes are
    found: for jobs that shrink first, then those that grow, then those that start; a job that finds
    none for its new size keeps what it has, or starts with one worker and one server.

    ``grow_only`` is how the follow-up of AITurbo ran it (MaoZzzzz/Aiturbo-vGPU): jobs start with
    what their users ask for, in order of arrival and passing those that do not fit, and only ever
    gain workers and servers.

    References
    ----------
    .. [1] Y. Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning
    Clusters", EuroSys 2018, section 4; the authors' simulator
       (pengyanghua/optimus).
    """

    variant: str = param(
        ORIGINAL,
        title="Initial size",
        choices=(ORIGINAL, GROW_ONLY),
        labels={ORIGINAL: "One worker, one server", GROW_ONLY: "The size asked for"},
        help=(
            "original: every job begins with one worker and one server. grow_only: with the"
            " size it asks for."
        ),
    )
    interval_s: float = param(
        600.0,
        title="Time between decisions",
        unit="s",
        low=1,
        high=1e7,
        help="Time between two decisions; in between nothing starts.",
    )
    most_servers: int = param(
        10,
        title="Most parameter servers per job",
        low=1,
        high=1000,
        help="Most parameter servers of a job, unless it asks for more.",
    )
    placement: str = placement_param()
    types: str = types_param()
    _place: Placer = field(init=False, repr=False)
    _given: tuple[float, dict[JobId, Size]] = field(
        init=False, repr=False, default_factory=lambda: (-inf, {})
    )
    _staff: Staff = field(init=False, repr=False)
    _jobs: int = field(init=False, repr=False, default=0)
    _resizes: bool = field(init=False, repr=False, default=False)

    needs = Needs(RUN_TIME, frozenset({"servers", "scaling"}))
    card = Card(
        title="Optimus",
        brief="next worker to the steepest gain",
        what=(
            "Adds a worker or parameter server where the remaining time of a job falls"
            " most per share of the cluster used."
        ),
        cost="Every decision may change most running jobs, and each change costs a restart.",
        limits=(
            "As good as its speed model and size estimates. Decides at intervals only."
            " Treats all GPU types as equal."
        ),
        source="Peng et al., Optimus, EuroSys 2018; the authors' simulator",
        certainty=(
            "exact in the division; our reading of what happens when nodes do not suffice for it"
        ),
        goals=("elastic", "short waits"),
        how=(
            (
                "At intervals the cluster is allocated again: first one worker and one"
                " parameter server per job, in order of arrival."
            ),
            (
                "Then workers and servers are added one by one, where remaining time falls the"
                " most per share of the cluster used."
            ),
            "This ends when no addition helps or fits.",
            (
                "Nodes are assigned to jobs that shrink, then to jobs that grow, then to jobs"
                " that start."
            ),
            "Between two decisions nothing starts.",
        ),
    )

    def __post_init__(self) -> None:
        """Prepare empty tables."""
        self._place = Placer(self.placement, self.types, mix=False)
        self._staff = Staff(self._place, self.most_servers)

    @property
    def cadence(self) -> Cadence:
        """Asked at intervals only."""
        return Cadence(
            on_arrival=False, on_finish=False, on_capacity=False, every_s=self.interval_s
        )

    def remarks(self) -> tuple[str, ...]:
        """Say that nothing was resized."""
        if not self._jobs or self._resizes:
            return ()
        return (
            f"optimus resized nothing: {none_of(self._jobs)} had another size than it asked for.",
        )

    def allocate(self, view: View, /) -> Plan:
        """Divide what there is."""
        self._staff.forget(view.delta.finished)
        self._jobs += len(view.delta.arrived)
        jobs = view.active.ids.tolist()
        if not jobs:
            return EMPTY
        self._staff.learn(view, jobs)
        sizes = self._divided(view, jobs)
        self._given = view.now_s, sizes
        self._resizes = self._resizes or any(
            size != size_of(view.demand(job)) for job, size in sizes.items()
        )
        changes = settle(
            view,
            self._place,
            sorted(sizes, key=lambda job: _turn(view, job, sizes[job])),
            lambda job: self._wishes(view, job, sizes[job]),
        )
        return Plan(changes) if changes else EMPTY

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """State when the cluster is divided next, or what was left for a job when it was."""
        given_s, sizes = self._given
        now_s = decided.view.now_s
        if given_s != now_s:
            return next_decision(next_tick(now_s, self.interval_s), "the cluster was divided again")
        size = sizes.get(job)
        if size is None:
            before = sum(one < job for one in sizes)
            return joined(
                "one worker and one parameter server each, in order of submission, left nothing"
                " for it after {before:jobs} before it",
                room(decided, job),
                before=before,
            )
        return joined(
            "the division gave it {workers:number} workers and {servers:number} parameter servers,"
            " for which no nodes had room",
            room(decided, job),
            workers=size.workers,
            servers=size.servers,
        )

    # -- how much for whom
    # ----------------------------------------------------------------------------------------------

    def _divided(self, view: View, jobs: list[JobId]) -> dict[JobId, Size]:
        total = _in_service(view)
        remaining = dict(zip(jobs, view.active.remaining_work.tolist(), strict=True))
        left, sizes = self._first(view, jobs, total)
        steps: list[NextReplica] = []
        for job in sizes:
            self._push(steps, view, (job, sizes[job]), remaining[job], total)
        while steps and steps[0].minus_gain < 0 and _fits(steps[0].takes, left):
            step = heappop(steps)
            left = _less(left, step.takes)
            sizes[step.job] = step.size
            self._push(steps, view, (step.job, step.size), remaining[step.job], total)
        return sizes

    def _first(
        self, view: View, jobs: Iterable[JobId], total: Amount
    ) -> tuple[Amount, dict[JobId, Size]]:
        """Give each job its first size, in order of arrival; running jobs that may only grow come
        first.
        """
        left, sizes = total, dict[JobId, Size]()
        grows = self.variant == GROW_ONLY
        for job in sorted(jobs, key=lambda job: (grows and job not in view.grants, job)):
            asked = view.demand(job)
            if not view.one("preemptible", job) and job in view.grants:
                size = held_size(view.grants[job])
            elif grows:
                size = held_size(view.grants[job]) if job in view.grants else size_of(asked)
            else:
                size = self._staff.range(view, job)[0]
            takes = _amount(self._staff.demand(asked, size))
            if _fits(takes, left) or (grows and job in view.grants):
                left, sizes[job] = _less(left, takes), size
        return left, sizes

    def _push(
        self,
        steps: list[NextReplica],
        view: View,
        now: tuple[JobId, Size],
        remaining: float,
        total: Amount,
    ) -> None:
        job, size = now
        if not view.one("preemptible", job) and job in view.grants:
            return
        most = self._staff.range(view, job)[1]
        rate, asked = self._staff.rate(job, size), view.demand(job)
        before_s, had = (
            remaining / rate if rate > 0 else inf,
            _amount(self._staff.demand(asked, size)),
        )
        best: NextReplica | None = None
        for more in (Size(size.workers + 1, size.servers), Size(size.workers, size.servers + 1)):
            if (
                more.workers > most.workers
                or more.servers > most.servers
                or (faster := self._staff.rate(job, more)) <= 0
            ):
                continue
            takes = _less(_amount(self._staff.demand(asked, more)), had)
            share = max(
                part / whole if whole else 0.0 for part, whole in zip(takes, total, strict=True)
            )
            step = NextReplica(
                (remaining / faster - before_s) / share if share else -inf, job, more, takes
            )
            best = step if best is None or step < best else best
        if best is not None:
            heappush(steps, best)

    def _wishes(self, view: View, job: JobId, size: Size) -> tuple[Demand, ...]:
        asked, least = view.demand(job), self._staff.range(view, job)[0]
        return self._staff.demand(asked, size), self._staff.demand(asked, least)


def _turn(view: View, job: JobId, size: Size) -> tuple[int, JobId]:
    grant = view.grants.get(job)
    if grant is None:
        return 2, job
    held = held_size(grant)
    return int(size.workers > held.workers or size.servers > held.servers), job


def _in_service(view: View) -> Amount:
    """Return what all nodes in service have together."""
    used = {
        node
        for grant in view.grants.values()
        for part in grant.gangs[0]
        if part is not None
        for node in part.nodes
    }
    there = zip(view.cluster.nodes, view.capacity.tolist(), view.free_cpus.tolist(), strict=True)
    nodes = [
        node
        for at, (node, gpus, cpus) in enumerate(there)
        if gpus or (not node.gpus and (cpus or at in used))
    ]
    return (
        float(sum([node.gpus for node in nodes])),
        sum([node.cpus for node in nodes]),
        sum([node.mem_gb for node in nodes]),
    )


def _amount(demand: Demand) -> Amount:
    parts = [part for part in (demand, demand.servers) if part is not None]
    return (
        sum(part.replicas * part.gpus for part in parts),
        sum(part.replicas * part.cpus for part in parts),
        sum(part.replicas * part.mem_gb for part in parts),
    )


def _less(left: Amount, takes: Amount) -> Amount:
    return left[0] - takes[0], left[1] - takes[1], left[2] - takes[2]


def _fits(takes: Amount, left: Amount) -> bool:
    return all(part <= free + _SLACK for part, free in zip(takes, left, strict=True))
