"""The jobs of one node, and the life of one job: what is drawn where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import charts
from charts.allocation import JOB_COLOURS

AXIS = charts.TimeAxis(0.0, 4 * 3600.0)
STYLE = {"A": ("#123456", "solid"), "B": ("#654321", "dash")}


def bars(count: int = 2) -> pd.DataFrame:
    at = np.arange(count)
    return pd.DataFrame({"job": at, "id": [f"<j{job}>" for job in at], "user": "", "t0": 0.0, "t1": 3600.0 * (at + 1), "gpus": at + 1, "lane": at})


def test_a_bar_is_as_long_as_the_job_was_there_and_as_high_as_its_gpus() -> None:
    figure = charts.node_jobs(bars(), (8, "GPU"), AXIS, "Which?")
    (drawn,) = figure.data
    assert (drawn.base.tolist(), drawn.x.tolist()) == ([0, 0], [1, 2])
    assert (drawn.y.tolist(), np.round(drawn.width, 6).tolist()) == ([0.5, 2.0], [0.9, 1.9])
    assert list(drawn.text) == ["&lt;j0&gt;", "&lt;j1&gt;"]
    assert drawn.hovertext[1] == "job &lt;j1&gt;<br>2 GPUs for 2 h"
    assert figure.layout.yaxis.range == (0, 8)


def test_a_job_keeps_its_colour_and_many_bars_have_no_names() -> None:
    figure = charts.node_jobs(bars(200).assign(job=9), (4, "core"), AXIS)
    (drawn,) = figure.data
    assert set(drawn.marker.color) == {9 % len(JOB_COLOURS)}
    assert drawn.text is None
    assert figure.layout.yaxis.title.text == "cores of the node"
    assert len(charts.node_jobs(bars(0), (4, "GPU"), AXIS).data) == 1


def life(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(columns)


def test_a_life_has_a_row_per_policy_and_a_height_of_gpus() -> None:
    lived = life(t0=[0.0, 3600, 5400, 7200], t1=[3600.0, 5400, 7200, 9000], state=["waiting", "paused", "running", "running"], gpus=[0, 4, 4, 2])
    figure = charts.life({"A": lived, "B": lived.iloc[:1]}, 4, STYLE, AXIS, "When?")
    drawn = [trace for trace in figure.data if trace.showlegend is False]
    assert [(trace.name, trace.yaxis) for trace in drawn] == [(state, row) for row in ("y", "y2") for state in ("waiting", "running", "paused")]
    waiting, running, paused = drawn[:3]
    assert (waiting.x.tolist(), waiting.width.tolist(), waiting.y.tolist()) == ([0], [1], [4])  # as high as what it waits for
    assert (running.x.tolist(), running.width.tolist(), running.y.tolist()) == ([1.5, 2], [0.5, 0.5], [4, 2])
    assert (paused.y.tolist(), paused.marker.pattern.shape) == ([4], "x")
    assert running.marker.color == "#123456"
    assert not running.marker.pattern.shape
    assert [trace.name for trace in figure.data if trace.showlegend is not False] == ["waiting", "running", "paused"]


def test_a_job_without_gpus_has_no_scale_of_them() -> None:
    lived = life(t0=[0.0, 60], t1=[60.0, 120], state=["waiting", "running"], gpus=[0, 0])
    figure = charts.life({"A": lived}, 0, STYLE, charts.TimeAxis(0.0, 120.0))
    assert figure.layout.yaxis.showticklabels is False
    assert [trace.y.tolist() for trace in figure.data if trace.showlegend is False] == [[1], [1], []]


def test_only_so_many_spells_are_drawn() -> None:
    at = np.arange(charts.MOST_SPELLS + 50, dtype=float)
    figure = charts.life({"A": life(t0=at, t1=at + 1, state="running", gpus=1)}, 1, STYLE, AXIS)
    assert sum(len(trace.x) for trace in figure.data if trace.showlegend is False) == charts.MOST_SPELLS
