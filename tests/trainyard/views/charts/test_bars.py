"""The jobs of one node, and the life of one job: what is drawn where."""

from __future__ import annotations

import numpy as np
import pandas as pd

from trainyard.views import charts
from trainyard.views.charts.theme import JOB_COLOURS

AXIS = charts.TimeAxis(0.0, 4 * 3600.0)
STYLE = {"A": ("#123456", "solid"), "B": ("#654321", "dash")}


def bars(count: int = 2) -> pd.DataFrame:
    at = np.arange(count)
    return pd.DataFrame(
        {
            "job": at,
            "id": [f"<j{job}>" for job in at],
            "user": "",
            "t0": 0.0,
            "t1": 3600.0 * (at + 1),
            "gpus": at + 1,
            "lane": at,
        }
    )


def test_a_bar_is_as_long_as_the_job_was_there_and_as_high_as_its_gpus() -> None:
    figure = charts.node_jobs(bars(), (8, "GPU"), AXIS, "Which?")
    (drawn,) = figure.data
    assert (drawn.base.tolist(), drawn.x.tolist()) == ([0, 0], [3600, 7200])
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
