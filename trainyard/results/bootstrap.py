"""How sure a mean, or a ratio of two means, is: the percentile bootstrap over repeats, in pairs
where there are two.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
FEWEST: Final = 3
"""Fewer repeats say nothing of chance."""
_RESAMPLES: Final = 2000
_LEVEL: Final = (2.5, 97.5)


def interval(values: Floats, base: Floats | None = None) -> tuple[float, float] | None:
    """Return what 95 % of resamples lie between, or None of fewer than `FEWEST` repeats.

    Parameters
    ----------
    values : array
        One of each repeat.
    base : array or None
        None = the interval is that of the mean; else one of each repeat too, with the same luck,
        and the interval is that of mean(values) / mean(base) - 1, both of the same resampled
        repeats (Efron & Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13).

    Notes
    -----
    2,000 resamples from a fixed stream, so that equal runs have equal intervals. Resamples in which
    the base is 0 do not count.
    """
    if len(values) < FEWEST:
        return None
    pick = np.random.default_rng(0).integers(0, len(values), (_RESAMPLES, len(values)))
    drawn = values[pick].mean(axis=1)
    if base is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            drawn = drawn / base[pick].mean(axis=1) - 1.0
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn):
        return None
    low, high = np.percentile(drawn, _LEVEL)
    return float(low), float(high)
