"""AITurbo: CPU and GPU workers in one, sizes by benefit, order by a Borda count of attained service
and predicted need in a feedback queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from allocators.parameter_server.replicas import Size, Staff, held_size, size_of
from allocators.placement import RUN_TIME, Placer, placement_param, types_param
from allocators.reasons import joined, room
from allocators.toolkit import none_of, settle
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

# share of what a job still needs that a move must save, against restarts for next to nothing
_WORTH_IT = 0.05


@dataclass
class AITurbo(Allocator):
    """Resize predictable jobs towards their lowest resource need, and run those that have received
    little and need little.

    Notes
    -----
    A job of W workers and P servers that runs at rate v holds S = ``delta`` x GPUs + cores, and
    still needs C = (remaining work / v) x S. Every ``interval_s`` each job whose size the estimator
    can tell looks at one worker or one server more, and at one less; the best of these moves is
    made if it lowers C. A job also looks at the first decision at which its size can be told. All
    others keep the size they asked for.

    All jobs are ranked by attained service (the integral of S over the time they held it), those
    that can be told also by C, both ascending and stretched to the same range. The score of a job
    that can be told is the sum, of any other twice its first rank. ``thresholds`` on the score make
    a feedback queue of three or more levels, which are served in order; within a level the lower
    score goes first. Who does not fit is passed over, and stopped if it ran. If there are no GPUs
    for a job but cores, its workers run on CPUs.

    Our reading of [1]_ after the code of a follow-up of the same laboratory, whose ranks and
    benefits are partly stubs: that C orders the benefits, that attained service and benefit weigh
    GPUs and cores alike, and the fall-back to CPUs at run time. ``hysteresis`` is ours: moves that
    save less than 5 % are not made, and within a level running jobs go before waiting ones. Where
    all jobs are unpredictable, without ``cpu_workers`` and ``hysteresis``, the order is that of
    least attained service.

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
        help="Scores at which one level of the feedback queue ends and the next begins.",
    )
    delta: float = param(
        10.0,
        title="Cores that equal one GPU",
        unit="cores",
        low=0,
        high=1e6,
        help="Number of cores that one GPU counts for.",
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
            "Whether to skip changes that save less than 5 % and to serve running jobs"
            " before waiting jobs of the same level."
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
    _line: list[JobId] = field(init=False, repr=False, default_factory=list)
    _staff: Staff = field(init=False, repr=False)
    _sizes: dict[JobId, Size] = field(init=False, repr=False, default_factory=dict)
    _told: set[JobId] = field(init=False, repr=False, default_factory=set)
    _resized_s: float = field(init=False, repr=False, default=0.0)
    _predicted: int = field(init=False, repr=False, default=0)
    _moves: int = field(init=False, repr=False, default=0)
    _jobs: int = field(init=False, repr=False, default=0)

    needs = Needs(RUN_TIME, frozenset({"servers", "scaling"}))
    card = Card(
        title="AITurbo",
        brief="resizes jobs and parameter servers",
        what=(
            "Resizes jobs towards their lowest total resource need; prefers jobs that"
            " received little and need little; uses CPUs if GPUs are short."
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
            "our reading of the benefit order, of the weights and of CPU workers at run time;"
            " interval, thresholds and delta as published"
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
        """Prepare empty tables.

        Raises
        ------
        ParameterError
            If the thresholds do not ascend.
        """
        if any(not low < high for low, high in pairwise((-1.0, *self.thresholds))):
            told = "/".join(f"{limit:g}" for limit in self.thresholds)
            raise ParameterError(
                f"aiturbo: thresholds = {told} must each be above the one before, e.g. 15/30."
            )
        self._place = Placer(self.placement, self.types, mix=False)
        self._staff = Staff(self._place, self.most_servers)

    @property
    def cadence(self) -> Cadence:
        """Asked after every event, and when sizes are due."""
        return Cadence(every_s=self.interval_s)

    def remarks(self) -> tuple[str, ...]:
        """Say that nothing was resized, and why."""
        if not self._jobs or self._moves:
            return ()
        if not self._predicted:
            return (
                (
                    f"aiturbo resized nothing, since {none_of(self._jobs)} been predictable: all"
                    " were ranked by service attained, as under las."
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
        """Resize jobs at the end of an interval, rank all jobs, and run the best."""
        self._forget(view.delta.finished)
        self._jobs += len(view.delta.arrived)
        ids = view.active.ids
        if not len(ids):
            return EMPTY
        self._staff.learn(view, ids.tolist())
        told = view.active.predictable
        remaining = view.active.remaining_work
        self._resize(view, ids[told])
        order = self._order(view, told, self._need(view, ids, remaining))
        self._line = order
        changes = settle(view, self._place, order, lambda job: self._wishes(view, job))
        return Plan(changes) if changes else EMPTY

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """State the rank of a job, and the jobs before it that run."""
        place = self._line.index(job) if job in self._line else len(self._line)
        better = [one for one in self._line[:place] if one in decided.grants]
        need = "service and remaining need" if job in self._told else "service received"
        return joined(
            f"it ranked {{place:number}} of {{jobs:number}} by {need}; {{better:jobs}} before it"
            " ran",
            room(decided, job),
            place=place + 1,
            jobs=len(self._line),
            better=len(better),
        )

    # -- sizes
    # ----------------------------------------------------------------------------------------------

    def _resize(self, view: View, told: Ints) -> None:
        due = view.now_s >= instant(self._resized_s + self.interval_s)
        if due:
            # The last tick; half a step keeps a tick that is now from counting as the one before.
            tick = (view.now_s + STEP_S / 2) // self.interval_s
            self._resized_s = instant(tick * self.interval_s)
        for job in told.tolist():
            if due or job not in self._told:
                self._predicted += job not in self._told
                self._told.add(job)
                now = self._size(view, job)
                self._sizes[job] = self._moved(view, job, now)
                self._moves += self._sizes[job] != now

    def _moved(self, view: View, job: JobId, now: Size) -> Size:
        least, most = self._staff.range(view, job)
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
            [(self._per_work(view, job, size), at) for at, size in enumerate(moves)],
            default=(np.inf, -1),
        )
        worth = 1 - _WORTH_IT if self.hysteresis else 1.0
        return moves[best] if need < worth * self._per_work(view, job, now) else now

    def _size(self, view: View, job: JobId) -> Size:
        known = self._sizes.get(job)
        if known is None:
            grant = view.grants.get(job)
            known = self._sizes[job] = (
                size_of(view.demand(job)) if grant is None else held_size(grant)
            )
        return known

    def _per_work(self, view: View, job: JobId, size: Size) -> float:
        """Return core-equivalents x seconds that a unit of work takes at a size."""
        rate = self._staff.rate(job, size)
        demand = self._staff.demand(view.demand(job), size)
        held = demand.replicas * (self.delta * demand.gpus + demand.cpus)
        if demand.servers is not None:
            held += demand.servers.replicas * demand.servers.cpus
        return held / rate if rate > 0 else np.inf

    def _need(self, view: View, ids: Ints, remaining: Floats) -> Floats:
        per_work = [self._per_work(view, job, self._size(view, job)) for job in ids.tolist()]
        need: Floats = remaining * np.array(per_work)
        return need

    # -- order
    # ----------------------------------------------------------------------------------------------

    def _order(self, view: View, told: np.ndarray, need: Floats) -> list[JobId]:
        table = view.active
        # Sums of floats: what is equal but for their order of summation is a tie.
        attained = (self.delta * table.served_gpu_s + table.served_cpu_s).round(6)
        score = 2.0 * _positions(np.lexsort((table.ids, table.arrival_s, attained)))
        if told.any():
            by_need = _positions(np.lexsort((table.ids[told], table.arrival_s[told], need[told])))
            score[told] = score[told] / 2 + by_need * (len(table) / told.sum())
        level = np.searchsorted(self.thresholds, score, side="right")
        waits = (
            np.array([job not in view.grants for job in table.ids.tolist()])
            if self.hysteresis
            else np.zeros(len(table), bool)
        )
        order: list[JobId] = table.ids[np.lexsort((table.ids, score, waits, level))].tolist()
        return order

    def _wishes(self, view: View, job: JobId) -> tuple[Demand, ...]:
        asked, size = view.demand(job), self._size(view, job)
        own = size_of(asked)
        wishes = [self._staff.demand(asked, size)]
        if size.workers > own.workers or size.servers > own.servers:
            # What a job has grown to may never fit, for the way nodes are cut: then what it asked
            # for, where that is free.
            wishes.append(self._staff.demand(asked, own))
        if self.cpu_workers and asked.gpus and self._staff.runs_on_cpus(view, job):
            wishes.append(self._staff.demand(asked, size, self.worker_cores))
        return tuple(wishes)

    def _forget(self, finished: tuple[JobId, ...]) -> None:
        self._staff.forget(finished)
        for job in finished:
            self._sizes.pop(job, None)
            self._told.discard(job)


def _positions(order: Ints) -> Floats:
    places = np.empty(len(order))
    places[order] = np.arange(1, len(order) + 1)
    return places
