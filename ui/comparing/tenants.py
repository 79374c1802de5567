"""The tab Tenants of the Compare page: who holds, who borrows, who starves."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
import streamlit as st

from sim.errors import ParameterError
from trainyard.results.tenants import (
    COLUMN_WORDS,
    Quota,
    Teams,
    TenantReport,
    quotas_of,
    rows_of,
    teams_of,
    tenant_report,
    write_quotas,
)
from trainyard.views import tenants
from trainyard.views.compared import ComparedRuns
from ui import figure, words

_COLUMNS: Final[dict[str, Any]] = {
    "name": st.column_config.TextColumn("Team"),
    "deserved": st.column_config.NumberColumn("Quota (GPUs)", min_value=0),
    "maximum": st.column_config.NumberColumn("Maximum (GPUs)", min_value=0),
    "weight": st.column_config.NumberColumn("Weight", min_value=0),
    "priority": st.column_config.NumberColumn("Priority", step=1),
    "parent": st.column_config.TextColumn("Under group"),
}


def draw(compared: ComparedRuns, high: str) -> None:
    """Draw the quotas, which can be changed, what each team had under every policy, and its course
    under the highlighted one.

    Parameters
    ----------
    compared : ComparedRuns
        The runs, with the window.
    high : str
        Title of the highlighted policy; "" = there is none, so the baseline is shown.
    """
    try:
        first = _teams(compared, ())
    except ParameterError as error:
        st.caption(words.plain(str(error)))
        return
    st.caption(words.plain(f"Teams by {COLUMN_WORDS[first.column]}. {first.assumed}"))
    teams = _edited(compared, first)
    labels = compared.report.labels
    reports = {title: _report(compared, title, teams) for title in labels}
    rows = figure.readable(tenants.side_by_side(reports))
    figure.show(rows, hide_index=True, width="stretch", placeholder="–")
    best = "Best: where a policy is the best for a team."
    st.caption(words.plain(f"{best} {tenants.NOTE} Of whole runs. {tenants.jain(reports)}"))
    at = labels.index(high) if high in labels else 0
    title = st.selectbox("Policy", labels, at, key="teams_policy", width=320)
    view = figure.kept(
        ("tenants", compared.key, title, teams.quotas),
        lambda: tenants.tenants(compared, title, teams, reports[title]),
    )
    figure.draw(view, "tenants", finding=True)


def _edited(compared: ComparedRuns, first: Teams) -> Teams:
    with st.expander("Quotas"):
        rows = st.data_editor(
            rows_of(first.quotas),
            column_config=_COLUMNS,
            num_rows="dynamic",
            hide_index=True,
            width="stretch",
            key=f"teams_quotas/{compared.report.mark}",
        )
        st.caption(
            "Changes what teams are measured against here. To run with these quotas, give them to"
            " the policy Quotas:"
        )
        try:
            quotas = quotas_of(pd.DataFrame(rows))
            known = quotas_of(rows_of(first.quotas))
            teams = _teams(compared, quotas) if quotas and quotas != known else first
        except ParameterError as error:
            st.error(words.plain(str(error)), icon=":material/error:")
            return first
        st.code(write_quotas(quotas), language=None, wrap_lines=True)
    return teams


def _teams(compared: ComparedRuns, quotas: tuple[Quota, ...]) -> Teams:
    study = compared.runs.study
    return teams_of(compared.details.trace, compared.cluster, study.allocators, quotas)


def _report(compared: ComparedRuns, title: str, teams: Teams) -> TenantReport:
    return _kept(compared.report.mark, title, teams.quotas, teams, compared)


@st.cache_resource(max_entries=32, show_spinner=False)
def _kept(
    mark: str, title: str, quotas: tuple[Quota, ...], _teams: Teams, _compared: ComparedRuns
) -> TenantReport:
    del mark, quotas
    runs = _compared.runs
    result = runs.entries[runs.titles.index(title)][0].result()
    return tenant_report(result, _teams, _compared.cluster)
