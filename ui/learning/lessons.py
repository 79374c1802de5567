"""The tab of lessons: predict, run, see what came of it, change one thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.labs.lessons import numbers, reading
from trainyard.labs.lessons.classes import Classroom
from trainyard.labs.lessons.reading import Lesson, Setup
from trainyard.results.outcomes import Shown
from trainyard.runs.queue import Submission
from trainyard.study.study import Study
from trainyard.views import ledger
from trainyard.views.figure_view import FigureView
from trainyard.views.lessons import LessonRun, lesson_views, part_view
from ui import comparison, figure, server, state, stored_results, url_params, words
from ui.layout import PAGES
from ui.learning import classroom
from ui.learning.classroom import LESSON
from ui.ledger import component

SAID: Final = "said"
"""Parameter of the address: the answer given before the run, so that a reload finds the run again.
"""
OPTION: Final = "option"
"""Parameter of the address: what was changed after it."""
EVERY_S: Final = 0.25
_TURNS: Final = "lesson_turns"
_DRAWN: Final = "lesson_running"
_LIST_PX: Final = 220
_WIDTH_PX: Final = 460
"""Below that a chart is no use beside another."""


@dataclass(eq=False)
class LessonTurn:
    """How far this session is with a lesson.

    Parameters
    ----------
    said : int or None
        Place of the answer given.
    ran : bool
        Whether it was run after that.
    option : int
        Place of the option that was run; -1 = none was.
    jobs : dict
        The runs of each setup that this session has started.
    """

    said: int | None = None
    ran: bool = False
    option: int = -1
    jobs: dict[Setup, list[Submission]] = field(default_factory=dict)

    @property
    def live(self) -> list[Submission]:
        """Runs that are not over."""
        return [job for jobs in self.jobs.values() for job in jobs if not job.settled]

    def cancel(self) -> None:
        """Stop them, those that wait first."""
        for job in reversed(self.live_jobs):
            job.cancel()


def draw() -> None:
    """Draw the tab: the list at the left, the lesson beside it."""
    group = classroom.group()
    with st.container(horizontal=True, gap="medium", key="lesson_page"):
        with st.container(width=_LIST_PX, key="lesson_list"):
            lesson = _chosen(group)
            if lesson is not None and group is None:
                first = classroom.setup(lesson, group)
                classroom.choose(lesson, first)
                classroom.form(lesson, first)
        with st.container(key="lesson_main"):
            if lesson is not None:
                _lesson(lesson, group)


def _lesson(lesson: Lesson, group: Classroom | None) -> None:
    first = classroom.setup(lesson, group)
    if group is not None:
        classroom.banner(lesson, group, first)
    turn = _turn(lesson, first)
    st.title(lesson.title, anchor=False)
    st.markdown(lesson.intro)
    if not turn.ran:
        _predict(lesson, turn, first)
    # Drawn even when nothing runs: the browser may still ask for it once more.
    shown = _found(lesson, first, turn) if turn.ran else None
    changed = first._replace(option=turn.option) if turn.option >= 0 else None
    other = _found(lesson, changed, turn) if shown is not None and changed is not None else None
    st.fragment(_progress, run_every=EVERY_S if turn.live else None)((lesson.number, first))
    if shown is not None:
        classroom.arrive(group)
        _reveal(lesson, turn, first, shown, other)
    classroom.counter(group)


def _chosen(group: Classroom | None) -> Lesson | None:
    """Draw the list and return what is chosen in it; the address leads."""
    every = {lesson.number: lesson for lesson in reading.lessons()}
    asked = url_params.get(LESSON) or "0"
    found = (
        every.get(int(asked)) if asked.isascii() and asked.isdecimal() and len(asked) < 3 else None
    )
    if found is None:
        st.warning(
            words.plain(f"There is no lesson “{asked}”. Choose one of these."),
            icon=":material/warning:",
        )
    st.session_state["lesson"] = found.number if found is not None else None
    fixed = group is not None and found is not None
    st.radio(
        "Lesson",
        list(every),
        key="lesson",
        format_func=lambda at: f"{at} · {every[at].title}",
        on_change=_choose,
        disabled=fixed,
    )
    if found is not None:
        url_params.put(LESSON, str(found.number))
    return found


def _choose() -> None:
    if (chosen := st.session_state["lesson"]) is not None:
        url_params.put(LESSON, str(chosen))
        url_params.put(SAID, "")
        url_params.put(OPTION, "")


def _turn(lesson: Lesson, first: Setup) -> LessonTurn:
    """Return how far this session is; a new one is as far as the address says."""
    turns: dict[tuple[int, Setup], LessonTurn] = st.session_state.setdefault(_TURNS, {})
    if (lesson.number, first) not in turns:
        turns[lesson.number, first] = made = LessonTurn(_place(SAID, len(lesson.answers)))
        made.ran = made.said is not None
        option = (
            _place(OPTION, len(lesson.change.options))
            if lesson.change is not None and made.ran
            else None
        )
        made.option = -1 if option is None else option
    turn = turns[lesson.number, first]
    url_params.put(SAID, str(turn.said) if turn.ran else "")
    url_params.put(OPTION, str(turn.option) if turn.option >= 0 else "")
    return turn


def _place(name: str, count: int) -> int | None:
    text = url_params.get(name)
    return (
        int(text)
        if text.isascii() and text.isdecimal() and len(text) < 3 and int(text) < count
        else None
    )


def _predict(lesson: Lesson, turn: LessonTurn, first: Setup) -> None:
    """Draw the question; nothing else is told before it is answered."""
    st.markdown(f"**{lesson.question}**")
    answers = [answer.text for answer in lesson.answers]
    turn.said = st.radio(
        "What do you expect?",
        range(len(answers)),
        index=turn.said,
        format_func=lambda at: answers[at],
        key=f"said/{lesson.number}/{first.seed}/{first.jobs}",
        label_visibility="collapsed",
    )
    waits = turn.said is None
    if st.button(
        "Run the lesson",
        key="run_lesson",
        type="primary",
        icon=":material/play_arrow:",
        disabled=waits,
        help="Choose an answer first." if waits else None,
    ):
        turn.ran = True
        _start(lesson, first, turn)
        st.rerun()
    if waits:
        st.caption("Choose an answer, then run the lesson.")


def _start(lesson: Lesson, setup: Setup, turn: LessonTurn) -> None:
    """Begin what is not stored; equal runs of others are joined."""
    turn.jobs[setup] = jobs = list[Submission]()
    try:
        for study in _studies(lesson.name, setup):
            jobs += [
                server.pool().submit(scenario, state.session().watcher)
                for scenario in study.scenarios()
            ]
    except TrainyardError as error:
        turn.cancel()
        state.session().notice = str(error)
    state.session().add_other_runs(f"{lesson.name}/{setup}", jobs)


@st.cache_resource(max_entries=128, show_spinner=False)
def _studies(name: str, setup: Setup) -> tuple[Study, ...]:
    return reading.load(name).studies(setup)


def _found(lesson: Lesson, setup: Setup, turn: LessonTurn) -> tuple[Shown, ...] | None:
    """Return the results if all are stored; else say why not, or start what a reload has left."""
    shown = tuple(stored_results.gather(study) for study in _studies(lesson.name, setup))
    if all(len(one.places) == len(one.titles) for one in shown):
        return shown
    if setup not in turn.jobs:
        _start(lesson, setup, turn)
    jobs = turn.jobs[setup]
    if any(not job.settled for job in jobs):
        return None
    failed = next((job.error for job in jobs if job.state == "failed"), "")
    if failed:
        st.error(words.plain(failed), icon=":material/error:")
    else:
        st.info("Stopped before all of it was run.", icon=":material/stop_circle:")
    if st.button(
        "Run again", key=f"again/{setup.option}", type="primary", icon=":material/play_arrow:"
    ):
        _start(lesson, setup, turn)
        st.rerun()
    return None


def _progress(of: tuple[int, Setup]) -> None:
    turn: LessonTurn = st.session_state[_TURNS][of]
    drawn = st.session_state.get(_DRAWN)
    st.session_state[_DRAWN] = of if turn.live else None
    if turn.live:
        every = [job for jobs in turn.jobs.values() for job in jobs]
        over = len(every) - len(turn.live)
        st.progress(over / len(every), text=f"{over} of {words.plural(len(every), 'run')}")
        # A callback, because it comes before anything that starts the page anew and so cannot lose
        # the click.
        st.button(
            "Cancel", key="cancel_lesson", on_click=turn.cancel, icon=":material/stop_circle:"
        )
    elif drawn == of:
        # The last one has ended: the whole page has something new to show.
        st.rerun()


@st.cache_resource(max_entries=256, show_spinner=False)
def _numbers(name: str, mark: str, _shown: tuple[Shown, ...]) -> dict[str, float]:
    del mark
    lesson = reading.load(name)
    return numbers.compute(lesson.numbers, lesson.values, _shown)


def _reveal(
    lesson: Lesson,
    turn: LessonTurn,
    first: Setup,
    shown: tuple[Shown, ...],
    other: tuple[Shown, ...] | None,
) -> None:
    found = _numbers(lesson.name, "|".join(one.mark for one in shown), shown)
    quoted = numbers.formatted(lesson.numbers, found)
    _verdict(lesson, turn, reading.right(lesson, found), quoted)
    finding = lesson.notice.format_map(quoted)
    st.markdown(finding)
    if lesson.steps:
        _steps(lesson, shown[0], finding)
    if lesson.change is not None:
        _change(lesson, turn, first)
    runs, columns = [LessonRun("", shown)], {"": quoted}
    if other is not None and lesson.change is not None:
        names = (lesson.change.options[lesson.change.first], lesson.change.options[turn.option])
        changed = numbers.formatted(
            lesson.numbers, _numbers(lesson.name, "|".join(one.mark for one in other), other)
        )
        runs, columns = (
            [LessonRun(names[0], shown), LessonRun(names[1], other)],
            {
                names[0]: quoted,
                names[1]: changed,
            },
        )
        st.markdown(f"**{words.plain(names[1])}:** {lesson.notice.format_map(changed)}")
    marks = "|".join(one.mark for run in runs for one in run.results)
    for views in _views(lesson.name, marks, finding, lesson, runs):
        _beside(views)
    if len(shown) == 1 and other is None:
        _ledger(lesson, shown[0], "lesson")
    else:
        _number_table(lesson, columns)
    _onward(lesson, first._replace(option=turn.option) if other is not None else first)


def _ledger(lesson: Lesson, shown: Shown, key: str) -> None:
    """Draw the policies of one result as on Compare, with the one highlighted that is told of."""
    compared = comparison.compare(shown)
    if compared is None:
        return
    table = compared.report.table
    told = (one.policy for one in lesson.numbers if one.policy not in ("", compared.baseline))
    status = ledger.State(next(told, ""), dark=figure.is_dark())
    component.draw(
        ledger.of_runs(compared, table, ledger.columns(table), status), f"{key}_{lesson.number}"
    )


def _number_table(lesson: Lesson, columns: Mapping[str, Mapping[str, str]]) -> None:
    """Draw the numbers of the runs beside each other."""
    heads = ["Number", *(words.plain(run) or "Result" for run in columns)]
    rows = [
        [words.plain(one.label), *(quoted[one.name] for quoted in columns.values())]
        for one in lesson.numbers
        if one.label
    ]
    st.markdown("\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)))


def _verdict(lesson: Lesson, turn: LessonTurn, right: int | None, quoted: dict[str, str]) -> None:
    """Say which answer is right, and why, by the numbers of the result."""
    expected = lesson.answers[turn.said].text if turn.said is not None else ""
    if right is None:
        st.info(
            "With so few jobs the question has no answer. Take more of them, or another seed.",
            icon=":material/help:",
        )
    elif right == turn.said:
        st.success(
            f"**You expected: {expected}. That is right.**"
            f" {lesson.answers[right].why.format_map(quoted)}",
            icon=":material/check:",
        )
    else:
        answer = lesson.answers[right]
        st.info(
            f"You expected: {expected}. **Here it is: {answer.text}.**"
            f" {answer.why.format_map(quoted)}",
            icon=":material/lightbulb:",
        )


def _steps(lesson: Lesson, shown: Shown, finding: str) -> None:
    names = [f"{at} · {step.title}" for at, step in enumerate(lesson.steps, 1)]
    st.subheader("What is on the Compare page", anchor=False)
    chosen = st.segmented_control(
        "Step",
        names,
        default=names[0],
        required=True,
        key=f"step/{lesson.number}",
        label_visibility="collapsed",
    )
    step = lesson.steps[names.index(chosen)]
    st.markdown(step.text)
    compared = comparison.compare(shown)
    if compared is None:
        return
    report = compared.report
    if step.part == "headline":
        st.subheader(words.plain(report.headline), anchor=False)
        st.caption(words.plain(report.facts))
    elif step.part == "table":
        _ledger(lesson, shown, "lesson_step")
    else:
        figure.draw(part_view(lesson, step, shown, finding))


@st.cache_resource(max_entries=24, show_spinner=False)
def _views(
    name: str, marks: str, finding: str, _lesson: Lesson, _runs: list[LessonRun]
) -> list[tuple[FigureView, ...]]:
    del name, marks
    return list(lesson_views(_lesson, _runs, finding))


def _beside(views: tuple[FigureView, ...]) -> None:
    grid = st.grid(min_column_width=_WIDTH_PX) if len(views) > 1 else None
    for view in views:
        with grid.cell() if grid is not None else st.container():
            figure.draw(view)


def _change(lesson: Lesson, turn: LessonTurn, first: Setup) -> None:
    change = lesson.change
    assert change is not None, "asked for lessons with a change only"
    begin = change.options[turn.option if turn.option >= 0 else change.first]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        key = f"change/{lesson.number}/{first.seed}/{first.jobs}"
        chosen = change.options.index(
            st.segmented_control(
                f"**Change one thing.** {change.title}",
                change.options,
                default=begin,
                required=True,
                key=key,
            )
        )
        same = chosen in (change.first, turn.option)
        if st.button(
            "Run the change",
            key="run_change",
            type="primary",
            icon=":material/play_arrow:",
            disabled=same or bool(turn.live),
        ):
            turn.option = chosen
            _start(lesson, first._replace(option=chosen), turn)
            st.rerun()


def _onward(lesson: Lesson, setup: Setup) -> None:
    """Draw where to go from here: the same runs on the real pages, and the next lesson."""
    targets = ["compare", "explore", *(["plan"] if lesson.plans else [])]
    with st.container(horizontal=True):
        for name in targets:
            primary = lesson.change is None and name == targets[0]
            if st.button(
                f"Open on {PAGES[name]}",
                key=f"open_{name}",
                icon=":material/open_in_new:",
                type="primary" if primary else "secondary",
            ):
                _open(lesson.opened(setup), name)
        following = lesson.number + 1
        if any(one.number == following for one in reading.lessons()) and not url_params.get(
            classroom.CLASS
        ):
            st.button(
                "Next lesson",
                key="next_lesson",
                icon=":material/arrow_forward:",
                on_click=_next,
                args=(following,),
            )


def _open(study: Study, name: str) -> None:
    session = state.session()
    session.replace(study)
    session.run()
    st.switch_page(f"pages/{name}.py", query_params=state.url_parameters())


def _next(number: int) -> None:
    url_params.put(LESSON, str(number))
    url_params.put(SAID, "")
    url_params.put(OPTION, "")
