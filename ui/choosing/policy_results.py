"""What is stored of policies on the jobs of a scenario, for the list and the detail of the Policies
page; the list follows what Compare judges by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import streamlit as st

from sim.errors import TrainyardError
from sim.metrics.registry import COLUMNS
from sim.params import Spec
from trainyard.results import decision_picture
from trainyard.results.headline import GOALS
from trainyard.results.outcomes import Shown
from trainyard.study.study import Study
from trainyard.text import BY_UNIT
from trainyard.traces import start
from ui import state, stored_results, url_params, words


class StoredNote(NamedTuple):
    """The result of a policy in a few words: "3.4 h −47 %"; `old` = it is that of the scenario on
    Compare, not of the one being edited.
    """

    text: str
    old: bool = False


def judged_by() -> str:
    """Return the metric that Compare judges by."""
    asked = st.session_state.get(url_params.GOAL) or url_params.get(url_params.GOAL)
    return asked if asked in GOALS else next(iter(GOALS))


def notes(study: Study, specs: Sequence[Spec]) -> dict[Spec, StoredNote]:
    """Return the value of policies on what Compare judges by, and the difference to the baseline,
    of those that are stored.
    """
    goal = judged_by()
    shown = state.session().displayed_study
    found: dict[Spec, StoredNote] = {}
    if shown is not None and not shown.matches(study):
        old = _notes(stored_results.gather(shown), goal)
        found = {spec: StoredNote(text, old=True) for spec, text in old.items()}
    # What is ticked plays no part, so that nothing is looked up again for it.
    every = tuple(dict.fromkeys(specs))
    mark = f"{goal} {study.base.canonical()} {study.repeats} {'; '.join(map(str, every))}"
    try:
        texts = _of_all(f"{mark} {stored_results.gather(study).mark}", study, every, goal)
    except TrainyardError:
        return found  # the trace is gone, as the page says
    return found | {spec: StoredNote(text) for spec, text in texts.items()}


def sentence(spec: Spec, study: Study) -> str:
    """Return what is stored of one policy, as Markdown; "" = nothing."""
    try:
        runs = stored_results.gather(start.with_policies(study, (spec,)))
    except TrainyardError:
        return ""  # the trace is gone, as the page says
    if not runs.complete(0):
        return ""

    def mean(name: str) -> float:
        return fmean(float(entry.summary.get(name) or 0.0) for entry in runs.entries[0])

    parts = [
        f"Average time to finish **{words.time(mean('jct_mean_s'))}**",
        f"average wait **{words.time(mean('wait_mean_s'))}**",
    ]
    if cost := mean("cost_held_per_job_usd"):
        parts.append(f"cost per job **{words.plain(words.money(cost))}**")
    engine = words.ENGINES[runs.entries[0][0].engine]
    facts = [f"{', '.join(parts)} ({engine}).", decision_picture.solve_time(runs.entries[0])]
    return " ".join(filter(None, facts))


@st.cache_data(max_entries=256, ttl=60, show_spinner=False)
def _of_all(mark: str, _study: Study, _specs: tuple[Spec, ...], _goal: str) -> dict[Spec, str]:
    del mark
    base = _specs.index(_study.allocators[_study.baseline])
    return _notes(stored_results.gather(start.with_policies(_study, _specs, base)), _goal)


def _notes(runs: Shown, goal: str) -> dict[Spec, str]:
    write = BY_UNIT[COLUMNS[goal].unit]
    means = {
        at: fmean(
            math.nan if (value := entry.summary.get(goal)) is None else float(value)
            for entry in runs.entries[at]
        )
        for at in runs.places
    }
    done = {at: [entry.summary["completed"] for entry in runs.entries[at]] for at in runs.places}
    base, found = runs.baseline, {}
    for at, mean in means.items():
        if math.isnan(mean):
            continue
        if at == base:
            change = "baseline"
        elif base in means and means[base] > 0 and done[at] == done[base]:
            change = words.change(mean / means[base] - 1)
        else:
            change = ""  # Compare tells the difference over the jobs that both completed
        found[runs.study.allocators[at]] = f"{write(mean)} {change}".strip()
    return found
