"""From a study to its comparison report: stored runs, comparison, and frames of the figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.errors import TrainyardError
from sim.metrics import UsageArrays, measured_mask
from sim.metrics.inputs import JobFacts
from sim.metrics.registry import compute_from_jobs
from sim.result import RunResult
from sim.trace import Trace
from trainyard.clusters import prices
from trainyard.formatting import plural
from trainyard.results import backtest_verdict, compare
from trainyard.results.assumptions import assumption_sentences
from trainyard.results.backtest_verdict import Past
from trainyard.results.bootstrap import MIN_REPEATS
from trainyard.results.compare import Floats, Mask, MetricChange, Outcome
from trainyard.results.headline import GOALS, Headline, Headlines, headlines
from trainyard.results.recorded_accuracy import Trust, no_trust_reason, recorded_overflow, trust
from trainyard.results.validity import setting
from trainyard.runs.frames import MAX_SHOWN
from trainyard.runs.run import scenario_key
from trainyard.store import FRAMES, Store, StoredResult, profiles
from trainyard.study import catalog
from trainyard.study.study import Study, titles
from trainyard.traces import new_study
from trainyard.traces.fitting import is_guessed_cluster
from trainyard.traces.sources import dropped_text, load_source, load_trace

__all__ = [
    "MAX_SHOWN",
    "ComparisonReport",
    "StudyResults",
    "gather",
    "job_ids",
    "keys",
    "measured_jobs",
    "outcome",
    "report",
    "safe_csv",
    "titles",
]
BEYOND: Final = "used GPUs this cluster does not have"
"""Note on a recorded schedule that does not fit on the cluster."""
_KINDS: Final = ("queue", "utilisation", "capacity", "states", "allocation")
_HIDES_CHANGES: Final = ("doubted", "overload", "unexplained", "untested")
"""Verdicts that hide the changes per job."""
_FORMULA: Final = r"[=+\-@\t\r]"


@dataclass(frozen=True, eq=False)
class StudyResults:
    """The stored runs of a study.

    Parameters
    ----------
    study : Study
        The study.
    titles : tuple of str
        One per policy, unique.
    keys : tuple of tuple of str
        Per policy, one per repeat.
    entries : tuple of tuple of StoredResult
        The stored results.
    instead : int or None
        Index of the policy that replaces a baseline that cannot run; None = the baseline runs.
    past : Past or None
        Backtest verdict on one of these policies; None = no backtest.
    """

    study: Study
    titles: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    entries: tuple[tuple[StoredResult, ...], ...]
    instead: int | None = None
    past: Past | None = None

    @property
    def baseline(self) -> int:
        """Index of the policy that the others are compared with."""
        return self.study.baseline if self.instead is None else self.instead

    def complete(self, at: int) -> bool:
        """Return True if all repeats of a policy are stored."""
        return len(self.entries[at]) == len(self.keys[at])

    @property
    def places(self) -> tuple[int, ...]:
        """Indices of the complete policies."""
        return tuple(at for at in range(len(self.titles)) if self.complete(at))

    @property
    def mark(self) -> str:
        """Cache key for data derived from the runs; it changes when more runs complete."""
        return "|".join(
            [
                str(self.baseline),
                *map(str, self.study.slots),
                *self.titles,
                *(key for at in self.places for key in self.keys[at]),
                *([self.past.full_sentence] if self.past is not None else []),
            ]
        )


@dataclass(frozen=True, eq=False)
class ComparisonReport:
    """Everything that Compare shows of the complete runs.

    Parameters
    ----------
    mark : str
        `StudyResults.mark` of the runs.
    labels : tuple of str
        Titles of the complete policies, in order.
    baseline : str
        Title of the baseline; "" while it is incomplete, and then there are no differences.
    headlines : mapping of str
        Key of `trainyard.results.headline.GOALS` -> headline; goals without values are missing.
    about : mapping of (str, str)
        Title of a policy and goal -> the headline about it; see `headline_of`.
    table : DataFrame
        See `trainyard.results.compare.table`.
    changes : mapping
        Title of a policy other than the baseline -> change of completion times, job by job.
    certainty : str
        Note on the intervals, or why there are none; "" = no comparison.
    counts : DataFrame
        Number of jobs by outcome, see `trainyard.results.compare.counts`.
    trust, untold : Trust or None, str
        Comparison with the recorded waits, and why there is none.
    overflow : str
        Sentence on recorded GPUs that the cluster does not have; "" = none.
    remarks : mapping of str
        Title -> notes on that policy, including the allocator's own remarks.
    assumptions : tuple of str
        Assumptions of the performance model where the trace is silent.
    assumed : str
        The line below the headline: assumptions that affect these results; "" = none.
    skipped : mapping of str
        Title -> why a policy of the study cannot run here.
    not_common : str
        Note on jobs that not all policies completed; "" = none.
    frames : mapping
        Kind ("queue", "utilisation", "capacity", "states", "cdf", "allocation") -> title -> reduced
        frame of the first repeat; "cdf" of all.
    parts : DataFrame
        Parts of each policy's mean completion time, see `sim.metrics.jct_parts`: one row per
        policy, means over its repeats; `policy` first.
    job_ids : mapping of str
        Column of an "allocation" frame -> job id in the trace.
    left_out : mapping of int
        Title -> measured jobs that were not completed.
    end_s : float, seconds
        End of the longest run.
    epoch : str
        Instant of second 0, or "".
    facts : str
        Summary of the runs: jobs, GPUs, repeats.
    """

    mark: str
    labels: tuple[str, ...]
    baseline: str
    headlines: Mapping[str, Headline]
    about: Mapping[tuple[str, str], Headline]
    table: pd.DataFrame
    changes: Mapping[str, MetricChange]
    certainty: str
    counts: pd.DataFrame
    trust: Trust | None
    untold: str
    overflow: str
    remarks: Mapping[str, str]
    assumptions: tuple[str, ...]
    assumed: str
    skipped: Mapping[str, str]
    not_common: str
    frames: Mapping[str, Mapping[str, pd.DataFrame]]
    parts: pd.DataFrame
    job_ids: Mapping[str, str]
    left_out: Mapping[str, int]
    end_s: float
    epoch: str
    facts: str

    @property
    def first_headline(self) -> Headline:
        """The headline on the first goal."""
        return next(iter(self.headlines.values()))

    @property
    def headline(self) -> str:
        """Text of the headline on the first goal."""
        return self.first_headline.text

    def headline_of(self, title: str = "", goal: str = "") -> Headline:
        """Return the headline about a policy on a goal.

        Parameters
        ----------
        title : str
            One of `labels`; "" or the baseline = the policy with the largest clear effect. If no
            policy can be judged, all policies share one headline.
        goal : str
            A key of `headlines`; any other value = the first goal.
        """
        goal = goal if goal in self.headlines else next(iter(self.headlines))
        return self.about.get((title, goal), self.headlines[goal])


_GUESS: Final = (
    "The number of GPUs is a guess: no starts are recorded. Enter yours on the Trace page."
)


def keys(study: Study, store: Store) -> tuple[tuple[str, ...], ...]:
    """Return the result keys of a study: per policy, one per repeat.

    Raises
    ------
    TrainyardError
        If the trace cannot be found.
    """
    return tuple(
        tuple(scenario_key(scenario, store) for scenario in study.policy_scenarios(at))
        for at in range(len(study.allocators))
    )


def gather(study: Study, store: Store) -> StudyResults:
    """Collect the stored runs of a study, its replacement baseline and backtest verdict.

    Raises
    ------
    TrainyardError
        If the trace cannot be found.
    """
    result_keys = keys(study, store)
    entries = tuple(tuple(entry for key in own if (entry := store.get(key))) for own in result_keys)
    return StudyResults(
        study,
        study.titles,
        result_keys,
        entries,
        replacement_baseline(study, entries, store),
        backtest_verdict.best_verdict(study, store),
    )


def replacement_baseline(
    study: Study, entries: Sequence[Sequence[StoredResult]], store: Store
) -> int | None:
    """Return the index of the first policy that can run, if the baseline cannot.

    None if the baseline can run or has results, no policy has results, or the trace is missing.
    """
    if entries[study.baseline] or not any(entries):
        return None
    with suppress(TrainyardError):
        able = [
            at
            for at in range(len(study.allocators))
            if not new_study.refusal_reason(study, at, store)
        ]
        return able[0] if able and study.baseline not in able else None
    return None


def report(shown: StudyResults, store: Store, *, brief: bool = False) -> ComparisonReport | None:
    """Return the comparison of the complete runs; None without any.

    Differences are left out while the baseline is incomplete or the headline forbids them.

    Parameters
    ----------
    shown : StudyResults
        The runs.
    store : Store
        Holds the trace and the profiles.
    brief : bool
        Compute only the top of the Compare page: no frames but ``cdf``, no `parts`, and no
        comparison with the recorded history.

    Raises
    ------
    TrainyardError
        If a stored result was deleted.
    """
    places = shown.places
    if not places:
        return None
    source = load_source(shown.study.base.trace, store)
    outcomes = [outcome(shown, at) for at in places]
    base = places.index(shown.baseline) if (based := shown.baseline in places) else 0
    table = compare.table(outcomes, base)
    trace = load_trace(shown.study.base.trace, store)
    said = _compute_headlines(shown, outcomes, base, table, trace)
    headline = next(iter(said.first.values()))
    differ = based and not headline.withheld
    if not differ:
        table = table.assign(change=float("nan"), low=float("nan"), high=float("nan"), verdict="")
        table = table[table["metric"] != "slower"].reset_index(drop=True)
    if not based:
        table = table.assign(baseline=False)
    firsts = {shown.titles[at]: shown.entries[at][0] for at in places}
    counts = compare.counts(outcomes)
    frames = {
        kind: {title: entry.chart(kind) for title, entry in firsts.items()}
        for kind in (() if brief else _KINDS)
    }
    frames["cdf"] = {one.label: compare.cdf(one) for one in outcomes}
    return ComparisonReport(
        mark=shown.mark,
        labels=tuple(firsts),
        baseline=shown.titles[shown.baseline] if based else "",
        headlines=said.first,
        about=said.about,
        table=table,
        changes=compare.completion_changes(outcomes, base)
        if based and headline.verdict not in _HIDES_CHANGES
        else {},
        certainty=_interval_note(shown.study.repeats, table) if len(outcomes) > 1 and based else "",
        counts=counts,
        trust=None if brief else trust(trace, outcomes),
        untold=no_trust_reason(trace),
        remarks=_remarks(outcomes, firsts),
        assumptions=profiles.assumptions(shown.study.base.perf, trace, store),
        assumed=" ".join(
            [
                *([_GUESS] if is_guessed_cluster(source, shown.study.base.cluster) else []),
                *assumption_sentences(
                    shown.study,
                    trace,
                    [one for outcome in outcomes for one in outcome.summaries],
                    store,
                ),
            ]
        ),
        skipped=_skip_reasons(shown, trace),
        not_common=compare.uncommon_jobs_note(outcomes, base) if based else "",
        overflow=_overflow_sentence(
            [
                entry
                for outcome, entry in zip(outcomes, firsts.values(), strict=True)
                if outcome.replays
            ]
        ),
        frames=frames,
        parts=pd.DataFrame() if brief else _parts(shown),
        job_ids=job_ids(frames.get("allocation", {}).values(), trace),
        left_out={
            str(row["label"]): int(row["jobs"] - row["completed"])
            for row in counts.to_dict("records")
        },
        end_s=max(float(entry.summary["end_s"]) for entry in firsts.values()),
        epoch=trace.epoch,
        facts=_facts_line(
            shown.study,
            (len(trace), dropped_text(source.account)),
            table,
            compared=differ and len(outcomes) > 1,
        ),
    )


def _skip_reasons(shown: StudyResults, trace: Trace) -> dict[str, str]:
    """Return title -> reason, for the policies that cannot run on this trace and model."""
    reasons = [
        catalog.allocator(spec, trace, shown.study.base.perf).reason
        for spec in shown.study.allocators
    ]
    return {title: why for title, why in zip(shown.titles, reasons, strict=True) if why}


def measured_jobs(jobs: pd.DataFrame, study: Study) -> Mask:
    """Return the mask of measured jobs in the `jobs` frame of a run."""
    frames: dict[str, Any] = dict.fromkeys(FRAMES, pd.DataFrame()) | {"jobs": jobs}
    return measured_mask(RunResult(**frames, end_s=0.0), study.base.measure)


def safe_csv(table: pd.DataFrame) -> str:
    """Return CSV without spreadsheet formulas: cells that begin with = + - @ get an apostrophe."""
    escaped = table.copy()
    for name in escaped.columns:
        if not pd.api.types.is_numeric_dtype(escaped[name]):
            text = escaped[name].astype("str")
            escaped[name] = text.where(~text.str.match(_FORMULA), "'" + text).where(
                escaped[name].notna(), ""
            )
    return str(escaped.to_csv(index=False))


def outcome(shown: StudyResults, at: int) -> Outcome:
    """Return the outcome of the complete policy at index `at`.

    Metrics that an older version did not store are added; costs are NaN without a price.

    Raises
    ------
    StoreError
        If a stored result was deleted.
    """
    entries = shown.entries[at]
    replays = "recorded_start" in catalog.allocator(shown.study.allocators[at]).needs.reads
    jobs = tuple(entry.jobs() for entry in entries)
    masks = tuple(measured_jobs(frame, shown.study) for frame in jobs)
    return Outcome(
        label=shown.titles[at],
        summaries=tuple(
            _drop_unpriced_costs(
                _fill_summary(entry.summary, frame, mask), shown.study.base.cluster
            )
            for entry, frame, mask in zip(entries, jobs, masks, strict=True)
        ),
        jobs=jobs,
        replays=replays,
        overflow=replays and any(entry.summary.get("overflow_gpu_s") for entry in entries),
        measured=masks,
        costs_usd=lru_cache(maxsize=None)(lambda turn: _costs(entries[turn], shown.study)),
    )


def _fill_summary(summary: Mapping[str, Any], jobs: pd.DataFrame, mask: Mask) -> Mapping[str, Any]:
    """Return a summary, with metrics that an older version did not store computed from jobs."""
    facts = JobFacts(jobs, float(summary["end_s"]), mask)
    return {**compute_from_jobs(facts, computed=summary), **summary}


def _drop_unpriced_costs(summary: Mapping[str, Any], cluster: Cluster) -> Mapping[str, Any]:
    """Return a summary with its costs set to NaN if a GPU type has no price."""
    if not prices.types_without_own_price(cluster)[1]:
        return summary
    return {**summary, "cost_held_per_job_usd": np.nan, "cost_cluster_usd": np.nan}


def _compute_headlines(
    shown: StudyResults, outcomes: Sequence[Outcome], base: int, table: pd.DataFrame, trace: Trace
) -> Headlines:
    """Return the headlines of the complete policies.

    While the baseline is incomplete, one headline that says so, unless the load is too high.
    """
    metrics = set(table.loc[table["value"].notna(), "metric"])
    goals = [goal for goal in GOALS if goal in metrics] or [next(iter(GOALS))]
    facts = setting(shown.study, trace, dict(zip(shown.places, outcomes, strict=True)), shown.past)
    facts = replace(
        facts, replaced_baseline="" if shown.instead is None else shown.titles[shown.study.baseline]
    )
    found_headlines = headlines(
        outcomes, base, goals, table, len(shown.titles) - len(outcomes), facts
    )
    first = next(iter(found_headlines.first.values()))
    if shown.baseline in shown.places or first.verdict == "overload":
        return found_headlines
    waits = f"{shown.titles[shown.baseline]} is not complete, so nothing is compared yet."
    return Headlines({goals[0]: Headline("nothing", waits, load=first.load)}, {})


def _interval_note(repeats: int, table: pd.DataFrame) -> str:
    """Return the note on confidence intervals, or why there are none."""
    if repeats == 1:
        return (
            "One run per policy, so no confidence intervals. If failures or decisions are random,"
            f" use {MIN_REPEATS} repeats or more."
        )
    if table["low"].notna().any():
        return f"± is half of the 95 % interval, from {repeats} repeats with other seeds."
    if repeats < MIN_REPEATS:
        return f"{repeats} repeats are too few for intervals; {MIN_REPEATS} give them."
    return (
        "All repeats are equal, because nothing here is random. There are no confidence intervals."
    )


def _parts(shown: StudyResults) -> pd.DataFrame:
    """Return the mean completion time in parts, one row per policy, over its repeats.

    NaN if a repeat completed no job; `jobs` is the sum over repeats.
    """
    rows = []
    for at in shown.places:
        repeats = pd.concat([entry.chart("parts") for entry in shown.entries[at]])
        rows.append(
            {
                "policy": shown.titles[at],
                **repeats.mean(skipna=False),
                "jobs": int(repeats["jobs"].sum()),
            }
        )
    return pd.DataFrame(rows)


def job_ids(frames: Iterable[pd.DataFrame], trace: Trace) -> dict[str, str]:
    """Return the job ids of "allocation" frames: digit column (row of the trace) -> id."""
    rows = {name for frame in frames for name in frame.columns if name.isdigit()}
    ids = trace.frame["job_id"]
    return {row: str(ids.iloc[int(row)]) for row in rows}


def _costs(entry: StoredResult, study: Study) -> Floats:
    """Return the cost of every job of a run."""
    return np.asarray(UsageArrays(entry.result(), study.base.cluster).cost_held_usd())


def _overflow_sentence(entries: Sequence[StoredResult]) -> str:
    """Return the sentence on recorded GPUs beyond the cluster; "" = none.

    How often, most at once and GPU-hours, from the first run that has any.
    """
    lacking = next((entry for entry in entries if entry.summary.get("overflow_gpu_s")), None)
    if lacking is None:
        return ""
    spells = recorded_overflow(lacking.result())
    times = "once" if len(spells) == 1 else f"{len(spells):,} times"
    most = f"{spells['gpus'].max():,.0f}"
    return (
        f"The recording held more GPUs than this cluster has: {times}, at most {most}"
        f" GPU{'' if most == '1' else 's'} more, {spells['gpu_s'].sum() / 3600:,.0f} GPU-hours in"
        " all. The described cluster may be smaller than the real one was."
    )


def _remarks(outcomes: Sequence[Outcome], entries: Mapping[str, StoredResult]) -> dict[str, str]:
    """Return title -> notes joined by spaces, for the policies that have notes."""
    sentences_of = {
        outcome.label: [*([BEYOND] if outcome.overflow else []), *entries[outcome.label].remarks]
        for outcome in outcomes
    }
    return {label: " ".join(sentences) for label, sentences in sentences_of.items() if sentences}


def _facts_line(study: Study, read: tuple[int, str], table: pd.DataFrame, *, compared: bool) -> str:
    """Return jobs, GPUs, repeats and notes as one line; `read` = (jobs, text on omitted rows)."""
    jobs, dropped = read
    runs = "one run of each policy" if study.repeats == 1 else f"{study.repeats} repeats"
    notes = ["same jobs and seed for every policy"] if compared else []
    notes += ["95 % intervals"] if table["low"].notna().any() else []
    cluster = study.base.cluster
    machines = (
        plural(cluster.gpus, "GPU")
        if cluster.gpus
        else f"{plural(len(cluster.nodes), 'node')} without GPUs"
    )
    rest = f" ({dropped})" if dropped else ""
    return " · ".join([f"{plural(jobs, 'job')}{rest}", machines, runs, *notes])
