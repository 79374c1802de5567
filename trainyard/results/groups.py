"""Groups of jobs by size, type, user or length, and comparisons of policies by group."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.metrics import SIZE_CLASSES, size_class
from sim.metrics.registry import COLUMNS, compute_from_jobs
from sim.trace import Trace
from trainyard.formatting import change, plural, with_en_dash
from trainyard.results import compare, outcomes, validity
from trainyard.results.compare import Floats, Mask, MetricChange, Outcome, percent, relative_change
from trainyard.results.headline import GOALS, Headline, Headlines, headlines
from trainyard.results.outcomes import StudyResults

GROUP_METRICS: Final[Mapping[str, str]] = {"jct": "average completion time", "wait": "average wait"}
"""Metric averaged over a group -> its name; the wait is JCT minus the time with a grant."""
MAX_GROUPS: Final = 12
_COLUMNS: Final = {
    "user": "User",
    "vc": "Virtual cluster",
    "model": "Model",
    "partition": "Partition",
}
_IDLE: Final = "These jobs hardly wait under any policy."
_TYPE_COLUMNS: Final = ("gpu_types_allowed", "gpu_type")
_LENGTHS: Final = ("under 10 min", "10 min to 1 h", "1 to 8 h", "over 8 h")
_LENGTH_EDGES_S: Final = np.array([600.0, 3600.0, 28_800.0])
Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Grouping:
    """Assignment of every job to a group.

    Parameters
    ----------
    title : str
        Label of the grouping in a select box.
    names : tuple of str
        From top to bottom: classes in their order, other names by GPU-hours, largest first. Beyond
        `MAX_GROUPS`, the rest shares the last group.
    codes : array of int
        Row of the trace -> index into `names`.
    """

    title: str
    names: tuple[str, ...]
    codes: Codes


@dataclass(frozen=True, eq=False)
class Grouped:
    """Mean per group and policy.

    Parameters
    ----------
    table : DataFrame
        `group`, `label`, `jobs` (compared, over all repeats), `value` in seconds with `low` and
        `high`, and `change` against the baseline.
    left_out : int
        Jobs that not every policy completed, over all repeats.
    few : bool
        Whether a group has too few jobs for a change in per cent; its `change` is NaN.
    """

    table: pd.DataFrame
    left_out: int
    few: bool = False

    def finding(self, baseline: str, what: str) -> str:
        """Return the sentence on the groups with the largest gain and loss against the baseline.

        `what` is the metric as text. If jobs are too few, or no group differs, the sentence says
        so.
        """
        rows = self.table.dropna(subset=["change"]).sort_values("change").to_dict("records")
        if self.few and not rows:
            return "Too few jobs in each group for percentages."
        findings = []
        for word, row in (("falls", rows[0]), ("rises", rows[-1])) if rows else ():
            size = float(row["change"])
            if size and (size < 0) == (word == "falls"):
                findings.append(
                    f"{word} most under {row['label']} for {row['group']}: {change(size)}"
                )
        return (
            f"Against {baseline}, {what} {'; it '.join(findings)}."
            if findings
            else f"No group's {what} differs from that under {baseline}."
        )

    def caption(self, baseline: str, together: str) -> str:
        """Return the caption below the figure of groups.

        `together` is the suffix of `compare.repeats_suffix`.
        """
        are = "is" if self.left_out == 1 else "are"
        left_out = (
            f" {plural(self.left_out, 'job')} that not every policy completed {are} left out."
            if self.left_out
            else ""
        )
        few = (
            f" Groups of fewer than {validity.MIN_JOBS_IN_GROUP} jobs, or of fewer than"
            f" {validity.MIN_JOBS} in all, have no percentages."
            if self.few
            else ""
        )
        return (
            f"Open mark: {baseline}, joined to the others. Jobs completed under all of these"
            f" policies{together}.{left_out}{few}"
        )


def groupings(trace: Trace, jobs: pd.DataFrame) -> dict[str, Grouping]:
    """Return groupings of jobs by size, GPU type, text column and length; key -> grouping.

    Groupings with a single group are left out.

    Parameters
    ----------
    trace : Trace
        The jobs.
    jobs : DataFrame
        The `jobs` frame of any run, for ideal run times.
    """
    gpus, ideal = jobs["gpus"].to_numpy(np.int64), jobs["ideal_s"].to_numpy(np.float64)
    sizes = tuple(size_text(name) for name in SIZE_CLASSES)
    by_key = {
        "size": _group_by_class("Size of job", sizes, np.asarray(size_class(gpus).codes, np.int64))
    }
    hours = np.maximum(gpus, 1) * np.nan_to_num(ideal) / 3600
    kinds = [name for name in _TYPE_COLUMNS if trace.has(name)]
    for by, column, title in [("gpu_type", name, "GPU type") for name in kinds[:1]] + [
        (name, name, title) for name, title in _COLUMNS.items()
    ]:
        if trace.has(column):
            by_key[by] = _group_by_text(title, trace, column, hours)
    by_key["length"] = _group_by_class(
        "Short or long", _LENGTHS, np.searchsorted(_LENGTH_EDGES_S, ideal, "right")
    )
    return {by: grouping for by, grouping in by_key.items() if len(grouping.names) > 1}


def group_means(
    shown: StudyResults, grouping: Grouping, titles: Collection[str], what: str = "jct"
) -> Grouped | None:
    """Return the mean of every group under the baseline and other policies.

    None while the baseline is incomplete.

    Parameters
    ----------
    shown : StudyResults
        The runs.
    grouping : Grouping
        From `groupings`.
    titles : collection of str
        Policies to compare with the baseline.
    what : {"jct", "wait"}
        See `GROUP_METRICS`.

    Raises
    ------
    StoreError
        If a stored result was deleted.

    Notes
    -----
    Only jobs that all of these policies completed count, so that none looks better by dropping
    some. Intervals are those of the change against the baseline, placed around the baseline's
    mean; they need repeats.
    """
    if shown.baseline not in shown.places:
        return None
    others = [at for at in shown.places if at != shown.baseline and shown.titles[at] in titles]
    selected = [outcomes.outcome(shown, at) for at in (shown.baseline, *others)]
    base, turns = selected[0], range(len(selected[0].jobs))
    common = [np.logical_and.reduce([one.done(turn) for one in selected]) for turn in turns]
    counts = np.array(
        [np.bincount(grouping.codes[both], minlength=len(grouping.names)) for both in common]
    )
    sums = {
        one.label: np.array(
            [_group_sums(one, turn, what, grouping, common[turn]) for turn in turns]
        )
        for one in selected
    }
    rows = []
    # Per repeat: repeating the same few jobs does not make them more.
    few = (counts.max(axis=0) < validity.MIN_JOBS_IN_GROUP) | (
        counts.sum(axis=1).max() < validity.MIN_JOBS
    )
    for at in np.flatnonzero(counts.sum(axis=0)):
        jobs = int(counts[:, at].sum())
        for one in selected:
            mean = _group_mean(
                sums[base.label][:, at], sums[one.label][:, at], jobs, compared=one is not base
            )
            rows.append(
                {"group": grouping.names[at], "label": one.label, "jobs": jobs, **mean}
                | ({"change": np.nan} if few[at] else {})
            )
    measured = sum(int(one.sum()) for one in base.measured)
    table = pd.DataFrame(rows, columns=["group", "label", "jobs", "value", "low", "high", "change"])
    return Grouped(table, measured - int(counts.sum()), bool(few[counts.any(axis=0)].any()))


class GroupComparison(NamedTuple):
    """Comparison of policies over a subset of the jobs.

    Parameters
    ----------
    table : DataFrame
        As `compare.table`, with per-job metrics only: totals of a run, such as makespan,
        utilization and cost, belong to no group.
    counts : DataFrame
        As `trainyard.results.compare.counts`, without reasons.
    headlines : Headlines
        Headlines on the goals among these metrics.
    curves : mapping of DataFrame
        Title of a policy -> its completion times, as `compare.cdf`.
    """

    table: pd.DataFrame
    counts: pd.DataFrame
    headlines: Headlines
    curves: Mapping[str, pd.DataFrame]

    def headline_of(self, title: str, goal: str) -> Headline | None:
        """Return the headline about a policy on a goal, without advice.

        None if the goal needs whole runs.
        """
        headline = self.headlines.about.get((title, goal), self.headlines.first.get(goal))
        if headline is None:
            return None
        # Advice on load and cluster size does not apply to one group.
        text = _IDLE if headline.verdict == "idle" else headline.text
        return replace(headline, text=text, advice=())


def members(
    trace: Trace,
    jobs: pd.DataFrame,
    group: tuple[str, str] | None,
    window: tuple[float, float] | None,
) -> Mask:
    """Return the mask of the jobs of a group that were submitted in a window.

    Parameters
    ----------
    trace : Trace
        All jobs.
    jobs : DataFrame
        Jobs of a run, in the order of the trace.
    group : (str, str) or None
        Title of a grouping and name of a group; None = jobs of all groups. No job has an unknown
        group.
    window : (float, float) or None, seconds
        None = jobs submitted at any time.
    """
    mask = np.ones(len(trace), bool)
    if group is not None:
        title, name = group
        ways = groupings(trace, jobs).values()
        way = next((way for way in ways if way.title == title and name in way.names), None)
        mask &= False if way is None else way.codes == way.names.index(name)
    if window is not None:
        submit_s = jobs["submit_s"].to_numpy(np.float64)
        mask &= (submit_s >= window[0]) & (submit_s < window[1])
    return mask


def compare_subset(shown: StudyResults, members: Mask, trace: Trace) -> GroupComparison:
    """Return the comparison over a subset of the jobs.

    Parameters
    ----------
    shown : StudyResults
        The runs; the baseline must be among the complete ones.
    members : bool array
        Mask of the rows of the trace.
    trace : Trace
        All jobs of the study.

    Raises
    ------
    StoreError
        If a stored result was deleted.
    """
    selected = [_restrict_outcome(outcomes.outcome(shown, at), members) for at in shown.places]
    base = shown.places.index(shown.baseline)
    table = compare.table(selected, base)
    names = [*(name for name, metric in COLUMNS.items() if metric.of_jobs), compare.SLOWER.name]
    table = table[table["metric"].isin(names)].reset_index(drop=True)
    with_values = set(table.loc[table["value"].notna(), "metric"])
    setting = validity.setting(
        shown.study, trace, dict(zip(shown.places, selected, strict=True)), shown.past
    )
    group_headlines = headlines(
        selected, base, [goal for goal in GOALS if goal in with_values], table, 0, setting
    )
    curves = {one.label: compare.cdf(one) for one in selected}
    return GroupComparison(table, compare.counts(selected), group_headlines, curves)


def change_texts(change: MetricChange, repeats: int) -> tuple[str, str, str]:
    """Return (faster, same, slower) as percentages, or as job counts if jobs are few."""
    shares = (change.faster, change.same, change.slower)
    if change.jobs >= validity.MIN_JOBS * repeats:
        faster, same, slower = (percent(share) for share in shares)
    else:
        faster, same, slower = (f"{round(share * change.jobs):,}" for share in shares)
    return faster, same, slower


def size_text(name: str) -> str:
    """Return the label of a class of `sim.metrics.SIZE_CLASSES`, e.g. "1 GPU"."""
    return {"0": "no GPU", "1": "1 GPU"}.get(name, f"{with_en_dash(name)} GPUs")


def _group_by_class(title: str, names: Sequence[str], codes: Codes) -> Grouping:
    """Return the grouping by ordered classes; empty classes are dropped."""
    present = np.unique(codes)
    return Grouping(title, tuple(names[at] for at in present), np.searchsorted(present, codes))


def _group_by_text(title: str, trace: Trace, column: str, hours: Floats) -> Grouping:
    """Return the grouping by a text column: the names with most GPU-hours, then all others."""
    texts = trace.texts(column, "not given")
    codes = np.asarray(texts.codes, np.int64)
    own = np.bincount(codes, hours, minlength=len(texts.categories))
    present = np.flatnonzero(np.bincount(codes, minlength=len(own)))
    order = present[np.argsort(-own[present], kind="stable")]
    kept, rest = order[:MAX_GROUPS], order[MAX_GROUPS:]
    place = np.full(len(own), len(kept))
    place[kept] = np.arange(len(kept))
    names = tuple(str(texts.categories[at]).replace("|", " or ") for at in kept)
    noun = title if title.startswith("GPU") else title.lower()
    return Grouping(
        title, (*names, f"other ({plural(len(rest), noun)})") if len(rest) else names, place[codes]
    )


def _group_sums(outcome: Outcome, turn: int, what: str, grouping: Grouping, mask: Mask) -> Floats:
    """Return the sum of completion times or waits per group, over masked jobs of a repeat."""
    facts = outcome.facts(turn)
    values = (facts.jct_s if what == "jct" else facts.wait_s)[mask]
    return np.asarray(
        np.bincount(grouping.codes[mask], values, minlength=len(grouping.names)), np.float64
    )


def _group_mean(base: Floats, own: Floats, jobs: int, *, compared: bool) -> dict[str, float]:
    """Return a group's "value", "low", "high" and "change"; only the mean unless `compared`.

    `base` and `own` are sums over the group per repeat; missing values are NaN.
    """
    value, start = float(own.sum()) / jobs, float(base.sum()) / jobs
    if not compared:
        return {"value": value, "low": np.nan, "high": np.nan, "change": np.nan}
    relative = relative_change(list(base), list(own))
    low, high = (
        np.nan if bound is None else start * (1.0 + bound)
        for bound in (relative.low, relative.high)
    )
    return {"value": value, "low": low, "high": high, "change": relative.value}


def _restrict_outcome(outcome: Outcome, members: Mask) -> Outcome:
    """Return an outcome measured over a subset of the jobs: new summaries, no costs."""
    masks = tuple(measured & members for measured in outcome.measured)
    cut = replace(outcome, measured=masks, costs_usd=None)
    summaries = tuple(compute_from_jobs(cut.facts(turn)) for turn in range(len(masks)))
    return replace(cut, summaries=summaries)
