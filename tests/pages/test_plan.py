from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from sim.cluster import Cluster
from sim.contract import Spec
from tests.pages.conftest import FakePool, Open, own, sound, study_of, texts
from tests.waiting import wait_until
from trainyard.library import library
from trainyard.runs.queue import ENDED
from trainyard.study.document import unpack_document
from trainyard.study.size_question import SizeQuestion
from trainyard.study.study import Study
from trainyard.study.sweep import Axis, Sweep
from trainyard.sweeps.plan import PlanRun
from ui import browser_identity
from ui.planning import run_panel as plan_live
from ui.planning.run_panel import Recipe

Go = Callable[..., AppTest]


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch, pool: FakePool) -> Iterator[None]:
    monkeypatch.setenv("TRAINYARD_EXECUTOR", "inline")
    monkeypatch.setattr(browser_identity, "owner", lambda: "me")
    yield
    plan_live.shared_batches().close()


@pytest.fixture
def study(tiny: Study) -> Study:
    """Twelve jobs under two policies on one node."""
    return replace(tiny, allocators=(Spec("fifo"), Spec("srtf")))


@pytest.fixture
def go(visit: Open) -> Go:
    """Open the page with something in the address, as a link does."""

    def open_it(recipe: Recipe | str) -> AppTest:
        app = visit()
        app.query_params["q"] = recipe if isinstance(recipe, str) else recipe.pack()
        app.switch_page("pages/plan.py").run()
        sound(app)
        return app

    return open_it


def asked(
    study: Study, limit: float = 600.0, high: int = 4, metric: str = "queue_mean_s"
) -> SizeQuestion:
    return SizeQuestion(study, (0,), (1,), (high,), metric, limit)


def pressed(app: AppTest, label: str) -> AppTest:
    same = [button for button in app.button if button.label == label]
    found = same or [button for button in app.button if label in button.label]
    assert len(found) == 1, [button.label for button in app.button]
    found[0].click().run()
    sound(app)
    return app


def ended(app: AppTest, recipe: Recipe) -> AppTest:
    """Wait until a run of this recipe is over, and draw the page again."""
    wait_until(lambda: plan_live.look_up(recipe).state in ENDED, "the run is over")
    app.run()
    sound(app)
    return app


def recipe_of(app: AppTest) -> library.Recipe:
    text = app.query_params["q"]
    return library.read_recipe(unpack_document(text if isinstance(text, str) else text[0]))


def test_before_the_first_search_it_says_what_it_takes_and_who_is_left_out(visit: Open) -> None:
    app = visit("plan")
    (start,) = [button for button in app.button if button.label.startswith("Search")]
    assert start.proto.type == "primary"
    assert "At most 63 runs (21 per policy), about " in texts(app)
    assert "Recorded schedule is left out" in texts(app)
    assert "The search shows the fewest nodes per policy" in texts(app)
    recipe = recipe_of(app)
    assert isinstance(recipe, SizeQuestion)
    assert (recipe.low, recipe.high, recipe.begin) == ((0,), (64,), 4)
    assert (recipe.metric, recipe.limit) == ("queue_p95_s", 3600.0)
    assert app.query_params["tab"] in ("capacity", ["capacity"])


def test_a_search_answers_with_the_fewest_nodes_and_its_link_shows_the_same_at_once(
    go: Go, study: Study, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = asked(study)
    app = ended(pressed(go(question), "Search"), question)
    run = PlanRun(question, pool.store, "nowhere")
    assert run.recall()
    fewest = {answer.policy: answer.size for answer in run.answers()}
    assert f"Not compared yet, {run.done} other runs" in texts(app)
    said = app.title[0].value
    for size in fewest.values():
        assert size is not None
        assert (
            f"<td>{size[0]}</td><td>{size[0] * study.base.cluster.groups[0].gpus}</td>"
            in "".join(html.proto.body for html in app.get("html"))
        )
    assert not [
        button
        for button in app.button
        if button.label.startswith(("Search", "Continue", "Try again"))
    ]
    assert library.items(pool.store, "me")[0].recipe() == question
    plan_live.shared_batches.clear()  # type: ignore[attr-defined]
    monkeypatch.setattr(browser_identity, "owner", lambda: "a colleague")
    again = go(question)
    assert again.title[0].value == said
    assert library.items(pool.store, "a colleague")[0].recipe() == question
    assert "Recorded schedule" not in texts(
        again
    )  # the scenario of the link is that of the question
    opened = pressed(
        again, f"Open {fewest['SRTF'][0]} node" if len(set(fewest.values())) > 1 else "Open"
    )  # type: ignore[index]
    assert study_of(opened).base.cluster.groups[0].count == fewest["SRTF"][0]  # type: ignore[index]


def test_a_target_that_nobody_meets_is_no_dead_end(go: Go, study: Study) -> None:
    question = asked(study, 1.0, 2, "jct_mean_s")
    app = ended(pressed(go(question), "Search"), question)
    assert any(
        warning.value.startswith("Not met up to 2: Average completion time ")
        for warning in app.warning
    )
    assert {"Search up to 4", "Add EASY backfilling"} <= {button.label for button in app.button}
    near = pressed(app, "as the target")
    recipe = recipe_of(near)
    assert isinstance(recipe, SizeQuestion)
    assert recipe.limit > 1.0
    # Known already: nothing is run for it.
    assert re.match(r"(FIFO|SRTF) needs \d nodes?", near.title[0].value)
    wider = pressed(ended(pressed(go(question), "Add EASY"), question), "Search")
    assert len(study_of(wider).allocators) == 3


def test_a_wide_range_is_checked_below_the_answer_too(go: Go, study: Study) -> None:
    app = go(asked(study, 1.0, 4, "jct_mean_s"))
    (high,) = [field for field in app.number_input if field.label == "To"]
    high.set_value(400).run()
    sound(app)
    recipe = recipe_of(app)
    assert isinstance(recipe, SizeQuestion)
    assert (recipe.high, recipe.check) == ((400,), True)


def test_a_wider_range_is_one_press(go: Go, study: Study) -> None:
    question = asked(study, 1.0, 2, "jct_mean_s")
    app = pressed(ended(pressed(go(question), "Search"), question), "Search up to 4")
    recipe = recipe_of(app)
    assert isinstance(recipe, SizeQuestion)
    assert recipe.high == (4,)


class Slow(PlanRun):
    """Finds nothing until it is cancelled."""

    def run(self) -> None:
        self._state, self.began_s = "running", time.monotonic()
        self._stop.wait(600)
        self._end("cancelled")


def test_while_it_runs_the_form_is_locked_and_cancel_ends_it(
    go: Go, study: Study, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_live, "_new_run", lambda recipe: Slow(recipe, pool.store))
    question = asked(study)
    app = pressed(go(question), "Search")
    assert own(app)[0].disabled
    second = go(question)  # a reload, or somebody else with the same question, joins
    assert [button.label for button in second.button if button.label == "Cancel"]
    pressed(second, "Cancel")
    assert plan_live.look_up(question).state == "running"  # the first session still waits
    pressed(app, "Cancel")
    ended(app, question)
    assert any("Cancelled after 0 runs" in info.value for info in app.info)
    assert not own(app)[0].disabled


class Ending(Slow):
    """Stops when the test lets it."""

    may_end = threading.Event()

    def run(self) -> None:
        self._state, self.began_s = "running", time.monotonic()
        self.may_end.wait(600)
        self._end("cancelled")


def test_large_ones_are_drawn_seldom_but_how_they_stop_is_watched(
    go: Go, study: Study, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    every, real = list[float | None](), st.fragment

    def fragment(of: Callable[..., None], run_every: float | None = None) -> Callable[..., None]:
        if of is plan_live._draw_live:
            every.append(run_every)
        return real(of, run_every=run_every)

    monkeypatch.setattr(Ending, "may_end", threading.Event())
    monkeypatch.setattr(plan_live, "_new_run", lambda recipe: Ending(recipe, pool.store))
    monkeypatch.setattr(plan_live, "_LARGE", 1)
    monkeypatch.setattr(st, "fragment", fragment)
    question = asked(study)
    app = pressed(go(question), "Search")
    assert every[-1] == plan_live._SELDOM_S
    pressed(app, "Cancel")
    assert "Stopping" in texts(app)
    assert every[-1] == plan_live.EVERY_S
    Ending.may_end.set()
    ended(app, question)


def test_machines_that_cannot_be_reached_are_one_sentence(
    go: Go, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_EXECUTOR", "nowhere")
    question = asked(study)
    app = ended(pressed(go(question), "Search"), question)
    assert any("'nowhere' is not an executor" in error.value for error in app.error)
    assert [button for button in app.button if button.label.startswith("Try again")]


def test_what_takes_long_is_confirmed_first(
    go: Go, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_live, "LONG_S", 0.0)
    question = asked(study)
    app = pressed(go(question), "Search")
    assert any("Cancelling keeps finished runs" in warning.value for warning in app.warning)
    assert plan_live.look_up(question).state == "waiting"
    assert not pressed(app, "Not now").warning
    ended(pressed(pressed(app, "Search"), "Begin"), question)
    assert app.title[0].value


def test_scenarios_that_cannot_be_asked_about_say_so(visit: Open, tiny: Study) -> None:
    app = visit("plan", replace(tiny, allocators=(Spec("recorded"),), baseline=0))
    assert any(
        "No policy of the scenario can run with other clusters" in info.value for info in app.info
    )


@pytest.mark.parametrize("damaged", ["nonsense", "eNqrVkrLz1eyUkpKLFKqBQAfZQQX"])
def test_a_damaged_question_in_the_address_is_one_sentence(go: Go, damaged: str) -> None:
    app = go(damaged)
    assert len(app.error) == 1
    assert [button for button in app.button if button.label.startswith("Search")]


def test_a_range_that_is_none_is_said_and_stays_as_typed(visit: Open) -> None:
    app = visit("plan")
    next(item for item in app.toggle if str(item.key).startswith("plan")).set_value(False).run()
    (low,) = [field for field in app.number_input if field.label == "From"]
    low.set_value(30).run()
    sound(app)
    assert any("From 30 to 20 nodes is not a range" in error.value for error in app.error)
    assert [field.value for field in app.number_input if field.label == "From"] == [30]


def test_two_rows_are_searched_for_the_cheapest_mix(go: Go, study: Study) -> None:
    two = replace(study, base=replace(study.base, cluster=Cluster.parse("1x8:v100,1x8:a100")))
    question = SizeQuestion(two, (0, 1), (0, 0), (2, 2), "queue_mean_s", 600.0)
    app = ended(pressed(go(question), "Search"), question)
    assert " V100 and " in app.title[0].value or "A100" in app.title[0].value
    assert "Follows the feasibility frontier" in texts(app)
    assert len(app.get("plotly_chart")) == 2


def swept(study: Study, repeats: int = 1) -> Sweep:
    return Sweep(replace(study, repeats=repeats), (Axis.over("trace.load", 1.0, 2.0, 3),))


def test_a_sweep_says_who_is_ahead_where(go: Go, study: Study, pool: FakePool) -> None:
    sweep = swept(study)
    app = go(sweep)
    assert app.query_params["tab"] in ("sweep", ["sweep"])
    assert [button for button in app.button if button.label.startswith("Sweep")]
    assert "6 runs (3 points × 2 policies)" in texts(app)
    ended(pressed(app, "Sweep"), sweep)
    assert app.title[0].value.startswith("Lowest average completion time: SRTF at ")
    assert library.items(pool.store, "me")[0].recipe() == sweep
    app.session_state["data/sweep"] = True
    app.run()
    assert "Average completion time (min)" in app.dataframe[0].value
    (way,) = [box for box in app.selectbox if box.label == "Show"]
    way.select("Change against FIFO").run()
    sound(app)
    app.session_state["data/sweep"] = True
    app.run()
    assert "Change of Average completion time (share)" in app.dataframe[0].value
    (point,) = [box for box in app.selectbox if box.label == "Point"]
    point.select(2).run()
    assert study_of(pressed(app, "Use this")).base.trace.load == 2.0


def test_repeats_without_chance_are_no_certainty(go: Go, study: Study) -> None:
    sweep = Sweep(replace(study, repeats=3), (Axis("trace.load", (1.0, 2.0)),))
    assert "All repeats are equal" in texts(ended(pressed(go(sweep), "Sweep"), sweep))
    noisy = replace(
        sweep,
        study=replace(sweep.study, base=replace(study.base, estimator=Spec.of("noisy", sigma=1.0))),
    )
    read = texts(ended(pressed(go(noisy), "Sweep"), noisy))
    assert "All repeats are equal" not in read
    assert "Bands: 95 % of resamples" in read


def test_failed_cells_are_said_and_the_others_are_drawn(go: Go, study: Study) -> None:
    sweep = Sweep(study, (Axis("faults.mttr_h", (4.0, -1.0)),))
    app = ended(pressed(go(sweep), "Sweep"), sweep)
    assert any(warning.value.startswith("2 runs failed: ") for warning in app.warning)
    assert "of 1 point" in app.title[0].value or "point" in app.title[0].value
    assert [field.value for field in app.text_input if field.label == "List of values"] == ["4, -1"]


def test_two_axes_are_maps_and_three_a_table(go: Go, study: Study) -> None:
    axes = (
        Axis("trace.load", (1.0, 2.0)),
        Axis("cluster.groups.0.count", (1, 2)),
        Axis("seed", (0, 1)),
    )
    sweep = Sweep(study, axes[:2])
    assert len(ended(pressed(go(sweep), "Sweep"), sweep).get("plotly_chart")) == 2
    three = Sweep(study, axes)
    app = ended(pressed(go(three), "Sweep"), three)
    assert not app.get("plotly_chart")
    assert any("3 settings vary" in caption.value for caption in app.caption)


def test_an_enormous_grid_is_refused_with_a_sentence(go: Go, study: Study) -> None:
    app = go(swept(replace(study, repeats=50), 50))
    (steps,) = [field for field in app.number_input if field.label == "Steps"]
    steps.set_value(1000).run()
    (second,) = [box for box in app.selectbox if box.label == "Second setting"]
    second.select("seed").run()
    sound(app)
    assert any("runs, more than 100,000" in error.value for error in app.error)


def test_an_error_of_predictions_varies_where_the_scenario_has_none(
    visit: Open, study: Study
) -> None:
    app = visit("plan", study)
    app.session_state["plan_tab"] = "Sweep"
    app.run()
    (what,) = [box for box in app.selectbox if box.label == "Vary"]
    what.select("estimator.sigma").run()
    sound(app)
    recipe = recipe_of(app)
    assert isinstance(recipe, Sweep)
    assert (
        recipe.axes[0].path,
        recipe.study.base.estimator.name,
        study_of(app).base.estimator.name,
    ) == (
        "estimator.sigma",
        "noisy",
        "exact",
    )
