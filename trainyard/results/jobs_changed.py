"""Job table of Compare: each job under a policy and under the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import numpy as np
import pandas as pd

from sim.trace import Trace
from trainyard.results.outcomes import StudyResults

Order = Literal["slowed", "sped_up", "waited"]
ORDERS: Final[Mapping[Order, str]] = {
    "slowed": "Most slowed",
    "sped_up": "Most sped up",
    "waited": "Longest wait",
}
"""Order of the table -> its label."""


def jobs_changed(shown: StudyResults, title: str, trace: Trace) -> pd.DataFrame:
    """Return one row per job: first repeat under one policy and under the baseline.

    Parameters
    ----------
    shown : StudyResults
        The runs.
    title : str
        Title of a complete policy.
    trace : Trace
        The jobs.

    Returns
    -------
    DataFrame
        `job_id`, `user`, `gpus`, `submit_s`; `jct_s` and `wait_s` (time without GPUs) under the
        policy (NaN = not completed), `base_s` = JCT under the baseline, `change_s` the difference
        (NaN where one is NaN, or if the policy is the baseline, or the baseline is incomplete).

    Raises
    ------
    StoreError
        If a stored result was deleted.
    """
    at = shown.titles.index(title)
    own = shown.entries[at][0].jobs()
    jct, held = _jct_s(own), own["held_s"].to_numpy(np.float64)
    base = np.full(len(own), np.nan)
    if shown.baseline in shown.places and shown.baseline != at:
        base = _jct_s(shown.entries[shown.baseline][0].jobs())
    return pd.DataFrame(
        {
            "job_id": trace.frame["job_id"].to_numpy(),
            "user": trace.frame["user"].to_numpy() if trace.has("user") else "",
            "gpus": own["gpus"].to_numpy(),
            "submit_s": own["submit_s"].to_numpy(np.float64),
            "jct_s": jct,
            "wait_s": np.maximum(jct - held, 0.0),
            "base_s": base,
            "change_s": jct - base,
        }
    )


def first_rows(
    jobs: pd.DataFrame, order: Order, search: str, most: int
) -> tuple[pd.DataFrame, int]:
    """Return the first rows of `jobs_changed` in an order, and the number of all matches.

    Parameters
    ----------
    jobs : DataFrame
        See `jobs_changed`.
    order : {"slowed", "sped_up", "waited"}
        See `ORDERS`; the first two keep only jobs that slowed down or sped up.
    search : str
        Only jobs with this text in id or user, ignoring case; "" = all.
    most : int
        Maximum number of rows.
    """
    change = jobs["change_s"]
    is_kept = {"slowed": change > 0, "sped_up": change < 0, "waited": jobs["wait_s"].notna()}[order]
    if search:
        matches = [
            jobs[name].astype("str").str.contains(search, case=False, regex=False)
            for name in ("job_id", "user")
        ]
        is_kept = is_kept & (matches[0] | matches[1])
    column, ascending = {
        "slowed": ("change_s", False),
        "sped_up": ("change_s", True),
        "waited": ("wait_s", False),
    }[order]
    rows = jobs[is_kept]
    ordered = rows.sort_values(column, ascending=ascending, kind="stable")
    return ordered.head(most), len(rows)


def _jct_s(jobs: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return completion times in seconds; NaN where a job was not completed."""
    done = np.asarray(jobs["outcome"] == "completed")
    spent = jobs["finish_s"].to_numpy(np.float64) - jobs["submit_s"].to_numpy(np.float64)
    return np.where(done, spent, np.nan)
