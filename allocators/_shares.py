"""Shares of time per job and GPU type under the objectives of Gavel: numbers in, shares out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from allocators._linear import Program, solve
from allocators._problem import Problem, Shares, agnostic, isolated, isolated_rates, normal_rates, per_job, progress, proportional, tidy
from allocators._queues import WAITS, fifo, fifo_any, whole
from sim.contract import Floats

__all__ = [
    "OBJECTIVES",
    "WAITS",
    "Problem",
    "Shares",
    "agnostic",
    "fifo",
    "fifo_any",
    "isolated",
    "isolated_rates",
    "max_min",
    "normal_rates",
    "progress",
    "proportional",
    "tidy",
    "whole",
]


def max_min(problem: Problem) -> Shares:
    """Maximise the least of all jobs' weighted throughputs, each relative to what the job would do with its proportional share.

    Notes
    -----
    The value is the least ``gang * throughput / (weight * normal rate)``. A job that runs nowhere gets nothing and does not count.
    """
    return _raised(problem, per_job(problem, problem.weights) * normal_rates(problem) / problem.gangs)


def _raised(problem: Problem, gain: Floats) -> Shares:
    found = solve(problem, Program(np.zeros(problem.rates.shape), np.zeros(len(gain)), gain))
    assert found is not None
    return Shares(found.x, found.level)


OBJECTIVES: Final[Mapping[str, Callable[[Problem], Shares]]] = MappingProxyType(
    {"max_min": max_min, "fifo": fifo, "isolated": isolated, "proportional": proportional}
)
"""Objectives that need nothing but the problem, by name."""
