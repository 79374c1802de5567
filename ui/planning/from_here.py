"""The tab "From here on" of the Plan page: what changes at an instant of a run that is shown, the run that this makes, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, isnan
from typing import Final

import pandas as pd
import streamlit as st

import charts
from sim.cluster import Cluster
from sim.errors import ParameterError, TrainyardError
from sim.params import Spec
from trainyard.results.outcomes import Shown
from trainyard.runs.pool import Job
from trainyard.store import Entry
from trainyard.study import catalog
from trainyard.study.catalog import Choice
from trainyard.study.study import Study
from trainyard.sweeps import telling
from trainyard.text import Clock
from trainyard.traces.sources import load_trace
from trainyard.what_if import branch as from_here
from trainyard.what_if import branch_diff, tables
from trainyard.what_if.branch import Branch, FromHere, Turn
from trainyard.what_if.branch_diff import HERE, WAS, After
from ui import figure, lookup, owner, place, server, state, words
from ui.choosing import forms
from ui.exploring import view

NAME: Final = "from-here"
"""Of the tab, in the address."""
TURN: Final = "turn"
"""Parameter of the address: what changes, see `trainyard.what_if.branch.Turn.pack`."""
EVERY_S: Final = 0.5
_WRITTEN: Final = "from_here_written"
_FORM: Final = "from_here_form"
_EDITION: Final = "from_here_edition"
_JOBS: Final = "from_here_jobs"
_OPENED: Final = "from_here_opened"
_SLIDER: Final = "from_here/slider"
_TYPED: Final = "from_here/typed"
_AS_BEFORE: Final = "as before"
_MOST_ROWS: Final = 12
_MOST_NAMES: Final = 2000
_ABOUT: Final = (
    "At one instant of a run, another policy takes over, nodes come, or machines are lost. What happened before stays as it was; "
    "what comes after is compared with what would have come, job by job."
)


def draw() -> None:
    """Draw the tab."""
    st.write(_ABOUT)
    mine = state.desk()
    try:
        shown = lookup.gather(mine.shown) if mine.shown is not None else None
        if shown is None or not shown.places:
            st.write("There is no run to begin with yet.")
            st.page_link("pages/compare.py", label="Run the scenario first", icon=":material/play_arrow:")
            return
        asked = _adopt()
        at = _policy(shown)
        end_s = float(shown.entries[at][0].summary["end_s"])
        recipe = _asked(shown, at, _instant(shown.entries[at][0], end_s), asked)
        if recipe is not None:
            place.put(TURN, _remembered(recipe.turn))
            _run(recipe, shown.entries[at][0])
            _results(recipe)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")


def link(at_s: float) -> None:
    """Draw the way from an instant of the Explore page to this tab."""
    there = state.address() | {"tab": NAME, view.INSTANT: f"{at_s:.0f}"}
    policy = view.asked(view.POLICY)
    st.page_link("pages/plan.py", label="What if from here on", icon=":material/alt_route:", query_params=there | ({view.POLICY: policy} if policy else {}))


def parameters(recipe: FromHere) -> dict[str, str]:
    """Return what the address holds of it, beside the study."""
    return {"tab": NAME, view.POLICY: str(recipe.policy), TURN: recipe.turn.pack()}


def _adopt() -> Turn | None:
    """Return what the form begins with: what the address holds if it comes from elsewhere, else what this session asked last."""
    text = place.asked(TURN)
    if text and text != st.session_state.get(_WRITTEN):
        try:
            turn = Turn.unpack(text)
        except TrainyardError as error:
            place.put(TURN, "")
            st.error(words.plain(str(error)), icon=":material/error:")
            return None
        st.session_state[_EDITION] = int(st.session_state.get(_EDITION, 0)) + 1
        view.put(view.INSTANT, f"{turn.at_s:g}")
        st.session_state[_OPENED] = _remembered(turn)
        return turn
    kept: Turn | None = st.session_state.get(_FORM)
    return kept


def _remembered(turn: Turn) -> str:
    st.session_state[_FORM], st.session_state[_WRITTEN] = turn, turn.pack()
    return str(st.session_state[_WRITTEN])


# -- what is asked -------------------------------------------------------------------------------------------------------------------------------------------


def _policy(shown: Shown) -> int:
    """Draw the choice of the run; return its place in the study."""
    titles = {str(at): shown.titles[at] for at in shown.places}
    first = next((at for at in titles if at != str(shown.baseline)), next(iter(titles)))
    return int(view.choice(st.selectbox, "The run under", list(titles), view.POLICY, first, format_func=titles.__getitem__, width=320))


def _instant(entry: Entry, end_s: float) -> float:
    """Draw the instant as a slider and as a number; return it, in seconds."""
    asked = view.number(view.INSTANT)
    least_s = min(1.0, end_s / 2)
    at_s = min(max(tables.busiest_s(entry.chart("queue")) if asked is None else asked, least_s), max(end_s - least_s, least_s))
    unit_s, unit = charts.TimeAxis(0.0, max(end_s, 1.0)).unit
    st.session_state[_SLIDER] = st.session_state[_TYPED] = at_s / unit_s
    with st.container(horizontal=True, vertical_alignment="bottom"):
        label = f"From here on: {unit} since the first submission"
        st.slider(label, 0.0, end_s / unit_s, step=end_s / unit_s / 1000, format="%.2f", key=_SLIDER, on_change=_moved, args=(_SLIDER, unit_s))
        st.number_input(unit.capitalize(), 0.0, end_s / unit_s, format="%.3f", key=_TYPED, on_change=_moved, args=(_TYPED, unit_s), width=150)
    return at_s


def _moved(key: str, unit_s: float) -> None:
    view.put(view.INSTANT, f"{float(st.session_state[key]) * unit_s:.0f}")


def _asked(shown: Shown, at: int, at_s: float, asked: Turn | None) -> FromHere | None:
    """Draw what changes; return what is asked, or None after saying what is missing."""
    study = shown.study
    cluster = study.base.cluster
    edition = int(st.session_state.get(_EDITION, 0))
    policy = _then(study, asked, edition)
    added = _added(cluster, dict(asked.added) if asked else {}, edition)
    lost, until_s = _lost(cluster, at_s, asked, edition)
    if policy is None and not added and not lost:
        st.caption(":material/info: Choose what changes: another policy, nodes to add, or what is lost.")
        place.put(TURN, "")
        return None
    recipe = FromHere(study, at, Turn(at_s, policy, added, lost, until_s))
    trace = load_trace(study.base.trace, server.store())
    if reason := catalog.allocator(recipe.branch.here.allocator, trace, study.base.perf).reason:
        raise ParameterError(f"This policy cannot take over here: {reason}")
    return recipe


def _then(study: Study, asked: Turn | None, edition: int) -> Spec | None:
    choices = _choices(study)
    names = [_AS_BEFORE, *choices]
    before = asked.policy if asked is not None else None
    first = names.index(before.name) if before is not None and before.name in names else 0
    titles = {_AS_BEFORE: "stays as before", **{name: choice.title for name, choice in choices.items()}}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox("The policy", names, first, key=f"from_here/policy/{edition}", format_func=titles.__getitem__, width=320)
    if name == _AS_BEFORE:
        return None
    kept = before if before is not None and before.name == name else Spec(name)
    if not choices[name].params:
        return kept
    with st.expander(f"Parameters of {choices[name].title}", key=f"from_here/params/{name}/{edition}"):
        return catalog.canonical("allocator", forms.spec(name, kept, f"from_here/{name}/{edition}"))


def _choices(study: Study) -> dict[str, Choice]:
    trace = load_trace(study.base.trace, server.store())
    known = catalog.allocator_choices(trace, study.base.perf)
    return {choice.name: choice for choice in known if not choice.reason and not any(info.kind == "spec" for info in choice.params)}


def _added(cluster: Cluster, before: dict[int, int], edition: int) -> tuple[tuple[int, int], ...]:
    """Draw how many nodes come, row by row."""
    rows = from_here.rows_of(cluster)[:_MOST_ROWS]
    grid, found = st.grid(min_column_width=forms.CELL_PX, vertical_alignment="bottom"), []
    for row, name in enumerate(rows):
        group = cluster.groups[row]
        what = f"{group.gpus} × {group.gpu_type}" if group.gpus else "no GPUs"
        with grid.cell():
            label = words.plain(f"Nodes to add like {name} ({what})")
            count = st.number_input(label, 0, 10_000, before.get(row, 0), step=1, key=f"from_here/add/{row}/{edition}")
        found += [(row, int(count))] if count else []
    if len(cluster.groups) > len(rows):
        st.caption(f"The first {len(rows)} of {words.plural(len(cluster.groups), 'row')} of the cluster.")
    return tuple(found)


def _lost(cluster: Cluster, at_s: float, asked: Turn | None, edition: int) -> tuple[tuple[str, ...], float]:
    """Draw which racks and nodes go, and when they are back."""
    known = from_here.losable(cluster)
    names = list(known)[:_MOST_NAMES]
    before = [name for name in (asked.lost if asked else ()) if name in names]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        told = {name: charts.visible(f"{name} ({words.plural(known[name], 'node')})" if known[name] > 1 else name) for name in names}
        lost = st.multiselect("Racks and nodes to lose", names, before, key=f"from_here/lose/{edition}", format_func=told.__getitem__, placeholder="none")
        hours = (asked.until_s - asked.at_s) / 3600 if asked is not None and isfinite(asked.until_s) else 0.0
        back = st.number_input(
            "Back after (h)", 0.0, None, hours, step=1.0, format="%g", key=f"from_here/back/{edition}", help="0 = they never come back.", width=150
        )
    if len(known) > len(names):
        st.caption(f"The first {len(names):,} of {len(known):,} names.")
    return tuple(lost), at_s + float(back) * 3600 if back else inf


# -- the run -------------------------------------------------------------------------------------------------------------------------------------------------


def _run(recipe: FromHere, was: Entry) -> None:
    """Draw the button, or how far the runs are; nothing where both are stored."""
    branch = recipe.branch
    jobs = _jobs(recipe)
    if None not in _entries(branch):
        return
    if not any(not job.settled for job in jobs):
        _ended(jobs)
        took_s, count = float(was.provenance["timing"]["wall_s"]), int(was.summary["jobs"])
        seconds = from_here.seconds(recipe.turn, took_s, count, server.pool().costs)
        if st.button(f"Run from here on: about {telling.about(seconds)}", key="from_here/run", type="primary", icon=":material/play_arrow:"):
            state.desk().notice = owner.shelve(recipe, [job.key for job in _submitted(recipe)])
            st.rerun()
        st.caption("The run is repeated from its beginning. What it gives stands among your runs on Start.")
        return
    st.fragment(_live, run_every=EVERY_S)(jobs)


def _submitted(recipe: FromHere) -> list[Job]:
    pool, mine, branch = server.pool(), state.desk(), recipe.branch
    jobs = [pool.submit(scenario, mine.watcher) for scenario in (branch.was, branch.here)]
    st.session_state[_JOBS] = (recipe.canonical(), jobs)
    return jobs


def _jobs(recipe: FromHere) -> list[Job]:
    """Return the runs that were started for this; those of another one are left."""
    mark, jobs = st.session_state.get(_JOBS, ("", []))
    if mark == recipe.canonical():
        return list(jobs)
    for job in jobs:
        job.cancel()
    st.session_state.pop(_JOBS, None)
    # Most often that of the same person before a reload.
    return _submitted(recipe) if server.pool().is_going(recipe.branch.here) else []


def _live(jobs: Sequence[Job]) -> None:
    going = [job for job in jobs if not job.settled]
    if not going:
        st.rerun()
    for job in going:
        text = f"Place {job.place} in the queue" if job.place else f"Running: {100 * job.share:.0f} %"
        st.progress(min(max(job.share, 0.0), 1.0), text=text)
    # A callback, because it comes before anything that starts the page anew and so cannot lose the click.
    st.button("Cancel", key="from_here/cancel", on_click=_cancel, args=(going,), icon=":material/stop_circle:")


def _cancel(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job.cancel()


def _ended(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.state == "failed":
            st.error(words.plain(job.error), icon=":material/error:")
    if any(job.state == "cancelled" for job in jobs):
        st.info("Stopped. Nothing of it is kept.", icon=":material/stop_circle:")


def _entries(branch: Branch) -> tuple[Entry | None, Entry | None]:
    found = [lookup.gather(Study(scenario, (scenario.allocator,))).entries[0] for scenario in (branch.was, branch.here)]
    was, here = (own[0] if own else None for own in found)
    return was, here


# -- what came of it -----------------------------------------------------------------------------------------------------------------------------------------


def _results(recipe: FromHere) -> None:
    branch = recipe.branch
    was, here = _entries(branch)
    if was is None or here is None:
        return
    if st.session_state.pop(_OPENED, "") == branch.turn.pack():
        state.desk().notice = owner.shelve(recipe, [was.key, here.key])
    end_s = max(float(entry.summary["end_s"]) for entry in (was, here))
    clock = Clock(seconds=end_s < 2 * 3600)
    found = _after(f"{was.key} {here.key}", branch, was, here, clock)
    st.subheader(words.plain(found.sentence), anchor=False)
    _figure(branch, (was, here), found, end_s, clock)
    figure.table(branch_diff.lines(found), "trainyard-from-here-on")
    st.caption(words.plain(_notes(branch, found)))
    _elsewhere(branch)


def _figure(branch: Branch, entries: tuple[Entry, Entry], found: After, end_s: float, clock: Clock) -> None:
    at_s, axis = branch.turn.at_s, charts.TimeAxis(0.0, max(end_s, 1.0))
    style = charts.policy_style([WAS, HERE], WAS)
    frames = branch_diff.frames(*entries)
    key = ("from_here", entries[0].key, entries[1].key, at_s)
    drawn = figure.kept(key, lambda: charts.parted(frames, style, axis, at_s, "Who waits, and how busy are the GPUs?"))
    figure.draw(
        drawn, "from-here-on", f"Jobs waiting and GPUs busy over time, as it was and from {clock.at(at_s)} on. {found.sentence}", lambda: _series(frames)
    )
    st.caption(f"Dashed line: {clock.at(at_s)}. Dotted: GPUs there, from here on.")


def _series(frames: dict[str, dict[str, pd.DataFrame]]) -> pd.DataFrame:
    parts = [
        pd.DataFrame({"Run": title, "What": named, "Seconds": frame["t_s"], "Mean": frame[column]})
        for kind, column, named in (("queue", "waiting", "Jobs waiting"), ("utilisation", "total", "GPUs held"))
        for title, frame in frames[kind].items()
    ]
    return pd.concat(parts, ignore_index=True)


def _notes(branch: Branch, found: After) -> str:
    told = ["Times of jobs are of those that both runs completed."]
    if isnan(found.differs_s):
        told.append("Who held which GPUs when is the same in both runs up to the line.")
    if branch.turn.policy is not None:
        told.append("To the policy that takes over, every waiting job has just arrived; running jobs go on until it decides otherwise.")
    if branch.turn.added:
        told.append("Nodes that come are paid from then on, and nobody knows of them before.")
    if branch.turn.lost:
        told.append("Nodes that are lost are not paid meanwhile.")
    return " ".join(told)


def _elsewhere(branch: Branch) -> None:
    study = branch.study
    if study is None:
        st.caption("The two runs have different machines, so Compare cannot show both at once.")
    elif st.button("Open in Compare", key="from_here/compare", icon=":material/compare_arrows:"):
        state.desk().open(study)
        st.switch_page("pages/compare.py", query_params=state.address())


@st.cache_resource(max_entries=16, show_spinner=False)
def _after(keys: str, _branch: Branch, _was: Entry, _here: Entry, _clock: Clock) -> After:
    del keys
    return branch_diff.after(_branch, _was, _here, _clock)
