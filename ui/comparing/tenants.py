"""The tab "Tenants" of Compare: GPUs held, borrowed and missing per tenant."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
import streamlit as st

from sim.errors import ParameterError
from trainyard.results.tenants import (
    TENANT_NOUNS,
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
from trainyard.views.compared_runs import ComparedRuns
from ui import figure, words

_COLUMNS: Final[dict[str, Any]] = {
    "name": st.column_config.TextColumn("Tenant"),
    "deserved": st.column_config.NumberColumn(
        "Quota (GPUs)", min_value=0, help="GPUs that the tenant may always have."
    ),
    "maximum": st.column_config.NumberColumn(
        "Maximum (GPUs)",
        min_value=0,
        help="Most GPUs that it may hold, borrowed ones included; empty = no maximum.",
    ),
    "weight": st.column_config.NumberColumn(
        "Weight",
        min_value=0,
        help="Part of the unused GPUs: with weight 2, twice as many as with weight 1.",
    ),
    "priority": st.column_config.NumberColumn(
        "Priority", step=1, help="Tenants of higher priority get unused GPUs first."
    ),
    "parent": st.column_config.TextColumn(
        "Under group", help="Name of the row whose quota this tenant shares; empty = none."
    ),
}


def draw(compared: ComparedRuns, high: str) -> None:
    """Draw one policy's GPUs by tenant; folded, a table of tenants by policy and the quotas.

    Parameters
    ----------
    compared : ComparedRuns
        The runs, with the zoom window.
    high : str
        Title of the highlighted policy; "" = none, so the baseline is shown.
    """
    try:
        first = _tenants_of(compared, ())
    except ParameterError as error:
        st.caption(words.plain(str(error)))
        return
    head = st.container(horizontal=True, vertical_alignment="center")
    chart = st.container()
    table = st.expander("Figures of all policies")
    labels = compared.report.labels
    with head:
        title = st.selectbox(
            "Policy",
            labels,
            labels.index(high) if high in labels else 0,
            key="teams_policy",
            width=320,
            label_visibility="collapsed",
        )
        teams = _draw_quota_editor(compared, first)
    reports = {title: _tenant_report(compared, title, teams) for title in labels}
    with table:
        rows = figure.readable(tenants.side_by_side(reports))
        figure.draw_table(
            rows, hide_index=True, width="stretch", placeholder="–", helps=tenants.HELP
        )
        st.caption(
            "Best: the figures that are lowest for this tenant under this policy, over the whole"
            f" run. {words.plain(tenants.jain_sentence(reports))}"
        )
    head.caption(words.plain(f"Tenants by {TENANT_NOUNS[teams.column]}. {teams.assumed}"))
    view = figure.cached_view(
        ("tenants", compared.key, title, teams.quotas),
        lambda: tenants.tenants(compared, title, teams, reports[title]),
    )
    with chart:
        figure.draw(view, "tenants", shows_finding=True)


def _draw_quota_editor(compared: ComparedRuns, first: Teams) -> Teams:
    """Draw the table of quotas and their text; return the tenants with edited quotas.

    Invalid quotas draw an error, and `first` is returned.
    """
    with st.popover("Quotas", type="tertiary"):
        rows = st.data_editor(
            rows_of(first.quotas),
            column_config=_COLUMNS,
            num_rows="dynamic",
            hide_index=True,
            width="stretch",
            key=f"teams_quotas/{compared.report.mark}",
        )
        st.caption(
            "Edits only change this report. To run with these quotas, set them in the policy"
            " Quotas:"
        )
        try:
            quotas = quotas_of(pd.DataFrame(rows))
            recorded = quotas_of(rows_of(first.quotas))
            teams = _tenants_of(compared, quotas) if quotas and quotas != recorded else first
        except ParameterError as error:
            st.error(words.plain(str(error)), icon=":material/error:")
            return first
        st.code(write_quotas(quotas), language=None, wrap_lines=True)
    return teams


def _tenants_of(compared: ComparedRuns, quotas: tuple[Quota, ...]) -> Teams:
    """Return the tenants of the trace, with `quotas` or, if empty, those assumed for it."""
    study = compared.runs.study
    return teams_of(compared.details.trace, compared.cluster, study.allocators, quotas)


def _tenant_report(compared: ComparedRuns, title: str, teams: Teams) -> TenantReport:
    """Return GPUs held, borrowed and missing by tenant under one policy, cached."""
    return _cached_report(compared.report.mark, title, teams.quotas, teams, compared)


@st.cache_resource(max_entries=32, show_spinner=False)
def _cached_report(
    cache_key: str, title: str, quotas: tuple[Quota, ...], _teams: Teams, _compared: ComparedRuns
) -> TenantReport:
    """Return GPUs held, borrowed and missing by tenant in a policy's first repeat; cached."""
    del cache_key, quotas
    runs = _compared.runs
    result = runs.entries[runs.titles.index(title)][0].result()
    return tenant_report(result, _teams, _compared.cluster)
