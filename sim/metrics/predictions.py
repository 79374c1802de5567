"""Accuracy of size estimates: the estimated size of jobs against the true one."""

from __future__ import annotations

from math import e, inf
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from sim.metrics.jobs import Mask
from sim.metrics.steps import Floats

FACTOR: Final = 2.0
"""A prediction within this factor of the truth counts as near."""


class Accuracy(NamedTuple):
    """How near predictions are.

    Parameters
    ----------
    jobs : int
        Of which somebody asked how long they would run.
    near : float
        Share of them within a factor of `FACTOR`; NaN without any.
    median_factor : float
        Half of the predictions are off by at most this factor, up or down; 1 = exact.
    """

    jobs: int
    near: float
    median_factor: float


def accuracy(jobs: pd.DataFrame, mask: Mask) -> Accuracy:
    """Return how near the estimators of the chosen rows of a run's `jobs` came to the truth.

    Notes
    -----
    Per job r = estimated size / true size, both as ideal run times, as first estimated. near =
    share of jobs with |ln r| <= ln 2; median factor = exp(median of |ln r|).
    """
    off = np.abs(_log_ratio(jobs)[mask & _estimated(jobs)])
    if not len(off):
        return Accuracy(0, np.nan, np.nan)
    # A ratio of exactly the factor counts, however it was rounded.
    return Accuracy(
        len(off), float((off <= np.log(FACTOR) + 1e-12).mean()), float(e ** np.median(off))
    )


def predicted(jobs: pd.DataFrame, mask: Mask, most: int = 1000) -> pd.DataFrame:
    """Return estimated and true sizes of the chosen rows of a run's `jobs`, ready to be drawn.

    Parameters
    ----------
    jobs : DataFrame
        Of a run.
    mask : bool array
        Which count.
    most : int
        Rows at most; of more jobs every so manieth in order of their true size, so that all sizes
        stay.

    Returns
    -------
    DataFrame
        `job` (row in the trace), `ideal_s` and `believed_s`, in order of `ideal_s`; only jobs of
        which somebody asked.
    """
    rows = np.flatnonzero(mask & _estimated(jobs))
    rows = rows[np.argsort(jobs["ideal_s"].to_numpy(np.float64)[rows], kind="stable")]
    if len(rows) > most:
        rows = rows[np.linspace(0, len(rows) - 1, most).round().astype(np.int64)]
    return pd.DataFrame(
        {
            "job": rows,
            "ideal_s": jobs["ideal_s"].to_numpy(np.float64)[rows],
            "believed_s": jobs["believed_s"].to_numpy(np.float64)[rows],
        }
    )


def _estimated(jobs: pd.DataFrame) -> Mask:
    estimated, ideal = jobs["believed_s"].to_numpy(np.float64), jobs["ideal_s"].to_numpy(np.float64)
    return np.asarray((estimated > 0) & (estimated < inf) & (ideal > 0) & (ideal < inf))


def _log_ratio(jobs: pd.DataFrame) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(
            np.log(jobs["believed_s"].to_numpy(np.float64) / jobs["ideal_s"].to_numpy(np.float64))
        )
