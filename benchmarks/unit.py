"""The unit U, the cost of one bare SimPy timeout here: it makes machines comparable."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Mapping
from time import process_time
from typing import Final

import simpy

BUDGETS_UNIT_S: Final = 0.7e-6
"""U on the reference machine of budgets in seconds: a run takes ``cpu_s / unit_s() *
BUDGETS_UNIT_S`` there.
"""


def unit_s(events: int = 200_000, pending: int = 1_000, repeats: int = 5) -> float:
    """Return the median CPU seconds per timeout of callbacks that re-arm themselves."""
    return statistics.median(_measure_timeout_s(events, pending) for _ in range(repeats))


def print_figures(**figures: object) -> None:
    """Print figures as one line of JSON."""
    print(json.dumps(figures), flush=True)


def round_figures(figures: Mapping[str, float]) -> dict[str, float]:
    """Return figures rounded to three digits."""
    return {name: round(value, 3) for name, value in figures.items()}


def _measure_timeout_s(events: int, pending: int) -> float:
    """Return CPU seconds per timeout of one run."""
    env, rng, left = simpy.Environment(), random.Random(0), events

    def again(_: object) -> None:
        nonlocal left
        left -= 1
        if left >= pending:
            simpy.Timeout(env, rng.expovariate(1.0)).callbacks.append(again)

    for _ in range(pending):
        simpy.Timeout(env, rng.expovariate(1.0)).callbacks.append(again)
    began = process_time()
    env.run()
    return (process_time() - began) / events
