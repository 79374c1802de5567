"""The bytes that the script of the job map reads, on runs written down by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.trace import Trace
from tests.sim.metrics.metrics_cases import Held, Job, outages_of, run_of
from trainyard.views import job_map
from trainyard.views.charts import TimeAxis
from trainyard.views.explored_runs import ExploredRuns
from trainyard.what_if.explore import Book, occupancy

WINDOW = (0.0, 100.0)


def explored(held: list[Held], jobs: int = 3, name: str = "j", nodes: int = 2) -> ExploredRuns:
    """One policy on nodes of four GPUs, of which the second is down from 60 s to 80 s."""
    frame = pd.DataFrame(
        {
            "job_id": [f"{name}{at}" for at in range(jobs)],
            "submit_time_s": 0.0,
            "num_gpus": 4,
            "duration_s": 50.0,
        }
    )
    outages = outages_of([(1, 60.0, 80.0, "outage")])
    result = run_of([Job(0, 4, 0, 100)] * jobs, held, 100.0, outages=outages)
    book = Book(result, Trace.of(frame, name="t"), Cluster.parse(f"{nodes}x4:v100"), "A")
    compared: Any = SimpleNamespace(
        axis=TimeAxis(*WINDOW), colours=lambda dark=False: {"A": "#fff" if dark else "#000"}
    )
    return ExploredRuns(compared, {"A": book}, {"A": "key"})


def unpacked(runs: ExploredRuns, order: list[int]) -> tuple[Any, list[int], bytes]:
    """The header, the integers after it, and all bytes."""
    packed = job_map.pack(runs, occupancy(runs.book, WINDOW), order)
    length = int.from_bytes(packed[:4], "little")
    body = packed[4 + length :]
    return json.loads(packed[4 : 4 + length]), np.frombuffer(body, "<u4").tolist(), packed


def test_the_arrays_are_the_holdings_of_each_row() -> None:
    held = [Held(0, 0, 50, 2), Held(0, 50, 75, 2), Held(2, 25, 100, 4, node=1)]
    header, values, packed = unpacked(explored(held), [1, 0])
    step = header["step"]
    assert (header["origin"], step) == (0.0, 100 / (2**32 - 1))
    assert header["rows"] == ["v100-1-2", "v100-1-1"]
    assert (header["size"], header["unit"], header["names"]) == ([4, 4], "GPU", ["j0", "j2"])
    assert header["panels"] == [
        {"title": "A", "colors": ["#000", "#fff"], "count": 2, "down": 1, "left_out": 0}
    ]
    jobs, first, begin, end, job, gpus, row, down = np.split(
        np.array(values, np.uint32), np.cumsum([2, 3, 2, 2, 2, 2, 1])
    )
    assert jobs.tolist() == [0, 2]  # rows of the trace
    assert first.tolist() == [0, 1, 2]
    assert (begin * step).round(6).tolist() == [25, 0]
    assert (end * step).round(6).tolist() == [100, 75]
    assert job.tolist() == [1, 0]
    assert gpus.view("<f4").tolist() == [4, 2]
    assert (row.tolist(), (down * step).round(6).tolist()) == ([0], [60, 80])
    assert not header["canvas"]
    more = unpacked(explored([*held, Held(0, 80, 90, 1)]), [1, 0])
    assert len(more[1]) - len(values) == 4  # 16 bytes each
    assert more[0]["mark"] != header["mark"]
    assert unpacked(explored(held), [1, 0])[2] == packed


def test_days_and_ticks_are_texts() -> None:
    header, _, _ = unpacked(explored([Held(1, 0, 50, 2)]), [0, 1])
    assert (header["midnight"], header["days"], header["seconds"]) == (0.0, ["day 1"], True)
    assert header["ticks"][1][0].startswith("day 1")


@pytest.mark.parametrize("nodes", [2, job_map.MAX_PLOTTED + 1])
def test_a_run_without_a_placement_is_an_empty_map(nodes: int) -> None:
    header, values, _ = unpacked(explored([], nodes=nodes), list(range(nodes)))
    assert (header["names"], header["panels"][0]["count"]) == ([], 0)
    assert values[: nodes + 1] == [0] * (nodes + 1)
    assert header["canvas"] == (nodes > job_map.MAX_PLOTTED)


def test_long_names_are_cut_in_the_middle_and_unseen_characters_shown() -> None:
    name = f"train\x00{'x' * 200}"
    header, _, _ = unpacked(explored([Held(1, 0, 50, 2)], name=name), [0, 1])
    (shown,) = header["names"]
    assert shown == f"train␀xx…{'x' * 13}1"
