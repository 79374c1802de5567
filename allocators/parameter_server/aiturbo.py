"""AITurbo: jobs on CPU and GPU workers, resized by benefit and ranked by service and need."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from allocators.parameter_server.replicas import Size, Staff, held_size, size_of
from allocators.placement import RUN_TIME_NEEDS, Placer, placement_param, types_param
from allocators.reasons import prefix_reason, room_reason
from allocators.toolkit import allocate_by_priority, none_of_jobs
from sim.contract import (
    EMPTY,
    STEP_S,
    Allocator,
    Cadence,
    Card,
    Decided,
    Demand,
    Floats,
    Ints,
    JobId,
    Needs,
    ParameterError,
    Plan,
    Reason,
    View,
    instant,
    param,
)

_WORTH_IT = 0.05  # least relative saving of a move, to avoid restarts for tiny gains


@dataclass
class AITurbo(Allocator):
    """Resize predictable jobs to need fewer resources; run jobs of low service and need first.

    Notes
    -----
    A job of W workers and P servers at rate v holds S = ``delta`` x GPUs + cores, and still needs
    C = (remaining work / v) x S. Every ``interval_s`` each predictable job considers one worker or
    server more or less; the best of these moves is made if it lowers C. A job also considers this
    at the first decision at which it is predictable. All other jobs keep their requested size.

    All jobs are ranked by attained service (the integral of S over time), predictable ones also by
    C; both ranks ascend and are scaled to the same range. The score of a predictable job is their
    sum, of any other job twice its first rank. ``thresholds`` on the score make a feedback queue of
    three or more levels, served in order; within a level the lower score goes first. A job that
    does not fit is skipped, and stopped if it ran. If cores but no GPUs are free for a job, its
    workers run on CPUs.

    Our reading of [1]_ after the code of a follow-up from the same laboratory, whose ranks and
    benefits are partly stubs: that C orders the benefits, that attained service and benefit weigh
    GPUs and cores equally, and the fall-back to CPUs at run time. ``hysteresis`` is ours: moves
    that save less than 5 % are skipped, and within a level running jobs go before waiting ones. If
    no job is predictable, without ``cpu_workers`` and ``hysteresis``, the order is that of least
    attained service.

    References
    ----------
    .. [1] L. Zhao et al., "AITurbo: Unified Compute Allocation for Partial Predictable Training in
    Commodity Clusters", HPDC 2021; thresholds, interval and
       ``delta`` are the best of its follow-up (MaoZzzzz/sn).
    """

    interval_s: float = param(
        1200.0,
        title="Time between decisions",
        unit="s",
        low=1,
        high=1e7,
        help="Time between two rounds of resizing.",
    )
    thresholds: tuple[float, ...] = param(
        (15.0, 30.0),
        title="Thresholds of the queues",
        low=0,
        high=1e9,
        help="Scores (sums of two ranks) at which a job drops a level.",
    )
    delta: float = param(
        10.0,
        title="Cores that equal one GPU",
        unit="cores",
        low=0,
        high=1e6,
        help="Cores that one GPU counts for.",
    )
    cpu_workers: bool = param(
        True,
        title="Run jobs on CPU workers",
        help="Whether a job without free GPUs may run on CPU workers.",
    )
    worker_cores: float = param(
        8.0,
        title="Size of a CPU worker",
        unit="cores",
        low=0.01,
        high=1e4,
        help="Cores of a CPU worker.",
    )
    hysteresis: bool = param(
        True,
        title="Skip small gains",
        help=(
            "Whether to skip changes that save less than 5 %, and serve running jobs of a"
            " level before waiting ones."
        ),
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
    _ranking: list[JobId] = field(init=False, repr=False, default_factory=list)
    _staff: Staff = field(init=False, repr=False)
    _sizes: dict[JobId, Size] = field(init=False, repr=False, default_factory=dict)
    _predictable_jobs: set[JobId] = field(init=False, repr=False, default_factory=set)
    _resized_s: float = field(init=False, repr=False, default=0.0)
    _predicted: int = field(init=False, repr=False, default=0)
    _moves: int = field(init=False, repr=False, default=0)
    _jobs: int = field(init=False, repr=False, default=0)

    needs = Needs(RUN_TIME_NEEDS, frozenset({"servers", "scaling"}))
    card = Card(
        title="AITurbo",
        brief="resizes jobs and parameter servers",
        what=(
            "Resizes jobs toward their lowest total resource need; prefers jobs that received"
            " and need little; uses CPUs if GPUs are short."
        ),
        cost=(
            "Long jobs of predictable size wait for short ones, and are stopped and resized often."
        ),
        limits=(
            "One move per job and interval. No deadlines. Underestimates restarts on"
            " CPUs. GPU jobs never start on nodes without GPUs."
        ),
        source="Zhao et al., AITurbo, HPDC 2021; code of its follow-up",
        certainty=(
            "our reading of benefit order, weights and CPU workers at run time; interval,"
            " thresholds and delta as published"
        ),
        goals=("elastic", "short waits", "heterogeneous"),
        how=(
            (
                "At intervals each predictable job gains or loses one worker or server, if that"
                " lowers its remaining resource need."
            ),
            (
                "All jobs are ranked by the service received, predictable jobs also by their"
                " remaining need."
            ),
            "The two ranks are added; limits on the sum make a feedback queue of levels.",
            (
                "The levels are served in order; a job that does not fit is skipped, and"
                " stopped if it was running."
            ),
            "If cores but no GPUs are free for a job, its workers run on CPUs.",
        ),
    )

    def __post_init__(self) -> None:
        """Check the thresholds and create empty tables.

        Raises
        ------
        ParameterError
            If the thresholds do not ascend.
        """
        if any(not low < high for low, high in pairwise((-1.0, *self.thresholds))):
            thresholds = "/".join(f"{limit:g}" for limit in self.thresholds)
            raise ParameterError(
                f"aiturbo: thresholds = {thresholds} must each be above the one before, e.g. 15/30."
            )
        self._place = Placer(self.placement, self.types, mix=False)
        self._staff = Staff(self._place, self.most_servers)

    @property
    def cadence(self) -> Cadence:
        """Decide after every event, and every `interval_s`."""
        return Cadence(every_s=self.interval_s)

    def remarks(self) -> tuple[str, ...]:
        """Return a note if no job was resized, with the reason."""
        if not self._jobs or self._moves:
            return ()
        if not self._predicted:
            return (
                (
                    f"aiturbo resized nothing, since {none_of_jobs(self._jobs)} been predictable:"
                    " all were ranked by service attained, as under las."
                ),
            )
        jobs = (
            "the only predictable job"
            if self._predicted == 1
            else f"any of the {self._predicted:,} predictable jobs"
        )
        return (
            f"aiturbo resized nothing: no other size needed less of {jobs}; it only ranked them.",
        )

    def allocate(self, view: View, /) -> Plan:
        """Resize predictable jobs at the end of an interval, rank all jobs, and run the first."""
        self._forget(view.delta.finished)
        self._jobs += len(view.delta.arrived)
        ids = view.active.ids
        if not len(ids):
            return EMPTY
        self._staff.estimate_rates(view, ids.tolist())
        predictable = view.active.predictable
        remaining = view.active.remaining_work
        self._resize(view, ids[predictable])
        order = self._rank_jobs(view, predictable, self._remaining_needs(view, ids, remaining))
        self._ranking = order
        changes = allocate_by_priority(
            view, self._place, order, lambda job: self._acceptable_demands(view, job)
        )
        return Plan(changes) if changes else EMPTY

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait by the rank of a job and the number of jobs before it that run."""
        place = self._ranking.index(job) if job in self._ranking else len(self._ranking)
        better = [one for one in self._ranking[:place] if one in decided.grants]
        need = "service and remaining need" if job in self._predictable_jobs else "service received"
        return prefix_reason(
            f"it ranked {{place:number}} of {{jobs:number}} by {need}; {{better:jobs}} before it"
            " ran",
            room_reason(decided, job),
            place=place + 1,
            jobs=len(self._ranking),
            better=len(better),
        )

    # -- sizes
    # ----------------------------------------------------------------------------------------------

    def _resize(self, view: View, predictable: Ints) -> None:
        """Choose new sizes of predictable jobs at the end of an interval, or when first seen."""
        due = view.now_s >= instant(self._resized_s + self.interval_s)
        if due:
            # The last tick; the half step makes a tick at this instant count.
            tick = (view.now_s + STEP_S / 2) // self.interval_s
            self._resized_s = instant(tick * self.interval_s)
        for job in predictable.tolist():
            if due or job not in self._predictable_jobs:
                self._predicted += job not in self._predictable_jobs
                self._predictable_jobs.add(job)
                now = self._size(view, job)
                self._sizes[job] = self._best_size(view, job, now)
                self._moves += self._sizes[job] != now

    def _best_size(self, view: View, job: JobId, now: Size) -> Size:
        """Return the size with one replica more or less that needs least, or the present size.

        With `hysteresis` a size must save 5 %.
        """
        least, most = self._staff.size_range(view, job)
        workers, servers = now
        near = (
            Size(workers + 1, servers),
            Size(workers - 1, servers),
            Size(workers, servers + 1),
            Size(workers, servers - 1),
        )
        moves = [
            size
            for size in near
            if least.workers <= size.workers <= most.workers
            and least.servers <= size.servers <= most.servers
        ]
        need, best = min(
            [(self._need_per_work(view, job, size), at) for at, size in enumerate(moves)],
            default=(np.inf, -1),
        )
        worth = 1 - _WORTH_IT if self.hysteresis else 1.0
        return moves[best] if need < worth * self._need_per_work(view, job, now) else now

    def _size(self, view: View, job: JobId) -> Size:
        """Return the last chosen size of a job; at first its held or requested size, recorded."""
        size = self._sizes.get(job)
        if size is None:
            grant = view.grants.get(job)
            size = self._sizes[job] = (
                size_of(view.demand(job)) if grant is None else held_size(grant)
            )
        return size

    def _need_per_work(self, view: View, job: JobId, size: Size) -> float:
        """Return core-equivalents x seconds per unit of work at a size; inf if it cannot run."""
        rate = self._staff.rate(job, size)
        demand = self._staff.demand(view.demand(job), size)
        held = demand.replicas * (self.delta * demand.gpus + demand.cpus)
        if demand.servers is not None:
            held += demand.servers.replicas * demand.servers.cpus
        return held / rate if rate > 0 else np.inf

    def _remaining_needs(self, view: View, ids: Ints, remaining: Floats) -> Floats:
        """Return the remaining resource need of each job, in core-equivalents x seconds."""
        per_work = [self._need_per_work(view, job, self._size(view, job)) for job in ids.tolist()]
        need: Floats = remaining * np.array(per_work)
        return need

    # -- order
    # ----------------------------------------------------------------------------------------------

    def _rank_jobs(self, view: View, predictable: np.ndarray, need: Floats) -> list[JobId]:
        """Return the jobs by level of the feedback queue, then by score.

        With `hysteresis` running jobs go before waiting ones of their level.
        """
        table = view.active
        # Rounded, so that sums that differ only by their order of summation tie.
        attained = (self.delta * table.served_gpu_s + table.served_cpu_s).round(6)
        score = 2.0 * _positions(np.lexsort((table.ids, table.arrival_s, attained)))
        if predictable.any():
            by_need = _positions(
                np.lexsort(
                    (table.ids[predictable], table.arrival_s[predictable], need[predictable])
                )
            )
            score[predictable] = score[predictable] / 2 + by_need * (len(table) / predictable.sum())
        level = np.searchsorted(self.thresholds, score, side="right")
        waits = (
            np.array([job not in view.grants for job in table.ids.tolist()])
            if self.hysteresis
            else np.zeros(len(table), bool)
        )
        order: list[JobId] = table.ids[np.lexsort((table.ids, score, waits, level))].tolist()
        return order

    def _acceptable_demands(self, view: View, job: JobId) -> tuple[Demand, ...]:
        """Return the demands that a job accepts: chosen size, requested if grown, CPU workers."""
        request, size = view.demand(job), self._size(view, job)
        own = size_of(request)
        demands = [self._staff.demand(request, size)]
        if size.workers > own.workers or size.servers > own.servers:
            # A grown size may never fit the nodes; then the requested size is accepted too.
            demands.append(self._staff.demand(request, own))
        if self.cpu_workers and request.gpus and self._staff.runs_on_cpus(view, job):
            demands.append(self._staff.demand(request, size, self.worker_cores))
        return tuple(demands)

    def _forget(self, finished: tuple[JobId, ...]) -> None:
        """Delete the records of finished jobs."""
        self._staff.forget(finished)
        for job in finished:
            self._sizes.pop(job, None)
            self._predictable_jobs.discard(job)


def _positions(order: Ints) -> Floats:
    """Return the position of each element in an order, counted from 1."""
    places = np.empty(len(order))
    places[order] = np.arange(1, len(order) + 1)
    return places
