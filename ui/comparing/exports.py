"""What can be taken away: a report, the table, the rows of every run as CSV or Parquet; each is
made when it is asked for.
"""

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
from trainyard.export.targets import TARGETS, in_force, nearest, of_runs, patch
from trainyard.results import exports, outcomes
from trainyard.results.outcomes import Shown
from trainyard.store import Store
from trainyard.study import catalog
from trainyard.views import metric_table
from trainyard.views.compared import ComparedRuns, compare_runs
from trainyard.views.report.page import offline_html
from ui import figure, server, state, stored_results, words

_ROWS: Final[Mapping[str, Callable[[Shown, Store], pd.DataFrame]]] = {
    "jobs": exports.jobs,
    "segments": exports.segments,
    "decisions": exports.decisions,
}
"""Frame of a run -> what is made of it for other programs."""
_REPORT: Final = "trainyard-report.html"
_TABLES: Final = "trainyard-tables.zip"
_ICON: Final = ":material/download:"


def draw(compared: ComparedRuns, high: str) -> None:
    """Draw the files that can be taken away, each with what is in it and about how large it is."""
    runs = compared.runs
    if any(not server.store().has(runs.keys[at][0]) for at in runs.places):
        # A file is made after the click, when nothing can be said any more.
        st.warning(
            "Results of this comparison were removed from this server meanwhile. Run the scenario"
            " again to export them.",
            icon=":material/warning:",
        )
        st.button(
            "Look again",
            key="forget_entries",
            on_click=stored_results.forget,
            icon=":material/refresh:",
        )
        return
    with st.container(horizontal=True, gap=8):
        for label, made, file, mime in (
            ("Report (HTML), about 5 MB", report_html, _REPORT, "text/html"),
            (f"Tables and rows (ZIP), {_size(_zip_mb(runs))}", archive, _TABLES, "application/zip"),
        ):
            st.download_button(
                label,
                partial(made, runs),
                file,
                mime,
                key=f"export_{file}",
                on_click="ignore",
                icon=_ICON,
            )
        _take_home(compared, high)
    files = {"metrics.csv": f"{len(runs.places)} policies, one row each"}
    for name, what in _ROWS_ARE.items():
        count = f"{_count(runs, name):,} rows: {what}"
        large = exports.csv_mb(runs, name) > exports.CSV_LIMIT_MB
        files |= {f"{name}.parquet": count}
        files |= {f"{name}.csv": "left out, too large for a spreadsheet" if large else count}
    table = pd.DataFrame({"In the ZIP": list(files), "Contents": list(files.values())})
    st.dataframe(table, hide_index=True, width="content")
    st.caption(words.plain(_ABOUT))
    figure.choose_format()


def _take_home(compared: ComparedRuns, high: str) -> None:
    """Offer the highlighted policy as a patch of the configuration in force, or the nearest setting
    that could be one.
    """
    runs, specs = compared.runs, compared.runs.study.allocators
    old = in_force(runs.study)
    if old is None or not runs.complete(old):
        return
    at = runs.titles.index(high) if high else old
    title = runs.titles[old]
    if at == old:
        st.caption(
            words.plain(f"Export configuration: highlight the policy that replaces {title}.")
        )
        return
    try:
        patch(specs[old], specs[at])
    except ParameterError as error:
        st.caption(words.plain(f"Nothing to export: {error}"))
        _nearest(specs[old], specs[at])
        return
    st.download_button(
        "Export configuration (patch)",
        partial(of_runs, runs, old, at, compared.details.trace, server.store()),
        f"{specs[old].name}-patch.{TARGETS[specs[old].name].suffix}",
        "text/plain",
        key="export_patch",
        on_click="ignore",
        icon=":material/home:",
        help=f"What turns {title} into {high}, and what that rests on.",
    )


def _nearest(old: Spec, new: Spec) -> None:
    """Offer to simulate what is nearest to a policy that a scheduler does not have."""
    if new.name == old.name:
        return
    instead = nearest(old, new)[1]
    session = state.session()
    study = session.study
    if instead is None or catalog.canonical("allocator", instead) in study.allocators:
        return
    if st.button("Simulate the nearest setting", key="export_nearest", icon=":material/add:"):
        session.replace(study.choosing((*study.allocators, instead), study.baseline))
        session.run()
        st.rerun()


def _count(runs: Shown, name: str) -> int:
    return sum(entry.rows.get(name, 0) for at in runs.places for entry in runs.entries[at])


def _zip_mb(runs: Shown) -> float:
    """Return about how large the archive is: text is packed to a fifth of its size, and the same
    again as Parquet.
    """
    return sum(min(exports.csv_mb(runs, name), exports.CSV_LIMIT_MB) for name in _ROWS) * 0.4


def _size(mb: float) -> str:
    return f"about {mb:,.0f} MB" if mb >= 0.95 else f"about {max(100 * round(10 * mb), 100)} kB"


def rows_csv(runs: Shown, name: str) -> bytes:
    """Return a frame of every complete run ("jobs", "segments" or "decisions") as CSV for
    spreadsheets.
    """
    return _csv(_ROWS[name](runs, server.store()))


def rows_parquet(runs: Shown, name: str) -> bytes:
    """Return the same as Parquet, exact."""
    data: bytes = _ROWS[name](runs, server.store()).to_parquet(index=False)
    return data


def archive(runs: Shown) -> bytes:
    """Return everything as one ZIP: the table of metrics, and every frame of rows as Parquet and,
    unless it is too large for a spreadsheet, as CSV.
    """
    compared = compare_runs(runs, server.store())
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as files:
        if compared is not None:
            files.writestr("metrics.csv", _csv(metric_table.wide(compared.report.table)))
        for name in _ROWS:
            files.writestr(f"{name}.parquet", rows_parquet(runs, name))
            if exports.csv_mb(runs, name) <= exports.CSV_LIMIT_MB:
                files.writestr(f"{name}.csv", rows_csv(runs, name))
    return packed.getvalue()


def report_html(runs: Shown) -> bytes:
    """Return the report, with the present time in it."""
    return offline_html(runs, server.store(), created=datetime.now(UTC)).encode()


def _csv(table: pd.DataFrame) -> bytes:
    return outcomes.safe_csv(table).encode()


_ROWS_ARE: Final[Mapping[str, str]] = {
    "jobs": "when each job came, started and finished",
    "segments": "periods of constant size and rate, with the nodes",
    "decisions": "calls of the policy, with its notes",
}
_ABOUT: Final = (
    "The report is one file with all figures, which opens without a network. In CSV files, text"
    " that begins with = + - or @ has an apostrophe in front, for spreadsheets; Parquet holds it"
    " as it is."
)
