"""Hadar: GPU prices rise with use, and jobs take the GPUs of highest net utility."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from allocators.heterogeneous.hadar.prices import (
    UTILITIES,
    PayoffFunction,
    QueueSizes,
    price_bounds,
    price_steps,
    utility_functions,
)
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
from allocators.placement import RUN_TIME_NEEDS, Spot
from allocators.reasons import next_decision_reason, outranked_reason, prefix_reason, room_reason
from allocators.toolkit import round_param
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
    inf,
    param,
)

_TIE: Final = 1e-12
ORDERS: Final[Mapping[str, str]] = {
    "utility": "of which an early finish is worth more than its {utility:number}",
    "utility_per_gpu": "of which an early finish is worth more than its {worth:number} per GPU",
    "submission": "submitted earlier, or at the same time and worth more,",
}
"""Order of jobs -> the clause of a reason about the jobs that go first."""


class Placement(NamedTuple):
    """A placement of a job, given by its index in the round, and its payoff."""

    at: int
    spots: Spots
    payoff: float


class GangSpeed:
    """Estimated work per second of placed gangs, by GPUs of each type and number of nodes.

    Cached; estimated once for all jobs of a size.
    """

    def __init__(self) -> None:
        self._rates: dict[JobId, dict[tuple[tuple[Spot, ...], int], float]] = {}

    def speed(
        self, view: View, job: JobId, peers: Ints, held: tuple[Spot, ...], nodes: int
    ) -> float:
        """Return a job's work per second with (type, GPUs) pairs on a number of nodes; cached.

        Its `peers`, which request as many GPUs, are estimated in the same call.
        """
        job_rates = self._rates.get(job)
        rate = job_rates.get((held, nodes)) if job_rates else None
        if rate is None:
            rates = view.estimates.rates(
                peers, [shape(len(view.cluster.types), dict(held), nodes)]
            )[:, 0]
            for peer, value in zip(peers.tolist(), rates.tolist(), strict=True):
                self._rates.setdefault(peer, {})[held, nodes] = value
            rate = self._rates[job][held, nodes]
        return rate

    def forget(self, finished: Sequence[JobId]) -> None:
        """Delete the records of finished jobs."""
        for job in finished:
            self._rates.pop(job, None)


class RoundMarket:
    """Prices, utilities and jobs of one round.

    Parameters
    ----------
    view, jobs : View, FreeJobs
        The instant.
    utility : PayoffFunction
        Utility of each job.
    prices : two arrays of shape (types,)
        Lowest and highest price of a GPU.
    """

    def __init__(
        self, view: View, jobs: FreeJobs, utility: PayoffFunction, prices: tuple[Floats, Floats]
    ) -> None:
        self.view, self.jobs, self.at_s = view, jobs, view.now_s
        self.types = [view.cluster.type_index.get(node.gpu_type, -1) for node in view.cluster.nodes]
        self.capacity: list[int] = view.capacity.tolist()
        self.prices = prices
        self._scale, self._origin_s = utility.scale.tolist(), utility.origin_s.tolist()
        self._left, self._ids = jobs.left.tolist(), jobs.ids.tolist()
        self._price_steps: dict[tuple[int, int], list[float]] = {}
        self._peers: dict[int, Ints] = {
            gang: jobs.ids[jobs.gangs == gang] for gang in np.unique(jobs.gangs).tolist()
        }
        self.job = self._ids.__getitem__

    def peers(self, demand: Demand) -> Ints:
        """Return the ids of the jobs that request as many GPUs in total as a demand."""
        return self._peers[demand.replicas * demand.gpus]

    def utility(self, at: int, wait_s: float, pace: float) -> float:
        """Return the utility of running job `at` at this speed after `wait_s` seconds."""
        finish_s = self.view.now_s + wait_s + self._left[at] / pace
        return float(self._scale[at] / max(finish_s - self._origin_s[at], 1e-9))

    def steps(self, node: int) -> list[float]:
        """Return the total cost of the first 0, 1, 2, ... GPUs of a node; cached."""
        key = self.types[node], self.capacity[node]
        costs = self._price_steps.get(key)
        if costs is None:
            least, most = (float(bound[key[0]]) for bound in self.prices)
            costs = self._price_steps[key] = price_steps(least, most, key[1])
        return costs

    def price(self, node: int, free: int) -> float:
        """Return the price of the next GPU of a node with `free` free GPUs; the highest if full."""
        steps, taken = self.steps(node), self.capacity[node] - free
        return steps[taken + 1] - steps[taken] if free else float(self.prices[1][self.types[node]])

    def cost(self, free: Free, spots: Spots, gpus: int) -> float:
        """Return the total price of replicas of `gpus` GPUs on nodes that are partly in use."""
        total = 0.0
        for node, count in spots:
            steps, taken = self.steps(node), self.capacity[node] - free.gpus[node]
            total += steps[taken + count * gpus] - steps[taken]
        return total


class FindAlloc:
    """Finds the placement of a job with the largest payoff.

    Parameters
    ----------
    mixing : bool
        Whether the workers of a job may be on GPUs of several types.
    overhead_s : float, seconds
        Time that a job loses by a change of GPUs.
    sites : Sites
        Nodes that demands may use.

    Notes
    -----
    Candidates: the present nodes of the job; for each type the fewest servers, of single servers
    the cheapest; with `mixing` the shortest prefix of the types, fastest first, in which the gang
    fits, with the fastest filled first. Longer prefixes give the same GPUs. A job that is on a type
    moves within it only to fewer servers. Of equal payoffs the first candidate wins.
    """

    def __init__(self, sites: Sites, *, mixing: bool, overhead_s: float) -> None:
        self._sites, self._mixing, self._overhead_s = sites, mixing, overhead_s
        self.pace = GangSpeed()

    def __call__(
        self,
        market: RoundMarket,
        at: int,
        paces: Sequence[float],
        free: Free,
        *,
        anyhow: bool = False,
    ) -> Placement | None:
        """Return the placement with the largest payoff, or None if no payoff is above 0.

        Parameters
        ----------
        market : RoundMarket
            Utilities and prices.
        at : int
            Index of the job in the round.
        paces : sequence of float
            Its work per second on each type.
        free : Free
            Free resources.
        anyhow : bool
            Whether a payoff of 0 or less is accepted.
        """
        view, job = market.view, market.job(at)
        demand = view.demand(job)
        peers, best = market.peers(demand), None
        for spots, stays in self._candidates(
            market, demand, paces, free, _present_spots(view.grants.get(job), demand)
        ):
            held: dict[int, int] = {}
            for node, count in spots:
                kind = market.types[node]
                held[kind] = held.get(kind, 0) + count * demand.gpus
            pace = self.pace.speed(view, job, peers, tuple(held.items()), len(spots))
            if pace > 0:
                payoff = market.utility(at, 0.0 if stays else self._overhead_s, pace) - market.cost(
                    free, spots, demand.gpus
                )
                if best is None or payoff > best.payoff + _TIE * abs(best.payoff):
                    best = Placement(at, spots, payoff)
        return best if best is not None and (anyhow or best.payoff > 0) else None

    def _candidates(
        self, market: RoundMarket, demand: Demand, paces: Sequence[float], free: Free, seat: Spots
    ) -> Iterator[tuple[Spots, bool]]:
        """Yield the (node, replicas) pairs of candidates, and whether the job keeps its GPUs."""
        nodes, need = self._sites.nodes(market.view, demand), demand.replicas
        kinds = sorted(
            (kind for kind in nodes if paces[kind] > 0), key=lambda kind: (-paces[kind], kind)
        )
        held = {market.types[node] for node, _ in seat}
        can_stay = (
            bool(seat)
            and (len(held) == 1 or self._mixing)
            and all(free.fit(node, demand) >= count for node, count in seat)
        )
        if can_stay:
            yield seat, True
        fits = {
            kind: [(fit, node) for node in nodes[kind] if (fit := free.fit(node, demand))]
            for kind in kinds
        }
        room = 0
        for place, kind in enumerate(kinds):
            there = sum([fit for fit, _ in fits[kind]])
            if there >= need:
                spots = _fewest_nodes(market, free, fits[kind], need)
                if not (can_stay and held == {kind} and len(spots) >= len(seat)):
                    yield spots, False
            if self._mixing and room < need <= room + there and room:
                walk = [
                    entry
                    for before in kinds[: place + 1]
                    for entry in sorted(fits[before], key=lambda fit: (-fit[0], fit[1]))
                ]
                yield tuple(fill_in_order(walk, need)), False
            room += there


def _present_spots(grant: Grant | None, demand: Demand) -> Spots:
    """Return the (node, replicas) pairs of a job that runs as one gang of its requested size.

    Empty for any other job: a gang of another kind was started by another policy.
    """
    if (
        grant is None
        or len(grant.gangs) != 1
        or (grant.gangs[0].servers is None) != (demand.servers is None)
    ):
        return ()
    workers = grant.gangs[0].workers
    return (
        spots_of(grant.gangs[0])
        if sum(workers.count) == demand.replicas and workers.gpus == demand.gpus
        else ()
    )


def _fewest_nodes(market: RoundMarket, free: Free, fits: list[tuple[int, int]], need: int) -> Spots:
    """Return (node, replicas) pairs on the fewest nodes that hold the gang; cheapest if one."""
    whole = [node for fit, node in fits if fit >= need]
    if whole:
        return ((min(whole, key=lambda node: (market.price(node, free.gpus[node]), node)), need),)
    return tuple(fill_in_order(sorted(fits, key=lambda fit: (-fit[0], fit[1])), need))


class PartialPlan(NamedTuple):
    """A partial decision: its total payoff, the free resources, and the placements."""

    payoff: float
    free: Free
    choices: tuple[Placement, ...]

    def with_placement(self, view: View, choice: Placement, job: JobId) -> PartialPlan:
        """Return the partial decision with one more placement."""
        free = self.free.copy()
        free.take(view.demand(job), choice.spots)
        return PartialPlan(self.payoff + choice.payoff, free, (*self.choices, choice))


@dataclass
class Hadar(Allocator):
    """Place all jobs in every round on the GPUs where their utility exceeds the prices the most.

    Notes
    -----
    Our reading of the abstracts of [1]_ and [2]_; structure and formulas follow the primal-dual
    scheme that they name.

    Utility of job j finishing at f: ``utility``, see `utility_functions`. The abstracts name total
    time [2]_ and completion time and finish-time fairness [1]_ but no utility. Ours: ``auto`` is
    the share of the best possible speed, ``t_min / (f - a)`` with submission ``a`` and the time
    ``t_min`` that the job takes alone on its fastest type, for a batch, where it ends as early as
    ``makespan`` with few moves; under it a job of a stream is worth less the longer it waits, so
    there ``auto`` is ``ftf``, under which it is worth more. See decision 0039.

    Price of a GPU of type r on a server with ``c`` GPUs of which ``g`` are taken: ``Umin_r (Umax_r
    / Umin_r)^(g / c)``, with ``Umax_r = max_j U_j(t_min) / W_j`` and ``Umin_r = min_j U_j(T - a_j)
    / (4 eta t_j W_j)`` over the jobs that run on the type, ``W`` GPUs requested, ``t_j`` seconds on
    the slowest type. Ours: the horizon ``T``, see `price_bounds`; ``Umin_r`` is kept between 1e-12
    and a half of ``Umax_r``. Jobs are visited in order of utility at their soonest finish (ours,
    see ``order``), ties by job id, and each is placed by `FindAlloc` or skipped; the ``beam`` best
    partial decisions are kept. Ours: the candidates, that a job keeps its GPUs if others are no
    better, ``fill``, and that without ``fill`` an otherwise idle cluster still takes the first job.
    Work is counted from the first time the policy saw the job.

    Rounds follow each other while a job with GPUs runs; otherwise the next event begins one.
    Waiting and evicted jobs wait for the next round. Jobs that must not be stopped keep their GPUs.
    CPU jobs start when they fit and are never stopped.
    The notes of a decision are the price of the next GPU of each type, averaged over the servers in
    service, and the sum of payoffs.

    References
    ----------
    .. [1] A. Sultana, F. Xu, X. Yuan, L. Chen, N.-F. Tzeng, "Hadar: Heterogeneity-Aware
    Optimization-Based Online Scheduling for Deep Learning Cluster",
       IPDPS 2024.
    .. [2] A. Sultana, N. Pakka, F. Xu, X. Yuan, L. Chen, N.-F. Tzeng, "Resource Heterogeneity-Aware
    and Utilization-Enhanced Scheduling for Deep Learning
       Clusters", arXiv 2503.10918.
    """

    utility: str = param(
        UTILITIES[0],
        title="Optimize for",
        choices=UTILITIES,
        labels={
            "auto": "Automatic",
            "effective_throughput_normalised": "Share of best speed",
            "raw": "Iterations per second",
            "jct": "Completion time",
            "makespan": "Makespan",
            "ftf": "Finish-time fairness",
        },
        help=(
            "Value of an early finish. Completion time: equal for all jobs. Makespan: most for"
            " long jobs. Finish-time fairness: most for jobs below an equal share. Automatic:"
            " this, or 'Share of best speed' if all came together. Mean completion time, sample"
            " week: speeds 7.5 h, completion time 3.7 h, makespan 16.6 h, fairness 3.2 h."
        ),
    )
    order: str = param(
        "utility",
        title="Order of jobs",
        choices=tuple(ORDERS),
        labels={
            "utility": "Highest utility",
            "utility_per_gpu": "Highest utility per GPU",
            "submission": "Earliest submission",
        },
        help=(
            "Of equal submissions the highest utility first. Sample week, mean completion time"
            " (longest wait): utility 3.2 h (33 h), per GPU 3.2 h (76 h), submission 4.6 h (25 h)."
        ),
    )
    mixing: bool = param(
        True,
        title="Mix GPU types",
        help="Whether one job may use GPUs of several types.",
    )
    fill: bool = param(
        True,
        title="Fill idle GPUs",
        help="Whether jobs not worth their price start on GPUs that would be idle.",
    )
    eta: float = param(
        1.0,
        title="Price divisor (eta)",
        low=1e-9,
        high=1e9,
        help=(
            "Divides the lowest price: larger = cheaper idle GPUs. Matters most without 'Fill idle"
            " GPUs'."
        ),
    )
    beam: int = param(
        1,
        title="Beam width",
        low=1,
        high=64,
        help="Partial decisions kept while jobs are placed; 1 = greedy.",
    )
    overhead_s: float = param(
        10.0,
        title="Expected cost of a change",
        unit="s",
        low=0,
        high=3600,
        help="Estimated cost of a change of GPUs.",
    )
    round_s: float = round_param()
    _work: dict[JobId, float] = field(init=False, repr=False, default_factory=dict)
    _types: set[str] = field(init=False, repr=False, default_factory=set)
    _last: tuple[RoundMarket, list[int], list[list[float]]] | None = field(
        init=False, repr=False, default=None
    )
    _rounds: RoundLoop = field(init=False, repr=False)
    _find: FindAlloc = field(init=False, repr=False)

    cadence = Cadence(on_finish=False)
    card = Card(
        title="Hadar",
        brief="internal GPU prices; highest bids win",
        what=(
            "Internal prices, not dollars, rise as GPUs are taken; every few minutes each job"
            " takes the GPUs worth most to it, even of several types."
        ),
        cost=(
            "Jobs are stopped and moved as prices change. Large gangs wait longest;"
            " if all jobs arrive at once, most finish late."
        ),
        limits=(
            "Depends on the accuracy of run times and speeds. The cost of a move is a setting, not"
            " a measurement."
        ),
        source="Sultana et al., Hadar, IPDPS 2024; Sultana et al., arXiv 2503.10918",
        certainty=(
            "our reading of the abstracts alone; prices, utility, job order and node choice are"
            " ours"
        ),
        goals=("heterogeneous",),
        how=(
            "Time is divided into rounds; in each, all jobs are placed again.",
            "A GPU has a price, which rises as more GPUs of its type are taken on its server.",
            (
                "Jobs are considered in order of the utility of an early finish: of a batch the"
                " longest first, of a stream those worst off."
            ),
            (
                "Each takes the GPUs, even of several types, where utility exceeds price the"
                " most; if it exceeds none, the job is skipped."
            ),
            (
                "Skipped jobs may still get GPUs that would be idle; a job keeps its GPUs if no"
                " others are better."
            ),
        ),
    )

    def __post_init__(self) -> None:
        """Create the rounds and the search for placements."""
        self._rounds = RoundLoop(self.round_s)
        self._find = FindAlloc(self._rounds.sites, mixing=self.mixing, overhead_s=self.overhead_s)

    @property
    def needs(self) -> Needs:
        """Need remaining work, rates and, with `mixing`, gangs over several types."""
        return Needs(RUN_TIME_NEEDS, mixes_types=self.mixing)

    def remarks(self) -> tuple[str, ...]:
        """Return a note if all GPUs are of one type."""
        if len(self._types) != 1:
            return ()
        return (
            (
                f"hadar chose no GPU types: all GPUs are {next(iter(self._types))}. It only chose"
                " the jobs of each round and their nodes."
            ),
        )

    def allocate(self, view: View, /) -> Plan:
        """Place jobs if a round begins now; otherwise only start jobs without GPUs."""
        self._find.pace.forget(view.delta.finished)
        for job in view.delta.finished:
            self._work.pop(job, None)
        return self._rounds.plan(view, self._decide)

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait by a GPU's price if above the job's utility per GPU, else by its rank.

        Between rounds the reason is the next round.
        """
        ids = [] if self._last is None else self._last[0].jobs.ids.tolist()
        if not decided.wants(job):
            return room_reason(decided, job)
        if self._last is None or self._last[0].at_s != decided.view.now_s or job not in ids:
            return next_decision_reason(self._rounds.ends_s, "the next round began")
        market, order, rows = self._last
        at = ids.index(job)
        utility = market.utility(at, 0.0, max(rows[at]))
        worth = utility / decided.wants(job)
        pools, free = decided.view.room.pools, decided.free.tolist()
        nodes = [node for pool in decided.demand(job).pools for node in pools[pool].nodes]
        price = min(
            [market.price(node, min(free[node], market.capacity[node])) for node in nodes],
            default=inf,
        )
        if price > worth:
            return prefix_reason(
                "a GPU cost {price:number}, more than the {worth:number} that an early finish of"
                " the job is worth per GPU",
                room_reason(decided, job),
                price=price,
                worth=worth,
            )
        before = [ids[one] for one in order[: order.index(at)] if ids[one] in decided.grants]
        return outranked_reason(
            decided,
            job,
            before,
            ORDERS[self.order],
            worth=worth,
            utility=utility,
        )

    def _decide(
        self, view: View, jobs: FreeJobs, paces: Floats, free: Free
    ) -> tuple[dict[JobId, Grant], Mapping[str, float]]:
        """Return the grants of a round by job, and its notes; jobs left out hold no GPUs."""
        market, order = self._open_market(view, jobs, paces)
        rows = paces.tolist()
        state = self._search(market, order, rows, PartialPlan(0.0, free, ()))
        chosen = [*state.choices, *self._fill_idle(market, order, rows, state)]
        self._last = market, order, rows
        target = {}
        for choice in chosen:
            job = market.job(choice.at)
            gang = gang_of(view.demand(job), choice.spots)
            held = view.grants.get(job)
            target[job] = held if held is not None and held.gangs == (gang,) else Grant((gang,))
        return target, _price_notes(market, state.free) | {
            "payoff": sum([choice.payoff for choice in chosen])
        }

    def _open_market(
        self, view: View, jobs: FreeJobs, paces: Floats
    ) -> tuple[RoundMarket, list[int]]:
        """Return the market of a round and the job indices in the order of placement.

        Also records the work of jobs seen for the first time, and the GPU types in service.
        """
        for job, left in zip(jobs.ids.tolist(), jobs.left.tolist(), strict=True):
            self._work[job] = max(self._work.get(job, left), left)
        work = np.array([self._work[job] for job in jobs.ids.tolist()])
        queue = QueueSizes(jobs.gangs, jobs.arrival_s, work, jobs.left, paces)
        devices = _gpus_by_type(view)
        self._types.update(
            kind.name
            for kind, count in zip(view.cluster.types, devices.tolist(), strict=True)
            if count
        )
        utility = utility_functions(self.utility, queue, view.now_s, devices)
        market = RoundMarket(
            view,
            jobs,
            utility,
            price_bounds(queue, utility, view.now_s, int(devices.sum()), self.eta),
        )
        value = utility.utilities(view.now_s + jobs.left / queue.best)
        if self.order == "utility_per_gpu":
            value = value / jobs.gangs
        # Rounded, so that equal utilities tie.
        keys = [jobs.ids, -np.round(value / value.max(), 12)]
        if self.order == "submission":
            keys.append(jobs.arrival_s)
        return market, np.lexsort(keys).tolist()

    def _search(
        self,
        market: RoundMarket,
        order: Sequence[int],
        rows: Sequence[Sequence[float]],
        start: PartialPlan,
    ) -> PartialPlan:
        """Place the jobs in order; return the partial decision with the greatest payoff.

        Keeps the `beam` best partial decisions. A job without a positive payoff is skipped.
        """
        view, beam = market.view, [start]
        for at in order:
            grown = []
            for state in beam:
                choice = (
                    self._find(market, at, rows[at], state.free) if any(state.free.gpus) else None
                )
                if choice is None:
                    continue
                if self.beam == 1:
                    # With a single state, a positive payoff always beats skipping the job.
                    state.free.take(view.demand(market.job(at)), choice.spots)
                    beam = [
                        PartialPlan(
                            state.payoff + choice.payoff, state.free, (*state.choices, choice)
                        )
                    ]
                else:
                    grown.append(state.with_placement(view, choice, market.job(at)))
            if grown:
                beam = sorted([*grown, *beam], key=lambda state: -state.payoff)[: self.beam]
        return beam[0]

    def _fill_idle(
        self,
        market: RoundMarket,
        order: Sequence[int],
        rows: Sequence[Sequence[float]],
        state: PartialPlan,
    ) -> Iterator[Placement]:
        """Yield placements of skipped jobs on idle GPUs, in order, and reserve them.

        Without `fill` only one, and only if the cluster would otherwise be idle.
        """
        idle = not state.choices and len(market.view.grants) == sum(
            [market.job(at) in market.view.grants for at in order]
        )
        taken = {choice.at for choice in state.choices}
        for at in order if self.fill or idle else ():
            choice = (
                self._find(market, at, rows[at], state.free, anyhow=True)
                if at not in taken and any(state.free.gpus)
                else None
            )
            if choice is not None:
                state.free.take(market.view.demand(market.job(at)), choice.spots)
                yield choice
                if not self.fill:
                    return


def _gpus_by_type(view: View) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the number of GPUs in service of each type, by type index."""
    counts = np.zeros(len(view.cluster.types), np.int64)
    for node, gpus in zip(view.cluster.nodes, view.capacity.tolist(), strict=True):
        if gpus:
            counts[view.cluster.type_index[node.gpu_type]] += gpus
    return counts


def _price_notes(market: RoundMarket, free: Free) -> dict[str, float]:
    """Return the mean price of the next GPU over the nodes of each type, by name of the note."""
    prices: dict[int, list[float]] = {}
    for node, capacity in enumerate(market.capacity):
        if capacity:
            prices.setdefault(market.types[node], []).append(market.price(node, free.gpus[node]))
    names = [kind.name for kind in market.view.cluster.types]
    return {f"price_{names[kind]}": sum(each) / len(each) for kind, each in sorted(prices.items())}
