"""Tables and words for the Explore page, from a picture small enough to be checked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.metrics.occupancy import Occupancy
from trainyard.study.scenario import TraceSpec
from trainyard.traces.samples import SAMPLES
from trainyard.traces.sources import load_trace
from trainyard.what_if import tables


def picture(used: list[list[float]], down: list[list[float]] | None = None) -> Occupancy:
    cells = np.array(used, np.float32)
    return Occupancy(
        t_s=np.linspace(0.0, 60.0, cells.shape[1] + 1),
        rows=("big", "old-v100"),
        kinds=("a100", "v100"),
        racks=("r1", "r2"),
        size=np.array([8.0, 4.0]),
        used=cells,
        down=np.zeros_like(cells) if down is None else np.array(down, np.float32),
    )


POLICY = picture([[8, 4], [0, 2]], [[0, 0], [1, 0]])
BASE = picture([[4, 4], [4, 0]], [[0, 0.5], [0, 0]])


def test_shares_are_of_the_size_of_the_row_in_the_order_asked_for() -> None:
    used, down = tables.shares(POLICY, [1, 0])
    assert used.tolist() == [[0, 0.5], [1, 0.5]]
    assert down.tolist() == [[1, 0], [0, 0]]
    assert used.dtype == np.float32
    assert tables.in_use(POLICY) == pytest.approx((6 + 1) / 12)


def test_a_difference_is_of_the_size_and_hatched_where_either_is_down() -> None:
    used, down = tables.use_difference(POLICY, BASE, [0, 1])
    assert used.tolist() == [[0.5, 0], [-1, 0.5]]
    assert down.tolist() == [[0, 0.5], [1, 0]]
    with pytest.raises(ParameterError, match="same machines"):
        tables.use_difference(POLICY, replace(BASE, rows=("x", "y")), [0, 1])


def test_rows_are_named_by_what_tells_them_apart() -> None:
    assert tables.row_names(POLICY) == ["big · 8 × a100", "old-v100 · 4 GPUs"]
    assert tables.row_names(replace(POLICY, size=np.array([8.0, 8.0]))) == [
        "big · a100",
        "old-v100",
    ]
    assert tables.row_names(replace(POLICY, size=np.array([8.0, 8.0]), kinds=("a100", "a100"))) == [
        "big",
        "old-v100",
    ]


def test_the_table_has_means_of_the_window_per_policy() -> None:
    table = tables.rows_table({"A": POLICY, "B": BASE}, [1, 0])
    assert table["row"].tolist() == ["old-v100", "big"]
    assert table["size"].tolist() == [4, 8]
    assert table["in_use A"].tolist() == [0.25, 0.75]
    assert table["in_use B"].tolist() == [0.5, 0.5]
    assert table["down A"].tolist() == [0.5, 0]
    assert table["down B"].tolist() == [0, 0.25]


def test_nodes_have_gpus_or_else_cores() -> None:
    assert tables.node_sizes(Cluster.parse("1x8:a100,1x4:v100"))[1] == "GPU"
    assert sorted(tables.node_sizes(Cluster.parse("1x8:a100,1x4:v100"))[0].values()) == [4, 8]
    sizes, unit = tables.node_sizes(Cluster.parse("2x0:cpu/96c/384g"))
    assert (set(sizes.values()), unit) == ({96}, "core")


def test_the_busiest_instant_is_in_the_middle_of_the_step_in_which_most_wait() -> None:
    queue = pd.DataFrame(
        {"t_s": [0.0, 10, 30, 60], "waiting": [1.0, 5, 2, 9]}
    )  # the last row only closes the line
    assert tables.busiest_s(queue) == 20
    assert tables.busiest_s(queue.iloc[:1]) == 0


def test_a_job_is_found_by_its_id_letter_by_letter() -> None:
    trace = load_trace(TraceSpec(f"sample:{list(SAMPLES)[-1]}"))
    name = str(trace.frame["job_id"].iloc[3])
    assert tables.job_row(trace, name) == 3
    assert tables.job_row(trace, f"{name} ") is None


def test_time_is_idle_while_jobs_wait_and_gpus_are_up_and_free() -> None:
    always = pd.DataFrame({"t_s": [0.0, 60.0], "waiting": [3.0, 3.0]})
    # Bins of 30 s: the first row holds 8 of 8 GPUs, then 4; the second is down, then holds 2 of 4.
    assert tables.idle_while_waiting_s(POLICY, always).tolist() == [15.0, 15.0]
    second = pd.DataFrame({"t_s": [0.0, 30.0, 60.0], "waiting": [2.0, 0.0, 0.0]})
    assert tables.idle_while_waiting_s(POLICY, second).tolist() == [0.0, 0.0]
    nobody = pd.DataFrame({"t_s": [0.0], "waiting": [0.0]})
    assert tables.idle_while_waiting_s(BASE, nobody).tolist() == [0.0, 0.0]
    empty = pd.DataFrame({"t_s": np.zeros(0), "waiting": np.zeros(0)})
    assert tables.idle_while_waiting_s(BASE, empty).tolist() == [0.0, 0.0]
