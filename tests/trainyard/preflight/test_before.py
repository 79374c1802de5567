"""What is said before a run on the command line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.params import Spec
from sim.trace import Trace
from trainyard.preflight import preflight
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study

FOR_EVER = (
    "2 jobs requested too little memory. Unless a policy gives more, they are retried until the"
    " run stops after 10,000 times. Set a limit, e.g. --set faults.retries=3."
)


def trace(**columns: Any) -> Trace:
    """Two jobs that have enough, one whose worker has too little, and one whose servers have when
    it ends.
    """
    row = {
        "submit_time_s": 0.0,
        "num_gpus": 0,
        "duration_s": 60.0,
        "workers": 1.0,
        "servers": 2.0,
        "worker_mem_gb": 8.0,
        "server_mem_gb": 8.0,
    }
    needs = {
        "worker_mem_need_gb": [8.0, 2.0, 8.1, 2.0],
        "server_mem_need_gb": [8.0, 8.0, 8.0, 12.0],
        "server_mem_growth_gb": [8.0, 0.0, 0.0, 4.1],
    }
    return Trace.of(pd.DataFrame(row | needs | columns, index=range(4)).assign(job_id=list("abcd")))


def study(perf: str = "parameter_server", faults: str = "faults", policy: str = "fifo") -> Study:
    spec = Spec.parse(policy)
    base = Scenario(
        TraceSpec("sample:tiny"),
        Cluster.parse("9x0:cpu/32c/64g,1x8:v100/32c/64g"),
        spec,
        Spec.parse(perf),
        faults=Spec.parse(faults),
    )
    return Study(base, (spec,))


def test_jobs_that_will_run_out_of_memory_without_end_are_told() -> None:
    assert preflight.study_notes(study(), trace()) == [FOR_EVER]


@pytest.mark.parametrize(
    ("of", "columns"),
    [
        (study(faults="faults:retries=0"), {}),
        (study(perf="rigid"), {}),  # no memory runs out there
        (study(), {"worker_mem_need_gb": 8.0, "server_mem_need_gb": 1.0}),
        (study(), {"worker_mem_gb": 0.0, "server_mem_gb": 0.0}),  # not modelled
        (
            study(),
            {
                "worker_mem_need_gb": np.nan,
                "server_mem_need_gb": np.nan,
                "server_mem_growth_gb": np.nan,
            },
        ),
    ],
)
def test_where_none_will_or_not_without_end_nothing_is_said(
    of: Study, columns: dict[str, Any]
) -> None:
    assert preflight.study_notes(of, trace(**columns)) == []


def test_nothing_is_said_of_who_cannot_run() -> None:
    costly = study(perf="rigid", policy="dlrover:inner=las(thresholds=1)")
    costly = replace(
        costly, base=replace(costly.base, overheads=Spec.of("overheads", restart_s=60.0))
    )
    assert preflight.study_notes(costly, trace()) == []
