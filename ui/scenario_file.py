"""Opening what was saved or exported, here or on another machine: a scenario, with its jobs if the file holds them, or runs with their results."""

from __future__ import annotations

from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.library import archive
from trainyard.runs.disconnects import tidy
from trainyard.traces import bundle, intake, start
from ui import owner, received, server, state, words

_LABEL: Final = "Open a scenario file (JSON, or ZIP with its jobs), or exported runs (ZIP)"


def opener() -> None:
    """Draw the drop zone for a file, and take it over."""
    mine = state.desk()
    file = st.file_uploader(_LABEL, ["json", "zip"], key="scenario_file", max_upload_size=intake.UPLOAD_MB)
    if file is None or st.session_state.get("taken_scenario") == file.file_id:
        return
    st.session_state["taken_scenario"], data = file.file_id, received.taken(file, "scenario_file")
    try:
        if archive.is_archive(data):
            _runs(data, file.name)
        else:
            _scenario(mine, data, file.name)
    finally:
        size = len(data)
        del data
        tidy(size)


def _scenario(mine: state.Desk, data: bytes, name: str) -> None:
    before = start.trace_is_gone(mine.study, server.store())
    try:
        found = bundle.opened(data, name, mine.study, server.store(), [owner.owner()])
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        st.caption("The scenario that was open before is still in use.")
        return
    shown, gone = mine.open(found.study), start.trace_is_gone(found.study, server.store())
    if found.away:
        st.warning(
            f"{words.plain(name)} was written for the file {words.plain(found.away)}. Load that file on the Trace page; until then the trace stays as it was.",
            icon=":material/warning:",
        )
    held = f" with {words.plural(found.jobs, 'job')}" if found.jobs else ""
    after = "Its jobs are still missing." if gone else "Its results are stored here: see Compare." if shown else "Press Run to see its results."
    if gone != before:
        # The top of the page says whether the jobs are here, and is drawn already.
        mine.news = f"{name} is open{held}. {after}"
        st.rerun()
    st.success(f"{words.plain(name)} is open{held}: see the sidebar. {after}", icon=":material/check:")


def _runs(data: bytes, name: str) -> None:
    try:
        taken = archive.unpack(server.store(), owner.owner(), data, name, results=False)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    what = "1 entry is" if len(taken.ids) == 1 else f"{len(taken.ids):,} entries are"
    st.success(f"{what} taken over from {words.plain(name)}: see Your runs. {taken.told}".rstrip(), icon=":material/check:")
