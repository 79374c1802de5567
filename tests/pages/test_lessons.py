from __future__ import annotations

import re

import pytest
from streamlit.testing.v1 import AppTest

from lab import lessons
from lab.lessons import Setup
from tests.pages.conftest import ROOT, FakePool, finish, sound, study_of, texts


def at(**address: str) -> AppTest:
    """Open an address of the Learn page, as the first page of a session."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
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


def run_here(pool: FakePool, number: int, setup: Setup = Setup()) -> None:
    for study in lesson(number).studies(setup):
        finish(pool, study)


def lesson(number: int) -> lessons.Lesson:
    return next(one for one in lessons.lessons() if one.number == number)


def expect(app: AppTest, number: int, answer: int) -> AppTest:
    said = next(one for one in app.radio if str(one.key).startswith(f"said/{number}/"))
    said.set_value(answer).run()
    sound(app)
    return app


def test_nothing_is_told_before_an_answer_is_chosen_and_the_run_is_over(pool: FakePool) -> None:
    run_here(pool, 2)
    app = at(lesson="2")
    assert lesson(2).question in [item.value for item in app.subheader]
    assert app.button(key="run_lesson").disabled
    assert not app.get("plotly_chart")
    told = texts(app)
    assert "You expected" not in told
    expect(app, 2, 0)
    assert "You expected" not in texts(app)
    press(app, "run_lesson")
    assert "Here it is: Some, but fewer than one in five" in texts(app)
    assert len(app.get("plotly_chart")) == 2
    assert app.query_params["said"] in ("0", ["0"])
