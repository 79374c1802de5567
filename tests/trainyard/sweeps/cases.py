"""A comparison small enough to be run dozens of times."""

from __future__ import annotations

from sim.contract import Spec
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces.samples import load_sample

_, CLUSTER = load_sample("tiny")
STUDY = Study(
    Scenario(TraceSpec("sample:tiny"), CLUSTER, Spec("fifo")), (Spec("fifo"), Spec("sjf"))
)
