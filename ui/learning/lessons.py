"""The tab "Lessons" of Learn: predict, run, see the result, change one thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from sim.errors import TrainyardError
from trainyard.labs.lessons import numbers, reading
from trainyard.labs.lessons.classes import Classroom
from trainyard.labs.lessons.reading import Lesson, Setup
from trainyard.results.outcomes import StudyResults
from trainyard.runs.queue import Submission
from trainyard.study.study import Study
from trainyard.views import ledger
from trainyard.views.figure_view import FigureView
from trainyard.views.lessons import LessonRun, lesson_views, part_view
from ui import comparison, figure, presentation, server, state, stored_results, url_params, words
from ui.layout import PAGES
from ui.learning import classroom
from ui.learning.classroom import LESSON
from ui.ledger import component

SAID: Final = "said"
"""URL parameter: index of the answer given before the run."""
OPTION: Final = "option"
"""URL parameter: index of the option changed afterwards."""
EVERY_S: Final = 0.25
_TURNS: Final = "lesson_turns"
_DRAWN: Final = "lesson_running"
_LIST_PX: Final = 272
_FRAME_PX: Final = 430
"""Height of the empty frame before a run."""


@dataclass(eq=False)
class LessonTurn:
    """Progress of this session in a lesson.

    Parameters
    ----------
    answer_index : int or None
        Index of the given answer.
    has_run : bool
        Whether the lesson was run after the answer.
    option : int
        Index of the option that was run; -1 = none.
    jobs : dict
        Setup -> runs that this session has started.
    """

    answer_index: int | None = None
    has_run: bool = False
    option: int = -1
    jobs: dict[Setup, list[Submission]] = field(default_factory=dict)

    @property
    def live_jobs(self) -> list[Submission]:
        """Submitted runs that have not ended."""
        return [job for jobs in self.jobs.values() for job in jobs if not job.has_ended]

    def cancel(self) -> None:
        """Cancel the runs that have not ended, the last submitted first."""
        for job in reversed(self.live_jobs):
            job.cancel()


def draw() -> None:
    """Draw the tab "Lessons": the list on the left, the chosen lesson next to it."""
    class_ = classroom.classroom_of_url()
    with st.container(horizontal=True, gap="medium", key="lesson_page"):
        with st.container(width=_LIST_PX, key="lesson_list"):
            lesson = _draw_lesson_choice(class_)
            # The browser knows which lessons were run, and writes it here.
            st.html('<p class="ty-lessons-done" role="status"></p>')
        with st.container(key="lesson_main"):
            if lesson is not None:
                _draw_lesson(lesson, class_)


def _draw_lesson(lesson: Lesson, class_: Classroom | None) -> None:
    """Draw a lesson: charts on the left; intro, question or result on the right."""
    setup = classroom.setup_of_url(lesson, class_)
    if class_ is not None:
        classroom.draw_banner(lesson, class_, setup)
    turn = _current_turn(lesson, setup)
    with st.container(horizontal=True, vertical_alignment="center", key="lesson_head"):
        st.title(lesson.title, anchor=False)
        with st.container(
            horizontal=True, vertical_alignment="bottom", width="content", key="lesson_tools"
        ):
            st.button(
                "Present",
                key="present_lesson",
                icon=":material/present_to_all:",
                on_click=_on_present,
            )
            if class_ is None:
                classroom.draw_seed(lesson, setup)
                classroom.draw_link_form(lesson, setup)
    with st.container(horizontal=True, gap="medium", key="lesson_parts"):
        charts, text = st.container(key="lesson_charts"), st.container(key="lesson_text")
    with text:
        st.markdown(lesson.intro)
        if not turn.has_run:
            _draw_question(lesson, turn, setup)
        results = _lesson_results(lesson, setup, turn) if turn.has_run else None
        changed_setup = setup._replace(option=turn.option) if turn.option >= 0 else None
        changed_results = (
            _lesson_results(lesson, changed_setup, turn)
            if results is not None and changed_setup is not None
            else None
        )
        # Drawn without live runs too: the browser may request the fragment once more.
        st.fragment(_draw_progress, run_every=EVERY_S if turn.live_jobs else None)(
            (lesson.number, setup)
        )
    if results is not None:
        classroom.count_student(class_)
        _draw_result(lesson, turn, setup, results, changed_results, (charts, text))
    else:
        charts.container(height=_FRAME_PX, border=True, key="lesson_frame").caption(
            "The charts appear here after the run."
        )
    with text:
        classroom.draw_count(class_)
    if url_params.is_presenting():
        presentation.draw_frame("← → lesson", _on_step)


def _on_present() -> None:
    """Present the lesson: large, without navigation and list."""
    url_params.set_param(url_params.PRESENT, "1")


def _on_step(step: str) -> None:
    """Open the lesson before or after this one, if there is one; other keys do nothing."""
    number = int(url_params.get(LESSON)) + {"left": -1, "right": 1}.get(step, 0)
    if any(other.number == number for other in reading.lessons()):
        _on_next(number)


def _draw_lesson_choice(class_: Classroom | None) -> Lesson | None:
    """Draw the list of lessons, locked in a class; return the URL's, or None.

    An unknown lesson in the URL gives a warning.
    """
    by_number = {lesson.number: lesson for lesson in reading.lessons()}
    requested = url_params.get(LESSON) or "0"
    lesson = (
        by_number.get(int(requested))
        if requested.isascii() and requested.isdecimal() and len(requested) < 3
        else None
    )
    if lesson is None:
        st.warning(
            words.plain(f"There is no lesson “{requested}”. Choose one below."),
            icon=":material/warning:",
        )
    st.session_state["lesson"] = lesson.number if lesson is not None else None
    is_fixed = class_ is not None and lesson is not None
    st.radio(
        "Lesson",
        list(by_number),
        key="lesson",
        format_func=lambda number: f"{number} · {by_number[number].title}",
        on_change=_on_choose,
        disabled=is_fixed,
    )
    if lesson is not None:
        url_params.set_param(LESSON, str(lesson.number))
    return lesson


def _on_choose() -> None:
    """Write the chosen lesson to the URL, and remove answer and option from it."""
    if (chosen := st.session_state["lesson"]) is not None:
        url_params.set_param(LESSON, str(chosen))
        url_params.set_param(SAID, "")
        url_params.set_param(OPTION, "")


def _current_turn(lesson: Lesson, setup: Setup) -> LessonTurn:
    """Return the session's progress in a lesson; a new session starts from the URL.

    Answer and option are written back to the URL.
    """
    turns: dict[tuple[int, Setup], LessonTurn] = st.session_state.setdefault(_TURNS, {})
    if (lesson.number, setup) not in turns:
        turns[lesson.number, setup] = new_turn = LessonTurn(_url_index(SAID, len(lesson.answers)))
        new_turn.has_run = new_turn.answer_index is not None
        option = (
            _url_index(OPTION, len(lesson.change.options))
            if lesson.change is not None and new_turn.has_run
            else None
        )
        new_turn.option = -1 if option is None else option
    turn = turns[lesson.number, setup]
    url_params.set_param(SAID, str(turn.answer_index) if turn.has_run else "")
    url_params.set_param(OPTION, str(turn.option) if turn.option >= 0 else "")
    return turn


def _url_index(name: str, count: int) -> int | None:
    """Return a URL parameter as an index below `count`, or None."""
    text = url_params.get(name)
    return (
        int(text)
        if text.isascii() and text.isdecimal() and len(text) < 3 and int(text) < count
        else None
    )


def _draw_question(lesson: Lesson, turn: LessonTurn, setup: Setup) -> None:
    """Draw the question with its answers, and the button that runs the lesson."""
    st.markdown(f"**{lesson.question}**")
    answers = [answer.text for answer in lesson.answers]
    turn.answer_index = st.radio(
        "What do you expect?",
        range(len(answers)),
        index=turn.answer_index,
        format_func=lambda index: answers[index],
        key=f"said/{lesson.number}/{setup.seed}/{setup.jobs}",
        label_visibility="collapsed",
    )
    is_unanswered = turn.answer_index is None
    if st.button(
        "Run the lesson",
        key="run_lesson",
        type="primary",
        icon=":material/play_arrow:",
        disabled=is_unanswered,
        help="Choose an answer first." if is_unanswered else None,
    ):
        turn.has_run = True
        _submit(lesson, setup, turn)
        st.rerun()
    if is_unanswered:
        st.caption("Choose an answer, then run the lesson.")


def _submit(lesson: Lesson, setup: Setup, turn: LessonTurn) -> None:
    """Submit the runs of a setup into `turn.jobs`; equal runs of other sessions are shared.

    If one cannot be submitted, all are cancelled and the error becomes the session's notice.
    """
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
    """Return the studies that a lesson simulates with a setup, cached."""
    return reading.load(name).studies(setup)


def _lesson_results(
    lesson: Lesson, setup: Setup, turn: LessonTurn
) -> tuple[StudyResults, ...] | None:
    """Return the results of a setup, one per study, or None if any run is missing.

    Submits the runs of a setup that has none in this session. If runs failed or were cancelled,
    draws why and a button to run again.
    """
    results = tuple(stored_results.gather(study) for study in _studies(lesson.name, setup))
    if all(len(runs.places) == len(runs.titles) for runs in results):
        return results
    if setup not in turn.jobs:
        _submit(lesson, setup, turn)
    jobs = turn.jobs[setup]
    if any(not job.has_ended for job in jobs):
        return None
    failed = next((job.error for job in jobs if job.state == "failed"), "")
    if failed:
        st.error(words.plain(failed), icon=":material/error:")
    else:
        st.info("Cancelled before all runs had finished.", icon=":material/stop_circle:")
    if st.button(
        "Run again", key=f"again/{setup.option}", type="primary", icon=":material/play_arrow:"
    ):
        _submit(lesson, setup, turn)
        st.rerun()
    return None


def _draw_progress(turn_key: tuple[int, Setup]) -> None:
    """Draw the progress of a lesson's runs and Cancel; rerun the page when they end."""
    turn: LessonTurn = st.session_state[_TURNS][turn_key]
    drawn = st.session_state.get(_DRAWN)
    st.session_state[_DRAWN] = turn_key if turn.live_jobs else None
    if turn.live_jobs:
        all_jobs = [job for jobs in turn.jobs.values() for job in jobs]
        finished_count = len(all_jobs) - len(turn.live_jobs)
        st.progress(
            finished_count / len(all_jobs),
            text=f"{finished_count} of {words.plural(len(all_jobs), 'run')}",
        )
        # A callback runs before any rerun, so the click cannot get lost.
        st.button(
            "Cancel", key="cancel_lesson", on_click=turn.cancel, icon=":material/stop_circle:"
        )
    elif drawn == turn_key:
        # The last run has ended: the whole page changes.
        st.rerun()


@st.cache_resource(max_entries=256, show_spinner=False)
def _lesson_numbers(
    name: str, cache_key: str, _shown: tuple[StudyResults, ...]
) -> dict[str, float]:
    """Return name -> number that the lesson's text quotes from its results, cached."""
    del cache_key
    lesson = reading.load(name)
    return numbers.compute(lesson.numbers, lesson.values, _shown)


def _draw_result(
    lesson: Lesson,
    turn: LessonTurn,
    setup: Setup,
    results: tuple[StudyResults, ...],
    changed_results: tuple[StudyResults, ...] | None,
    places: tuple[DeltaGenerator, DeltaGenerator],
) -> None:
    """Draw the result: charts and numbers in the first place, the text in the second."""
    charts, text = places
    values = _lesson_numbers(lesson.name, "|".join(result.mark for result in results), results)
    quoted = numbers.format_numbers(lesson.numbers, values)
    finding = lesson.notice.format_map(quoted)
    with text:
        st.html(f'<span class="ty-lesson-run" data-lesson="{lesson.number}"></span>')
        _draw_answers(lesson, turn, reading.right_answer(lesson, values), quoted)
        st.markdown(finding)
    runs, columns = [LessonRun("", results)], {"": quoted}
    if changed_results is not None and lesson.change is not None:
        names = (lesson.change.options[lesson.change.first], lesson.change.options[turn.option])
        changed = numbers.format_numbers(
            lesson.numbers,
            _lesson_numbers(
                lesson.name, "|".join(result.mark for result in changed_results), changed_results
            ),
        )
        runs, columns = (
            [LessonRun(names[0], results), LessonRun(names[1], changed_results)],
            {
                names[0]: quoted,
                names[1]: changed,
            },
        )
        text.markdown(f"**{words.plain(names[1])}:** {lesson.notice.format_map(changed)}")
    marks = "|".join(result.mark for run in runs for result in run.results)
    with charts:
        for view in _cached_views(lesson.name, marks, finding, lesson, runs):
            figure.draw(view)
        if lesson.steps:
            _draw_steps(lesson, results[0], finding)
        if len(results) == 1 and changed_results is None:
            _draw_ledger(lesson, results[0], "lesson")
        else:
            _draw_number_table(lesson, columns)
    with text:
        if lesson.change is not None:
            _draw_change(lesson, turn, setup)
        _draw_next_steps(
            lesson, setup._replace(option=turn.option) if changed_results is not None else setup
        )


def _draw_ledger(lesson: Lesson, runs: StudyResults, key: str) -> None:
    """Draw the ledger of a result, highlighting the first policy the lesson quotes."""
    compared = comparison.compare(runs)
    if compared is None:
        return
    table = compared.report.table
    lesson_policies = (
        number.policy for number in lesson.numbers if number.policy not in ("", compared.baseline)
    )
    status = ledger.State(next(lesson_policies, ""), dark=figure.is_dark())
    component.draw(
        ledger.ledger_of(compared, table, ledger.columns(table), status), f"{key}_{lesson.number}"
    )


def _draw_number_table(lesson: Lesson, columns: Mapping[str, Mapping[str, str]]) -> None:
    """Draw the labelled numbers of a lesson as a table, one column per run."""
    header = ["Number", *(words.plain(run) or "Result" for run in columns)]
    rows = [
        [words.plain(number.label), *(quoted[number.name] for quoted in columns.values())]
        for number in lesson.numbers
        if number.label
    ]
    st.markdown(
        "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))
    )


def _draw_answers(
    lesson: Lesson, turn: LessonTurn, right_index: int | None, quoted: dict[str, str]
) -> None:
    """Draw the answers, the measured and the given one marked, and why it is the measured one."""
    lines = []
    for index, answer in enumerate(lesson.answers):
        notes = [
            *(["**measured**"] if index == right_index else []),
            *(["your answer"] if index == turn.answer_index else []),
        ]
        icon = "check_circle" if index == right_index else "radio_button_unchecked"
        lines.append(" · ".join([f":material/{icon}: {answer.text}", *notes]))
    st.markdown("  \n".join(lines))
    st.markdown(
        f"**{lesson.answers[right_index].why.format_map(quoted)}**"
        if right_index is not None
        else "With these few jobs the question has no answer. Use more jobs or another seed."
    )


def _draw_steps(lesson: Lesson, runs: StudyResults, finding: str) -> None:
    """Draw the choice of a step about Compare, its text and its part of the page."""
    names = [f"{number} · {step.title}" for number, step in enumerate(lesson.steps, 1)]
    st.subheader("The Compare page", anchor=False)
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
    compared = comparison.compare(runs)
    if compared is None:
        return
    report = compared.report
    if step.part == "headline":
        st.subheader(words.plain(report.headline), anchor=False)
        st.caption(words.plain(report.facts))
    elif step.part == "table":
        _draw_ledger(lesson, runs, "lesson_step")
    else:
        figure.draw(part_view(lesson, step, runs, finding))


@st.cache_resource(max_entries=24, show_spinner=False)
def _cached_views(
    name: str, marks: str, finding: str, _lesson: Lesson, _runs: list[LessonRun]
) -> list[FigureView]:
    """Return the charts of a lesson; cached."""
    del name, marks
    return [view for row in lesson_views(_lesson, _runs, finding) for view in row]


def _draw_change(lesson: Lesson, turn: LessonTurn, setup: Setup) -> None:
    """Draw the choice of one changed setting, and the button that runs the lesson with it."""
    change = lesson.change
    assert change is not None, "asked for lessons with a change only"
    chosen = change.options.index(
        st.radio(
            f"**Change one thing.** {change.title}",
            change.options,
            turn.option if turn.option >= 0 else change.first,
            key=f"change/{lesson.number}/{setup.seed}/{setup.jobs}",
        )
    )
    if st.button(
        "Run the change",
        key="run_change",
        icon=":material/play_arrow:",
        disabled=chosen in (change.first, turn.option) or bool(turn.live_jobs),
    ):
        turn.option = chosen
        _submit(lesson, setup._replace(option=chosen), turn)
        st.rerun()


def _draw_next_steps(lesson: Lesson, setup: Setup) -> None:
    """Draw buttons that open the runs on other pages, and the one for the next lesson."""
    following = next(
        (other for other in reading.lessons() if other.number == lesson.number + 1), None
    )
    if following is not None and not url_params.get(classroom.CLASS):
        st.button(
            f"Next: {following.title}",
            key="next_lesson",
            type="primary",
            icon=":material/arrow_forward:",
            on_click=_on_next,
            args=(following.number,),
        )
    with st.container(horizontal=True):
        for name in ["compare", "explore", *(["plan"] if lesson.plans else [])]:
            if st.button(
                f"Open on {PAGES[name]}", key=f"open_{name}", icon=":material/open_in_new:"
            ):
                _open_on_page(lesson.study_to_open(setup), name)


def _open_on_page(study: Study, name: str) -> None:
    """Replace the scenario by the lesson's study, run it, and open a page."""
    session = state.session()
    session.replace(study)
    session.run()
    st.switch_page(f"pages/{name}.py", query_params=state.url_parameters())


def _on_next(number: int) -> None:
    """Write the next lesson to the URL, and remove answer and option from it."""
    url_params.set_param(LESSON, str(number))
    url_params.set_param(SAID, "")
    url_params.set_param(OPTION, "")
