from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from allocators import REGISTRY
from sim.cluster import Cluster
from sim.result import RunResult
from trainyard.results.decision_picture import (
    _NodeLanes,
    decision_time_text,
    lay_out_bars,
    run_example,
)


@pytest.mark.parametrize("name", list(REGISTRY))
def test_every_allocator_of_the_registry_has_a_picture(name: str) -> None:
    made = run_example(name)
    assert made.jobs["finish_s"].notna().all()
    assert set(made.bars["job"]) == set("ABCDEF")
    assert len(made.bars) <= 200
    top = sum(lanes for _, lanes in made.rows)
    assert (made.bars["lane"] >= 0).all()
    assert (made.bars["lane"] + made.bars["lanes"] <= top).all()
    assert (made.bars["t1_s"] <= made.until_s).all()
    _disjoint(made.bars)
    assert made.sentence.endswith(".")
    assert "never ends" not in made.sentence


def _disjoint(drawn: pd.DataFrame) -> None:
    low, high = drawn["lane"].to_numpy(), (drawn["lane"] + drawn["lanes"]).to_numpy()
    t0, t1 = drawn["t0_s"].to_numpy(), drawn["t1_s"].to_numpy()
    shared_lanes = (low[:, None] < high - 1e-9) & (low < high[:, None] - 1e-9)
    shared_time = (t0[:, None] < t1 - 1e-6) & (t0 < t1[:, None] - 1e-6)
    assert not (shared_lanes & shared_time & ~np.eye(len(drawn), dtype=bool)).any()


def test_the_picture_is_what_the_rule_says() -> None:
    first = run_example("fifo").bars.groupby("job")["t0_s"].min()
    assert first["D"] >= first["C"]
    filled = run_example("easy").bars.groupby("job")["t0_s"].min()
    assert filled["D"] == 24 * 60
    assert filled["C"] == first["C"]


def test_a_job_keeps_its_gpus_and_others_take_the_lowest_that_are_free() -> None:
    cells = _NodeLanes(4)
    assert cells.take(0, 1, (0, 10)) == [(0, 1)]
    assert cells.take(1, 1, (0, 20)) == [(1, 1)]
    assert cells.take(2, 2, (10, 20)) == [(0, 1), (2, 1)]
    assert cells.take(1, 2, (20, 30)) == [(0, 2)]
    assert cells.take(0, 4, (30, 40)) == [(0, 4)]


def test_pieces_lie_on_the_gpus_of_their_node_and_on_cores() -> None:
    segments = pd.DataFrame({"job": [0, 1], "t0": [0.0, 5.0], "t1": [5.0, 9.0]})
    placements = pd.DataFrame(
        {
            "segment": [0, 0, 1],
            "node": [0, 1, 1],
            "count": [2, 3, 1],
            "gpus": [1, 0, 0],
            "cpus": [1.0, 2.0, 8.0],
        }
    )
    found = lay_out_bars(
        cast(RunResult, SimpleNamespace(segments=segments, placements=placements)),
        Cluster.parse("1x4:v100,1x0:cpu/8c"),
    )
    assert found.to_numpy().tolist() == [
        ["A", 0.0, 2.0, 0.0, 5.0, "2 GPUs, v100"],
        ["A", 4.0, 1.5, 0.0, 5.0, "6 cores"],
        ["B", 4.0, 2.0, 5.0, 9.0, "8 cores"],
    ]


def test_the_time_of_decisions_is_told_where_it_is_known() -> None:
    def entries(*summaries: dict[str, Any]) -> Any:
        return [SimpleNamespace(summary=summary) for summary in summaries]

    assert decision_time_text(entries()) == ""
    assert decision_time_text(entries({"decision_ms_mean": None, "decision_ms_max": 3.0})) == ""
    told = decision_time_text(
        entries(
            {"decision_ms_mean": 10.0, "decision_ms_max": 40.0},
            {"decision_ms_mean": 14.0, "decision_ms_max": 0.05},
        )
    )
    assert told == "Computing time per decision: 12 ms (max 40 ms)."
    assert "under 0.1 ms (max 0.5 ms)" in decision_time_text(
        entries({"decision_ms_mean": 0.05, "decision_ms_max": 0.5})
    )
