from __future__ import annotations

import json
import re

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.conftest import ROOT, FakePool, finish, sound, study_of, texts
from trainyard.labs.lessons import glossary, reading
from trainyard.labs.lessons.reading import Setup


def at(**address: str) -> AppTest:
    """Open an address of the Learn page, as the first page of a session."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=300)
    app.query_params.update({**address, "page": "learn"})
    app.run()
    sound(app)
    return app


def press(app: AppTest, key: str) -> AppTest:
    app.button(key=key).click().run()
    sound(app)
    return app


def keys(app: AppTest) -> set[str]:
    return {str(button.key) for button in app.button}


AS_IT_IS = Setup()


def run_here(pool: FakePool, number: int, setup: Setup = AS_IT_IS) -> None:
    for study in lesson(number).studies(setup):
        finish(pool, study)


def lesson(number: int) -> reading.Lesson:
    return next(one for one in reading.lessons() if one.number == number)


def expect(app: AppTest, number: int, answer: int) -> AppTest:
    said = next(one for one in app.radio if str(one.key).startswith(f"said/{number}/"))
    said.set_value(answer).run()
    sound(app)
    return app


def test_nothing_is_told_before_an_answer_is_chosen_and_the_run_is_over(pool: FakePool) -> None:
    run_here(pool, 2)
    app = at(lesson="2")
    assert f"**{lesson(2).question}**" in [item.value for item in app.markdown]
    assert app.button(key="run_lesson").disabled
    assert not app.get("plotly_chart")
    assert "**measured**" not in texts(app)
    expect(app, 2, 0)
    assert "**measured**" not in texts(app)
    press(app, "run_lesson")
    told = texts(app)
    assert "None, or next to none: all jobs gain · your answer" in told
    assert "Some, but fewer than one in five · **measured**" in told
    assert len(app.get("plotly_chart")) == 2
    assert app.query_params["said"] in ("0", ["0"])


def test_runs_of_a_lesson_are_counted_in_the_status_of_other_pages(pool: FakePool) -> None:
    app = press(expect(at(lesson="2"), 2, 1), "run_lesson")
    jobs = [job for job in pool.jobs if not job.has_ended]
    assert len(jobs) > 1
    jobs[0].state = "done"
    elsewhere = app.switch_page("pages/policies.py").run()
    assert "Not run yet · Plan and Learn: 1 run done" in texts(elsewhere)
    for job in jobs:
        job.state = "done"
    assert f"Not compared yet, {len(jobs)} other runs" in texts(elsewhere.run())


def test_an_answer_that_is_right_is_said_to_be_so_and_cannot_be_changed(pool: FakePool) -> None:
    run_here(pool, 2)
    app = press(expect(at(lesson="2"), 2, 1), "run_lesson")
    assert "Some, but fewer than one in five · **measured** · your answer" in texts(app)
    runs = sum(len(study.scenarios()) for study in lesson(2).studies(AS_IT_IS))
    elsewhere = app.switch_page("pages/policies.py").run()
    assert f"Not compared yet, {runs} other runs" in texts(elsewhere)
    app.switch_page("pages/learn.py").run()
    assert not [one for one in app.radio if str(one.key).startswith("said/")]
    assert "run_lesson" not in keys(app)


def test_reload_finds_answer_run_and_change_again(pool: FakePool) -> None:
    run_here(pool, 2)
    run_here(pool, 2, Setup(option=1))
    app = at(tab="lessons", lesson="2", said="1", option="1")
    told = texts(app)
    assert "**measured** · your answer" in told
    assert "**Within a factor of about 3:**" in told
    # Groups of the first and of the changed run beside each other, all curves in one figure.
    assert len(app.get("plotly_chart")) == 3
    assert "| Number | Exactly | Within a factor of about 3 |" in told


def test_change_one_thing_runs_it_and_keeps_the_first_result(pool: FakePool) -> None:
    run_here(pool, 2)
    app = press(expect(at(lesson="2"), 2, 1), "run_lesson")
    assert app.button(key="run_change").disabled
    before = len(pool.jobs)
    choice = next(one for one in app.radio if str(one.key).startswith("change/2/"))
    choice.set_value("Within a factor of about 10").run()
    sound(app)
    press(app, "run_change")
    assert [job.scenario.estimator.values for job in pool.jobs[before:]] == [{"sigma": 2.3}] * 2
    assert app.query_params["option"] in ("2", ["2"])
    assert "**measured** · your answer" in texts(app)
    run_here(pool, 2, Setup(option=2))
    app.run()
    assert "**Within a factor of about 10:**" in texts(app)


def test_running_says_how_far_and_cancel_leaves_a_way_back(pool: FakePool) -> None:
    app = press(expect(at(lesson="3"), 3, 0), "run_lesson")
    assert "0 of 2 runs" in str(app.get("progress")[0].proto)
    assert "your answer" not in texts(app)
    press(app, "cancel_lesson")
    assert [job.state for job in pool.jobs if "recurring" in job.scenario.trace.source] == [
        "cancelled"
    ] * 2
    assert "Cancelled before all runs had finished." in "".join(item.value for item in app.info)
    run_here(pool, 3)
    press(app, "again/-1")
    assert "your answer" in texts(app)


def test_a_run_that_failed_says_why(pool: FakePool) -> None:
    app = press(expect(at(lesson="3"), 3, 0), "run_lesson")
    for job in pool.jobs:
        job.state, job.error = "failed", "The disk is <full>."
    app.run()
    sound(app)
    assert "The disk is \\<full\\>." in [item.value for item in app.error]


def test_two_students_press_and_the_keys_are_the_same(pool: FakePool) -> None:
    link = {"tab": "lessons", "lesson": "1", "class": "7b", "seed": "7", "jobs": "100", "of": "40"}
    for _ in range(2):
        press(expect(at(**link), 1, 2), "run_lesson")
    pressed = [job.key for job in pool.jobs if "recurring" in job.scenario.trace.source]
    assert len(pressed) == 2 * len(set(pressed)) == 2 * len(lesson(1).values)


def test_a_class_link_fixes_lesson_seed_and_size_and_counts_seats(pool: FakePool) -> None:
    setup = Setup(seed=7, jobs=100)
    run_here(pool, 2, setup)
    link = {
        "tab": "lessons",
        "lesson": "2",
        "class": "7b <script>",
        "seed": "7",
        "jobs": "100",
        "of": "40",
    }
    app = at(**link)
    told = texts(app)
    assert "Class 7b \\<script\\>" in told
    assert "seed 7, at most 100 jobs: set by your teacher's link" in told
    assert app.radio(key="lesson").disabled
    assert not [one for one in app.number_input if one.key == "lesson_seed"]
    assert "0 of 40 have run this." in told
    app = press(expect(app, 2, 0), "run_lesson")
    assert "1 of 40 have run this." in texts(app)
    seat = app.query_params["seat"]
    seat = seat if isinstance(seat, str) else seat[0]
    # A reload is the same seat; another browser is another.
    assert "1 of 40 have run this." in texts(at(**link, seat=seat, said="0"))
    assert "2 of 40 have run this." in texts(at(**link, said="0"))
    press(app, "leave_class")
    assert "class" not in app.query_params
    assert not app.radio(key="lesson").disabled


def test_the_form_of_the_teacher_makes_the_link(pool: FakePool) -> None:
    app = at(lesson="3")
    assert "Name the class to get its link." in texts(app)
    app.text_input(key="class_name").set_value(" 7b & co ").run()
    app.number_input(key="class_of").set_value(31).run()
    app.number_input(key="class_jobs").set_value(200).run()
    sound(app)
    assert app.main.code[0].value.endswith(
        "?tab=lessons&lesson=3&class=7b+%26+co&seed=0&jobs=200&of=31"
    )


@pytest.mark.parametrize("opened", reading.lessons(), ids=reading.names())
def test_every_lesson_opens(pool: FakePool, opened: reading.Lesson) -> None:
    app = at(tab="lessons", lesson=str(opened.number))
    sound(app)
    assert not app.warning
    assert opened.title in [item.value for item in app.title]


@pytest.mark.parametrize("text", ["99", "-1", "x", "²", "9" * 50, "<img src=x>"])
def test_a_lesson_that_there_is_not_is_a_sentence_and_the_list(pool: FakePool, text: str) -> None:
    app = at(tab="lessons", lesson=text)
    assert re.match("There is no lesson “", app.warning[0].value)
    assert not app.error
    app.radio(key="lesson").set_value(4).run()
    sound(app)
    assert not app.warning
    assert "Mixed GPUs" in [item.value for item in app.title]


@pytest.mark.parametrize(
    "address",
    [
        {"said": "7"},
        {"said": "x"},
        {"seed": "-3"},
        {"seed": "9" * 400},
        {"jobs": "1"},
        {"jobs": "²"},
        {"option": "1"},
    ],
)
def test_a_damaged_address_is_a_lesson_that_was_not_answered(
    pool: FakePool, address: dict[str, str]
) -> None:
    app = at(lesson="2", **address)
    assert app.button(key="run_lesson").disabled
    assert not app.error


def test_the_place_in_a_lesson_survives_another_page(pool: FakePool) -> None:
    run_here(pool, 2)
    app = expect(at(lesson="2"), 2, 2)
    app.switch_page("pages/trace.py").run()
    app.switch_page("pages/learn.py").run()
    sound(app)
    assert next(one for one in app.radio if str(one.key).startswith("said/2/")).value == 2
    press(app, "run_lesson")
    app.switch_page("pages/trace.py").run()
    app.switch_page("pages/learn.py").run()
    assert "One in five, or more · your answer" in texts(app)
    assert app.query_params["lesson"] in ("2", ["2"])


def test_a_lesson_opens_on_the_real_pages(pool: FakePool) -> None:
    run_here(pool, 2)
    app = press(press(expect(at(lesson="2"), 2, 1), "run_lesson"), "open_compare")
    study = study_of(app)
    assert study == lesson(2).study_to_open(Setup())
    assert study.base.name == "Lesson 2: Shortest first: who pays?"


def test_lesson_0_explains_the_compare_page_on_the_sample(pool: FakePool) -> None:
    run_here(pool, 0)
    app = press(expect(at(), 0, 1), "run_lesson")
    assert "the average job completes in" in texts(app)
    steps = app.segmented_control(key="step/0")
    for name in steps.options[1:]:
        app.segmented_control(key="step/0").set_value(name).run()
        sound(app)
    assert len(app.get("plotly_chart")) == 1
    (blue,) = [one for one in app.button if one.proto.type == "primary"]
    assert (blue.key, blue.label) == ("next_lesson", f"Next: {lesson(1).title}")


def test_a_lesson_is_presented_until_that_is_left(pool: FakePool) -> None:
    app = at(lesson="2", present="1")
    assert "← → lesson" in texts(app)
    press(app, "presenting_leave")
    assert "← → lesson" not in texts(app)
    assert "present" not in app.query_params
    press(app, "present_lesson")
    assert app.query_params["present"] in ("1", ["1"])


def test_the_ledger_of_lesson_0_highlights_the_policy_that_its_sentence_speaks_of(
    pool: FakePool,
) -> None:
    run_here(pool, 0)
    app = press(expect(at(), 0, 1), "run_lesson")
    (shown,) = [
        json.loads(one.proto.json)
        for one in app.get("bidi_component")
        if one.proto.component_name == "trainyard_ledger"
    ]
    assert [row["title"] for row in shown["rows"] if row["kind"] == "high"] == ["SRTF"]


def test_another_seed_is_another_turn(pool: FakePool) -> None:
    app = expect(at(lesson="2"), 2, 1)
    app.number_input(key="lesson_seed").set_value(5).run()
    sound(app)
    assert app.query_params["seed"] in ("5", ["5"])
    assert app.button(key="run_lesson").disabled


def test_the_glossary_is_searched_and_the_search_stands_in_the_address(pool: FakePool) -> None:
    app = at(tab="glossary")
    links = [link.proto.label for link in app.main.get("page_link")]
    assert sum(label.startswith("Docs: ") for label in links) == len(glossary.ENTRIES)
    app.text_input(key="glossary_word").set_value("goodput").run()
    sound(app)
    assert app.query_params["word"] in ("goodput", ["goodput"])
    assert "Docs: Metrics" in [link.proto.label for link in app.main.get("page_link")]
    assert "No entry contains “\\<b\\>”." in [
        item.value for item in at(tab="glossary", word="<b>").info
    ]


def test_the_limits_say_what_the_documentation_says(pool: FakePool) -> None:
    app = at(tab="limits")
    told = texts(app)
    assert "submissions do not depend on waits" in told
    assert "our reading" in told
    assert "https://doi.org/" in told
    assert app.query_params["tab"] in ("limits", ["limits"])


def test_an_unknown_tab_is_the_first_and_an_old_link_to_a_replay_still_opens_it(
    pool: FakePool,
) -> None:
    assert at(tab="nothing").query_params["tab"] in ("lessons", ["lessons"])
    assert at(replay="ibm-drop").query_params["tab"] in ("replays", ["replays"])
