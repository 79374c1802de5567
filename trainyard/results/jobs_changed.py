"""What two policies did to each job: the rows of the table of jobs on Compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import numpy as np
import pandas as pd

from sim.trace import Trace
from trainyard.results.outcomes import Shown

Order = Literal["slowed", "sped_up", "waited"]
ORDERS: Final[Mapping[Order, str]] = {
    "slowed": "Most slowed",
    "sped_up": "Most sped up",
    "waited": "Longest wait",
}
"""Order of the table -> what it is called."""


def jobs_changed(shown: Shown, title: str, trace: Trace) -> pd.DataFrame:
    """Return one row per job of the trace, of the first repeats of one policy and of the baseline.

    Parameters
    ----------
    shown : Shown
        The runs.
    title : str
        Of a complete policy.
    trace : Trace
        Their jobs.

    Returns
    -------
    DataFrame
        `job_id`, `user`, `gpus`, `submit_s`; `jct_s` and `wait_s` under the policy (NaN = not
        completed), `base_s` under the baseline, `change_s` between both (NaN where one of them is,
        or where the policy is the baseline or that is not complete).

    Raises
    ------
    StoreError
        If a stored result was removed meanwhile.
    """
    at = shown.titles.index(title)
    own = shown.entries[at][0].jobs()
    jct, held = _jct(own), own["held_s"].to_numpy(np.float64)
    base = np.full(len(own), np.nan)
    if shown.baseline in shown.places and shown.baseline != at:
        base = _jct(shown.entries[shown.baseline][0].jobs())
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


def first(jobs: pd.DataFrame, order: Order, search: str, most: int) -> tuple[pd.DataFrame, int]:
    """Return the first rows of `jobs_changed` in an order, and how many there are in all.

    Parameters
    ----------
    jobs : DataFrame
        See `jobs_changed`.
    order : {"slowed", "sped_up", "waited"}
        See `ORDERS`; of the first two only jobs of which that is true.
    search : str
        Only jobs with this text in their name or user, in any case; "" = all.
    most : int
        Rows.
    """
    change = jobs["change_s"]
    kept = {"slowed": change > 0, "sped_up": change < 0, "waited": jobs["wait_s"].notna()}[order]
    if search:
        found = [
            jobs[name].astype("str").str.contains(search, case=False, regex=False)
            for name in ("job_id", "user")
        ]
        kept = kept & (found[0] | found[1])
    column, ascending = {
        "slowed": ("change_s", False),
        "sped_up": ("change_s", True),
        "waited": ("wait_s", False),
    }[order]
    rows = jobs[kept]
    ordered = rows.sort_values(column, ascending=ascending, kind="stable")
    return ordered.head(most), len(rows)


def _jct(jobs: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    done = np.asarray(jobs["outcome"] == "completed")
    spent = jobs["finish_s"].to_numpy(np.float64) - jobs["submit_s"].to_numpy(np.float64)
    return np.where(done, spent, np.nan)
