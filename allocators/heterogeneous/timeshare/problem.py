"""What Gavel's policies divide: jobs, GPU types and measured rates; the allocations that others are
compared with; and the checks every answer passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Hint = Sequence[Floats]
"""Where to start: prices of GPU time that an earlier answer came with. It saves time on a problem
that is much the same, and never changes the optimum.
"""


class NoSharesError(ValueError):
    """A problem that has no answer, or none that a solver found; the message says which."""


class Problem(NamedTuple):
    """Jobs (rows) and GPU types (columns) among which time is to be shared. A single number stands
    for the same one in every row or column.

    Parameters
    ----------
    rates : array (jobs, types)
        Iterations per second of the whole gang on GPUs of one type; 0 = does not run there. Whoever
        makes it puts 0 also where a type has fewer GPUs than the gang, because a share of time on
        GPUs that are never there at once is worth nothing.
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
        Seconds that the work done so far would have taken in isolation: after every stretch of
        time, iterations done in it / `isolated_rates` at its start.
    due_s : array (jobs,)
        Seconds until the deadline, inf = none; <= 0 = missed.
    prices : array (types,)
        US dollars per GPU and hour, > 0.
    hint : Hint, optional
        That of the last answer.

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
    """An answer.

    Parameters
    ----------
    x : array (jobs, types)
        Shares of time.
    value : float
        What the objective comes to, in its own unit; nan where there is none.
    note : str
        A sentence for the user if the objective itself could not be met and something else was
        done; empty otherwise.
    hint : Hint, optional
        For the next problem.
    """

    x: Floats
    value: float = nan
    note: str = ""
    hint: Hint | None = None


def per_job(problem: Problem, value: Floats | float) -> Floats:
    """Return a column of the problem as one number per job."""
    return np.full(len(problem.rates), value, dtype=float)


def progress(problem: Problem, x: Floats) -> Floats:
    """Return iterations per second of every job under an allocation."""
    made: Floats = (problem.rates * x).sum(axis=1)
    return made


def runs_somewhere(problem: Problem) -> Floats:
    """Return the highest rate of every job; 0 marks jobs that run on no type, which get nothing and
    which no objective counts.
    """
    highest: Floats = problem.rates.max(axis=1, initial=0.0)
    return highest


def proportional(problem: Problem) -> Shares:
    """Give all jobs the same: on every type an equal share of all GPUs.

    Notes
    -----
    It ignores capacity with more jobs than GPUs: a yardstick, which `normal_rates` is computed
    from, not a schedule.
    """
    return Shares(np.tile(_parts(problem), (len(problem.rates), 1)))


def normal_rates(problem: Problem) -> Floats:
    """Return iterations per second under `proportional`, which max-min fairness normalises by."""
    rates: Floats = (problem.rates * _parts(problem)).sum(axis=1)
    return rates


def _parts(problem: Problem) -> Floats:
    parts: Floats = problem.devices / max(1, problem.devices.sum())
    return parts


def isolated(problem: Problem) -> Shares:
    """Give every job an equal part of the GPUs of every type, as if the cluster were split; also
    its own policy.

    Notes
    -----
    Gandiva without packing comes to the same shares: everybody takes turns.
    """
    jobs = len(problem.rates)
    x = problem.devices / (max(1, jobs) * problem.gangs[:, None])
    return Shares(x / np.maximum(1.0, x.sum(axis=1, keepdims=True)))


def isolated_rates(problem: Problem) -> Floats:
    """Return iterations per second under `isolated`, which finish-time fairness compares with."""
    return progress(problem, isolated(problem).x)


def agnostic(rates: Floats, reference: int | None = None) -> Floats:
    """Return the rates that a policy sees which does not know that GPU types differ.

    Parameters
    ----------
    rates : array (jobs, types)
        What is measured.
    reference : int, optional
        Column of the type whose rates hold everywhere, for objectives in which iterations count;
        without it every rate is 1, for those in which only their ratios do.

    Notes
    -----
    A job that does not run on the reference type is seen at the mean of its positive rates: with
    upstream's 0 it would never get anything. A job that runs nowhere keeps its zeros.
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
    """Clip what a solver's tolerance has left over: negative shares, rows over 1 and types over
    their GPUs.
    """
    x = np.minimum(np.maximum(x, 0.0), 1.0)
    x /= np.maximum(1.0, x.sum(axis=1, keepdims=True))
    used = problem.gangs @ x
    over = used > problem.devices
    if over.any():
        x[:, over] *= problem.devices[over] / used[over]
    return x
