"""The fluid ideal against what can be worked out by hand, and against rounds."""

from __future__ import annotations

import numpy as np
import pytest

from allocators import REGISTRY
from allocators.heterogeneous.gavel.policy import Gavel
from jobtraces.generate.gavel import GavelPhysical
from sim.cluster import Cluster, GpuType, NodeGroup
from sim.contract import ParameterError, Spec
from sim.engine.simulator import Conditions, Simulator
from sim.perf.profiled import Profiled
from sim.perf.rigid import Rigid
from sim.trace import Trace
from tests.allocators.queue.walk import trace_of
from trainyard.labs.replays.bounds import ideal

ONE = Cluster.parse("1x1:v100")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "gavel", Gavel)


def finishes(trace: Trace, cluster: Cluster, spec: Spec) -> list[float]:
    return [round(float(value), 3) for value in ideal(trace, cluster, Rigid(), spec)]


def test_two_jobs_on_one_gpu_are_each_half_as_fast() -> None:
    # Until 200 s both have 100 s of work done; then the second is alone.
    assert finishes(trace_of([(0, 1, 100), (0, 1, 150)]), ONE, Spec("gavel")) == [200.0, 250.0]


def test_arrivals_count_from_their_instant() -> None:
    # Alone until 60 s; 40 s left at half speed.
    assert finishes(trace_of([(0, 1, 100), (60, 1, 300)]), ONE, Spec("gavel")) == [140.0, 400.0]


def test_an_idle_time_is_skipped() -> None:
    assert finishes(trace_of([(0, 1, 10), (1000, 1, 10)]), ONE, Spec("gavel")) == [10.0, 1010.0]


def test_types_are_shared_at_every_instant() -> None:
    cluster = Cluster(
        (NodeGroup(1, 1, "fast"), NodeGroup(1, 1, "slow")),
        (GpuType("fast", 2.0), GpuType("slow", 1.0)),
    )
    assert finishes(trace_of([(0, 1, 300), (0, 1, 300)]), cluster, Spec("gavel")) == [400.0, 400.0]


def test_jobs_without_gpus_run_at_once_and_impossible_ones_never() -> None:
    trace = trace_of([(0, 1, 100), (5, 0, 50), (6, 2, 10)])
    found = ideal(trace, ONE, Rigid(), Spec("gavel"))
    assert found[:2].tolist() == [100.0, 55.0]
    assert np.isnan(found[2])


def test_owners_and_deadlines_are_seen() -> None:
    trace = trace_of([(0, 1, 300), (0, 1, 300)], user=["a", "b"], deadline_s=[1e6, 400.0])
    # a has weight 1, b weight 2: b is done when it has had two thirds of 450 s.
    assert finishes(
        trace, ONE, Spec.of("gavel", objective="water_filling", entity_weights=(1.0, 2.0))
    ) == [600.0, 450.0]
    assert finishes(trace, ONE, Spec.of("gavel", objective="cost_slo"))[1] <= 400.0


def test_who_does_not_divide_time_has_none() -> None:
    with pytest.raises(ParameterError, match="sjf does not divide time"):
        ideal(trace_of([(0, 1, 10)]), ONE, Rigid(), Spec("sjf"))


def test_rounds_come_close_on_the_physical_experiment() -> None:
    made = GavelPhysical("minimize_makespan")
    trace, cluster = made.make(), made.machines()
    fluid = ideal(trace, cluster, Profiled(), Spec.of("gavel", objective="makespan"))
    rounds = Simulator(trace, cluster, Gavel(objective="makespan"), Conditions(Profiled())).run()
    assert fluid.max() <= rounds.end_s
    assert rounds.end_s == pytest.approx(fluid.max(), rel=0.02)
