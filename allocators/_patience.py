"""Jobs that wait a while for the GPU type that they prefer before they take another one."""

from __future__ import annotations

from typing import Any, Self

from allocators.placement import Placer
from sim.contract import Demand, Grant, JobId, View, inf, instant, param


def wait_for_type_param() -> Any:
    """Declare the parameter ``wait_for_type``."""
    return param(
        0.0,
        unit="s",
        low=0,
        high=1e7,
        help="Until so long after its submission a job that has room on another GPU type still waits for "
        "the one that `types` puts first, the fastest by default; then it takes what there is.",
    )


class Patience:
    """Says how long a job holds out for the types that it prefers, and places it there.

    Parameters
    ----------
    place : Placer
        What places jobs, and knows which types they prefer.
    wait_s : float, seconds
        From a job's submission on.

    Notes
    -----
    The time counts from the submission, not from the instant at which a job could start: so it
    bounds what a job may lose by it, and jobs that have waited in a long queue do not wait again,
    one after the other.
    """

    def __init__(self, place: Placer, wait_s: float) -> None:
        self._place, self._wait_s = place, wait_s

    @classmethod
    def of(cls, place: Placer, wait_s: float) -> Self | None:
        """Return None if nobody waits."""
        return cls(place, wait_s) if wait_s else None

    def until_s(self, view: View, job: JobId) -> float:
        """Return the instant from which a job takes any type; minus infinity if it always does."""
        ways = self._place.ways(view, view.demand(job))
        if ways.preferred == len(ways.groups):
            return -inf
        return instant(view.one("arrival_s", job) + self._wait_s)

    def place(self, view: View, demand: Demand) -> Grant | None:
        """Place a job as its `Placer` does, on the types only that it prefers."""
        ways = self._place.ways(view, demand)
        for pools in ways.groups[: ways.preferred]:
            grant = self._place.within(view, demand, pools)
            if grant is not None:
                return grant
        return None
