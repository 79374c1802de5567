"""The tab "Check against the past"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from sim.cluster import Cluster
from sim.params import Spec
from tests.pages.conftest import FakePool, Open, sound, study_of, texts
from tests.waiting import wait_until
from trainyard.library import library
from trainyard.runs.queue import ENDED
from trainyard.study.check import Check
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study
from ui import browser_identity
from ui.planning import backtest
from ui.planning import run_panel as plan_live

MADE = "made:philly:jobs=300,cluster=4x8:v100,history=yes"


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch, pool: FakePool) -> Iterator[None]:
    monkeypatch.setenv("TRAINYARD_EXECUTOR", "inline")
    monkeypatch.setattr(browser_identity, "owner", lambda: "me")
    yield
    plan_live.shared_batches().close()


@pytest.fixture
def study() -> Study:
    base = Scenario(TraceSpec(MADE), Cluster.parse("4x8:v100"), Spec("recorded"))
    return Study(base, (Spec("recorded"), Spec("fifo")))


def on_tab(visit: Open, study: Study, **more: str) -> AppTest:
    app = visit("plan", study)
    app.query_params["tab"] = backtest.NAME
    for name, value in more.items():
        app.query_params[name] = value
    app.switch_page("pages/plan.py").run()
    sound(app)
    return app


def asked(app: AppTest) -> str:
    text = app.query_params[backtest.CHECKED]
    return text if isinstance(text, str) else text[0]


def finished(app: AppTest, check: Check) -> None:
    """Wait until a check is over, and draw the page again."""
    wait_until(lambda: plan_live.look_up(check).state in ENDED, "the check is over")
    app.run()
    sound(app)


def test_a_check_runs_and_its_link_shows_the_same(
    visit: Open, study: Study, pool: FakePool
) -> None:
    app = on_tab(visit, study, check="1_3_2_1_1__0")
    check = Check(study.policy_scenarios(1)[0], 3, 7200.0, 86_400.0, anyway=True)
    (start,) = [button for button in app.button if button.label == "Check"]
    assert start.proto.type == "primary"
    assert asked(app) == "1_3_2_1_1__0"
    start.click().run()
    sound(app)
    finished(app, check)
    said = app.title[0].value
    run = plan_live.look_up(check)
    report = run.report  # type: ignore[union-attr]
    assert report is not None
    assert report.past is not None
    assert said == report.past.sentence
    assert len(app.get("plotly_chart")) == 2
    read = texts(app)
    assert "FIFO, judged part" in read
    assert "EASY backfilling" in read
    assert "Judged: jobs submitted from day " in read
    item = library.items(pool.store, "me")[0]
    assert item.recipe() == check
    assert library.KINDS[item.kind] == "check"
    assert backtest.url_parameters(check)["check"] == "0_3_2_1_1__0"
    plan_live.shared_batches.clear()  # type: ignore[attr-defined]
    again = on_tab(visit, study, check="1_3_2_1_1__0")
    assert again.title[0].value == said
    assert not [button for button in again.button if button.label == "Check"]


def test_what_the_record_shows_is_applied_by_a_tick_and_taken_over(
    visit: Open, study: Study
) -> None:
    # The record was made on four nodes, the scenario has eight.
    wide = replace(study.base, cluster=Cluster.parse("8x8:v100"))
    app = on_tab(visit, Study(wide, study.allocators), check="1_1_2_1_1__0")
    (start,) = [button for button in app.button if button.label == "Check"]
    start.click().run()
    check = Check(
        Study(wide, study.allocators).policy_scenarios(1)[0], 1, 7200.0, 86_400.0, anyway=True
    )
    finished(app, check)
    (tick,) = [box for box in app.checkbox if "Others use about" in box.label]
    assert "Alone it changes the explained share by +" in texts(app)
    tick.check().run()
    sound(app)
    assert asked(app) == "1_1_2_1_1_hidden-load_0"
    (start,) = [button for button in app.button if button.label == "Check"]
    start.click().run()
    finished(app, replace(check, use=("hidden-load",)))
    assert "Applied." in texts(app)
    (take,) = [button for button in app.button if button.label.startswith("Use these settings")]
    take.click().run()
    sound(app)
    assert study_of(app).base.cluster.changes[0].present is False


def test_what_the_record_does_not_propose_is_no_dead_end(visit: Open, study: Study) -> None:
    app = on_tab(visit, study, check="1_1_2_1_1_nonsense_0")
    assert "proposes no 'nonsense'" in texts(app)
    (out,) = [button for button in app.button if button.label == "Apply no findings"]
    out.click().run()
    sound(app)
    assert asked(app) == "1_1_2_1_1__0"
    assert [button for button in app.button if button.label == "Check"]


def test_a_poor_record_gets_its_reason_at_once(visit: Open, study: Study) -> None:
    app = on_tab(visit, study, check="1_5_900_1_0__0")
    assert app.title[0].value == "This record does not allow a backtest."
    assert "Needed: at least 30" in texts(app)


@pytest.mark.parametrize(
    "written", ["", "x", "1_5", "9_5___0__0", "1_x___0__0", "1_0___0__0", "1_5_nan__0__0"]
)
def test_what_no_form_wrote_is_as_usual(visit: Open, study: Study, written: str) -> None:
    assert asked(on_tab(visit, study, check=written)) == "1_5___0__0"


def test_without_recorded_starts_or_policies_it_says_so(visit: Open, study: Study) -> None:
    only = Study(study.base, (Spec("recorded"),))
    assert "No policy of the scenario can be backtested" in texts(on_tab(visit, only))
    without = Scenario(
        TraceSpec(MADE.replace(",history=yes", "")), study.base.cluster, Spec("fifo")
    )
    app = on_tab(visit, Study(without, (Spec("fifo"),)))
    assert "no recorded start times" in texts(app)


@pytest.mark.parametrize(
    ("written", "lengths"),
    [
        ("1_3_0_100000_1__0", (0.0, 1e5)),
        ("1_3___1__0", (None, None)),
        ("1_3_-1_2_1__0", None),
        ("1_3_2_100001_1__0", None),
        ("1_3_nan_2_1__0", None),
        ("7_3_1_2_1__0", None),
        ("1_0_1_2_1__0", None),
    ],
)
def test_an_address_is_read_within_its_limits(
    written: str, lengths: tuple[float | None, float | None] | None
) -> None:
    read, usual = backtest._parse_form(written, {0: "", 1: ""}), backtest.BacktestForm(0)
    assert (read == usual) is (lengths is None)
    if lengths is not None:
        assert (read.policy, read.repeats, read.warm_h, read.judge_days) == (1, 3, *lengths)


def test_both_lines_have_the_colors_of_compare() -> None:
    sample = new_study.sample_study()
    fifo, easy, srtf, _ = sample.allocators
    gray, blue, vermilion, purple = "#5F6875", "#1B4FD0", "#C24A00", "#7B1885"
    assert backtest._line_colors(sample, fifo) == (gray, purple)
    assert backtest._line_colors(replace(sample, baseline=3), easy) == (blue, gray)
    assert backtest._line_colors(sample.choosing((fifo, srtf)), srtf) == (vermilion, purple)
