"""Least attained service: Tiresias' queues by GPU-seconds received, for clusters where nobody knows run times."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop
from itertools import pairwise
from typing import cast

from allocators.nesting import SubView
from allocators.placement import Placer, mix_param, placement_param, types_param
from allocators.queue.preemption import Contest
from allocators.queue.running_index import gpus_of
from allocators.queue.tiresias_order import Attained
from allocators.queue.upgrade import Upgrades, migrate_param, speed_of
from allocators.toolkit import head_param
from sim.contract import EMPTY, Cadence, Card, Demand, Grant, JobId, ParameterError, Plan, View, param


@dataclass
class Las:
    """Run the jobs that have received the least GPU time, in a few queues: Tiresias' discretised two-dimensional LAS.

    Notes
    -----
    Preemptive, blind to run times. Attained service is GPUs x seconds held [1]_, or with
    ``measure = s`` seconds alone. A job begins in the first queue and moves down one when its
    service reaches the limit of its queue. The queues are walked in order, and each job gets its gang
    if it fits; a running job that does not fit any more is stopped. Defaults are those of the
    authors' simulator.

    With ``order = tiresias`` a queue is the list of that simulator: first the jobs that run, then
    those that wait. At a decision newcomers and demoted jobs are appended. After it the jobs that
    wait move behind those that run, both keeping their order: so a stopped job goes before those that
    wait already, and a running job that has just been demoted is stopped for jobs that wait in its
    new queue. Per-job ends are those of the published simulator, but for its whole seconds and for
    its next demotion under GPU time, which it computes without the factor GPUs (see the decision
    record 0014). ``order = arrival`` walks each queue by submission, running or not, as the
    simulators of Lucid and Pollux do.

    Our reading: where GPUs are not all that matters, the last of the last queue is stopped first, and
    as few as needed. A job that an outage evicts stands where a stopped one would. Jobs without GPUs
    attain nothing unless seconds are counted, and stay in the first queue. An upgrade, which the
    published simulator does not know, pays if it saves more than the restart when the job runs on
    for as long as it has run so far; speeds are the nominal ones of the types. With a knob and
    costly restarts, limits must allow for far more than one restart: large gangs could else take
    turns for ever without progress.

    ``servers = gpu`` is how the follow-up of AITurbo ran Tiresias (MaoZzzzz/Aiturbo-vGPU): every parameter server holds a GPU, which counts as service. Jobs
    for which there are then too few GPUs are refused.

    References
    ----------
    .. [1] J. Gu et al., "Tiresias: A GPU cluster manager for distributed deep learning", NSDI 2019, section 3.2; limits, order and knob as in the simulator
       that the authors published (SymbioticLab/Tiresias).
    """

    thresholds: tuple[float, ...] = param(
        (3250.0, 7200.0),
        unit="GPU-s",
        low=1,
        high=1e12,
        help="Attained service at which a job leaves each queue but the last; seconds if `measure` is s.",
    )
    measure: str = param(
        "gpu_s",
        choices=("gpu_s", "s"),
        help="What service is: GPUs times seconds held, or seconds held, however many the GPUs.",
    )
    order: str = param(
        "tiresias",
        choices=("tiresias", "arrival"),
        help="Within a queue. tiresias: running jobs, then waiting ones, stopped jobs first. arrival: by submission, running or not.",
    )
    knob: float = param(
        0.0, low=0, high=1e6, help="A waiting job returns to the first queue when it has waited this many times as long as it ran since then; 0 = never."
    )
    migrate: str = migrate_param()
    head: str = head_param("skip")
    servers: str = param("cpu", choices=("cpu", "gpu"), help="Where parameter servers run: on cores, or each on a GPU of its own.")
    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    _on_gpus: dict[int, tuple[Demand, Demand]] = field(init=False, repr=False, default_factory=dict)
    _order: Attained = field(init=False, repr=False)
    _contest: Contest = field(init=False, repr=False)
    _jobs: int = field(init=False, repr=False, default=0)
    _orderly: bool = field(init=False, repr=False, default=True)

    cadence = Cadence()
    card = Card(
        title="LAS (Tiresias)",
        what="Jobs that have received the least GPU time so far run first, in a few queues.",
        cost="Jobs that have run for long are stopped for newcomers, whatever little they may still need.",
        limits="Knows no run times. Counts stops as free: what they cost is set under overheads.",
        source="Gu et al., Tiresias, NSDI 2019; the authors' simulator",
        certainty="exact: order, limits and knob as published; our reading: moves to faster GPU types, and what is stopped where places matter",
        goals=("short waits", "fairness"),
        how=(
            "A job's attained service is its GPUs times the seconds for which it held them.",
            "Every job begins in the first queue, and goes to the tail of the next when its service reaches the limit of its queue.",
            "The queues are served in order; within one, running jobs stand before waiting ones, and stopped jobs before the others.",
            "A running job that no longer fits is stopped: the last of the last queue first, as few as needed.",
            "Jobs move to a faster GPU type that is left over if that saves more than the restart. Nobody is asked for run times.",
        ),
    )

    def __post_init__(self) -> None:
        """Prepare empty queues."""
        # In any other order the same policy would have several names, and several results.
        if any(not low < high for low, high in pairwise((0.0, *self.thresholds))):
            told = "/".join(f"{limit:g}" for limit in self.thresholds)
            raise ParameterError(f"las: thresholds = {told} GPU-s must be above 0 and each above the one before, e.g. 3250/7200.")
        place = Placer(self.placement, self.types, self.mix)
        self._order = Attained(
            self.thresholds,
            self.knob,
            seconds=self.measure == "s",
            by_submission=self.order == "arrival",
        )
        upgrades = Upgrades(place, self._gain_s) if self.migrate == "upgrade" else None
        self._contest = Contest(self._order, place, block=self.head == "block", upgrades=upgrades)

    @property
    def needs(self) -> frozenset[str]:
        """What restarts cost, if jobs are to be moved; else nothing but the public columns."""
        pause = {"pause"} if self.migrate == "upgrade" else set()
        return frozenset(pause | {"mixed"} if self.mix else pause)

    def remarks(self) -> tuple[str, ...]:
        """Say that there was one queue only, in which nobody was put before others."""
        if self._order.demoted_any or not (self._jobs and self._orderly):
            return ()
        nobody = "the only job did not reach" if self._jobs == 1 else f"none of the {self._jobs:,} jobs reached"
        return (f"las moved no job to a lower queue: {nobody} the first threshold; it ran in order of submission.",)

    def allocate(self, view: View, /) -> Plan:
        """Start what is best, and stop what must go for it."""
        if self.servers == "gpu":
            return self._with_servers_on_gpus(view)
        return self._decide(view)

    def _decide(self, view: View) -> Plan:
        order, contest, delta = self._order, self._contest, view.delta
        self._jobs += len(delta.arrived)
        if delta.evicted or (view.grants and not contest.begun):
            self._orderly = False  # they go before those that wait; or others decided before
        order.begin()
        contest.feed(view)
        for job, queue, height in order.demoted(view):
            contest.worsen(job, queue, height)
        if order.promotions:
            self._promote(view)
        changes = contest.settle(view)
        order.forget(delta.finished)
        if not contest.waiting:
            return Plan(changes) if changes else EMPTY
        return Plan(changes, wake_at_s=self._next_s())

    def _with_servers_on_gpus(self, view: View) -> Plan:
        inside = SubView(view, view.delta)
        inside.demand = lambda job: self._moved(view.demand(job))
        hopeless = frozenset(job for job in view.delta.arrived if self._is_too_large(view, inside.demand(job)))
        if not hopeless:
            return self._decide(cast("View", inside))
        inside.delta = view.delta._replace(arrived=tuple(job for job in view.delta.arrived if job not in hopeless))
        return self._decide(cast("View", inside))._replace(refuse=hopeless)

    @staticmethod
    def _is_too_large(view: View, demand: Demand) -> bool:
        pools = view.room.pools
        return gpus_of(demand) > sum([view.cluster.nodes[node].gpus for at in demand.pools for node in pools[at].nodes])

    def _moved(self, demand: Demand) -> Demand:
        known = self._on_gpus.get(id(demand))
        if known is None:
            servers = demand.servers and demand.servers._replace(gpus=1, pools=demand.pools)
            # The demand itself is kept beside it, so that no other takes its number.
            known = self._on_gpus[id(demand)] = demand, demand._replace(servers=servers if demand.gpus else demand.servers)
        return known[1]

    def _promote(self, view: View) -> None:
        promotions, waiting = self._order.promotions, self._contest.waiting
        while promotions and promotions[0][0] <= view.now_s:
            _, job, key = heappop(promotions)
            if waiting.get(job) is key:
                self._order.promote(view, job)
                self._contest.wait(view, job)

    def _next_s(self) -> float:
        """Return when a running job leaves a queue and that matters to others, or a waiting one returns to the first."""
        promotions, waiting = self._order.promotions, self._contest.waiting
        while promotions and waiting.get(promotions[0][1]) is not promotions[0][2]:
            heappop(promotions)
        next_s = self._order.next_crossing_s()
        return min(next_s, promotions[0][0]) if promotions else next_s

    def _gain_s(self, view: View, job: JobId, old: Grant, new: Grant) -> float:
        """Return what a move saves a job that runs on for as long as it has run so far."""
        if not view.one("keeps_work", job):
            return 0.0
        share = 1 - speed_of(view, old) / speed_of(view, new)
        return share * self._order.held_s(view, job) - view.belief.pause_s(job, old, new)
