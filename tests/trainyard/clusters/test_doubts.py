from __future__ import annotations

from typing import Any

import pandas as pd

from sim.cluster import Cluster
from sim.trace import Trace
from trainyard.clusters import doubts, machines


def jobs(**columns: Any) -> Trace:
    """Jobs of an hour that come at once."""
    count = len(columns["num_gpus"])
    frame = {
        "job_id": [str(at) for at in range(count)],
        "submit_time_s": [0.0] * count,
        "duration_s": [3600.0] * count,
    }
    return Trace.of(pd.DataFrame(frame | columns))


def test_a_recording_that_used_more_gpus_than_there_are() -> None:
    # Two of them at once; the third begins as they end.
    trace = jobs(num_gpus=[800, 500, 900], start_time_s=[0.0, 0.0, 3600.0])
    assert doubts.found(trace, Cluster.parse("163x8:v100")) == {}
    small = Cluster.parse("162x8:v100")
    assert doubts.found(trace, small) == {
        "concurrency": "The recording used up to 1,300 GPUs at once; this cluster has 1,296: the"
        " real cluster was larger, or what counts as GPUs are processors."
    }
    assert machines.unschedulable(trace, small).sentences() == tuple(
        doubts.found(trace, small).values()
    )
    bare = jobs(num_gpus=[800, 500, 900])
    assert doubts.found(bare, small) == {}
