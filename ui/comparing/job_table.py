"""The tab "Jobs" of Compare: slower and faster jobs as rows, distribution or groups."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
import streamlit as st

from trainyard.results import jobs_changed
from trainyard.results.groups import GROUP_METRICS
from trainyard.results.jobs_changed import ORDERS
from trainyard.results.outcomes import StudyResults
from trainyard.views import jobs
from trainyard.views.compared_runs import ComparedRuns, Window
from ui import figure, job_drawer, words

MAX_ROWS: Final = 100
_EACH, _SPREAD = "Each job", "Distribution of changes"


def draw(compared: ComparedRuns, high: str) -> None:
    """Draw the jobs of policy `high`: a table, the distribution of changes, or groups."""
    title = high or compared.baseline or compared.report.labels[0]
    groupings = compared.details.groupings if compared.report.changes else {}
    options = [_EACH, *([_SPREAD] if title in compared.report.changes else [])]
    group_options = {
        f"Change by {way.title[:1].lower()}{way.title[1:]}": name for name, way in groupings.items()
    }
    with st.container(horizontal=True, vertical_alignment="bottom", gap=8):
        show = st.selectbox(
            "Show",
            [*options, *group_options],
            key="jobs_show",
            label_visibility="collapsed",
            width=230,
        )
        if show == _EACH:
            has_changes = title in compared.report.changes
            order = st.segmented_control(
                "Order",
                orders := tuple(ORDERS) if has_changes else tuple(ORDERS)[-1:],
                default=orders[0],
                required=True,
                format_func=lambda name: ORDERS[name],
                key=f"jobs_order/{has_changes}",
                label_visibility="collapsed",
            )
            search = st.text_input(
                "Search",
                key="jobs_search",
                placeholder="Job or user",
                label_visibility="collapsed",
                width=200,
            )
        elif show in group_options:
            statistic = st.segmented_control(
                "Statistic",
                list(GROUP_METRICS),
                default=next(iter(GROUP_METRICS)),
                required=True,
                format_func=lambda name: GROUP_METRICS[name],
                key="group_of",
                label_visibility="collapsed",
            )
    if show == _EACH:
        _draw_rows(compared, title, order, search)
        return
    if compared.window is not None:
        st.caption("Of the whole run.")
    if show == _SPREAD:
        view = figure.cached_view(
            ("winners", compared.key, title), lambda: jobs.winners(compared, title)
        )
        figure.draw(view, "winners", shows_finding=True)
    else:
        _draw_groups(compared, group_options[show], statistic)


def _draw_groups(compared: ComparedRuns, by: str, statistic: str) -> None:
    """Draw a statistic of the change per group of jobs; `by` = grouping."""
    view = figure.cached_view(
        ("groups", compared.key, by, statistic), lambda: jobs.groups(compared, by, statistic)
    )
    if view is None:
        st.caption("No job was completed under all of these policies.")
    else:
        figure.draw(view, "groups", shows_finding=True)


@st.cache_resource(max_entries=8, show_spinner=False)
def _job_changes(
    cache_key: str, title: str, _runs: StudyResults, _compared: ComparedRuns
) -> pd.DataFrame:
    """Return the table of jobs with the change of each against the baseline, cached."""
    del cache_key
    return jobs_changed.jobs_changed(_runs, title, _compared.details.trace)


def _draw_rows(compared: ComparedRuns, title: str, order: jobs_changed.Order, search: str) -> None:
    """Draw a table of the first 100 jobs that match; a row opens the job drawer."""
    mark, epoch = compared.report.mark, compared.epoch
    of = search.strip(), compared.window
    table, formats, ids, count = _shown_rows(mark, title, order, of, epoch, compared)
    if table is None:
        where = " in this window" if compared.window is not None else ""
        direction = f"No job changes in this direction{where}."
        st.caption(f"No job{where} matches the search." if search else direction)
        return
    job_drawer.draw_job_table(order, table, formats, ids, min(38 + 35 * len(ids), 378))
    if count > len(ids):
        st.caption(f"{len(ids)} of {words.plural(count, 'job')}.")


@st.cache_resource(max_entries=32, show_spinner=False)
def _shown_rows(
    cache_key: str,
    title: str,
    order: jobs_changed.Order,
    of: tuple[str, Window | None],
    epoch: str,
    _compared: ComparedRuns,
) -> tuple[pd.DataFrame | None, dict[str, Any], list[str], int]:
    """Return the table of the first matching jobs, its formats, ids, and how many match; cached.

    The table is None if no job matches. `of` = searched text, and the window of the submissions.
    """
    report = _compared.report
    search, window = of
    all_rows = _job_changes(cache_key, title, _compared.runs, _compared)
    if window is not None:
        all_rows = all_rows[all_rows["submit_s"].between(*window, inclusive="left")]
    rows, count = jobs_changed.first_rows(all_rows, order, search, MAX_ROWS)
    if rows.empty:
        return None, {}, [], 0
    has_baseline = rows["base_s"].notna().any()
    columns = {
        "Job": rows["job_id"].astype("str"),
        "User": rows["user"].astype("str"),
        "GPUs": rows["gpus"],
        "Submitted": rows["submit_s"].map(lambda instant_s: words.run_time(instant_s, epoch)),
        f"Completion, {title}{figure.SECONDS}": rows["jct_s"],
    }
    if has_baseline:
        columns |= {
            f"Completion, {report.baseline}{figure.SECONDS}": rows["base_s"],
            figure.DIFFERENCE: rows["change_s"],
        }
    columns[f"Wait, {title}{figure.SECONDS}"] = rows["wait_s"]
    if not rows["user"].astype("str").any():
        del columns["User"]
    # Without the index, which would be sent too.
    table = figure.readable(pd.DataFrame(columns).reset_index(drop=True))
    return *figure.in_units(table), columns["Job"].tolist(), count
