from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import pytest
from streamlit.testing.v1 import AppTest

from charts.occupancy import GUTTER
from sim.cluster import Cluster
from sim.params import Spec
from sim.trace import Trace
from tests.pages.conftest import ROOT, FakePool, Open, finish, sound, study_of, texts
from trainyard.results import outcomes
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces.sources import load_source
from ui import state
from ui.exploring import moment as explore_moment


def drawn(app: AppTest, start: str) -> Any:
    """The figure whose key begins so."""
    chart = next(chart for chart in app.get("plotly_chart") if str(chart.key).startswith(start))
    return json.loads(str(chart.proto.figure.spec if hasattr(chart.proto, "figure") else chart.proto.spec))


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


@pytest.fixture
def seen(visit: Open, tiny: Study, pool: FakePool) -> AppTest:
    finish(pool, tiny)
    return visit("explore", tiny)


def test_empty_explore_says_what_it_will_show_and_offers_to_run(visit: Open, pool: FakePool) -> None:
    app = visit("explore")
    assert "No result yet" in texts(app)
    assert "why it waited" in texts(app)
    assert [button.label for button in app.button if button.proto.type == "primary"] == ["Run this scenario"]
    app.button(key="run_here").click().run()
    sound(app)
    assert len(pool.jobs) == len(study_of(app).allocators)
    assert "Running" in texts(app)


def test_the_policy_of_the_headline_is_seen_against_the_baseline(seen: AppTest, tiny: Study) -> None:
    titles = outcomes.titles(tiny.allocators)
    assert seen.selectbox(key="explore/p").value == "2"
    assert seen.selectbox(key="explore/vs").value == "0"
    assert kinds(seen) == ["explore", "occupancy", "instant", "node"]
    cells = [trace for trace in drawn(seen, "occupancy")["data"] if trace["type"] == "heatmap"]
    assert [trace["name"] for trace in cells] == [titles[2], titles[0]]
    assert [trace["name"] for trace in drawn(seen, "instant")["data"]] == [titles[2], titles[0]]
    assert "A cell: GPUs held on one node, as a share of its GPUs, mean over" in texts(seen)
    assert not [button for button in seen.button if button.proto.type == "primary"]


def test_the_difference_and_one_policy_alone(seen: AppTest, tiny: Study) -> None:
    titles = outcomes.titles(tiny.allocators)
    seen.segmented_control(key="explore/pic").set_value("difference").run()
    sound(seen)
    figure = drawn(seen, "occupancy")
    assert [trace["name"] for trace in figure["data"] if trace["type"] == "heatmap"] == [f"{titles[2]} minus {titles[0]}"]
    assert f"{titles[2]} minus {titles[0]}" in figure["layout"]["title"]["text"]
    assert asked(seen, "pic") == "difference"
    assert f"Orange: more under {titles[2]}; blue: more under {titles[0]}." in texts(seen)
    seen.selectbox(key="explore/vs").select("-").run()
    sound(seen)
    assert [trace["name"] for trace in drawn(seen, "occupancy")["data"] if trace["type"] == "heatmap"] == [titles[2]]
    assert not [one for one in seen.segmented_control if one.key == "explore/pic"]


def test_the_address_holds_what_is_looked_at(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    node = tiny.base.cluster.nodes[-1].name
    app = at(visit("explore", tiny), p="2", vs="1", at="600", node=node, job="5", sort="load")
    titles = outcomes.titles(tiny.allocators)
    assert [app.selectbox(key=f"explore/{name}").value for name in ("p", "vs", "node", "sort")] == ["2", "1", node, "load"]
    assert node in drawn(app, "node")["layout"]["title"]["text"]
    assert "day 1 00:10" in texts(app)
    assert f"**{titles[2]}**: submitted" in texts(app)
    assert kinds(app) == ["explore", "occupancy", "instant", "life", "node"]
    app.switch_page("pages/trace.py").run()
    for name in ("p", "node", "job"):
        if name in app.query_params:  # as the browser does on a change of page
            del app.query_params[name]
    app.switch_page("pages/explore.py").run()
    sound(app)
    assert asked(app, "job") == "5"
    assert app.selectbox(key="explore/node").value == node


def test_what_is_looked_at_is_forgotten_with_the_scenario_that_it_belongs_to(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = at(visit("explore", tiny), p="2", job="5", node=tiny.base.cluster.nodes[-1].name, sort="load")
    other = replace(tiny, base=replace(tiny.base, trace=TraceSpec("sample:tiny", load=2.0)))
    finish(pool, other, [0, 1, 2])
    app.session_state["desk"].open(other)
    app.run()
    sound(app)
    assert not any("not in this trace" in warning.value for warning in app.warning)
    assert "job" not in app.query_params
    assert asked(app, "p") == "2"
    assert asked(app, "node") == tiny.base.cluster.nodes[-1].name
    assert "Choose a job in the table" in texts(app)


def test_an_address_that_was_typed_wrongly_shows_what_it_can(seen: AppTest) -> None:
    for wrong in ({"p": "77", "vs": "x", "at": "nan", "job": "1e99"}, {"node": "<script>", "by": "row", "sort": "", "job": "-1", "at": "-5"}):
        at(seen, **wrong)
        assert kinds(seen) == ["explore", "occupancy", "instant", "node"]
        assert any("not in this trace" in warning.value for warning in seen.warning)


def test_what_a_link_asks_for_in_vain_is_said(pool: FakePool, tiny: Study) -> None:
    finish(pool, tiny)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    for name, value in {"s": tiny.pack(), "r": "garbage", "t0": "50", "t1": "20", "page": "explore", "node": "zz*z", "sort": "?"}.items():
        app.query_params[name] = value
    app.run()
    sound(app)
    assert "What the address wants to be shown cannot be read, so the scenario itself is shown." in app.error[0].value
    told = texts(app)
    assert "There is no “zz\\*z” to choose as “Node”" in told
    assert "There is no “?” to choose as “Sort by”" in told
    assert "node" not in app.query_params
    assert kinds(app) == ["explore", "occupancy", "instant", "node"]


def test_a_window_in_the_address_that_is_none_is_said(visit: Open, pool: FakePool, tiny: Study) -> None:
    finish(pool, tiny)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    for name, value in {"s": tiny.pack(), "t0": "50", "t1": "20"}.items():
        app.query_params[name] = value
    app.run()
    sound(app)
    assert "The window of time in the address is none" in app.error[0].value


def test_the_shared_link_holds_what_is_looked_at_and_starts_nothing(seen: AppTest, tiny: Study) -> None:
    app = at(seen, job="5", at="600", seat="0123456789ab")
    app.query_params["go"] = "1"
    app.run()
    link = next(code.value for code in app.code if "s=" in code.value)
    told = parse_qs(link.partition("?")[2])
    assert {name: told[name] for name in ("job", "at", "r")} == {"job": ["5"], "at": ["600"], "r": ["1"]}
    assert Study.unpack(told["s"][0]) == tiny
    assert not {"go", "seat"} & set(told)


def test_who_comes_back_to_the_page_finds_it_at_rest(seen: AppTest) -> None:
    at(seen, at="600", step="600")
    seen.button(key="play").click().run()
    assert seen.button(key="play").label == "Pause"
    seen.switch_page("pages/compare.py").run()
    seen.switch_page("pages/explore.py").run()
    assert seen.button(key="play").label == "Play"


def test_steps_move_the_instant_and_stay_within_the_window(seen: AppTest) -> None:
    at(seen, at="600", step="600")
    seen.button(key="later").click().run()
    assert asked(seen, "at") == "1200"
    seen.button(key="earlier").click().run()
    seen.button(key="earlier").click().run()
    assert asked(seen, "at") == "0"
    assert seen.button(key="earlier").disabled
    line = drawn(seen, "instant")["layout"]["shapes"][0]
    assert line["x0"] == 0
    seen.slider(key="explore/instant").set_value(0.5).run()
    sound(seen)
    assert asked(seen, "at") == "1800"  # the slider counts hours


def test_play_steps_until_the_end_and_never_starts_by_itself(seen: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore_moment, "_DUE_S", 0.01)
    end_s = drawn(seen, "instant")["layout"]["xaxis"]["range"][1] / (1 + GUTTER) * 3600
    before = drawn(seen, "instant")["layout"]["shapes"]
    seen.run()
    assert drawn(seen, "instant")["layout"]["shapes"] == before
    at(seen, at=f"{end_s - 700:.0f}", step="600")
    heat = drawn(seen, "occupancy")
    seen.button(key="play").click().run()
    assert seen.button(key="play").label == "Pause"
    for _ in range(3):
        time.sleep(0.02)
        seen.run()
        sound(seen)
    assert seen.button(key="play").label == "Play"
    assert abs(float(asked(seen, "at")) - end_s) < 2
    assert drawn(seen, "occupancy") == heat


def test_a_job_is_opened_by_its_id_with_its_life_and_why_it_waited(seen: AppTest, tiny: Study, pool: FakePool) -> None:
    trace = load_source(tiny.base.trace).trace
    waits = outcomes.gather(tiny, pool.store).entries[1][0].jobs()
    row = int((waits["first_start_s"] - waits["submit_s"]).to_numpy().argmax())
    name = str(trace.frame["job_id"].iloc[row])
    seen.text_input(key="explore/id").set_value("no such job").run()
    assert any("No job of this trace is called" in warning.value for warning in seen.warning)
    seen.text_input(key="explore/id").set_value(name).run()
    sound(seen)
    assert asked(seen, "job") == str(row)
    said = texts(seen)
    assert "Why it waited" in said
    assert "- **day " in said
    assert "This policy gives no reason of its own." in said
    assert {trace["name"] for trace in drawn(seen, "life")["data"]} == {"waiting", "running", "paused"}
    assert any(f"Open: job {name}" in item.value for item in seen.markdown)


def test_jobs_are_filtered_and_sorted_on_the_server(seen: AppTest) -> None:
    table = seen.dataframe[-1].value
    assert len(table) == 12
    seen.selectbox(key="explore/first").select("submit").run()
    assert seen.dataframe[-1].value["Submitted"].iloc[0] == "day 1 00:00"
    wanted = str(table["Job"].iloc[0])
    seen.text_input(key="explore/text").set_value(wanted).run()
    sound(seen)
    assert all(wanted in job for job in seen.dataframe[-1].value["Job"])
    seen.text_input(key="explore/text").set_value("nobody at all").run()
    sound(seen)
    assert "0 jobs that match, of 12 in all" in texts(seen)


def test_results_appear_as_soon_as_one_policy_is_complete(visit: Open, tiny: Study, pool: FakePool) -> None:
    app = visit("explore", tiny)
    app.button(key="run_here").click().run()
    finish(pool, tiny, [0])
    pool.jobs[0].state = "done"
    pool.jobs[1].state, pool.jobs[1].error = "failed", "It asked for 70 GPUs at 2 days; the cluster has 64."
    app.run()
    sound(app)
    assert app.selectbox(key="explore/vs").value == "-"
    assert "Still running" in texts(app)
    assert [error.value for error in app.error] == [f"{outcomes.titles(tiny.allocators)[1]} failed: It asked for 70 GPUs at 2 days; the cluster has 64."]
    assert "occupancy" in kinds(app)


def test_an_older_scenario_stays_and_is_marked(seen: AppTest, tiny: Study) -> None:
    seen.session_state[state._DESK].edit(replace(tiny, allocators=tiny.allocators[:2]))
    seen.run()
    sound(seen)
    assert "Shown: previous scenario" in texts(seen)
    assert "occupancy" in kinds(seen)


def test_a_result_that_was_removed_is_said(seen: AppTest, tiny: Study, pool: FakePool) -> None:
    entry = outcomes.gather(tiny, pool.store).entries[1][0]
    entry.files.remove(entry.key)
    seen.query_params["p"] = "1"
    seen.run()
    sound(seen)
    assert any("was removed" in error.value and "Run the scenario again" in error.value for error in seen.error)


def test_many_nodes_are_grouped_and_one_group_can_be_opened(visit: Open, tiny: Study, pool: FakePool) -> None:
    wide = replace(tiny, base=replace(tiny.base, cluster=Cluster.parse("120x8:a100,20x4:v100")), allocators=tiny.allocators[:1])
    finish(pool, wide)
    app = visit("explore", wide)
    assert app.selectbox(key="explore/by").options == ["Racks", "GPU types"]
    rows = app.selectbox(key="explore/in").options
    assert rows[0] == "none"
    assert "all nodes of a rack" in texts(app)
    app.selectbox(key="explore/in").select_index(2).run()
    sound(app)
    cells = drawn(app, "occupancy")["data"][0]
    assert len(cells["y"]) == 20
    assert "held on one node" in texts(app)


def test_a_cluster_without_gpus_shows_cores(visit: Open, pool: FakePool) -> None:
    source = load_source(TraceSpec("made:dlrover:jobs=12"))
    assert source.cluster is not None
    base = Scenario(TraceSpec("made:dlrover:jobs=12"), source.cluster, Spec("fifo"), Spec("parameter_server"), faults=Spec.of("faults", retries=2))
    study = Study(base, (Spec("fifo"),))
    finish(pool, study)
    app = at(visit("explore", study), job="3")
    assert drawn(app, "occupancy")["layout"]["title"]["text"] == "Which cores are in use, and when?"
    assert drawn(app, "node")["layout"]["yaxis"]["title"]["text"] == "cores of the node"
    app.session_state["explore/choose"] = True
    app.run()
    sound(app)
    assert "GPUs asked for" not in app.dataframe[-1].value.columns


def test_names_from_outside_are_shown_as_they_are(visit: Open, tiny: Study, pool: FakePool) -> None:
    hostile = "<script>alert(1)</script> **b** $x$"
    frame = load_source(tiny.base.trace).trace.frame.copy()
    frame["job_id"] = [f"{hostile}{at}" for at in range(len(frame))]
    frame["user"] = hostile
    digest = pool.store.put_trace(Trace.of(frame, name=hostile))
    study = replace(tiny, base=replace(tiny.base, trace=TraceSpec(f"store:{digest}")), allocators=tiny.allocators[:2])
    finish(pool, study)
    app = at(visit("explore", study), job="3")
    for item in app.markdown:
        assert "<script>" not in item.value
        assert "**b**" not in item.value
    assert "&lt;script&gt;" in json.dumps(drawn(app, "node"))
    assert "<script>" not in json.dumps(drawn(app, "node"))
