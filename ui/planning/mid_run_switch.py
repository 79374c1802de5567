"""The tab "Switch policy mid-run" of Plan: a change at one instant, and its effect."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import inf, isfinite, isnan
from typing import Final

import streamlit as st

from sim.cluster import Cluster
from sim.errors import ParameterError, TrainyardError
from sim.params import Spec
from trainyard.formatting import RunClock, gpu_type
from trainyard.results.outcomes import StudyResults
from trainyard.runs.estimate import run_seconds
from trainyard.runs.queue import Submission
from trainyard.store import StoredResult
from trainyard.study import branch_point as from_here
from trainyard.study import catalog
from trainyard.study.branch_point import Branch, BranchPoint, FromHere
from trainyard.study.catalog import CatalogEntry
from trainyard.study.study import Study
from trainyard.sweeps import summaries
from trainyard.traces.sources import load_trace
from trainyard.views import charts, explored_runs
from trainyard.what_if import branch_diff, tables
from trainyard.what_if.branch_diff import BranchDifference
from ui import (
    browser_identity,
    comparison,
    explore_params,
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
"""Name of the tab in the URL."""
TURN: Final = "turn"
"""URL parameter: the changes, see `trainyard.study.branch_point.Turn.pack`."""
EVERY_S: Final = 0.5
_WRITTEN: Final = "from_here_written"
_FORM: Final = "from_here_form"
_EDITION: Final = "from_here_edition"
_JOBS: Final = "from_here_jobs"
_OPENED: Final = "from_here_opened"
_SLIDER: Final = "from_here/slider"
_TYPED: Final = "from_here/typed"
_AS_BEFORE: Final = "as before"
_MAX_ROWS: Final = 12
_MAX_NAMES: Final = 2000
_ABOUT: Final = (
    "Change the policy or the nodes mid-run, and compare the rest with the unchanged run, job by"
    " job."
)
_YEAR_S: Final = 365 * 86_400.0
_SLIDER_STEPS: Final = 1000


def draw() -> None:
    """Draw the tab "Switch policy mid-run": the form, the run and its results."""
    st.write(_ABOUT)
    session = state.session()
    try:
        runs = (
            stored_results.gather(session.displayed_study)
            if session.displayed_study is not None
            else None
        )
        if runs is None or not runs.places:
            st.write("There is no run to change yet.")
            st.page_link(
                "pages/compare.py", label="Run the scenario first", icon=":material/play_arrow:"
            )
            return
        initial = _initial_changes()
        policy_index = _draw_run_choice(runs)
        end_s = float(runs.entries[policy_index][0].summary["end_s"])
        recipe = _draw_form(
            runs, policy_index, _draw_instant(runs.entries[policy_index][0], end_s), initial
        )
        if recipe is not None:
            url_params.set_param(TURN, _remember(recipe.turn))
            _draw_run(recipe, runs.entries[policy_index][0])
            _draw_results(recipe)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")


def draw_link(at_s: float) -> None:
    """Draw the link to this tab with an instant (s) and the policy of Explore."""
    parameters = state.url_parameters() | {"tab": NAME, explore_params.INSTANT: f"{at_s:.0f}"}
    policy = explore_params.get(explore_params.POLICY)
    st.page_link(
        "pages/plan.py",
        label="Switch policy here",
        icon=":material/alt_route:",
        query_params=parameters | ({explore_params.POLICY: policy} if policy else {}),
    )


def url_parameters(recipe: FromHere) -> dict[str, str]:
    """Return tab, policy and changes as URL parameters; the study has its own."""
    return {"tab": NAME, explore_params.POLICY: str(recipe.policy), TURN: recipe.turn.pack()}


def _initial_changes() -> BranchPoint | None:
    """Return the changes of a newly followed link, else the last entered ones, or None.

    A link also sets the instant; an invalid one draws an error.
    """
    text = url_params.get(TURN)
    if text and text != st.session_state.get(_WRITTEN):
        try:
            changes = BranchPoint.unpack(text)
        except TrainyardError as error:
            url_params.set_param(TURN, "")
            st.error(words.plain(str(error)), icon=":material/error:")
            return None
        st.session_state[_EDITION] = int(st.session_state.get(_EDITION, 0)) + 1
        explore_params.set_param(explore_params.INSTANT, f"{changes.at_s:g}")
        st.session_state[_OPENED] = _remember(changes)
        return changes
    last_changes: BranchPoint | None = st.session_state.get(_FORM)
    return last_changes


def _remember(turn: BranchPoint) -> str:
    """Keep the changes in the session as the form's; return them as URL text."""
    st.session_state[_FORM], st.session_state[_WRITTEN] = turn, turn.pack()
    return str(st.session_state[_WRITTEN])


# -- the form
# --------------------------------------------------------------------------------------------------


def _draw_run_choice(runs: StudyResults) -> int:
    """Draw the choice of the run to change; return the index of its policy in the study."""
    titles = {str(index): runs.titles[index] for index in runs.places}
    first = next((index for index in titles if index != str(runs.baseline)), next(iter(titles)))
    return int(
        explore_params.draw_choice(
            st.selectbox,
            "Run to change",
            list(titles),
            explore_params.POLICY,
            first,
            format_func=titles.__getitem__,
            width=320,
        )
    )


def _draw_instant(entry: StoredResult, end_s: float) -> float:
    """Draw the instant as a slider and a text field; return that of the URL, in seconds.

    Without one, the instant with most waiting jobs; always inside the run.
    """
    url_instant_s = explore_params.get_number(explore_params.INSTANT)
    margin_s = min(1.0, end_s / 2)
    at_s = min(
        max(
            tables.busiest_s(entry.chart("queue")) if url_instant_s is None else url_instant_s,
            margin_s,
        ),
        max(end_s - margin_s, margin_s),
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
            "Change at",
            first,
            first + timedelta(seconds=end_s),
            step=timedelta(seconds=end_s) / _SLIDER_STEPS,
            format=f"{days}, HH:mm",
            key=_SLIDER,
            on_change=_on_slide,
            args=(epoch,),
        )
        st.text_input(
            "Exact time",
            clock.format(at_s),
            key=key,
            on_change=_on_instant_typed,
            args=(at_s, key, clock),
        )
        _parse_instant(at_s, key, clock)
    return at_s


def _on_slide(epoch: str) -> None:
    """Write the instant of the slider into the URL."""
    at_s = (st.session_state[_SLIDER] - _first_submission(epoch)).total_seconds()
    explore_params.set_param(explore_params.INSTANT, f"{at_s:.0f}")


def _on_instant_typed(at_s: float, key: str, clock: RunClock) -> None:
    """Write the typed instant into the URL if it can be parsed."""
    if (typed_s := _parse_instant(at_s, key, clock)) is not None:
        explore_params.set_param(explore_params.INSTANT, f"{typed_s:.0f}")


def _parse_instant(at_s: float, key: str, clock: RunClock) -> float | None:
    """Return the typed instant in seconds; draw an error and return None if it is invalid."""
    typed = str(st.session_state[key])
    if typed == clock.format(at_s):
        return at_s  # the exact value; the text is rounded
    try:
        return clock.read(typed)
    except ParameterError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return None


def _first_submission(epoch: str) -> datetime:
    """Return the calendar time of the first submission; 1970-01-01 without calendar."""
    return datetime.fromisoformat(epoch).replace(tzinfo=None) if epoch else datetime(1970, 1, 1)


def _draw_form(
    runs: StudyResults, policy_index: int, at_s: float, initial: BranchPoint | None
) -> FromHere | None:
    """Draw policy, added and lost nodes; return the changed run, or None without a change.

    A policy that cannot run these jobs raises a `ParameterError`.
    """
    study = runs.study
    cluster = study.base.cluster
    version = int(st.session_state.get(_EDITION, 0))
    policy = _draw_policy(study, initial, version)
    added = _draw_added_nodes(cluster, dict(initial.added) if initial else {}, version)
    lost, until_s = _draw_lost_nodes(cluster, at_s, initial, version)
    if policy is None and not added and not lost:
        st.caption(
            ":material/info: Choose a change: another policy, nodes to add, or nodes to remove."
        )
        url_params.set_param(TURN, "")
        return None
    recipe = FromHere(study, policy_index, BranchPoint(at_s, policy, added, lost, until_s))
    trace = load_trace(study.base.trace, server.store())
    if reason := catalog.allocator(recipe.branch.here.allocator, trace, study.base.perf).reason:
        raise ParameterError(f"This policy cannot continue this run: {reason}")
    return recipe


def _draw_policy(study: Study, initial: BranchPoint | None, version: int) -> Spec | None:
    """Draw the choice of the new policy and its parameters; return it, None = unchanged."""
    choices = _policy_choices(study)
    names = [_AS_BEFORE, *choices]
    before = initial.policy if initial is not None else None
    first = names.index(before.name) if before is not None and before.name in names else 0
    titles = {
        _AS_BEFORE: "unchanged",
        **{name: choice.title for name, choice in choices.items()},
    }
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox(
            "New policy",
            names,
            first,
            key=f"from_here/policy/{version}",
            format_func=titles.__getitem__,
            width=320,
        )
    if name == _AS_BEFORE:
        return None
    spec = before if before is not None and before.name == name else Spec(name)
    if not choices[name].params:
        return spec
    with st.expander(
        f"Parameters of {choices[name].title}", key=f"from_here/params/{name}/{version}"
    ):
        return catalog.canonical(
            "allocator", forms.draw_spec(name, spec, f"from_here/{name}/{version}")
        )


def _policy_choices(study: Study) -> dict[str, CatalogEntry]:
    """Return the policies that can run these jobs, without wrappers: name -> entry."""
    trace = load_trace(study.base.trace, server.store())
    entries = catalog.allocator_choices(trace, study.base.perf)
    return {
        choice.name: choice
        for choice in entries
        if not choice.reason and not any(info.kind == "spec" for info in choice.params)
    }


def _draw_added_nodes(
    cluster: Cluster, initial: dict[int, int], version: int
) -> tuple[tuple[int, int], ...]:
    """Draw a number of nodes to add per row of the cluster; return (row, count) pairs.

    Rows with 0 are left out. Only the first 12 rows are drawn.
    """
    rows = from_here.group_names(cluster)[:_MAX_ROWS]
    grid, added = st.grid(min_column_width=forms.CELL_PX, vertical_alignment="bottom"), []
    for row, name in enumerate(rows):
        group = cluster.groups[row]
        gpus = f"{group.gpus} × {gpu_type(group.gpu_type)}" if group.gpus else "no GPUs"
        with grid.cell():
            count = st.number_input(
                words.plain(f"Nodes to add like {name} ({gpus})"),
                0,
                10_000,
                initial.get(row, 0),
                step=1,
                key=f"from_here/add/{row}/{version}",
            )
        added += [(row, int(count))] if count else []
    if len(cluster.groups) > len(rows):
        st.caption(
            f"The first {len(rows)} of {words.plural(len(cluster.groups), 'row')} of the cluster."
        )
    return tuple(added)


def _draw_lost_nodes(
    cluster: Cluster, at_s: float, initial: BranchPoint | None, version: int
) -> tuple[tuple[str, ...], float]:
    """Draw the racks and nodes to remove; return names, and return time (s) or inf."""
    node_counts = from_here.nodes_by_place(cluster)
    names = list(node_counts)[:_MAX_NAMES]
    initial_names = [name for name in (initial.lost if initial else ()) if name in names]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        labels = {
            name: charts.visible(
                f"{name} ({words.plural(node_counts[name], 'node')})"
                if node_counts[name] > 1
                else name
            )
            for name in names
        }
        lost = st.multiselect(
            "Racks or nodes to remove",
            names,
            initial_names,
            key=f"from_here/lose/{version}",
            format_func=labels.__getitem__,
            placeholder="none",
        )
        back_h = st.number_input(
            "Back after (h)",
            0.0,
            None,
            (initial.until_s - initial.at_s) / 3600
            if initial is not None and isfinite(initial.until_s)
            else None,
            step=1.0,
            format="%g",
            key=f"from_here/back/{version}",
            placeholder="never",
            width=150,
        )
    if len(node_counts) > len(names):
        st.caption(f"The first {len(names):,} of {len(node_counts):,} names.")
    return tuple(lost), at_s + float(back_h) * 3600 if back_h else inf


# -- the run
# --------------------------------------------------------------------------------------------------


def _draw_run(recipe: FromHere, unchanged: StoredResult) -> None:
    """Draw the button that starts both runs, or their progress; nothing if both are stored."""
    branch = recipe.branch
    jobs = _submissions(recipe)
    if None not in _stored_pair(branch):
        return
    if not any(not job.has_ended for job in jobs):
        _draw_failures(jobs)
        pool = server.pool()
        seconds = max(
            float(unchanged.provenance["timing"]["cpu_s"]),
            run_seconds(branch.here, pool.store, pool.costs),
        )
        if st.button(
            f"Run: about {summaries.remaining_time(seconds)}",
            key="from_here/run",
            type="primary",
            icon=":material/play_arrow:",
        ):
            state.session().notice = browser_identity.add_to_runs(
                recipe, [job.key for job in _submit(recipe)]
            )
            st.rerun()
        st.caption("Both runs start at the beginning. The result is added to Your runs on Start.")
        return
    st.fragment(_draw_progress, run_every=EVERY_S)(jobs)


def _submit(recipe: FromHere) -> list[Submission]:
    """Submit the unchanged and the changed run, keep both in the session, and return them."""
    pool, session, branch = server.pool(), state.session(), recipe.branch
    jobs = [pool.submit(scenario, session.watcher) for scenario in (branch.was, branch.here)]
    st.session_state[_JOBS] = (recipe.canonical(), jobs)
    session.add_other_runs(recipe.canonical(), jobs)
    return jobs


def _submissions(recipe: FromHere) -> list[Submission]:
    """Return the submitted runs of this recipe; cancel runs of another recipe.

    If none is known but the changed run is in progress, both are submitted again to follow it.
    """
    recipe_text, jobs = st.session_state.get(_JOBS, ("", []))
    if recipe_text == recipe.canonical():
        return list(jobs)
    for job in jobs:
        job.cancel()
    st.session_state.pop(_JOBS, None)
    # Usually this user's run before a reload.
    return _submit(recipe) if server.pool().is_going(recipe.branch.here) else []


def _draw_progress(jobs: Sequence[Submission]) -> None:
    """Draw the progress of the live runs and Cancel; rerun the page when all have ended."""
    live_jobs = [job for job in jobs if not job.has_ended]
    if not live_jobs:
        st.rerun()
    for job in live_jobs:
        text = (
            f"Place {job.place} in the queue" if job.place else f"Running: {100 * job.share:.0f} %"
        )
        st.progress(min(max(job.share, 0.0), 1.0), text=text)
    # A callback runs before any rerun, so the click cannot get lost.
    st.button(
        "Cancel",
        key="from_here/cancel",
        on_click=_on_cancel,
        args=(live_jobs,),
        icon=":material/stop_circle:",
    )


def _on_cancel(jobs: Sequence[Submission]) -> None:
    """Cancel these runs, which have not ended."""
    for job in jobs:
        job.cancel()


def _draw_failures(jobs: Sequence[Submission]) -> None:
    """Draw the errors of failed runs, and that runs were cancelled."""
    for job in jobs:
        if job.state == "failed":
            st.error(words.plain(job.error), icon=":material/error:")
    if any(job.state == "cancelled" for job in jobs):
        st.info("Cancelled. This run has no result.", icon=":material/stop_circle:")


def _stored_pair(branch: Branch) -> tuple[StoredResult | None, StoredResult | None]:
    """Return the stored results of the unchanged and the changed run, each None if not stored."""
    pairs = [
        stored_results.gather(Study(scenario, (scenario.allocator,))).entries[0]
        for scenario in (branch.was, branch.here)
    ]
    unchanged, changed = (entries[0] if entries else None for entries in pairs)
    return unchanged, changed


# -- results
# --------------------------------------------------------------------------------------------------


def _draw_results(recipe: FromHere) -> None:
    """Draw the effect of the change (text, chart, table, jobs) once both runs are stored.

    A run opened by a link is then added to this browser's runs.
    """
    branch = recipe.branch
    unchanged, changed = _stored_pair(branch)
    if unchanged is None or changed is None:
        return
    if st.session_state.pop(_OPENED, "") == branch.turn.pack():
        state.session().notice = browser_identity.add_to_runs(recipe, [unchanged.key, changed.key])
    end_s = max(float(entry.summary["end_s"]) for entry in (unchanged, changed))
    clock = RunClock(state.epoch(), seconds=end_s < 2 * 3600)
    effect = _branch_effect(
        f"{unchanged.key} {changed.key} {clock.epoch}", branch, unchanged, changed, clock
    )
    st.title(words.plain(effect.sentence), anchor=False)
    view = figure.cached_view(
        ("branched", unchanged.key, changed.key, branch.turn.at_s, clock),
        lambda: explored_runs.branch_view(unchanged, changed, branch.turn.at_s, effect, clock),
    )
    figure.draw(view)
    figure.draw_data(
        branch_diff.difference_rows(effect), "trainyard-from-here-on", is_sortable=False
    )
    st.caption(words.plain(_notes(branch, effect)))
    _draw_compare_button(branch)
    _draw_jobs(branch)


def _notes(branch: Branch, effect: BranchDifference) -> str:
    """Return the notes below the table: which jobs count, new policy, added and lost nodes."""
    parts = ["Job times cover the jobs that both runs completed."]
    if isnan(effect.differs_s):
        parts.append("Up to the line both runs are equal.")
    if branch.turn.policy is not None:
        parts.append(
            "The new policy sees every waiting job as newly submitted; running jobs continue"
            " until it changes them."
        )
    if branch.turn.added:
        parts.append("Added nodes cost from that instant; no policy plans with them before.")
    if branch.turn.lost:
        parts.append("Removed nodes cost nothing while they are gone.")
    return " ".join(parts)


def _draw_compare_button(branch: Branch) -> None:
    """Draw the button that opens both runs in Compare; a caption if their clusters differ."""
    study = branch.study
    if study is None:
        st.caption("The two runs have different clusters, so Compare cannot show them together.")
    elif st.button("Open in Compare", key="from_here/compare", icon=":material/compare_arrows:"):
        state.session().open(study)
        st.switch_page("pages/compare.py", query_params=state.url_parameters())


def _draw_jobs(branch: Branch) -> None:
    """Draw the jobs of both runs by change, and the job drawer; not if clusters differ."""
    compared = (
        None if branch.study is None else comparison.compare(stored_results.gather(branch.study))
    )
    if compared is None or len(compared.report.labels) < 2:
        return
    changed_title = next(title for title in compared.report.labels if title != compared.baseline)
    st.subheader("Jobs", anchor=False)
    job_table.draw(compared, changed_title)
    job_drawer.draw(compared, [changed_title, compared.baseline])


@st.cache_resource(max_entries=16, show_spinner=False)
def _branch_effect(
    keys: str, _branch: Branch, _was: StoredResult, _here: StoredResult, _clock: RunClock
) -> BranchDifference:
    """Return the difference of the changed from the unchanged run, cached by their keys."""
    del keys
    return branch_diff.compare_branch(_branch, _was, _here, _clock)
