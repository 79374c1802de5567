"""The slider on the page: its settings, previews while it moves, the scenario when it rests."""

from __future__ import annotations

import atexit
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd
import streamlit as st

from sim.errors import TrainyardError
from trainyard.results import preview
from trainyard.results.detail_data import Details
from trainyard.results.groups import GroupComparison
from trainyard.results.preview import PreviewAnswer, PreviewRequest
from trainyard.runs import estimate
from trainyard.runs.queue import Submission
from trainyard.study.scenario import Scenario
from trainyard.study.settings import with_settings
from trainyard.study.study import Study
from trainyard.sweeps import axes
from trainyard.views import charts
from trainyard.views.compared_runs import ComparedRuns, Window
from trainyard.views.comparison import ComparisonChoice, ComparisonView, build
from ui import comparison, server, state, stored_results

Group = tuple[str, str] | None
SCRIPT: Final = Path(__file__).with_name("what_if.js")
"""Script that `ui.layout` adds to every page."""
_HTML: Final = (
    '<div class="ty-what-if" title="Drag to preview. Release to change the scenario and run it.">'
    '<span>Change</span><select aria-label="Setting of the slider" tabindex="-1"></select>'
    '<small></small><input type="range" list="ty-was"><small></small><output></output>'
    '<datalist id="ty-was"></datalist></div>'
)
_MOUNT: Final = st.components.v2.component(
    "trainyard_what_if",
    html=_HTML,
    # On several lines, or Streamlit reads it as a file name.
    js="export default (component) => {\n  return window.trainyardSlider(component);\n}\n",
    isolate_styles=False,
)
_KEY: Final = "what_if"
_MOVED, _RESTED, _PREVIEW, _SEQ = (f"{_KEY}/{name}" for name in ("moved", "rested", "shown", "seq"))
_MAX_NAME: Final = 40
"""Characters of a name."""
_LOOK_S: Final = 0.02
"""Period of checks for an answer or a newer value."""
LOAD: Final = "trace.load"
_NODES: Final = "cluster.groups."
_MIN_STEPS: Final = 128
_RANGES: Final = "what_if/ranges"
_LOADS: Final = (0.25, 2.0, 0.05)


@dataclass(frozen=True, eq=False)
class Preview:
    """A preview, drawn in place of stored results.

    Parameters
    ----------
    study : Study
        The scenario with the value of the slider.
    looks : tuple
        The zoom window, and the group of jobs as (title of the grouping, name).
    compared : ComparedRuns or None
        Comparison of the fast policies; None if there is an `error`.
    group : GroupComparison or None
        Comparison of the chosen group.
    before : ComparedRuns or None
        Stored results of the scenario before the slider moved.
    error : str
        Reason why there is no answer.
    """

    study: Study
    looks: tuple[object, ...]
    compared: ComparedRuns | None
    group: GroupComparison | None
    before: ComparedRuns | None
    error: str = ""


@st.cache_resource(show_spinner=False)
def _previews() -> preview.Previews:
    """Return the process that computes previews, shared by all sessions."""
    previews = preview.Previews()
    atexit.register(previews.close)
    return previews


def drop_unfinished() -> None:
    """Forget an unfinished slider move if the page has changed."""
    if state.session().page_changed:
        st.session_state.pop(_MOVED, None)


def draw() -> None:
    """Draw the slider; nothing if no policy of the scenario is fast enough."""
    session = state.session()
    settings_list = settings_or_empty(session.study)
    if not settings_list:
        return
    _previews()  # so that the process is warm when the slider moves
    path = st.session_state.get(f"{_KEY}/path", settings_list[0].path)
    before = session.before_study
    was = {} if before is None else _values_before(before.base, session.study.base)
    data = {
        "axes": [
            asdict(setting)
            | {"title": charts.visible(setting.title, _MAX_NAME), "was": was.get(setting.path)}
            for setting in settings_list
        ],
        "path": path,
        "seq": st.session_state.get(_SEQ, 0),
    }
    _MOUNT(
        key=_KEY,
        data=data,
        on_move_change=lambda: _on_change("move", _MOVED),
        on_rest_change=lambda: _on_change("rest", _RESTED),
    )


def _values_before(before: Scenario, now: Scenario) -> dict[str, float]:
    """Return path -> value before a change: load, and node counts of rows of equal GPU type."""
    rows = zip(before.cluster.groups, now.cluster.groups, strict=False)
    counts = {
        f"{_NODES}{at}.count": float(was.count)
        for at, (was, own) in enumerate(rows)
        if was.gpu_type == own.gpu_type
    }
    return {LOAD: before.trace.load, **counts}


def _on_change(name: str, place: str) -> None:
    """Store the value that the slider moved to, clipped to its range, also in `place`.

    Values of unknown settings are ignored.
    """
    message = getattr(st.session_state[_KEY], name, None)
    if not isinstance(message, Mapping):
        return
    path, value, seq = message.get("path"), message.get("value"), message.get("seq")
    by_path = {setting.path: setting for setting in settings_or_empty(state.session().study)}
    # A new value ends an earlier rest.
    st.session_state.pop(_RESTED, None)
    if path in by_path and isinstance(value, int | float) and math.isfinite(value):
        setting = by_path[str(path)]
        moved = setting.path, min(max(float(value), setting.low), setting.high)
        st.session_state[_MOVED] = st.session_state[place] = moved
        st.session_state[f"{_KEY}/path"] = setting.path
    if isinstance(seq, int):
        st.session_state[_SEQ] = seq


def apply_rested() -> None:
    """Set the scenario to the value where the slider rests; run it unless that is long.

    Called after the preview of that value is drawn, so that runs do not delay it.
    """
    rested = st.session_state.pop(_RESTED, None)
    if rested is None:
        return
    st.session_state.pop(_MOVED, None)
    session = state.session()
    try:
        study = with_value(session.study, *rested)
        if not study.matches(session.study):
            session.replace(study)
            if not _takes_long(study):
                session.run()
    except TrainyardError as error:
        session.notice = str(error)
    st.rerun()


def _takes_long(study: Study) -> bool:
    """Return True if running a study takes so long that the user should start it."""
    pool = server.pool()
    return bool(estimate.estimate(study, pool.store, pool.costs, pool.workers).large)


def preview_view(
    displayed_study: Study | None, choice: ComparisonChoice
) -> tuple[ComparisonView | None, str]:
    """Return the view to draw in place of stored results, and the slider's error.

    Parameters
    ----------
    displayed_study : Study or None
        The scenario whose stored results the page shows; None = none.
    choice : ComparisonChoice
        Window, group and metric. The headline stays with the policy of the stored results.

    Returns
    -------
    (ComparisonView or None, str)
        (None, "") if the stored results are drawn.
    """
    stored = (
        None
        if displayed_study is None
        else comparison.compare(stored_results.gather(displayed_study))
    )
    preview = _current_preview(stored, choice.window, choice.group)
    if preview is None or preview.compared is None:
        return None, "" if preview is None else preview.error
    compared = preview.compared
    before = comparison.stored_before() or preview.before
    if before is not None and state.jobs_of(before.runs.study) != state.jobs_of(preview.study):
        before = None
    compared = replace(compared, before=before and before.with_window(choice.window))
    high = comparison.highlighted_policy((preview.before or compared).report)
    high = high if high in compared.runs.titles else comparison.highlighted_policy(compared.report)
    group_before = comparison.compare_jobs(before, choice)
    view = build(compared, replace(choice, high=high), preview.group, group_before, is_draft=True)
    if view.headline.subject in compared.earlier and state.session().live_jobs:
        view = replace(view, headline=replace(view.headline, text=f"{high} is running."))
    return view, preview.error


def _current_preview(
    compared: ComparedRuns | None, window: Window | None, group: Group
) -> Preview | None:
    """Return the preview to draw, computing a new one if needed; None = stored results."""
    session = state.session()
    last: Preview | None = st.session_state.get(_PREVIEW)
    moved_to = st.session_state.get(_MOVED)
    try:
        study = with_value(session.study, *moved_to) if moved_to else session.study
    except TrainyardError as error:
        return Preview(session.study, (), None, None, _last_complete(compared, last), str(error))
    is_current = last is not None and last.study.matches(study)
    if not moved_to and not is_current and compared is not None:
        st.session_state.pop(_PREVIEW, None)  # the scenario was changed elsewhere
        return None
    if compared is not None and compared.runs.study.matches(study):
        if (
            last is None
            or not is_current
            or not session.live_jobs
            or not _has_missing(compared, last)
        ):
            st.session_state.pop(_PREVIEW, None)
            return None
        if last.compared and set(last.compared.report.labels) <= set(compared.report.labels):
            # The previewed policies are stored now; the others still run.
            assert last.before is not None, "stored results were drawn before"
            return replace(last, compared=with_earlier(compared.with_window(window), last.before))
    looks = (window, group)
    if not is_current or last is None or last.looks != looks:
        last = _request_preview(study, _last_complete(compared, last), looks, window, group)
        st.session_state[_PREVIEW] = last
    return last


def _last_complete(compared: ComparedRuns | None, last: Preview | None) -> ComparedRuns | None:
    """Return the stored comparison if no policy is missing, else the last complete one."""
    if compared is not None and len(compared.runs.places) == len(compared.runs.titles):
        return compared
    return last.before if last is not None and last.before is not None else compared


def _has_missing(compared: ComparedRuns, last: Preview) -> bool:
    """Return True if a policy of the last preview has no stored result yet."""
    if last.compared is None or last.before is None:
        return False
    titles = {*last.compared.report.labels, *last.compared.earlier}
    return not titles <= set(compared.report.labels)


def _request_preview(
    study: Study,
    before: ComparedRuns | None,
    looks: tuple[object, ...],
    window: Window | None,
    group: Group,
) -> Preview:
    """Compute one repeat of a study in the preview process; return it or its error.

    Waits for the answer. `before` holds the last stored results.
    """
    store = server.store()
    stored = {} if before is None else _first_keys(before)
    runnable = set(study.titles) - stored_results.unrunnable(study).keys()
    request = PreviewRequest(
        # One repeat: the others run when the slider rests.
        replace(study, repeats=1).to_json(),
        store.address,
        window,
        before.axis.clock.midnight_s if before is not None else 0.0,
        group,
        {title: key for title, key in stored.items() if title in runnable},
    )
    try:
        submission = _previews().ask(request, state.session().watcher, study.base)
        answer = _await_answer(submission)
    except TrainyardError as error:
        return Preview(study, looks, None, None, before, str(error))
    if answer is None:
        return Preview(study, looks, None, None, before, submission.error)
    return Preview(
        study, looks, _compare_preview(answer, study, before, window), answer.group, before
    )


def _first_keys(before: ComparedRuns) -> dict[str, str]:
    """Return title -> key of the first repeat, for policies with results."""
    return {before.runs.titles[index]: before.runs.keys[index][0] for index in before.runs.places}


def _await_answer(submission: Submission) -> PreviewAnswer | None:
    """Wait for the preview's answer; a newer slider value interrupts it. None = failed."""
    try:
        while not submission.wait(_LOOK_S):
            st.session_state.get(_MOVED)
    finally:
        submission.cancel()
    result = submission.result
    return result if isinstance(result, PreviewAnswer) else None


def _compare_preview(
    answer: PreviewAnswer, study: Study, before: ComparedRuns | None, window: Window | None
) -> ComparedRuns | None:
    """Return the comparison of a preview, completed with earlier results; None if empty."""
    report = answer.report
    if report is None:
        return None
    runs = replace(answer.shown, study=replace(answer.shown.study, slots=study.slots))
    details = before.details if before is not None else Details(runs, server.store())
    epoch = state.session().epoch(report.epoch)
    preview_runs = ComparedRuns(
        runs, report, details, report.frames, {}, window, epoch, computed=answer.loads
    )
    return preview_runs if before is None else with_earlier(preview_runs, before)


def with_earlier(compared: ComparedRuns, before: ComparedRuns) -> ComparedRuns:
    """Return a comparison completed with the last results of the policies that it lacks.

    These have no change against the baseline.
    """
    skipped = compared.report.skipped
    missing = [
        title
        for title in compared.runs.titles
        if title in before.report.labels and title not in {*compared.report.labels, *skipped}
    ]
    if not missing:
        return compared
    old = before.report.table
    rows = old[old["label"].isin(missing)].assign(
        change=math.nan, low=math.nan, high=math.nan, verdict=""
    )
    curves = {title: before.report.frames["cdf"][title] for title in missing}
    return replace(
        compared,
        report=replace(
            compared.report, table=pd.concat([compared.report.table, rows], ignore_index=True)
        ),
        frames={**compared.frames, "cdf": {**compared.frames["cdf"], **curves}},
        earlier={
            title: before.runs.entries[before.runs.titles.index(title)][0] for title in missing
        },
    )


@dataclass(frozen=True)
class Setting:
    """A setting of the slider.

    Parameters
    ----------
    path : str
        As `trainyard.study.sweep.Axis.path`.
    title : str
        Label for the user.
    now, low, high, step : float
        Current value, range and step of the slider.
    before : str
        Prefix of the number.
    digits : int
        Decimals of the number.
    """

    path: str
    title: str
    now: float
    low: float
    high: float
    step: float
    before: str = ""
    digits: int = 0


def settings(study: Study) -> list[Setting]:
    """Return the slider's settings: node counts, then load; empty if no policy is fast.

    Raises
    ------
    TrainyardError
        If its trace cannot be loaded.
    """
    # Whether a policy is fast does not depend on the value of a setting.
    if not _fast_policies(study.canonical(), study):
        return []
    settings = []
    for lever in axes.levers(study, server.store()):
        if lever.path.startswith(_NODES) and lever.path.endswith(".count"):
            settings.append(_node_setting(lever, len(study.base.cluster.groups)))
        elif lever.path == LOAD:
            low, high, step = _LOADS
            load_setting = Setting(LOAD, "Load", lever.now, low, high, step, "× ", digits=2)
            settings.append(_fit_range(load_setting))
    settings.sort(key=lambda setting: not setting.path.startswith(_NODES))
    return [_keep_range(study, setting) for setting in settings]


@st.cache_data(max_entries=64, show_spinner=False)
def _fast_policies(cache_key: str, _study: Study) -> frozenset[str]:
    """Return the titles of policies fast enough for a preview, cached by the study."""
    del cache_key
    return preview.fast_policies(_study, server.store())


def _node_setting(lever: axes.Lever, groups: int) -> Setting:
    """Return the setting for one row's nodes: steps up to twice the current number.

    `groups` = number of rows; the only row keeps at least one node.
    """
    current = round(lever.now)
    sizes = (1, 2, 5, 10, 20, 50, 100, 1000)
    step = next((size for size in sizes if 2 * current <= _MIN_STEPS * size), 10_000)
    min_nodes = 0 if groups > 1 else 1
    low = current - (current - min_nodes) // step * step
    return Setting(
        lever.path, lever.title, current, low, max(current + current // step * step, 8), step
    )


def _fit_range(setting: Setting) -> Setting:
    """Return a setting with its current value on a step; widen the range to include it."""
    if setting.low <= setting.now <= setting.high:
        remainder = (setting.now - setting.low) % setting.step
        return replace(
            setting,
            step=setting.step
            if min(remainder, setting.step - remainder) < 1e-9
            else setting.step / 5,
        )
    step = setting.now / 20
    return replace(setting, low=setting.now / 2, high=2 * setting.now, step=step)


def _keep_range(study: Study, setting: Setting) -> Setting:
    """Return a setting with its earlier range if that has its value as a step.

    Otherwise the new range is kept for later, so that the slider does not jump.
    """
    ranges: dict[Any, Setting] = st.session_state.setdefault(_RANGES, {})
    key = study.base.trace.source, setting.path, len(study.base.cluster.groups)
    earlier = ranges.get(key)
    if earlier is not None and earlier.low <= setting.now <= earlier.high:
        remainder = (setting.now - earlier.low) % earlier.step
        if min(remainder, earlier.step - remainder) < 1e-6:
            return replace(earlier, now=setting.now, title=setting.title)
    ranges[key] = setting
    return setting


def with_value(study: Study, path: str, value: float) -> Study:
    """Return the study with the setting `path` (node count or load) set to a value.

    Raises
    ------
    TrainyardError
        If the study cannot have this value.
    """
    text = f"{value:g}" if path == LOAD else str(round(value))
    return Study.from_json(with_settings(study.to_json(), [f"{path}={text}"], "The slider:"))


def settings_or_empty(study: Study) -> list[Setting]:
    """Return the slider's settings, or an empty list if the trace cannot be loaded."""
    try:
        return settings(study)
    except TrainyardError:
        return []  # the page reports why its trace cannot be loaded
