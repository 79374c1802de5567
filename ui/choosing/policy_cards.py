"""The catalogue of policies: a card for each with what it does, costs and needs, a choice, its variants and their forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from sim.params import Spec
from trainyard.preflight import preflight
from trainyard.results import outcomes
from trainyard.study import catalog
from trainyard.study.catalog import Choice
from trainyard.traces import start
from ui import state, words
from ui.choosing import decides, forms, knobs

_NEEDS: Final[Mapping[str, str]] = {
    "remaining_work": "a guess at run times",
    "rates": "speed per GPU type",
    "pause": "the cost of a restart",
    "resources": "a guess at cores and memory",
    "telemetry": "measurements of running jobs",
    "scaling": "jobs that can be resized",
    "servers": "jobs made of workers and parameter servers",
    "profile": "measured profiles of models",
    "recorded_start": "recorded start times",
    "confined_by_vc": "nodes that name their virtual clusters",
    "confined_by_partition": "nodes that name their partitions",
}


def goal(choices: Sequence[Choice]) -> list[Choice]:
    """Draw the choice of what a policy is for, and return the policies that are for it; those of the study are always among them, and first."""
    goals = list(dict.fromkeys(goal for choice in choices if choice.card is not None for goal in choice.card.goals))
    wanted = st.pills("Show policies for", goals, key="goal")
    chosen = {spec.name for spec in state.desk().study.allocators}
    shown = [choice for choice in choices if wanted is None or choice.name in chosen or (choice.card is not None and wanted in choice.card.goals)]
    return sorted(shown, key=lambda choice: choice.name not in chosen)


def baseline() -> None:
    """Draw the choice of what others are compared with."""
    mine = state.desk()
    titles = outcomes.titles(mine.study.allocators)
    places = list(range(len(titles)))
    # The key holds the names: with other policies in the list it is another choice.
    key = state.widget("baseline", *titles)
    at = st.selectbox(
        "Baseline", places, mine.study.baseline, key=key, format_func=lambda place: titles[place], help="The others are compared with it.", width=360
    )
    if at != mine.study.baseline:
        mine.edit(start.with_policies(mine.study, mine.study.allocators, at))


def card(choice: Choice, largest: int = 1) -> None:
    """Draw one policy of the catalogue; `largest` = GPUs of the largest job."""
    mine = state.desk()
    places = [at for at, spec in enumerate(mine.study.allocators) if spec.name == choice.name]
    with st.container(border=True):
        _choose(choice, places)
        about = choice.card
        if about is not None:
            st.markdown(f"{about.what} {about.cost}")
            needs = ", ".join(text for need, text in _NEEDS.items() if need in choice.needs) or "nothing beyond the queue"
            st.caption(f"Needs {needs}. {about.limits}")
        for remark in choice.remarks:
            st.caption(f":material/info: {words.plain(remark)}")
        # Variants may say the same.
        for warning in dict.fromkeys(text for at in places for text in preflight.warnings(mine.study.allocators[at], mine.study.base.overheads, largest)):
            st.caption(f":material/warning: {words.plain(warning)}")
        if choice.reason:
            st.caption(f":material/block: Cannot run here: {words.plain(choice.reason)}")
            _way_out(choice)
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            decides.draw(choice)
            for number, at in enumerate(places):
                _variant(choice, at, number, len(places))
            if places and choice.params and st.button("Add a variant", key=f"add/{choice.name}", icon=":material/add:", type="tertiary"):
                _set([*mine.study.allocators, Spec(choice.name)], mine.study.baseline)
        if seen := decides.solve_time(choice.name):
            st.caption(f":material/timer: {seen}")


def _way_out(choice: Choice) -> None:
    if choice.lacks == "scaling" and st.button("Let jobs scale", key=f"scale/{choice.name}", icon=":material/open_in_full:"):
        knobs.let_scale()
        st.rerun()


def _choose(choice: Choice, places: list[int]) -> None:
    mine = state.desk()
    last = len(places) == len(mine.study.allocators)
    help_text = "At least one policy must be chosen." if places and last else None
    locked = bool(choice.reason and not places) or bool(places and last)
    key = state.widget("choose", choice.name, bool(places))
    chosen = st.checkbox(f"**{choice.title}**", bool(places), key=key, disabled=locked, help=help_text)
    if chosen and not places:
        _set([*mine.study.allocators, Spec(choice.name)], mine.study.baseline)
    elif places and not chosen:
        _remove(set(places))


def _variant(choice: Choice, at: int, number: int, count: int) -> None:
    mine = state.desk()
    if not choice.params:
        return
    spec = mine.study.allocators[at]
    name = outcomes.titles(mine.study.allocators)[at] if count > 1 else "Parameters"
    with st.popover(words.plain(name), key=state.widget("box", choice.name, number)):
        made = forms.spec(choice.name, spec, state.widget("policy", choice.name, number))
        try:
            tidy = catalog.canonical("allocator", made)
        except TrainyardError as error:
            st.error(words.plain(f"{error} Until then the last values that go together are used."), icon=":material/error:")
            return
        for remark in catalog.allocator(tidy).remarks:
            if remark not in choice.remarks:
                st.caption(f":material/info: {words.plain(remark)}")
        if tidy != spec:
            specs = list(mine.study.allocators)
            specs[at] = tidy
            mine.edit(start.with_policies(mine.study, tuple(specs), mine.study.baseline))
        if count > 1 and st.button("Remove this variant", key=f"remove/{choice.name}/{number}", icon=":material/delete:", type="tertiary"):
            _remove({at})


def _remove(places: set[int]) -> None:
    mine = state.desk()
    specs = mine.study.allocators
    kept = [at for at in range(len(specs)) if at not in places]
    baseline_at = kept.index(mine.study.baseline) if mine.study.baseline in kept else 0
    _set([specs[at] for at in kept], baseline_at)


def _set(specs: list[Spec], baseline_at: int) -> None:
    mine = state.desk()
    mine.replace(start.with_policies(mine.study, tuple(specs), baseline_at))
    st.rerun()
