from __future__ import annotations

import math
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
from trainyard.sweeps import summaries
from trainyard.sweeps.plan import PlanRun
from trainyard.traces import new_study
from ui import browser_identity
from ui.planning import run_panel as plan_live
from ui.planning.run_panel import Recipe
from ui.words import plain

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


def test_before_the_first_search_it_says_what_it_takes_and_claims_nothing(visit: Open) -> None:
    app = visit("plan")
    (start,) = [button for button in app.button if button.label.startswith("Search")]
    assert start.proto.type == "primary"
    assert re.search(r"About \d+ runs, [\d.]+ s\.", texts(app))
    assert "Recorded schedule is left out" in texts(app)
    assert not app.title
    assert not app.get("plotly_chart")
    assert "ty-one" in "".join(html.proto.body for html in app.get("html"))
    recipe = recipe_of(app)
    assert isinstance(recipe, SizeQuestion)
    assert (recipe.low, recipe.groups) == ((4, 4, 0, 0), (0, 1, 2, 3))
    assert [row.gpu_type for row in recipe.rows] == ["a100", "v100", "h100", "t4"]
    assert (recipe.metric, recipe.limit, recipe.begin) == ("queue_p95_s", 3600.0, 0)
    # 4 nodes x 8 GPUs x (2.93 + 2.48) USD x 730 h = 126,378, in two digits.
    assert recipe.budget_per_month == pytest.approx(120_000)
    assert app.query_params["tab"] in ("buy", ["buy"])


def test_a_link_to_the_tab_capacity_opens_buy(visit: Open) -> None:
    app = visit()
    app.query_params["tab"] = "capacity"
    app.switch_page("pages/plan.py").run()
    sound(app)
    assert not app.warning
    assert app.query_params["tab"] in ("buy", ["buy"])


def test_a_search_answers_with_the_cheapest_and_its_link_shows_the_same_at_once(
    go: Go, study: Study, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = asked(study)
    app = ended(pressed(go(question), "Search"), question)
    run = PlanRun(question, pool.store, "nowhere")
    assert run.recall()
    answers = run.answers()
    assert f"Not compared yet, {run.done} other runs" in texts(app)
    said = app.title[0].value
    assert said == plain(summaries.headline(answers, question))
    page = "".join(html.proto.body for html in app.get("html"))
    for answer in answers:
        assert answer.size is not None
        assert f"<td>1 → {answer.size[0]}</td>" in page
    assert len(app.get("plotly_chart")) == 1
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
    again.button(key="open/SRTF").click().run()
    sound(again)
    best = next(answer.size for answer in answers if answer.policy == "SRTF")
    assert best is not None
    assert study_of(again).base.cluster.groups[0].count == best[0]


def test_a_target_that_nobody_meets_is_no_dead_end(go: Go, study: Study) -> None:
    question = asked(study, 1.0, 2, "jct_mean_s")
    app = ended(pressed(go(question), "Search"), question)
    assert "FIFO misses the target: at best " in texts(app)
    assert "Add EASY backfilling" in {button.label for button in app.button}
    near = pressed(app, "as the target")
    recipe = recipe_of(near)
    assert isinstance(recipe, SizeQuestion)
    assert recipe.limit > 1.0
    wider = pressed(ended(pressed(go(question), "Add EASY"), question), "Search")
    assert len(study_of(wider).allocators) == 3


def test_a_larger_budget_is_one_press(go: Go, study: Study) -> None:
    offers = Cluster.parse("1x8:t4").groups
    question = SizeQuestion(study, (0, 1), (1, 0), (4, 4), "jct_mean_s", 1.0, offers=offers)
    question = replace(question, budget_per_h=question.price_per_h((1, 2)))
    # 2 nodes x 8 GPUs x 0.35 USD x 730 h.
    assert question.budget_per_month == pytest.approx(4088.0)
    app = ended(pressed(go(question), "Search"), question)
    assert "misses the target for up to $4,100 a month" in texts(app).replace("\\", "")
    recipe = recipe_of(pressed(app, "Search up to"))
    assert isinstance(recipe, SizeQuestion)
    assert recipe.budget_per_month == pytest.approx(2 * 4088.0)


def test_the_form_of_a_purchase(visit: Open) -> None:
    app = visit("plan")
    (types,) = app.multiselect
    types.set_value([0, "t4"]).run()
    (budget,) = [field for field in app.text_input if field.label == "Budget"]
    budget.set_value("$20,000 a month").run()
    sound(app)
    recipe = recipe_of(app)
    assert isinstance(recipe, SizeQuestion)
    assert [recipe.rows[group].gpu_type for group in recipe.groups] == ["a100", "t4"]
    assert recipe.budget_per_month == pytest.approx(20_000)
    budget.set_value("").run()
    (fewer,) = [item for item in app.toggle if item.label == "Fewer nodes too"]
    fewer.set_value(True).run()
    sound(app)
    recipe = recipe_of(app)
    assert isinstance(recipe, SizeQuestion)
    assert (recipe.low, recipe.budget_per_h) == ((0, 0), math.inf)
    budget.set_value("much").run()
    sound(app)
    assert any("is not a valid target" in error.value for error in app.error)
    types.set_value([]).run()
    sound(app)
    assert any("Choose at least one node type" in error.value for error in app.error)


class Slow(PlanRun):
    """Finds nothing until it is cancelled."""

    def run(self) -> None:
        self._state, self.began_s = "running", time.monotonic()
        self._stop.wait(600)
        self._end("cancelled")


def test_types_without_a_price_are_not_offered_beside_priced_ones(
    visit: Open, study: Study
) -> None:
    cluster = Cluster.parse("4x8:mygpu,4x8:a100")
    app = visit("plan", new_study.with_cluster(study, cluster))
    sound(app)
    (types,) = app.multiselect
    assert not [label for label in types.options if "mygpu" in label.lower()]
    assert "A100" in types.options


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


def test_four_types_are_searched_and_named(go: Go, study: Study) -> None:
    two = replace(study, base=replace(study.base, cluster=Cluster.parse("1x8:v100,1x8:a100")))
    offers = Cluster.parse("1x8:t4,1x8:h100").groups
    bounds = (1, 1, 0, 0), (3, 3, 2, 2)
    question = SizeQuestion(two, (0, 1, 2, 3), *bounds, "queue_mean_s", 60.0, offers=offers)
    app = ended(pressed(go(question), "Search"), question)
    assert app.title[0].value.startswith("You own 1 V100 node. For average wait to start under 1")
    assert "Each type alone, by doubling and bisection" in texts(app)
    assert "V100 nodes only" in "".join(html.proto.body for html in app.get("html"))
    (chart,) = app.get("plotly_chart")
    assert "extra cost a month" in chart.proto.spec


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
