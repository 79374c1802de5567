"""Trace: a second trace beside the one in use, and jobs like those of a trace."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from sim.trace import Trace
from tests.pages.conftest import FakePool, Open, sound, study_of, texts
from tests.pages.test_trace import labelled
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces.sources import load_source

HOSTILE = "<img src=x onerror=alert(1)> [a](http://b) $x$ " + "n" * 200


def pressed(app: object, label: str) -> object:
    return next(one for one in app.button if one.label == label)  # type: ignore[attr-defined]


def test_one_click_and_a_number_make_jobs_like_these(visit: Open) -> None:
    app = visit("trace")
    cluster = study_of(app).base.cluster
    assert "GPUs per job" in texts(app)
    assert "does not prove anonymity" in texts(app)
    fields = [one for one in app.number_input if one.label == "Load multiplier"]
    fields[-1].set_value(2.0)
    pressed(app, "Generate").click().run()  # type: ignore[attr-defined]
    sound(app)
    study = study_of(app)
    assert study.base.trace.source.startswith("made:like:")
    assert study.base.cluster == cluster
    source = load_source(study.base.trace)
    assert len(source.trace) == 2400
    said = texts(app)
    # What the jobs were made from stands beside them.
    assert "At the load of the trace: Shares of jobs differ by at most" in said
    assert "Largest difference: the pace, 343 jobs per day in Made: like a trace" in said
    assert len(app.get("plotly_chart")) >= 8


def test_another_trace_beside_the_one_in_use(visit: Open) -> None:
    app = visit("trace")
    box = labelled(app.selectbox, "Compare with another trace")
    assert box.value is None
    box.set_value("sample:philly-like").run()
    sound(app)
    assert "Largest difference: " in texts(app)
    table = next(
        one.value for one in app.table if "The other: Philly-like, 10,000 jobs" in one.value
    )
    assert table.iloc[0].tolist() == ["Jobs", "1,200", "10,000"]
    labelled(app.selectbox, "Compare with another trace").set_value(None).run()
    sound(app)
    assert "Largest difference: " not in texts(app)


def test_names_of_uploads_are_shown_as_text(
    visit: Open, pool: FakePool, tiny: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.DataFrame(
        {
            "job_id": ["a", "b"],
            "submit_time_s": [0.0, 9.0],
            "num_gpus": [1, 2],
            "duration_s": [5.0, 6.0],
            "user": HOSTILE,
        }
    )
    digest = pool.store.put_trace(Trace.of(frame, name=HOSTILE), {})
    monkeypatch.setattr("ui.browser_identity.owner", lambda: "me")
    pool.store.index.own("me", digest)
    app = visit("trace", tiny)
    labelled(app.selectbox, "Compare with another trace").set_value(f"store:{digest}").run()
    sound(app)
    spec = TraceSpec(f"store:{digest}")
    app = visit("trace", replace(tiny, base=replace(tiny.base, trace=spec)))
    sound(app)
    assert "<img src=x" not in "".join(
        one.value for one in app.markdown if getattr(one, "allow_html", False)
    )


def test_traces_of_others_are_not_offered(visit: Open, pool: FakePool) -> None:
    frame = pd.DataFrame(
        {"job_id": ["a"], "submit_time_s": [0.0], "num_gpus": [1], "duration_s": [5.0]}
    )
    digest = pool.store.put_trace(Trace.of(frame, name="theirs"), {})
    pool.store.index.own("somebody else", digest)
    box = labelled(visit("trace").selectbox, "Compare with another trace")
    assert "theirs" not in box.options
    assert f"store:{digest}" not in box.options


def test_too_few_jobs_are_one_sentence(visit: Open, tiny: Study) -> None:
    app = visit("trace", tiny)
    pressed(app, "Generate").click().run()  # type: ignore[attr-defined]
    assert "12 jobs are too few to fit a generator" in texts(app)
    assert study_of(app).base.trace == tiny.base.trace
