"""Believed sizes, and cores and memory: what is drawn where."""

from __future__ import annotations

import numpy as np
import pandas as pd

from trainyard.views import charts

STYLE = {"A": ("#123456", "solid"), "B": ("#654321", "dash")}


def test_predictions_have_a_diagonal_and_its_double_and_half_within_the_axes() -> None:
    points = pd.DataFrame(
        {"job_id": ["a", "<b>"], "ideal_s": [10.0, 1000.0], "believed_s": [40.0, 100.0]}
    )
    figure = charts.predictions(points, "#123456", "How well?")
    assert {trace.type for trace in figure.data} == {"scatter"}  # no WebGL
    *lines, marks = figure.data
    low, high = 10 / 1.2, 1000 * 1.2
    for line, factor in zip(lines, (1, 2, 0.5), strict=True):
        assert np.allclose(np.array(line.y) / line.x, factor)
        assert low * 0.999 <= min(*line.x, *line.y)
        assert max(*line.x, *line.y) <= high * 1.001
    assert [line.name for line in lines if line.showlegend] == [
        "exact",
        "twice or half of it",
    ]
    assert (list(marks.x), list(marks.y)) == ([10, 1000], [40, 100])
    assert marks.text[1] == "job &lt;b&gt;: estimated 1.7 min, true 17 min"
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert figure.layout.xaxis.range == figure.layout.yaxis.range
    assert len(charts.predictions(points.iloc[:0], "#123456").data) == 4


def test_resources_have_a_row_per_policy_with_used_held_and_there() -> None:
    frame = pd.DataFrame(
        {
            "t_s": [0.0, 60, 120],
            "held_cpus": [4.0, 8, 8],
            "used_cpus": [1.0, 2, 2],
            "there_cpus": [16.0, 16, 16],
        }
    )
    frames = {"A": frame, "B": frame.drop(columns="there_cpus")}
    figure = charts.resources(
        frames, STYLE, ("cpus", "cores"), charts.TimeAxis(0.0, 120.0), "Cores"
    )
    drawn = [trace for trace in figure.data if trace.x[0] is not None]
    assert [trace.name for trace in drawn] == [
        "used A",
        "held A",
        "there A",
        "used B",
        "held B",
        "",
    ]
    assert [trace.yaxis for trace in drawn] == ["y", "y", "y", "y2", "y2", "y"]
    assert [list(trace.y) for trace in drawn[:3]] == [[1, 2, 2], [4, 8, 8], [16, 16, 16]]
    assert [trace.line.color for trace in drawn if trace.name.startswith("held")] == [
        "#123456",
        "#654321",
    ]
    assert [trace.name for trace in figure.data if trace.showlegend is not False] == [
        "used",
        "held",
        "there",
    ]
    unknown = charts.resources(
        {"B": frames["B"]}, STYLE, ("cpus", "cores"), charts.TimeAxis(0.0, 120.0)
    )
    assert "there" not in [trace.name for trace in unknown.data]
