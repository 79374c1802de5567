"""The performance model, on the Trace page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from sim.params import Spec
from tests.pages.conftest import Open, sound, study_of, texts
from trainyard.store import profiles
from trainyard.study import catalog
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces.sources import load_trace
from ui import words


def field(app: AppTest) -> Any:
    return next(box for box in app.selectbox if box.label == "Performance model")


def test_how_jobs_scale_is_chosen_with_its_settings(visit: Open, tiny: Study) -> None:
    app = visit("trace", tiny)
    field(app).set_value("amdahl").run()
    sound(app)
    assert study_of(app).base.perf == Spec("amdahl")
    name = next(
        item
        for item in app.number_input
        if item.key is not None and item.key.startswith("perf/amdahl/")
    )
    name.set_value(name.max if name.max is not None else 1.0).run()
    sound(app)
    assert study_of(app).base.perf != Spec("amdahl")
    app.switch_page("pages/policies.py").run()
    assert not [box for box in app.selectbox if box.label == "Performance model"]


@pytest.mark.parametrize("name", [choice.name for choice in catalog.perf_models()])
def test_every_model_can_be_chosen_and_says_what_it_assumes(
    visit: Open, tiny: Study, name: str
) -> None:
    app = visit("trace", tiny)
    field(app).set_value(name).run()
    sound(app)
    assert not app.error
    assert study_of(app).base.perf.name == name
    assert all(
        words.plain(sentence) in texts(app)
        for sentence in profiles.assumptions(Spec(name), load_trace(tiny.base.trace))
    )


def test_a_model_has_a_curve_of_the_jobs_of_the_scenario(visit: Open, tiny: Study) -> None:
    app = visit("trace", replace(tiny, base=replace(tiny.base, perf=Spec("power_law"))))
    found = [item for item in app.caption if "times its speed" in str(item.value)]
    assert not found  # it is the alternative text of the figure
    charts = [item.proto.alt for item in app.get("plotly_chart")]
    assert any("times the requested GPUs runs at" in text for text in charts)


def test_a_profile_that_lacks_these_jobs_has_no_curve_but_a_sentence(
    visit: Open, tiny: Study
) -> None:
    made = replace(
        tiny, base=replace(tiny.base, trace=TraceSpec("sample:week"), perf=Spec("profiled"))
    )
    app = visit("trace", made)
    sound(app)
    assert "No curve" in texts(app)
