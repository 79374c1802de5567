"""From the runs of a command to the headline that stands on them, the same as on Compare and in the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sim.metrics import measured
from sim.result import RunResult
from sim.trace import Trace
from trainyard.results.compare import Outcome
from trainyard.results.headline import Headline, headline
from trainyard.results.meaning import setting
from trainyard.study import catalog
from trainyard.study.study import Study


class Ran(NamedTuple):
    """One run of a study, with its numbers."""

    result: RunResult
    summary: Mapping[str, Any]


def headline_of(study: Study, trace: Trace, runs: Sequence[Ran], asked: Study | None = None) -> Headline:
    """Return the headline of a study.

    Parameters
    ----------
    study, trace : Study, Trace
        What was asked, and its jobs.
    runs : sequence of Ran
        All repeats of the first policy, then those of the next one.
    asked : Study or None
        What this is a part of: ways out name places in it, and its baseline may not be here.
    """
    turns = study.repeats
    outcomes = {at: _outcome(study, at, runs[at * turns : (at + 1) * turns]) for at in range(len(study.allocators))}
    known = setting(study, trace, outcomes)
    if asked is not None:
        places = {label: asked.allocators.index(study.allocators[at]) for label, at in known.references.items()}
        there = study.allocators[study.baseline] == asked.allocators[asked.baseline]
        known = replace(known, references=places, asked="" if there else asked.labels[asked.baseline])
    return headline(tuple(outcomes.values()), study.baseline, setting=known)


def _outcome(study: Study, at: int, runs: Sequence[Ran]) -> Outcome:
    replays = "recorded_start" in catalog.allocator(study.allocators[at]).needs
    return Outcome(
        label=study.labels[at],
        summaries=tuple(one.summary for one in runs),
        jobs=tuple(one.result.jobs for one in runs),
        replays=replays,
        overflow=replays and any(one.summary["overflow_gpu_s"] for one in runs),
        measured=tuple(measured(one.result, study.base.measure) for one in runs),
    )
