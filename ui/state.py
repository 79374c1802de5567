"""Session state: the edited study, the displayed study and the live runs; kept in the URL."""

from __future__ import annotations

import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlencode

import streamlit as st

from sim.errors import TrainyardError
from trainyard.library import library
from trainyard.results.differences import study_changes
from trainyard.runs.pool import QueueFullError
from trainyard.runs.queue import Submission
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.intake import TraceIntake
from trainyard.traces.own_recipes import OwnRecipe
from trainyard.traces.sources import load_trace
from ui import browser_identity, server, stored_results, url_params
from ui.uploaded_files import OnDisk

SCENARIO: Final = "s"
"""URL parameter: the study in the forms."""
RESULT: Final = "r"
"""URL parameter: the displayed study; `SAME` if it is the one in the forms and has results."""
SAME: Final = "1"
GOING: Final = "go"
"""URL parameter: present while jobs run, so that a reload follows them again."""
FROM: Final = "t0"
TO: Final = "t1"
"""URL parameters: the zoom window of Compare and Explore, in seconds since the first submission."""
CALENDAR: Final = "cal"
"""URL parameter: present while instants are written as dates."""
LINK: Final = "link"
"""URL parameter: key of the other parameters in the store, in place of them."""
MAX_LINK: Final = 300
"""Characters of a link; the parameters of a longer one are stored."""
MOMENT_S: Final = 0.6
"""Longest wait for short runs after a click on Run, before the page is drawn."""
SIZE_CLUSTER: Final = "plan_size_cluster"
"""Session key: Plan asks how many nodes of the most frequent kind are enough."""
_SESSION: Final = "session"
_MAX_UNDO_STEPS: Final = 50


@dataclass(eq=False)
class Upload:
    """A file loaded in this session, kept so that it can be read again with other choices.

    Parameters
    ----------
    name : str
        File name.
    content : OnDisk or None
        File bytes; None if the file is unreadable and was deleted.
    size : int, bytes
        File size.
    fault : str
        Reason why the file could not be read.
    choices : mapping
        Reading options.
    questions : sequence of mapping
        Questions to answer before the file can be read, as
        `trainyard.traces.sources.question_values` writes them.
    unused_reasons : tuple of str
        Reasons why other files of the same drop are not used.
    refused_reasons : tuple of str
        Reasons why files of a later drop are not used.
    previous : Upload or None
        The file in use while this one cannot be read.
    machines : mapping of str to bytes
        Names and contents of the cluster files of the same drop, until the jobs are read.
    recipe : OwnRecipe or None
        The user's recipe that reads the file.
    """

    name: str
    content: OnDisk | None
    size: int
    fault: str = ""
    choices: Mapping[str, Any] = field(default_factory=dict)
    questions: Sequence[Mapping[str, Any]] = ()
    unused_reasons: tuple[str, ...] = ()
    refused_reasons: tuple[str, ...] = ()
    previous: Upload | None = None
    machines: Mapping[str, bytes] = field(default_factory=dict)
    recipe: OwnRecipe | None = None


@dataclass(eq=False)
class Session:
    """State of one browser session.

    Parameters
    ----------
    study : Study
        The study in the forms; always complete and valid.
    watcher : str
        Random id under which this session follows its runs.
    displayed_study : Study or None
        The study on Compare.
    pending_study : Study or None
        The running study while older results stay displayed, until its first policy is complete;
        None if nothing runs or the running study is displayed.
    before_study : Study or None
        The study displayed before its scenario was changed, until that is undone or accepted.
    shows_both : bool
        Whether the ledger has the figures of that study too.
    jobs : dict
        Result key -> the submitted run, or how it ended without a result.
    form_version : int
        Part of all widget keys; grows when code outside the forms replaces the study, so that
        widgets take its values.
    upload : Upload or None
        The last file dropped on the Trace page.
    intakes : dict
        Trace source -> every row that this session dropped or altered while reading it.
    zoom : (tuple, (float, float)) or None
        The zoomed jobs, and the `window`.
    calendar : bool
        Whether instants are written as dates where the trace has a calendar.
    notice, news : str
        Sentences shown once at the top of the next page: a failure, and a success.
    page, page_changed : str, bool
        The page drawn last, and whether it differs from the page before it.
    drawn_finished_count : int
        `finished_count` when the page was last drawn.
    drawing_s, drawn_s : float, seconds
        Start and end of the last drawing of the page, on the monotonic clock.
    undo_stack : deque of Study
        Earlier studies of the forms, the newest last.
    computed_keys : set of str
        Keys of results computed for this session, not loaded from the store.
    first_reports : dict
        Result key -> time of the first progress report (seconds on the monotonic clock) and the
        share done then.
    compared_trace : TraceSpec or None
        The trace that the Trace page compares with the one in use.
    stopped_s : dict
        Result key -> simulated seconds reached by a run when it was cancelled.
    other_runs : dict
        Name of a plan, lesson or replay of this session -> function that returns the number of its
        finished runs, and whether others are under way.
    """

    study: Study
    watcher: str = field(default_factory=lambda: uuid.uuid4().hex)
    displayed_study: Study | None = None
    pending_study: Study | None = None
    before_study: Study | None = None
    shows_both: bool = False
    jobs: dict[str, Submission] = field(default_factory=dict)
    form_version: int = 0
    upload: Upload | None = None
    intakes: dict[str, TraceIntake] = field(default_factory=dict)
    zoom: tuple[tuple[Any, ...], tuple[float, float]] | None = None
    calendar: bool = False
    notice: str = ""
    news: str = ""
    page: str = ""
    page_changed: bool = False
    drawn_finished_count: int = 0
    drawing_s: float = 0.0
    drawn_s: float = 0.0
    undo_stack: deque[Study] = field(default_factory=lambda: deque(maxlen=_MAX_UNDO_STEPS))
    computed_keys: set[str] = field(default_factory=set)
    first_reports: dict[str, tuple[float, float]] = field(default_factory=dict)
    compared_trace: TraceSpec | None = None
    stopped_s: dict[str, float] = field(default_factory=dict)
    other_runs: dict[str, Callable[[], tuple[int, bool]]] = field(default_factory=dict)

    def edit(self, study: Study) -> None:
        """Set the study to one edited in a form; widgets keep their values.

        The study before can be undone. Policies keep the colors of the displayed study, which gets
        the new names if it is the same otherwise.
        """
        # A study whose trace is gone cannot run, so it is no step to undo.
        if study != self.study and not new_study.is_trace_missing(self.study, server.store()):
            self.undo_stack.append(self.study)
        # A policy that was removed and added again keeps its color.
        color_source = (
            self.displayed_study
            if self.displayed_study is not None and self.displayed_study.matches(study)
            else study
        )
        self.study = study.coloured_as(color_source)
        if self.displayed_study is not None and self.displayed_study.matches(study):
            self.displayed_study = replace(self.displayed_study, names=study.names)
            if self.before_study is not None:
                self.before_study = _with_names_of(self.before_study, study)

    def replace(self, study: Study) -> None:
        """Set the study to one from outside the forms (sample, file, preset); reset widgets."""
        self.edit(study)
        self.form_version += 1

    def open(self, study: Study) -> bool:
        """Replace the study; display and list its stored results. Return True if there are any."""
        self.replace(study)
        if has_results := stored_results.has_results(self.study):
            self.displayed_study = self.study
            self.forget_before()
            self.notice = _add_to_runs(study)
        return has_results

    def epoch(self, trace_epoch: str) -> str:
        """Return the ISO instant of second 0 of a trace, or "" while instants show as days."""
        return trace_epoch if self.calendar else ""

    def undo(self) -> None:
        """Restore the study before the last change, if there is one, and reset widgets."""
        if self.undo_stack:
            self.study = self.undo_stack.pop()
            self.form_version += 1

    def name(self, name: str) -> None:
        """Name the scenario, also in the list of runs; no result changes, and Undo skips it."""
        if self.displayed_study is not None and self.displayed_study.matches(self.study):
            self.displayed_study = self.displayed_study.with_name(name)
            self.notice = browser_identity.rename_run(self.displayed_study)
        self.study = self.study.with_name(name)

    @property
    def window(self) -> tuple[float, float] | None:
        """The zoom window of Compare and Explore in seconds; None = whole runs.

        A window belongs to the jobs of one trace; for other jobs it is None.
        """
        return self.zoom[1] if self.zoom is not None and self.zoom[0] == self._jobs else None

    @window.setter
    def window(self, window: tuple[float, float] | None) -> None:
        self.zoom = None if window is None else (self._jobs, window)

    @property
    def _jobs(self) -> tuple[Any, ...]:
        """Jobs of the displayed study."""
        return jobs_of(self.displayed_study or self.study)

    @property
    def live_jobs(self) -> list[Submission]:
        """Submitted runs that have not ended."""
        return [job for job in self.jobs.values() if not job.has_ended]

    def add_other_runs(self, name: str, jobs: Sequence[Submission]) -> None:
        """Count runs of Plan or Learn in the status."""
        self.other_runs[name] = lambda: (
            sum(job.state == "done" for job in jobs),
            not all(job.has_ended for job in jobs),
        )

    @property
    def other_runs_done(self) -> int:
        """Number of finished runs of this session's plans, lessons and replays."""
        return sum(progress()[0] for progress in self.other_runs.values())

    @property
    def has_other_live_runs(self) -> bool:
        """Whether runs of this session's plans, lessons or replays are under way."""
        return any(progress()[1] for progress in self.other_runs.values())

    @property
    def finished_count(self) -> int:
        """Number of submitted policies without live runs; the page is redrawn when it grows."""
        live_policies = {job.scenario.allocator for job in self.live_jobs}
        return len({job.scenario.allocator for job in self.jobs.values()} - live_policies)

    @property
    def unrun_changes(self) -> list[str]:
        """Differences between the displayed and the edited study as text; [] if none."""
        if self.displayed_study is None or self.displayed_study.matches(self.study):
            return []
        return study_changes(self.displayed_study, self.study, server.store()) or ["details"]

    @property
    def target_study(self) -> Study | None:
        """The study of the live runs."""
        return self.pending_study or self.displayed_study

    def display_pending(self) -> None:
        """Display the pending study at its first new result or failure.

        If all its runs ended without one (cancelled), it is dropped.
        """
        if self.pending_study is None:
            return
        # Results that were stored before the run do not replace the displayed study.
        if stored_results.has_results(self.pending_study, self.computed_keys or None) or any(
            job.state == "failed" for job in self.jobs.values()
        ):
            self._display(self.pending_study)
        elif not self.live_jobs:
            self.pending_study, self.jobs = None, {}

    def run(self, *, again: bool = False) -> None:
        """Submit the study's runs without stored results, and cancel the earlier live runs.

        The study is displayed at once, or at its first new result while older results are
        displayed. It is added to this browser's runs. A full queue gives a notice.

        Parameters
        ----------
        again : bool
            Also run policies with stored results.

        Raises
        ------
        TrainyardError
            If the trace cannot be loaded; the session stays unchanged.
        """
        pool, study = server.pool(), self.study
        reasons = [
            new_study.refusal_reason(study, index, pool.store)
            for index in range(len(study.allocators))
        ]
        before = self.live_jobs
        keeps_display = self.displayed_study is not None and stored_results.has_results(
            self.displayed_study
        )
        if keeps_display:
            self.pending_study = study
        else:
            self.displayed_study, self.pending_study = study, None
            self.forget_before()
        self.jobs = {}
        self.computed_keys, self.first_reports, self.stopped_s = set(), {}, {}
        try:
            for index, scenario in _scenarios_by_seed(study):
                if not reasons[index]:
                    job = pool.submit(scenario, self.watcher, again=again)
                    self.jobs[job.key] = job
                    self.computed_keys |= set() if job.has_ended else {job.key}
        except QueueFullError as error:
            self.notice = str(error)
        self.notice = " ".join(filter(None, (self.notice, _add_to_runs(study))))
        for job in reversed(before):
            job.cancel()
        self._wait_for_short_runs()
        self.display_pending()
        self.drawn_finished_count = self.finished_count

    def _display(self, study: Study) -> None:
        """Display a study; keep the one before the change, if policies of both have results."""
        before = self.before_study or self.displayed_study
        self.displayed_study, self.pending_study = study, None
        if before is not None and _has_changed(before, study):
            self.before_study = before
        else:
            self.forget_before()

    def forget_before(self) -> None:
        """Accept the last change: forget the study before it."""
        self.before_study, self.shows_both = None, False

    def show_before(self) -> None:
        """Display the study before the change, also in the forms; keep the one after it instead."""
        if self.before_study is not None and self.displayed_study is not None:
            self.cancel()
            self.pending_study, self.jobs = None, {}
            before, self.before_study = self.before_study, self.displayed_study
            self.replace(before)
            self.displayed_study = self.study

    def _wait_for_short_runs(self) -> None:
        """Wait up to `MOMENT_S` if all runs are expected to end by then.

        Drawing the page twice would slow them.
        """
        ends_s = time.monotonic() + MOMENT_S
        live = self.live_jobs
        if max([job.starts_in_s + job.seconds for job in live], default=math.inf) <= MOMENT_S:
            for job in live:
                job.wait(max(ends_s - time.monotonic(), 0.0))
            stored_results.clear_lookups()

    def drop_upload(self) -> int:
        """Drop the upload and how files were read; return the size of the upload."""
        size = 0 if self.upload is None else self.upload.size
        self.upload, self.intakes = None, {}
        return size

    def cancel(self) -> None:
        """Cancel all live runs, queued ones first; note the simulated time of each."""
        for job in reversed(self.live_jobs):
            if (report := job.progress) is not None:
                self.stopped_s[job.key] = report.now_s
            job.cancel()


def jobs_of(study: Study) -> tuple[Any, ...]:
    """Return source, format, options and range of the trace of a study, without its load."""
    trace = study.base.trace
    return trace.source, trace.fmt, trace.read, trace.from_s, trace.to_s


def _has_changed(before: Study, after: Study) -> bool:
    """Return True if two studies of one trace have other results for a policy of both."""
    gathered = [stored_results.gather(study) for study in (before, after)]
    # Half a comparison is no scenario to compare with.
    if jobs_of(before) != jobs_of(after) or gathered[0].baseline not in gathered[0].places:
        return False
    keys, others = (
        {title: own[0] for title, own in zip(runs.titles, runs.keys, strict=True)}
        for runs in gathered
    )
    return any(keys[title] != others[title] for title in keys.keys() & others.keys())


def _with_names_of(study: Study, named: Study) -> Study:
    """Return a study with the policy names of another study, by equal policies."""
    names = dict(zip(named.allocators, named.names, strict=True)) if named.names else {}
    return replace(study, names=tuple(names.get(spec, "") for spec in study.allocators))


def with_seed_and_repeats(study: Study, seed: int, repeats: int) -> Study:
    """Return the study with another seed and number of repeats."""
    return replace(study, base=replace(study.base, seed=seed), repeats=repeats)


def _scenarios_by_seed(study: Study) -> list[tuple[int, Scenario]]:
    """Return (policy index, scenario) pairs, ordered by seed, then by policy."""
    columns = [study.policy_scenarios(index) for index in range(len(study.allocators))]
    return [
        (index, column[turn])
        for turn in range(study.repeats)
        for index, column in enumerate(columns)
    ]


def session() -> Session:
    """Return the state of this session; `open_session` creates it."""
    current: Session = st.session_state[_SESSION]
    return current


def epoch() -> str:
    """Return the ISO instant of second 0 of the displayed trace, or "" while days are shown."""
    current = session()
    if not current.calendar:
        return ""
    try:
        trace = load_trace((current.displayed_study or current.study).base.trace, server.store())
    except TrainyardError:
        return ""  # every page reports that the trace is gone
    return current.epoch(trace.epoch)


def is_open() -> bool:
    """Return True if `open_session` has run in this session."""
    return _SESSION in st.session_state


def open_session() -> Session:
    """Return the session; a new one starts from the URL, or else from the sample.

    Each call registers the session and starts the server's periodic work.
    """
    stored_results.clear_lookups()
    if _SESSION not in st.session_state:
        gone = _follow_link()
        st.session_state[_SESSION] = opened = _session_from_url(
            st.query_params.get(SCENARIO, ""), st.query_params.get(RESULT, "")
        )
        opened.notice = gone or opened.notice
        ends = st.query_params.get(FROM, ""), st.query_params.get(TO, "")
        opened.window = _parse_window(*ends)
        opened.calendar = CALENDAR in st.query_params
        if opened.window is None and any(ends) and not opened.notice:
            opened.notice = (
                "The link has no valid zoom window: the end must be after the begin. The whole run"
                " is shown."
            )
        if GOING in st.query_params and not opened.notice:
            opened.run()
    session().display_pending()
    server.seat(session().watcher, session().drop_upload)
    server.prepare_sample()
    server.delete_expired()
    return session()


def _follow_link() -> str:
    """Replace the key of a short link in the URL by the stored parameters.

    Return why that is not possible, or "".
    """
    others = st.query_params.to_dict()
    if LINK not in others:
        return ""
    try:
        parameters = server.store().link_parameters(others.pop(LINK))
    except TrainyardError:  # no key of any link
        parameters = None
    st.query_params.from_dict(others | dict(parameters or {}))
    days = f"{server.store().keep_days:g} days"
    return (
        f"This link is no longer on the server, which keeps links for {days}."
        if parameters is None
        else ""
    )


def url_parameters() -> dict[str, str]:
    """Return the URL parameters: scenario, displayed study, live runs, zoom, dates."""
    current = session()
    parameters = {SCENARIO: current.study.pack()}
    if current.displayed_study is not None and not current.displayed_study.matches(current.study):
        parameters[RESULT] = current.displayed_study.pack()
    elif current.displayed_study is not None and stored_results.has_results(
        current.displayed_study
    ):
        parameters[RESULT] = SAME
    if (
        current.live_jobs
        and current.target_study is not None
        and current.target_study.matches(current.study)
    ):
        parameters[GOING] = "1"
    if current.window is not None:
        parameters |= {FROM: f"{current.window[0]:.0f}", TO: f"{current.window[1]:.0f}"}
    if current.calendar:
        parameters[CALENDAR] = "1"
    return parameters


def link() -> str:
    """Return the URL of this view to share, without this browser's own parameters.

    Parameters that make it longer than `MAX_LINK` are stored, and the URL has their key.
    """
    parameters = {
        name: text
        for name, text in _all_url_parameters().items()
        if name not in (GOING, url_params.SEAT)
    }
    page_url = (st.context.url or "").partition("?")[0]
    url = f"{page_url}?{urlencode(parameters)}"
    if len(url) <= MAX_LINK:
        return url
    try:
        return f"{page_url}?{urlencode({LINK: server.store().put_link(parameters)})}"
    except TrainyardError:
        return url  # it works without the store


def _all_url_parameters() -> dict[str, str]:
    """Return all URL parameters of the page and the session."""
    return {
        name: text
        for name, text in st.query_params.to_dict().items()
        if name not in (SCENARIO, RESULT, GOING, FROM, TO, CALENDAR)
    } | url_parameters()


def write_url() -> None:
    """Update the URL, with one message to the browser and only if a parameter differs.

    Notes
    -----
    The browser adds a history entry for every such message and for every change of page; a link in
    the navigation drops the parameters, so they are written again. `ui.layout` therefore replaces
    the entry while the page stays the same. Two cases remain: the first message of a visit precedes
    that script and adds one entry; without scripts, Back needs one more press for each change.
    """
    parameters = _all_url_parameters()
    if parameters != st.query_params.to_dict():
        st.query_params.from_dict(parameters)


def widget_key(name: str, *parts: Any) -> str:
    """Return the key of a widget; it changes when code outside the forms sets the study."""
    return "/".join([name, *map(str, parts), str(session().form_version)])


def forget_trace(digest: str) -> int:
    """Delete an uploaded trace and its results; return how many results were deleted.

    Undo forgets the studies of this trace.

    Raises
    ------
    TrainyardError
        If another browser uploaded it, or another session runs it; nothing is deleted.
    """
    current, source = session(), f"store:{digest}"
    deleted = library.delete_trace(digest, server.pool(), current.watcher, browser_identity.owner())
    stored_results.forget_entries()
    current.undo_stack = deque(
        (study for study in current.undo_stack if study.base.trace.source != source),
        maxlen=_MAX_UNDO_STEPS,
    )
    return deleted


def _session_from_url(scenario: str, result: str) -> Session:
    """Return a session with the studies of the URL, or with the sample if it has none.

    `scenario` and `result` are the parameters `SCENARIO` and `RESULT`. A notice reports what cannot
    be read.
    """
    if not scenario:
        return Session(new_study.sample_study())
    try:
        study = new_study.refuse_server_file(Study.unpack(scenario))
        if new_study.is_trace_missing(study, server.store()):
            return Session(study)  # every page reports it
        shown = (
            new_study.refuse_server_file(Study.unpack(result))
            if result not in ("", SAME)
            else study
        )
        stored = stored_results.gather(shown)
    except TrainyardError as error:
        if result in ("", SAME):
            return _session_without_trace(scenario, str(error))
        fallback = _session_from_url(scenario, "")  # the scenario may be valid, and have results
        fallback.notice = (
            fallback.notice or "The view in the link cannot be read. The scenario itself is shown."
        )
        return fallback
    # Without results the page offers Run. If a link displayed some, or a reload interrupted a run,
    # it reports that they are missing.
    is_displayed = stored.places or result or GOING in st.query_params
    is_new_entry = stored.places and not shown.matches(
        new_study.sample_study()
    )  # Start shows it to every visitor
    return Session(
        study,
        displayed_study=shown if is_displayed else None,
        notice=_add_to_runs(shown) if is_new_entry else "",
    )


def _add_to_runs(study: Study) -> str:
    """Add a study to this browser's runs; return the reason if that fails, else ""."""
    return browser_identity.add_to_runs(
        study, [key for own in stored_results.keys_of(study.canonical(), study) for key in own]
    )


def _parse_window(t0: str, t1: str) -> tuple[float, float] | None:
    """Return a zoom window (s) from two texts of the URL; None if it is invalid."""
    try:
        first, last = float(t0), float(t1)
    except ValueError:
        return None
    return (first, last) if 0 <= first < last < math.inf else None


def _session_without_trace(scenario: str, sentence: str) -> Session:
    """Return a session with the URL's study, else the sample, and a notice."""
    try:
        return Session(new_study.refuse_server_file(Study.unpack(scenario)), notice=sentence)
    except TrainyardError:
        return Session(new_study.sample_study(), notice=sentence)
