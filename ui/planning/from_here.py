"""The tab "Change from an instant" of the Plan page: what changes at an instant of a run that is
shown, the run that this makes, and what came of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import inf, isfinite, isnan
from typing import Final

import streamlit as st

from sim.cluster import Cluster
from sim.errors import ParameterError, TrainyardError
from sim.params import Spec
from trainyard.results.outcomes import Shown
from trainyard.runs.estimate import run_seconds
from trainyard.runs.queue import Submission
from trainyard.store import StoredResult
from trainyard.study import branch as from_here
from trainyard.study import catalog
from trainyard.study.branch import Branch, BranchPoint, FromHere
from trainyard.study.catalog import CatalogEntry
from trainyard.study.study import Study
from trainyard.sweeps import sentences
from trainyard.text import RunClock, gpu_type
from trainyard.traces.sources import load_trace
from trainyard.views import charts, explored
from trainyard.what_if import branch_diff, tables
from trainyard.what_if.branch_diff import After
from ui import (
    browser_identity,
    comparison,
    exploration,
    figure,
    job_drawer,
    server,
    state,
    stored_results,
    url_params,
    words,
)
from ui.choosing import forms
from ui.comparing import job_table

NAME: Final = "from-here"
"""Of the tab, in the address."""
TURN: Final = "turn"
"""Parameter of the address: what changes, see `trainyard.study.branch.Turn.pack`."""
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
    "At one instant of a run, another policy takes over, nodes come, or machines are lost. What"
    " happened before stays as it was; what comes after is compared with what would have come, job"
    " by job."
)
_YEAR_S: Final = 365 * 86_400.0
_SLIDER_STEPS: Final = 1000


def draw() -> None:
    """Draw the tab."""
    st.write(_ABOUT)
    session = state.session()
    try:
        shown = stored_results.gather(session.shown) if session.shown is not None else None
        if shown is None or not shown.places:
            st.write("There is no run to begin with yet.")
            st.page_link(
                "pages/compare.py", label="Run the scenario first", icon=":material/play_arrow:"
            )
            return
        asked = _adopt()
        at = _policy(shown)
        end_s = float(shown.entries[at][0].summary["end_s"])
        recipe = _asked(shown, at, _instant(shown.entries[at][0], end_s), asked)
        if recipe is not None:
            url_params.put(TURN, _remembered(recipe.turn))
            _run(recipe, shown.entries[at][0])
            _results(recipe)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")


def link(at_s: float) -> None:
    """Draw the way from an instant of the Explore page to this tab."""
    there = state.address() | {"tab": NAME, exploration.INSTANT: f"{at_s:.0f}"}
    policy = exploration.asked(exploration.POLICY)
    st.page_link(
        "pages/plan.py",
        label="Change from this instant",
        icon=":material/alt_route:",
        query_params=there | ({exploration.POLICY: policy} if policy else {}),
    )


def parameters(recipe: FromHere) -> dict[str, str]:
    """Return what the address holds of it, beside the study."""
    return {"tab": NAME, exploration.POLICY: str(recipe.policy), TURN: recipe.turn.pack()}


def _adopt() -> BranchPoint | None:
    """Return what the form begins with: what the address holds if it comes from elsewhere, else
    what this session asked last.
    """
    text = url_params.asked(TURN)
    if text and text != st.session_state.get(_WRITTEN):
        try:
            turn = BranchPoint.unpack(text)
        except TrainyardError as error:
            url_params.put(TURN, "")
            st.error(words.plain(str(error)), icon=":material/error:")
            return None
        st.session_state[_EDITION] = int(st.session_state.get(_EDITION, 0)) + 1
        exploration.put(exploration.INSTANT, f"{turn.at_s:g}")
        st.session_state[_OPENED] = _remembered(turn)
        return turn
    kept: BranchPoint | None = st.session_state.get(_FORM)
    return kept


def _remembered(turn: BranchPoint) -> str:
    st.session_state[_FORM], st.session_state[_WRITTEN] = turn, turn.pack()
    return str(st.session_state[_WRITTEN])


# -- what is asked
# --------------------------------------------------------------------------------------------------


def _policy(shown: Shown) -> int:
    """Draw the choice of the run; return its place in the study."""
    titles = {str(at): shown.titles[at] for at in shown.places}
    first = next((at for at in titles if at != str(shown.baseline)), next(iter(titles)))
    return int(
        exploration.choice(
            st.selectbox,
            "Policy of the run",
            list(titles),
            exploration.POLICY,
            first,
            format_func=titles.__getitem__,
            width=320,
        )
    )


def _instant(entry: StoredResult, end_s: float) -> float:
    """Draw the instant as a slider and as a number; return it, in seconds."""
    asked = exploration.number(exploration.INSTANT)
    least_s = min(1.0, end_s / 2)
    at_s = min(
        max(tables.busiest_s(entry.chart("queue")) if asked is None else asked, least_s),
        max(end_s - least_s, least_s),
    )
    epoch = state.epoch()
    clock = RunClock(epoch, seconds=end_s < 2 * 3600)
    first = _first_submission(epoch)
    st.session_state[_SLIDER] = first + timedelta(seconds=at_s)
    # The browser counts the days of one year only.
    days = "ddd D MMM" if epoch else "[day] DDD" if end_s < _YEAR_S else "MMM D"
    key = f"{_TYPED}/{at_s:.0f}/{epoch}"
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.slider(
            "Change from this instant on",
            first,
            first + timedelta(seconds=end_s),
            step=timedelta(seconds=end_s) / _SLIDER_STEPS,
            format=f"{days}, HH:mm",
            key=_SLIDER,
            on_change=_slid,
            args=(epoch,),
        )
        st.text_input("Instant", clock.at(at_s), key=key, on_change=_typed, args=(at_s, key, clock))
        _meant(at_s, key, clock)
    return at_s


def _slid(epoch: str) -> None:
    at_s = (st.session_state[_SLIDER] - _first_submission(epoch)).total_seconds()
    exploration.put(exploration.INSTANT, f"{at_s:.0f}")


def _typed(at_s: float, key: str, clock: RunClock) -> None:
    if (meant := _meant(at_s, key, clock)) is not None:
        exploration.put(exploration.INSTANT, f"{meant:.0f}")


def _meant(at_s: float, key: str, clock: RunClock) -> float | None:
    """Return the instant that the field says, in seconds; None after saying that it is none."""
    typed = str(st.session_state[key])
    if typed == clock.at(at_s):
        return at_s  # exactly, while nobody has changed the text
    try:
        return clock.read(typed)
    except ParameterError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return None


def _first_submission(epoch: str) -> datetime:
    """Return the wall clock then; without a calendar the first day of a year."""
    return datetime.fromisoformat(epoch).replace(tzinfo=None) if epoch else datetime(1970, 1, 1)


def _asked(shown: Shown, at: int, at_s: float, asked: BranchPoint | None) -> FromHere | None:
    """Draw what changes; return what is asked, or None after saying what is missing."""
    study = shown.study
    cluster = study.base.cluster
    edition = int(st.session_state.get(_EDITION, 0))
    policy = _then(study, asked, edition)
    added = _added(cluster, dict(asked.added) if asked else {}, edition)
    lost, until_s = _lost(cluster, at_s, asked, edition)
    if policy is None and not added and not lost:
        st.caption(
            ":material/info: Choose what changes: another policy, nodes to add, or what is lost."
        )
        url_params.put(TURN, "")
        return None
    recipe = FromHere(study, at, BranchPoint(at_s, policy, added, lost, until_s))
    trace = load_trace(study.base.trace, server.store())
    if reason := catalog.allocator(recipe.branch.here.allocator, trace, study.base.perf).reason:
        raise ParameterError(f"This policy cannot take over here: {reason}")
    return recipe


def _then(study: Study, asked: BranchPoint | None, edition: int) -> Spec | None:
    choices = _choices(study)
    names = [_AS_BEFORE, *choices]
    before = asked.policy if asked is not None else None
    first = names.index(before.name) if before is not None and before.name in names else 0
    titles = {
        _AS_BEFORE: "stays as before",
        **{name: choice.title for name, choice in choices.items()},
    }
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox(
            "The policy",
            names,
            first,
            key=f"from_here/policy/{edition}",
            format_func=titles.__getitem__,
            width=320,
        )
    if name == _AS_BEFORE:
        return None
    kept = before if before is not None and before.name == name else Spec(name)
    if not choices[name].params:
        return kept
    with st.expander(
        f"Parameters of {choices[name].title}", key=f"from_here/params/{name}/{edition}"
    ):
        return catalog.canonical("allocator", forms.spec(name, kept, f"from_here/{name}/{edition}"))


def _choices(study: Study) -> dict[str, CatalogEntry]:
    trace = load_trace(study.base.trace, server.store())
    known = catalog.allocator_choices(trace, study.base.perf)
    return {
        choice.name: choice
        for choice in known
        if not choice.reason and not any(info.kind == "spec" for info in choice.params)
    }


def _added(cluster: Cluster, before: dict[int, int], edition: int) -> tuple[tuple[int, int], ...]:
    """Draw how many nodes come, row by row."""
    rows = from_here.rows_of(cluster)[:_MOST_ROWS]
    grid, found = st.grid(min_column_width=forms.CELL_PX, vertical_alignment="bottom"), []
    for row, name in enumerate(rows):
        group = cluster.groups[row]
        what = f"{group.gpus} × {gpu_type(group.gpu_type)}" if group.gpus else "no GPUs"
        with grid.cell():
            label = words.plain(f"Nodes to add like {name} ({what})")
            count = st.number_input(
                label, 0, 10_000, before.get(row, 0), step=1, key=f"from_here/add/{row}/{edition}"
            )
        found += [(row, int(count))] if count else []
    if len(cluster.groups) > len(rows):
        st.caption(
            f"The first {len(rows)} of {words.plural(len(cluster.groups), 'row')} of the cluster."
        )
    return tuple(found)


def _lost(
    cluster: Cluster, at_s: float, asked: BranchPoint | None, edition: int
) -> tuple[tuple[str, ...], float]:
    """Draw which racks and nodes go, and when they are back."""
    known = from_here.losable(cluster)
    names = list(known)[:_MOST_NAMES]
    before = [name for name in (asked.lost if asked else ()) if name in names]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        labels = {
            name: charts.visible(
                f"{name} ({words.plural(known[name], 'node')})" if known[name] > 1 else name
            )
            for name in names
        }
        lost = st.multiselect(
            "Racks and nodes to lose",
            names,
            before,
            key=f"from_here/lose/{edition}",
            format_func=labels.__getitem__,
            placeholder="none",
        )
        hours = (
            (asked.until_s - asked.at_s) / 3600
            if asked is not None and isfinite(asked.until_s)
            else 0.0
        )
        back = st.number_input(
            "Back after (h)",
            0.0,
            None,
            hours,
            step=1.0,
            format="%g",
            key=f"from_here/back/{edition}",
            help="0 = they never come back.",
            width=150,
        )
    if len(known) > len(names):
        st.caption(f"The first {len(names):,} of {len(known):,} names.")
    return tuple(lost), at_s + float(back) * 3600 if back else inf


# -- the run
# --------------------------------------------------------------------------------------------------


def _run(recipe: FromHere, was: StoredResult) -> None:
    """Draw the button, or how far the runs are; nothing where both are stored."""
    branch = recipe.branch
    jobs = _jobs(recipe)
    if None not in _entries(branch):
        return
    if not any(not job.settled for job in jobs):
        _ended(jobs)
        pool = server.pool()
        seconds = max(
            float(was.provenance["timing"]["cpu_s"]),
            run_seconds(branch.here, pool.store, pool.costs),
        )
        if st.button(
            f"Run from here on: about {sentences.about(seconds)}",
            key="from_here/run",
            type="primary",
            icon=":material/play_arrow:",
        ):
            state.session().notice = browser_identity.shelve(
                recipe, [job.key for job in _submitted(recipe)]
            )
            st.rerun()
        st.caption(
            "The run is repeated from its beginning. What it gives stands among your runs on Start."
        )
        return
    st.fragment(_live, run_every=EVERY_S)(jobs)


def _submitted(recipe: FromHere) -> list[Submission]:
    pool, session, branch = server.pool(), state.session(), recipe.branch
    jobs = [pool.submit(scenario, session.watcher) for scenario in (branch.was, branch.here)]
    st.session_state[_JOBS] = (recipe.canonical(), jobs)
    session.count_other(recipe.canonical(), jobs)
    return jobs


def _jobs(recipe: FromHere) -> list[Submission]:
    """Return the runs that were started for this; those of another one are left."""
    mark, jobs = st.session_state.get(_JOBS, ("", []))
    if mark == recipe.canonical():
        return list(jobs)
    for job in jobs:
        job.cancel()
    st.session_state.pop(_JOBS, None)
    # Most often that of the same person before a reload.
    return _submitted(recipe) if server.pool().is_going(recipe.branch.here) else []


def _live(jobs: Sequence[Submission]) -> None:
    going = [job for job in jobs if not job.settled]
    if not going:
        st.rerun()
    for job in going:
        text = (
            f"Place {job.place} in the queue" if job.place else f"Running: {100 * job.share:.0f} %"
        )
        st.progress(min(max(job.share, 0.0), 1.0), text=text)
    # A callback, because it comes before anything that starts the page anew and so cannot lose the
    # click.
    st.button(
        "Cancel",
        key="from_here/cancel",
        on_click=_cancel,
        args=(going,),
        icon=":material/stop_circle:",
    )


def _cancel(jobs: Sequence[Submission]) -> None:
    for job in jobs:
        job.cancel()


def _ended(jobs: Sequence[Submission]) -> None:
    for job in jobs:
        if job.state == "failed":
            st.error(words.plain(job.error), icon=":material/error:")
    if any(job.state == "cancelled" for job in jobs):
        st.info("Stopped. No result of this run is kept.", icon=":material/stop_circle:")


def _entries(branch: Branch) -> tuple[StoredResult | None, StoredResult | None]:
    found = [
        stored_results.gather(Study(scenario, (scenario.allocator,))).entries[0]
        for scenario in (branch.was, branch.here)
    ]
    was, here = (own[0] if own else None for own in found)
    return was, here


# -- what came of it
# --------------------------------------------------------------------------------------------------


def _results(recipe: FromHere) -> None:
    branch = recipe.branch
    was, here = _entries(branch)
    if was is None or here is None:
        return
    if st.session_state.pop(_OPENED, "") == branch.turn.pack():
        state.session().notice = browser_identity.shelve(recipe, [was.key, here.key])
    end_s = max(float(entry.summary["end_s"]) for entry in (was, here))
    clock = RunClock(state.epoch(), seconds=end_s < 2 * 3600)
    found = _after(f"{was.key} {here.key} {clock.epoch}", branch, was, here, clock)
    st.title(words.plain(found.sentence), anchor=False)
    view = figure.kept(
        ("branched", was.key, here.key, branch.turn.at_s, clock),
        lambda: explored.branched(was, here, branch.turn.at_s, found, clock),
    )
    figure.draw(view)
    figure.table(branch_diff.lines(found), "trainyard-from-here-on", sorts=False)
    st.caption(words.plain(_notes(branch, found)))
    _elsewhere(branch)
    _each_job(branch)


def _notes(branch: Branch, found: After) -> str:
    parts = ["Times of jobs are of those that both runs completed."]
    if isnan(found.differs_s):
        parts.append("Up to the line both runs are the same.")
    if branch.turn.policy is not None:
        parts.append(
            "The new policy sees every waiting job as just submitted; running jobs go on"
            " until the new policy changes them."
        )
    if branch.turn.added:
        parts.append(
            "Added nodes are paid for from that instant on; no policy plans with them before."
        )
    if branch.turn.lost:
        parts.append("Lost nodes are not paid for while they are missing.")
    return " ".join(parts)


def _elsewhere(branch: Branch) -> None:
    study = branch.study
    if study is None:
        st.caption("The two runs have different machines, so Compare cannot show both at once.")
    elif st.button("Open in Compare", key="from_here/compare", icon=":material/compare_arrows:"):
        state.session().open(study)
        st.switch_page("pages/compare.py", query_params=state.address())


def _each_job(branch: Branch) -> None:
    """Draw the jobs that the change made slower or faster; a row opens the drawer."""
    compared = (
        None if branch.study is None else comparison.compare(stored_results.gather(branch.study))
    )
    if compared is None or len(compared.report.labels) < 2:
        return
    changed = next(title for title in compared.report.labels if title != compared.baseline)
    st.subheader("Jobs", anchor=False)
    job_table.draw(compared, changed)
    job_drawer.draw(compared, [changed, compared.baseline])


@st.cache_resource(max_entries=16, show_spinner=False)
def _after(
    keys: str, _branch: Branch, _was: StoredResult, _here: StoredResult, _clock: RunClock
) -> After:
    del keys
    return branch_diff.after(_branch, _was, _here, _clock)
