from __future__ import annotations

from dataclasses import replace

from lab import start
from lab.scenario import TraceSpec
from lab.study import Study
from tests.pages.conftest import Open, study_of, texts


def test_a_made_workload_from_an_address_is_named_in_words(visit: Open, tiny: Study) -> None:
    study = start.with_trace(replace(tiny, allocators=tiny.allocators[:1], baseline=0), TraceSpec("made:elastic-nodes:jobs=40,seed=2"))
    app = visit("trace", study)
    assert study_of(app).base.trace.source == "made:elastic-nodes:jobs=40,seed=2"
    shown = texts(app)
    assert "**Made: 40 elastic jobs, 10 per hour, seed 2** · 40 jobs" in shown.replace("\u2060", "").replace("\\", "")
    # Nothing was read, so there is no account of rows; it runs on its own 20 nodes.
    assert "What was read" not in shown
    assert study_of(app).base.cluster.gpus == 160
