"""Restart cost, failures and run-time estimates, as forms of their declared parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from sim.params import Spec
from trainyard.study import catalog
from trainyard.study.catalog import CatalogEntry
from trainyard.study.scenario import NEW_COSTS, NO_OVERHEADS
from trainyard.traces import new_study
from ui import state, words
from ui.choosing import forms

_ESTIMATES: Final = (
    "For policies that need run times. Compare shows how good the estimates were (tab Accuracy)."
)


def draw() -> None:
    """Draw the forms of restart cost and failures, and a caption that sums them up."""
    base = state.session().study.base
    # Filled after the forms, which may change it.
    notes = st.container()
    with st.expander(
        "Restart cost and checkpoints", expanded=base.overheads not in (NO_OVERHEADS, NEW_COSTS)
    ):
        _draw_measured_times()
        _draw_model_form("overheads")
    with st.expander("Failures and repairs", expanded=bool(base.faults.params)):
        _draw_model_form("faults")
    with notes:
        base_after = state.session().study.base
        costs, failures = (
            words.plain(catalog.describe_values(kind, spec)) or "not simulated"
            for kind, spec in (("overheads", base_after.overheads), ("faults", base_after.faults))
        )
        st.caption(f"Restart cost: {costs}. Failures: {failures}.")


def draw_estimates() -> None:
    """Draw the choice of the run-time estimator, with its form, in a popover."""
    with st.popover(
        "Run-time estimates", key="estimates_box", on_change="rerun", help=_ESTIMATES
    ) as box:
        if box.open:
            _draw_model_choice("estimator", "Run-time estimates", catalog.estimators())


def _draw_measured_times() -> None:
    """Draw the choice of measured checkpoint times; copy a choice into the restart cost."""
    by_name = {choice.name: choice for choice in catalog.checkpoints()}
    name = st.selectbox(
        "Fill in measured times",
        list(by_name),
        None,
        key=state.widget_key("checkpoints"),
        format_func=lambda choice_name: by_name[choice_name].title,
        width=320,
    )
    if name is None:
        return
    session = state.session()
    before = session.study.base.overheads
    overheads = catalog.canonical(
        "overheads", Spec.of(before.name, **{**before.values, **catalog.checkpoint_values(name)})
    )
    session.replace(new_study.with_model(session.study, "overheads", overheads))
    session.news = f"{by_name[name].title}: {by_name[name].help}."
    st.rerun()


def _draw_model_form(kind: str) -> None:
    """Draw the form of a kind with one model (overheads, faults); apply its values."""
    chosen: Spec = getattr(state.session().study.base, kind)
    apply_model(kind, forms.draw_spec(kind, chosen, state.widget_key(kind)))


def _draw_model_choice(kind: str, label: str, choices: Sequence[CatalogEntry]) -> None:
    """Draw the choice of a model and its form; put both into the scenario."""
    current: Spec = getattr(state.session().study.base, kind)
    by_name = {choice.name: choice for choice in choices}
    names = list(by_name)
    name = st.selectbox(
        label,
        names,
        names.index(current.name),
        key=state.widget_key(kind),
        format_func=lambda choice_name: by_name[choice_name].title,
    )
    st.caption(by_name[name].help)
    apply_model(
        kind,
        forms.draw_spec(
            name, current if current.name == name else Spec(name), state.widget_key(kind, name)
        ),
    )


def apply_model(kind: str, spec: Spec) -> None:
    """Put a model into the scenario if it differs, or draw why it is invalid."""
    session = state.session()
    try:
        canonical = catalog.canonical(kind, spec)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    if canonical != getattr(session.study.base, kind):
        session.edit(new_study.with_model(session.study, kind, canonical))
