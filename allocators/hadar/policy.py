"""Hadar: GPUs of every type have prices that rise as they are taken, and each job buys what is worth the most to it, even workers of several types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from allocators.hadar.find_alloc import Choice, FindAlloc, Market
from allocators.hadar.prices import UTILITIES, Queue, bounds, worth
from allocators.hadar.rounds import Free, Jobs, Rounds, gang_of
from allocators.toolkit import round_param
from sim.contract import Cadence, Card, Floats, Grant, JobId, Plan, View, param


class State(NamedTuple):
    """A partial decision: what it is worth in all, what it leaves free, and what it has chosen."""

    payoff: float
    free: Free
    choices: tuple[Choice, ...]

    def with_(self, view: View, choice: Choice, job: JobId) -> State:
        """Return the state with one more job."""
        free = self.free.copy()
        free.take(view.demand(job), choice.spots)
        return State(self.payoff + choice.payoff, free, (*self.choices, choice))


@dataclass
class Hadar:
    """Decide every round anew who runs where: each job, the worthiest per GPU first, takes the GPUs on which its utility exceeds their prices the most.

    Notes
    -----
    Our reading of [1]_ and [2]_, of which only abstracts were at hand; structure and formulas follow what is known of the primal-dual scheme.

    Utility of job j finishing at f: ``utility``, by default the share of the best possible speed, ``t_min / (f - a)`` with submission ``a`` and the time
    ``t_min`` that the job takes alone on its fastest type. Price of a GPU of type r on a server with ``c`` GPUs of which ``g`` are taken:
    ``Umin_r (Umax_r / Umin_r)^(g / c)``, with ``Umax_r = max_j U_j(t_min) / W_j`` and ``Umin_r = min_j U_j(T - a_j) / (4 eta t_j W_j)`` over the jobs that
    run on the type, ``W`` GPUs asked for, ``t_j`` seconds on the slowest type. Ours: the horizon ``T``, see `bounds`; ``Umin_r`` is kept between 1e-12 and a
    half of ``Umax_r``. Jobs are walked in order of utility at their soonest finish per GPU, ties by job id, and each is placed by `FindAlloc` or skipped; of
    the partial decisions so made the ``beam`` best are kept. Ours: the candidates, that a job keeps its GPUs if others are no better, ``fill``, and that
    without ``fill`` an otherwise idle cluster still takes the first job. Work is counted from when the policy first saw the job.

    Rounds follow each other as long as a job with GPUs runs; after that the next news begins one. Jobs that wait, or lost their nodes, wait for the next round.
    Jobs that must not be stopped stay, and their GPUs count as taken. CPU jobs start when there is room and are never stopped. The notes of a decision are
    the price of the next GPU of each type, averaged over the servers in service, and the sum of payoffs.

    References
    ----------
    .. [1] A. Sultana, F. Xu, X. Yuan, L. Chen, N.-F. Tzeng, "Hadar: Heterogeneity-Aware Optimization-Based Online Scheduling for Deep Learning Cluster",
       IPDPS 2024.
    .. [2] A. Sultana, N. Pakka, F. Xu, X. Yuan, L. Chen, N.-F. Tzeng, "Resource Heterogeneity-Aware and Utilization-Enhanced Scheduling for Deep Learning
       Clusters", arXiv 2503.10918.
    """

    utility: str = param(
        UTILITIES[0],
        choices=UTILITIES,
        help="What an early finish is worth: the share of the best possible speed; raw iterations per second; the same for all (job completion time); "
        "most for what takes longest (makespan); most for who is worst off against an equal share (ftf).",
    )
    mixing: bool = param(True, help="Whether the workers of one job may be on GPUs of different types.")
    fill: bool = param(True, help="Whether jobs that are not worth their price are started on GPUs that would be idle.")
    eta: float = param(1.0, low=1e-9, high=1e9, help="Divides the lowest price: the larger, the cheaper are idle GPUs. Matters most where fill is off.")
    beam: int = param(1, low=1, high=64, help="Partial decisions kept while jobs are walked; 1 = greedy.")
    overhead_s: float = param(10.0, unit="s", low=0, high=3600, help="What a change of GPUs is believed to cost a job.")
    round_s: float = round_param()
    _work: dict[JobId, float] = field(init=False, repr=False, default_factory=dict)
    _types: set[str] = field(init=False, repr=False, default_factory=set)
    _rounds: Rounds = field(init=False, repr=False)
    _find: FindAlloc = field(init=False, repr=False)

    cadence = Cadence(on_finish=False)
    card = Card(
        title="Hadar",
        what="GPUs have prices that rise as they are taken; every few minutes each job takes those that are worth the most to it, even of several types.",
        cost="Jobs are stopped and moved as prices change, and with the default utility jobs that have waited long are worth less and less.",
        limits="Believes what it is told of run times and speeds. Knows nothing of what a move really costs but its own parameter.",
        source="Sultana et al., Hadar, IPDPS 2024; Sultana et al., arXiv 2503.10918",
        certainty="our reading of prices, utilities and walk, since only the abstracts were at hand; candidates, beam, filling and horizon are ours",
        goals=("heterogeneous",),
        how=(
            "Time is cut into rounds; in each, who runs where is decided anew.",
            "A GPU has a price, which rises as more GPUs of its type are taken on its server.",
            "Jobs are walked by what an early finish is worth to them per GPU, the worthiest first.",
            "Each takes the GPUs, even of several types, on which that worth exceeds their prices the most; where none does, it is skipped.",
            "Skipped jobs may still get GPUs that would be idle; a job keeps its GPUs if others are no better.",
        ),
    )

    def __post_init__(self) -> None:
        """Prepare rounds and search."""
        self._rounds = Rounds(self.round_s)
        self._find = FindAlloc(self._rounds.sites, mixing=self.mixing, overhead_s=self.overhead_s)

    @property
    def needs(self) -> frozenset[str]:
        """Sizes, speeds and, with `mixing`, gangs over several types."""
        return frozenset({"rates", "remaining_work", "mixed"} if self.mixing else {"rates", "remaining_work"})

    def remarks(self) -> tuple[str, ...]:
        """Say that there was nothing to choose between if all GPUs are of one type."""
        if len(self._types) != 1:
            return ()
        return (f"hadar chose no GPU types: all GPUs are {next(iter(self._types))}, so it only chose who runs in each round, and where.",)

    def allocate(self, view: View, /) -> Plan:
        """Decide who runs where in the round that begins now."""
        self._find.pace.forget(view.delta.finished)
        for job in view.delta.finished:
            self._work.pop(job, None)
        return self._rounds.plan(view, self._decide)

    def _decide(self, view: View, jobs: Jobs, paces: Floats, free: Free) -> tuple[dict[JobId, Grant], Mapping[str, float]]:
        market, order = self._open(view, jobs, paces)
        rows = paces.tolist()
        state = self._walk(market, order, rows, State(0.0, free, ()))
        chosen = [*state.choices, *self._filled(market, order, rows, state)]
        target = {}
        for choice in chosen:
            job = market.job(choice.at)
            gang = gang_of(view.demand(job), choice.spots)
            held = view.grants.get(job)
            target[job] = held if held is not None and held.gangs == (gang,) else Grant((gang,))
        return target, _notes(market, state.free) | {"payoff": sum([choice.payoff for choice in chosen])}

    def _open(self, view: View, jobs: Jobs, paces: Floats) -> tuple[Market, list[int]]:
        for job, left in zip(jobs.ids.tolist(), jobs.left.tolist(), strict=True):
            self._work[job] = max(self._work.get(job, left), left)
        work = np.array([self._work[job] for job in jobs.ids.tolist()])
        queue = Queue(jobs.gangs, jobs.arrival_s, work, jobs.left, paces)
        devices = _devices(view)
        self._types.update(kind.name for kind, count in zip(view.cluster.types, devices.tolist(), strict=True) if count)
        utility = worth(self.utility, queue, view.now_s, devices)
        market = Market(view, jobs, utility, bounds(queue, utility, view.now_s, int(devices.sum()), self.eta))
        density = utility.at(view.now_s + jobs.left / queue.best) / jobs.gangs
        # Rounded, so that equal worth is a tie.
        return market, np.argsort(-np.round(density / density.max(), 12), kind="stable").tolist()

    def _walk(self, market: Market, order: Sequence[int], rows: Sequence[Sequence[float]], start: State) -> State:
        view, beam = market.view, [start]
        for at in order:
            grown = []
            for state in beam:
                choice = self._find(market, at, rows[at], state.free) if any(state.free.gpus) else None
                if choice is None:
                    continue
                if self.beam == 1:
                    # With one state kept, taking what has a payoff is always better than skipping it.
                    state.free.take(view.demand(market.job(at)), choice.spots)
                    beam = [State(state.payoff + choice.payoff, state.free, (*state.choices, choice))]
                else:
                    grown.append(state.with_(view, choice, market.job(at)))
            if grown:
                beam = sorted([*grown, *beam], key=lambda state: -state.payoff)[: self.beam]
        return beam[0]

    def _filled(self, market: Market, order: Sequence[int], rows: Sequence[Sequence[float]], state: State) -> Iterator[Choice]:
        idle = not state.choices and len(market.view.grants) == sum([market.job(at) in market.view.grants for at in order])
        taken = {choice.at for choice in state.choices}
        for at in order if self.fill or idle else ():
            choice = self._find(market, at, rows[at], state.free, anyhow=True) if at not in taken and any(state.free.gpus) else None
            if choice is not None:
                state.free.take(market.view.demand(market.job(at)), choice.spots)
                yield choice
                if not self.fill:
                    return


def _devices(view: View) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    counts = np.zeros(len(view.cluster.types), np.int64)
    for node, gpus in zip(view.cluster.nodes, view.capacity.tolist(), strict=True):
        if gpus:
            counts[view.cluster.type_index[node.gpu_type]] += gpus
    return counts


def _notes(market: Market, free: Free) -> dict[str, float]:
    prices: dict[int, list[float]] = {}
    for node, capacity in enumerate(market.capacity):
        if capacity:
            prices.setdefault(market.types[node], []).append(market.price(node, free.gpus[node]))
    names = [kind.name for kind in market.view.cluster.types]
    return {f"price_{names[kind]}": sum(each) / len(each) for kind, each in sorted(prices.items())}
