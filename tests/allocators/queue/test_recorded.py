from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators import make
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.result import RunResult
from tests.allocators.queue.walk import gantt, trace_of


def replay(
    jobs: list[tuple[float, int, float]],
    starts: list[float | None],
    cluster: str,
    spec: str = "recorded",
    conditions: Conditions | None = None,
) -> RunResult:
    return Simulator(
        trace_of(jobs, start_time_s=starts),
        Cluster.parse(cluster),
        make(Spec.parse(spec)),
        conditions,
    ).run()


def overflow(run: RunResult) -> list[tuple[int, float, float, int]]:
    """(job, from, to, GPUs) on the node that the described cluster does not have."""
    there = run.placements[run.placements["node"] == run.overflow].merge(
        run.segments, left_on="segment", right_index=True
    )
    return [
        (int(row.job), row.t0, row.t1, int(row.count * row.gpus_x)) for row in there.itertuples()
    ]


def test_starts_are_those_of_the_trace() -> None:
    # One node of 4 GPUs. At 3 job 2 starts although 3 + 2 GPUs are held: the gang goes to the
    # overflow node until 7.
    run = replay([(0, 3, 6), (1, 1, 4), (1, 2, 4), (2, 4, 2)], [1, 2, 3, 9], "1x4:v100")
    assert gantt(run).splitlines() == [
        ".######",
        " .####",
        " ..####",
        "  .......##",
    ]
    assert overflow(run) == [(2, 3.0, 7.0, 2)]
    assert run.jobs["outcome"].tolist() == ["completed"] * 4


def test_a_job_without_a_start_is_refused() -> None:
    run = replay([(0, 1, 6), (1, 1, 4)], [None, 2], "1x4:v100")
    assert run.jobs["outcome"].tolist() == ["refused", "completed"]


def test_a_start_before_the_submission_happens_at_the_submission() -> None:
    assert replay([(0, 1, 6), (5, 1, 4)], [0, 3], "1x4:v100").jobs["first_start_s"].tolist() == [
        0,
        5,
    ]


def test_what_the_cluster_does_not_know_goes_to_the_overflow_node() -> None:
    # 8 GPUs at once on a cluster of 4, and a type that is not there.
    trace = trace_of([(0, 8, 2), (0, 1, 3)], start_time_s=[1, 1], gpu_types_allowed=["", "a100"])
    run = Simulator(trace, Cluster.parse("1x4:v100"), make(Spec("recorded"))).run()
    assert overflow(run) == [(0, 1.0, 3.0, 8), (1, 1.0, 4.0, 1)]


def test_a_job_goes_to_the_type_that_it_ran_on_if_it_may() -> None:
    # Job 0 ran on a T4, which is not the fastest; job 1 as well, but says that it needs a V100; of
    # job 2 nothing is known.
    trace = trace_of(
        [(0, 1, 2), (0, 1, 2), (0, 1, 2)],
        start_time_s=[0, 0, 0],
        gpu_type=["t4", "t4", None],
        gpu_types_allowed=[None, "v100", None],
    )
    run = Simulator(trace, Cluster.parse("1x2:v100,1x2:t4"), make(Spec("recorded"))).run()
    nodes = run.placements.merge(
        run.segments["job"], left_on="segment", right_index=True
    ).sort_values("job")["node"]
    assert nodes.tolist() == [1, 0, 0]


def test_an_evicted_job_goes_on_at_once() -> None:
    # Node 0 fails at 3: job 0 has lost its 2 s and starts anew at 3 on node 1, until 8.
    run = replay(
        [(0, 1, 5)], [1], "2x1:v100", conditions=Conditions(faults=Faults(outages="0:3:9"))
    )
    assert run.jobs[["first_start_s", "finish_s"]].iloc[0].tolist() == [1, 8]


@pytest.mark.parametrize(
    "spec", ["recorded", "recorded:mix=yes,placement=spread", "recorded:types=slowest_that_fits"]
)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_every_start_is_exact(spec: str, data: st.DataObject) -> None:
    # Times in steps of 1/64 s from a large zero: no start is the sum of others, and all must come
    # back to the last bit.
    many = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, 6400), st.integers(1, 9), st.integers(1, 3000), st.integers(0, 6400)
            ),
            min_size=1,
            max_size=20,
        )
    )
    jobs = [(0.1 + submit / 64, gpus, duration / 7) for submit, gpus, duration, _ in many]
    starts = [0.1 + (submit + wait) / 64 for submit, _, _, wait in many]
    trace = trace_of(jobs, start_time_s=starts)
    run = Simulator(trace, Cluster.parse("1x4:v100,2x2:t4"), make(Spec.parse(spec))).run()
    assert np.array_equal(run.jobs["first_start_s"], trace.numbers("start_time_s"))
    assert set(run.jobs["outcome"]) == {"completed"}
