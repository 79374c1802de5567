"""Failing nodes on the fast engine: numbers worked out by hand, and the record of the kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocators import make
from sim.cluster import Change, Cluster, GpuType, NodeGroup
from sim.conditions import Conditions
from sim.contract import Spec
from sim.engine.fast import runner
from sim.engine.faults import Faults
from sim.engine.simulator import Simulator
from sim.overheads import Overheads
from sim.perf.estimators import Noisy
from sim.result import RunResult
from sim.trace import Trace
from tests.properties.runs import busy_trace
from tests.properties.test_engines import both, check
from tests.sim.scripted import jobs

ONE = Cluster.parse("1x1:v100")
TYPES = (GpuType("old", 0.5, 1.0), GpuType("new", 2.0, 3.0))
POLICIES = ("fifo", "sjf", "srtf", "las")
DOWN = Faults(outages="0:100:200")

pytestmark = pytest.mark.usefixtures("fast_engine")


def follow(policy: str, trace: Trace, cluster: Cluster, given: Conditions) -> RunResult:
    """Run a policy on the fast engine and compare the result with the general one."""
    fast, kernel = both(trace, cluster, Spec.parse(policy), given)
    assert fast is not None
    check(fast, kernel)
    return fast


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("every_s", "lost", "end_s"), [(0.0, 100.0, 510.0), (30.0, 10.0, 420.0)])
def test_an_evicted_job_loses_its_work_since_the_last_checkpoint(
    policy: str, every_s: float, lost: float, end_s: float
) -> None:
    given = Conditions(overheads=Overheads(restart_s=10.0, checkpoint_every_s=every_s), faults=DOWN)
    found = follow(policy, jobs((0, 1, 300)), ONE, given)
    assert found.segments[["t0", "t1", "paused_s"]].to_numpy().tolist() == [
        [0.0, 100.0, 0.0],
        [200.0, end_s, 10.0],
    ]
    assert list(found.segments["ended"]) == ["evicted", "finished"]
    assert found.failures[["t", "job", "lost_work"]].to_numpy().tolist() == [[100.0, 0, lost]]
    assert found.outages[["node", "t0", "t1"]].to_numpy().tolist() == [[0, 100.0, 200.0]]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_without_retries_has_failed(policy: str) -> None:
    given = Conditions(faults=Faults(outages="0:100:200", retries=0))
    found = follow(policy, jobs((0, 1, 300), (1, 1, 350)), ONE, given)
    assert list(found.jobs["outcome"]) == ["failed", "completed"]
    assert found.jobs["finish_s"].iloc[1] == 550.0


@pytest.mark.parametrize("policy", POLICIES)
def test_nodes_that_leave_together_do_so_even_if_the_run_ends_with_the_first(policy: str) -> None:
    """The job fails with node 0 and the run is over. Node 1 leaves by the same change, but its
    outage of its own no longer begins.
    """
    trace, two = jobs((0, 2, 50)), Cluster.parse("2x1:v100")
    faults = Faults(retries=0)
    change = replace(two, changes=(Change(20.0, (0, 1), False),))
    result = follow(policy, trace, change, Conditions(faults=faults))
    assert result.outages[["node", "t0"]].to_numpy().tolist() == [[0, 20], [1, 20]]
    each = replace(faults, outages="0:20:90;1:20:90")
    result = follow(policy, trace, two, Conditions(faults=each))
    assert (result.end_s, len(result.outages)) == (20, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_maintenance_takes_a_node_for_a_while(policy: str) -> None:
    """Both jobs run at once from 0 s to 40 s; node 1 is gone until 70 s, when 60 s are left."""
    changes = (Change(40.0, (1,), False), Change(70.0, (1,), True))
    cluster = replace(Cluster.parse("2x1:v100"), changes=changes)
    given = Conditions(overheads=Overheads(checkpoint_every_s=10.0))
    found = follow(policy, jobs((0, 1, 100), (0, 1, 100)), cluster, given)
    assert list(found.jobs["finish_s"]) == [100.0, 130.0]


@pytest.mark.parametrize("policy", [*POLICIES, "fifo:backfill=first_fit", "sjf:backfill=locked"])
@pytest.mark.parametrize("types", [("new",), ("old", "new")])
def test_random_failures_leave_the_same_record(policy: str, types: tuple[str, ...]) -> None:
    trace = Trace.of(busy_trace(300, 2).frame.drop(columns="cpus"))
    cluster = Cluster(tuple(NodeGroup(3, 4, kind) for kind in types), TYPES)
    given = Conditions(
        overheads=Overheads(start_s=5.0, restart_s=60.0, checkpoint_every_s=120.0),
        faults=Faults(mtbf_h=0.3, mttr_h=0.1, retries=4),
        estimator=Noisy(0.8),
    )
    found = follow(policy, trace, cluster, given)
    assert len(found.failures) >= 5


def test_what_is_left_to_the_general_engine_is_named() -> None:
    trace, failing = busy_trace(20, 2), Conditions(faults=Faults(mtbf_h=1.0))
    for policy, given, why in (
        ("easy", failing, "nodes fail, come or go while GPUs are reserved"),
        ("fifo", Conditions(faults=Faults(interruptions_per_node_h=1)), "jobs are interrupted"),
    ):
        with pytest.raises(runner.NotPlainError, match=why):
            runner.prepare_run(trace, Cluster.parse("4x8:v100"), make(Spec(policy)), given)


def test_a_job_that_never_ends_is_left_to_the_general_engine() -> None:
    """The only node is gone for good, so the job can never start again."""
    trace, given = jobs((0, 1, 300)), Conditions(faults=Faults(outages="0:100:inf"))
    fast, kernel = both(trace, ONE, Spec("fifo"), given)
    assert fast is None
    assert "can never start" in Simulator(trace, ONE, make(Spec("fifo")), given).run().reason
    assert kernel.jobs["outcome"].iloc[0] == "unfinished"
