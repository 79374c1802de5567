"""Results side by side: differences against a baseline, paired job by job, with intervals only
where runs were repeated.
"""

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
from sim.metrics.facts import JobFacts
from sim.metrics.registry import COLUMNS, Goal, Metric, PerJob
from trainyard import text
from trainyard.results.bootstrap import FEWEST, interval

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

SAME_S: Final = 0.001
"""Completion times that differ by less count as equal."""
SLOWER_BY: Final = 0.02
"""A job is slower or faster if its completion time differs by more than this share."""
SLOWER: Final = Metric(
    "slower",
    "Jobs slower",
    "1",
    "Share of the jobs that take over 2 % longer than under the baseline.",
)
"""Of a comparison only, not of a run."""
_ALIKE: Final = 5e-4
"""A relative difference of two values that a table tells as ±0 %."""
CLEAR: Final = 0.01
"""Without repeats a relative difference below this is not called one."""
FEWEST_REPEATS: Final = FEWEST

COUNTS: Final = ("jobs", "completed", "failed", "impossible", "refused", "unfinished")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one policy gave, once or repeated over seeds.

    Parameters
    ----------
    label : str
        What the user reads.
    summaries : tuple of mapping
        One `sim.metrics.summary` per repeat.
    jobs : tuple of DataFrame
        The `jobs` frame of each repeat; rows are the jobs of the trace.
    replays : bool
        Whether it repeats the recorded schedule (it needs "recorded_start") instead of simulating
        one.
    overflow : bool
        Whether that schedule held GPUs that the cluster does not have: then its numbers are those
        of a larger cluster.
    measured : tuple of bool array
        Of each repeat, the rows of `jobs` that count; empty = all.
    costs_usd : callable or None
        Repeat -> cost of every job; asked for only where two policies completed different jobs.
        None = not known.
    """

    label: str
    summaries: tuple[Mapping[str, Any], ...]
    jobs: tuple[pd.DataFrame, ...]
    replays: bool = False
    overflow: bool = False
    measured: tuple[Mask, ...] = ()
    costs_usd: Callable[[int], Floats] | None = None

    def done(self, turn: int) -> Mask:
        """Return which jobs count and were completed in a repeat."""
        return self.facts(turn).completed

    def facts(self, turn: int) -> JobFacts:
        """Return what the metrics of single jobs are computed from, of a repeat."""
        return self._facts[turn]

    @cached_property
    def _facts(self) -> tuple[JobFacts, ...]:
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
    """A value with the bounds within which 95 % of resamples over the repeats lie; no bounds
    without enough differing repeats.
    """

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def clear(self) -> bool:
        """Whether it differs from 0 clearly: bounds on one side, or without bounds at least
        `CLEAR`.
        """
        if self.low is None or self.high is None:
            return bool(abs(self.value) >= CLEAR)
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, eq=False)
class Paired:
    """One policy against another, job by job.

    Parameters
    ----------
    both : int
        Jobs completed under both, over all repeats; only these are compared.
    only_base, only_other : int
        Jobs completed under one of them only.
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
    """How completion times changed job by job, of one policy against the baseline.

    Parameters
    ----------
    jobs : int
        Jobs completed under both, over all repeats.
    slower, faster : float
        Share of them, 0 to 1, see `SLOWER_BY`; the rest takes about as long as before.
    histogram : DataFrame
        Of the jobs that did change, see `sim.metrics.change_histogram`.
    """

    jobs: int
    slower: float
    faster: float
    histogram: pd.DataFrame

    @property
    def same(self) -> float:
        """Share of jobs whose completion time is about the same."""
        return max(1.0 - self.slower - self.faster, 0.0)


def paired(base: Outcome, other: Outcome) -> Paired:
    """Compare completion times job by job, same seed with same seed.

    Raises
    ------
    ParameterError
        If the two do not have the same jobs and repeats.

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
    change = ratio([float(x.sum()) for x in before], [float(x.sum()) for x in after])
    old, new = np.concatenate(before), np.concatenate(after)
    count = max(len(old), 1)
    slower, faster = (
        float((new > old * (1 + SLOWER_BY) + SAME_S).sum() / count),
        float((new < old * (1 - SLOWER_BY) - SAME_S).sum() / count),
    )
    return Paired(len(old), int(only[0]), int(only[1]), change, slower, faster, old, new)


def table(outcomes: Sequence[Outcome], baseline: int = 0) -> pd.DataFrame:
    """Return one row per policy and metric.

    Parameters
    ----------
    outcomes : sequence of Outcome
        All on the same jobs.
    baseline : int
        Place of the one that others are compared with.

    Returns
    -------
    DataFrame
        label, baseline (bool), metric, value (mean over repeats, over the policy's own completed
        jobs), change (relative to the baseline; NaN for itself and where it is 0), low, high (its
        interval; NaN without one), best (bool; of no metric where all are equal), barred (bool; its
        values are never best), verdict ("better", "worse" or ""). `slower` is a metric too: the
        share of jobs that take longer than under the baseline. Metrics that say nothing are left
        out, see `Metric.silent`.

    Notes
    -----
    Changes of means and percentiles over jobs, the cost per job among them, use the jobs completed
    under both, so that no policy looks better by dropping some. A policy that completes fewer jobs
    than another is best in nothing, and one that completes fewer than the baseline gets no "better"
    for totals over the whole run, such as the makespan. Nor is a recorded schedule ever best; where
    it held GPUs that the cluster does not have, no verdict is in its favour.
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
    # A recorded schedule had GPUs that nobody prices here and was nobody's decision: it is
    # compared, but wins nothing.
    barred = {outcome.label for outcome in outcomes if outcome.replays or outcome.completed < most}
    frame["barred"] = frame["label"].isin(barred)
    known = {**COLUMNS, SLOWER.name: SLOWER}
    for name, group in frame[~frame["barred"]].groupby("metric", sort=False):
        frame.loc[_best(group["value"], known[str(name)].better), "best"] = True
    return frame


def changes(outcomes: Sequence[Outcome], baseline: int = 0) -> dict[str, MetricChange]:
    """Return who wins and who loses under every policy but the baseline, job by job; policies that
    completed none of the same jobs are left out.
    """
    found = {
        other.label: paired(outcomes[baseline], other)
        for at, other in enumerate(outcomes)
        if at != baseline
    }
    return {label: _change(pair) for label, pair in found.items() if pair.both}


def _change(pair: Paired) -> MetricChange:
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
    """Return how many jobs ended how, one row per policy, summed over `repeats`, and `why` those
    failed that did: what stands beside every mean.
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
                "why": text.why_failed(failed_by),
            }
        )
    return pd.DataFrame(rows)


def not_common(outcomes: Sequence[Outcome], baseline: int = 0) -> str:
    """Return what stands below the table where policies did not complete the same jobs as the
    baseline; "" = all did.
    """
    base, findings = outcomes[baseline], []
    for outcome in outcomes:
        pair = paired(base, outcome)
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


def together(counts: pd.DataFrame) -> str:
    """Return what stands behind a number of jobs that is of several repeats, from `counts`; "" = of
    one run.
    """
    repeats = int(counts["repeats"].iloc[0])
    return f" ({repeats} repeats together)" if repeats > 1 else ""


def percent(share: float) -> str:
    """Return a share as whole percent, as words below 1 %."""
    return "less than 1 %" if 0 < share < 0.005 else f"{100 * share:,.0f} %"


def jobs_text(number: int) -> str:
    """Return a number of jobs in words."""
    return f"{number:,} job{'' if number == 1 else 's'}"


def _common(base: Outcome, other: Outcome) -> list[Mask]:
    """Return which jobs were completed under both, per repeat."""
    if len(base.jobs) != len(other.jobs) or any(
        len(a) != len(b) for a, b in zip(base.jobs, other.jobs, strict=False)
    ):
        raise ParameterError(
            f"{other.label} and {base.label} were not run on the same jobs and seeds. Run both"
            " again."
        )
    return [base.done(turn) & other.done(turn) for turn in range(len(base.jobs))]


def _paired_change(base: Outcome, other: Outcome, metric: str, per_job: PerJob) -> Interval:
    """Return the change of a metric over jobs, on the jobs completed under both; means are pooled
    over repeats, percentiles are taken in each.
    """
    common = _common(base, other)
    same = all(
        (base.done(turn) == both).all() and (other.done(turn) == both).all()
        for turn, both in enumerate(common)
    )
    sides: list[list[float]] = []
    for outcome in (base, other):
        if per_job.needs_segments and same:
            # The means are over the same jobs already; the values of single jobs would have to be
            # derived from all segments.
            sides.append(
                [
                    mean * both.sum()
                    for mean, both in zip(_numbers(outcome, metric), common, strict=True)
                ]
            )
            continue
        values = [per_job.values(outcome.facts(turn))[both] for turn, both in enumerate(common)]
        sides.append([_statistic(one, per_job.percentile) for one in values])
    return ratio(*sides)


def common_values(base: Outcome, other: Outcome, metric: str) -> tuple[float, float] | None:
    """Return an average or percentile over the jobs that both completed, under both; None = the
    metric is of the whole run, or both completed the same jobs, so that their own values do.
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
    if percentile is None:
        return float(values.sum())
    return float(np.percentile(values, percentile)) if len(values) else 0.0


def ratio(base: Sequence[float], other: Sequence[float]) -> Interval:
    """Return pooled other / pooled base - 1, with an interval from resampling the repeats in
    pairs.
    """
    old, new = np.asarray(base, np.float64), np.asarray(other, np.float64)
    if not np.isfinite(old).all() or not np.isfinite(new).all() or old.sum() == 0:
        return Interval(float("nan"))
    value = float(new.sum() / old.sum() - 1.0)
    differ = len(old) >= FEWEST_REPEATS and (np.ptp(old) > 0 or np.ptp(new) > 0)
    if not differ or (old <= 0).any():
        return Interval(value)
    return Interval(value, *(interval(new, old) or ()))


def _numbers(outcome: Outcome, name: str) -> list[float]:
    return [
        float("nan") if one.get(name) is None else float(one[name]) for one in outcome.summaries
    ]


def _row(outcome: Outcome, base: Outcome, metric: Metric) -> dict[str, object]:
    values = _numbers(outcome, metric.name)
    if outcome is base:
        change = Interval(float("nan"))
    elif metric.per_job is not None:
        change = _paired_change(base, outcome, metric.name, metric.per_job)
    else:
        change = ratio(_numbers(base, metric.name), values)
    better = metric.better if metric.is_judged else ""
    line = _line(outcome.label, metric.name, float(np.mean(values)), change, better)
    dropped = metric.per_job is None and outcome.completed < base.completed
    if (line["verdict"] == "better" and (outcome.overflow or dropped)) or (
        line["verdict"] == "worse" and base.overflow
    ):
        line["verdict"] = ""
    return line


def _slower_row(outcome: Outcome, base: Outcome) -> dict[str, object]:
    value = float("nan") if outcome is base else paired(base, outcome).slower
    return _line(outcome.label, "slower", value, Interval(float("nan")), "")


def _line(
    label: str, metric: str, value: float, change: Interval, better: Goal
) -> dict[str, object]:
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


def _best(values: pd.Series, better: Goal) -> pd.Index[Any]:
    known = values.dropna()
    # What differs by rounding errors only does not differ.
    if not better or len(known) < 2 or np.isclose(known.min(), known.max(), rtol=_ALIKE, atol=0.0):
        return known.index[:0]
    best: pd.Index[Any] = known.index[
        np.isclose(known, known.min() if better == "lower" else known.max(), rtol=_ALIKE, atol=0.0)
    ]
    return best
