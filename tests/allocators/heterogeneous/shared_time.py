"""Problems to share time in, drawn at random, and what every answer keeps."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from allocators.heterogeneous.timeshare.problem import Problem


def drawn(seed: int, jobs: int | None = None) -> Problem:
    """Up to 30 jobs of a few kinds on up to 4 types, some of which some jobs do not run on, and
    some of which there are none of.
    """
    rng = np.random.default_rng(seed)
    jobs = int(rng.integers(1, 31)) if jobs is None else jobs
    types = int(rng.integers(1, 5))
    table = (
        rng.lognormal(1, 1.5, (int(rng.integers(1, 9)), 1))
        * rng.lognormal(0, 0.7, (1, types))
        * rng.lognormal(0, 0.4, (1, types))
    )
    table = table * (rng.random(table.shape) > rng.choice([0.0, 0.15]))
    rates = table[rng.integers(0, len(table), jobs)]
    devices = rng.integers(0, 9, types) if rng.random() < 0.2 else rng.integers(1, 9, types)
    gangs = rng.choice([1, 2, 4], jobs) if rng.random() < 0.5 else np.ones(jobs, np.int64)
    ages = rng.uniform(0, 1e5, jobs) if rng.random() < 0.7 else np.zeros(jobs)
    return Problem(
        rates=rates,
        gangs=gangs,
        devices=devices,
        weights=rng.choice([1.0, 5.0], jobs),
        left=rng.lognormal(9, 2, jobs) * (rng.random(jobs) > 0.05),
        age_s=ages,
        isolated_s=ages * rng.uniform(0, 1.5, jobs),
        due_s=rng.choice([np.inf, 1e3, 1e5, -5.0], jobs),
        prices=rng.uniform(0.1, 3, types),
    )


problems = st.integers(0, 2**32 - 1).map(drawn)


def assert_possible(problem: Problem, x: np.ndarray) -> None:
    assert x.shape == problem.rates.shape
    assert np.isfinite(x).all()
    assert x.min(initial=0.0) >= 0
    assert x.sum(axis=1).max(initial=0.0) <= 1 + 1e-9
    assert (problem.gangs @ x <= problem.devices * (1 + 1e-9)).all()
