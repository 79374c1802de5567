from __future__ import annotations

from dataclasses import replace

from tests.pages.conftest import Open, sound, study_of, texts
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study


def test_a_made_workload_from_an_address_is_named_in_words(visit: Open, tiny: Study) -> None:
    study = new_study.with_trace(
        replace(tiny, allocators=tiny.allocators[:1], baseline=0),
        TraceSpec("made:elastic-nodes:jobs=40,seed=2"),
    )
    app = visit("trace", study)
    assert study_of(app).base.trace.source == "made:elastic-nodes:jobs=40,seed=2"
    shown = texts(app)
    assert "Made: 40 elastic jobs, 10 per hour, seed 2: 40 jobs" in shown.replace(
        "\u2060", ""
    ).replace("\\", "")
    # Nothing was read, so there is no account of rows; it runs on its own 20 nodes.
    assert "What was read" not in shown
    assert study_of(app).base.cluster.gpus == 160


def test_jobs_with_servers_are_chosen_with_their_machines_and_model(visit: Open) -> None:
    app = visit("trace")
    next(item for item in app.selectbox if item.label == "Generate jobs").set_value("dlrover").run()
    sound(app)
    base = study_of(app).base
    assert base.trace.source == "made:dlrover"
    assert (base.cluster.gpus, len(base.cluster.nodes), base.perf.name) == (
        0,
        150,
        "parameter_server",
    )
    assert base.faults.values == {"retries": 3}
    shown = texts(app)
    assert "fail for good after 3 retries" in shown
    assert "load" not in app.title[0].value.rpartition(":")[2]
    next(item for item in app.number_input if item.label.startswith("Jobs")).set_value(40)
    next(item for item in app.button if item.label == "Generate").click().run()
    sound(app)
    assert study_of(app).base.trace.source == "made:dlrover:jobs=40"
    next(item for item in app.selectbox if item.label == "Generate jobs").set_value(
        "elastic-nodes"
    ).run()
    sound(app)
    assert study_of(app).base.cluster.gpus == 160
