"""What replays are held against, by hand, against a linear program and against simulated
policies.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from sim.cluster import Cluster, GpuType, NodeGroup
from sim.trace import Trace
from tests.allocators.queue.walk import trace_of
from trainyard.labs.replays.bounds import BOUNDS, capacity, compute_bound, fluid, ideal
from trainyard.labs.replays.reading import load
from trainyard.labs.replays.run import run_cell
from trainyard.labs.replays.types import ReplayPoint
from trainyard.store import profiles
from trainyard.study.scenario import Scenario
from trainyard.study.settings import with_settings
from trainyard.traces.sources import load_trace


def scenario(cluster: Cluster, **changes: object) -> Scenario:
    return replace(
        Scenario.from_json({"trace": "sample:tiny", "cluster": "1x1:v100", "allocator": "gavel"}),
        cluster=cluster,
        **changes,
    )  # type: ignore[arg-type]


def machines(*groups: tuple[int, str, float], gpus: int = 1) -> Cluster:
    return Cluster(
        tuple(NodeGroup(count, gpus, name) for count, name, _ in groups),
        tuple(GpuType(name, speed) for _, name, speed in groups),
    )


def least(trace: Trace, cluster: Cluster) -> float:
    return capacity(scenario(cluster), trace)[0]


def test_one_job_alone_takes_the_speed_of_all_nodes_together() -> None:
    # Speeds 1 + 2 x 0.45 + 2 x 0.17 = 2.24: 1,000 s on the fastest node alone, 446.4 s on all; that
    # is 55 % less.
    aws = machines((1, "a", 1.0), (2, "b", 0.45), (2, "c", 0.17))
    assert least(trace_of([(0, 1, 1000)]), aws) == pytest.approx(1000 / 2.24)
    assert 1 - least(trace_of([(0, 1, 1000)]), aws) / 1000 == pytest.approx(0.5536, abs=1e-4)


def test_several_jobs_take_their_work_over_the_sum_of_speeds() -> None:
    # 300 + 600 s of work on one GPU of speed 1 and two of speed 2: 900 / 5. Arrivals make it no
    # shorter.
    cluster = machines((1, "slow", 1.0), (2, "fast", 2.0))
    assert least(trace_of([(0, 1, 300), (50, 1, 600)]), cluster) == pytest.approx(180)


def test_gangs_count_with_all_their_gpus_and_only_where_they_fit() -> None:
    # Two GPUs for 100 s: 200 GPU-seconds on 2 x 2 GPUs, and 400 for a gang of 4, on 4 GPUs.
    cluster = machines((2, "a", 1.0), gpus=2)
    assert least(trace_of([(0, 2, 100)]), cluster) == pytest.approx(50)
    assert least(trace_of([(0, 2, 100), (0, 4, 100)]), cluster) == pytest.approx(150)
    # A gang of 2 cannot use the single fast GPU: 200 GPU-seconds on the two slow ones.
    assert least(
        trace_of([(0, 2, 100)]), machines((2, "slow", 1.0), (1, "fast", 8.0))
    ) == pytest.approx(100)


def test_jobs_that_cannot_run_or_need_no_gpu_count_for_nothing() -> None:
    cluster = machines((1, "a", 1.0))
    assert least(trace_of([(0, 1, 100), (0, 0, 900), (0, 2, 900)]), cluster) == pytest.approx(100)
    assert least(trace_of([(0, 2, 100)]), cluster) == 0


def optimum(at: Scenario) -> float:
    """The least time in which all GPUs can do the work, from a linear program over GPU-seconds of
    each job on each type.
    """
    trace = load_trace(at.trace)
    model = profiles.build_model(at.perf, None).bind(trace, at.cluster)
    work, types = model.work(), range(len(at.cluster.types))
    alone = np.array(
        [
            [
                capacity(
                    replace(at, cluster=replace(at.cluster, groups=(NodeGroup(1, 1, kind.name),))),
                    one,
                )[0]
                for kind in at.cluster.types
            ]
            for one in split(trace)
        ]
    )
    jobs, gpus = (
        len(work),
        [
            sum(node.gpus for node in at.cluster.nodes if node.gpu_type == kind.name)
            for kind in at.cluster.types
        ],
    )
    rows, ends = [], []
    for job in range(jobs):
        row = np.zeros((jobs, len(types)))
        row[job] = -1 / alone[job]
        rows.append([*row.ravel(), 0.0])
        ends.append(-1.0)
    for kind in types:
        row = np.zeros((jobs, len(types)))
        row[:, kind] = 1
        rows.append([*row.ravel(), -float(gpus[kind])])
        ends.append(0.0)
    return float(linprog([0.0] * (jobs * len(types)) + [1.0], A_ub=rows, b_ub=ends).fun)


def split(trace: Trace) -> list[Trace]:
    return [
        replace(trace, frame=trace.frame.iloc[at : at + 1].reset_index(drop=True))
        for at in range(len(trace))
    ]


@pytest.mark.parametrize(
    ("axis", "jobs", "seed"), [("jobs", 1, 0), ("jobs", 3, 1), ("jobs", 12, 2), ("jobs_lab", 5, 0)]
)
def test_on_five_nodes_it_is_the_optimum_of_the_linear_program(
    axis: str, jobs: int, seed: int
) -> None:
    at = load("hadare-cru").scenario("capacity", ReplayPoint(axis, jobs), seed)
    assert compute_bound(at, "capacity")["makespan_s"] == pytest.approx(optimum(at), rel=1e-6)


@pytest.mark.parametrize(("axis", "jobs"), [("jobs", 1), ("jobs", 5), ("jobs_lab", 3)])
def test_no_policy_is_faster(axis: str, jobs: int) -> None:
    replay = load("hadare-cru")
    for seed in range(3):
        low = compute_bound(replay.scenario("capacity", ReplayPoint(axis, jobs), seed), "capacity")[
            "makespan_s"
        ]
        for arm in ("hadare", "hadar", "gavel", "single"):
            assert (
                low
                <= run_cell(
                    replay.scenario(arm, ReplayPoint(axis, jobs)).to_json(), seed, ["makespan_s"]
                ).numbers["makespan_s"]
            )


def test_the_fluid_ideal_is_that_of_the_jobs_that_count() -> None:
    # Two jobs of 100 s share one GPU until 200 s; the third comes after them.
    cluster, trace = machines((1, "a", 1.0)), trace_of([(0, 1, 100), (0, 1, 100), (500, 1, 60)])
    assert fluid(scenario(cluster), trace) == pytest.approx(((200 + 200 + 60) / 3, 560))
    first = with_settings(scenario(cluster).to_json(), ["measure.last_job=1"])
    assert fluid(Scenario.from_json(first), trace) == pytest.approx((200, 200))


@pytest.mark.slow
def test_later_jobs_are_looked_at_as_far_as_they_matter() -> None:
    replay = load("gavel-jct")
    at = Scenario.from_json(
        with_settings(
            replay.scenario("fluid", ReplayPoint("per_h", 5.6), 1).to_json(),
            ["trace.source.jobs=200", "measure.first_job=20", "measure.last_job=39"],
        )
    )
    trace = load_trace(at.trace)
    whole = ideal(trace, at.cluster, profiles.build_model(at.perf, None), at.allocator, at.seed)
    jct_s = (whole - trace.numbers("submit_time_s"))[20:40].mean()
    assert fluid(at, trace)[0] == pytest.approx(jct_s, rel=1e-9)


def test_every_bound_gives_what_it_promises() -> None:
    at = scenario(machines((1, "a", 1.0)))
    for name, (metrics, _) in BOUNDS.items():
        assert tuple(compute_bound(at, name)) == metrics
