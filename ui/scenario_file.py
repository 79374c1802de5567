"""Opening a scenario that Save wrote, here or on another machine, with its jobs if the file holds them."""

from __future__ import annotations

import streamlit as st

from lab import bundle, intake
from lab.front import TrainyardError
from ui import server, state, words


def opener() -> None:
    """Draw the drop zone for a scenario file, and take it over."""
    mine = state.desk()
    file = st.file_uploader("Open a scenario file (JSON, or ZIP with its jobs)", ["json", "zip"], key="scenario_file", max_upload_size=intake.UPLOAD_MB)
    if file is None or st.session_state.get("taken_scenario") == file.file_id:
        return
    try:
        found = bundle.opened(file.getvalue(), file.name, mine.study, server.store())
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        st.caption("The scenario that was open before is still in use.")
        return
    st.session_state["taken_scenario"] = file.file_id
    shown = mine.open(found.study)
    name = words.plain(file.name)
    if found.away:
        st.warning(
            f"{name} was written for the file {words.plain(found.away)}. Load that file on the Trace page; until then the trace stays as it was.",
            icon=":material/warning:",
        )
    held = f" with {words.plural(found.jobs, 'job')}" if found.jobs else ""
    after = "Its results are stored here: see Compare." if shown else "Press Run to see its results."
    st.success(f"{name} is open{held}: see the sidebar. {after}", icon=":material/check:")
