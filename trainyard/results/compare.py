"""Comparison of policies with a baseline, paired job by job, with intervals over repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.errors import ParameterError
from sim.metrics import change_histogram, distribution
from sim.metrics.inputs import JobFacts
from sim.metrics.registry import COLUMNS, Goal, Metric, PerJob
from trainyard import formatting
from trainyard.results.bootstrap import MIN_REPEATS, bootstrap_interval

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

SAME_S: Final = 0.001
"""Completion times that differ by less than this are equal."""
SLOWER_BY: Final = 0.02
"""A job is slower or faster if its completion time differs by more than this share."""
SLOWER: Final = Metric(
    "slower",
    "Jobs slower",
    "1",
    "Share of the jobs that take over 2 % longer than under the baseline.",
)
"""Metric of a comparison, not of a single run."""
_SAME_RATIO: Final = 5e-4
"""Relative difference that a table shows as ±0 %."""
CLEAR: Final = 0.01
"""Smallest relative difference that counts without repeats."""

COUNTS: Final = ("jobs", "completed", "failed", "impossible", "refused", "unfinished")


@dataclass(frozen=True, eq=False)
class Outcome:
    """Results of one policy, from one run or from repeats over seeds.

    Parameters
    ----------
    label : str
        Display name of the policy.
    summaries : tuple of mapping
        One `sim.metrics.summary` per repeat.
    jobs : tuple of DataFrame
        The `jobs` frame of each repeat; rows are the jobs of the trace.
    replays : bool
        Whether the policy replays the recorded schedule (it needs "recorded_start").
    overflow : bool
        Whether that schedule held more GPUs than the cluster has, so that its numbers belong to a
        larger cluster.
    measured : tuple of bool array
        Per repeat, the rows of `jobs` that are measured; empty = all.
    costs_usd : callable or None
        Repeat -> cost of every job; called only where two policies completed different jobs.
        None = unknown.
    """

    label: str
    summaries: tuple[Mapping[str, Any], ...]
    jobs: tuple[pd.DataFrame, ...]
    replays: bool = False
    overflow: bool = False
    measured: tuple[Mask, ...] = ()
    costs_usd: Callable[[int], Floats] | None = None

    def done(self, turn: int) -> Mask:
        """Return the mask of measured jobs that were completed in a repeat."""
        return self.facts(turn).completed

    def facts(self, turn: int) -> JobFacts:
        """Return the per-job values of a repeat, from which job metrics are computed."""
        return self._facts[turn]

    @cached_property
    def _facts(self) -> tuple[JobFacts, ...]:
        """`JobFacts` of every repeat."""
        masks = self.measured or [np.ones(len(jobs), np.bool_) for jobs in self.jobs]
        costs_usd = self.costs_usd
        return tuple(
            JobFacts(
                jobs,
                float(self.summaries[turn].get("end_s", np.nan)),
                mask,
                costs_usd and partial(costs_usd, turn),
            )
            for turn, (jobs, mask) in enumerate(zip(self.jobs, masks, strict=True))
        )

    @property
    def completed(self) -> int:
        """Jobs completed, over all repeats."""
        return sum(int(self.done(turn).sum()) for turn in range(len(self.jobs)))


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % bootstrap bounds; no bounds without enough differing repeats."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def clear(self) -> bool:
        """Whether the value clearly differs from 0.

        Both bounds lie on one side of 0; without bounds, its absolute value is at least `CLEAR`.
        """
        if self.low is None or self.high is None:
            return bool(abs(self.value) >= CLEAR)
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, eq=False)
class Paired:
    """Comparison of one policy with another, job by job.

    Parameters
    ----------
    both : int
        Jobs completed under both, over all repeats; only these are compared.
    only_base, only_other : int
        Jobs completed under only one of the two.
    change : Interval
        Relative change of the mean JCT.
    slower, faster : float
        Share of the compared jobs, 0 to 1, see `SLOWER_BY`.
    before_s, after_s : array, seconds
        JCT of the compared jobs.
    """

    both: int
    only_base: int
    only_other: int
    change: Interval
    slower: float
    faster: float
    before_s: Floats
    after_s: Floats


@dataclass(frozen=True, eq=False)
class MetricChange:
    """Change of completion times of one policy against the baseline, job by job.

    Parameters
    ----------
    jobs : int
        Jobs completed under both, over all repeats.
    slower, faster : float
        Share of these jobs, 0 to 1, see `SLOWER_BY`; the rest takes about as long as before.
    histogram : DataFrame
        The jobs that changed, see `sim.metrics.change_histogram`.
    """

    jobs: int
    slower: float
    faster: float
    histogram: pd.DataFrame

    @property
    def same(self) -> float:
        """Share of jobs with about the same completion time."""
        return max(1.0 - self.slower - self.faster, 0.0)


def pair_jobs(base: Outcome, other: Outcome) -> Paired:
    """Compare completion times job by job, repeat by repeat with the same seed.

    Raises
    ------
    ParameterError
        If the jobs or repeats differ.

    Notes
    -----
    change = sum of JCT under `other` / sum of JCT under `base` - 1, over jobs completed under both;
    a ratio of pooled means.
    """
    before, after, only = [], [], np.zeros(2, np.int64)
    for turn, both in enumerate(_common(base, other)):
        only += [int((base.done(turn) & ~both).sum()), int((other.done(turn) & ~both).sum())]
        before.append(base.facts(turn).jct_s[both])
        after.append(other.facts(turn).jct_s[both])
    change = relative_change([float(x.sum()) for x in before], [float(x.sum()) for x in after])
    old, new = np.concatenate(before), np.concatenate(after)
    count = max(len(old), 1)
    slower, faster = (
        float((new > old * (1 + SLOWER_BY) + SAME_S).sum() / count),
        float((new < old * (1 - SLOWER_BY) - SAME_S).sum() / count),
    )
    return Paired(len(old), int(only[0]), int(only[1]), change, slower, faster, old, new)


def table(outcomes: Sequence[Outcome], baseline: int = 0) -> pd.DataFrame:
    """Return the comparison table: one row per policy and metric.

    Parameters
    ----------
    outcomes : sequence of Outcome
        All on the same jobs.
    baseline : int
        Index of the outcome that the others are compared with.

    Returns
    -------
    DataFrame
        label, baseline (bool), metric, value (mean over repeats, over the policy's own completed
        jobs), change (relative to the baseline; NaN for itself and where it is 0), low, high (its
        interval; NaN without one), best (bool; none where all are equal), barred (bool; its
        values are never best), verdict ("better", "worse" or ""). `slower` is a metric too: the
        share of jobs that take longer than under the baseline. Uninformative metrics are left
        out, see `Metric.silent`.

    Notes
    -----
    Changes of means and percentiles over jobs, the cost per job among them, use the jobs completed
    under both, so that no policy looks better by dropping some. A policy that completes fewer jobs
    than another is never best, and one that completes fewer than the baseline gets no "better"
    for totals over the whole run, such as the makespan. A recorded schedule is never best; if it
    held more GPUs than the cluster has, no verdict favors it.
    """
    rows = [
        _row(outcome, outcomes[baseline], metric)
        for outcome in outcomes
        for metric in COLUMNS.values()
    ]
    rows += [_slower_row(outcome, outcomes[baseline]) for outcome in outcomes]
    frame = pd.DataFrame(rows)
    if len(outcomes) == 1:
        frame = frame[frame["metric"] != "slower"]
    silent = {name: one.silent for name, one in COLUMNS.items() if one.silent is not None}
    present = frame["value"].notna() & (frame["value"] != frame["metric"].map(silent))
    frame = frame[~frame["metric"].isin(silent.keys() - set(frame.loc[present, "metric"]))]
    frame = frame.reset_index(drop=True)
    frame.insert(1, "baseline", frame["label"] == outcomes[baseline].label)
    frame["best"] = False
    most = max(outcome.completed for outcome in outcomes)
    # A recorded schedule used GPUs without a price and no policy's decisions: never best.
    barred = {outcome.label for outcome in outcomes if outcome.replays or outcome.completed < most}
    frame["barred"] = frame["label"].isin(barred)
    metrics = {**COLUMNS, SLOWER.name: SLOWER}
    for name, group in frame[~frame["barred"]].groupby("metric", sort=False):
        frame.loc[_best_rows(group["value"], metrics[str(name)].better), "best"] = True
    return frame


def completion_changes(outcomes: Sequence[Outcome], baseline: int = 0) -> dict[str, MetricChange]:
    """Return title -> change of completion times, for each policy except the baseline.

    Policies that share no completed job with the baseline are left out.
    """
    pairs = {
        other.label: pair_jobs(outcomes[baseline], other)
        for place, other in enumerate(outcomes)
        if place != baseline
    }
    return {label: _change(pair) for label, pair in pairs.items() if pair.both}


def _change(pair: Paired) -> MetricChange:
    """Return the shares of slower and faster jobs, and the histogram of jobs that changed."""
    differ = np.abs(pair.after_s - pair.before_s) > SAME_S
    return MetricChange(
        pair.both,
        pair.slower,
        pair.faster,
        change_histogram(
            np.maximum(pair.before_s[differ], SAME_S), np.maximum(pair.after_s[differ], SAME_S)
        ),
    )


def cdf(outcome: Outcome) -> pd.DataFrame:
    """Return the distribution of completion times over all repeats, as `sim.metrics.jct_cdf`."""
    return distribution(
        np.concatenate(
            [outcome.facts(turn).jct_s[outcome.done(turn)] for turn in range(len(outcome.jobs))]
        )
    )


def counts(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Return how many jobs ended in each way, one row per policy, summed over `repeats`.

    `why` holds the reasons of the failed jobs.
    """
    rows = []
    for outcome in outcomes:
        failed_by: Counter[str] = Counter()
        for one in outcome.summaries:
            failed_by.update(one.get("failed_by", {}))
        rows.append(
            {
                "label": outcome.label,
                "repeats": len(outcome.summaries),
                **{name: sum(int(one[name]) for one in outcome.summaries) for name in COUNTS},
                "why": formatting.why_failed(failed_by),
            }
        )
    return pd.DataFrame(rows)


def uncommon_jobs_note(outcomes: Sequence[Outcome], baseline: int = 0) -> str:
    """Return the note on jobs that a policy and the baseline did not both complete; "" = none."""
    base, findings = outcomes[baseline], []
    for outcome in outcomes:
        pair = pair_jobs(base, outcome)
        parts = (
            [f"{jobs_text(pair.only_base)} not completed under {outcome.label}"]
            if pair.only_base
            else []
        )
        parts += (
            [
                f"{jobs_text(pair.only_other)} not completed under {base.label} but under"
                f" {outcome.label}"
            ]
            if pair.only_other
            else []
        )
        findings += parts
    if not findings:
        return ""
    return f"{'; '.join(findings)}; differences use the jobs that both completed."


def repeats_suffix(counts: pd.DataFrame) -> str:
    """Return the suffix " (N repeats together)" for job counts; "" for one run."""
    repeats = int(counts["repeats"].iloc[0])
    return f" ({repeats} repeats together)" if repeats > 1 else ""


def percent(share: float) -> str:
    """Return a share as text in whole percent, or as "less than 1 %"."""
    return "less than 1 %" if 0 < share < 0.005 else f"{100 * share:,.0f} %"


def jobs_text(number: int) -> str:
    """Return a number of jobs as text, e.g. "1 job" or "1,200 jobs"."""
    return f"{number:,} job{'' if number == 1 else 's'}"


def _common(base: Outcome, other: Outcome) -> list[Mask]:
    """Return the mask of jobs completed under both policies, per repeat.

    Raises ParameterError if the policies have different numbers of jobs or repeats.
    """
    if len(base.jobs) != len(other.jobs) or any(
        len(a) != len(b) for a, b in zip(base.jobs, other.jobs, strict=False)
    ):
        raise ParameterError(
            f"{other.label} and {base.label} were not run on the same jobs and seeds. Run both"
            " again."
        )
    return [base.done(turn) & other.done(turn) for turn in range(len(base.jobs))]


def _paired_change(base: Outcome, other: Outcome, metric: str, per_job: PerJob) -> Interval:
    """Return the relative change of a per-job metric over jobs that both completed.

    Means are pooled over repeats, percentiles are taken in each. If both completed the same
    jobs, stored means replace per-job values that need all segments of the run.
    """
    common = _common(base, other)
    same = all(
        (base.done(turn) == both).all() and (other.done(turn) == both).all()
        for turn, both in enumerate(common)
    )
    sides: list[list[float]] = []
    for outcome in (base, other):
        if per_job.needs_segments and same:
            # Both means cover the same jobs; per-job values would need all segments.
            sides.append(
                [
                    mean * both.sum()
                    for mean, both in zip(_numbers(outcome, metric), common, strict=True)
                ]
            )
            continue
        values = [per_job.values(outcome.facts(turn))[both] for turn, both in enumerate(common)]
        sides.append([_statistic(one, per_job.percentile) for one in values])
    return relative_change(*sides)


def common_values(base: Outcome, other: Outcome, metric: str) -> tuple[float, float] | None:
    """Return (baseline, other) values of a metric over jobs that both completed.

    None if the metric belongs to the whole run, or if both completed the same jobs, whose own
    values suffice.
    """
    per_job = COLUMNS[metric].per_job
    common = _common(base, other)
    jobs = sum(int(both.sum()) for both in common)
    if per_job is None or not jobs or jobs == base.completed == other.completed:
        return None
    sides = [
        [per_job.values(one.facts(turn))[both] for turn, both in enumerate(common)]
        for one in (base, other)
    ]
    if per_job.percentile is None:
        before, after = (float(np.concatenate(values).mean()) for values in sides)
    else:
        before, after = (
            float(np.mean([_statistic(one, per_job.percentile) for one in values]))
            for values in sides
        )
    return before, after


def _statistic(values: Floats, percentile: float | None) -> float:
    """Return a percentile of values (0 without values), or their sum if `percentile` is None."""
    if percentile is None:
        return float(values.sum())
    return float(np.percentile(values, percentile)) if len(values) else 0.0


def relative_change(base: Sequence[float], other: Sequence[float]) -> Interval:
    """Return sum(other) / sum(base) - 1 with a bootstrap interval over paired repeats.

    The value is NaN if the base is 0 or not finite. There are no bounds with fewer than
    `MIN_REPEATS` repeats, with equal repeats, or if a base is not positive.
    """
    old, new = np.asarray(base, np.float64), np.asarray(other, np.float64)
    if not np.isfinite(old).all() or not np.isfinite(new).all() or old.sum() == 0:
        return Interval(float("nan"))
    value = float(new.sum() / old.sum() - 1.0)
    differ = len(old) >= MIN_REPEATS and (np.ptp(old) > 0 or np.ptp(new) > 0)
    if not differ or (old <= 0).any():
        return Interval(value)
    return Interval(value, *(bootstrap_interval(new, old) or ()))


def _numbers(outcome: Outcome, name: str) -> list[float]:
    return [
        float("nan") if one.get(name) is None else float(one[name]) for one in outcome.summaries
    ]


def _row(outcome: Outcome, base: Outcome, metric: Metric) -> dict[str, object]:
    """Return the table row of one policy and metric, with its mean, change and verdict.

    There is no verdict "better" on totals of a policy that completed fewer jobs, and none in favor
    of a recorded schedule that held more GPUs than the cluster has.
    """
    values = _numbers(outcome, metric.name)
    if outcome is base:
        change = Interval(float("nan"))
    elif metric.per_job is not None:
        change = _paired_change(base, outcome, metric.name, metric.per_job)
    else:
        change = relative_change(_numbers(base, metric.name), values)
    better = metric.better if metric.is_judged else ""
    line = _line(outcome.label, metric.name, float(np.mean(values)), change, better)
    dropped = metric.per_job is None and outcome.completed < base.completed
    if (line["verdict"] == "better" and (outcome.overflow or dropped)) or (
        line["verdict"] == "worse" and base.overflow
    ):
        line["verdict"] = ""
    return line


def _slower_row(outcome: Outcome, base: Outcome) -> dict[str, object]:
    """Return the table row with the share of jobs slower than under the baseline.

    The value is NaN for the baseline; there is never a change or verdict.
    """
    value = float("nan") if outcome is base else pair_jobs(base, outcome).slower
    return _line(outcome.label, "slower", value, Interval(float("nan")), "")


def _line(
    label: str, metric: str, value: float, change: Interval, better: Goal
) -> dict[str, object]:
    """Return a table row as a dict; its verdict is "better", "worse", or "" if unclear."""
    verdict = ""
    if better and np.isfinite(change.value) and change.clear:
        verdict = "better" if (change.value < 0) == (better == "lower") else "worse"
    low = float("nan") if change.low is None else change.low
    high = float("nan") if change.high is None else change.high
    return {
        "label": label,
        "metric": metric,
        "value": value,
        "change": change.value,
        "low": low,
        "high": high,
        "verdict": verdict,
    }


def _best_rows(values: pd.Series, better: Goal) -> pd.Index[Any]:
    """Return the index of the best values; empty without a goal or if all are equal."""
    finite = values.dropna()
    # Differences by rounding errors are none.
    if (
        not better
        or len(finite) < 2
        or np.isclose(finite.min(), finite.max(), rtol=_SAME_RATIO, atol=0.0)
    ):
        return finite.index[:0]
    best: pd.Index[Any] = finite.index[
        np.isclose(
            finite, finite.min() if better == "lower" else finite.max(), rtol=_SAME_RATIO, atol=0.0
        )
    ]
    return best
