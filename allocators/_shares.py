"""Shares of time per job and GPU type under the objectives of Gavel: numbers in, shares out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from allocators._fairness import finish_time_fairness, makespan, max_min
from allocators._matching import allox
from allocators._problem import Hint, Problem, Shares, agnostic, isolated, isolated_rates, normal_rates, progress, proportional, tidy
from allocators._queues import WAITS, fifo, fifo_any, whole
from allocators._totals import cost, cost_slo, max_sum_throughput
from allocators._water import Entities, water_filling

__all__ = [
    "OBJECTIVES",
    "WAITS",
    "Entities",
    "Hint",
    "Problem",
    "Shares",
    "agnostic",
    "allox",
    "cost",
    "cost_slo",
    "fifo",
    "fifo_any",
    "finish_time_fairness",
    "isolated",
    "isolated_rates",
    "makespan",
    "max_min",
    "max_sum_throughput",
    "normal_rates",
    "progress",
    "proportional",
    "tidy",
    "water_filling",
    "whole",
]

OBJECTIVES: Final[Mapping[str, Callable[[Problem], Shares]]] = MappingProxyType(
    {
        "max_min": max_min,
        "finish_time_fairness": finish_time_fairness,
        "makespan": makespan,
        "max_sum_throughput": max_sum_throughput,
        "cost": cost,
        "cost_slo": cost_slo,
        "fifo": fifo,
        "isolated": isolated,
        "proportional": proportional,
        "water_filling": water_filling,
    }
)
"""Objectives that the problem is enough for, by name. `fifo_any` and `allox` also need to know who holds what."""
