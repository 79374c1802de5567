"""Actions of the buttons on Compare: suggestions, compare anyway, run other policies."""

from __future__ import annotations

from typing import Final

import streamlit as st

from sim.params import Spec
from trainyard.preflight import leave_out
from trainyard.results import suggestions
from trainyard.results.suggestions import Suggestion
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace
from ui import server, state, stored_results, url_params

_INSISTED: Final = "insisted"


def is_compared_anyway(runs_mark: str) -> bool:
    """Return True if the user chose "Compare anyway" for the runs with this mark."""
    return bool(st.session_state.get(_INSISTED) == runs_mark)


def apply_suggestion(suggestion: Suggestion) -> None:
    """Change the scenario as a suggestion says, then run it or open another page."""
    session = state.session()
    study = session.displayed_study or session.study
    if suggestion == suggestions.COMPARE_ANYWAY:
        st.session_state[_INSISTED] = stored_results.gather(study).mark
        st.rerun()
    changed = suggestions.apply_suggestion(
        study, suggestion, load_trace(study.base.trace, server.store())
    )
    if not changed.matches(session.study):
        session.replace(changed)
    if suggestion.name == "enough_gpus":
        st.session_state[state.SIZE_CLUSTER] = True
        _open_plan_tab(url_params.BUY)
    if suggestion == suggestions.CHECK_PAST:
        _open_plan_tab(url_params.PAST)
    if suggestion == suggestions.NAME_SPEEDS:
        st.switch_page("pages/trace.py", query_params=state.url_parameters())
    if suggestion == suggestions.LEAVE_OUT:
        session.replace(leave_out.without_unschedulable(session.study, server.store()))
    session.run()
    st.rerun()


def _open_plan_tab(tab: str) -> None:
    """Open the Plan page with a tab selected; ends this run of the script."""
    st.switch_page("pages/plan.py", query_params=state.url_parameters() | {url_params.TAB: tab})


def run_without(policy: Spec) -> None:
    """Remove a policy from the scenario, run the remaining policies, and rerun the page."""
    session = state.session()
    others = tuple(spec for spec in session.study.allocators if spec != policy)
    baseline = session.study.allocators[session.study.baseline]
    baseline_index = others.index(baseline) if baseline in others else 0
    session.replace(new_study.with_policies(session.study, others, baseline_index))
    session.run()
    st.rerun()


def run_with(policy: Spec) -> None:
    """Add a policy to the scenario, run the scenario, and rerun the page."""
    session = state.session()
    study = session.study
    session.replace(study.choosing((*study.allocators, policy), study.baseline))
    session.run()
    st.rerun()
