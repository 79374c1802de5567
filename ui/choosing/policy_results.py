"""Stored results of policies for the Policies page: notes in the list, text in the detail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import streamlit as st

from sim.errors import TrainyardError
from sim.metrics.registry import COLUMNS
from sim.params import Spec
from trainyard.formatting import BY_UNIT
from trainyard.results import decision_picture
from trainyard.results.headline import GOALS
from trainyard.results.outcomes import StudyResults
from trainyard.study.study import Study
from trainyard.traces import new_study
from ui import state, stored_results, url_params, words


class StoredNote(NamedTuple):
    """Result of a policy, e.g. "3.4 h", "−47 %"; `old` = of the scenario on Compare."""

    text: str
    change: str = ""
    old: bool = False


def judging_metric() -> str:
    """Return the metric that judges policies on Compare: session, URL, else the default."""
    chosen = st.session_state.get(url_params.GOAL) or url_params.get(url_params.GOAL)
    return chosen if chosen in GOALS else next(iter(GOALS))


def notes(study: Study, specs: Sequence[Spec]) -> dict[Spec, StoredNote]:
    """Return policy -> stored mean of the judging metric, with the change to the baseline.

    A policy without a result of this study gets its result of the scenario on Compare, marked old.
    A policy without any result is absent.
    """
    goal = judging_metric()
    displayed = state.session().displayed_study
    old_notes: dict[Spec, StoredNote] = {}
    if displayed is not None and not displayed.matches(study):
        old = _notes_of(stored_results.gather(displayed), goal)
        old_notes = {spec: note._replace(old=True) for spec, note in old.items()}
    # Ticks are not part of the key, so that they cause no new lookup.
    all_specs = tuple(dict.fromkeys(specs))
    cache_key = f"{goal} {study.base.canonical()} {study.repeats} {'; '.join(map(str, all_specs))}"
    try:
        new_notes = _all_notes(
            f"{cache_key} {stored_results.gather(study).mark}", study, all_specs, goal
        )
    except TrainyardError:
        return old_notes  # the trace is gone; the page reports it
    return old_notes | new_notes


def describe_result(spec: Spec, study: Study) -> str:
    """Return stored completion time, wait and cost of a policy as Markdown, or ""."""
    try:
        runs = stored_results.gather(new_study.with_policies(study, (spec,)))
    except TrainyardError:
        return ""  # the trace is gone; the page reports it
    if not runs.complete(0):
        return ""

    def mean(name: str) -> float:
        return fmean(float(entry.summary.get(name) or 0.0) for entry in runs.entries[0])

    parts = [
        f"Average completion time **{words.time(mean('jct_mean_s'))}**",
        f"average wait **{words.time(mean('wait_mean_s'))}**",
    ]
    if cost := mean("cost_held_per_job_usd"):
        parts.append(f"cost per job **{words.plain(words.money(cost))}**")
    facts = [f"{', '.join(parts)}.", decision_picture.decision_time_text(runs.entries[0])]
    return " ".join(filter(None, facts))


@st.cache_data(max_entries=256, ttl=60, show_spinner=False)
def _all_notes(
    cache_key: str, _study: Study, _specs: tuple[Spec, ...], _goal: str
) -> dict[Spec, StoredNote]:
    """Return policy -> note of stored results, for all policies of the list; cached."""
    del cache_key
    base = _specs.index(_study.allocators[_study.baseline])
    return _notes_of(stored_results.gather(new_study.with_policies(_study, _specs, base)), _goal)


def _notes_of(runs: StudyResults, goal: str) -> dict[Spec, StoredNote]:
    """Return policy -> note: mean of a metric over repeats, and its change to the baseline.

    Policies without complete results are absent. The change is omitted if a policy did not complete
    as many jobs as the baseline.
    """
    write = BY_UNIT[COLUMNS[goal].unit]
    means = {
        index: fmean(
            math.nan if (value := entry.summary.get(goal)) is None else float(value)
            for entry in runs.entries[index]
        )
        for index in runs.places
    }
    completed = {
        index: [entry.summary["completed"] for entry in runs.entries[index]]
        for index in runs.places
    }
    base, notes = runs.baseline, {}
    for index, mean in means.items():
        if math.isnan(mean):
            continue
        if index == base:
            change = "baseline"
        elif base in means and means[base] > 0 and completed[index] == completed[base]:
            change = words.change(mean / means[base] - 1)
        else:
            change = ""  # Compare shows the change over the jobs that both completed
        notes[runs.study.allocators[index]] = StoredNote(write(mean), change)
    return notes
