"""Comments at the top of a patch: its runs, their predictions and their limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sim.conditions import Measure
from sim.trace import Trace
from trainyard.formatting import duration, plural
from trainyard.results.backtest_verdict import Past
from trainyard.store import StoredResult
from trainyard.study.scenario import Scenario

_FIGURES: Final = {"wait_mean_s": "Mean wait", "jct_mean_s": "Mean completion time"}


class ExportRun(NamedTuple):
    """One run behind a patch: scenario, key of the result, numbers and policy remarks."""

    scenario: Scenario
    key: str
    summary: Mapping[str, Any]
    remarks: tuple[str, ...]

    @classmethod
    def from_entry(cls, entry: StoredResult) -> ExportRun:
        """Return the run of a stored result."""
        scenario = Scenario.from_json(entry.scenario)
        return cls(scenario, entry.key, entry.summary, entry.remarks)


def caveats(
    trace: Trace, before: Sequence[ExportRun], after: Sequence[ExportRun], past: Past | None
) -> list[str]:
    """Return the comments for the top of a patch: runs, jobs, changes, spread and backtest.

    Parameters
    ----------
    trace : Trace
        The jobs.
    before, after : sequence of ExportRun
        Repeats under the configuration in force and under the new one.
    past : Past, optional
        Result of a backtest of the configuration in force.
    """
    cluster = before[0].scenario.cluster
    repeats = plural(len(after), "repeat")
    return [
        f"Simulated by Trainyard: run {_short_keys(after)} for this configuration, run"
        f" {_short_keys(before)} for the one in force.",
        f"Jobs: {trace.name}, {plural(len(trace), 'job')} submitted over"
        f" {duration(trace.span_s)}. Cluster: {plural(sum(n.gpus for n in cluster.nodes), 'GPU')}"
        f" on {plural(len(cluster.nodes), 'node')}.",
        _measured_jobs(after[0].scenario),
        *(_change_sentence(name, figure, before, after) for figure, name in _FIGURES.items()),
        f"Spread: {repeats} of each"
        + (", lowest and highest in brackets." if len(after) > 1 else "; the spread is unknown."),
        (
            f"Backtest: {past.full_sentence}"
            if past is not None
            else "No backtest: until trainyard backtest has judged the configuration in force, take"
            " these figures as a ranking, not as a forecast."
        ),
        *(f"In the simulation: {one}" for one in dict.fromkeys(after[0].remarks)),
    ]


def comments(sentences: Sequence[str]) -> str:
    """Return sentences as comment lines of a file."""
    return "".join(f"# {' '.join(sentence.split())}\n" for sentence in sentences)


def _measured_jobs(scenario: Scenario) -> str:
    """Return the sentence on which jobs the numbers include."""
    measure = scenario.measure
    if measure == Measure():
        return "Measured: all jobs."
    spans = []
    if math.isfinite(measure.from_s) or math.isfinite(measure.to_s):
        spans.append(
            f"submitted from {duration(max(measure.from_s, 0.0))}"
            + (f" to {duration(measure.to_s)}" if math.isfinite(measure.to_s) else " on")
        )
    if measure.first_job or measure.last_job is not None:
        last = "the last" if measure.last_job is None else f"{measure.last_job + 1:,}"
        spans.append(f"number {measure.first_job + 1:,} to {last}")
    return f"Measured: jobs {' and '.join(spans)}."


def _short_keys(runs: Sequence[ExportRun]) -> str:
    return ", ".join(one.key[:12] for one in runs)


def _change_sentence(
    name: str, figure: str, before: Sequence[ExportRun], after: Sequence[ExportRun]
) -> str:
    """Return a metric's mean before and after, and the range of its change by repeat."""
    said = f"{name}: {_mean_text(figure, before)} -> {_mean_text(figure, after)}"
    changes = [
        float(new.summary[figure]) - float(old.summary[figure])
        for old, new in zip(before, after, strict=True)
    ]
    if len(changes) == 1 or not all(map(math.isfinite, changes)):
        return f"{said}."
    low, high = (_signed_duration(one) for one in (min(changes), max(changes)))
    return f"{said}; repeat by repeat {low} to {high}."


def _signed_duration(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{duration(abs(seconds))}"


def _mean_text(figure: str, runs: Sequence[ExportRun]) -> str:
    """Return the mean of a duration over runs as text, with the range if there are several."""
    values = [float(one.summary[figure]) for one in runs]
    if any(math.isnan(value) for value in values):
        return "unknown, as no job finished"
    mean = duration(sum(values) / len(values))
    if len(values) == 1:
        return mean
    return f"{mean} ({duration(min(values))} to {duration(max(values))})"
