"""The scenario beside every page: what is compared on what, Run, how the runs are doing, and the ways to keep or pass it on."""

from __future__ import annotations

import time
from typing import Final, Literal

import streamlit as st

from sim.errors import TrainyardError
from trainyard.clusters import machines
from trainyard.results import outcomes
from trainyard.results.differences import differences
from trainyard.results.outcomes import Shown
from trainyard.runs import estimate
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import start
from trainyard.traces.sources import load_trace
from ui import keep, lookup, progress, server, state, words
from ui.choosing import profiles

RESULTS: Final = ("compare", "explore")
"""Pages that show what came out, and offer to run where nothing did."""
_MOST_REPEATS: Final = 50
_MOST_SEED: Final = 2**31 - 1


def draw(page: str) -> None:
    """Draw the sidebar of a page."""
    mine = state.desk()
    st.markdown(f"**{words.plain(mine.study.base.name) or 'Scenario'}**")
    _trace(mine.study)
    _cluster(mine.study)
    _policies(mine.study)
    _turns(mine)
    _size(mine)
    _run(mine, page)
    progress.watch()
    _status(mine)
    _undo(mine)
    keep.draw(mine)


def _trace(study: Study) -> None:
    try:
        trace = load_trace(study.base.trace, server.store())
    except TrainyardError as error:
        st.page_link("pages/trace.py", label="No trace", icon=":material/view_timeline:")
        if not start.trace_is_gone(study, server.store()):  # else the page says it
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


def _turns(mine: state.Desk) -> None:
    grid, study = st.columns(2), mine.study
    with grid[0]:
        seed = st.number_input("Seed", 0, _MOST_SEED, study.base.seed, step=1, key=state.widget("seed"), help=_SEED)
    with grid[1]:
        # More runs than may wait could not be started with one click.
        most = max(min(_MOST_REPEATS, server.pool().most_each // len(study.allocators)), study.repeats)
        repeats = st.number_input("Repeats", 1, most, study.repeats, step=1, key=state.widget("repeats"), help=_REPEATS)
    if (seed, repeats) != (study.base.seed, study.repeats):
        mine.edit(state.with_turns(study, int(seed), int(repeats)))


def _size(mine: state.Desk) -> None:
    """Say before Run what a large scenario takes, and what could be run instead."""
    study, pool = mine.study, server.pool()
    try:
        told = estimate.estimate(study, pool.store, pool.costs, pool.workers)
    except TrainyardError:
        return  # the trace is missing, which is said above
    if not told.large or mine.live or (mine.shown is not None and not mine.stale and _complete(mine)):
        return
    more = "" if told.known else ", more if a policy that has not run here yet solves optimisation problems"
    of = f"{words.plural(told.jobs, 'job')} in {words.plural(told.runs, 'run')}"
    less = estimate.smaller(study.base.trace, told.jobs, load_trace(study.base.trace, pool.store).span_s)
    ways = " Run it, or take less:" if less else " Fewer repeats or policies take less." if told.runs > 1 else ""
    st.warning(f"{of}: about {words.time(told.seconds)} and {told.memory_gb:.1f} GB{more}.{ways}", icon=":material/timer:")
    with st.container(horizontal=True):
        for label, spec in less.items():
            st.button(f"Take {label}", key=f"less/{label}", on_click=_take, args=(mine, spec))


def _take(mine: state.Desk, spec: TraceSpec) -> None:
    mine.replace(start.with_trace(mine.study, spec, server.store()))


def _run(mine: state.Desk, page: str) -> None:
    differs = mine.shown is None or bool(mine.stale) or not _complete(mine)
    # Of all buttons in sight one is primary: on Start the sample, on Learn the replay, on Compare and Explore without any result the one in the page.
    elsewhere = page in ("start", "learn", "plan") or (page in RESULTS and not mine.stale and not _any_complete(mine))
    primary = differs and not elsewhere and not mine.live
    stopped = profiles.stopped(mine.study)
    barred = stopped is not None or start.trace_is_gone(mine.study, server.store())
    kind: Literal["primary", "secondary"] = "primary" if primary and not barred else "secondary"
    clicked = st.button("Run", key="run", icon=":material/play_arrow:", type=kind, width="stretch", disabled=barred)
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


def _any_complete(mine: state.Desk) -> bool:
    return mine.shown is not None and bool(lookup.gather(mine.shown).places)


def _complete(mine: state.Desk) -> bool:
    if mine.shown is None:
        return False
    shown = lookup.gather(mine.shown)
    missing = {title for at, title in enumerate(shown.titles) if not shown.complete(at)}
    return not missing or missing <= set(lookup.barred(mine.shown))


def _status(mine: state.Desk) -> None:
    if mine.live:
        return
    if mine.stale:
        changes = mine.stale
        st.caption(f":material/history: Changed since the last run: {words.plain('; '.join(changes[:4]))}.")
    elif mine.shown is None:
        st.caption(":material/info: Nothing has been run yet.")
    elif _complete(mine):
        _up_to_date(mine, lookup.gather(mine.shown))
    else:
        lacking = "Some policies of this scenario have" if _any_complete(mine) else "This scenario has"
        st.caption(f":material/info: {lacking} no result.")


def _up_to_date(mine: state.Desk, shown: Shown) -> None:
    entries = [entry for own in shown.entries for entry in own]
    took = f"computed in {words.time(max(sum(entry.provenance['timing']['wall_s'] for entry in entries), 0.1))}"
    if any(entry.key in mine.fresh for entry in entries):
        st.caption(f":material/check: Up to date, {took}.")
        return
    age_s = time.time() - max(float(entry.provenance["created_s"]) for entry in entries)
    st.caption(f":material/check: Up to date. Stored result, {took}, {words.time(age_s)} ago." if entries else ":material/check: Up to date.")
    if entries and st.button("Run again", key="run_again", icon=":material/refresh:", type="tertiary", help=_AGAIN):
        mine.run(again=True)
        st.rerun()


def _undo(mine: state.Desk) -> None:
    if not mine.past:
        return
    changes = differences(mine.past[-1], mine.study, server.store()) or ["details"]
    # A callback, because the forms of the page are to show the earlier scenario in this very run.
    st.button("Undo", key="undo", icon=":material/undo:", type="tertiary", on_click=mine.undo, help=f"Takes back: {words.plain('; '.join(changes[:4]))}")


_SEED: Final = "Everything random (failures, noise) follows from it. Equal scenarios with equal seeds give equal results."
_REPEATS: Final = "Runs of every policy, each with the next seed; Compare then shows intervals. Where nothing is random, all of them are equal."
_AGAIN: Final = "Equal runs must give equal results: one that comes out otherwise is reported."
