"""Run times below a cap: drawn from a cumulative table as if longer jobs did not exist, so that nothing piles up at the cap."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.errors import ParameterError

Floats = NDArray[np.float64]
Table = tuple[tuple[float, float], ...]

SHORTEST_S: Final = 0.25  # where the share below the first point of a table (run times that a log rounds to 0 or 1 s) begins
LEAST_POINT_S: Final = 16.0  # a stretch never moves this point of the table beyond the cap: below it the tables hold too few jobs
ROUNDS: Final = 30


def share_below(table: Table, run_s: Floats | float) -> Floats:
    """Return the share of run times of at most `run_s`, 0..1, straight between the points of the table on a logarithmic axis of time."""
    seconds, percent = _points(table)
    return np.asarray(np.interp(np.log(np.maximum(run_s, SHORTEST_S)), seconds, percent), np.float64) / 100


def quantile(table: Table, rank: Floats, cap_s: float) -> Floats:
    """Return the run times in seconds at these ranks (0..1) among the jobs of at most `cap_s`."""
    seconds, percent = _points(table)
    return np.asarray(np.exp(np.interp(rank * (100 * share_below(table, cap_s)), percent, seconds)), np.float64)


def repeated(run_s: Floats, log_step: Floats, cap_s: float) -> Floats:
    """Return run times that differ from `run_s` by the factor exp(`log_step`); a step that would pass the cap goes the other way."""
    step = np.where(run_s * np.exp(log_step) > cap_s, -np.abs(log_step), log_step)
    return np.asarray(run_s * np.exp(step), np.float64)


def stretched(run_s: Floats, gpus: NDArray[np.int64], wanted_gpu_s: float, table: Table, cap_s: float) -> Floats:
    """Stretch the whole distribution by one factor and cut it again at the cap, so that the jobs need `wanted_gpu_s` in all.

    Parameters
    ----------
    run_s : array of shape (jobs,), seconds
        At most `cap_s`. Each keeps its rank among the jobs below the cap.
    gpus : array of shape (jobs,)
    wanted_gpu_s : float, GPU-seconds
    table : cumulative distribution of (seconds, %)
        What `run_s` were drawn from.
    cap_s : float, seconds

    Returns
    -------
    array of shape (jobs,), seconds
        Whole numbers from 1 to `cap_s`.

    Raises
    ------
    ParameterError
        If no factor comes within 1 % of `wanted_gpu_s`.
    """
    rank = share_below(table, run_s) / share_below(table, cap_s)
    low, high = -np.log(cap_s), np.log(cap_s / LEAST_POINT_S)
    for _ in range(ROUNDS):
        factor = np.exp((low + high) / 2)
        tried = np.clip(np.rint(factor * quantile(table, rank, cap_s / factor)), 1, cap_s)
        reached = float(np.dot(gpus, tried)) / wanted_gpu_s
        low, high = (np.log(factor), high) if reached < 1 else (low, np.log(factor))
    if abs(reached - 1) > 0.01:
        raise ParameterError(f"{len(tried)} jobs in these days reach {reached:.2g} times the wanted load at most. Change days, load, jobs or the cluster.")
    return np.asarray(tried, np.float64)


def _points(table: Table) -> tuple[Floats, Floats]:
    """Return the logarithms of the seconds and the percentages, from 0 % on."""
    seconds, percent = np.array(((SHORTEST_S, 0.0), *table)).T
    return np.log(seconds), percent
