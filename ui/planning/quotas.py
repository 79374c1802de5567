"""The tab "Quotas" of Plan: the quota that each tenant needs for a wait target."""

from __future__ import annotations

import math
from typing import Final

import pandas as pd
import streamlit as st

from sim.errors import TrainyardError
from trainyard.formatting import common_unit, plural
from trainyard.results.tenants import TENANT_NOUNS, column_of
from trainyard.study import catalog
from trainyard.study.scenario import Scenario
from trainyard.sweeps import summaries
from trainyard.sweeps.team_quotas import QuotaPlan, can_plan, plan_quotas
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace
from ui import server, state, words

NAME: Final = "quotas"
"""Name of the tab in the URL."""
_MAX_JOBS: Final = 5000
"""Maximum jobs of a search on the page, which blocks; larger ones need the command line."""
_ABOUT: Final = (
    "Finds the smallest quota per tenant at which 95 % of its jobs start in time, then checks all"
    " quotas in one run."
)


def draw() -> None:
    """Draw the tab "Quotas": the form, and the result; the search blocks the page."""
    st.write(_ABOUT)
    study, store = state.session().study, server.store()
    if new_study.is_trace_missing(study, store):
        return  # a warning above the page reports it
    try:
        trace = load_trace(study.base.trace, store)
        if len(trace) > _MAX_JOBS:
            st.info(
                f"The trace has {plural(len(trace), 'job')}; this search takes at most"
                f" {_MAX_JOBS:,}. Shorten it on Trace, or run `trainyard tenants --wait-target`.",
                icon=":material/terminal:",
            )
            return
        plannable = [
            title
            for title, spec in zip(study.titles, study.allocators, strict=True)
            if can_plan(spec)
        ]
        if not plannable:
            st.info("The scenario has no simulated policy. Add one.", icon=":material/rule:")
            st.page_link("pages/policies.py", label="Choose policies", icon=":material/rule:")
            return
        with st.container(horizontal=True, vertical_alignment="bottom"):
            title = st.selectbox(
                "Policy inside the quotas", plannable, key="quotas_policy", width=320
            )
            target = st.text_input(
                "95 % of jobs start within", "1 h", key="quotas_target", width=240
            )
            is_clicked = st.button("Find quotas", key="quotas_find", type="primary")
        st.caption(f"Tenants by {TENANT_NOUNS[column_of(trace)]}.")
        wait_s = summaries.parse_limit("queue_p95_s", target)
        scenario = study.policy_scenarios(study.titles.index(title))[0]
        stored_for, plan = st.session_state.get(_RESULT, (None, None))
        if is_clicked and stored_for != (scenario, wait_s):
            with st.spinner("Running each tenant alone, then all together"):
                stored_for, plan = (scenario, wait_s), plan_quotas(scenario, trace, wait_s)
            st.session_state[_RESULT] = stored_for, plan
        if stored_for == (scenario, wait_s):
            _draw_quotas(scenario, plan)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")


_RESULT: Final = "quotas_found"
_QUOTA: Final = "Quota needed (GPUs)"
_ALONE_HELP: Final = (
    "Wait within which 95 % of the tenant's jobs start, in a run of this tenant alone with its"
    " quota. Never: over 5 % of the jobs do not start."
)
_TOGETHER_HELP: Final = "The same in one run of all tenants, each with its quota."


def _draw_quotas(scenario: Scenario, plan: QuotaPlan) -> None:
    """Draw the quotas found: sentence, a row per tenant, and text for the policy Quotas."""
    st.markdown(f"**{words.plain(plan.sentence)}** {plural(plan.runs, 'run')}.")
    waits = [(_finite_or_nan(need.wait_s), _finite_or_nan(need.together_s)) for need in plan.needs]
    size, unit = common_unit([wait for pair in waits for wait in pair])
    alone_title = f"95 % start within, alone ({unit})"
    together_title = f"95 % start within, all together ({unit})"
    has_joint_run = not all(math.isnan(need.together_s) for need in plan.needs)
    rows = [
        {
            "Tenant": need.team,
            "Jobs": need.jobs,
            _QUOTA: f"over {plan.gpus}" if need.quota is None else str(need.quota),
            alone_title: alone / size,
        }
        | ({together_title: together / size} if has_joint_run else {})
        for need, (alone, together) in zip(plan.needs, waits, strict=True)
    ]
    decimals = f"%.{2 if size >= 3600 else 1}f"
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        width="stretch",
        placeholder="never",
        column_config={
            _QUOTA: st.column_config.TextColumn(alignment="right"),
            alone_title: st.column_config.NumberColumn(format=decimals, help=_ALONE_HELP),
            together_title: st.column_config.NumberColumn(format=decimals, help=_TOGETHER_HELP),
        },
    )
    no_joint_run = "" if has_joint_run else " No run of all tenants: the quotas do not fit."
    st.caption(
        words.plain(
            "Each tenant is limited to its quota, with"
            f" {catalog.allocator(scenario.allocator).title} inside. The quota is searched between"
            f" its largest job and the whole cluster.{no_joint_run} For the policy Tenant quotas:"
        )
    )
    st.code(plan.table, language=None, wrap_lines=True)


def _finite_or_nan(seconds: float) -> float:
    """Return a duration, or NaN, which a table shows as missing, if it is infinite."""
    return math.nan if math.isinf(seconds) else seconds
