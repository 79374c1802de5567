"""The slider on the page: what it asks for while it moves, what is drawn then, and what becomes of
the scenario when it rests.
"""

from __future__ import annotations

import atexit
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import pandas as pd
import streamlit as st

from sim.errors import TrainyardError
from trainyard.results import preview
from trainyard.results.details import Details
from trainyard.results.groups import GroupComparison
from trainyard.results.preview import PreviewAnswer, PreviewRequest
from trainyard.runs import estimate
from trainyard.runs.queue import Submission
from trainyard.study.study import Study
from trainyard.views import charts
from trainyard.views.compared import ComparedRuns, Window
from trainyard.views.comparison import ComparisonChoice, ComparisonView, build
from ui import comparison, server, state, stored_results
from ui.what_if import settings

Group = tuple[str, str] | None
SCRIPT: Final = Path(__file__).with_name("what_if.js")
"""What `ui.layout` puts into every page."""
_HTML: Final = (
    '<div class="ty-what-if"><select aria-label="Setting of the slider" tabindex="-1"></select>'
    '<input type="range"><output></output></div>'
)
_MOUNT: Final = st.components.v2.component(
    "trainyard_what_if",
    html=_HTML,
    # On several lines, or it would be taken for the name of a file.
    js="export default (component) => {\n  return window.trainyardSlider(component);\n}\n",
    isolate_styles=False,
)
_KEY: Final = "what_if"
_MOVED, _RESTED, _SHOWN, _SEQ = (f"{_KEY}/{name}" for name in ("moved", "rested", "shown", "seq"))
_LONGEST: Final = 40
"""Characters of a name."""
_LOOK_S: Final = 0.02
"""How often it is seen whether an answer has come, or a newer value."""


@dataclass(frozen=True, eq=False)
class Shown:
    """What is drawn in place of stored results.

    Parameters
    ----------
    study : Study
        The scenario with the value of the slider.
    looks : tuple
        The window of time, and the group of jobs, as title of the grouping and name.
    compared : ComparedRuns or None
        What the policies that can follow at once do; None = there is an `error`.
    group : GroupComparison or None
        The same of the chosen group alone.
    before : ComparedRuns or None
        The stored results of the scenario as it was.
    error : str
        Why there is no answer.
    """

    study: Study
    looks: tuple[object, ...]
    compared: ComparedRuns | None
    group: GroupComparison | None
    before: ComparedRuns | None
    error: str = ""


@st.cache_resource(show_spinner=False)
def _previews() -> preview.Previews:
    made = preview.Previews()
    atexit.register(made.close)
    return made


def begin() -> None:
    """Begin a page: where the slider was led on another one, and did not come to rest, is over."""
    if state.session().arrived:
        st.session_state.pop(_MOVED, None)


def draw() -> None:
    """Draw the slider, if a policy of the scenario can follow it."""
    session = state.session()
    known = settings.offered(session.study)
    if not known:
        return
    _previews()  # so that the process is warm when the slider moves
    path = st.session_state.get(f"{_KEY}/path", known[0].path)
    data = {
        "axes": [asdict(one) | {"title": charts.visible(one.title, _LONGEST)} for one in known],
        "path": path,
        "seq": st.session_state.get(_SEQ, 0),
    }
    _MOUNT(
        key=_KEY,
        data=data,
        on_move_change=lambda: _take("move", _MOVED),
        on_rest_change=lambda: _take("rest", _RESTED),
    )


def _take(name: str, place: str) -> None:
    """Take over a value from the browser."""
    sent = getattr(st.session_state[_KEY], name, None)
    if not isinstance(sent, Mapping):
        return
    path, value, seq = sent.get("path"), sent.get("value"), sent.get("seq")
    known = {one.path: one for one in settings.offered(state.session().study)}
    # Where it has moved on, it rests no longer.
    st.session_state.pop(_RESTED, None)
    if path in known and isinstance(value, int | float) and math.isfinite(value):
        one = known[str(path)]
        moved = one.path, min(max(float(value), one.low), one.high)
        st.session_state[_MOVED] = st.session_state[place] = moved
        st.session_state[f"{_KEY}/path"] = one.path
    if isinstance(seq, int):
        st.session_state[_SEQ] = seq


def settle() -> None:
    """Make the value at which the slider rests that of the scenario, and run what cannot follow at
    once, unless that takes long; then the whole page is drawn.

    Called once the answer to that value is drawn, so that runs do not hold it up.
    """
    rested = st.session_state.pop(_RESTED, None)
    if rested is None:
        return
    st.session_state.pop(_MOVED, None)
    session = state.session()
    try:
        made = settings.changed(session.study, *rested)
        if not made.matches(session.study):
            session.replace(made)
            if not _takes_long(made):
                session.run()
    except TrainyardError as error:
        session.notice = str(error)
    st.rerun()


def _takes_long(study: Study) -> bool:
    pool = server.pool()
    found = estimate.estimate(study, pool.store, pool.costs, pool.workers)
    return bool(found.large)


def draft(shown: Study | None, choice: ComparisonChoice) -> tuple[ComparisonView | None, str]:
    """Return the view to draw in place of stored results and why the slider has no answer.

    Parameters
    ----------
    shown : Study or None
        The scenario whose stored results the page shows; None = none.
    choice : ComparisonChoice
        What is looked at. The headline stays with the policy it is about in the stored results.

    Returns
    -------
    (ComparisonView or None, str)
        None and "" = the stored results are drawn.
    """
    stored = None if shown is None else comparison.compare(stored_results.gather(shown))
    found = _current(stored, choice.window, choice.group)
    if found is None or found.compared is None:
        return None, "" if found is None else found.error
    compared = found.compared
    high = comparison.subject((found.before or compared).report)
    high = high if high in compared.runs.titles else comparison.subject(compared.report)
    view = build(compared, replace(choice, high=high), found.group, is_draft=True)
    if view.headline.subject in compared.earlier and state.session().live:
        view = replace(view, headline=replace(view.headline, text=f"{high} is running."))
    return view, found.error


def _current(compared: ComparedRuns | None, window: Window | None, group: Group) -> Shown | None:
    """Return the answer of the slider; None = stored results are drawn."""
    session = state.session()
    kept: Shown | None = st.session_state.get(_SHOWN)
    moved = st.session_state.get(_MOVED)
    try:
        study = settings.changed(session.study, *moved) if moved else session.study
    except TrainyardError as error:
        return Shown(session.study, (), None, None, _whole(compared, kept), str(error))
    of_scenario = kept is not None and kept.study.matches(study)
    if not moved and not of_scenario and compared is not None:
        st.session_state.pop(_SHOWN, None)  # the scenario was changed elsewhere
        return None
    if compared is not None and compared.runs.study.matches(study):
        if kept is None or not of_scenario or not session.live or not _missing(compared, kept):
            st.session_state.pop(_SHOWN, None)
            return None
        if kept.compared and set(kept.compared.report.labels) <= set(compared.report.labels):
            # What was shown is stored now; the others still run.
            assert kept.before is not None, "stored results stood before"
            return replace(kept, compared=with_earlier(compared.seen(window), kept.before))
    looks = (window, group)
    if not of_scenario or kept is None or kept.looks != looks:
        kept = _answered(study, _whole(compared, kept), looks, window, group)
        st.session_state[_SHOWN] = kept
    return kept


def _whole(compared: ComparedRuns | None, kept: Shown | None) -> ComparedRuns | None:
    """Return the last stored results in which no policy is missing."""
    if compared is not None and len(compared.runs.places) == len(compared.runs.titles):
        return compared
    return kept.before if kept is not None and kept.before is not None else compared


def _missing(compared: ComparedRuns, kept: Shown) -> bool:
    """Tell whether something is shown for a policy that has no stored result yet."""
    if kept.compared is None or kept.before is None:
        return False
    shown = {*kept.compared.report.labels, *kept.compared.earlier}
    return not shown <= set(compared.report.labels)


def _answered(
    study: Study,
    before: ComparedRuns | None,
    looks: tuple[object, ...],
    window: Window | None,
    group: Group,
) -> Shown:
    store = server.store()
    stored = {} if before is None else _firsts(before)
    waiting = set(study.titles) - stored_results.barred(study).keys()
    asked = PreviewRequest(
        # One draw: what repeats say comes when the slider rests.
        replace(study, repeats=1).to_json(),
        store.address,
        window,
        before.axis.clock.midnight_s if before is not None else 0.0,
        group,
        {title: key for title, key in stored.items() if title in waiting},
    )
    try:
        submission = _previews().ask(asked, state.session().watcher, study.base)
        found = _awaited(submission)
    except TrainyardError as error:
        return Shown(study, looks, None, None, before, str(error))
    if found is None:
        return Shown(study, looks, None, None, before, submission.error)
    return Shown(study, looks, _compared(found, study, before, window), found.group, before)


def _firsts(before: ComparedRuns) -> dict[str, str]:
    return {before.runs.titles[at]: before.runs.keys[at][0] for at in before.runs.places}


def _awaited(submission: Submission) -> PreviewAnswer | None:
    """Wait for an answer. Every look into the state of the session lets Streamlit end this run of
    the script when a newer value has come, which cancels the question.
    """
    try:
        while not submission.wait(_LOOK_S):
            st.session_state.get(_MOVED)
    finally:
        submission.cancel()
    result = submission.result
    return result if isinstance(result, PreviewAnswer) else None


def _compared(
    found: PreviewAnswer, study: Study, before: ComparedRuns | None, window: Window | None
) -> ComparedRuns | None:
    report = found.report
    if report is None:
        return None
    runs = replace(found.shown, study=replace(found.shown.study, slots=study.slots))
    details = before.details if before is not None else Details(runs, server.store())
    epoch = state.session().epoch(report.epoch)
    made = ComparedRuns(
        runs, report, details, report.frames, {}, window, epoch, computed=found.loads
    )
    return made if before is None else with_earlier(made, before)


def with_earlier(compared: ComparedRuns, before: ComparedRuns) -> ComparedRuns:
    """Return compared runs with the last results of the policies that have no new one."""
    barred = compared.report.skipped
    missing = [
        title
        for title in compared.runs.titles
        if title in before.report.labels and title not in {*compared.report.labels, *barred}
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
