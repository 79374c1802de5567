"""The tab "Export" of Compare: report, tables and rows, and a patch of the configuration."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from typing import Final

import pandas as pd
import streamlit as st

from sim.errors import ParameterError
from sim.params import Spec
from trainyard.export.targets import TARGETS, in_force, nearest, patch, patch_of_stored_runs
from trainyard.results import exports, outcomes
from trainyard.results.outcomes import StudyResults
from trainyard.store import Store
from trainyard.study import catalog
from trainyard.views import metric_table
from trainyard.views.compared_runs import ComparedRuns, compare_runs
from trainyard.views.report.page import offline_html
from ui import figure, server, state, stored_results, words
from ui.comparing import actions

_ROWS: Final[Mapping[str, Callable[[StudyResults, Store], pd.DataFrame]]] = {
    "jobs": exports.job_rows,
    "segments": exports.segment_rows,
    "decisions": exports.decision_rows,
}
"""Frame of a run -> function that returns its exported rows."""
_REPORT: Final = "trainyard-report.html"
_TABLES: Final = "trainyard-tables.zip"
_ICON: Final = ":material/download:"


def draw(compared: ComparedRuns, high: str) -> None:
    """Draw the downloads of report, ZIP and patch, and a table of the ZIP's files.

    `high` = highlighted policy, to which the patch leads. If results were deleted, only a warning
    and a button to check again are drawn.
    """
    runs = compared.runs
    if any(not server.store().has(runs.keys[index][0]) for index in runs.places):
        # Files are built after the click, when no warning can be drawn.
        st.warning(
            "Results of this comparison were deleted from this server. Run the scenario again to"
            " export them.",
            icon=":material/warning:",
        )
        st.button(
            "Check again",
            key="forget_entries",
            on_click=stored_results.forget_entries,
            icon=":material/refresh:",
        )
        return
    with st.container(horizontal=True, gap=8):
        for label, export, file, mime in (
            ("Report (HTML), about 5 MB", report_html, _REPORT, "text/html"),
            (
                f"Tables and job data (ZIP), {_size_text(_zip_mb(runs))}",
                archive,
                _TABLES,
                "application/zip",
            ),
        ):
            st.download_button(
                label,
                partial(export, runs),
                file,
                mime,
                key=f"export_{file}",
                on_click="ignore",
                icon=_ICON,
            )
        _draw_patch(compared, high)
    files = {"metrics.csv": f"{len(runs.places)} policies, one row each"}
    for name, description in _DESCRIPTIONS.items():
        count = f"{_count_rows(runs, name):,} rows: {description}"
        is_large = exports.csv_mb(runs, name) > exports.CSV_LIMIT_MB
        files |= {f"{name}.parquet": count}
        files |= {f"{name}.csv": "omitted, too large for a spreadsheet" if is_large else count}
    table = pd.DataFrame({"In the ZIP": list(files), "Contents": list(files.values())})
    st.dataframe(table, hide_index=True, width="content")
    st.caption(words.plain(_ABOUT))
    figure.draw_format_choice()


def _draw_patch(compared: ComparedRuns, high: str) -> None:
    """Draw the download of a patch from the configuration in force to policy `high`.

    Without a configuration in force nothing is drawn; a caption says why no patch is possible.
    """
    runs, specs = compared.runs, compared.runs.study.allocators
    old_index = in_force(runs.study)
    if old_index is None or not runs.complete(old_index):
        return
    new_index = runs.titles.index(high) if high else old_index
    title = runs.titles[old_index]
    if new_index == old_index:
        st.caption(
            words.plain(
                f"Export configuration: highlight the policy that replaces {title} to get a patch."
            )
        )
        return
    try:
        patch(specs[old_index], specs[new_index])
    except ParameterError as error:
        st.caption(words.plain(f"No configuration to export: {error}"))
        _draw_nearest(specs[old_index], specs[new_index])
        return
    st.download_button(
        "Export configuration (patch)",
        partial(
            patch_of_stored_runs, runs, old_index, new_index, compared.details.trace, server.store()
        ),
        f"{specs[old_index].name}-patch.{TARGETS[specs[old_index].name].suffix}",
        "text/plain",
        key="export_patch",
        on_click="ignore",
        icon=_ICON,
        help=f"Changes {title} to {high}; lists the assumptions.",
    )


def _draw_nearest(old: Spec, new: Spec) -> None:
    """Draw the button that adds and runs the setting of `old` nearest to policy `new`.

    Nothing is drawn if there is none, or if it is compared already.
    """
    if new.name == old.name:
        return
    alternative = nearest(old, new)[1]
    compared_specs = state.session().study.allocators
    if alternative is None or catalog.canonical("allocator", alternative) in compared_specs:
        return
    if st.button("Simulate the nearest setting", key="export_nearest", icon=":material/add:"):
        actions.run_with(alternative)


def _count_rows(runs: StudyResults, name: str) -> int:
    """Return the number of rows of a row table over all complete runs."""
    return sum(entry.rows.get(name, 0) for index in runs.places for entry in runs.entries[index])


def _zip_mb(runs: StudyResults) -> float:
    """Return the estimated size of the ZIP in MB: compressed CSV (a fifth) plus Parquet."""
    return sum(min(exports.csv_mb(runs, name), exports.CSV_LIMIT_MB) for name in _ROWS) * 0.4


def _size_text(mb: float) -> str:
    """Return a file size as text: "about 3 MB", or kB below 1 MB."""
    return f"about {mb:,.0f} MB" if mb >= 0.95 else f"about {max(100 * round(10 * mb), 100)} kB"


def rows_csv(runs: StudyResults, name: str) -> bytes:
    """Return a row table of all complete runs (jobs, segments or decisions) as safe CSV."""
    return _to_safe_csv(_ROWS[name](runs, server.store()))


def rows_parquet(runs: StudyResults, name: str) -> bytes:
    """Return a row table of all complete runs as Parquet, with exact values."""
    data: bytes = _ROWS[name](runs, server.store()).to_parquet(index=False)
    return data


def archive(runs: StudyResults) -> bytes:
    """Return a ZIP of the metrics and all row tables as Parquet and, if small enough, CSV."""
    compared = compare_runs(runs, server.store())
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as files:
        if compared is not None:
            files.writestr(
                "metrics.csv", _to_safe_csv(metric_table.export_table(compared.report.table))
            )
        for name in _ROWS:
            files.writestr(f"{name}.parquet", rows_parquet(runs, name))
            if exports.csv_mb(runs, name) <= exports.CSV_LIMIT_MB:
                files.writestr(f"{name}.csv", rows_csv(runs, name))
    return packed.getvalue()


def report_html(runs: StudyResults) -> bytes:
    """Return the offline report as UTF-8 HTML, dated now."""
    return offline_html(runs, server.store(), created=datetime.now(UTC)).encode()


def _to_safe_csv(table: pd.DataFrame) -> bytes:
    return outcomes.safe_csv(table).encode()


_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "jobs": "submission, start and end of each job",
    "segments": "each span with constant GPUs and speed of a job, with its nodes",
    "decisions": "each decision of the policy, with its notes",
}
_ABOUT: Final = (
    "The report works offline. CSV cells that start with =, +, - or @ get a leading apostrophe, so"
    " that a spreadsheet does not run them as formulas; Parquet stays exact."
)
