"""The tab "Quotas" of the Plan page: which quota each team needs."""

from __future__ import annotations

import math
from typing import Final

import pandas as pd
import streamlit as st

from sim.errors import TrainyardError
from trainyard.study.scenario import Scenario
from trainyard.sweeps.team_quotas import QuotaPlan, can_plan, plan_quotas
from trainyard.text import plural
from trainyard.traces import start
from trainyard.traces.sources import load_trace
from ui import figure, server, state, words

NAME: Final = "quotas"
"""Of the tab, in the address."""
_MOST_JOBS: Final = 5000
"""Jobs above which the search is one for the command line: it runs here while the page waits."""
_ABOUT: Final = (
    "Which quota does each team need, so that 95 % of its jobs start in time? Each team is searched"
    " with its own jobs; one run of all teams then shows whether the quotas hold together."
)


def draw() -> None:
    """Draw the tab."""
    st.write(_ABOUT)
    study, store = state.session().study, server.store()
    if start.trace_is_gone(study, store):
        return  # said above the page
    try:
        trace = load_trace(study.base.trace, store)
        if len(trace) > _MOST_JOBS:
            st.info(
                f"The trace has {plural(len(trace), 'job')}, too many to search while you wait here"
                f" (at most {_MOST_JOBS:,}). Choose a shorter window on the Trace page, or use"
                " trainyard tenants --wait-target on the command line.",
                icon=":material/terminal:",
            )
            return
        able = [
            title
            for title, spec in zip(study.titles, study.allocators, strict=True)
            if can_plan(spec)
        ]
        if not able:
            st.info("No policy of the scenario is simulated: choose one.", icon=":material/rule:")
            st.page_link("pages/policies.py", label="Choose policies", icon=":material/rule:")
            return
        with st.container(horizontal=True, vertical_alignment="bottom"):
            title = st.selectbox("Policy within the quotas", able, key="quotas_policy", width=320)
            minutes = st.number_input(
                "95 % of jobs start within (min)", 0.0, 1e6, 60.0, key="quotas_min", width=240
            )
            asked = st.button("Find quotas", key="quotas_find", type="primary")
        scenario = study.repeated(study.titles.index(title))[0]
        known = _KEPT in st.session_state and st.session_state[_KEPT][0] == (scenario, minutes)
        if asked and not known:
            with st.spinner("Running each team alone, then all together"):
                found = plan_quotas(scenario, trace, 60.0 * minutes)
            st.session_state[_KEPT] = ((scenario, minutes), found)
            known = True
        if known:
            _answer(scenario, st.session_state[_KEPT][1])
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")


_KEPT: Final = "quotas_found"


def _answer(scenario: Scenario, plan: QuotaPlan) -> None:
    st.markdown(f"**{words.plain(plan.sentence)}** {plural(plan.runs, 'run')}.")
    rows = [
        {
            "Team": need.team,
            "Jobs": need.jobs,
            "Quota needed (GPUs)": f"over {plan.gpus}" if need.quota is None else str(need.quota),
            f"95 % start within{figure.SECONDS}": _finite(need.wait_s),
            f"All teams together{figure.SECONDS}": _finite(need.together_s),
        }
        for need in plan.needs
    ]
    figure.show(pd.DataFrame(rows), hide_index=True, width="stretch", placeholder="never")
    st.caption(
        words.plain(
            f"Hard quotas around {scenario.allocator.name}, by bisection: from each team's largest"
            " job to the whole cluster. As a table for the policy Quotas:"
        )
    )
    st.code(plan.table, language=None, wrap_lines=True)


def _finite(seconds: float) -> float:
    return math.nan if math.isinf(seconds) else seconds
