"""The tab of jobs: which ones get slower and faster, as rows that open the drawer of a job, as a
distribution, or by group.
"""

from __future__ import annotations

from typing import Final

import pandas as pd
import streamlit as st

from trainyard.results import jobs_changed
from trainyard.results.groups import WHATS
from trainyard.results.jobs_changed import ORDERS
from trainyard.results.outcomes import Shown
from trainyard.views import jobs
from trainyard.views.compared import ComparedRuns
from ui import figure, job_drawer, words

MOST_ROWS: Final = 200
_EACH, _SPREAD = "Each job", "Distribution of changes"


def draw(compared: ComparedRuns, high: str) -> None:
    """Draw the jobs under the highlighted policy, against the baseline."""
    title = high or compared.baseline or compared.report.labels[0]
    ways = compared.details.groupings if compared.report.changes else {}
    shows = [_EACH, *([_SPREAD] if title in compared.report.changes else [])]
    by = {f"Change by {way.title[:1].lower()}{way.title[1:]}": name for name, way in ways.items()}
    with st.container(horizontal=True, vertical_alignment="bottom", gap=8):
        show = st.selectbox(
            "Show", [*shows, *by], key="jobs_show", label_visibility="collapsed", width=230
        )
        if show == _EACH:
            compares = title in compared.report.changes
            order = st.segmented_control(
                "Order",
                orders := tuple(ORDERS) if compares else tuple(ORDERS)[-1:],
                default=orders[0],
                required=True,
                format_func=lambda name: ORDERS[name],
                key=f"jobs_order/{compares}",
                label_visibility="collapsed",
            )
            search = st.text_input(
                "Search",
                key="jobs_search",
                placeholder="Job or user",
                label_visibility="collapsed",
                width=200,
            )
        elif show in by:
            what = st.segmented_control(
                "What is shown of each group",
                list(WHATS),
                default=next(iter(WHATS)),
                required=True,
                format_func=lambda name: WHATS[name],
                key="group_of",
                label_visibility="collapsed",
            )
    if show == _EACH:
        _rows(compared, title, order, search)
    elif show == _SPREAD:
        view = figure.kept(("winners", compared.key, title), lambda: jobs.winners(compared, title))
        figure.draw(view, "winners", finding=True)
    else:
        _group(compared, by[show], what)


def _group(compared: ComparedRuns, by: str, what: str) -> None:
    view = figure.kept(("groups", compared.key, by, what), lambda: jobs.groups(compared, by, what))
    if view is None:
        st.caption("No job was completed under all of these policies.")
    else:
        figure.draw(view, "groups", finding=True)


@st.cache_resource(max_entries=8, show_spinner=False)
def _changed(mark: str, title: str, _runs: Shown, _compared: ComparedRuns) -> pd.DataFrame:
    del mark
    return jobs_changed.jobs_changed(_runs, title, _compared.details.trace)


def _rows(compared: ComparedRuns, title: str, order: jobs_changed.Order, search: str) -> None:
    """Draw the first rows; a click on one opens its drawer."""
    report = compared.report
    every = _changed(report.mark, title, compared.runs, compared)
    rows, count = jobs_changed.first(every, order, search.strip(), MOST_ROWS)
    if rows.empty:
        st.caption("No job matches the search." if search else "No job changes in this direction.")
        return
    against = rows["base_s"].notna().any()
    columns = {
        "Job": rows["job_id"].astype("str"),
        "User": rows["user"].astype("str"),
        "GPUs": rows["gpus"],
        "Submitted": rows["submit_s"].map(lambda at: words.instant(at, compared.epoch)),
        f"JCT, {title}{figure.SECONDS}": rows["jct_s"],
    }
    if against:
        columns |= {
            f"JCT, {report.baseline}{figure.SECONDS}": rows["base_s"],
            figure.DIFFERENCE: rows["change_s"],
        }
    columns[f"Wait{figure.SECONDS}"] = rows["wait_s"]
    if not rows["user"].astype("str").any():
        del columns["User"]
    shown = figure.readable(pd.DataFrame(columns))
    job_drawer.rows(
        order, shown, rows["job_id"].astype("str").tolist(), min(38 + 35 * len(shown), 378)
    )
    if count > len(rows):
        st.caption(f"{len(rows)} of {words.plural(count, 'job')}.")
