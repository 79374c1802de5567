"""A lesson with a class: the teacher's link, its fixed settings, the count of students."""

from __future__ import annotations

import uuid
from typing import Final
from urllib.parse import urlencode

import streamlit as st

from trainyard.labs.lessons import classes, reading
from trainyard.labs.lessons.classes import Classroom
from trainyard.labs.lessons.reading import Lesson, Setup
from ui import server, url_params, words

LESSON: Final = "lesson"
CLASS: Final = "class"
SEED: Final = "seed"
JOBS: Final = "jobs"
OF: Final = "of"
COUNT_EVERY_S: Final = 5.0
_HERE: Final = "class_seat"
MAX_STUDENTS: Final = 999
_FIXED: Final = (CLASS, OF, url_params.SEAT)


def classroom_of_url() -> Classroom | None:
    """Return the class of the URL, with its fixed settings, or None.

    Its parameters are written back, so that navigation keeps them.
    """
    name = url_params.get(CLASS).strip()[: classes.MAX_NAME_CHARS]
    if not name:
        return None
    for parameter in (CLASS, LESSON, SEED, JOBS, OF):
        url_params.set_param(parameter, url_params.get(parameter))
    return Classroom(
        name,
        _whole_number(LESSON, 99),
        _whole_number(SEED, reading.MAX_SEED),
        _whole_number(JOBS, 10**6),
        _whole_number(OF, MAX_STUDENTS),
    )


def setup_of_url(lesson: Lesson, fixed: Classroom | None) -> Setup:
    """Return seed and number of jobs of the class, else of the URL, within bounds.

    0 jobs = all of the lesson. Lessons on a sample have neither.
    """
    if not lesson.is_generated:
        return Setup()
    jobs = fixed.jobs if fixed is not None else _whole_number(JOBS, 10**6)
    bounded = min(max(jobs, reading.MIN_JOBS), lesson.jobs) if jobs else 0
    return Setup(
        fixed.seed if fixed is not None else _whole_number(SEED, reading.MAX_SEED),
        0 if bounded == lesson.jobs else bounded,
    )


def draw_banner(lesson: Lesson, class_: Classroom, setup: Setup) -> None:
    """Draw the class, the settings that its link fixes, and the button to leave it."""
    size = f"at most {words.plural(setup.jobs, 'job')}" if setup.jobs else "all its jobs"
    setting = f"seed {setup.seed}, {size}" if lesson.is_generated else "the jobs of the sample"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(
            f":material/lock: **Class {words.plain(class_.name)}** · lesson {lesson.number},"
            f" {setting}:"
            " set by your teacher's link."
        )
        st.button("Leave the class", key="leave_class", type="tertiary", on_click=_on_leave)


def draw_seed(lesson: Lesson, setup: Setup) -> None:
    """Draw the field for the seed of the lesson, if its jobs are generated."""
    if not lesson.is_generated:
        return
    st.session_state["lesson_seed"] = setup.seed
    st.number_input(
        "Lesson seed",
        0,
        reading.MAX_SEED,
        key="lesson_seed",
        on_change=_on_seed,
        help="Another seed draws other jobs of the same kind.",
    )


def count_student(class_: Classroom | None) -> None:
    """Count this browser once as a student of the class; its id is put into the URL."""
    if class_ is None:
        return
    if not url_params.get(url_params.SEAT):
        url_params.set_param(url_params.SEAT, uuid.uuid4().hex[:12])
    url_params.set_param(url_params.SEAT, url_params.get(url_params.SEAT))
    student = (class_, url_params.get(url_params.SEAT))
    if st.session_state.get(_HERE) != student:
        classes.count_seat(server.store(), *student)
        st.session_state[_HERE] = student


def draw_count(class_: Classroom | None) -> None:
    """Draw how many students of the class have run the lesson, every five seconds."""
    st.fragment(_draw_count, run_every=COUNT_EVERY_S if class_ is not None else None)(class_)


def draw_link_form(lesson: Lesson, setup: Setup) -> None:
    """Draw the form for class name, size, seed and jobs, and the link it gives."""
    with st.popover("Class link", key="class_form", icon=":material/school:"):
        st.caption(
            "Everyone with the link gets the same lesson and jobs. Students need no account."
        )
        with st.container(horizontal=True):
            name = st.text_input(
                "Class name",
                max_chars=classes.MAX_NAME_CHARS,
                key="class_name",
                placeholder="e.g. CS 240",
            )
            students = st.number_input(
                "Number of students",
                0,
                MAX_STUDENTS,
                None,
                key="class_of",
                placeholder="unknown",
            )
            seed = st.number_input(
                "Seed",
                0,
                reading.MAX_SEED,
                setup.seed,
                key="class_seed",
                disabled=not lesson.is_generated,
            )
            max_jobs = lesson.jobs or reading.MIN_JOBS
            jobs = st.number_input(
                "Job limit",
                reading.MIN_JOBS,
                max_jobs,
                max_jobs,
                step=50,
                key="class_jobs",
                disabled=not lesson.jobs,
                help="Fewer jobs run faster. Some lessons always use all their jobs.",
            )
        if not name.strip():
            st.caption("Name the class to get its link.")
            return
        st.code(
            class_link(
                lesson,
                Classroom(
                    name.strip(),
                    lesson.number,
                    int(seed),
                    int(jobs) if jobs < max_jobs else 0,
                    int(students or 0),
                ),
            ),
            language=None,
        )


def class_link(lesson: Lesson, class_: Classroom) -> str:
    """Return the URL that opens a lesson with a class's settings."""
    parameters = {"tab": "lessons", LESSON: str(lesson.number), CLASS: class_.name}
    parameters |= {SEED: str(class_.seed)} if lesson.is_generated else {}
    parameters |= {
        name: str(value) for name, value in ((JOBS, class_.jobs), (OF, class_.of)) if value
    }
    return f"{(st.context.url or '').partition('?')[0]}?{urlencode(parameters)}"


def _draw_count(class_: Classroom | None) -> None:
    """Draw how many students of the class have run the lesson; nothing without a class."""
    if class_ is not None:
        student_count = classes.seats_done(server.store(), class_)
        students = (
            f"{student_count:,} of {class_.of:,} have"
            if class_.of
            else f"{student_count:,} {'has' if student_count == 1 else 'have'}"
        )
        st.markdown(f":material/groups: **{students} run this.**")


def _on_leave() -> None:
    """Leave the class: remove class, size and student from the URL."""
    for name in _FIXED:
        url_params.set_param(name, "")


def _on_seed() -> None:
    """Write the seed of the lesson into the URL."""
    url_params.set_param(SEED, str(st.session_state["lesson_seed"]))


def _whole_number(name: str, most: int) -> int:
    """Return a URL parameter as a whole number of at most `most`, or 0."""
    text = url_params.get(name)
    return min(int(text), most) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
