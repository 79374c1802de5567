"""Cost frontier: the cheapest mix of GPU types for every throughput, at given prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from allocators.heterogeneous.timeshare.problem import Floats, Hint, Ints, Problem

_MIN_GROUPED_JOBS: Final = (
    24  # up to so many jobs, grouping equal ones costs more time than it saves
)


class Frontier(NamedTuple):
    """The cheapest mix for every throughput of each kind of job, as pieces between two types.

    Parameters
    ----------
    pieces : int
        Pieces per kind; a kind with fewer pieces ends with pieces of no length and infinite slope.
    reached : array (types + 1 x kinds,)
        Throughputs at the ends of the pieces, relative to the fastest type: first 0 of all kinds,
        then the ends of their first pieces, and so on.
    slope : array (types + 1 x kinds,)
        Price per throughput and GPU on the piece that starts there; never falls along the pieces.
    at : array (types + 1 x kinds,)
        Column of the type there; the number of types stands for none, at the first start.
    """

    pieces: int
    reached: Floats
    slope: Floats
    at: Ints


class FrontierPoint(NamedTuple):
    """Position of every job on its frontier.

    It consists of the start and end of the job's piece, and the fraction of the piece.
    """

    frontier: Frontier
    start: Ints
    end: Ints
    along: Floats


@dataclass(frozen=True)
class FrontierMarket:
    """The jobs that run on some type, with throughputs relative to their fastest type.

    Parameters
    ----------
    jobs, types : array of int
        Rows and columns of the problem in the market; types without GPUs are left out.
    shape : tuple of int
        Shape of the problem.
    fastest : array (jobs,)
        Iterations per second on the fastest type.
    kinds : array (kinds, types)
        Relative rates of each kind of equal jobs; with few jobs each is a kind.
    kind : array (jobs,)
        Kind of each job.
    gangs, devices : array of float
        GPUs of each job, of each type.
    """

    jobs: Ints
    types: Ints
    shape: tuple[int, int]
    fastest: Floats
    kinds: Floats
    kind: Ints
    gangs: Floats
    devices: Floats

    @classmethod
    def from_problem(cls, problem: Problem) -> FrontierMarket:
        """Return the market of a problem, with rates relative to each job's fastest type.

        Jobs that cannot run and types without GPUs are left out; of many jobs, equal ones are
        grouped.
        """
        types = np.flatnonzero(problem.devices > 0)
        within = problem.rates[:, types]
        highest = within.max(axis=1, initial=0.0)
        jobs = np.flatnonzero(highest > 0)
        fastest = highest[jobs]
        rates = within[jobs] / fastest[:, None]
        kinds, kind = (
            distinct_rows(rates) if len(jobs) > _MIN_GROUPED_JOBS else (rates, np.arange(len(jobs)))
        )
        shape = (len(problem.rates), len(problem.devices))
        return cls(
            jobs,
            types,
            shape,
            fastest,
            kinds,
            kind,
            problem.gangs[jobs].astype(float),
            problem.devices[types].astype(float),
        )

    def frontier(self, prices: Floats) -> Frontier:
        """Return the cheapest mixes of types at these prices per GPU of each type, all >= 0.

        Notes
        -----
        The lower convex hull of the origin and the points (rate, price), built from the origin: the
        next type is the one with the cheapest additional throughput.
        """
        kinds, types = self.kinds.shape
        every = np.arange(kinds)
        reached, slopes = np.zeros((2, types + 1, kinds))
        paid, at = np.zeros(kinds), np.full((types + 1, kinds), types)
        step = 0
        while not step or reached[step].min() < 1.0:
            more = self.kinds - reached[step, :, None]
            each = np.full((kinds, types), np.inf)
            np.divide(prices - paid[:, None], more, out=each, where=more > 0)
            best = each.argmin(axis=1)
            slopes[step] = each[every, best]
            at[step + 1] = best = np.where(reached[step] < 1.0, best, at[step])
            reached[step + 1], paid = self.kinds[every, best], prices[best]
            step += 1
        return Frontier(step, reached.ravel(), slopes.ravel(), at.ravel())

    def mix(self, frontier: Frontier, throughput: Floats) -> FrontierPoint:
        """Return the cheapest mix of types of every job for its relative throughput of 0 to 1."""
        kinds, start = len(self.kinds), self.kind
        for piece in range(1, frontier.pieces):
            start = start + kinds * (throughput > frontier.reached[self.kind + kinds * piece])
        end = start + kinds
        low = frontier.reached[start]
        return FrontierPoint(
            frontier, start, end, (throughput - low) / (frontier.reached[end] - low)
        )

    def worthwhile(self, frontier: Frontier, worth: Floats) -> Floats:
        """Return each job's throughput up to which more of it costs at most its value `worth`."""
        most = np.zeros(len(self.kind))
        for piece in range(frontier.pieces):
            start = self.kind + len(self.kinds) * piece
            pays = frontier.slope[start] * self.gangs <= worth
            most[pays] = frontier.reached[start[pays] + len(self.kinds)]
        return most

    def used(self, mix: FrontierPoint) -> Floats:
        """Return the mean number of GPUs of each type in a mix."""
        faster, types = self.gangs * mix.along, len(self.devices) + 1
        at = mix.frontier.at
        taken = np.bincount(at[mix.end], faster, types) + np.bincount(
            at[mix.start], self.gangs - faster, types
        )
        return taken[:-1].astype(np.float64, copy=False)

    def slope(self, mix: FrontierPoint, growth: Floats) -> float:
        """Return the growth of a mix's total price if throughputs grow at these speeds."""
        return float((self.gangs * mix.frontier.slope[mix.start]) @ growth)

    def shares(self, mix: FrontierPoint) -> Floats:
        """Return a mix as shares of time, shape (jobs, types) of the market."""
        every = np.arange(len(self.kind))
        x = np.zeros((len(self.kind), len(self.devices) + 1))
        x[every, mix.frontier.at[mix.start]] = 1.0 - mix.along
        x[every, mix.frontier.at[mix.end]] = mix.along
        return x[:, :-1]

    def usable_prices(self, hint: Hint | None) -> list[Floats]:
        """Return the price vectors of a hint that have one price for each type of the market."""
        return [prices for prices in hint or () if len(prices) == len(self.types)]

    def to_problem(self, x: Floats) -> Floats:
        """Return shares of the market in the shape of the problem, with 0 elsewhere."""
        full = np.zeros(self.shape)
        full[self.jobs[:, None], self.types] = x
        return full


def distinct_rows(rows: Floats) -> tuple[Floats, Ints]:
    """Return the distinct rows, and the index of the distinct row of every row."""
    # Sums with irrational weights are faster to compare than rows; if two different rows have the
    # same sum, all rows are compared.
    key = rows @ np.sqrt(np.arange(2, 2 + rows.shape[1]))
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    if (rows[first][which] == rows).all():
        return rows[first], which
    different, which = np.unique(rows, axis=0, return_inverse=True)
    return different, which.ravel()
