"""The one notion of an instant, for kernel and allocators: whole microseconds of simulated time.

Every instant that enters the agenda is one of them: decimal times add up exactly, and two
events are at the same instant if and only if their times are equal.
Nothing compares instants with a tolerance: whatever is taken from a queue of deadlines because
its instant has come counts as reached.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

STEP_S: Final = 1e-6
"""Seconds between two neighbouring instants."""
LATEST_S: Final = 2.0e9
"""Seconds from the first to the last instant, 63 years: a later event never happens.

Up to there the rounding of `instant` is exact, and neighbouring instants are different doubles.
"""
PER_S: Final = 1e6
WHOLE: Final = 6755399441055744.0
"""1.5 x 2^52: a double below 2^51 in size loses its fraction when this is added.

It is then rounded to the nearest whole number, ties to even, three times as fast as by `round`.
"""


def instant(at_s: float) -> float:
    """Return the instant nearest to a time.

    Parameters
    ----------
    at_s : float, seconds
        Up to `LATEST_S` in size, or infinite.
    """
    return (at_s * PER_S + WHOLE - WHOLE) / PER_S


def instants(at_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the instant nearest to each of these times; see `instant`."""
    rounded: NDArray[np.float64] = (at_s * PER_S + WHOLE - WHOLE) / PER_S
    return rounded


def later(at_s: float, now_s: float) -> float:
    """Return the instant nearest to a time, or the one that follows now if it is not after now."""
    at_s, next_s = instant(at_s), instant(now_s + STEP_S)
    return at_s if at_s > next_s else next_s
