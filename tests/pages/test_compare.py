from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from charts.theme import NEUTRAL
from sim.cluster import Cluster
from sim.params import Spec
from sim.simulator import Progress
from tests.pages.conftest import FakePool, Open, finish, sound, study_of, texts
from trainyard.results import outcomes
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces import start
from trainyard.traces.sources import load_source
from ui import state


def spec(chart: Any) -> str:
    return str(chart.proto.figure.spec if hasattr(chart.proto, "figure") else chart.proto.spec)


CHARTS = {"compare/0", "timeline", "cdf", "winners", "groups", "parts"}
"""Of Compare on one GPU type, with a baseline to compare with."""


def charts_of(app: AppTest) -> set[str]:
    return {str(chart.key) for chart in app.get("plotly_chart")}


def drawn(app: AppTest, key: str) -> Any:
    return json.loads(next(spec(chart) for chart in app.get("plotly_chart") if chart.key == key))


def test_empty_compare_says_what_it_will_show_and_offers_to_run(visit: Open, pool: FakePool) -> None:
    app = visit("compare")
    assert "No result yet" in texts(app)
    app.button(key="run_here").click().run()
    sound(app)
    assert len(pool.jobs) == len(study_of(app).allocators)


def test_results_show_headline_table_charts_trust_and_exports(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    said = texts(app)
    assert "Mean JCT 37 min under SRTF, 58 min under FIFO; median" in app.subheader[0].value
    assert "Median JCT" in said
    assert "best" in said
    assert charts_of(app) == CHARTS
    assert "Closest to the recording" in "".join(item.label for item in app.expander)
    labels = [button.proto.label for button in app.get("download_button")]
    assert {"Table (CSV)", *(f"{rows} ({form})" for rows in ("Jobs", "Segments", "Decisions") for form in ("CSV", "Parquet"))} <= set(labels)
    assert "Up to date" in said


def test_a_policy_has_one_colour_in_table_and_charts(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    table = next(item.proto.body for item in app.get("html") if "ty-scroll" in item.proto.body)
    colours = dict(zip(outcomes.titles(tiny.allocators), re.findall(r"90deg, (#\w{6}) 0px", table), strict=True))
    for chart in app.get("plotly_chart"):
        figure = spec(chart)
        if chart.key in {"parts", "allocation"}:
            # There colours mean other things, so none of them may be a policy's.
            assert not [colour for colour in colours.values() if colour.lower() in figure.lower() and colour != NEUTRAL]
            continue
        # Who wins and loses is drawn for one policy at a time.
        chosen = [str(app.selectbox(key="winners_policy").value)] if chart.key == "winners" else list(colours)
        for title in chosen:
            assert colours[title].lower() in figure.lower(), title


def test_results_appear_policy_by_policy(visit: Open, tiny: Study, pool: FakePool) -> None:
    app = visit("compare", tiny)
    app.button(key="run_here").click().run()
    assert "Running" in texts(app)
    pool.jobs[1].progress = Progress(6, 12, 3600.0, 7200.0)
    finish(pool, tiny, [0])
    pool.jobs[0].state = "done"
    app.run()
    sound(app)
    first, second = outcomes.titles(tiny.allocators)[:2]
    assert f"Still running: {second}" in texts(app)
    assert first in app.subheader[0].value
    assert any("50 %" in bar.proto.text for bar in app.get("progress"))


def test_cancel_stops_all_runs_and_says_so(visit: Open, tiny: Study, pool: FakePool) -> None:
    app = visit("compare", tiny)
    app.button(key="run_here").click().run()
    app.button(key="cancel").click().run()
    assert {job.state for job in pool.jobs} == {"cancelled"}
    assert "Stopped." in texts(app)
    assert not [button for button in app.button if button.key == "cancel"]


def test_a_failed_run_is_one_sentence_and_the_others_stay(visit: Open, tiny: Study, pool: FakePool) -> None:
    app = visit("compare", tiny)
    app.button(key="run_here").click().run()
    finish(pool, tiny, [0])
    for job in pool.jobs:
        job.state = "done"
    pool.jobs[1].state, pool.jobs[1].error = "failed", "It asked for 70 GPUs at 2 days; the cluster has 64."
    app.run()
    sound(app)
    assert [error.value for error in app.error] == [f"{outcomes.titles(tiny.allocators)[1]} failed: It asked for 70 GPUs at 2 days; the cluster has 64."]
    # Alone it is compared with nothing.
    assert charts_of(app) == CHARTS - {"winners", "groups"}


def test_a_policy_that_cannot_run_is_said_and_not_started(visit: Open, tiny: Study, pool: FakePool) -> None:
    replayed = next(spec for spec in tiny.allocators if start.catalog.allocator(spec).needs >= {"recorded_start"})
    loaded = replace(tiny, base=replace(tiny.base, trace=replace(tiny.base.trace, load=0.8)))
    app = visit("compare", loaded)
    app.button(key="run_here").click().run()
    sound(app)
    assert replayed not in [job.scenario.allocator for job in pool.jobs]
    assert any("cannot run here" in warning.value for warning in app.warning)  # there is no table yet
    finish(pool, loaded, [at for at, spec in enumerate(loaded.allocators) if spec != replayed])
    for job in pool.jobs:
        job.state = "done"
    app.run()
    assert "Up to date" in texts(app)
    # Now the policy has a row with the reason, and the others have theirs.
    rows = next(block.body for block in app.get("html") if "<table" in block.body)
    title = outcomes.titles(loaded.allocators)[loaded.allocators.index(replayed)]
    assert re.search(rf"{title}</th><td[^>]*><div>Skipped: This trace holds no recorded start times", rows)
    assert not app.warning


def test_a_baseline_that_cannot_run_is_replaced_and_said(visit: Open, tiny: Study, pool: FakePool) -> None:
    study = replace(tiny, allocators=(Spec("greedy_elastic"), Spec("fifo"), Spec("srtf")), baseline=0)
    finish(pool, study, [1, 2])
    app = visit("compare", study)
    assert "Compared with FIFO, because Greedy elastic, the baseline chosen, cannot run here." in [caption.value for caption in app.caption]
    rows = next(block.body for block in app.get("html") if "<table" in block.body)
    assert re.search(r'FIFO <span class="unit">\(baseline\)', rows)
    assert "winners" in charts_of(app)


def test_stale_results_stay_with_the_list_of_changes(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    app.session_state[state._DESK].edit(replace(tiny, allocators=(*tiny.allocators, Spec.of(tiny.allocators[0].name, head="skip"))))
    app.run()
    sound(app)
    assert "Shown: previous scenario (1 change: + " in texts(app)
    assert charts_of(app) == CHARTS
    primary = [button.label for button in app.button if button.proto.type == "primary"]
    assert primary == ["Run"]


def test_a_trace_that_is_gone_is_said_and_the_rest_lives(visit: Open, tiny: Study) -> None:
    gone = replace(tiny, base=replace(tiny.base, trace=replace(tiny.base.trace, source="store:" + "0" * 32)))
    app = visit("cluster", gone)
    assert any("trace is not on this server" in error.value for error in app.error)
    assert app.metric[1].value == str(tiny.base.cluster.gpus)


def test_a_reload_takes_up_the_runs_that_were_going(visit: Open, tiny: Study, pool: FakePool) -> None:
    app = visit("compare", tiny)
    app.button(key="run_here").click().run()
    assert app.query_params["go"] == "1"
    del app.session_state[state._DESK]
    app.run()
    sound(app)
    assert len(pool.jobs) == 2 * len(tiny.allocators)
    assert "Running" in texts(app)
    app.button(key="cancel").click().run()
    assert "go" not in app.query_params


def test_running_without_the_trace_changes_nothing(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    gone = replace(tiny, base=replace(tiny.base, trace=replace(tiny.base.trace, source="store:" + "0" * 32)))
    app.session_state[state._DESK].edit(gone)
    app.run()
    assert next(button for button in app.sidebar.button if button.label == "Run").disabled
    assert ["The link's trace is not on this server" in error.value for error in app.error] == [True]
    assert app.session_state[state._DESK].shown == tiny
    assert charts_of(app) == CHARTS


def test_compare_without_a_result_has_one_primary_button(visit: Open) -> None:
    app = visit("compare")
    assert [button.label for button in app.button if button.proto.type == "primary"] == ["Run this scenario"]


def test_a_recording_that_does_not_fit_is_marked_and_said_below_the_table(visit: Open, tiny: Study, pool: FakePool) -> None:
    small = start.with_cluster(tiny, Cluster.parse("1x4:v100"))
    finish(pool, small)
    app = visit("compare", small)
    sound(app)
    # Half of the machines: no policy can be judged, but the warning stands.
    assert any("held more GPUs than this cluster has" in warning.value for warning in app.warning)
    app.button(key="way/compare_anyway").click().run()
    sound(app)
    said = texts(app)
    assert outcomes.BEYOND in said
    assert any("held more GPUs than this cluster has" in warning.value for warning in app.warning)
    order = [type(item).__name__ + str(getattr(item, "value", "")) for item in app.main]
    warning = next(at for at, text in enumerate(order) if "held more GPUs" in text)
    assert warning < next(at for at, text in enumerate(order) if "Not completed" in text or "were completed" in text)


FOLD = re.compile(r"cuts|raises|[−+]\d[\d.]* %|\d % of jobs")
"""What no page may say of a comparison that means nothing."""


def test_overload_is_said_and_its_ways_out_change_the_scenario_and_run_it(visit: Open, pool: FakePool) -> None:
    week = start.with_cluster(start.sample_study("week"), Cluster.parse("1x8:v100"))
    study = start.with_policies(week, (Spec("fifo"), Spec("srtf")))
    finish(pool, study)
    app = visit("compare", study)
    sound(app)
    assert app.subheader[0].value == "No policy can be judged here: the jobs ask for 9.4 times what the cluster can do."
    assert not FOLD.search(texts(app))
    assert charts_of(app) == {"compare/0", "timeline"}  # who waits, and no figure of what a policy does
    assert not [item for item in app.get("html") if 'class="ty-scroll"' in item.proto.body]
    ways = {button.key: button.label for button in app.button if str(button.key).startswith("way/")}
    assert ways == {
        "way/lower_load": "Lower the load to 0.85",
        "way/enough_gpus": "Find enough GPUs",
        "way/compare_anyway": "Compare all the same",
    }
    app.button(key="way/lower_load").click().run()
    sound(app)
    assert study_of(app).base.trace.load == pytest.approx(0.85 / 9.374, rel=1e-3)
    assert [job.scenario.trace.load for job in pool.jobs] == [study_of(app).base.trace.load] * 2
    assert app.button(key="undo").label == "Undo"


def test_who_insists_on_comparing_sees_what_still_means_something(visit: Open, pool: FakePool) -> None:
    week = start.with_cluster(start.sample_study("week"), Cluster.parse("1x8:v100"))
    study = start.with_policies(week, (Spec("fifo"), Spec("srtf")))
    finish(pool, study)
    app = visit("compare", study)
    app.button(key="way/compare_anyway").click().run()
    app.run()  # the line stays
    sound(app)
    assert any("Compared all the same" in warning.value for warning in app.warning)
    table = next(item.proto.body for item in app.get("html") if "ty-scroll" in item.proto.body)
    assert re.findall(r'<th scope="col"[^>]*>([^<]*)', table) == ["Policy", "Makespan", "GPUs busy"]
    assert not FOLD.search(texts(app))
    assert "winners" not in charts_of(app)
    assert "way/compare_anyway" not in {button.key for button in app.button}


def test_overload_hides_neither_what_is_assumed_nor_who_was_skipped(visit: Open, pool: FakePool) -> None:
    week = start.with_cluster(start.sample_study("week"), Cluster.parse("1x8:v100"))
    study = start.with_policies(week, (Spec("fifo"), Spec("srtf"), Spec("greedy_elastic")))
    finish(pool, study, [0, 1])
    app = visit("compare", study)
    assert ":material/rule: Assumed: A stopped or resized job takes 60 s to come back from its checkpoint." in [one.value for one in app.caption]
    assert any(one.value.startswith("Greedy elastic is skipped. Jobs run at one size only") for one in app.caption)
    app.button(key="way/compare_anyway").click().run()
    sound(app)
    table = next(item.proto.body for item in app.get("html") if "ty-scroll" in item.proto.body)
    assert re.search(r"Greedy elastic</th><td[^>]*><div>Skipped: Jobs run at one size only", table)


def test_enough_gpus_are_looked_for_on_plan(visit: Open, pool: FakePool) -> None:
    study = start.with_cluster(start.sample_study("week"), Cluster.parse("1x8:v100"))
    study = start.with_policies(study, (Spec("fifo"),))
    finish(pool, study)
    app = visit("compare", study)
    app.button(key="way/enough_gpus").click().run()
    sound(app)
    assert app.title[0].value == "Plan: how much is enough?"
    # 8 GPUs at a load of 9.37: up to 150 GPUs, half of which would be busy.
    assert [field.value for field in app.number_input if field.label in ("from", "to")] == [1, 19]
    assert study_of(app) == study
    assert not pool.jobs


def test_an_idle_cluster_has_nothing_to_schedule_until_it_is_smaller(visit: Open, pool: FakePool) -> None:
    large = start.with_cluster(start.sample_study("week"), Cluster.parse("100x8:v100"))
    study = start.with_policies(large, (Spec("fifo"), Spec("srtf")))
    finish(pool, study)
    app = visit("compare", study)
    sound(app)
    assert app.subheader[0].value == "There is nothing to schedule: jobs hardly wait under any policy."
    assert not FOLD.search(texts(app))
    app.button(key="way/fewer_nodes").click().run()
    sound(app)
    assert study_of(app).base.cluster.gpus == 96
    assert {job.scenario.cluster.gpus for job in pool.jobs} == {96}


def test_one_draw_offers_five_repeats(visit: Open, pool: FakePool) -> None:
    week = start.sample_study("week")
    study = replace(start.with_policies(week, (Spec("fifo"), Spec("srtf"))), base=replace(week.base, belief=Spec("noisy")))
    finish(pool, study)
    app = visit("compare", study)
    sound(app)
    assert app.subheader[0].value.startswith("One draw: may differ by chance. Mean JCT ")
    app.button(key="way/repeats").click().run()
    assert study_of(app).repeats == 5
    assert len(pool.jobs) == 10


def test_against_a_recording_a_reference_is_asked_for_first(visit: Open, pool: FakePool) -> None:
    study = start.with_policies(start.sample_study("week"), (Spec("recorded"), Spec("srtf")))
    finish(pool, study)
    app = visit("compare", study)
    sound(app)
    assert app.subheader[0].value.startswith("Nothing can be credited against ")
    assert not FOLD.search(texts(app))
    app.button(key="way/add_references").click().run()
    assert [spec.name for spec in study_of(app).allocators] == ["recorded", "srtf", "fifo", "easy"]


def test_jobs_that_only_one_policy_completed_are_said_beside_the_differences(visit: Open, tiny: Study, pool: FakePool) -> None:
    cut = replace(tiny, base=replace(tiny.base, stop="horizon", horizon_s=1800.0))
    finish(pool, cut)
    app = visit("compare", cut)
    sound(app)
    assert any("differences use the jobs that both completed" in caption.value for caption in app.caption)


def test_every_run_has_a_bar_of_its_own(visit: Open, tiny: Study, pool: FakePool) -> None:
    app = visit("compare", tiny)
    app.button(key="run_here").click().run()
    assert len(app.get("progress")) == len(tiny.allocators)
    pool.jobs[0].state = "cancelled"
    app.run()
    sound(app)
    assert len(app.get("progress")) == len(tiny.allocators) - 1


def test_completion_times_are_taken_apart_beside_their_numbers(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    figure = drawn(app, "parts")
    assert list(figure["layout"]["yaxis"]["ticktext"]) == list(outcomes.titles(tiny.allocators))
    assert {trace["name"] for trace in figure["data"]} >= {"waiting to start", "running at full speed"}
    assert any("**waiting to start**: from submission to the first start" in caption.value for caption in app.caption)
    opened(app, "data/parts")
    table = app.dataframe[0].value
    assert list(table["Policy"]) == list(outcomes.titles(tiny.allocators))
    assert list(table["Jobs completed"]) == [12] * len(tiny.allocators)


def test_the_allocation_follows_the_chosen_policy(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    titles = outcomes.titles(tiny.allocators)
    app.segmented_control(key="behind_view").set_value("Who holds the GPUs").run()
    box = app.selectbox(key="allocation_policy")
    assert list(box.options) == list(titles)
    before = drawn(app, "allocation")
    names = [trace["name"] for trace in before["data"]]
    assert names[-2:] == ["other jobs", "capacity"]
    assert len(names) == 10
    box.select(titles[1]).run()
    sound(app)
    assert drawn(app, "allocation") != before
    opened(app, "data/allocation")
    named = [f"Job {trace['name']}" for trace in drawn(app, "allocation")["data"][:-2]]
    assert list(app.dataframe[0].value.columns) == ["Seconds since the first submission", *named, "Other jobs"]


def opened(app: AppTest, key: str) -> None:
    app.session_state[key] = True
    app.run()
    sound(app)


def test_a_cluster_without_gpus_shows_cores_memory_and_why_jobs_failed(visit: Open, pool: FakePool) -> None:
    source = load_source(TraceSpec("made:dlrover:jobs=60"))
    assert source.cluster is not None
    base = Scenario(TraceSpec("made:dlrover:jobs=60"), source.cluster, Spec("fifo"), Spec("parameter_server"), faults=Spec.of("faults", retries=2))
    study = Study(base, (Spec("fifo"), Spec("easy")))
    finish(pool, study)
    app = visit("compare", study)
    said = texts(app)
    assert "150 nodes without GPUs" in said
    assert "out of memory" in said
    assert "CPU used of held" in said
    assert "GPUs busy" not in said
    assert charts_of(app) == CHARTS
    assert len(drawn(app, "timeline")["data"]) == 2  # who waits, under two policies
    assert list(app.segmented_control(key="behind_view").options) == ["Where time goes", "Cores and memory"]
    app.segmented_control(key="behind_view").set_value("Cores and memory").run()
    app.segmented_control(key="behind_resource").set_value("Memory").run()
    sound(app)
    assert "memory" in drawn(app, "resources")["layout"]["title"]["text"]


def test_believed_sizes_are_drawn_against_true_ones(visit: Open, tiny: Study, pool: FakePool) -> None:
    noisy = replace(tiny, base=replace(tiny.base, belief=Spec.of("noisy", sigma=1.0)))
    finish(pool, noisy)
    app = visit("compare", noisy)
    app.segmented_control(key="behind_view").set_value("Believed sizes").run()
    assert "predictions" in charts_of(app)
    assert re.search(r"SRTF: [0-9.]+ % of sizes within a factor of 2, half of them within [0-9.]+", texts(app).replace("\\", ""))


def test_the_goal_leads_the_headline_and_the_table(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    assert "Mean JCT" in app.subheader[0].value
    app.selectbox(key="goal").select("makespan_s").run()
    sound(app)
    assert "Makespan 2.7 h under SRTF, 3.2 h under FIFO." in app.subheader[0].value
    table = next(item.proto.body for item in app.get("html") if "ty-scroll" in item.proto.body)
    assert table.index("Makespan") < table.index("Mean JCT")
    assert "One run each" in texts(app)


def test_the_table_may_be_of_one_group_and_says_what_it_leaves_out(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    box = app.selectbox(key="table_group")
    chosen = next(option for option in box.options if option.startswith("Size of job: "))
    box.select(chosen).run()
    sound(app)
    table = next(item.proto.body for item in app.get("html") if "ty-scroll" in item.proto.body)
    assert "Mean JCT" in table
    assert "Makespan" not in table
    assert "belong to the whole run, so they are left out" in texts(app)


def window_of(app: AppTest) -> tuple[float, float] | None:
    window: tuple[float, float] | None = app.session_state[state._DESK].window
    return window


def test_a_window_in_the_address_is_that_of_every_figure_over_time(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    whole = drawn(app, "timeline")
    app.session_state[state._DESK].window = (1800.0, 5400.0)
    app.run()
    sound(app)
    unit = 60.0 if "minutes" in drawn(app, "timeline")["layout"]["xaxis"]["title"]["text"] else 3600.0
    assert drawn(app, "timeline")["layout"]["xaxis"]["range"] == [1800 / unit, 5400 / unit]
    assert drawn(app, "timeline")["data"] != whole["data"]
    assert (app.query_params["t0"], app.query_params["t1"]) == ("1800", "5400")
    assert len(drawn(app, "compare/0")["layout"]["shapes"]) == 2
    app.segmented_control(key="behind_view").set_value("Who holds the GPUs").run()
    assert drawn(app, "allocation")["layout"]["xaxis"]["range"] == [1800 / unit, 5400 / unit]
    assert "GPU-hours of this window" in texts(app)
    next(button for button in app.button if "✕" in button.label).click().run()
    sound(app)
    assert window_of(app) is None
    assert "t0" not in app.query_params
    assert drawn(app, "timeline")["layout"]["xaxis"]["range"] == whole["layout"]["xaxis"]["range"]


def test_a_drag_on_the_strip_chooses_the_window_once(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    app.session_state["compare/0"] = {"selection": {"points": [], "point_indices": [], "lasso": [], "box": [{"xref": "x", "yref": "y", "x": [1.5, 0.5]}]}}
    app.run()
    sound(app)
    unit = 60.0 if "minutes" in drawn(app, "compare/1")["layout"]["xaxis"]["title"]["text"] else 3600.0
    assert window_of(app) == (0.5 * unit, 1.5 * unit)
    assert any("✕" in button.label for button in app.button)
    # The strip is a new one now, so the old drag cannot come back.
    app.session_state[state._DESK].window = None
    app.run()
    assert window_of(app) is None


def test_a_window_may_be_typed_and_must_end_after_it_begins(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    field = next(field for field in app.number_input if field.label.startswith("From"))
    unit = 60.0 if "minutes" in field.label else 3600.0
    field.set_value(1.0).run()
    sound(app)
    window = window_of(app)
    assert window is not None
    assert window[0] == unit
    later = next(field for field in app.number_input if field.label.startswith("To"))
    later.set_value(0.5).run()
    assert any("ends before it begins" in error.value for error in app.error)
    assert window_of(app) == window


def test_a_window_after_the_end_shows_the_whole_run_and_says_so(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    app.session_state[state._DESK].window = (1e9, 2e9)
    app.run()
    sound(app)
    assert "lies after the end of these runs" in texts(app)


def test_the_last_row_shows_one_policys_gpus_by_state_or_all_by_type(visit: Open, pool: FakePool) -> None:
    two = replace(start.sample_study("tiny"), allocators=(Spec("fifo"), Spec("srtf")))
    two = start.with_cluster(two, Cluster.parse("1x8:v100,1x4:t4"))
    finish(pool, two)
    app = visit("compare", two)
    assert "What the GPUs do under FIFO" in json.dumps(drawn(app, "timeline")["layout"]["annotations"])
    app.selectbox(key="below").select("every policy's, by GPU type").run()
    sound(app)
    assert {"v100", "t4"} <= {trace["name"] for trace in drawn(app, "timeline")["data"]}


def test_groups_follow_what_is_asked(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    assert "GPU" in drawn(app, "groups")["layout"]["yaxis"]["ticktext"][0]
    app.segmented_control(key="group_by").set_value("user").run()
    app.segmented_control(key="group_of").set_value("wait").run()
    sound(app)
    assert "Mean wait by user" in drawn(app, "groups")["layout"]["title"]["text"]
    opened(app, "data/groups")
    assert list(app.dataframe[0].value.columns) == ["Group", "Policy", "Jobs", "Mean", "Change"]


def test_policies_appear_before_the_baseline_is_there(visit: Open, tiny: Study, pool: FakePool) -> None:
    app = visit("compare", tiny)
    app.button(key="run_here").click().run()
    last = len(tiny.allocators) - 1
    finish(pool, tiny, [last])
    pool.jobs[last].state = "done"
    app.run()
    sound(app)
    assert "is not complete, so nothing is compared yet" in app.subheader[0].value
    assert charts_of(app) == CHARTS - {"winners", "groups"}
    assert [trace["name"] for trace in drawn(app, "cdf")["data"]] == [outcomes.titles(tiny.allocators)[last]]
