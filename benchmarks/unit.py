"""The unit U: what one bare SimPy timeout costs in this process, so that figures from different
machines can be compared.
"""

from __future__ import annotations

import random
import statistics
from time import process_time
from typing import Final

import simpy

BUDGETS_UNIT_S: Final = 0.7e-6
"""U on the machine that budgets in seconds were set for: ``cpu_s / unit_s() * BUDGETS_UNIT_S`` is
what a run would take there.
"""


def unit_s(events: int = 200_000, pending: int = 1_000, repeats: int = 5) -> float:
    """Return CPU seconds per timeout: callbacks that re-arm themselves with exponential delays,
    median of the repeats.
    """
    return statistics.median(_once(events, pending) for _ in range(repeats))


def _once(events: int, pending: int) -> float:
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
