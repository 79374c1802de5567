"""The tab of lessons: predict, run, see what came of it, change one thing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.lessons import numbers, reading
from trainyard.lessons.classes import Group
from trainyard.lessons.reading import Lesson, Setup
from trainyard.results.outcomes import Shown
from trainyard.runs.pool import Job
from trainyard.study.study import Study
from ui import lookup, place, server, state, words
from ui.learning import classroom, lesson_figures
from ui.learning.classroom import LESSON
from ui.learning.lesson_figures import Ran
from ui.shell import PAGES

SAID: Final = "said"
"""Parameter of the address: the answer given before the run, so that a reload finds the run again."""
OPTION: Final = "option"
"""Parameter of the address: what was changed after it."""
EVERY_S: Final = 0.25
_JCT: Final = "job completion time, from submission to finish"
_TURNS: Final = "lesson_turns"
_DRAWN: Final = "lesson_running"


@dataclass(eq=False)
class Turn:
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
    jobs: dict[Setup, list[Job]] = field(default_factory=dict)

    @property
    def live(self) -> list[Job]:
        """Runs that are not over."""
        return [job for jobs in self.jobs.values() for job in jobs if not job.settled]

    def cancel(self) -> None:
        """Stop them, those that wait first."""
        for job in reversed(self.live):
            job.cancel()


def draw() -> None:
    """Draw the tab."""
    group = classroom.group()
    lesson = _chosen(group)
    if lesson is None:
        return
    first = classroom.setup(lesson, group)
    if group is not None:
        classroom.banner(lesson, group, first)
    turn = _turn(lesson, first)
    st.header(f"{lesson.number} · {lesson.title}", anchor=False)
    st.markdown(lesson.intro)
    if "JCT" in f"{lesson.question} {lesson.notice}" and _JCT not in lesson.question:
        st.caption(f"JCT: {_JCT}.")
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
    if group is None:
        classroom.choose(lesson, first)
        classroom.form(lesson, first)


def _chosen(group: Group | None) -> Lesson | None:
    """Draw the list and return what is chosen in it; the address leads."""
    every = {lesson.number: lesson for lesson in reading.lessons()}
    asked = place.asked(LESSON) or "0"
    found = every.get(int(asked)) if asked.isascii() and asked.isdecimal() and len(asked) < 3 else None
    if found is None:
        st.warning(words.plain(f"There is no lesson “{asked}”. Choose one of these."), icon=":material/warning:")
    st.session_state["lesson"] = found.number if found is not None else None
    fixed = group is not None and found is not None
    st.pills("Lesson", list(every), key="lesson", format_func=lambda at: f"{at} · {every[at].title}", on_change=_choose, disabled=fixed)
    if found is not None:
        place.put(LESSON, str(found.number))
    return found


def _choose() -> None:
    if (chosen := st.session_state["lesson"]) is not None:
        place.put(LESSON, str(chosen))
        place.put(SAID, "")
        place.put(OPTION, "")


def _turn(lesson: Lesson, first: Setup) -> Turn:
    """Return how far this session is; a new one is as far as the address says."""
    turns: dict[tuple[int, Setup], Turn] = st.session_state.setdefault(_TURNS, {})
    if (lesson.number, first) not in turns:
        turns[lesson.number, first] = made = Turn(_place(SAID, len(lesson.answers)))
        made.ran = made.said is not None
        option = _place(OPTION, len(lesson.change.options)) if lesson.change is not None and made.ran else None
        made.option = -1 if option is None else option
    turn = turns[lesson.number, first]
    place.put(SAID, str(turn.said) if turn.ran else "")
    place.put(OPTION, str(turn.option) if turn.option >= 0 else "")
    return turn


def _place(name: str, count: int) -> int | None:
    text = place.asked(name)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 3 and int(text) < count else None


def _predict(lesson: Lesson, turn: Turn, first: Setup) -> None:
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
    if st.button("Run", key="run_lesson", type="primary", icon=":material/play_arrow:", disabled=waits, help="Choose an answer first." if waits else None):
        turn.ran = True
        _start(lesson, first, turn)
        st.rerun()
    if waits:
        st.caption("Choose what you expect; then run it and see.")


def _start(lesson: Lesson, setup: Setup, turn: Turn) -> None:
    """Begin what is not stored; equal runs of others are joined."""
    turn.jobs[setup] = jobs = list[Job]()
    try:
        for study in _studies(lesson.name, setup):
            jobs += [server.pool().submit(scenario, state.desk().watcher) for scenario in study.scenarios()]
    except TrainyardError as error:
        turn.cancel()
        state.desk().notice = str(error)


@st.cache_resource(max_entries=128, show_spinner=False)
def _studies(name: str, setup: Setup) -> tuple[Study, ...]:
    return reading.load(name).studies(setup)


def _found(lesson: Lesson, setup: Setup, turn: Turn) -> tuple[Shown, ...] | None:
    """Return the results if all are stored; else say why not, or start what a reload has left."""
    shown = tuple(lookup.gather(study) for study in _studies(lesson.name, setup))
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
    if st.button("Run again", key=f"again/{setup.option}", type="primary", icon=":material/play_arrow:"):
        _start(lesson, setup, turn)
        st.rerun()
    return None


def _progress(of: tuple[int, Setup]) -> None:
    turn: Turn = st.session_state[_TURNS][of]
    drawn = st.session_state.get(_DRAWN)
    st.session_state[_DRAWN] = of if turn.live else None
    if turn.live:
        every = [job for jobs in turn.jobs.values() for job in jobs]
        over = len(every) - len(turn.live)
        st.progress(over / len(every), text=f"{over} of {words.plural(len(every), 'run')}")
        # A callback, because it comes before anything that starts the page anew and so cannot lose the click.
        st.button("Cancel", key="cancel_lesson", on_click=turn.cancel, icon=":material/stop_circle:")
    elif drawn == of:
        # The last one has ended: the whole page has something new to show.
        st.rerun()


@st.cache_resource(max_entries=256, show_spinner=False)
def _numbers(name: str, mark: str, _shown: tuple[Shown, ...]) -> dict[str, float]:
    del mark
    lesson = reading.load(name)
    return numbers.compute(lesson.numbers, lesson.values, _shown)


def _reveal(lesson: Lesson, turn: Turn, first: Setup, shown: tuple[Shown, ...], other: tuple[Shown, ...] | None) -> None:
    found = _numbers(lesson.name, "|".join(one.mark for one in shown), shown)
    told = numbers.told(lesson.numbers, found)
    _verdict(lesson, turn, reading.right(lesson, found), told)
    finding = lesson.notice.format_map(told)
    st.markdown(finding)
    if lesson.steps:
        _steps(lesson, shown[0], finding)
    if lesson.change is not None:
        _change(lesson, turn, first)
    runs, columns = [Ran("", shown)], {"": told}
    if other is not None and lesson.change is not None:
        names = (lesson.change.options[lesson.change.first], lesson.change.options[turn.option])
        changed = numbers.told(lesson.numbers, _numbers(lesson.name, "|".join(one.mark for one in other), other))
        runs, columns = [Ran(names[0], shown), Ran(names[1], other)], {names[0]: told, names[1]: changed}
        st.markdown(f"**{words.plain(names[1])}:** {lesson.notice.format_map(changed)}")
    lesson_figures.draw(lesson, runs, finding)
    lesson_figures.numbers(lesson, columns)
    _onward(lesson, first._replace(option=turn.option) if other is not None else first)


def _verdict(lesson: Lesson, turn: Turn, right: int | None, told: dict[str, str]) -> None:
    """Say which answer is right, and why, by the numbers of the result."""
    said = lesson.answers[turn.said].text if turn.said is not None else ""
    if right is None:
        st.info("With so few jobs the question has no answer. Take more of them, or another seed.", icon=":material/help:")
    elif right == turn.said:
        st.success(f"**You expected: {said}. So it is.** {lesson.answers[right].why.format_map(told)}", icon=":material/check:")
    else:
        answer = lesson.answers[right]
        st.info(f"You expected: {said}. **Here it is: {answer.text}.** {answer.why.format_map(told)}", icon=":material/lightbulb:")


def _steps(lesson: Lesson, shown: Shown, finding: str) -> None:
    names = [f"{at} · {step.title}" for at, step in enumerate(lesson.steps, 1)]
    st.subheader("What is on the Compare page", anchor=False)
    chosen = st.segmented_control("Step", names, default=names[0], required=True, key=f"step/{lesson.number}", label_visibility="collapsed")
    lesson_figures.step(lesson, lesson.steps[names.index(chosen)], shown, finding)


def _change(lesson: Lesson, turn: Turn, first: Setup) -> None:
    change = lesson.change
    assert change is not None, "asked for lessons with a change only"
    begin = change.options[turn.option if turn.option >= 0 else change.first]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        key = f"change/{lesson.number}/{first.seed}/{first.jobs}"
        chosen = change.options.index(st.segmented_control(f"**Change one thing.** {change.title}", change.options, default=begin, required=True, key=key))
        same = chosen in (change.first, turn.option)
        if st.button("Run the change", key="run_change", type="primary", icon=":material/play_arrow:", disabled=same or bool(turn.live)):
            turn.option = chosen
            _start(lesson, first._replace(option=chosen), turn)
            st.rerun()


def _onward(lesson: Lesson, setup: Setup) -> None:
    """Draw where to go from here: the same runs on the real pages, and the next lesson."""
    targets = ["compare", "explore", *(["plan"] if lesson.plans else [])]
    with st.container(horizontal=True):
        for name in targets:
            primary = lesson.change is None and name == targets[0]
            if st.button(f"Open on {PAGES[name]}", key=f"open_{name}", icon=":material/open_in_new:", type="primary" if primary else "secondary"):
                _open(lesson.opened(setup), name)
        following = lesson.number + 1
        if any(one.number == following for one in reading.lessons()) and not place.asked(classroom.CLASS):
            st.button("Next lesson", key="next_lesson", icon=":material/arrow_forward:", on_click=_next, args=(following,))


def _open(study: Study, name: str) -> None:
    mine = state.desk()
    mine.replace(study)
    mine.run()
    st.switch_page(f"pages/{name}.py", query_params=state.address())


def _next(number: int) -> None:
    place.put(LESSON, str(number))
    place.put(SAID, "")
    place.put(OPTION, "")
