"""The scenario beside every page: what is compared on what, Run, how the runs are doing, and the ways to keep or pass it on."""

from __future__ import annotations

import json
from typing import Final, Literal

import streamlit as st

from lab import machines, outcomes
from lab.front import Study, TrainyardError, load_trace
from ui import exports, profiles, progress, server, state, words

FILE: Final = "trainyard-scenario.json"
_MOST_SEED: Final = 2**31 - 1


def draw(page: str) -> None:
    """Draw the sidebar of a page."""
    mine = state.desk()
    st.markdown("**Scenario**")
    _trace(mine.study)
    _cluster(mine.study)
    _policies(mine.study)
    _seed(mine)
    _run(mine, page)
    progress.watch()
    _status(mine)
    _keep(mine.study)
    exports.report_button(mine)


def _trace(study: Study) -> None:
    try:
        trace = load_trace(study.base.trace, server.store())
    except TrainyardError as error:
        st.page_link("pages/trace.py", label="No trace", icon=":material/view_timeline:")
        st.warning(words.plain(str(error)), icon=":material/warning:")
        return
    st.page_link("pages/trace.py", label=words.plain(trace.name), icon=":material/view_timeline:", help="Change the trace")
    st.caption(f"{words.plural(len(trace), 'job')} in {words.time(trace.span_s)}")


def _cluster(study: Study) -> None:
    cluster = study.base.cluster
    st.page_link("pages/cluster.py", label=words.plain(cluster.name), icon=":material/dns:", help="Change the cluster")
    shapes = machines.totals(cluster).by_type
    more = f" and {len(shapes) - 3} more" if len(shapes) > 3 else ""
    st.caption(f"{words.plain(' · '.join(shapes[:3]))}{more}")


def _policies(study: Study) -> None:
    names = [f"{title} (baseline)" if at == study.baseline else title for at, title in enumerate(outcomes.titles(study.allocators))]
    st.page_link("pages/policies.py", label=words.plural(len(names), "policy"), icon=":material/rule:", help="Change the policies")
    st.caption(words.plain(", ".join(names)))


def _seed(mine: state.Desk) -> None:
    help_text = "Everything random (failures, noise) follows from it. Equal scenarios with equal seeds give equal results."
    seed = st.number_input("Seed", 0, _MOST_SEED, mine.study.base.seed, step=1, key=state.widget("seed"), help=help_text)
    if seed != mine.study.base.seed:
        mine.edit(state.with_seed(mine.study, int(seed)))


def _run(mine: state.Desk, page: str) -> None:
    differs = mine.shown is None or bool(mine.stale) or not _complete(mine)
    # Of all buttons in sight one is primary: on Start the sample, on Learn the replay, on Compare and Explore without any result the one in the page.
    elsewhere = page in ("start", "learn") or (page in ("compare", "explore") and mine.shown is None)
    primary = differs and not elsewhere and not mine.live
    stopped = profiles.stopped(mine.study)
    kind: Literal["primary", "secondary"] = "primary" if primary and stopped is None else "secondary"
    clicked = st.button("Run", key="run", icon=":material/play_arrow:", type=kind, width="stretch", disabled=stopped is not None)
    if stopped is not None:
        st.caption(f":material/block: {words.plain(stopped.sentences[0])}")
        # The page of the performance model offers them beside what is missing.
        if page != "policies":
            profiles.ways_out(stopped, "sidebar")
            st.page_link("pages/policies.py", label="What is missing", icon=":material/table_view:")
    elif clicked:
        mine.run()
        if page == "compare":
            st.rerun()
        st.switch_page("pages/compare.py", query_params=state.address())


def _complete(mine: state.Desk) -> bool:
    if mine.shown is None:
        return False
    shown = state.gather(mine.shown)
    missing = {title for at, title in enumerate(shown.titles) if not shown.complete(at)}
    return not missing or missing <= set(state.barred(mine.shown))


def _status(mine: state.Desk) -> None:
    if mine.live:
        return
    if mine.stale:
        changes = mine.stale
        st.caption(f":material/history: Changed since the last run: {words.plain('; '.join(changes[:4]))}.")
    elif mine.shown is None:
        st.caption(":material/info: Nothing has been run yet.")
    elif _complete(mine):
        st.caption(":material/check: Up to date.")
    else:
        st.caption(":material/info: Some policies of this scenario have no result.")


def _keep(study: Study) -> None:
    name = json.dumps(study.to_json(), indent=2, sort_keys=True, ensure_ascii=False)
    st.download_button("Save scenario", name, FILE, "application/json", key="save", icon=":material/download:", on_click="ignore", width="stretch")
    with st.popover("Share", icon=":material/link:", width="stretch"):
        st.write("The address of this page holds the scenario. Whoever opens it on this server sees the same.")
        st.code(state.link(), language=None, wrap_lines=True)
        if study.base.trace.source.startswith("store:"):
            st.caption(f"The uploaded trace stays on this server for {server.store().keep_days:g} days; elsewhere its file must be loaded again.")
    with st.popover("Command", icon=":material/terminal:", width="stretch"):
        st.write("The saved scenario gives the same numbers without a browser:")
        st.code(f"python -m lab run --scenario {FILE}", language="bash", wrap_lines=True)
