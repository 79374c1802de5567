"""Properties of every run, for every registered allocator, over random traces, clusters and
conditions.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators import REGISTRY, make
from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.contract import Spec
from sim.engine.faults import Faults
from sim.engine.simulator import Simulator
from sim.overheads import Overheads
from sim.perf.estimators import Exact, Noisy
from sim.result import RunResult
from sim.trace import Trace
from tests.conformance import DRAWN
from tests.properties.invariants import check
from tests.properties.runs import busy_trace, mixed_cluster, rough_run
from tests.strategies import HORIZON_S, calm, clusters, conditions, traces

VARIANTS = (
    "fifo:backfill=first_fit,placement=spread,order=priority",
    "fifo:placement=consolidate,mix=yes",
    "sjf:backfill=first_fit,placement=fewest,types=slowest_that_fits",
    "easy:depth=2,order=priority,placement=anywhere,types=cheapest",
    "srtf:backfill=none,placement=spread",
    "las:thresholds=10/60,backfill=none",
    "partition:inner=easy(depth=3)",
    "switch:at_s=20,first=las,then=sjf(backfill=first_fit)",
    "fifo:placement=first_fit,wait_for_type=5",
    "sjf:backfill=first_fit,placement=first_fit,wait_for_type=9",
    "easy:placement=first_fit,wait_for_type=7",
    "rounds:every_s=7,inner=srtf(placement=first_fit)",
)


@cache
def drawn(count: int, *strategies: st.SearchStrategy[Any]) -> list[Any]:
    """What hypothesis draws for a test, which would be the same again for every allocator: drawn
    once. Hand a test to `given` to have a failure shrunk.
    """
    found: list[Any] = []

    @settings(max_examples=count)
    @given(st.tuples(*strategies))
    def collect(example: Any) -> None:
        found.append(example)

    collect()
    return found


TRACES, CLUSTERS, PLAIN_TRACES, PLAIN_CLUSTERS, CUTS = (
    traces(),
    clusters(),
    traces(plain=True),
    clusters(plain=True),
    st.integers(1, 60),
)
SEEDS = st.tuples(st.integers(0, 99), st.integers(0, 99))


def run(spec: str, trace: Trace, cluster: Cluster, under: Conditions) -> RunResult:
    return Simulator(trace, cluster, make(Spec.parse(spec)), under).run()


@pytest.mark.slow
@pytest.mark.parametrize("spec", [*REGISTRY, *VARIANTS])
def test_every_record_is_sound(spec: str) -> None:
    for trace, cluster, under in drawn(25, TRACES, CLUSTERS, conditions):
        check(run(spec, trace, cluster, under), trace, cluster, under)


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY)
def test_a_long_rough_record_is_sound(name: str) -> None:
    result = rough_run(name, 1)
    trace, cluster = busy_trace(150, 1), mixed_cluster()
    check(result, trace, cluster, Conditions(faults=Faults(mtbf_h=3)))
    assert (result.jobs["outcome"] == "completed").all()
    assert result.jobs["evictions"].sum() > 0


@pytest.mark.parametrize(
    "spec", [*REGISTRY, *(pytest.param(one, marks=pytest.mark.slow) for one in VARIANTS)]
)
def test_whoever_can_run_does_run(spec: str) -> None:
    # Without failures every job ends completed, impossible, or (recorded) refused; unless nodes are
    # gone for good.
    for trace, cluster, under in drawn(12, TRACES, CLUSTERS, calm):
        gone = any(not change.present for change in cluster.changes)
        result = run(spec, trace, cluster, under)
        left = (result.jobs["outcome"] == "unfinished").any()
        assert not left or gone, result.reason


@pytest.mark.parametrize("name", ["fifo", "sjf", "easy", "srtf", "recorded", "partition"])
def test_times_twice_as_long_give_twice_the_times(name: str) -> None:
    # A power of two, so that the arithmetic is the same but for the rounding to microseconds.
    once, twice = (
        run(name, busy_trace(200, 2, scale), Cluster.parse("4x8:v100"), Conditions()).jobs
        for scale in (1.0, 2.0)
    )
    for column in ("first_start_s", "finish_s", "held_s", "served_gpu_s"):
        assert np.allclose(twice[column], 2 * once[column], rtol=1e-9, atol=1e-4), column


def test_times_and_thresholds_twice_as_long_give_twice_the_times() -> None:
    runs = [
        run(
            f"las:thresholds={1000 * scale}",
            busy_trace(200, 2, scale),
            Cluster.parse("4x8:v100"),
            Conditions(),
        )
        for scale in (1.0, 2.0)
    ]
    assert np.allclose(runs[1].jobs["finish_s"], 2 * runs[0].jobs["finish_s"], rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in REGISTRY if name not in DRAWN])
def test_a_seed_changes_only_what_is_random(name: str) -> None:
    for trace, cluster, under, seeds in drawn(8, TRACES, CLUSTERS, calm, SEEDS):
        # "noisy" is the one estimator that draws.
        quiet = (
            replace(under, estimator=replace(under.estimator, sigma=0.0))
            if hasattr(under.estimator, "sigma")
            else under
        )
        first, second = (
            run(name, trace, cluster, replace(quiet, seed=seed)).digest() for seed in seeds
        )
        assert first == second


@pytest.mark.parametrize("name", ["fifo", "las"])
def test_noise_in_estimators_is_nothing_to_who_does_not_ask(name: str) -> None:
    trace, cluster = busy_trace(100, 3), Cluster.parse("2x8:v100")
    digests = {
        run(name, trace, cluster, Conditions(estimator=estimator, seed=seed)).digest()
        for estimator in (Noisy(2.0), Exact())
        for seed in (0, 1)
    }
    assert len(digests) == 1
    asks = {
        run("srtf", trace, cluster, Conditions(estimator=estimator)).digest()
        for estimator in (Noisy(2.0), Exact())
    }
    assert len(asks) == 2


def test_outages_are_the_same_for_every_allocator() -> None:
    trace, cluster = busy_trace(60, 4), Cluster.parse("3x8:v100")
    under = Conditions(faults=Faults(mtbf_h=0.5, mttr_h=0.1), seed=7)
    records = [run(name, trace, cluster, under) for name in REGISTRY]
    end = min(record.end_s for record in records)
    lists = [
        record.outages[record.outages["t0"] < end]
        .sort_values(["t0", "node"])[["node", "t0"]]
        .to_numpy()
        .tolist()
        for record in records
    ]
    assert len(lists[0]) > 5
    assert all(one == lists[0] for one in lists)


def test_outages_of_a_node_do_not_depend_on_the_other_nodes() -> None:
    under = Conditions(
        faults=Faults(mtbf_h=0.5, mttr_h=0.1), seed=7, horizon_s=20_000.0, stop="horizon"
    )
    few, many = (
        run("fifo", busy_trace(20, 4), Cluster.parse(f"{nodes}x8:v100"), under).outages
        for nodes in (1, 4)
    )
    assert few["t0"].tolist() == many.loc[many["node"] == 0, "t0"].tolist()


@given(trace=traces(), cluster=clusters(plain=True))
@settings(max_examples=20)
def test_an_unused_latency_or_failure_changes_nothing(trace: Trace, cluster: Cluster) -> None:
    plain = run("fifo", trace, cluster, Conditions()).digest()
    prepared = Conditions(
        overheads=Overheads(checkpoint_every_s=7.0),
        faults=Faults(mttr_h=9.0, retries=3),
        horizon_s=1e9,
        seed=5,
    )
    assert run("fifo", trace, cluster, prepared).digest() == plain


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY)
def test_a_horizon_cuts_and_changes_nothing_before_it(name: str) -> None:
    for trace, cluster, cut in drawn(10, PLAIN_TRACES, PLAIN_CLUSTERS, CUTS):
        whole = run(name, trace, cluster, Conditions(horizon_s=HORIZON_S)).jobs
        part = run(name, trace, cluster, Conditions(horizon_s=float(cut))).jobs
        before = (whole["finish_s"] <= cut).to_numpy()
        assert (part["outcome"][before] == "completed").all()
        assert (part["finish_s"][before] == whole["finish_s"][before]).all()
        assert np.isnan(part["finish_s"][~before]).all()
