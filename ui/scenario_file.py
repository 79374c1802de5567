"""Opening a scenario that Save wrote, here or on another machine."""

from __future__ import annotations

import streamlit as st

from lab.document import parse_json
from lab.front import Study, TrainyardError
from ui import state


def opener() -> None:
    """Draw the drop zone for a scenario file, and take it over."""
    mine = state.desk()
    file = st.file_uploader("Open a scenario file", ["json"], key="scenario_file", max_upload_size=5)
    if file is None or st.session_state.get("taken_scenario") == file.file_id:
        return
    try:
        study = Study.from_json(parse_json(file.getvalue().decode("utf-8-sig", "replace"), file.name))
    except TrainyardError as error:
        st.error(f"{error}", icon=":material/error:")
        st.caption("The scenario that was open before is still in use.")
        return
    st.session_state["taken_scenario"] = file.file_id
    mine.replace(study)
    st.success(f"{file.name} is open: see the sidebar. Press Run to see its results.", icon=":material/check:")
