"""Hypothesis strategies for traces, clusters and conditions: small, full of ties, and odd on
purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import pandas as pd
from hypothesis import strategies as st

from sim.cluster import Change, Cluster, GpuType, NodeGroup
from sim.conditions import Conditions
from sim.engine.faults import Faults
from sim.overheads import Overheads
from sim.perf.estimators import Biased, Exact, Noisy, Unknown
from sim.perf.rigid import Rigid
from sim.trace import Trace

TYPES = (GpuType("old", 0.5, 1.0), GpuType("new", 2.0, 3.0))
VCS = ("red", "blue")
HORIZON_S = 5000.0

# Few distinct instants, so that much happens at once; a third of a second, so that not all
# arithmetic is exact.
instants = st.one_of(st.integers(0, 40).map(float), st.sampled_from((1 / 3, 2 / 3, 7.1, 12.25)))
sizes_s = st.one_of(st.integers(1, 30).map(float), st.sampled_from((0.1, 1 / 3, 100.0)))


def trace_of(rows: Sequence[dict[str, Any]], name: str = "drawn") -> Trace:
    """Build a trace from rows; ids are their places."""
    frame = pd.DataFrame([{"job_id": f"j{at}"} | row for at, row in enumerate(rows)])
    return Trace.of(frame, name=name)


@st.composite
def jobs(draw: st.DrawFn, plain: bool) -> dict[str, Any]:
    """Draw the row of one job; plain jobs ask for GPUs only."""
    row: dict[str, Any] = {
        "submit_time_s": draw(instants),
        "num_gpus": draw(st.integers(1, 6)),
        "duration_s": draw(sizes_s),
    }
    if plain:
        return row
    return row | {
        "num_gpus": draw(st.integers(0, 6)),
        "start_time_s": (
            row["submit_time_s"]
            + draw(st.one_of(st.integers(0, 20).map(float), st.just(float("nan"))))
        ),
        "cpus": draw(st.sampled_from((float("nan"), 0.0, 1.0, 2.5, 7.0))),
        "mem_gb": draw(st.sampled_from((float("nan"), 0.0, 1.0, 10 / 3))),
        "gpu_type": draw(st.sampled_from((None, "old", "new"))),
        "gpu_types_allowed": draw(st.sampled_from((None, None, "old", "new", "old|new", "gone"))),
        "vc": draw(st.sampled_from((None, *VCS))),
        "priority": draw(st.sampled_from((float("nan"), 0.0, 1.0, 2.0))),
        "time_limit_s": draw(st.sampled_from((float("nan"), 5.0, 60.0))),
        "preemptible": draw(st.sampled_from((float("nan"), 0.0, 1.0))),
    }


@st.composite
def traces(draw: st.DrawFn, plain: bool = False, most: int = 12) -> Trace:
    """Draw a trace of up to `most` jobs."""
    return trace_of(draw(st.lists(jobs(plain), min_size=1, max_size=most)))


@st.composite
def groups(draw: st.DrawFn) -> NodeGroup:
    """Draw nodes of one kind, CPU nodes among them."""
    gpus = draw(st.integers(0, 4))
    return NodeGroup(
        count=draw(st.integers(1, 3)),
        gpus=gpus,
        gpu_type=draw(st.sampled_from(("old", "new"))) if gpus else "",
        cpus=draw(st.sampled_from((inf, 2.0, 8.0, 3.3))),
        mem_gb=draw(st.sampled_from((inf, 1.0, 5.0))),
        partitions=draw(st.sampled_from(((), (), ("red",), VCS))),
    )


@st.composite
def clusters(draw: st.DrawFn, plain: bool = False) -> Cluster:
    """Draw a cluster; plain ones have one type of GPU node and no dated changes."""
    if plain:
        return Cluster((NodeGroup(draw(st.integers(1, 3)), draw(st.integers(1, 4)), "new"),), TYPES)
    rows = tuple(draw(st.lists(groups(), min_size=1, max_size=3)))
    nodes = sum(row.count for row in rows)
    change = st.builds(
        Change,
        st.sampled_from((-1.0, 0.0, 3.0, 7.1, 20.0)),
        st.lists(st.integers(0, nodes - 1), max_size=2).map(tuple),
        st.booleans(),
    )
    return Cluster(rows, TYPES, tuple(draw(st.lists(change, max_size=3))))


costs = st.builds(
    Overheads,
    start_s=st.sampled_from((0.0, 0.0, 1.5)),
    restart_s=st.sampled_from((0.0, 2.0)),
    checkpoint_every_s=st.sampled_from((0.0, 3.0, 1800.0)),
    checkpoint_s=st.sampled_from((0.0, 0.5)),
    on_preempt=st.sampled_from(("checkpoint", "lose_all", "forbidden")),
    latency_s=st.sampled_from((0.0, 0.0, 0.7, 5.0)),
    latency_per_job_s=st.sampled_from((0.0, 0.0, 0.1)),
)
failures = st.builds(
    Faults,
    mtbf_h=st.sampled_from((0.0, 0.0, 0.02, 1.0)),
    mttr_h=st.sampled_from((0.0, 0.001, 0.01)),
    interruptions_per_node_h=st.sampled_from((0.0, 0.0, 20.0)),
    retries=st.sampled_from((-1, 0, 1)),
    outages=st.sampled_from(("", "0:3:9", "0:5:12;0:10:20", "0:0:4;0:4:6", "0:7.1:12.25")),
)
estimators = st.sampled_from((Exact(), Noisy(0.8), Biased(0.2), Unknown(5.0)))
conditions = st.builds(
    Conditions,
    perf=st.sampled_from((Rigid(), Rigid("old", 1.5, 2.0))),
    estimator=estimators,
    overheads=costs,
    faults=failures,
    seed=st.integers(0, 3),
    horizon_s=st.just(HORIZON_S),
)
calm = st.builds(Conditions, perf=st.just(Rigid()), estimator=estimators, seed=st.integers(0, 3))
