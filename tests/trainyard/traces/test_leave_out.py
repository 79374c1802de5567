from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.params import Spec
from sim.trace import Trace
from trainyard.clusters import machines
from trainyard.preflight.leave_out import without_unschedulable
from trainyard.store import Store
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces.sources import load_source, load_trace


@pytest.fixture
def study(store: Store) -> Study:
    frame = pd.DataFrame(
        {
            "job_id": list("abcd"),
            "submit_time_s": [0.0, 10, 20, 30],
            "num_gpus": [64, 4, 2, 9],
            "duration_s": 60.0,
            "user": list("xyxy"),
        }
    )
    digest = store.put_trace(
        Trace.of(frame, name="mine"),
        {"format": "native", "read": 5, "used": 4, "dropped": 1, "reasons": []},
    )
    base = Scenario(
        TraceSpec(f"store:{digest}", from_s=10.0), Cluster.parse("2x4:v100"), Spec("fifo")
    )
    return Study(base, (base.allocator,))


def test_who_can_never_start_is_left_out_and_counted(study: Study, store: Store) -> None:
    left = without_unschedulable(study, store)
    source = load_source(left.base.trace, store)
    assert list(source.trace.frame["job_id"]) == ["b", "c"]
    account = source.account
    assert account["of"] == [study.base.trace.source.removeprefix("store:")]
    assert (account["read"], account["used"], account["dropped"]) == (5, 2, 3)
    assert account["reasons"] == [
        {"action": "dropped", "reason": "can never start on 2x4:v100", "rows": 2}
    ]
    assert left.base.trace.from_s == 0.0
    assert list(load_trace(left.base.trace, store).frame["job_id"]) == ["b", "c"]
    assert without_unschedulable(left, store) is left
    assert not machines.find_unschedulable_jobs(
        load_trace(left.base.trace, store), left.base.cluster
    ).mask.any()


def test_the_rest_of_the_recipe_stays(study: Study, store: Store) -> None:
    spec = replace(study.base.trace, load=2.0, anonymise=True)
    left = without_unschedulable(
        replace(study, base=replace(study.base, trace=spec)), store
    ).base.trace
    assert (left.load, left.anonymise) == (2.0, True)
    assert np.isinf(left.to_s)


def test_somebody_must_be_left(study: Study, store: Store) -> None:
    with pytest.raises(ParameterError, match="None of the jobs of mine can ever start on 1x1:v100"):
        without_unschedulable(
            replace(study, base=replace(study.base, cluster=Cluster.parse("1x1:v100"))), store
        )
