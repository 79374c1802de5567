"""Events at absolute instants, and the order of those that share an instant."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any, Final

import simpy

CHANGE: Final = 1
"""Arrivals, and what running jobs do by themselves; as SimPy's own normal priority. Smaller numbers are processed first."""
OUTAGE: Final = 2
"""Nodes go and come after that: a job that has done its work at this instant is not evicted."""
LANDING: Final = 3
"""A plan that was in flight meets the jobs and nodes of this instant as they are by then."""
DECISION: Final = 9
END: Final = 10


def planned_until_s(env: simpy.Environment) -> float:
    """Return the last instant for which jobs, plans in flight or the clock of the allocator have planned something; 0 = nothing."""
    return max((at_s for at_s, order, _, _ in env._queue if order in {CHANGE, LANDING}), default=0.0)


class At(simpy.Event):
    """An event at an absolute instant: a Timeout adds a delay to the clock and so misses the instant by a rounding error."""

    _ok = True

    def __init__(self, env: simpy.Environment, at_s: float, callback: Callable[[Any], None] | None, value: Any = None, order: int = CHANGE) -> None:
        self.callbacks = [callback] if callback else []
        self._value = value
        queue: Any = env._queue
        heappush(queue, (at_s, order, next(env._eid), self))
