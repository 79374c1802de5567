from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from trainyard.results import window_series
from trainyard.runs.frames import SERIES
from trainyard.runs.run import run, scenario_key, store_result
from trainyard.store import Store, StoredResult
from trainyard.study.scenario import Scenario
from trainyard.traces.sources import load_trace


@pytest.fixture
def entry(scenario: Scenario, store: Store) -> StoredResult:
    trace, key = load_trace(scenario.trace), scenario_key(scenario, store)
    store_result(store, key, scenario, run(scenario, trace=trace), trace)
    found = store.get(key)
    assert found is not None
    return found


def test_a_window_keeps_every_step_of_a_short_run(entry: StoredResult, scenario: Scenario) -> None:
    full = window_series.full_series(entry, scenario.cluster)
    assert set(full) == {*SERIES, "resources"}
    queue = full["queue"]
    t0, t1 = queue["t_s"].iloc[2], queue["t_s"].iloc[5]
    found = window_series.window_series(full, (t0, t1), 2)["queue"]
    assert found["t_s"].tolist() == [*queue["t_s"].iloc[2:5], t1]
    assert found["waiting"].tolist()[:-1] == queue["waiting"].iloc[2:5].tolist()


@pytest.mark.parametrize("policies", [1, 3, 4, 6])
def test_a_long_series_is_reduced_to_what_a_page_may_send(policies: int) -> None:
    t = np.arange(50_000.0)
    frame = pd.DataFrame({"t_s": t, "a": t % 7})
    full = dict.fromkeys(("queue", "states"), frame) | {
        "utilisation": frame.assign(b=0.0, total=t % 7),
        "resources": pd.DataFrame({"t_s": np.zeros(0)}),
    }
    found = window_series.window_series(full, (1000.0, 41_000.0), policies)
    lines = policies * (3 * (3 if policies <= window_series.MAX_BANDS else 1) + 2) + 6
    assert 300 < len(found["queue"]) <= 1000
    assert lines * len(found["queue"]) <= 18_000
    assert found["resources"].empty


def test_the_allocation_of_a_window_names_the_largest_jobs_of_it(entry: StoredResult) -> None:
    jobs = entry.result().segments
    last = float(jobs["t0"].max())
    found = window_series.window_allocation(entry, (last, last + 1.0))
    running = jobs[(jobs["t0"] <= last) & (jobs["t1"] > last)]
    assert {int(name) for name in found.columns if name.isdigit()} == set(running["job"])
