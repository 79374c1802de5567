"""The smallest quotas, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.params import Spec
from sim.trace import Trace
from trainyard.study.scenario import Scenario
from trainyard.sweeps.team_quotas import plan_quotas
from trainyard.traces import new_study

# Three jobs of a at once, 2 GPUs and 100 s each; two of b, 1 GPU and 50 s each.
ROWS = [(0, 2, 100, "a")] * 3 + [(0, 1, 50, "b")] * 2


def scenario(gpus: int) -> Scenario:
    base = new_study.sample_study("tiny").base
    return replace(base, cluster=Cluster.parse(f"1x{gpus}:v100"), allocator=Spec("fifo"))


def trace() -> Trace:
    frame = pd.DataFrame(ROWS, columns=["submit_time_s", "num_gpus", "duration_s", "vc"])
    frame.insert(0, "job_id", [f"j{at}" for at in range(len(frame))])
    return Trace.of(frame)


@pytest.mark.parametrize(
    ("limit_s", "quotas", "waits"),
    [
        (0, [6, 2], [0, 0]),
        (50, [6, 1], [0, 50]),
        (100, [4, 1], [100, 50]),
        (200, [2, 1], [200, 50]),
    ],
)
def test_the_smallest_quota_that_holds(
    limit_s: float, quotas: list[int], waits: list[float]
) -> None:
    plan = plan_quotas(scenario(8), trace(), limit_s)
    assert [need.quota for need in plan.needs] == quotas
    assert [need.wait_s for need in plan.needs] == waits
    assert [need.together_s for need in plan.needs] == waits
    assert plan.sentence == (
        f"The quotas fit, {sum(quotas)} of 8 GPUs, and hold in one run of all teams."
    )
    assert plan.table == f"a: {quotas[0]}; b: {quotas[1]}"


def test_quotas_that_do_not_fit_are_said() -> None:
    plan = plan_quotas(scenario(7), trace(), 0)
    assert plan.sentence.startswith("The quotas add up to 8 GPUs and the cluster has 7")
    plan = plan_quotas(scenario(5), trace(), 0)
    assert [need.quota for need in plan.needs] == [None, 2]
    assert plan.sentence.startswith("Not even the whole cluster, 5 GPUs, is enough for a.")


def test_a_policy_that_resizes_is_refused() -> None:
    given = replace(scenario(8), allocator=Spec("mip_elastic"))
    with pytest.raises(ParameterError):
        plan_quotas(given, trace(), 0)


def test_a_record_is_not_planned_with() -> None:
    asked = replace(scenario(8), allocator=Spec("recorded"))
    with pytest.raises(ParameterError, match="recorded replays the recorded schedule"):
        plan_quotas(asked, trace(), 0)
