"""What jobs on GPUs of several types cost at given prices: the cheapest mix of types for every throughput, for all jobs at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from allocators._problem import Problem, runs_somewhere
from sim.contract import Floats, Ints


class Frontier(NamedTuple):
    """The cheapest way to every throughput, for each kind of job: pieces between two types, one after the other in rows of `pieces`.

    Parameters
    ----------
    pieces : int
        Pieces per kind; a kind that has fewer ends with pieces of no length and infinite slope.
    start, end : array (kinds x pieces,)
        Throughputs between which a piece runs, relative to the fastest type.
    slope : array (kinds x pieces,)
        Price of more throughput on it, for one GPU; never falls along the pieces.
    slower, faster : array (kinds x pieces,)
        Columns of the types at its ends; the first piece starts at no type, which is the number of types.
    """

    pieces: int
    start: Floats
    end: Floats
    slope: Floats
    slower: Ints
    faster: Ints


class Mix(NamedTuple):
    """What jobs do at certain throughputs: the piece of the frontier each is on, and how far along."""

    frontier: Frontier
    piece: Ints
    along: Floats


@dataclass(frozen=True)
class Market:
    """The jobs that run on some type, with throughputs relative to that on their fastest type.

    Parameters
    ----------
    jobs, types : array of int
        Rows and columns of the problem that are in it; types without GPUs are not.
    shape : tuple of int
        Of the problem.
    fastest : array (jobs,)
        Iterations per second on the fastest type.
    kinds : array (kinds, types)
        Relative rates of jobs that are alike.
    kind : array (jobs,)
        Which of them a job is.
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
    def of(cls, problem: Problem) -> Market:
        """Pick from a problem what can run."""
        types = np.flatnonzero(problem.devices > 0)
        within = problem._replace(rates=problem.rates[:, types])
        jobs = np.flatnonzero(runs_somewhere(within) > 0)
        fastest = runs_somewhere(within)[jobs]
        kinds, kind = alike(within.rates[jobs] / fastest[:, None])
        shape = (len(problem.rates), len(problem.devices))
        return cls(jobs, types, shape, fastest, kinds, kind, problem.gangs[jobs].astype(float), problem.devices[types].astype(float))

    def frontier(self, prices: Floats) -> Frontier:
        """Return the cheapest mixes at these prices of a GPU of each type, all >= 0.

        Notes
        -----
        The lower convex hull of the points (rate, price) and the origin, walked from there: the next type is the one that more throughput is cheapest with.
        """
        kinds, types = self.kinds.shape
        every = np.arange(kinds)
        reached, paid, at = np.zeros(kinds), np.zeros(kinds), np.full(kinds, types)
        walked: list[tuple[Floats, Floats, Floats, Ints, Ints]] = []
        while not walked or reached.min() < 1.0:
            more = self.kinds - reached[:, None]
            slopes = np.full((kinds, types), np.inf)
            np.divide(prices - paid[:, None], more, out=slopes, where=more > 0)
            best = slopes.argmin(axis=1)
            slope, before = slopes[every, best], (reached, at)
            goes_on = reached < 1.0
            reached = np.where(goes_on, self.kinds[every, best], reached)
            paid = np.where(goes_on, prices[best], paid)
            at = np.where(goes_on, best, at)
            walked.append((before[0], reached, slope, before[1], at))
        start, end, slope, slower, faster = (np.stack(part, axis=1).ravel() for part in zip(*walked, strict=True))
        return Frontier(len(walked), start, end, slope, slower, faster)

    def mix(self, frontier: Frontier, throughput: Floats) -> Mix:
        """Return the cheapest mix of every job for a relative throughput of 0 to 1."""
        first = self.kind * frontier.pieces
        piece = first.copy()
        for step in range(frontier.pieces - 1):
            piece += throughput > frontier.end[first + step]
        start, end = frontier.start[piece], frontier.end[piece]
        return Mix(frontier, piece, (throughput - start) / (end - start))

    def worthwhile(self, frontier: Frontier, worth: Floats) -> Floats:
        """Return the relative throughput up to which more of it costs a job no more than it is worth, per unit."""
        first, most = self.kind * frontier.pieces, np.zeros(len(self.kind))
        for step in range(frontier.pieces):
            piece = first + step
            pays = frontier.slope[piece] * self.gangs <= worth
            most[pays] = frontier.end[piece[pays]]
        return most

    def used(self, mix: Mix) -> Floats:
        """Return the GPUs of each type that a mix takes on average."""
        part = self.gangs * mix.along
        at = np.concatenate((mix.frontier.faster[mix.piece], mix.frontier.slower[mix.piece]))
        taken = np.bincount(at, np.concatenate((part, self.gangs - part)), len(self.devices) + 1)
        return taken[:-1].astype(np.float64, copy=False)

    def slope(self, mix: Mix, growth: Floats) -> float:
        """Return by how much the price of a mix grows if the throughputs do."""
        return float((self.gangs * mix.frontier.slope[mix.piece]) @ growth)

    def shares(self, mix: Mix) -> Floats:
        """Return a mix as shares of time of the jobs and types of the market."""
        every = np.arange(len(self.kind))
        x = np.zeros((len(self.kind), len(self.devices) + 1))
        x[every, mix.frontier.slower[mix.piece]] = 1.0 - mix.along
        x[every, mix.frontier.faster[mix.piece]] = mix.along
        return x[:, :-1]

    def whole(self, x: Floats) -> Floats:
        """Return shares of the market as shares of the problem."""
        full = np.zeros(self.shape)
        full[np.ix_(self.jobs, self.types)] = x
        return full


def alike(rows: Floats) -> tuple[Floats, Ints]:
    """Return the different rows, and for every row which of them it is."""
    # Sums with irrational weights tell rows apart faster than comparing them does; should two different rows have the same sum, every row is compared.
    key = rows @ np.sqrt(np.arange(2, 2 + rows.shape[1]))
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    if (rows[first][which] == rows).all():
        return rows[first], which
    different, which = np.unique(rows, axis=0, return_inverse=True)
    return different, which.ravel()
