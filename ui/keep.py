"""Ways to keep a scenario or to pass it on, in the sidebar: a file, a link, a report, a command line."""

from __future__ import annotations

from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.study.study import Study
from trainyard.traces import bundle
from trainyard.traces.sources import load_source
from ui import server, state
from ui.comparing import exports

FILE: Final = "trainyard-scenario.json"
ARCHIVE: Final = "trainyard-scenario.zip"
_LONGEST: Final = 80
"""Characters of a name."""


def draw(mine: state.Desk) -> None:
    """Draw them."""
    with st.popover("Save scenario", icon=":material/download:", width="stretch"):
        _save(mine.study)
    st.fragment(_share)(mine)
    exports.report_button(mine)
    with st.popover("Command", icon=":material/terminal:", width="stretch"):
        _command(mine.study)


def _save(study: Study) -> None:
    st.write("A file of the whole scenario: trace, machines, policies and their parameters, seeds. Open it on the Start page, here or elsewhere.")
    text = bundle.text(study)
    st.download_button("Scenario (JSON)", text, FILE, "application/json", key="save", icon=":material/download:", on_click="ignore", width="stretch")
    if _is_here(study):
        made, help_text = (
            (lambda: bundle.archive(study, server.store())),
            "With the cleaned jobs as Parquet, before window and load: needed where the trace is not.",
        )
        label = "Scenario and jobs (ZIP)"
        st.download_button(
            label, made, ARCHIVE, "application/zip", key="save_all", icon=":material/folder_zip:", on_click="ignore", help=help_text, width="stretch"
        )
    st.caption(f"Id {study.digest}: the hash of all of it but its name.")


def _is_here(study: Study) -> bool:
    try:
        load_source(study.base.trace, server.store())
    except TrainyardError:
        return False
    return True


def _share(mine: state.Desk) -> None:
    # Drawn anew when it is opened: what a page looks at changes without a run of the whole page.
    with st.popover("Share", icon=":material/link:", width="stretch", key="share", on_change="rerun"):
        _shared(mine)


def _shared(mine: state.Desk) -> None:
    name = st.text_input(
        "Name", mine.study.base.name, max_chars=_LONGEST, key=state.widget("name"), placeholder="optional", help="Shown as the title of the window."
    )
    if name != mine.study.base.name:
        mine.name(name)
        st.rerun()
    st.write("This link holds the scenario, the window of time and what this page looks at. Whoever opens it on this server sees the same.")
    store = server.store()
    kept = f"Results are kept for {store.keep_days:g} days; after that the link still holds the scenario, to be run again."
    if mine.study.base.trace.source.startswith("store:"):
        st.caption(
            f"The jobs are not in the link: the uploaded trace stays on this server for {store.keep_days:g} days. "
            f"For later, or for another server, pass on the file with the jobs (Save). {kept}"
        )
    else:
        st.caption(f"The link holds everything: its jobs come with Trainyard. {kept}")
    st.code(state.link(), language=None, wrap_lines=True)


def _command(study: Study) -> None:
    st.write("The saved scenario gives the same numbers without a browser:")
    st.code(f"python -m trainyard run --scenario {FILE}", language="bash", wrap_lines=True)
    if study.base.trace.source.startswith("store:"):
        st.caption("On another machine, unpack the file with the jobs there:")
        st.code(f"python -m trainyard run --scenario {bundle.SCENARIO} --trace {bundle.JOBS} --cpu-jobs keep", language="bash", wrap_lines=True)
