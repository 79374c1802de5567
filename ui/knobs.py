"""What else may differ from the recorded world: restart cost, failures, beliefs and the speed model, each a form of its declared parameters."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from lab import catalog, start
from lab.catalog import Choice
from lab.front import Spec, TrainyardError
from ui import forms, state, words


def draw() -> None:
    """Draw the forms, folded; an unusable value is said and not taken over."""
    base = state.desk().study.base
    with st.expander("Restart cost and checkpoints", expanded=bool(base.overheads.params)):
        _single("overheads")
    with st.expander("Failures and repairs", expanded=bool(base.faults.params)):
        _single("faults")
    with st.expander("What schedulers believe of run times", expanded=base.belief != catalog.canonical("belief", Spec("exact"))):
        _chosen("belief", "Belief", catalog.beliefs())
    with st.expander("How fast jobs run", expanded=bool(base.perf.params)):
        _chosen("perf", "Performance model", catalog.perf_models())


def _single(kind: str) -> None:
    chosen: Spec = getattr(state.desk().study.base, kind)
    _take(kind, forms.spec(kind, chosen, state.widget(kind)))


def _chosen(kind: str, label: str, choices: Sequence[Choice]) -> None:
    now: Spec = getattr(state.desk().study.base, kind)
    by_name = {choice.name: choice for choice in choices}
    names = list(by_name)
    name = st.selectbox(label, names, names.index(now.name), key=state.widget(kind), format_func=lambda one: by_name[one].title)
    st.caption(by_name[name].help)
    _take(kind, forms.spec(name, now if now.name == name else Spec(name), state.widget(kind, name)))


def _take(kind: str, spec: Spec) -> None:
    mine = state.desk()
    try:
        made = catalog.canonical(kind, spec)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    if made != getattr(mine.study.base, kind):
        mine.edit(start.with_model(mine.study, kind, made))
