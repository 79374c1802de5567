"""Opening a scenario that Save wrote, here or on another machine."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from lab import start
from lab.document import parse_json
from lab.front import Study, TrainyardError
from ui import state, words


def opener() -> None:
    """Draw the drop zone for a scenario file, and take it over."""
    mine = state.desk()
    file = st.file_uploader("Open a scenario file", ["json"], key="scenario_file", max_upload_size=5)
    if file is None or st.session_state.get("taken_scenario") == file.file_id:
        return
    try:
        study = Study.from_json(parse_json(file.getvalue().decode("utf-8-sig", "replace"), file.name))
        away = study.base.trace.source if start.names_a_file(study) else ""
        if away:
            study = replace(study, base=replace(study.base, trace=mine.study.base.trace))
        start.admitted(study)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        st.caption("The scenario that was open before is still in use.")
        return
    st.session_state["taken_scenario"] = file.file_id
    mine.replace(study)
    if away:
        st.warning(
            f"{words.plain(file.name)} was written for the file {words.plain(away)}. Load that file on the Trace page; until then the trace stays as it was.",
            icon=":material/warning:",
        )
    st.success(f"{words.plain(file.name)} is open: see the sidebar. Press Run to see its results.", icon=":material/check:")
