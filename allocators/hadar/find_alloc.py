"""Hadar's FIND_ALLOC: for one job and what is free, the placement that is worth the most after what its GPUs cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from allocators.hadar.prices import Worth, ladder
from allocators.hadar.rounds import Free, Jobs, Sites, Spots, greedily, shape, spots_of
from allocators.placement import Spot
from sim.contract import Demand, Floats, Grant, Ints, JobId, View

_TIE: Final = 1e-12


class Choice(NamedTuple):
    """A placement of a job (its place in the round), and its payoff."""

    at: int
    spots: Spots
    payoff: float


class Pace:
    """Believed work per second of placed gangs by GPUs of each type and number of nodes; asked once for all jobs of a size, since it does not change."""

    def __init__(self) -> None:
        self._known: dict[JobId, dict[tuple[tuple[Spot, ...], int], float]] = {}

    def of(self, view: View, job: JobId, peers: Ints, held: tuple[Spot, ...], nodes: int) -> float:
        """Return the pace of a job that holds (type, GPUs) pairs on so many nodes; `peers` ask for as many GPUs and learn theirs as well."""
        known = self._known.get(job)
        rate = known.get((held, nodes)) if known else None
        if rate is None:
            rates = view.belief.rates(peers, [shape(len(view.cluster.types), dict(held), nodes)])[:, 0]
            for peer, value in zip(peers.tolist(), rates.tolist(), strict=True):
                self._known.setdefault(peer, {})[held, nodes] = value
            rate = self._known[job][held, nodes]
        return rate

    def forget(self, finished: Sequence[JobId]) -> None:
        """Drop what is known of jobs that are gone."""
        for job in finished:
            self._known.pop(job, None)


class Market:
    """The prices of one round, and who may buy.

    Parameters
    ----------
    view, jobs : View, Jobs
        The instant.
    utility : Worth
        Of each job.
    prices : two arrays of shape (types,)
        Lowest and highest price of a GPU.
    """

    def __init__(self, view: View, jobs: Jobs, utility: Worth, prices: tuple[Floats, Floats]) -> None:
        self.view, self.jobs = view, jobs
        self.types = [view.cluster.type_index.get(node.gpu_type, -1) for node in view.cluster.nodes]
        self.capacity: list[int] = view.capacity.tolist()
        self.prices = prices
        self._scale, self._origin_s = utility.scale.tolist(), utility.origin_s.tolist()
        self._left, self._ids = jobs.left.tolist(), jobs.ids.tolist()
        self._ladders: dict[tuple[int, int], list[float]] = {}
        self._peers: dict[int, Ints] = {gang: jobs.ids[jobs.gangs == gang] for gang in np.unique(jobs.gangs).tolist()}
        self.job = self._ids.__getitem__

    def peers(self, demand: Demand) -> Ints:
        """Return the jobs that ask for as many GPUs."""
        return self._peers[demand.replicas * demand.gpus]

    def utility(self, at: int, wait_s: float, pace: float) -> float:
        """Return what it is worth to run a job at this pace from so many seconds on."""
        finish_s = self.view.now_s + wait_s + self._left[at] / pace
        return float(self._scale[at] / max(finish_s - self._origin_s[at], 1e-9))

    def steps(self, node: int) -> list[float]:
        """Return what the first 0, 1, 2, ... GPUs of a node cost in all."""
        key = self.types[node], self.capacity[node]
        known = self._ladders.get(key)
        if known is None:
            least, most = (float(bound[key[0]]) for bound in self.prices)
            known = self._ladders[key] = ladder(least, most, key[1])
        return known

    def price(self, node: int, free: int) -> float:
        """Return what the next GPU of a node costs, that of a full one the highest price."""
        steps, taken = self.steps(node), self.capacity[node] - free
        return steps[taken + 1] - steps[taken] if free else float(self.prices[1][self.types[node]])

    def cost(self, free: Free, spots: Spots, gpus: int) -> float:
        """Return what replicas of so many GPUs each cost, every GPU dearer than the one before it."""
        total = 0.0
        for node, count in spots:
            steps, taken = self.steps(node), self.capacity[node] - free.gpus[node]
            total += steps[taken + count * gpus] - steps[taken]
        return total


class FindAlloc:
    """Finds placements.

    Parameters
    ----------
    mixing : bool
        Whether the workers of a job may be on GPUs of several types.
    overhead_s : float, seconds
        What a job loses that does not stay where it is.
    sites : Sites
        Where demands may go.

    Notes
    -----
    Candidates: where the job is now; for each type the fewest servers, of single servers the cheapest; with `mixing` the shortest prefix of the types, fastest
    first, in which the gang fits, the fastest filled first. Longer prefixes give the same GPUs. A job that is on a type is not moved within it but to fewer
    servers. Of equal payoffs the first counts.
    """

    def __init__(self, sites: Sites, *, mixing: bool, overhead_s: float) -> None:
        self._sites, self._mixing, self._overhead_s = sites, mixing, overhead_s
        self.pace = Pace()

    def __call__(self, market: Market, at: int, paces: Sequence[float], free: Free, *, anyhow: bool = False) -> Choice | None:
        """Return the placement with the largest payoff, or None if none is above 0 (with `anyhow`: if there is no room).

        Parameters
        ----------
        market : Market
            Utilities and prices.
        at : int
            Place of the job in the round.
        paces : sequence of float
            Its pace on each type.
        free : Free
            What is left.
        anyhow : bool
            Whether a payoff of 0 or less is accepted.
        """
        view, job = market.view, market.job(at)
        demand = view.demand(job)
        peers, best = market.peers(demand), None
        for spots, stays in self._candidates(market, demand, paces, free, _seat(view.grants.get(job), demand)):
            held: dict[int, int] = {}
            for node, count in spots:
                kind = market.types[node]
                held[kind] = held.get(kind, 0) + count * demand.gpus
            pace = self.pace.of(view, job, peers, tuple(held.items()), len(spots))
            if pace > 0:
                payoff = market.utility(at, 0.0 if stays else self._overhead_s, pace) - market.cost(free, spots, demand.gpus)
                if best is None or payoff > best.payoff + _TIE * abs(best.payoff):
                    best = Choice(at, spots, payoff)
        return best if best is not None and (anyhow or best.payoff > 0) else None

    def _candidates(self, market: Market, demand: Demand, paces: Sequence[float], free: Free, seat: Spots) -> Iterator[tuple[Spots, bool]]:
        nodes, need = self._sites.nodes(market.view, demand), demand.replicas
        kinds = sorted((kind for kind in nodes if paces[kind] > 0), key=lambda kind: (-paces[kind], kind))
        held = {market.types[node] for node, _ in seat}
        can_stay = bool(seat) and (len(held) == 1 or self._mixing) and all(free.fit(node, demand) >= count for node, count in seat)
        if can_stay:
            yield seat, True
        fits = {kind: [(fit, node) for node in nodes[kind] if (fit := free.fit(node, demand))] for kind in kinds}
        room = 0
        for place, kind in enumerate(kinds):
            there = sum([fit for fit, _ in fits[kind]])
            if there >= need:
                spots = _fewest(market, free, fits[kind], need)
                if not (can_stay and held == {kind} and len(spots) >= len(seat)):
                    yield spots, False
            if self._mixing and room < need <= room + there and room:
                walk = [entry for before in kinds[: place + 1] for entry in sorted(fits[before], key=lambda fit: (-fit[0], fit[1]))]
                yield tuple(greedily(walk, need)), False
            room += there


def _seat(grant: Grant | None, demand: Demand) -> Spots:
    """Return where a job is, if it is there as one gang of the size that it asks for; a gang of another kind has been left by another policy."""
    if grant is None or len(grant.gangs) != 1 or (grant.gangs[0].servers is None) != (demand.servers is None):
        return ()
    workers = grant.gangs[0].workers
    return spots_of(grant.gangs[0]) if sum(workers.count) == demand.replicas and workers.gpus == demand.gpus else ()


def _fewest(market: Market, free: Free, fits: list[tuple[int, int]], need: int) -> Spots:
    whole = [node for fit, node in fits if fit >= need]
    if whole:
        return ((min(whole, key=lambda node: (market.price(node, free.gpus[node]), node)), need),)
    return tuple(greedily(sorted(fits, key=lambda fit: (-fit[0], fit[1])), need))
