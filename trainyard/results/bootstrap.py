"""Confidence intervals of means and of ratios of means: percentile bootstrap over repeats."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MIN_REPEATS: Final = 3
"""Repeats below which no interval is computed."""
_RESAMPLES: Final = 2000
_LEVEL: Final = (2.5, 97.5)


def bootstrap_interval(values: Floats, base: Floats | None = None) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval, or None for fewer than `MIN_REPEATS` repeats.

    Parameters
    ----------
    values : array
        One value per repeat.
    base : array or None
        None = the interval of the mean. Otherwise one value per repeat with the same seeds; the
        interval is that of mean(values) / mean(base) - 1 over the same resampled repeats (Efron &
        Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13).

    Notes
    -----
    2,000 resamples from a fixed random stream, so equal runs have equal intervals. Resamples with a
    base of 0 are dropped.
    """
    if len(values) < MIN_REPEATS:
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
