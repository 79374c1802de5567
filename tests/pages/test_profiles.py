"""Measured profiles of the performance model, and GPU types on the Compare page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from sim.cluster import Cluster
from sim.params import Spec
from sim.perf.measured import built_in
from tests.pages.conftest import ROOT, FakePool, Open, finish, sound, study_of, texts
from trainyard.preflight import coverage
from trainyard.results import outcomes
from trainyard.store import profiles
from trainyard.study.document import pack_document
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces.sources import load_trace
from ui import words

MINE = (
    built_in("simulation")
    .to_frame()
    .query("gpu_type != 'p100' and model != 'CycleGAN'")
    .to_csv(index=False)
    .encode()
)
KINDS = "1x8:v100,1x8:k80"
CHOOSE = "Choose one of simulation, physical, or a profile that was uploaded."
VIEWS = ("Shares of GPU types", "Use", "Finish-time fairness", "Recorded numbers")


@pytest.fixture
def measured(tiny: Study) -> Study:
    base = replace(
        tiny.base,
        trace=TraceSpec("made:gavel:jobs=12,per_h=6"),
        cluster=Cluster.parse(KINDS),
        perf=Spec("profiled"),
    )
    return replace(tiny, base=base, allocators=(Spec("fifo"), Spec("sjf")), baseline=0)


@pytest.fixture
def lacking(measured: Study, pool: FakePool) -> Study:
    kept = profiles.store_profile(MINE, "mine.csv", pool.store)
    base = replace(
        measured.base, perf=profiles.with_table(measured.base.perf, kept, measured.base.cluster)
    )
    fit = coverage.profile_coverage(base.perf, load_trace(base.trace), base.cluster, pool.store)
    assert fit is not None
    assert 0 < fit.unmeasured.sum() < 12
    return replace(measured, base=base)


def upload(app: AppTest, data: bytes, name: str = "mine.csv") -> None:
    app.file_uploader(key="profile_file").set_value((name, data, "text/csv")).run()


def select(app: AppTest, label: str) -> Any:
    return next(box for box in app.selectbox if box.label == label)


def test_what_is_measured_of_every_job_says_so(visit: Open, measured: Study) -> None:
    app = visit("trace", measured)
    assert "All 12 jobs were measured on every GPU type here" in texts(app)
    assert not [button for button in app.button if str(button.key).startswith("without_unmeasured")]


def test_a_profile_is_uploaded_and_becomes_part_of_the_scenario(
    visit: Open, measured: Study, pool: FakePool
) -> None:
    app = visit("trace", measured)
    upload(app, MINE)
    sound(app)
    made = study_of(app).base.perf
    assert made == Spec.of("profiled", table=profiles.store_profile(MINE, "x", pool.store).source)
    assert select(app, "Measurements").value == made.values["table"]
    assert any(
        option.startswith("mine.csv (6 models on ")
        for option in select(app, "Measurements").options
    )
    assert "No measurement exists for" in texts(app)
    select(app, "Measurements").set_value("physical").run()
    sound(app)
    assert study_of(app).base.perf == Spec.of("profiled", table="physical")


def test_a_file_that_is_no_profile_is_one_sentence_and_changes_nothing(
    visit: Open, measured: Study
) -> None:
    app = visit("trace", measured)
    upload(app, b"a,b\n1,2\n", "<wrong>.csv")
    assert len(app.error) == 1
    assert words.plain("<wrong>.csv: column gpu_type is missing.") in app.error[0].value
    assert study_of(app) == measured


def test_jobs_that_were_not_measured_are_counted_with_three_ways_out(
    visit: Open, lacking: Study, pool: FakePool
) -> None:
    trace = load_trace(lacking.base.trace)
    fit = coverage.profile_coverage(lacking.base.perf, trace, lacking.base.cluster, pool.store)
    assert fit is not None
    app = visit("trace", lacking)
    for sentence in fit.sentences:
        assert words.plain(sentence) in texts(app)
    assert app.dataframe[0].value["jobs"].tolist() == fit.missing["jobs"].tolist()
    stand_in = select(app, "Replace missing measurements by")
    assert len(stand_in.options) == 2 + 6
    stand_in.set_value("LM").run()
    sound(app)
    assert study_of(app).base.perf.values["stand_in"] == "LM"
    assert "before the run." not in texts(app)
    assert "assumed: that of 'LM'" in texts(app)


def test_jobs_that_were_not_measured_are_left_out_with_a_click(
    visit: Open, lacking: Study, pool: FakePool
) -> None:
    app = visit("trace", lacking)
    app.button(key="without_unmeasured/page").click().run()
    sound(app)
    left = study_of(app)
    assert left.base.perf == lacking.base.perf
    assert left.base.cluster == lacking.base.cluster
    jobs = load_trace(left.base.trace, pool.store)
    assert 0 < len(jobs) < 12
    assert "cyclegan" not in {str(name).lower() for name in jobs.frame["model"]}
    assert "before the run." not in texts(app)
    app.switch_page("pages/trace.py").run()
    sound(app)
    assert "no throughput was measured of such a job" in texts(app)


@pytest.mark.parametrize("page", ["compare", "cluster"])
@pytest.mark.parametrize("way", ["without_unmeasured", "model"])
def test_run_waits_until_every_job_was_measured(
    visit: Open, lacking: Study, pool: FakePool, page: str, way: str
) -> None:
    app = visit(page, lacking)
    assert app.button(key="run").disabled
    assert not [button for button in app.button if button.key == "run_here" and not button.disabled]
    assert "profiled: " not in texts(app)
    assert "Substitute their throughput or leave these jobs out before the run." in texts(app)
    if way == "model":
        select(app, "Stand-in model").set_value("LM").run()
        assert study_of(app).base.perf.values["stand_in"] == "LM"
    else:
        app.button(key="without_unmeasured/bar").click().run()
        assert 0 < len(load_trace(study_of(app).base.trace, pool.store)) < 12
    sound(app)
    assert "before the run." not in texts(app)
    app.button(key="run").click().run()
    sound(app)
    assert len(pool.jobs) == 2


def test_relative_speeds_are_offered_where_they_help(visit: Open, measured: Study) -> None:
    app = visit(
        "trace",
        replace(measured, base=replace(measured.base, cluster=Cluster.parse("1x8:v100,1x8:t4"))),
    )
    assert "Stand-in model" not in [box.label for box in app.selectbox]
    app.button(key="relative/page").click().run()
    sound(app)
    assert study_of(app).base.perf.values["stand_in"] == "relative"
    assert not app.button(key="run").disabled


def test_nobody_can_be_left_out_if_nobody_was_measured(
    visit: Open, measured: Study, pool: FakePool
) -> None:
    base = replace(measured.base, cluster=Cluster.parse("1x8:v100,1x8:t4"))
    app = visit("trace", replace(measured, base=base))
    assert not [button for button in app.button if str(button.key).startswith("without_unmeasured")]
    assert app.button(key="run").disabled
    assert "The profile has no measurement on t4" in texts(app)


def test_a_profile_that_is_gone_is_one_sentence(visit: Open, measured: Study) -> None:
    gone = replace(
        measured, base=replace(measured.base, perf=Spec.of("profiled", table="store:" + "0" * 32))
    )
    app = visit("trace", gone)
    assert [error.value for error in app.error if "is no longer on this machine" in error.value]
    assert len(app.error) == 1
    assert re.search(r": \d+ jobs, ", app.title[0].value)
    select(app, "Measurements").set_value("simulation").run()
    sound(app)
    assert not app.error
    assert study_of(app).base.perf == Spec("profiled")


def test_running_without_the_profile_is_one_sentence(
    visit: Open, measured: Study, pool: FakePool
) -> None:
    gone = replace(
        measured, base=replace(measured.base, perf=Spec.of("profiled", table="store:" + "0" * 32))
    )
    app = visit("trace", gone)
    app.button(key="run").click().run()
    assert not app.exception
    assert pool.jobs == []
    assert any("is no longer on this machine" in error.value for error in app.error)


def test_an_address_cannot_name_a_file_of_the_server(
    pool: FakePool, measured: Study, tmp_path: Path
) -> None:
    document = measured.to_json()
    document["base"]["perf"] = {"name": "profiled", "params": {"table": str(tmp_path / "mine.csv")}}
    (tmp_path / "mine.csv").write_bytes(MINE)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=300)
    app.query_params["s"] = pack_document(document)
    app.run()
    sound(app)
    assert [error.value for error in app.error] == [
        words.plain(f"profiled: there is no table '{tmp_path / 'mine.csv'}'. {CHOOSE}")
    ]
    assert study_of(app).base.perf == Spec("rigid")


def test_jobs_that_fit_on_no_type_are_counted_on_the_cluster_page(
    visit: Open, measured: Study, pool: FakePool
) -> None:
    kept = profiles.store_profile(
        b"gpu_type,model,scale_factor,placement,iterations_per_second\nv100,Net,1,single,0\nk80,Net,1,single,0\n",
        "zero.csv",
        pool.store,
    )
    perf = profiles.with_table(Spec.of("profiled", stand_in="Net"), kept, measured.base.cluster)
    steps = replace(measured, base=replace(measured.base, perf=perf))
    app = visit("cluster", steps)
    assert "12 jobs can never start" in texts(app)


def test_prices_are_loaded_from_a_list(visit: Open, measured: Study) -> None:
    app = visit("cluster", measured)
    spot = app.button(key="prices/spot (preemptible)")
    assert "Gavel" in spot.help
    spot.click().run()
    sound(app)
    assert {kind.name: kind.price_per_gpu_hour for kind in study_of(app).base.cluster.types} == {
        "v100": 0.74,
        "k80": 0.135,
    }


def test_prices_are_offered_only_for_types_they_name(visit: Open, measured: Study) -> None:
    app = visit(
        "cluster", replace(measured, base=replace(measured.base, cluster=Cluster.parse("2x8:h100")))
    )
    assert not [button for button in app.button if str(button.key).startswith("prices/")]


def shown(app: AppTest) -> dict[str, Any]:
    return {
        str(chart.key): json.loads(
            chart.proto.figure.spec if hasattr(chart.proto, "figure") else chart.proto.spec
        )
        for chart in app.get("plotly_chart")
    }


def opened(app: AppTest, tab: str) -> None:
    app.query_params["tab"] = tab
    app.run()
    sound(app)


@pytest.fixture
def calm(measured: Study) -> Study:
    """As many jobs as the cluster can do: else no policy can be judged, and there are no tabs."""
    base = replace(measured.base, trace=replace(measured.base.trace, load=0.05))
    return replace(measured, base=base)


def test_compare_shows_one_figure_of_gpu_types_at_a_time(
    visit: Open, calm: Study, pool: FakePool
) -> None:
    finish(pool, calm)
    app = visit("compare", calm)
    opened(app, "types")
    views = next(control for control in app.segmented_control if control.key == "type_view")
    # Neither of the two policies notes anything.
    assert tuple(str(option) for option in views.options) == VIEWS[:3]
    found = {}
    for view in VIEWS[:3]:
        app.segmented_control(key="type_view").set_value(view).run()
        sound(app)
        found[view] = sorted(key for key in shown(app) if key.startswith("type-"))
    assert found == {
        "Shares of GPU types": ["type-shares"],
        "Use": ["type-use"],
        "Finish-time fairness": ["type-fairness"],
    }


def test_fairness_may_be_against_one_of_the_policies(
    visit: Open, calm: Study, pool: FakePool
) -> None:
    finish(pool, calm)
    app = visit("compare", calm)
    opened(app, "types")
    app.segmented_control(key="type_view").set_value("Finish-time fairness").run()
    first, second = outcomes.titles(calm.allocators)
    assert [trace["name"] for trace in shown(app)["type-fairness"]["data"]] == [first, second]
    app.selectbox(key="type_reference").set_value(first).run()
    sound(app)
    figure = shown(app)["type-fairness"]
    assert [trace["name"] for trace in figure["data"]] == [second]
    assert figure["layout"]["xaxis"]["title"]["text"] == f"JCT / JCT under {first}"
    assert figure["layout"]["title"]["text"] == (
        f"Does every job finish as soon as it would under {first}?"
    )


def test_what_each_policy_costs_is_told_beside_the_figure(
    visit: Open, calm: Study, pool: FakePool
) -> None:
    finish(pool, calm)
    app = visit("compare", calm)
    opened(app, "cost")
    assert "type-cost" in shown(app)
    said = next(
        caption.value for caption in app.caption if "Set prices on Cluster" in caption.value
    )
    assert all(title in said for title in outcomes.titles(calm.allocators))
    assert said.count("\\$") == 4


def test_clusters_of_one_type_show_nothing_of_types(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny, [0])
    app = visit("compare", tiny)
    assert "GPU types" not in [tab.label for tab in app.tabs]
    assert "Accuracy" in [tab.label for tab in app.tabs]
