from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sim.cluster import Cluster, GpuType, NodeGroup
from sim.trace import Trace
from trainyard.clusters import cluster_warnings, machines


def jobs(**columns: Any) -> Trace:
    """Jobs of an hour that come at once."""
    count = len(columns["num_gpus"])
    frame = {
        "job_id": [str(at) for at in range(count)],
        "submit_time_s": [0.0] * count,
        "duration_s": [3600.0] * count,
    }
    return Trace.of(pd.DataFrame(frame | columns))


def found(trace: Trace, cluster: Cluster, **more: bool) -> dict[str, str]:
    return cluster_warnings.find_doubts(trace, cluster, np.zeros(len(trace), bool), **more)


def test_a_recording_that_used_more_gpus_than_there_are() -> None:
    # Two of them at once; the third begins as they end.
    trace = jobs(num_gpus=[800, 500, 900], start_time_s=[0.0, 0.0, 3600.0])
    assert found(trace, Cluster.parse("163x8:v100")) == {}
    small = Cluster.parse("162x8:v100")
    assert found(trace, small) == {
        "concurrency": "The recorded schedule used up to 1,300 GPUs at once; this cluster has"
        " 1,296. The real cluster was larger, or the trace counts processors as GPUs."
    }
    assert machines.find_unschedulable_jobs(trace, small).sentences() == tuple(
        found(trace, small).values()
    )
    bare = jobs(num_gpus=[800, 500, 900])
    assert found(bare, small) == {}


def test_jobs_that_fit_nowhere_and_hold_more_than_a_twentieth_of_the_gpu_time() -> None:
    cluster = Cluster.parse("1x8:v100")
    trace = jobs(num_gpus=[8] * 18 + [16], duration_s=[3600.0] * 18 + [1800.0])
    assert machines.find_unschedulable_jobs(trace, cluster).jobs == 1
    said = "Jobs that can never start on this cluster hold 5.3 % of all GPU time (1 of 19 jobs)."
    assert machines.find_unschedulable_jobs(trace, cluster).doubts == (
        f"{said} The results cover the other jobs.",
    )
    # 1 of 20 parts of the GPU time is not more than 5 %.
    fewer = jobs(num_gpus=[8] * 19 + [16], duration_s=[3600.0] * 19 + [1800.0])
    assert machines.find_unschedulable_jobs(fewer, cluster).jobs == 1
    assert machines.find_unschedulable_jobs(fewer, cluster).doubts == ()


def test_a_type_whose_speed_nobody_knows_where_speeds_matter() -> None:
    trace = jobs(num_gpus=[1] * 10, gpu_type=["x9"] * 4 + ["v100"] * 6)
    said = (
        "The speed of X9 is unknown, and 40.0 % of all GPU time was recorded there. Run times on"
        " other types are guesses."
    )
    assert found(trace, Cluster.parse("1x8:v100")) == {"unknown": said}
    unnamed = GpuType("x9")
    both = (NodeGroup(1, 8, "x9"), NodeGroup(1, 8, "v100"))
    assert found(trace, Cluster(both, (unnamed,))) == {"unknown": said}
    assert found(trace, Cluster(both, (unnamed,)), measured=True) == {}
    # Somebody gave its speed; or all ran on the one type that there is.
    assert found(trace, Cluster(both, (GpuType("x9", 2.0),))) == {}
    alone = jobs(num_gpus=[1], gpu_type=["x9"])
    assert found(alone, Cluster(both[:1], (unnamed,))) == {}
    assert found(jobs(num_gpus=[1], gpu_type=["t4"]), Cluster.parse("1x8:v100")) == {}
    rare = jobs(num_gpus=[1] * 20, gpu_type=["x9"] + ["v100"] * 19)
    assert found(rare, Cluster.parse("1x8:v100")) == {}
