"""A session: the study being edited, the study being shown, and the runs under way; the address
holds both studies, so a reload loses nothing.
"""

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
from trainyard.results.differences import differences
from trainyard.runs.pool import QueueFullError
from trainyard.runs.queue import Submission
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces import start
from trainyard.traces.intake import TraceIntake
from trainyard.traces.own_recipes import OwnRecipe
from trainyard.traces.sources import load_trace
from ui import browser_identity, server, stored_results, url_params
from ui.received import OnDisk

SCENARIO: Final = "s"
"""Parameter of the address: the study that the forms show."""
RESULT: Final = "r"
"""Parameter of the address: the study whose results are shown, or `SAME` if it is the one of the
forms and has results.
"""
SAME: Final = "1"
GOING: Final = "go"
"""Parameter of the address: there while something runs, so that a reload takes the runs up again.
"""
FROM: Final = "t0"
TO: Final = "t1"
"""Parameters of the address: the window of time that Compare and Explore look at, in seconds since
the first submission.
"""
CALENDAR: Final = "cal"
"""Parameter of the address: there while instants are written as dates."""
MOMENT_S: Final = 0.6
"""How long a click on Run may take before something is drawn."""
SIZE_CLUSTER: Final = "plan_size_cluster"
"""Key of the session: Plan is to ask how many nodes of the most frequent kind are enough."""
_SESSION: Final = "session"
_MOST_STEPS: Final = 50
"""Changes that can be taken back."""


@dataclass(eq=False)
class Upload:
    """A file of this session, kept so that it can be read again with other choices.

    Parameters
    ----------
    name : str
        Of the file.
    kept : OnDisk or None
        Its bytes; None = nothing can be made of them, so they are gone.
    size : int, bytes
        Of the file.
    fault : str
        Why it could not be read.
    choices : mapping
        How it was read.
    asked : sequence of mapping
        Questions without whose answers it cannot be read, as `trainyard.traces.sources.asked`
        writes them.
    unused : tuple of str
        Why other files of the same drop are not used.
    refused : tuple of str
        Why those of a later drop are not.
    before : Upload or None
        The file in use while this one cannot be read.
    machines : mapping of str to bytes
        Names and contents of files of the same drop that describe the cluster, until the jobs are
        read.
    recipe : OwnRecipe or None
        The user's recipe by which it is read.
    """

    name: str
    kept: OnDisk | None
    size: int
    fault: str = ""
    choices: Mapping[str, Any] = field(default_factory=dict)
    asked: Sequence[Mapping[str, Any]] = ()
    unused: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    before: Upload | None = None
    machines: Mapping[str, bytes] = field(default_factory=dict)
    recipe: OwnRecipe | None = None


@dataclass(eq=False)
class Session:
    """Everything one session works with.

    Parameters
    ----------
    study : Study
        What the forms show; always complete and valid.
    shown : Study or None
        What Compare shows.
    going : Study or None
        What is being run while the results shown before stay, until its first policy is complete;
        None = nothing, or what is shown.
    jobs : dict
        Key of a result -> the run under way, or how it ended without a result.
    edition : int
        Part of the keys of all widgets; grows when the study is replaced from outside the forms, so
        that they take its values.
    upload : Upload or None
        The last file dropped on the Trace page.
    taken : dict
        Source of a trace -> every row that this session left out or altered when it read it.
    zoom : (tuple, (float, float)) or None
        The jobs whose runs are zoomed, and the `window`.
    calendar : bool
        Whether instants are written as dates where the trace has a calendar.
    notice, news : str
        What to show once, at the top of the next page: a sentence on what did not go as it was
        meant to, and one on what did.
    page, arrived : str, bool
        The page that was drawn last, and whether the one before it was another.
    settled : int
        Policies that were over when the page was last drawn.
    drawing_s, drawn_s : float, seconds
        When the page began to be drawn, and when it was last drawn to its end, on the monotonic
        clock.
    past : deque of Study
        What the forms showed before the last changes, the newest last.
    fresh : set of str
        Keys of results that were computed for this session, and not found.
    began : dict
        Key -> when the first report of a run was seen (seconds on the monotonic clock), and the
        share that was done then.
    beside : TraceSpec or None
        The trace that the Trace page sets beside the one in use.
    stopped_s : dict
        Key -> simulated seconds that a run had reached when it was cancelled.
    other_runs : dict
        Name of a plan, lesson or replay begun in this session -> function that returns how many of
        its runs are done.
    """

    study: Study
    watcher: str = field(default_factory=lambda: uuid.uuid4().hex)
    shown: Study | None = None
    going: Study | None = None
    jobs: dict[str, Submission] = field(default_factory=dict)
    edition: int = 0
    upload: Upload | None = None
    taken: dict[str, TraceIntake] = field(default_factory=dict)
    zoom: tuple[tuple[Any, ...], tuple[float, float]] | None = None
    calendar: bool = False
    notice: str = ""
    news: str = ""
    page: str = ""
    arrived: bool = False
    settled: int = 0
    drawing_s: float = 0.0
    drawn_s: float = 0.0
    past: deque[Study] = field(default_factory=lambda: deque(maxlen=_MOST_STEPS))
    fresh: set[str] = field(default_factory=set)
    began: dict[str, tuple[float, float]] = field(default_factory=dict)
    beside: TraceSpec | None = None
    stopped_s: dict[str, float] = field(default_factory=dict)
    other_runs: dict[str, Callable[[], int]] = field(default_factory=dict)

    def edit(self, study: Study) -> None:
        """Take over what a form of this session made; widgets stay as they are."""
        # What cannot be run any more is not worth going back to.
        if study != self.study and not start.trace_is_gone(self.study, server.store()):
            self.past.append(self.study)
        # A policy that was removed and added again has the colour in which it is shown.
        same = self.shown if self.shown is not None and self.shown.matches(study) else study
        self.study = study.coloured_as(same)
        if self.shown is not None and self.shown.matches(study):
            self.shown = replace(self.shown, names=study.names)

    def replace(self, study: Study) -> None:
        """Take over a study from elsewhere (a sample, a file, a preset); all widgets start anew."""
        self.edit(study)
        self.edition += 1

    def open(self, study: Study) -> bool:
        """Take over a study from elsewhere, and show its results if some are stored; tell whether
        they are.
        """
        self.replace(study)
        if found := stored_results.has_results(self.study):
            self.shown = self.study
            self.notice = _shelved(study)
        return found

    def epoch(self, of_trace: str) -> str:
        """Return the ISO instant of second 0 for those who write instants: "" = as days since the
        first submission.
        """
        return of_trace if self.calendar else ""

    def undo(self) -> None:
        """Take the last change of the scenario back, if there is one."""
        if self.past:
            self.study = self.past.pop()
            self.edition += 1

    def name(self, name: str) -> None:
        """Call the scenario otherwise, which changes no result and is no change to take back."""
        if self.shown is not None and self.shown.matches(self.study):
            self.shown = self.shown.named(name)
            self.notice = browser_identity.rename(self.shown)
        self.study = self.study.named(name)

    @property
    def window(self) -> tuple[float, float] | None:
        """The zoom window of Compare and Explore in seconds; None = whole runs.

        A window belongs to a trace: on other jobs, or from another first submission, it is None.
        """
        return self.zoom[1] if self.zoom is not None and self.zoom[0] == self._jobs else None

    @window.setter
    def window(self, window: tuple[float, float] | None) -> None:
        self.zoom = None if window is None else (self._jobs, window)

    @property
    def _jobs(self) -> tuple[Any, ...]:
        """The jobs of the runs shown, whatever their load."""
        trace = (self.shown or self.study).base.trace
        return trace.source, trace.fmt, trace.read, trace.from_s, trace.to_s

    @property
    def on_sample(self) -> bool:
        """Whether the scenario is still the one that a new session begins with."""
        return self.study.matches(start.sample_study())

    @property
    def live(self) -> list[Submission]:
        """Runs that are not over."""
        return [job for job in self.jobs.values() if not job.settled]

    def count_other(self, name: str, jobs: Sequence[Submission]) -> None:
        """Count runs of Plan or Learn, beside those of Run."""
        self.other_runs[name] = lambda: sum(job.state == "done" for job in jobs)

    @property
    def others_done(self) -> int:
        """How many runs of plans, lessons and replays this session has seen done."""
        return sum(done() for done in self.other_runs.values())

    @property
    def over(self) -> int:
        """How many policies have no run left to wait for: when this grows, the page has something
        new to show.
        """
        going = {job.scenario.allocator for job in self.live}
        return len({job.scenario.allocator for job in self.jobs.values()} - going)

    @property
    def stale(self) -> list[str]:
        """What differs between the study shown and the one being edited, in words; empty = nothing,
        or nothing is shown.
        """
        if self.shown is None or self.shown.matches(self.study):
            return []
        return differences(self.shown, self.study, server.store()) or ["details"]

    @property
    def target(self) -> Study | None:
        """What the runs under way are of."""
        return self.going or self.shown

    def settle(self) -> None:
        """Show what is being run as soon as there is something new of it, or nothing more to wait
        for; what was cancelled before that leaves the earlier results.
        """
        if self.going is None:
            return
        # Policies that are stored already are no reason to take away what is shown of them.
        if stored_results.has_results(self.going, self.fresh or None) or any(
            job.state == "failed" for job in self.jobs.values()
        ):
            self.shown, self.going = self.going, None
        elif not self.live:
            self.going, self.jobs = None, {}

    def run(self, *, again: bool = False) -> None:
        """Start what is not stored yet, and show it once there is something to show; runs of the
        previous study that are still going are stopped.

        Parameters
        ----------
        again : bool
            Start what is stored as well.

        Raises
        ------
        TrainyardError
            If the trace cannot be loaded; then nothing has changed.
        """
        pool, study = server.pool(), self.study
        reasons = [start.reason(study, at, pool.store) for at in range(len(study.allocators))]
        before = self.live
        stays = self.shown is not None and stored_results.has_results(self.shown)
        self.shown, self.going = (self.shown, study) if stays else (study, None)
        self.jobs = {}
        self.fresh, self.began, self.stopped_s = set(), {}, {}
        try:
            for at, scenario in _in_order(study):
                if not reasons[at]:
                    job = pool.submit(scenario, self.watcher, again=again)
                    self.jobs[job.key] = job
                    self.fresh |= set() if job.settled else {job.key}
        except QueueFullError as error:
            self.notice = str(error)
        self.notice = " ".join(filter(None, (self.notice, _shelved(study))))
        for job in reversed(before):
            job.cancel()
        self._wait()
        self.settle()
        self.settled = self.over

    def _wait(self) -> None:
        """Wait for runs that are over in a moment: a page that is drawn while they go on takes the
        cores that they need, and is drawn again.
        """
        ends_s = time.monotonic() + MOMENT_S
        live = self.live
        if max([job.starts_in_s + job.seconds for job in live], default=math.inf) <= MOMENT_S:
            for job in live:
                job.wait(max(ends_s - time.monotonic(), 0.0))
            stored_results.begin()

    def let_go(self) -> int:
        """Forget the upload and the rows that were left out; return the bytes of the file."""
        size = 0 if self.upload is None else self.upload.size
        self.upload, self.taken = None, {}
        return size

    def cancel(self) -> None:
        """Stop all runs of this session, those that wait first, so that none of them starts in
        between.
        """
        for job in reversed(self.live):
            if (report := job.progress) is not None:
                self.stopped_s[job.key] = report.now_s
            job.cancel()


def with_turns(study: Study, seed: int, repeats: int) -> Study:
    """Return the study with another seed and number of repeats."""
    return replace(study, base=replace(study.base, seed=seed), repeats=repeats)


def _in_order(study: Study) -> list[tuple[int, Scenario]]:
    """Return (place of the policy, scenario), the first seed of every policy first."""
    columns = [study.repeated(at) for at in range(len(study.allocators))]
    return [
        (at, column[turn]) for turn in range(study.repeats) for at, column in enumerate(columns)
    ]


def session() -> Session:
    """Return what this session works with; `open_session` has made it."""
    found: Session = st.session_state[_SESSION]
    return found


def epoch() -> str:
    """Return the ISO instant of second 0 of what is shown, for those who write instants: "" = as
    days since the first submission.
    """
    current = session()
    if not current.calendar:
        return ""
    try:
        trace = load_trace((current.shown or current.study).base.trace, server.store())
    except TrainyardError:
        return ""  # every page says that the trace is gone
    return current.epoch(trace.epoch)


def is_open() -> bool:
    """Tell whether app.py has run in this session."""
    return _SESSION in st.session_state


def open_session() -> Session:
    """Return what this session works with; a new session begins with the address, or else with the
    first sample.
    """
    stored_results.begin()
    if _SESSION not in st.session_state:
        st.session_state[_SESSION] = made = _from_address(
            st.query_params.get(SCENARIO, ""), st.query_params.get(RESULT, "")
        )
        ends = st.query_params.get(FROM, ""), st.query_params.get(TO, "")
        made.window = _window(*ends)
        made.calendar = CALENDAR in st.query_params
        if made.window is None and any(ends) and not made.notice:
            made.notice = (
                "The address holds no valid window of time: the end must be after the begin. The"
                " whole run is shown."
            )
        if GOING in st.query_params and not made.notice:
            made.run()
    session().settle()
    server.seat(session().watcher, session().let_go)
    server.daily()
    server.hourly()
    return session()


def address() -> dict[str, str]:
    """Return the parameters of the address: the study, and the one shown if it is another."""
    current = session()
    wanted = {SCENARIO: current.study.pack()}
    if current.shown is not None and not current.shown.matches(current.study):
        wanted[RESULT] = current.shown.pack()
    elif current.shown is not None and stored_results.has_results(current.shown):
        wanted[RESULT] = SAME
    if current.live and current.target is not None and current.target.matches(current.study):
        wanted[GOING] = "1"
    if current.window is not None:
        wanted |= {FROM: f"{current.window[0]:.0f}", TO: f"{current.window[1]:.0f}"}
    if current.calendar:
        wanted[CALENDAR] = "1"
    return wanted


def link() -> str:
    """Return the address of this page for others: with all that it looks at, without what starts
    runs or tells visitors apart.
    """
    wanted = {
        name: text
        for name, text in _whole_address().items()
        if name not in (GOING, url_params.SEAT)
    }
    return f"{(st.context.url or '').partition('?')[0]}?{urlencode(wanted)}"


def _whole_address() -> dict[str, str]:
    """Return all parameters of the address, those of the page among them."""
    return {
        name: text
        for name, text in st.query_params.to_dict().items()
        if name not in (SCENARIO, RESULT, GOING, FROM, TO, CALENDAR)
    } | address()


def write_address() -> None:
    """Bring the address up to date, with one message to the browser and only if something differs.

    Notes
    -----
    The browser makes an entry of its history of every such message, and of every change of page; a
    link in the navigation drops the parameters, so that they have to be written again. `ui.layout`
    therefore tells it to replace the entry while the page stays the same. What remains: the very
    first writing of a visit comes before that script and makes one entry; and where scripts are not
    allowed, Back needs one press more for each change.
    """
    wanted = _whole_address()
    if wanted != st.query_params.to_dict():
        st.query_params.from_dict(wanted)


def widget(name: str, *parts: Any) -> str:
    """Return the key of a widget that shows a part of the study."""
    return "/".join([name, *map(str, parts), str(session().edition)])


def forget_trace(digest: str) -> int:
    """Delete an upload of this server with all results computed from it; return how many those
    were.

    Raises
    ------
    TrainyardError
        If another browser uploaded it, or another session runs it; then nothing is deleted.
    """
    current, source = session(), f"store:{digest}"
    deleted = library.delete_trace(digest, server.pool(), current.watcher, browser_identity.owner())
    stored_results.forget()
    current.past = deque(
        (study for study in current.past if study.base.trace.source != source), maxlen=_MOST_STEPS
    )
    return deleted


def _from_address(scenario: str, result: str) -> Session:
    if not scenario:
        return Session(start.sample_study())
    try:
        study = start.admitted(Study.unpack(scenario))
        if start.trace_is_gone(study, server.store()):
            return Session(study)  # every page says so
        shown = start.admitted(Study.unpack(result)) if result not in ("", SAME) else study
        found = stored_results.gather(shown)
    except TrainyardError as error:
        if result in ("", SAME):
            return _without_address(scenario, str(error))
        made = _from_address(scenario, "")  # which may be whole, and have results of its own
        made.notice = (
            made.notice
            or "The view in the address cannot be read, so the scenario itself is shown."
        )
        return made
    # Without a complete policy there is nothing to show, and the page offers to run; but what a
    # link has shown, or a reload has interrupted, is missed.
    wanted = found.places or result or GOING in st.query_params
    opened = found.places and not shown.matches(
        start.sample_study()
    )  # which the first page of everybody shows
    return Session(study, shown=shown if wanted else None, notice=_shelved(shown) if opened else "")


def _shelved(study: Study) -> str:
    """Put a study on this browser's shelf; return why it could not be, or ""."""
    return browser_identity.shelve(
        study, [key for own in stored_results.keys_of(study.canonical(), study) for key in own]
    )


def _window(t0: str, t1: str) -> tuple[float, float] | None:
    """Read a window from the address; one that is none is left out, because the whole run is a good
    answer to it.
    """
    try:
        first, last = float(t0), float(t1)
    except ValueError:
        return None
    return (first, last) if 0 <= first < last < math.inf else None


def _without_address(scenario: str, sentence: str) -> Session:
    """Keep a readable study whose trace is gone, so that everything but the trace survives; else
    begin with the sample.
    """
    try:
        return Session(start.admitted(Study.unpack(scenario)), notice=sentence)
    except TrainyardError:
        return Session(start.sample_study(), notice=sentence)
