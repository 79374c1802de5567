from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from sim.cluster import Cluster
from sim.engine.simulator import Progress
from sim.params import Spec
from tests.pages.conftest import FakeJob, FakePool, Open, finish, sound, study_of, texts, told_times
from trainyard.api import Comparison
from trainyard.formatting import BY_UNIT
from trainyard.results import outcomes, preview
from trainyard.runs.engines import SETTING
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.sources import load_source
from trainyard.views import comparison
from trainyard.views.ledger import ALL as METRICS
from trainyard.views.ledger import LedgerCell
from ui import state, zoom_window
from ui.what_if import slider


def spec(chart: Any) -> str:
    return str(chart.proto.figure.spec if hasattr(chart.proto, "figure") else chart.proto.spec)


CHARTS = {"over_time", "done_within"}
"""Of Compare while no tab but the first is open."""


def component(app: AppTest, name: str) -> Any:
    """What a component of ours was given; None = it is not there."""
    for one in app.get("bidi_component"):
        if one.proto.component_name == f"trainyard_{name}":
            return json.loads(one.proto.json)
    return None


def rows(app: AppTest) -> dict[str, Any]:
    """The rows of the ledger, by policy."""
    return {row["title"]: row for row in component(app, "ledger")["rows"]}


def answer(app: AppTest) -> str:
    """The sentence on top, without markup."""
    found = re.search('<h1 class="ty-answer">(.*?)</h1>', texts(app))
    assert found
    return html.unescape(re.sub("<[^>]*>", "", found[1]))


def tab(app: AppTest, name: str) -> AppTest:
    app.session_state["compare_tabs"] = name
    app.run()
    sound(app)
    return app


def charts_of(app: AppTest) -> set[str]:
    return {str(chart.key) for chart in app.get("plotly_chart")}


def drawn(app: AppTest, key: str) -> Any:
    return json.loads(next(spec(chart) for chart in app.get("plotly_chart") if chart.key == key))


def test_empty_compare_says_what_it_will_show_and_offers_to_run(
    visit: Open, pool: FakePool
) -> None:
    app = visit("compare")
    assert "No result yet" in texts(app)
    app.button(key="run_here").click().run()
    sound(app)
    assert len(pool.jobs) == len(study_of(app).allocators)


def test_cancel_stops_all_runs_and_says_so(visit: Open, tiny: Study, pool: FakePool) -> None:
    app = visit("compare", tiny)
    app.button(key="run_here").click().run()
    app.button(key="cancel").click().run()
    assert {job.state for job in pool.jobs} == {"cancelled"}
    assert "Cancelled." in texts(app)
    assert not [button for button in app.button if button.key == "cancel"]


def test_a_policy_that_cannot_run_is_said_and_not_started(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    replayed = next(
        spec
        for spec in tiny.allocators
        if new_study.catalog.allocator(spec).needs.reads >= {"recorded_start"}
    )
    loaded = replace(tiny, base=replace(tiny.base, trace=replace(tiny.base.trace, load=0.8)))
    app = visit("compare", loaded)
    app.button(key="run_here").click().run()
    sound(app)
    assert replayed not in [job.scenario.allocator for job in pool.jobs]
    title = outcomes.titles(loaded.allocators)[loaded.allocators.index(replayed)]
    assert rows(app)[title]["note"].startswith("This trace has no recorded start times")
    finish(pool, loaded, [at for at, spec in enumerate(loaded.allocators) if spec != replayed])
    for job in pool.jobs:
        job.state = "done"
    app.run()
    assert "Up to date" in texts(app)
    # Now the policy has a row with the reason, and the others have theirs.
    title = outcomes.titles(loaded.allocators)[loaded.allocators.index(replayed)]
    assert rows(app)[title]["note"].startswith("This trace has no recorded start times")
    assert not any(row["note"] for name, row in rows(app).items() if name != title)
    assert not app.warning


def test_a_baseline_that_cannot_run_is_replaced_and_said(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    study = replace(
        tiny, allocators=(Spec("greedy_elastic"), Spec("fifo"), Spec("srtf")), baseline=0
    )
    finish(pool, study, [1, 2])
    app = visit("compare", study)
    assert "Compared with FIFO: the chosen baseline Greedy elastic cannot run here." in (texts(app))
    assert {name: row["mark"] for name, row in rows(app).items() if row["mark"]} == {
        "FIFO": "baseline"
    }


def test_stale_results_stay_with_the_list_of_changes(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    app.session_state[state._SESSION].edit(
        replace(
            tiny,
            allocators=(*tiny.allocators, Spec.of(tiny.allocators[0].name, backfill="first_fit")),
        )
    )
    app.run()
    sound(app)
    assert "1 policy not run yet" in texts(app)
    assert charts_of(app) == CHARTS
    primary = [button.label for button in app.button if button.proto.type == "primary"]
    assert primary == ["Run"]


def test_a_trace_that_is_gone_is_said_and_the_rest_lives(visit: Open, tiny: Study) -> None:
    gone = replace(
        tiny, base=replace(tiny.base, trace=replace(tiny.base.trace, source="store:" + "0" * 32))
    )
    app = visit("cluster", gone)
    assert any("trace is not on this server" in error.value for error in app.error)
    assert app.metric[1].value == str(tiny.base.cluster.gpus)


def test_a_reload_takes_up_the_runs_that_were_going(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    app = visit("compare", tiny)
    app.button(key="run_here").click().run()
    assert app.query_params["go"] == "1"
    del app.session_state[state._SESSION]
    app.run()
    sound(app)
    assert len(pool.jobs) == 2 * len(tiny.allocators)
    assert "0 of 4 policies done" in texts(app)
    app.button(key="cancel").click().run()
    assert "go" not in app.query_params


def test_running_without_the_trace_changes_nothing(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    gone = replace(
        tiny, base=replace(tiny.base, trace=replace(tiny.base.trace, source="store:" + "0" * 32))
    )
    app.session_state[state._SESSION].edit(gone)
    app.run()
    assert next(button for button in app.button if button.label == "Run").disabled
    assert ["The trace is not on this server" in error.value for error in app.error] == [True]
    assert app.session_state[state._SESSION].displayed_study == tiny
    assert charts_of(app) == CHARTS


def test_compare_without_a_result_has_one_primary_button(visit: Open) -> None:
    app = visit("compare")
    assert [button.label for button in app.button if button.proto.type == "primary"] == [
        "Run the sample"
    ]


FOLD = re.compile(r"cuts|raises|[−+]\d[\d.]* %|\d % of jobs")
"""What no page may say of a comparison that means nothing."""


def test_overload_is_said_and_its_ways_out_change_the_scenario_and_run_it(
    visit: Open, pool: FakePool
) -> None:
    week = new_study.with_cluster(new_study.sample_study("week"), Cluster.parse("1x8:v100"))
    study = new_study.with_policies(week, (Spec("fifo"), Spec("srtf")))
    finish(pool, study)
    app = visit("compare", study)
    sound(app)
    assert "9.4 times" in answer(app)
    assert not FOLD.search(texts(app))
    assert charts_of(app) == set()
    assert component(app, "tiles") is component(app, "ledger") is None
    ways = {button.key: button.label for button in app.button if str(button.key).startswith("way/")}
    assert ways == {
        "way/fit_cluster": "Fit the cluster to the jobs: 64 GPUs",
        "way/lower_load": "Lower the load until jobs request 85 % of GPU time",
        "way/enough_gpus": "Find enough GPUs",
        "way/compare_anyway": "Compare anyway",
    }
    app.button(key="way/lower_load").click().run()
    sound(app)
    assert study_of(app).base.trace.load == pytest.approx(0.85 / 9.374, rel=1e-3)
    assert [job.scenario.trace.load for job in pool.jobs] == [study_of(app).base.trace.load] * 2
    assert app.button(key="undo").label == "Undo"


def test_under_overload_a_policy_that_runs_has_its_progress(visit: Open, pool: FakePool) -> None:
    week = new_study.with_cluster(new_study.sample_study("week"), Cluster.parse("1x8:v100"))
    study = new_study.with_policies(week, (Spec("fifo"), Spec("srtf"), Spec("easy")))
    app = visit("compare", study)
    app.button(key="run_here").click().run()
    pool.jobs[2].progress = Progress(6, 12, 3600.0, 7200.0)
    finish(pool, study, [0, 1])
    for job in pool.jobs[:2]:
        job.state = "done"
    app.run()
    sound(app)
    assert rows(app)["EASY backfilling"]["share"] == 0.5
    assert not FOLD.search(texts(app))


def test_enough_gpus_are_looked_for_on_plan(visit: Open, pool: FakePool) -> None:
    study = new_study.with_cluster(new_study.sample_study("week"), Cluster.parse("1x8:v100"))
    study = new_study.with_policies(study, (Spec("fifo"),))
    finish(pool, study)
    app = visit("compare", study)
    app.button(key="way/enough_gpus").click().run()
    sound(app)
    assert app.query_params["tab"] in ("buy", ["buy"])
    assert study_of(app) == study
    assert not pool.jobs


def test_an_idle_cluster_has_nothing_to_schedule_until_it_is_smaller(
    visit: Open, pool: FakePool
) -> None:
    large = new_study.with_cluster(new_study.sample_study("week"), Cluster.parse("100x8:v100"))
    study = new_study.with_policies(large, (Spec("fifo"), Spec("srtf")))
    finish(pool, study)
    app = visit("compare", study)
    sound(app)
    assert not FOLD.search(texts(app))
    app.button(key="way/fewer_nodes").click().run()
    sound(app)
    assert study_of(app).base.cluster.gpus == 96
    assert {job.scenario.cluster.gpus for job in pool.jobs} == {96}


def test_one_draw_offers_five_repeats(visit: Open, pool: FakePool) -> None:
    week = new_study.sample_study("week")
    study = replace(
        new_study.with_policies(week, (Spec("fifo"), Spec("srtf"))),
        base=replace(week.base, estimator=Spec("noisy")),
    )
    finish(pool, study)
    app = visit("compare", study)
    sound(app)
    app.button(key="way/repeats").click().run()
    assert study_of(app).repeats == 5
    assert len(pool.jobs) == 10


def test_against_a_recording_a_reference_is_asked_for_first(visit: Open, pool: FakePool) -> None:
    study = new_study.with_policies(
        new_study.sample_study("week"), (Spec("recorded"), Spec("srtf"))
    )
    finish(pool, study)
    app = visit("compare", study)
    sound(app)
    assert not FOLD.search(texts(app))
    app.button(key="way/add_references").click().run()
    assert [spec.name for spec in study_of(app).allocators] == ["recorded", "srtf", "fifo", "easy"]


def test_jobs_that_only_one_policy_completed_are_said_beside_the_differences(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    cut = replace(tiny, base=replace(tiny.base, stop="horizon", horizon_s=1800.0))
    finish(pool, cut)
    app = visit("compare", cut)
    sound(app)
    assert "differences use the jobs that both completed" in texts(app)


def test_every_run_has_a_bar_of_its_own(visit: Open, tiny: Study, pool: FakePool) -> None:
    app = visit("compare", tiny)
    app.button(key="run_here").click().run()
    assert len(app.get("progress")) == len(tiny.allocators)
    pool.jobs[0].state = "cancelled"
    app.run()
    sound(app)
    assert len(app.get("progress")) == len(tiny.allocators) - 1


def opened(app: AppTest, key: str) -> None:
    app.session_state[key] = True
    app.run()
    sound(app)


def window_of(app: AppTest) -> tuple[float, float] | None:
    window: tuple[float, float] | None = app.session_state[state._SESSION].window
    return window


def test_a_window_after_the_end_shows_the_whole_run_and_says_so(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    app.session_state[state._SESSION].window = (1e9, 2e9)
    app.run()
    sound(app)
    assert "begins after these runs end" in texts(app)


def test_policies_appear_before_the_baseline_is_there(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    app = visit("compare", tiny)
    app.button(key="run_here").click().run()
    last = len(tiny.allocators) - 1
    finish(pool, tiny, [last])
    pool.jobs[last].state = "done"
    app.run()
    sound(app)
    assert answer(app) == f"1 of {len(tiny.allocators)} policies done"
    assert charts_of(app) == CHARTS
    title = outcomes.titles(tiny.allocators)[last]
    assert [trace["name"] for trace in drawn(app, "done_within")["data"]] == [title]
    assert [name for name, row in rows(app).items() if not row["note"]] == [title]


def test_results_show_answer_tiles_charts_and_ledger(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    titles = outcomes.titles(tiny.allocators)
    assert "SRTF" in answer(app)
    assert charts_of(app) == CHARTS
    tiles = component(app, "tiles")
    assert [tile["goal"] for tile in tiles if tile["chosen"]] == ["jct_mean_s"]
    assert tiles[0]["value"] == "37 min"
    assert tiles[0]["base"] == "FIFO 58 min"
    # Of the 12 jobs two thirds are faster.
    split = next(tile for tile in tiles if "parts" in tile)
    assert split["parts"] == [0.6667, 0.1667, 0.1667]
    assert split["lines"] == [["8 faster", "better"], ["2 same", ""], ["2 slower", "worse"]]
    assert tuple(rows(app)) == titles
    assert {row["kind"] for row in rows(app).values()} == {"base", "high", ""}
    assert rows(app)["SRTF"]["cells"][0][0] == "37 min"
    assert "Up to date" in texts(app)


@pytest.mark.parametrize(
    ("change", "verdict", "line"),
    [
        ("−47 %", "better", "▾ 47 % better"),
        ("+2.5 %", "worse", "▴ 2.5 % worse"),
        ("+3 pt", "better", "▴ 3 points better"),
        ("−3 pt", "", "▾ 3 points"),
        ("−1 pt", "", "▾ 1 point"),
        ("+11 pt", "", "▴ 11 points"),
        ("≈", "", "about the same"),
    ],
)
def test_an_arrow_points_where_the_figure_went(change: str, verdict: str, line: str) -> None:
    assert comparison._change_line(LedgerCell("", change, verdict)) == (line, verdict)


def test_a_policy_has_one_colour_in_ledger_and_charts(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    colours = {name: row["colour"] for name, row in rows(app).items()}
    assert len(set(colours.values())) == len(colours)
    for key in CHARTS:
        lines = [line for line in drawn(app, key)["data"] if line.get("legendgroup")]
        assert {line["legendgroup"]: line["line"]["color"] for line in lines} == colours


def test_a_row_that_is_clicked_is_highlighted_everywhere(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    app.query_params["high"] = "EASY backfilling"
    app.run()
    sound(app)
    assert rows(app)["EASY backfilling"]["kind"] == "high"
    for key in CHARTS:
        widths = {
            line["legendgroup"]: line["line"]["width"]
            for line in drawn(app, key)["data"]
            if line.get("legendgroup")
        }
        assert max(widths, key=lambda title: widths[title]) == "EASY backfilling"
    app.query_params["high"] = "No such policy"
    app.run()
    sound(app)
    sentences = texts(app).replace("\\", "")
    assert "The link highlights “No such policy”, which is not compared." in sentences
    assert rows(app)["SRTF"]["kind"] == "high"


def test_rows_appear_as_policies_finish(visit: Open, tiny: Study, pool: FakePool) -> None:
    app = visit("compare", tiny)
    app.button(key="run_here").click().run()
    pool.jobs[1].progress, pool.jobs[1].elapsed_s = Progress(6, 12, 3600.0, 7200.0), 9.0
    pool.jobs[2].state, pool.jobs[2].place = "waiting", 1
    finish(pool, tiny, [0])
    pool.jobs[0].state = "done"
    app.run()
    sound(app)
    progress = [(row["note"], row["share"]) for row in rows(app).values()]
    reading = ("reading the trace", 0.0)
    assert progress == [("", None), ("6 of 12 jobs · 9 s so far", 0.5), ("next", 0.0), reading]
    assert tuple(rows(app)) == outcomes.titles(tiny.allocators)
    assert "1 of 4 policies done" in texts(app)


def test_with_the_baseline_and_one_more_there_is_a_headline_so_far(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    app = visit("compare", tiny)
    app.button(key="run_here").click().run()
    finish(pool, tiny, [0, 1])
    for job in pool.jobs[:2]:
        job.state = "done"
    app.run()
    sound(app)
    titles = outcomes.titles(tiny.allocators)
    assert "So far: " in texts(app)
    assert f"2 of 4 policies done. Without a result yet: {', '.join(titles[2:])}." in texts(app)


@pytest.mark.parametrize("seconds", [0.1, 1.0])
def test_short_runs_are_drawn_with_their_results_and_long_ones_at_once(
    visit: Open, tiny: Study, pool: FakePool, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    waited: list[FakeJob] = []

    def wait(job: FakeJob, timeout_s: float) -> bool:
        waited.append(job)
        assert 0 < timeout_s <= state.MOMENT_S
        finish(pool, tiny, [tiny.allocators.index(job.scenario.allocator)])
        job.state = "done"
        return True

    monkeypatch.setattr(FakeJob, "seconds", seconds)
    monkeypatch.setattr(FakeJob, "wait", wait, raising=False)
    monkeypatch.setattr(state, "MOMENT_S", 3600.0 if seconds < 0.5 else 0.6)
    app = visit("compare", tiny)
    app.button(key="run_here").click().run()
    assert (waited == pool.jobs) is (seconds < 0.5)
    assert bool(rows(app)["FIFO"]["note"]) is (seconds > 0.5)
    if seconds < 0.5:
        # Also where other results are shown.
        tiny = replace(tiny, base=replace(tiny.base, seed=tiny.base.seed + 1))
        app.session_state[state._SESSION].edit(tiny)
        app.run()
        app.button(key="run").click().run()
        sound(app)
        assert app.session_state[state._SESSION].displayed_study == tiny


def test_a_policy_that_stopped_is_one_row_and_the_others_stay(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    app = visit("compare", tiny)
    app.button(key="run_here").click().run()
    finish(pool, tiny, [0, 2])
    for job in pool.jobs:
        job.state = "done"
    pool.jobs[1].state, pool.jobs[1].error = "failed", "asked for 70 GPUs of 64"
    pool.jobs[1].details = {"now_s": 94_440.0}
    app.run()
    sound(app)
    title = outcomes.titles(tiny.allocators)[1]
    note = rows(app)[title]["note"]
    assert note.startswith(f"{title} stopped at day 2")
    assert note.endswith("asked for 70 GPUs of 64")
    assert rows(app)["SRTF"]["cells"]
    assert not app.error


def test_who_insists_on_comparing_sees_what_still_means_something(
    visit: Open, pool: FakePool
) -> None:
    week = new_study.with_cluster(new_study.sample_study("week"), Cluster.parse("1x8:v100"))
    study = new_study.with_policies(week, (Spec("fifo"), Spec("srtf"), Spec("greedy_elastic")))
    finish(pool, study, [0, 1])
    app = visit("compare", study)
    app.session_state["share"] = True
    app.run()
    # No charts on the page, so none on a slide.
    assert component(app, "slide") is None
    assert "Greedy elastic: Jobs run at one size only" in texts(app)
    assert "Assumed: A stopped or resized job takes 60 s" in texts(app)
    app.button(key="way/compare_anyway").click().run()
    app.run()  # the line stays
    sound(app)
    assert "Compared despite overload" in texts(app)
    assert component(app, "slide") is not None
    assert [one["title"] for one in component(app, "ledger")["columns"]] == [
        METRICS["makespan_s"].title,
        METRICS["utilisation"].title,
    ]
    assert component(app, "tiles") is None
    assert not any(cell[1] for row in rows(app).values() for cell in row["cells"])
    assert not FOLD.search(texts(app))
    assert "way/compare_anyway" not in {button.key for button in app.button}
    assert rows(app)["Greedy elastic"]["note"].startswith("Jobs run at one size only")


def test_the_goal_leads_the_headline_the_tiles_and_the_address(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    assert "goal" not in app.query_params
    app.selectbox(key="goal").select("makespan_s").run()
    sound(app)
    assert app.query_params["goal"] == "makespan_s"
    assert component(app, "ledger")["columns"][0]["title"] == METRICS["makespan_s"].title
    assert "2.7 h" in answer(app)


def test_the_ledger_and_the_table_of_the_python_interface_say_the_same(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    by_title = {metric.title: metric for metric in METRICS.values()}
    columns = [by_title[one["title"]] for one in component(app, "ledger")["columns"]]
    table = Comparison(tiny, pool.store, {}).table()
    assert set(table.index) == set(rows(app))
    compared = 0
    for title, row in rows(app).items():
        for metric, (shown, *_) in zip(columns, row["cells"], strict=True):
            if metric.name in table.columns.get_level_values(0):
                value = table.loc[title, (metric.name, "value")]
                # In the ledger shares are whole per cents.
                write = "{:.0%}".format if metric.unit == "1" else BY_UNIT[metric.unit]
                assert shown.replace(" %", "%") == write(value), (title, metric.name)
                compared += 1
    assert compared >= 4 * len(table)


def test_figures_may_be_of_one_group_of_jobs(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    before = rows(app)["SRTF"]["cells"]
    curves = drawn(app, "done_within")["data"]
    assert "all jobs" not in drawn(app, "over_time")["layout"]["annotations"][0]["text"]
    box = app.selectbox(key="group")
    chosen = next(option for option in box.options if option.startswith("Size of job: "))
    box.select(chosen).run()
    sound(app)
    assert rows(app)["SRTF"]["cells"] != before
    names = {one["title"] for one in component(app, "ledger")["columns"]}
    assert METRICS["utilisation"].title not in names

    # The sentence and the completion curve are of the group, the course of the run says it is not.
    of_group = f'"ty-facts">{html.escape(chosen.replace(": ", " "))}: '
    assert re.search(of_group + r"\d of 12 jobs", texts(app))
    assert drawn(app, "done_within")["data"] != curves
    assert "all jobs" in drawn(app, "over_time")["layout"]["annotations"][0]["text"]


def test_a_window_is_that_of_every_figure_over_time(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    whole = drawn(app, "over_time")
    assert {shape["type"] for shape in whole["layout"]["shapes"]} == {"line"}
    app.session_state[state._SESSION].window = (1800.0, 5400.0)
    app.run()
    sound(app)
    seen = drawn(app, "over_time")
    title = seen["layout"]["annotations"][0]["text"]
    if "shaded" in title:
        assert "in this window" in title
    low, high = seen["layout"]["xaxis"]["range"]
    assert low / high == pytest.approx(1800 / 5400)
    assert [shape["type"] for shape in seen["layout"]["shapes"]].count("rect") == 1
    assert component(app, "ledger")["window"] == [1800.0, 5400.0]
    assert (app.query_params["t0"], app.query_params["t1"]) == ("1800", "5400")
    next(button for button in app.button if "✕" in button.label).click().run()
    sound(app)
    assert window_of(app) is None
    assert "t0" not in app.query_params


def test_a_window_may_be_typed_and_must_end_after_it_begins(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)

    def field(name: str) -> Any:
        return next(one for one in app.text_input if one.label == name)

    def zoom() -> None:
        next(button for button in app.button if button.label == "Zoom").click().run()
        sound(app)

    field("From").set_value("day 1, 00:30")
    field("To").set_value("day 1, 02:00")
    zoom()
    assert window_of(app) == (1800.0, 7200.0)
    field("From").set_value("day 1, 02:30")
    zoom()
    assert any("ends before it begins" in error.value for error in app.error)
    field("From").set_value("yesterday")
    zoom()
    assert any("Write it like" in error.value for error in app.error)
    assert window_of(app) == (1800.0, 7200.0)


@pytest.mark.parametrize(
    ("dragged", "kept"),
    [
        ((9000.0, 3000.0), (3000.0, 9000.0)),
        ((3000.0, 3010.0), (2705.0, 3305.0)),
        ((-500.0, 10.0), (0.0, 600.0)),
        ((9990.0, 9995.0), (9400.0, 10_000.0)),
        ((10.0, 1e9), (10.0, 10_000.0)),
        ((-5.0, 1e9), None),
    ],
)
def test_a_drag_is_widened_and_kept_within_the_run(
    dragged: tuple[float, float], kept: tuple[float, float] | None
) -> None:
    assert zoom_window._clip(dragged, 10_000.0) == kept


@pytest.mark.parametrize(
    ("t0", "t1", "expected"),
    [
        ("0", "600", (0.0, 600.0)),
        ("-1", "600", None),
        ("600", "600", None),
        ("0", "inf", None),
        ("0", "nan", None),
        ("", "600", None),
    ],
)
def test_a_zoom_window_of_a_link_begins_at_0_or_later(
    t0: str, t1: str, expected: tuple[float, float] | None
) -> None:
    assert state._parse_window(t0, t1) == expected


def test_jobs_come_in_the_order_asked_for(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    first = app.dataframe[0].value
    assert (first["Difference (min)"] > 0).all()
    app.segmented_control(key="jobs_order/True").set_value("waited").run()
    sound(app)
    table = app.dataframe[0].value
    assert len(table) == 12
    name = str(table["Job"].iloc[3])
    app.text_input(key="jobs_search").set_value(name.upper()).run()
    sound(app)
    assert name in set(app.dataframe[0].value["Job"])
    app.text_input(key="jobs_search").set_value("no such job").run()
    assert not app.dataframe


def test_changes_by_group_follow_what_is_asked(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    box = app.selectbox(key="jobs_show")
    assert list(box.options)[:2] == ["Each job", "Distribution of changes"]
    box.select("Distribution of changes").run()
    assert "winners" in charts_of(app)
    app.selectbox(key="jobs_show").select("Change by user").run()
    app.segmented_control(key="group_of").set_value("wait").run()
    sound(app)
    assert "groups" in charts_of(app)


def test_where_time_goes_beside_what_the_gpus_do(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = tab(visit("compare", tiny), "Where time goes")
    titles = outcomes.titles(tiny.allocators)
    figure = drawn(app, "parts")
    assert list(figure["layout"]["yaxis"]["ticktext"]) == list(titles)
    app.segmented_control(key="time_view").set_value("GPUs busy, fragmented, idle").run()
    sound(app)
    assert {line["name"] for line in drawn(app, "states")["data"]} >= {"working"}
    app.segmented_control(key="time_view").set_value("GPUs by job").run()
    sound(app)
    before = drawn(app, "allocation")
    assert {"other jobs", "capacity"} <= {line["name"] for line in before["data"]}
    app.query_params["high"] = titles[1]
    app.run()
    sound(app)
    assert drawn(app, "allocation") != before


def test_estimates_are_drawn_against_true_run_times(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    noisy = replace(tiny, base=replace(tiny.base, estimator=Spec.of("noisy", sigma=1.0)))
    finish(pool, noisy)
    app = tab(visit("compare", noisy), "Accuracy")
    assert "predictions" in charts_of(app)
    assert "closest to the recorded schedule" in "".join(item.label for item in app.expander)


@pytest.mark.usefixtures("fast_engine")
def test_which_engine_computed_a_result_is_told(
    visit: Open, tiny: Study, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, "auto")
    finish(pool, tiny)
    told = texts(tab(visit("compare", tiny), "Accuracy"))
    fast = "by the fast engine: FIFO, EASY backfilling, SRTF"
    why = "the fast engine follows only policies with a fixed rule"
    assert f"Computed {fast}; by the general engine: Recorded schedule ({why})." in told


def test_a_cluster_without_gpus_shows_cores_and_memory(visit: Open, pool: FakePool) -> None:
    source = load_source(TraceSpec("made:dlrover:jobs=60"))
    assert source.cluster is not None
    base = Scenario(
        TraceSpec("made:dlrover:jobs=60"),
        source.cluster,
        Spec("fifo"),
        Spec("parameter_server"),
        faults=Spec.of("faults", retries=2),
    )
    study = Study(base, (Spec("fifo"), Spec("easy")))
    finish(pool, study)
    app = visit("compare", study)
    sound(app)
    assert "150 nodes without GPUs" in texts(app)
    assert "yaxis2" not in drawn(app, "over_time")["layout"]
    names = {one["title"] for one in component(app, "ledger")["columns"]}
    assert METRICS["utilisation"].title not in names
    readout = component(app, "ledger")["readout"]["rows"].values()
    assert all(value is None for row in readout for value in row["busy"])
    tab(app, "Where time goes")
    views = ["Completion time", "Cores and memory"]
    assert list(app.segmented_control(key="time_view").options) == views
    app.segmented_control(key="time_view").set_value("Cores and memory").run()
    app.segmented_control(key="behind_resource").set_value("Memory").run()
    sound(app)
    assert "resources" in charts_of(app)


def test_durations_in_tables_are_numbers(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    for name in ("Jobs", "Where time goes", "Tenants", "Accuracy"):
        tab(app, name)
        assert not told_times(app)
    tab(app, "Jobs")
    table = app.dataframe[0].value
    high, base = (f"Completion, {name} (min)" for name in ("SRTF", "FIFO"))
    assert (table[high] - table[base]).tolist() == pytest.approx(table["Difference (min)"].tolist())


class Answered:
    """A question of the slider, answered in this process."""

    def __init__(self, asked: preview.PreviewRequest) -> None:
        self.result, self.error = preview.answer(asked), ""

    def wait(self, most_s: float) -> bool:
        return True

    def cancel(self) -> None:
        """Nothing is left to be ended."""


def test_a_slider_that_moves_keeps_the_highlighted_policy(
    visit: Open, tiny: Study, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = SimpleNamespace(ask=lambda asked, watcher, base: Answered(asked))
    monkeypatch.setattr(slider, "_previews", lambda: asked)
    # FIFO and EASY follow at once, SRTF with this placement does not; the answer alone would be
    # about EASY.
    slow = Spec.of("srtf", placement="consolidate")
    study = new_study.with_policies(tiny, (Spec("fifo"), Spec("easy"), slow))
    finish(pool, study)
    app = visit("compare", study)
    # In the stored results SRTF has the largest effect, so the headline is about it.
    assert "SRTF" in answer(app)
    for high, said in (("", "runs when the slider rests."), ("EASY backfilling", "EASY")):
        if high:
            app.query_params["high"] = high
        app.session_state["what_if/moved"] = ("trace.load", 1.1)
        app.run()
        sound(app)
        assert said in answer(app)
    app.session_state["what_if/moved"] = None
    app.run()
    sound(app)
    assert "EASY" in answer(app)


def test_a_change_stays_in_sight_until_it_is_undone_or_accepted(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    two = new_study.with_cluster(tiny, Cluster.parse("2x8:v100"))
    four = new_study.with_cluster(tiny, Cluster.parse("4x8:v100"))
    for study in (tiny, two, four):
        finish(pool, study)
    app = visit("compare", tiny)

    def change(study: Study) -> None:
        app.session_state["session"].replace(study)
        app.run()
        app.button(key="run").click().run()
        sound(app)

    assert "dotted: " not in texts(app)
    for study, told in ((two, "1 → 2 V100 nodes"), (four, "1 → 4 V100 nodes")):
        change(study)
        assert told in texts(app)
        assert [app.button(key=f"change_{name}").label for name in ("undo", "keep", "close")] == [
            "Undo",
            "Keep as scenario B",
            "✕",
        ]
    app.button(key="change_keep").click().run()
    sound(app)
    assert "Scenario A → B" in component(app, "ledger")["over"]
    app.button(key="change_undo").click().run()
    sound(app)
    assert study_of(app) == tiny
    assert "A → B, 4 → 1 V100 nodes" in texts(app)
    app.button(key="change_close").click().run()
    assert not [button for button in app.button if str(button.key).startswith("change_")]
    assert "Scenario" not in component(app, "ledger")["over"]
    change(two)
    app.button(key="change_undo").click().run()
    sound(app)
    assert study_of(app) == tiny
    assert "dotted: " not in texts(app)


def test_other_jobs_and_more_policies_are_no_change_to_compare(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    more = new_study.with_policies(tiny, (*tiny.allocators, Spec("sjf")))
    other = new_study.with_trace(tiny, TraceSpec("sample:tiny", to_s=3600.0))
    for study in (tiny, more, other):
        finish(pool, study)
    app = visit("compare", tiny)
    for study in (more, other):
        app.session_state["session"].replace(study)
        app.run()
        app.button(key="run").click().run()
        sound(app)
        assert study_of(app) == study
        assert "dotted: " not in texts(app)
