"""A lesson with a class: the link of its teacher, what that fixes, and how many have run the
lesson; no names, no grades.
"""

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
MOST_STUDENTS: Final = 999
_FIXED: Final = (CLASS, OF, url_params.SEAT)


def group() -> Classroom | None:
    """Return the class whose link was followed, None without one."""
    name = url_params.asked(CLASS).strip()[: classes.MOST_CHARACTERS]
    if not name:
        return None
    for parameter in (CLASS, LESSON, SEED, JOBS, OF):
        url_params.put(parameter, url_params.asked(parameter))
    return Classroom(
        name,
        _whole(LESSON, 99),
        _whole(SEED, reading.MOST_SEED),
        _whole(JOBS, 10**6),
        _whole(OF, MOST_STUDENTS),
    )


def setup(lesson: Lesson, fixed: Classroom | None) -> Setup:
    """Return seed and size as the address says, brought into their bounds."""
    if not lesson.made:
        return Setup()
    jobs = fixed.jobs if fixed is not None else _whole(JOBS, 10**6)
    bounded = min(max(jobs, reading.FEWEST_JOBS), lesson.jobs) if jobs else 0
    return Setup(
        fixed.seed if fixed is not None else _whole(SEED, reading.MOST_SEED),
        0 if bounded == lesson.jobs else bounded,
    )


def banner(lesson: Lesson, one: Classroom, made: Setup) -> None:
    """Say what the link fixes."""
    size = f"at most {words.plural(made.jobs, 'job')}" if made.jobs else "all its jobs"
    setting = f"seed {made.seed}, {size}" if lesson.made else "its jobs are the sample's"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(
            f":material/lock: **Class {words.plain(one.name)}** · lesson {lesson.number},"
            f" {setting}:"
            " fixed by the link of your teacher."
        )
        st.button("Leave the class", key="leave_class", type="tertiary", on_click=_leave)


def choose(lesson: Lesson, made: Setup) -> None:
    """Draw the seed, for who learns alone."""
    if not lesson.made:
        return
    st.session_state["lesson_seed"] = made.seed
    st.number_input(
        "Seed of the lesson",
        0,
        reading.MOST_SEED,
        key="lesson_seed",
        on_change=_reseed,
        help="Another seed makes other jobs of the same kind.",
    )


def arrive(one: Classroom | None) -> None:
    """Count this seat."""
    if one is None:
        return
    if not url_params.asked(url_params.SEAT):
        url_params.put(url_params.SEAT, uuid.uuid4().hex[:12])
    url_params.put(url_params.SEAT, url_params.asked(url_params.SEAT))
    here = (one, url_params.asked(url_params.SEAT))
    if st.session_state.get(_HERE) != here:
        classes.arrive(server.store(), *here)
        st.session_state[_HERE] = here


def counter(one: Classroom | None) -> None:
    """Draw how many have run the lesson, and keep it up to date."""
    st.fragment(_count, run_every=COUNT_EVERY_S if one is not None else None)(one)


def form(lesson: Lesson, made: Setup) -> None:
    """Draw what makes a link for a class."""
    with st.popover("Class link", key="class_form", icon=":material/school:"):
        st.caption(
            "Every student gets the same lesson with the same jobs. Students need no account."
        )
        with st.container(horizontal=True):
            name = st.text_input(
                "Name of the class",
                max_chars=classes.MOST_CHARACTERS,
                key="class_name",
                placeholder="7b",
            )
            of = st.number_input(
                "Students", 0, MOST_STUDENTS, 0, key="class_of", help="0 = not said."
            )
            seed = st.number_input(
                "Seed", 0, reading.MOST_SEED, made.seed, key="class_seed", disabled=not lesson.made
            )
            most = lesson.jobs or reading.FEWEST_JOBS
            jobs = st.number_input(
                "Most jobs",
                reading.FEWEST_JOBS,
                most,
                most,
                step=50,
                key="class_jobs",
                disabled=not lesson.made,
            )
        if not name.strip():
            st.caption("The link appears here when the class has a name.")
            return
        st.code(
            link(
                lesson,
                Classroom(
                    name.strip(), lesson.number, int(seed), int(jobs) if jobs < most else 0, int(of)
                ),
            ),
            language=None,
        )


def link(lesson: Lesson, one: Classroom) -> str:
    """Return the address of a class."""
    wanted = {"tab": "lessons", LESSON: str(lesson.number), CLASS: one.name}
    wanted |= {SEED: str(one.seed)} if lesson.made else {}
    wanted |= {name: str(value) for name, value in ((JOBS, one.jobs), (OF, one.of)) if value}
    return f"{(st.context.url or '').partition('?')[0]}?{urlencode(wanted)}"


def _count(one: Classroom | None) -> None:
    if one is not None:
        there = classes.count(server.store(), one)
        students = (
            f"{there:,} of {one.of:,} have"
            if one.of
            else f"{there:,} {'has' if there == 1 else 'have'}"
        )
        st.markdown(f":material/groups: **{students} run this.**")


def _leave() -> None:
    for name in _FIXED:
        url_params.put(name, "")


def _reseed() -> None:
    url_params.put(SEED, str(st.session_state["lesson_seed"]))


def _whole(name: str, most: int) -> int:
    """Return a number of the address; what is none counts as 0."""
    text = url_params.asked(name)
    return min(int(text), most) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
