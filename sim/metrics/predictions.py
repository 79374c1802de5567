"""Accuracy of size estimates: estimated against true sizes of jobs."""

from __future__ import annotations

from math import e, inf
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from sim.metrics.jobs import Mask
from sim.metrics.steps import Floats

FACTOR: Final = 2.0
"""A prediction within this factor of the true size counts as near."""


class Accuracy(NamedTuple):
    """Accuracy of predicted sizes.

    Parameters
    ----------
    jobs : int
        Number of jobs with an estimate.
    near : float
        Share of the estimates within a factor of `FACTOR`; NaN without any.
    median_factor : float
        Half of the estimates are wrong by at most this factor, up or down; 1 = exact.
    """

    jobs: int
    near: float
    median_factor: float


def accuracy(jobs: pd.DataFrame, mask: Mask) -> Accuracy:
    """Return the accuracy of the first estimates in some rows of a `jobs` table.

    Notes
    -----
    Per job r = first estimated size / true size, both as ideal run times. near =
    share of jobs with |ln r| <= ln 2; median factor = exp(median of |ln r|).
    """
    errors = np.abs(_log_ratio(jobs)[mask & _has_estimate(jobs)])
    if not len(errors):
        return Accuracy(0, np.nan, np.nan)
    # A ratio of exactly the factor counts, whatever its rounding.
    return Accuracy(
        len(errors), float((errors <= np.log(FACTOR) + 1e-12).mean()), float(e ** np.median(errors))
    )


def prediction_points(jobs: pd.DataFrame, mask: Mask, most: int = 1000) -> pd.DataFrame:
    """Return estimated and true sizes of some rows of a `jobs` table, for a chart.

    Parameters
    ----------
    jobs : DataFrame
        The `jobs` table of a run.
    mask : bool array
        Rows that count.
    most : int
        Maximum number of rows; of more jobs every n-th in order of true size is taken.

    Returns
    -------
    DataFrame
        `job` (row in the trace), `ideal_s` and `believed_s`, in order of `ideal_s`; only jobs with
        an estimate.
    """
    rows = np.flatnonzero(mask & _has_estimate(jobs))
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


def _has_estimate(jobs: pd.DataFrame) -> Mask:
    """Return a boolean per job: whether it has an estimate and a finite true size."""
    estimated, ideal = jobs["believed_s"].to_numpy(np.float64), jobs["ideal_s"].to_numpy(np.float64)
    return np.asarray((estimated > 0) & (estimated < inf) & (ideal > 0) & (ideal < inf))


def _log_ratio(jobs: pd.DataFrame) -> Floats:
    """Return ln(estimated size / true size) of every job."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(
            np.log(jobs["believed_s"].to_numpy(np.float64) / jobs["ideal_s"].to_numpy(np.float64))
        )
