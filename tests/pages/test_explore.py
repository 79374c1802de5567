from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from sim.cluster import Cluster
from sim.params import Spec
from sim.trace import Trace
from tests.pages.conftest import ROOT, FakePool, Open, finish, sound, study_of, texts, told_times
from trainyard.results import outcomes
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces.sources import load_source
from ui import server, state
from ui.exploring import instant as explore_moment


def drawn(app: AppTest, start: str) -> Any:
    """The figure whose key begins so."""
    chart = next(chart for chart in app.get("plotly_chart") if str(chart.key).startswith(start))
    return json.loads(
        str(chart.proto.figure.spec if hasattr(chart.proto, "figure") else chart.proto.spec)
    )


def asked(app: AppTest, name: str) -> str:
    """A parameter of the address."""
    text = app.query_params[name]
    return text if isinstance(text, str) else text[0]


def kinds(app: AppTest) -> list[str]:
    return [str(chart.key).partition("/")[0] for chart in app.get("plotly_chart")]


def at(app: AppTest, **view: str) -> AppTest:
    """Open the page again with more in the address."""
    for name, value in view.items():
        app.query_params[name] = value
    app.run()
    sound(app)
    return app


def opened(app: AppTest, tab: str) -> AppTest:
    """Open a tab below the table of the instant."""
    app.session_state["explore_tabs"] = tab
    return at(app)


def test_durations_of_jobs_are_numbers(seen: AppTest) -> None:
    for tab, titles in (
        ("Jobs waiting", ("Wait so far (min)", "Run time (min)")),
        ("All jobs", ("Wait (min)", "Completion time (min)", "Slowdown")),
    ):
        opened(seen, tab)
        assert not told_times(seen)
        table = next(one.value for one in seen.dataframe if titles[0] in one.value)
        assert all(pd.api.types.is_numeric_dtype(table[title]) for title in titles)


def crosshair(app: AppTest) -> Any:
    """What the script of the crosshair is given."""
    (found,) = [
        one.proto for one in app.get("bidi_component") if "instant" in one.proto.component_name
    ]
    return json.loads(found.json)


def job_map(app: AppTest) -> Any:
    """The header of what the script of the job map is given."""
    (found,) = [
        one.proto.bytes
        for one in app.get("bidi_component")
        if one.proto.component_name.endswith("trainyard_jobs")
    ]
    return json.loads(found[4 : 4 + int.from_bytes(found[:4], "little")])


def at_s(app: AppTest) -> float:
    """The instant that is fixed."""
    return float(crosshair(app)["at"])


@pytest.fixture
def seen(visit: Open, tiny: Study, pool: FakePool) -> AppTest:
    finish(pool, tiny)
    return visit("explore", tiny)


def test_empty_explore_says_what_it_will_show_and_offers_to_run(
    visit: Open, pool: FakePool
) -> None:
    app = visit("explore")
    assert "No result yet" in texts(app)
    assert "which jobs waited and why" in texts(app)
    assert [button.label for button in app.button if button.proto.type == "primary"] == [
        "Run the sample"
    ]
    app.button(key="run_here").click().run()
    sound(app)
    assert len(pool.jobs) == len(study_of(app).allocators)
    assert "Running" in texts(app)


def test_the_policy_of_the_headline_is_seen_against_the_baseline(
    seen: AppTest, tiny: Study
) -> None:
    titles = outcomes.titles(tiny.allocators)
    assert seen.selectbox(key="explore/p").value == "2"
    assert seen.selectbox(key="explore/vs").value == "0"
    assert kinds(seen) == ["machines"]
    traces = drawn(seen, "machines")["data"]
    cells = [trace for trace in traces if trace["type"] == "heatmap"]
    assert [trace["name"] for trace in cells] == [titles[2], titles[0]]
    lines = [trace for trace in traces if trace["type"] == "scatter" and "name" in trace]
    assert [trace["name"] for trace in lines] == [titles[2], titles[0]]
    assert re.fullmatch(
        rf"(Most idle while jobs wait under {titles[2]}: .*, [\d.]+ \w+ per GPU"
        rf" \(under {titles[0]}: .*\)"
        rf"|{titles[2]} leaves no GPUs idle while jobs wait.*)",
        seen.title[0].value,
    )
    assert not [button for button in seen.button if button.proto.type == "primary"]


def test_the_difference_and_one_policy_alone(seen: AppTest, tiny: Study) -> None:
    titles = outcomes.titles(tiny.allocators)
    seen.segmented_control(key="explore/pic").set_value("difference").run()
    sound(seen)
    figure = drawn(seen, "machines")
    assert [trace["name"] for trace in figure["data"] if trace["type"] == "heatmap"] == [
        f"{titles[2]} minus {titles[0]}"
    ]
    assert asked(seen, "pic") == "difference"
    assert f"Orange: more under {titles[2]}; blue: more under {titles[0]}." in texts(seen)
    seen.selectbox(key="explore/vs").select("-").run()
    sound(seen)
    assert [
        trace["name"] for trace in drawn(seen, "machines")["data"] if trace["type"] == "heatmap"
    ] == [titles[2]]
    assert not [one for one in seen.segmented_control if one.key == "explore/pic"]


def test_the_address_holds_what_is_looked_at(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    node = tiny.base.cluster.nodes[-1].name
    app = at(visit("explore", tiny), p="2", vs="1", at="600", node=node, job_id="J6", sort="load")
    opened(app, f"Jobs of {node}")
    titles = outcomes.titles(tiny.allocators)
    assert [app.selectbox(key=f"explore/{name}").value for name in ("p", "vs", "node", "sort")] == [
        "2",
        "1",
        node,
        "load",
    ]
    assert node in drawn(app, "node")["layout"]["title"]["text"]
    assert at_s(app) == 600
    assert f"{titles[2]}</th>" in texts(app)
    assert kinds(app) == ["machines", "node"]
    app.switch_page("pages/trace.py").run()
    for name in ("p", "node", "job_id"):
        if name in app.query_params:  # as the browser does on a change of page
            del app.query_params[name]
    app.switch_page("pages/explore.py").run()
    sound(app)
    assert asked(app, "job_id") == "J6"
    assert opened(app, f"Jobs of {node}").selectbox(key="explore/node").value == node


def test_what_is_looked_at_is_forgotten_with_the_scenario_that_it_belongs_to(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = at(visit("explore", tiny), p="2", node=tiny.base.cluster.nodes[-1].name, sort="load")
    other = replace(tiny, base=replace(tiny.base, trace=TraceSpec("sample:tiny", load=2.0)))
    finish(pool, other, [0, 1, 2])
    app.session_state["session"].open(other)
    app.run()
    sound(app)
    assert asked(app, "p") == "2"
    assert asked(app, "node") == tiny.base.cluster.nodes[-1].name


def test_an_address_that_was_typed_wrongly_shows_what_it_can(seen: AppTest) -> None:
    for wrong in (
        {"p": "77", "vs": "x", "at": "nan", "job_id": "1e99"},
        {"node": "<script>", "by": "row", "sort": "", "job": "-1", "at": "-5"},
    ):
        at(seen, **wrong)
        assert kinds(seen) == ["machines"]
        assert any("not in this trace" in warning.value for warning in seen.warning)


@pytest.mark.parametrize("wrong", ["nan", "-5", "99999999", "noon"])
def test_an_instant_of_the_address_that_is_not_in_the_runs_is_said(
    seen: AppTest, wrong: str
) -> None:
    usual = at_s(at(seen))
    at(seen, at=wrong)
    assert at_s(seen) == usual
    assert f"Second {wrong} of the link is outside these runs" in texts(seen).replace("\\", "")
    at(seen, at="600")
    assert at_s(seen) == 600
    assert "outside these runs" not in texts(seen)


def test_a_window_of_the_address_outside_the_runs_is_said(seen: AppTest) -> None:
    seen.session_state["session"].window = (1e9, 2e9)
    seen.run()
    sound(seen)
    assert "begins after these runs end" in texts(seen)


def test_what_a_link_asks_for_in_vain_is_said(pool: FakePool, tiny: Study) -> None:
    finish(pool, tiny)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=300)
    for name, value in {
        "s": tiny.pack(),
        "r": "garbage",
        "t0": "50",
        "t1": "20",
        "page": "explore",
        "node": "zz*z",
        "sort": "?",
    }.items():
        app.query_params[name] = value
    app.run()
    sound(app)
    assert (
        "The view in the link cannot be read. The scenario itself is shown." in app.error[0].value
    )
    assert "“?” is no option of “Sort by”" in texts(app)
    assert kinds(app) == ["machines"]


def test_a_window_in_the_address_that_is_none_is_said(
    visit: Open, pool: FakePool, tiny: Study
) -> None:
    finish(pool, tiny)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=300)
    for name, value in {"s": tiny.pack(), "t0": "50", "t1": "20"}.items():
        app.query_params[name] = value
    app.run()
    sound(app)
    assert "The link has no valid zoom window" in app.error[0].value


def test_the_shared_link_holds_what_is_looked_at_and_starts_nothing(
    seen: AppTest, tiny: Study
) -> None:
    app = at(seen, job_id="J6", at="600", seat="0123456789ab")
    app.query_params["go"] = "1"
    app.run()
    app.session_state["share"] = True
    app.run()
    link = html.unescape(
        next(item.proto.body for item in app.get("html") if "Copy link" in item.proto.body)
    )
    link = link.partition('value="')[2].partition('"')[0]
    [key] = parse_qs(link.partition("?")[2])["link"]
    told = server.store().link_parameters(key)
    assert told is not None
    assert {name: told[name] for name in ("job_id", "at", "r")} == {
        "job_id": "J6",
        "at": "600",
        "r": "1",
    }
    assert Study.unpack(told["s"]) == tiny
    assert not {"go", "seat"} & set(told)


def test_who_comes_back_to_the_page_finds_it_at_rest(seen: AppTest) -> None:
    at(seen, at="600", step="600")
    seen.button(key="play").click().run()
    assert seen.button(key="play").label == "Pause"
    seen.switch_page("pages/compare.py").run()
    seen.switch_page("pages/explore.py").run()
    assert seen.button(key="play").label == "Play"


def test_the_crosshair_knows_the_figure(seen: AppTest, tiny: Study) -> None:
    told = crosshair(seen)
    assert told["window"] == told["span"]
    assert told["rows"] == [node.name for node in tiny.base.cluster.nodes]
    assert (told["panels"], told["t"][0]) == (2, 0)
    assert (len(told["t"]), len(told["labels"])) == (400, 400)
    assert told["labels"][0].startswith("day 1, 00:00")


def test_play_steps_until_the_end_and_never_starts_by_itself(
    seen: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explore_moment, "_DUE_S", 0.0)  # every run of the page is a step
    end_s = crosshair(seen)["span"][1]
    before = at_s(seen)
    seen.run()
    assert at_s(seen) == before
    at(seen, at=f"{end_s - 700:.0f}", step="600")
    heat = drawn(seen, "machines")
    seen.button(key="play").click().run()
    assert seen.button(key="play").label == "Pause"
    for _ in range(3):
        seen.run()
        sound(seen)
    assert seen.button(key="play").label == "Play"
    assert abs(at_s(seen) - end_s) < 2
    assert drawn(seen, "machines") == heat


def test_a_job_is_opened_by_its_id_with_its_life_and_why_it_waited(
    seen: AppTest, tiny: Study, pool: FakePool
) -> None:
    trace = load_source(tiny.base.trace).trace
    waits = outcomes.gather(tiny, pool.store).entries[1][0].jobs()
    row = int((waits["first_start_s"] - waits["submit_s"]).to_numpy().argmax())
    name = str(trace.frame["job_id"].iloc[row])
    opened(seen, "All jobs")
    seen.text_input(key="explore/id").set_value("no such job").run()
    assert any("This trace has no job" in warning.value for warning in seen.warning)
    seen.text_input(key="explore/id").set_value(name).run()
    sound(seen)
    assert asked(seen, "job_id") == name
    said = texts(seen)
    assert seen.get("dialog")[0].proto.dialog.title.startswith(f"Job {name} · ")
    assert "Waited to start" in said
    assert 'class="ty-life"' in said


def test_jobs_are_filtered_and_sorted_on_the_server(seen: AppTest) -> None:
    opened(seen, "All jobs")
    table = seen.dataframe[-1].value
    assert len(table) == 12
    seen.selectbox(key="explore/first").select("submit").run()
    assert seen.dataframe[-1].value["Submitted"].iloc[0] == "day 1, 00:00"
    wanted = str(table["Job"].iloc[0])
    seen.text_input(key="explore/text").set_value(wanted).run()
    sound(seen)
    assert all(wanted in job for job in seen.dataframe[-1].value["Job"])
    seen.text_input(key="explore/text").set_value("nobody at all").run()
    sound(seen)
    assert "0 jobs that match, of 12 in all" in texts(seen)


def test_results_appear_as_soon_as_one_policy_is_complete(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    app = visit("explore", tiny)
    app.button(key="run_here").click().run()
    finish(pool, tiny, [0])
    pool.jobs[0].state = "done"
    pool.jobs[1].state, pool.jobs[1].error = (
        "failed",
        "It asked for 70 GPUs at 2 days; the cluster has 64.",
    )
    app.run()
    sound(app)
    assert app.selectbox(key="explore/vs").value == "-"
    assert "Still running" in texts(app)
    assert [error.value for error in app.error] == [
        f"{outcomes.titles(tiny.allocators)[1]} stopped: It asked for 70 GPUs at 2 days; the"
        " cluster has 64."
    ]
    assert "machines" in kinds(app)


def test_an_older_scenario_stays_and_is_marked(seen: AppTest, tiny: Study) -> None:
    seen.session_state[state._SESSION].edit(replace(tiny, allocators=tiny.allocators[:2]))
    seen.run()
    sound(seen)
    assert "Shown: previous scenario" in texts(seen)
    assert "machines" in kinds(seen)


def test_a_result_that_was_removed_is_said(seen: AppTest, tiny: Study, pool: FakePool) -> None:
    entry = outcomes.gather(tiny, pool.store).entries[1][0]
    entry.files.remove(entry.key)
    seen.query_params["p"] = "1"
    seen.run()
    sound(seen)
    assert any(
        "was removed" in error.value and "Run the scenario again" in error.value
        for error in seen.error
    )


def test_very_many_nodes_are_grouped_and_one_group_can_be_opened(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    wide = replace(
        tiny,
        base=replace(tiny.base, cluster=Cluster.parse("1100x8:a100,20x4:v100")),
        allocators=tiny.allocators[:1],
    )
    finish(pool, wide)
    app = visit("explore", wide)
    assert app.selectbox(key="explore/by").options == ["Racks", "GPU types"]
    rows = app.selectbox(key="explore/in").options
    assert rows[0] == "none"
    assert len(crosshair(app)["rows"]) == 2
    app.selectbox(key="explore/in").select_index(2).run()
    sound(app)
    cells = drawn(app, "machines")["data"][0]
    assert len(cells["y"]) == len(crosshair(app)["rows"]) == len(job_map(app)["rows"]) == 20


def test_above_64_nodes_a_script_draws_the_map_and_plotly_only_the_queue(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    wide = replace(
        tiny,
        base=replace(tiny.base, cluster=Cluster.parse("80x8:a100")),
        allocators=tiny.allocators[:2],
    )
    finish(pool, wide)
    app = visit("explore", wide)
    titles = outcomes.titles(wide.allocators)
    title = r"(.+) never uses (\d+) of 80 nodes \((.+): \d+\)\."
    found = re.fullmatch(title, app.title[0].value)
    assert found is not None
    assert {found[1], found[3]} == set(titles)
    header = job_map(app)
    assert (header["canvas"], len(header["rows"]), header["unit"]) == (True, 80, "GPU")
    assert [panel["title"] for panel in header["panels"]] == [found[1], found[3]]
    assert sorted(header["names"]) == sorted(f"J{job}" for job in range(1, 13))
    assert not [one for one in drawn(app, "machines")["data"] if one["type"] == "heatmap"]
    assert crosshair(app)["panels"] == 0
    app.session_state["session"].window = (0.0, 1200.0)
    app.run()
    assert re.search(r"does not use \d+ of 80 nodes \(.+\) in this window", app.title[0].value)
    app.segmented_control(key="explore/pic").set_value("difference").run()
    sound(app)
    (cells,) = [one for one in drawn(app, "machines")["data"] if one["type"] == "heatmap"]
    assert len(cells["y"]) == 80


def test_up_to_64_nodes_the_plotly_map_stays_and_its_jobs_are_named(seen: AppTest) -> None:
    header = job_map(seen)
    assert not header["canvas"]
    assert header["rows"] == crosshair(seen)["rows"]
    assert len(header["panels"]) == crosshair(seen)["panels"] == 2


def test_a_cluster_without_gpus_shows_cores(visit: Open, pool: FakePool) -> None:
    source = load_source(TraceSpec("made:dlrover:jobs=12"))
    assert source.cluster is not None
    base = Scenario(
        TraceSpec("made:dlrover:jobs=12"),
        source.cluster,
        Spec("fifo"),
        Spec("parameter_server"),
        faults=Spec.of("faults", retries=2),
    )
    study = Study(base, (Spec("fifo"),))
    finish(pool, study)
    app = opened(visit("explore", study), "Jobs of a node")
    assert re.fullmatch(r"FIFO never uses \d+ of 150 nodes\.", app.title[0].value)
    assert job_map(app)["unit"] == "core"
    assert "cores free" in texts(app)
    assert drawn(app, "node")["layout"]["yaxis"]["title"]["text"] == "cores of the node"
    opened(app, "All jobs")
    assert "GPUs requested" not in app.dataframe[-1].value.columns


def test_names_from_outside_are_shown_as_they_are(visit: Open, tiny: Study, pool: FakePool) -> None:
    hostile = "<script>alert(1)</script> **b** $x$"
    frame = load_source(tiny.base.trace).trace.frame.copy()
    frame["job_id"] = [f"{hostile}{at}" for at in range(len(frame))]
    frame["user"] = hostile
    digest = pool.store.put_trace(Trace.of(frame, name=hostile))
    study = replace(
        tiny,
        base=replace(tiny.base, trace=TraceSpec(f"store:{digest}")),
        allocators=tiny.allocators[:2],
    )
    finish(pool, study)
    app = opened(at(visit("explore", study), job="3"), "Jobs of a node")
    for item in app.markdown:
        assert "<script>" not in item.value
        assert "**b**" not in item.value
    assert "&lt;script&gt;" in json.dumps(drawn(app, "node"))
    assert "<script>" not in json.dumps(drawn(app, "node"))
