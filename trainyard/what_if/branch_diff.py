"""What came of it: a run that parted from another at an instant, compared with it job by job,
before and since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import numpy as np
import pandas as pd

from sim.metrics import first_difference_s
from sim.metrics.registry import COLUMNS, METRICS
from trainyard.results import compare
from trainyard.results.compare import Mask, Outcome
from trainyard.results.differences import branch_changes
from trainyard.results.outcomes import measured_jobs
from trainyard.store import StoredResult
from trainyard.study.branch import Branch
from trainyard.study.study import Study
from trainyard.text import BY_UNIT, RunClock, plural
from trainyard.text import change as relative

WAS: Final = "As it was"
HERE: Final = "From here on"
TITLES: Final = (WAS, HERE)
_KINDS: Final = ("queue", "utilisation", "capacity")
_TIMES: Final = ("jct_mean_s", "jct_p95_s", "wait_mean_s", "wait_p95_s")
_TOTALS: Final = (
    "completion_rate",
    "wait_max_s",
    "waits_over_day",
    "makespan_s",
    "utilisation",
    "preemptions",
    "evictions",
    "cost_held_per_job_usd",
    "cost_cluster_usd",
)
_TOLD: Final = 0.0005
"""Smaller relative differences are told as none."""


@dataclass(frozen=True, eq=False)
class After:
    """How two runs differ after the instant at which they part.

    Parameters
    ----------
    differs_s : float, seconds
        Where they differ first before that instant, which they never should; NaN = nowhere.
    jobs : DataFrame
        One row per group of jobs that were not finished then: group, jobs, both (completed in both
        runs), and of those the mean and the 95th percentile of JCT and wait: jct_mean_s_was,
        jct_mean_s, jct_mean_s_change, and so on for jct_p95_s, wait_mean_s, wait_p95_s.
    totals : DataFrame
        Of the whole runs: metric, title, unit, was, here, change.
    only_was, only_here : int
        Jobs completed in one of the two only.
    sentence : str
        The finding.
    """

    differs_s: float
    jobs: pd.DataFrame
    totals: pd.DataFrame
    only_was: int
    only_here: int
    sentence: str


def after(branch: Branch, was: StoredResult, here: StoredResult, clock: RunClock) -> After:
    """Compare two stored runs of a branch, job by job.

    Raises
    ------
    StoreError
        If one of them was removed meanwhile.
    """
    results = was.result(), here.result()
    masks = _groups(branch, results[0].jobs, results[1].jobs)
    rows = [
        _row(group, mask, _outcomes(mask, was, here, results[0].jobs, results[1].jobs))
        for group, mask in masks.items()
    ]
    table = pd.DataFrame(rows)
    pair = compare.paired(
        *_outcomes(next(iter(masks.values())), was, here, results[0].jobs, results[1].jobs)
    )
    differs_s = first_difference_s(*results, branch.turn.at_s)
    begin = f"From {clock.at(branch.turn.at_s)} on {branch_changes(branch, clock)}"
    before = (
        "nothing before changed"
        if np.isnan(differs_s)
        else f"but the runs differ from {clock.at(differs_s)} on already"
    )
    sentence = (
        f"{begin}:"
        f" {'; '.join([_finding(rows[0]), *_completed(pair.only_base, pair.only_other), before])}."
    )
    return After(differs_s, table, _totals(was, here), pair.only_base, pair.only_other, sentence)


def frames(was: StoredResult, here: StoredResult) -> dict[str, dict[str, pd.DataFrame]]:
    """Return the stored series of both runs for a figure: kind -> title -> reduced series; the
    capacity is that of the changed run.

    Raises
    ------
    StoreError
        If one of them was removed meanwhile.
    """
    both = dict(zip(TITLES, (was, here), strict=True))
    made = {kind: {title: entry.chart(kind) for title, entry in both.items()} for kind in _KINDS}
    return made | {"capacity": {HERE: made["capacity"][HERE]}}


def lines(found: After) -> pd.DataFrame:
    """Return the comparison as texts, one row per group of jobs and metric, then those of the whole
    runs: Of, Metric, both titles, Change.
    """
    return pd.DataFrame(list(_lines(found)), columns=["Of", "Metric", *TITLES, "Change"])


# -- jobs
# --------------------------------------------------------------------------------------------------


def _groups(branch: Branch, was: pd.DataFrame, here: pd.DataFrame) -> dict[str, Mask]:
    """Return which jobs were not finished at the instant: all, those that had come, and those that
    came later; turned away in both runs are none of them.
    """
    at_s = branch.turn.at_s
    away = np.asarray(
        was["outcome"].isin(["impossible", "refused"])
        & here["outcome"].isin(["impossible", "refused"])
    )
    open_ = (
        ~np.asarray(was["finish_s"] <= at_s)
        & ~away
        & measured_jobs(was, Study(branch.was, (branch.was.allocator,)))
    )
    come = np.asarray(was["submit_s"] <= at_s)
    return {
        "not finished then": open_,
        "had come by then": open_ & come,
        "came later": open_ & ~come,
    }


def _outcomes(
    mask: Mask, was: StoredResult, here: StoredResult, *jobs: pd.DataFrame
) -> tuple[Outcome, Outcome]:
    made = [
        Outcome(title, (entry.summary,), (one,), measured=(mask,))
        for title, entry, one in zip(TITLES, (was, here), jobs, strict=True)
    ]
    return made[0], made[1]


def _row(group: str, mask: Mask, outcomes: tuple[Outcome, Outcome]) -> dict[str, Any]:
    both = outcomes[0].done(0) & outcomes[1].done(0)
    row: dict[str, Any] = {"group": group, "jobs": int(mask.sum()), "both": int(both.sum())}
    for name in _TIMES:
        per_job = METRICS[name].per_job
        assert per_job is not None, "a mean or percentile over jobs"
        was, here = (
            per_job.summarize(per_job.values(outcome.facts(0))[both]) for outcome in outcomes
        )
        row |= {
            f"{name}_was": was,
            name: here,
            f"{name}_change": compare.ratio([was], [here]).value,
        }
    return row


def _totals(was: StoredResult, here: StoredResult) -> pd.DataFrame:
    rows = []
    for metric in (one for name, one in COLUMNS.items() if name in _TOTALS):
        values = [
            float("nan") if (value := entry.summary.get(metric.name)) is None else float(value)
            for entry in (was, here)
        ]
        if not all(np.isnan(values)) and any(value != metric.silent for value in values):
            change = compare.ratio(values[:1], values[1:]).value
            rows.append(
                {
                    "metric": metric.name,
                    "title": metric.title,
                    "unit": metric.unit,
                    "was": values[0],
                    "here": values[1],
                    "change": change,
                }
            )
    return pd.DataFrame(rows, columns=["metric", "title", "unit", "was", "here", "change"])


def _finding(row: dict[str, Any]) -> str:
    """Return what came of the jobs that were not finished, as a clause; figures are of those that
    both runs complete.
    """
    jobs, both = int(row["jobs"]), int(row["both"])
    if not both:
        return (
            "no job was left to finish"
            if not jobs
            else "no job that was not finished is completed in both runs"
        )
    were = f"the {plural(jobs, 'job')} that {'was' if jobs == 1 else 'were'} not finished"
    if both < jobs:
        were = f"of {were}, the {both:,} that both runs complete"
    return f"{were} {_effect(row, one=both == 1)}"


def _completed(only_was: int, only_here: int) -> Iterator[str]:
    """Walk clauses on jobs that only one of the runs completes: shorter waits of the others are no
    gain then.
    """
    if only_was:
        yield f"{plural(only_was, 'job')} {'is' if only_was == 1 else 'are'} not completed any more"
    if only_here:
        yield (
            f"{plural(only_here, 'job')} {'is' if only_here == 1 else 'are'} completed that"
            f" {'was' if only_here == 1 else 'were'} not"
        )


def _effect(row: dict[str, Any], *, one: bool) -> str:
    s = "s" if one else ""
    wait, jct = row["wait_mean_s_change"], row["jct_mean_s_change"]
    if isfinite(wait) and abs(wait) >= _TOLD:
        return f"wait{s} {_amount(wait)} {'less' if wait < 0 else 'longer'}"
    if isfinite(jct) and abs(jct) >= _TOLD:
        return f"take{s} {_amount(jct)} {'less time' if jct < 0 else 'longer'}"
    return f"take{s} as long as before"


def _amount(change: float) -> str:
    return relative(abs(change)).removeprefix("+")


def _lines(found: After) -> Iterator[tuple[str, ...]]:
    for row in found.jobs.to_dict("records"):
        of = f"{row['jobs']:,} {row['group']}"
        for name in _TIMES if row["both"] else ():
            yield (
                of,
                METRICS[name].title,
                BY_UNIT["s"](row[f"{name}_was"]),
                BY_UNIT["s"](row[name]),
                relative(row[f"{name}_change"]),
            )
    for row in found.totals.to_dict("records"):
        write = BY_UNIT[row["unit"]]
        yield (
            "Whole run",
            row["title"],
            write(row["was"]),
            write(row["here"]),
            relative(row["change"]),
        )
