"""Cores and memory held and used, restarts and why jobs failed, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from allocators import make
from sim import metrics
from sim.cluster import Change, Cluster, NodeGroup
from sim.contract import Spec
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.metrics.jobs import count_failures
from sim.perf.parameter_server import ParameterServer
from sim.result import RunResult
from tests.sim.metrics.metrics_cases import (
    FIVE,
    Held,
    Job,
    cluster_of,
    failures_of,
    five,
    run_of,
    trace_of,
    usage_of,
)
from trainyard.study.scenario import TraceSpec
from trainyard.traces.sources import load_source

# Two nodes of 8 cores and 20 GB without GPUs; node 1 is there from 50 on.
NODES = Cluster(
    (NodeGroup(2, 0, cpus=8, mem_gb=20),),
    (),
    (Change(0.0, (1,), present=False), Change(50.0, (1,), present=True)),
)
JOBS = (
    Job(0, 0, 0, 100, relaunches=2, work=10.0, ideal=50.0, lost_work=2.0),
    Job(20, 0, 20, outcome="failed", evictions=2, work=10.0, ideal=5.0, lost_work=10.0),
    Job(100, 0, 100, outcome="failed", evictions=1),
    Job(100, 0, outcome="failed"),
)
HELD = (Held(0, 0, 100, 0), Held(1, 20, 40, 0, ended="evicted"), Held(2, 100, 200, 0, node=1))
FAILURES = failures_of(
    [
        (10.0, 0, 0.0, 1, "interruption", "worker"),
        (30.0, 1, 5.0, 0, "interruption", "worker"),
        (40.0, 1, 5.0, 0, "oom", "server"),
        (200.0, 2, 1.0, 0, "outage", "worker"),
    ]
)


def run() -> RunResult:
    #                        segment gang role node count gpus cpus mem
    rows = [
        (0, 0, 0, 0, 2, 0, 2.0, 3.0),
        (0, 0, 1, 0, 1, 0, 1.0, 4.0),
        (1, 0, 0, 0, 1, 0, 3.0, 0.0),
        (2, 0, 0, 1, 1, 0, 8.0, 10.0),
    ]
    placements = pd.DataFrame(
        rows, columns=["segment", "gang", "role", "node", "count", "gpus", "cpus", "mem_gb"]
    )
    # Job 0: workers use 1 of 4 cores and 3 of 6 GB, the server half of its core and nobody knows
    # what of its memory. Of job 2 nothing is known.
    usage = usage_of([(0, 0, 1.0, 3.0), (0, 1, 0.5, np.nan), (1, 0, 1.5, 2.0)])
    return replace(run_of(JOBS, HELD, 200.0, usage=usage, failures=FAILURES), placements=placements)


def test_hours_held_and_used() -> None:
    hours = {name: value * 3600 for name, value in metrics.resource_hours(run(), NODES).items()}
    # Cores: job 0 holds 5 for 100 s, job 1 3 for 20 s, job 2 8 for 100 s. GB: 10 for 100 s, none
    # stated, 10 for 100 s; known of the workers of job 0 only.
    assert hours == pytest.approx(
        {
            "held_cpus_h": 500 + 60 + 800,
            "known_cpus_h": 560,
            "used_cpus_h": 150 + 30,
            "held_mem_gb_h": 1000 + 1000,
            "known_mem_gb_h": 600,
            "used_mem_gb_h": 300,
        }
    )


def test_the_share_of_what_is_there() -> None:
    # 0 to 100: cores 560 of 8 x 100 + 8 x 50.
    assert metrics.resource_share(run(), NODES, 0.0, 100.0) == pytest.approx(
        {"cpus": 560 / 1200, "mem_gb": 1000 / 3000}
    )
    nothing = metrics.resource_share(
        five(), cluster_of(), 0.0, 100.0
    )  # nodes whose cores and memory are not stated
    assert np.isnan(list(nothing.values())).all()


def test_cores_and_memory_over_time() -> None:
    series = metrics.resource_series(run(), NODES)
    assert list(series) == [
        "t_s",
        "held_cpus",
        "used_cpus",
        "there_cpus",
        "held_mem_gb",
        "used_mem_gb",
        "there_mem_gb",
    ]
    assert [tuple(row) for row in series.to_numpy()] == [
        (0, 5, 1.5, 8, 10, 3, 20),
        (20, 8, 3, 8, 10, 5, 20),
        (40, 5, 1.5, 8, 10, 3, 20),
        (50, 5, 1.5, 16, 10, 3, 40),
        (100, 8, 0, 16, 10, 0, 40),
        (200, 0, 0, 16, 0, 0, 40),
    ]
    assert metrics.resource_series(five(), cluster_of()).empty
    assert "there_cpus" not in metrics.resource_series(run(), Cluster.parse("2x8:v100"))


def test_the_summary_of_restarts_losses_and_failures() -> None:
    result = run()
    found = metrics.summary(result, trace_of(JOBS), NODES)
    assert found["completion_rate"] == 0.25
    assert found["failed_by"] == {"oom server": 1, "outage worker": 1}
    assert (found["evictions"], found["relaunches"], found["restarts"]) == (3, 2, 5)
    # 2 of 10 at 50 s, and all of 10 at 5 s.
    assert found["lost_work_s"] == pytest.approx(10 + 5)
    assert (found["cpus_used"], found["mem_used"]) == pytest.approx((180 / 560, 0.5))
    assert found["cpus_held"] == pytest.approx(560 / 1200)
    assert np.isnan(
        [found["utilisation"], found["utilisation_productive"], found["utilisation_to_end"]]
    ).all()
    assert count_failures(result, np.array([True, True, False, False])) == {"oom server": 1}


def test_without_use_and_failures_nothing_is_said() -> None:
    found = metrics.summary(five(), trace_of(FIVE), cluster_of())
    assert found["failed_by"] == {}
    assert np.isnan(
        [found[name] for name in ("cpus_held", "cpus_used", "mem_held", "mem_used")]
    ).all()


def test_a_run_on_a_cluster_without_gpus() -> None:
    """Of the simulator: what is used never exceeds what is held, and the share of GPUs is none."""
    source = load_source(TraceSpec.of("made:dlrover:jobs=40"))
    assert source.cluster is not None
    conditions = Conditions(
        perf=ParameterServer(), faults=Faults(retries=3, interruptions_per_node_h=0.02)
    )
    result = Simulator(source.trace, source.cluster, make(Spec("fifo")), conditions).run()
    found = metrics.summary(result, source.trace, source.cluster)
    assert np.isnan(found["utilisation"])
    assert 0 < found["cpus_used"] < 1
    assert 0 < found["mem_used"] < 1
    assert 0 < found["cpus_held"] < 1
    series = metrics.resource_series(result, source.cluster)
    for name in ("cpus", "mem_gb"):
        assert (series[f"used_{name}"] <= series[f"held_{name}"] + 1e-6).all()
        assert (series[f"held_{name}"] <= series[f"there_{name}"] + 1e-6).all()
        held = (
            metrics.integral(
                series["t_s"].to_numpy(), series[f"held_{name}"].to_numpy(), 0.0, result.end_s
            )
            / 3600
        )
        assert held == pytest.approx(found[f"held_{name}_h"])
