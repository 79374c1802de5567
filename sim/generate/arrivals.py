"""When jobs arrive: hours of the day, weekdays, bursts, repeats and scripts that submit by the clock."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.generate.profiles import HOUR_S, Profile

Floats = NDArray[np.float64]


def arrivals(profile: Profile, repeat: NDArray[np.int64], span_s: float, rng: np.random.Generator) -> Floats:
    """Draw submission times in whole seconds.

    Parameters
    ----------
    profile : Profile
        Its hours, weekdays and noise.
    repeat : array of shape (jobs,)
        1 = the job is submitted in the second of the one before it; the first and the last are 0.
    span_s : float, seconds
        Time of the last submission; the first is at 0.
    rng : Generator

    Returns
    -------
    array of shape (jobs,), seconds
        In ascending order.
    """
    intensity = _intensity(profile, int(np.ceil(span_s / HOUR_S)), rng)
    edges = np.minimum(np.arange(len(intensity) + 1) * HOUR_S, span_s)
    mass = np.concatenate(([0.0], np.cumsum(intensity * np.diff(edges))))
    uniform = np.sort(rng.random(np.count_nonzero(repeat == 0)))
    uniform[0], uniform[-1] = 0.0, 1.0
    times = np.rint(np.interp(uniform * mass[-1], mass, edges))
    return np.asarray(times[np.cumsum(repeat == 0) - 1], np.float64)


def _intensity(profile: Profile, hours: int, rng: np.random.Generator) -> Floats:
    """Return the relative rate of each hour."""
    length = -(-hours // 24) * 24
    noise = np.empty(length)
    level = 0.0
    for hour, step in enumerate(rng.standard_normal(length)):
        level = 0.5 * level + np.sqrt(0.75) * step
        noise[hour] = level
    clock = np.array(profile.hours) / np.mean(profile.hours)
    shape = np.exp(profile.noise * noise).reshape(-1, 24) * clock
    week = np.array(profile.weekdays) / np.mean(profile.weekdays)
    shape *= (week[np.arange(len(shape)) % 7] / shape.mean(axis=1))[:, None]
    return np.asarray(shape.ravel()[:hours], np.float64)


def cron_times(jobs: int, span_s: float, rng: np.random.Generator) -> Floats:
    """Return the submission times of a script that submits at fixed intervals, give or take a second, throughout `span_s`."""
    regular = np.arange(jobs) * (span_s / max(jobs, 1))
    return np.asarray(np.clip(np.rint(regular + rng.uniform(-1, 1, jobs)), 0, span_s), np.float64)
