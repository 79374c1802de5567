"""A comparison small enough to be run dozens of times."""

from __future__ import annotations

from lab.scenario import Scenario, TraceSpec
from lab.study import Study
from lab.traces.samples import load_sample
from sim.contract import Spec

_, CLUSTER = load_sample("tiny")
STUDY = Study(Scenario(TraceSpec("sample:tiny"), CLUSTER, Spec("fifo")), (Spec("fifo"), Spec("sjf")))
