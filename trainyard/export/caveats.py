"""What a patch rests on: the runs that were made, what they predict and what they left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sim.conditions import Measure
from sim.trace import Trace
from trainyard.results.past import Past
from trainyard.store import StoredResult
from trainyard.study.scenario import Scenario
from trainyard.text import duration, plural

_FIGURES: Final = {"wait_mean_s": "Mean wait", "jct_mean_s": "Mean time to finish"}


class ExportRun(NamedTuple):
    """One run: its scenario, the key of its result, the numbers, and what the policy said."""

    scenario: Scenario
    key: str
    summary: Mapping[str, Any]
    remarks: tuple[str, ...]

    @classmethod
    def stored(cls, entry: StoredResult) -> ExportRun:
        """Return a run that is kept."""
        scenario = Scenario.from_json(entry.scenario)
        return cls(scenario, entry.key, entry.summary, entry.remarks)


def caveats(
    trace: Trace, before: Sequence[ExportRun], after: Sequence[ExportRun], past: Past | None
) -> list[str]:
    """Return sentences for the top of a patch.

    Parameters
    ----------
    trace : Trace
        The jobs.
    before, after : sequence of Simulated
        Repeats under the configuration in force and under the new one.
    past : Past, optional
        What a check against the past found of the first.
    """
    cluster = before[0].scenario.cluster
    repeats = plural(len(after), "repeat")
    return [
        f"Simulated by Trainyard, exactly this configuration: run {_keys(after)}; the one in force:"
        f" run {_keys(before)}.",
        f"Jobs: {trace.name}, {plural(len(trace), 'job')} submitted over"
        f" {duration(trace.span_s)}. Cluster: {plural(sum(n.gpus for n in cluster.nodes), 'GPU')}"
        f" on {plural(len(cluster.nodes), 'node')}.",
        _measured(after[0].scenario),
        *(_predicted(name, figure, before, after) for figure, name in _FIGURES.items()),
        f"Spread: {repeats} of each"
        + (", lowest and highest in brackets." if len(after) > 1 else "; no spread is known."),
        (
            f"Check against the past: {past.told}"
            if past is not None
            else "Not checked against the past: until trainyard backtest has judged the"
            " configuration in force, take these figures as an order, not as a forecast."
        ),
        *(f"In the simulation: {one}" for one in dict.fromkeys(after[0].remarks)),
    ]


def comments(sentences: Sequence[str]) -> str:
    """Return sentences as comments of a file, a line each."""
    return "".join(f"# {' '.join(sentence.split())}\n" for sentence in sentences)


def _measured(scenario: Scenario) -> str:
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


def _keys(runs: Sequence[ExportRun]) -> str:
    return ", ".join(one.key[:12] for one in runs)


def _predicted(
    name: str, figure: str, before: Sequence[ExportRun], after: Sequence[ExportRun]
) -> str:
    said = f"{name}: {_mean(figure, before)} -> {_mean(figure, after)}"
    changes = [
        float(new.summary[figure]) - float(old.summary[figure])
        for old, new in zip(before, after, strict=True)
    ]
    if len(changes) == 1 or not all(map(math.isfinite, changes)):
        return f"{said}."
    low, high = (_signed(one) for one in (min(changes), max(changes)))
    return f"{said}; repeat by repeat {low} to {high}."


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{duration(abs(seconds))}"


def _mean(figure: str, runs: Sequence[ExportRun]) -> str:
    values = [float(one.summary[figure]) for one in runs]
    if any(math.isnan(value) for value in values):
        return "unknown, as no job finished"
    mean = duration(sum(values) / len(values))
    if len(values) == 1:
        return mean
    return f"{mean} ({duration(min(values))} to {duration(max(values))})"
