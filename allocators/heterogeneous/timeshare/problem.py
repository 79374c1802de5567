"""Problem of Gavel's objectives: jobs, GPU types and rates, reference allocations and checks."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Hint = Sequence[Floats]
"""Prices of GPU time of an earlier solution, as a warm start. They save time on a similar problem
and never change the optimum.
"""


class NoSharesError(ValueError):
    """A problem without a solution, or one that no solver could solve."""


class Problem(NamedTuple):
    """Jobs (rows) and GPU types (columns) as the input of the objectives.

    A single number holds for all rows or columns.

    Parameters
    ----------
    rates : array (jobs, types)
        Iterations per second of the whole gang on GPUs of one type; 0 = does not run there. Must be
        0 also if a type has fewer GPUs than the gang, because the gang can never run there.
    gangs : array (jobs,)
        GPUs of each job, at least 1.
    devices : array (types,)
        GPUs of each type.
    weights : array (jobs,)
        Priority weights, > 0.
    left : array (jobs,)
        Iterations left, >= 0.
    age_s : array (jobs,)
        Seconds since arrival.
    isolated_s : array (jobs,)
        Seconds that the work done so far would have taken in isolation: the sum over time spans of
        iterations done / `isolated_rates` at the start of the span.
    due_s : array (jobs,)
        Seconds until the deadline, inf = none; <= 0 = missed.
    prices : array (types,)
        US dollars per GPU and hour, > 0.
    hint : Hint, optional
        Hint of the last solution.

    Notes
    -----
    Shares of time x[m, j] of job m on type j satisfy: x >= 0; sum over j of x[m, j] <= 1; sum over
    m of gangs[m] * x[m, j] <= devices[j].
    """

    rates: Floats
    gangs: Ints
    devices: Ints
    weights: Floats | float = 1.0
    left: Floats | float = 1.0
    age_s: Floats | float = 0.0
    isolated_s: Floats | float = 0.0
    due_s: Floats | float = np.inf
    prices: Floats | float = 1.0
    hint: Hint | None = None


class Shares(NamedTuple):
    """Solution of a problem: shares of time.

    Parameters
    ----------
    x : array (jobs, types)
        Shares of time.
    value : float
        Value of the objective in its own unit; nan if it has none.
    note : str
        Sentence for the user if the objective could not be met and another was used; else empty.
    hint : Hint, optional
        Warm start for the next problem.
    """

    x: Floats
    value: float = nan
    note: str = ""
    hint: Hint | None = None


def per_job(problem: Problem, value: Floats | float) -> Floats:
    """Return a number or column of the problem as an array of one number per job."""
    return np.full(len(problem.rates), value, dtype=float)


def progress(problem: Problem, x: Floats) -> Floats:
    """Return the iterations per second of every job under an allocation."""
    rates: Floats = (problem.rates * x).sum(axis=1)
    return rates


def runs_somewhere(problem: Problem) -> Floats:
    """Return the highest rate of every job; 0 for jobs that run on no type."""
    highest: Floats = problem.rates.max(axis=1, initial=0.0)
    return highest


def proportional(problem: Problem) -> Shares:
    """Return equal shares for all jobs: on each type the type's part of all GPUs.

    Notes
    -----
    It ignores capacity with more jobs than GPUs: a reference for `normal_rates`, not a schedule.
    """
    return Shares(np.tile(_type_fractions(problem), (len(problem.rates), 1)))


def normal_rates(problem: Problem) -> Floats:
    """Return iterations per second under `proportional`, to normalize max-min fairness."""
    rates: Floats = (problem.rates * _type_fractions(problem)).sum(axis=1)
    return rates


def _type_fractions(problem: Problem) -> Floats:
    """Return each type's part of all GPUs, as fractions with sum 1."""
    parts: Floats = problem.devices / max(1, problem.devices.sum())
    return parts


def isolated_shares(problem: Problem) -> Shares:
    """Return the shares that give every job an equal part of the GPUs of every type.

    Notes
    -----
    Gandiva without packing has the same shares: jobs take turns.
    """
    jobs = len(problem.rates)
    x = problem.devices / (max(1, jobs) * problem.gangs[:, None])
    return Shares(x / np.maximum(1.0, x.sum(axis=1, keepdims=True)))


def isolated_rates(problem: Problem) -> Floats:
    """Return iterations per second under `isolated_shares`, for finish-time fairness."""
    return progress(problem, isolated_shares(problem).x)


def agnostic(rates: Floats, reference: int | None = None) -> Floats:
    """Return the rates as seen by a policy that ignores differences between GPU types.

    Parameters
    ----------
    rates : array (jobs, types)
        Measured rates.
    reference : int, optional
        Column of the type whose rates hold for all types, for objectives that count iterations;
        without it every rate is 1, for objectives that use only ratios.

    Notes
    -----
    A job that does not run on the reference type gets the mean of its positive rates; with
    upstream's 0 it would never run. A job that runs on no type keeps its zeros.
    """
    runs = rates.max(axis=1, initial=0.0) > 0
    if reference is None:
        seen = np.ones(len(rates))
    else:
        positive = (rates > 0).sum(axis=1)
        seen = np.where(
            rates[:, reference] > 0,
            rates[:, reference],
            rates.sum(axis=1) / np.maximum(1, positive),
        )
    return np.repeat(np.where(runs, seen, 0.0)[:, None], rates.shape[1], axis=1)


def tidy(problem: Problem, x: Floats) -> Floats:
    """Return shares clipped to 0 to 1 per job, and scaled down on types above capacity."""
    x = np.minimum(np.maximum(x, 0.0), 1.0)
    x /= np.maximum(1.0, x.sum(axis=1, keepdims=True))
    used = problem.gangs @ x
    over = used > problem.devices
    if over.any():
        x[:, over] *= problem.devices[over] / used[over]
    return x
