"""What else may differ from the recorded world: restart cost, failures, and how well run times are
estimated, each a form of its declared parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from sim.params import Spec
from trainyard.study import catalog
from trainyard.study.catalog import CatalogEntry
from trainyard.study.scenario import NEW_COSTS, NO_OVERHEADS
from trainyard.traces import start
from ui import state, words
from ui.choosing import forms

_ESTIMATES: Final = (
    "For policies that need run times; the tab Accuracy on Compare shows how good the"
    " estimates were."
)


def draw() -> None:
    """Draw the forms, folded; an unusable value is explained and not taken over."""
    base = state.session().study.base
    # Filled after the forms, which may change what it says.
    notes = st.container()
    with st.expander(
        "Restart cost and checkpoints", expanded=base.overheads not in (NO_OVERHEADS, NEW_COSTS)
    ):
        _measured()
        _single("overheads")
    with st.expander("Failures and repairs", expanded=bool(base.faults.params)):
        _single("faults")
    with notes:
        now = state.session().study.base
        costs, failures = (
            words.plain(catalog.values_in_words(kind, spec)) or "none"
            for kind, spec in (("overheads", now.overheads), ("faults", now.faults))
        )
        st.caption(f"Restart cost: {costs} · failures: {failures}")


def estimates() -> None:
    """Draw what policies that ask for run times get to know of them, behind a button."""
    with st.popover(
        "Run-time estimates", key="estimates_box", on_change="rerun", help=_ESTIMATES
    ) as box:
        if box.open:
            _chosen("estimator", "Run-time estimates", catalog.estimators())


def _measured() -> None:
    """Draw the measured times of checkpoints, which fill the form below."""
    by_name = {choice.name: choice for choice in catalog.checkpoints()}
    name = st.selectbox(
        "Fill in measured times",
        list(by_name),
        None,
        key=state.widget_key("checkpoints"),
        format_func=lambda one: by_name[one].title,
        width=320,
    )
    if name is None:
        return
    session = state.session()
    before = session.study.base.overheads
    made = catalog.canonical(
        "overheads", Spec.of(before.name, **{**before.values, **catalog.checkpoint_values(name)})
    )
    session.replace(start.with_model(session.study, "overheads", made))
    session.news = f"{by_name[name].title}: {by_name[name].help}."
    st.rerun()


def _single(kind: str) -> None:
    chosen: Spec = getattr(state.session().study.base, kind)
    take(kind, forms.spec(kind, chosen, state.widget_key(kind)))


def _chosen(kind: str, label: str, choices: Sequence[CatalogEntry]) -> None:
    now: Spec = getattr(state.session().study.base, kind)
    by_name = {choice.name: choice for choice in choices}
    names = list(by_name)
    name = st.selectbox(
        label,
        names,
        names.index(now.name),
        key=state.widget_key(kind),
        format_func=lambda one: by_name[one].title,
    )
    st.caption(by_name[name].help)
    take(
        kind,
        forms.spec(name, now if now.name == name else Spec(name), state.widget_key(kind, name)),
    )


def take(kind: str, spec: Spec) -> None:
    """Take a model over into the scenario; an unusable value is explained instead."""
    session = state.session()
    try:
        made = catalog.canonical(kind, spec)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    if made != getattr(session.study.base, kind):
        session.edit(start.with_model(session.study, kind, made))
