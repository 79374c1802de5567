"""Comparison of a branched run with its parent, job by job, before and after the branch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import numpy as np
import pandas as pd

from sim.metrics import first_difference_s
from sim.metrics.registry import COLUMNS, METRICS
from trainyard.formatting import BY_UNIT, MISSING, RunClock, plural
from trainyard.formatting import change as relative
from trainyard.results import compare
from trainyard.results.compare import Mask, Outcome
from trainyard.results.differences import branch_changes
from trainyard.results.outcomes import measured_jobs
from trainyard.store import StoredResult
from trainyard.study.branch_point import Branch
from trainyard.study.study import Study

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
_MIN_CHANGE: Final = 0.0005
"""Smaller relative differences count as none."""


@dataclass(frozen=True, eq=False)
class BranchDifference:
    """Differences between two runs after the instant of their branch.

    Parameters
    ----------
    differs_s : float, seconds
        First difference before that instant, which should not exist; NaN = none.
    jobs : DataFrame
        One row per group of jobs unfinished at that instant: group, jobs, both (completed in both
        runs), and for these the mean and 95th percentile of JCT and wait: jct_mean_s_was,
        jct_mean_s, jct_mean_s_change, and so on for jct_p95_s, wait_mean_s, wait_p95_s.
    totals : DataFrame
        Metrics of the whole runs: metric, title, unit, was, here, change.
    only_was, only_here : int
        Jobs completed in only one of the runs.
    sentence : str
        The finding.
    """

    differs_s: float
    jobs: pd.DataFrame
    totals: pd.DataFrame
    only_was: int
    only_here: int
    sentence: str


def compare_branch(
    branch: Branch, was: StoredResult, here: StoredResult, clock: RunClock
) -> BranchDifference:
    """Return the differences between the two stored runs of a branch, with a sentence.

    Raises
    ------
    StoreError
        If one of the results was deleted.
    """
    results = was.result(), here.result()
    masks = _unfinished_groups(branch, results[0].jobs, results[1].jobs)
    rows = [
        _group_row(group, mask, _branch_outcomes(mask, was, here, results[0].jobs, results[1].jobs))
        for group, mask in masks.items()
    ]
    table = pd.DataFrame(rows)
    pair = compare.pair_jobs(
        *_branch_outcomes(next(iter(masks.values())), was, here, results[0].jobs, results[1].jobs)
    )
    differs_s = first_difference_s(*results, branch.turn.at_s)
    before = (
        "nothing changed before"
        if np.isnan(differs_s)
        else f"but the runs differ from {clock.format(differs_s)} on already"
    )
    clauses = [
        _effect_clause(rows[0]),
        *_completion_clauses(pair.only_base, pair.only_other),
        before,
    ]
    sentence = (
        f"From {clock.format(branch.turn.at_s)} on {branch_changes(branch, clock)}:"
        f" {'; '.join(clauses)}."
    )
    return BranchDifference(
        differs_s, table, _totals(was, here), pair.only_base, pair.only_other, sentence
    )


def branch_frames(was: StoredResult, here: StoredResult) -> dict[str, dict[str, pd.DataFrame]]:
    """Return the stored series of both runs: kind -> title -> reduced series.

    The capacity is that of the changed run.

    Raises
    ------
    StoreError
        If one of the results was deleted.
    """
    both = dict(zip(TITLES, (was, here), strict=True))
    by_kind = {kind: {title: entry.chart(kind) for title, entry in both.items()} for kind in _KINDS}
    return by_kind | {"capacity": {HERE: by_kind["capacity"][HERE]}}


def difference_rows(difference: BranchDifference) -> pd.DataFrame:
    """Return the differences as texts: Of, Metric, both titles, Change.

    One row per group of jobs and metric, then the metrics of the whole runs.
    """
    return pd.DataFrame(list(_text_rows(difference)), columns=["Of", "Metric", *TITLES, "Change"])


# -- jobs
# --------------------------------------------------------------------------------------------------


def _unfinished_groups(branch: Branch, was: pd.DataFrame, here: pd.DataFrame) -> dict[str, Mask]:
    """Return masks of jobs unfinished at the branch: all, already submitted, submitted later.

    Jobs rejected in both runs are left out.
    """
    at_s = branch.turn.at_s
    rejected = np.asarray(
        was["outcome"].isin(["impossible", "refused"])
        & here["outcome"].isin(["impossible", "refused"])
    )
    unfinished = (
        ~np.asarray(was["finish_s"] <= at_s)
        & ~rejected
        & measured_jobs(was, Study(branch.was, (branch.was.allocator,)))
    )
    submitted = np.asarray(was["submit_s"] <= at_s)
    return {
        "not finished then": unfinished,
        "already submitted": unfinished & submitted,
        "submitted later": unfinished & ~submitted,
    }


def _branch_outcomes(
    mask: Mask, was: StoredResult, here: StoredResult, *jobs: pd.DataFrame
) -> tuple[Outcome, Outcome]:
    """Return both runs as outcomes over the masked jobs; `jobs`: the job table of each."""
    pair = [
        Outcome(title, (entry.summary,), (one,), measured=(mask,))
        for title, entry, one in zip(TITLES, (was, here), jobs, strict=True)
    ]
    return pair[0], pair[1]


def _group_row(group: str, mask: Mask, outcomes: tuple[Outcome, Outcome]) -> dict[str, Any]:
    """Return the row of `BranchDifference.jobs` for a group: counts, times and changes."""
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
            f"{name}_change": compare.relative_change([was], [here]).value,
        }
    return row


def _totals(was: StoredResult, here: StoredResult) -> pd.DataFrame:
    """Return metrics of the whole runs with their changes, a row each.

    Metrics that neither run has, or that have the value `Metric.silent` in both, are left out.
    """
    rows = []
    for metric in (one for name, one in COLUMNS.items() if name in _TOTALS):
        values = [
            float("nan") if (value := entry.summary.get(metric.name)) is None else float(value)
            for entry in (was, here)
        ]
        if not all(np.isnan(values)) and any(value != metric.silent for value in values):
            change = compare.relative_change(values[:1], values[1:]).value
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


def _effect_clause(row: dict[str, Any]) -> str:
    """Return how waits or completion times of the unfinished jobs changed, as a clause.

    Changes are over the jobs completed in both runs.
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
    return f"{were} {_effect_phrase(row, one=both == 1)}"


def _completion_clauses(only_was: int, only_here: int) -> Iterator[str]:
    """Yield clauses on jobs that only one of the runs completes."""
    if only_was:
        yield f"{plural(only_was, 'job')} {'is' if only_was == 1 else 'are'} not completed any more"
    if only_here:
        yield (
            f"{plural(only_here, 'job')} {'is' if only_here == 1 else 'are'} completed that"
            f" {'was' if only_here == 1 else 'were'} not"
        )


def _effect_phrase(row: dict[str, Any], *, one: bool) -> str:
    """Return a verb phrase: the change of mean waits, else of completion times, else none."""
    s = "s" if one else ""
    wait, jct = row["wait_mean_s_change"], row["jct_mean_s_change"]
    if isfinite(wait) and abs(wait) >= _MIN_CHANGE:
        return f"wait{s} {_amount(wait)} {'less' if wait < 0 else 'longer'}"
    if isfinite(jct) and abs(jct) >= _MIN_CHANGE:
        return f"take{s} {_amount(jct)} {'less time' if jct < 0 else 'longer'}"
    return f"take{s} as long as before"


def _amount(change: float) -> str:
    """Return the size of a relative change as text."""
    return relative(abs(change)).removeprefix("+")


def _text_rows(difference: BranchDifference) -> Iterator[tuple[str, ...]]:
    """Yield the rows of `difference_rows`: group, metric, both values, change; as texts."""
    for row in difference.jobs.to_dict("records"):
        group = f"{row['jobs']:,} {row['group']}"
        for name in _TIMES if row["both"] else ():
            yield (
                group,
                METRICS[name].title,
                BY_UNIT["s"](row[f"{name}_was"]),
                BY_UNIT["s"](row[name]),
                relative(row[f"{name}_change"]),
            )
    for row in difference.totals.to_dict("records"):
        write = BY_UNIT[row["unit"]]
        yield (
            "Whole run",
            row["title"],
            write(row["was"]),
            write(row["here"]),
            _points(row["here"] - row["was"]) if row["unit"] == "1" else relative(row["change"]),
        )


def _points(difference: float) -> str:
    """Return the difference of two shares in percentage points: "−4 pt"; a dash if unknown."""
    if not isfinite(difference):
        return MISSING
    points = round(100 * difference)
    return f"{points:+d} pt".replace("-", "−") if points else "≈"
