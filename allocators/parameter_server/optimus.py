"""Optimus: replicas are added one by one where remaining time falls most per resource."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Final, NamedTuple

from allocators.inner_policies import next_tick
from allocators.parameter_server.replicas import Size, Staff, held_size, size_of
from allocators.placement import RUN_TIME_NEEDS, Placer, placement_param, types_param
from allocators.reasons import next_decision_reason, prefix_reason, room_reason
from allocators.toolkit import allocate_by_priority, none_of_jobs
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
_SLACK: Final = 1e-6  # tolerance for rounding errors in sums of amounts


class NextReplica(NamedTuple):
    """The best next worker or server of a job; the lowest `minus_gain` goes first."""

    minus_gain: float
    job: JobId
    size: Size
    takes: Amount


@dataclass
class Optimus(Allocator):
    """Divide the cluster every interval: replicas go one by one to the job that gains most.

    Notes
    -----
    Every ``interval_s`` each job, in order of arrival, gets one worker and one parameter server if
    they fit. Then the worker or server with the largest (reduction of remaining time) / (dominant
    share of the cluster) is added, until no gain is above 0 or the best one does not fit. Resources
    are counted over all nodes in service [1]_. Then nodes are assigned, first to jobs that shrink,
    then to jobs that grow, then to jobs that start. A job that finds no nodes for its new size
    keeps its grant, or starts with one worker and one server.

    ``grow_only`` is the variant in the follow-up of AITurbo (MaoZzzzz/Aiturbo-vGPU): jobs start
    with their requested size, in order of arrival, skipping those that do not fit, and only ever
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
        help="Whether jobs begin with one worker and one server, or with their request.",
    )
    interval_s: float = param(
        600.0,
        title="Time between decisions",
        unit="s",
        low=1,
        high=1e7,
        help="Time between decisions; nothing starts in between.",
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
    _total: Amount = field(init=False, repr=False, default=(0.0, 0.0, 0.0))
    _larger: dict[JobId, dict[Size, list[tuple[Size, float, float, Amount]]]] = field(
        init=False, repr=False, default_factory=dict
    )
    _resizes: bool = field(init=False, repr=False, default=False)

    needs = Needs(RUN_TIME_NEEDS, frozenset({"servers", "scaling"}))
    card = Card(
        title="Optimus",
        brief="adds workers where they help most",
        what=(
            "Adds a worker or parameter server where remaining time falls most per share of"
            " the cluster used."
        ),
        cost="Every decision may change most running jobs, at the cost of a restart each.",
        limits=(
            "Depends on the accuracy of its estimates. Decides at intervals only. Treats all GPU"
            " types as equal."
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
        """Create empty tables."""
        self._place = Placer(self.placement, self.types, mix=False)
        self._staff = Staff(self._place, self.most_servers)

    @property
    def cadence(self) -> Cadence:
        """Decide every `interval_s`, and not at events."""
        return Cadence(
            on_arrival=False, on_finish=False, on_capacity=False, every_s=self.interval_s
        )

    def remarks(self) -> tuple[str, ...]:
        """Return a note if no job was resized."""
        if not self._jobs or self._resizes:
            return ()
        return (
            f"optimus resized nothing: {none_of_jobs(self._jobs)} had another size than it asked"
            " for.",
        )

    def allocate(self, view: View, /) -> Plan:
        """Choose the sizes of all jobs and place them: shrinking, growing, then starting jobs."""
        self._staff.forget(view.delta.finished)
        for job in view.delta.finished:
            self._larger.pop(job, None)
        self._jobs += len(view.delta.arrived)
        jobs = view.active.ids.tolist()
        if not jobs:
            return EMPTY
        self._staff.estimate_rates(view, jobs)
        sizes = self._choose_sizes(view, jobs)
        self._given = view.now_s, sizes
        self._resizes = self._resizes or any(
            size != size_of(view.demand(job)) for job, size in sizes.items()
        )
        changes = allocate_by_priority(
            view,
            self._place,
            sorted(sizes, key=lambda job: _placement_key(view, job, sizes[job])),
            lambda job: self._acceptable_demands(view, job, sizes[job]),
        )
        return Plan(changes) if changes else EMPTY

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait by the next decision or by the size chosen for a job."""
        given_s, sizes = self._given
        now_s = decided.view.now_s
        if given_s != now_s:
            return next_decision_reason(
                next_tick(now_s, self.interval_s), "the cluster was divided again"
            )
        size = sizes.get(job)
        if size is None:
            before = sum(one < job for one in sizes)
            return prefix_reason(
                "one worker and one parameter server each, in order of submission, left nothing"
                " for it after {before:jobs} before it",
                room_reason(decided, job),
                before=before,
            )
        return prefix_reason(
            "no nodes had room for its share of {workers:number} workers and {servers:number}"
            " parameter servers",
            room_reason(decided, job),
            workers=size.workers,
            servers=size.servers,
        )

    # -- sizes
    # ----------------------------------------------------------------------------------------------

    def _choose_sizes(self, view: View, jobs: list[JobId]) -> dict[JobId, Size]:
        """Divide the cluster and return the size of each job that gets one.

        Replicas are added one by one by gain until none gains or the best one does not fit.
        """
        total = _total_in_service(view)
        remaining = dict(zip(jobs, view.active.remaining_work.tolist(), strict=True))
        left, sizes = self._first_sizes(view, jobs, total)
        steps: list[NextReplica] = []
        for job in sizes:
            self._push_next_replica(steps, view, (job, sizes[job]), remaining[job], total)
        while steps and steps[0].minus_gain < 0 and _fits(steps[0].takes, left):
            step = heappop(steps)
            left = _subtract(left, step.takes)
            sizes[step.job] = step.size
            self._push_next_replica(steps, view, (step.job, step.size), remaining[step.job], total)
        return sizes

    def _first_sizes(
        self, view: View, jobs: Iterable[JobId], total: Amount
    ) -> tuple[Amount, dict[JobId, Size]]:
        """Return the resources left and the first size of each job that fits, in order of arrival.

        Running jobs that may only grow come first.
        """
        left, sizes = total, dict[JobId, Size]()
        grows = self.variant == GROW_ONLY
        for job in sorted(jobs, key=lambda job: (grows and job not in view.grants, job)):
            request = view.demand(job)
            if not view.one("preemptible", job) and job in view.grants:
                size = held_size(view.grants[job])
            elif grows:
                size = held_size(view.grants[job]) if job in view.grants else size_of(request)
            else:
                size = self._staff.size_range(view, job)[0]
            takes = _amount(self._staff.demand(request, size))
            if _fits(takes, left) or (grows and job in view.grants):
                left, sizes[job] = _subtract(left, takes), size
        return left, sizes

    def _push_next_replica(
        self,
        steps: list[NextReplica],
        view: View,
        now: tuple[JobId, Size],
        remaining: float,
        total: Amount,
    ) -> None:
        """Push the best next worker or server of a job on the heap, unless its size is fixed.

        It reduces the remaining time most per dominant share of the cluster.
        """
        job, size = now
        if not view.one("preemptible", job) and job in view.grants:
            return
        rate = self._staff.rate(job, size)
        before_s = remaining / rate if rate > 0 else inf
        steps_by_gain = [
            NextReplica(
                (remaining / faster - before_s) / share if share else -inf, job, larger, takes
            )
            for larger, faster, share, takes in self._larger_sizes(view, job, size, total)
        ]
        if steps_by_gain:
            heappush(steps, min(steps_by_gain))

    def _larger_sizes(
        self, view: View, job: JobId, size: Size, total: Amount
    ) -> list[tuple[Size, float, float, Amount]]:
        """Return the sizes with one more worker or server at which a job runs; cached.

        Each with its rate, and the further resources as dominant share of the cluster and as
        amounts.
        """
        if total != self._total:
            self._total = total
            self._larger.clear()
        options = self._larger.setdefault(job, {})
        if size not in options:
            most, request = self._staff.size_range(view, job)[1], view.demand(job)
            had = _amount(self._staff.demand(request, size))
            options[size] = []
            for larger in (
                Size(size.workers + 1, size.servers),
                Size(size.workers, size.servers + 1),
            ):
                if larger.workers > most.workers or larger.servers > most.servers:
                    continue
                rate = self._staff.rate(job, larger)
                if rate > 0:
                    takes = _subtract(_amount(self._staff.demand(request, larger)), had)
                    pairs = zip(takes, total, strict=True)
                    share = max(part / whole if whole else 0.0 for part, whole in pairs)
                    options[size].append((larger, rate, share, takes))
        return options[size]

    def _acceptable_demands(self, view: View, job: JobId, size: Size) -> tuple[Demand, ...]:
        """Return the demands that a job accepts: the chosen and the least size."""
        request, least = view.demand(job), self._staff.size_range(view, job)[0]
        return self._staff.demand(request, size), self._staff.demand(request, least)


def _placement_key(view: View, job: JobId, size: Size) -> tuple[int, JobId]:
    """Return the key for placing jobs: shrinking, then growing, then starting ones."""
    grant = view.grants.get(job)
    if grant is None:
        return 2, job
    held = held_size(grant)
    return int(size.workers > held.workers or size.servers > held.servers), job


def _total_in_service(view: View) -> Amount:
    """Return the total (GPUs, cores, GB) of all nodes in service."""
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
    """Return the total (GPUs, cores, GB) of a demand with its servers."""
    parts = [part for part in (demand, demand.servers) if part is not None]
    return (
        sum(part.replicas * part.gpus for part in parts),
        sum(part.replicas * part.cpus for part in parts),
        sum(part.replicas * part.mem_gb for part in parts),
    )


def _subtract(left: Amount, takes: Amount) -> Amount:
    """Return the difference of two amounts."""
    return left[0] - takes[0], left[1] - takes[1], left[2] - takes[2]


def _fits(takes: Amount, left: Amount) -> bool:
    """Return True if an amount fits into the rest, up to rounding."""
    return all(part <= free + _SLACK for part, free in zip(takes, left, strict=True))
