from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest

from trainyard.labs.replays.reading import load, names
from trainyard.views import charts
from trainyard.views.charts import PublishedClaim
from trainyard.views.charts.replay import LINES, MEASURES, PUBLISHED
from trainyard.views.charts.theme import BASELINE_COLOUR, POLICY_COLOURS


def curve(scale: float = 1.0) -> pd.DataFrame:
    rows = [
        (load, name, level * 0.9, level, level * 1.2, 20)
        for name, base in (("queue", 0.6), ("jct", 0.9))
        for load, level in zip((2.0, 1.0), (base * scale, base), strict=True)
    ]
    return pd.DataFrame(rows, columns=["value", "measure", "low", "estimate", "high", "seeds"])


def test_every_measure_is_a_line_with_its_band_in_order_of_the_axis() -> None:
    figure = charts.ratio_curve(
        curve(), "load", PublishedClaim(1.0, 0.68, 0.55, 0.85), value="MIP over greedy"
    )
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]
    assert [(line.name, line.line.color, line.line.dash, line.marker.symbol) for line in lines] == [
        ("queue", *MEASURES[0]),
        ("jct", *MEASURES[1]),
    ]
    assert lines[0].x.tolist() == [1, 2]
    assert lines[0].customdata[0] == "(0.54 to 0.72, 20 seeds)"
    edges = [trace for trace in figure.data if trace.fill == "tonexty"]
    assert edges[0].y.tolist() == pytest.approx([0.72, 0.72])
    star = next(trace for trace in figure.data if trace.name == "published")
    assert (star.x[0], star.y[0], star.marker.symbol) == (1.0, 0.68, "star")
    band, even = figure.layout.shapes
    assert (band.y0, band.y1) == (0.55, 0.85)
    assert (even.y0, even.y1) == (1, 1)
    assert figure.layout.yaxis.type is None
    low, high = figure.layout.yaxis.range
    assert low < 0.54
    assert high > 1.08


def test_what_is_computed_is_a_dashed_line_without_marks_and_takes_no_colour_of_a_result() -> None:
    table = pd.concat(
        [
            curve().assign(measure=lambda rows: "bound of " + rows["measure"], computed=True),
            curve().assign(computed=False),
        ]
    )
    figure = charts.ratio_curve(table, "load")
    lines = [
        trace
        for trace in figure.data
        if trace.mode == "lines"
        and trace.showlegend is not False
        and str(trace.name).startswith("bound")
    ]
    assert [(line.name, line.line.color, line.line.dash) for line in lines] == [
        ("bound of queue", *LINES[0]),
        ("bound of jct", *LINES[1]),
    ]
    assert lines[0].x.tolist() == [1, 2]
    assert "(computed)" in lines[0].hovertemplate
    results = [trace for trace in figure.data if trace.mode == "lines+markers"]
    assert [line.line.color for line in results] == [MEASURES[0][0], MEASURES[1][0]]
    assert len([trace for trace in figure.data if trace.fill == "tonexty"]) == 2


def test_a_band_without_a_high_end_reaches_the_edge() -> None:
    for row in (
        ROWS[0] | {"band": [0.6, None]},
        ROWS[0] | {"band": [0.6, None], "published": 10.0},
    ):
        figure = charts.published_vs_simulated([row])
        end = figure.layout.xaxis.range[1]
        band = next(trace for trace in figure.data if trace.name == "expected band")
        assert band.x.tolist()[:2] == pytest.approx(
            [0.6, 10**end if figure.layout.xaxis.type == "log" else end]
        )


@pytest.mark.parametrize("name", names())
def test_no_two_lines_of_a_shipped_replay_look_alike(name: str) -> None:
    replay = load(name)
    for axis in replay.axes:
        kinds = Counter(
            (measure.metric, measure.kind, replay.is_line(measure)) for measure in axis.measures
        )
        assert all(
            count <= len(LINES if computed else MEASURES)
            for (_, _, computed), count in kinds.items()
        )
    assert (
        len({look[0] for look in (*MEASURES, *LINES)})
        == len({look[1:] for look in MEASURES}) + len(LINES)
        == len(MEASURES) + len(LINES)
    )


def test_ratios_over_a_wide_range_are_logarithmic() -> None:
    figure = charts.ratio_curve(curve(40.0), "load", PublishedClaim(low=4, high=20))
    assert figure.layout.yaxis.type == "log"
    assert {"1", "10", "20"} <= set(figure.layout.yaxis.ticktext)
    assert [trace.name for trace in figure.data if trace.showlegend is not False] == [
        "queue",
        "jct",
        "expected band",
        "no difference",
    ]


def test_differences_are_never_logarithmic_and_even_at_nothing() -> None:
    figure = charts.ratio_curve(curve(40.0), "load", even=0.0)
    assert figure.layout.yaxis.type is None
    (even,) = figure.layout.shapes
    assert (even.y0, even.y1) == (0, 0)


def test_what_is_not_to_be_had_is_a_gap() -> None:
    table = curve()
    table.loc[0, ["low", "estimate", "high"]] = np.nan
    figure = charts.ratio_curve(table, "load")
    line = next(trace for trace in figure.data if trace.mode == "lines+markers")
    assert math.isnan(line.y[1])
    assert line.customdata[1] == "(20 seeds)"
    assert len(next(trace for trace in figure.data if trace.fill == "tonexty").y) == 1
    assert np.isfinite(charts.ratio_curve(table.iloc[:0], "load").layout.yaxis.range).all()


ROWS: list[dict[str, Any]] = [
    {
        "metric": "queueing time, MIP over greedy",
        "published": 0.68,
        "simulated": 0.72,
        "ci95": [0.66, 0.79],
        "band": [0.6, 0.85],
        "seeds": 20,
    },
    {"metric": "decision time", "published": None, "simulated": 0.9, "ci95": None, "band": None},
    {"metric": "gone", "published": 0.5, "simulated": None, "ci95": [None, None], "band": None},
]


def test_published_and_simulated_beside_each_other() -> None:
    figure = charts.published_vs_simulated(ROWS, "huawei")
    found = {trace.name: trace for trace in figure.data}
    assert list(found) == [
        "expected band",
        "95 % interval",
        "simulated",
        "published",
        "no difference",
    ]
    assert found["expected band"].x.tolist()[:2] == [0.6, 0.85]
    assert found["95 % interval"].x.tolist()[:2] == [0.66, 0.79]
    assert found["simulated"].x.tolist()[:2] == [0.72, 0.9]
    assert math.isnan(found["simulated"].x[2])
    assert math.isnan(found["published"].x[1])
    assert found["published"].y.tolist() == [0, 1, 2]
    assert figure.layout.yaxis.ticktext == (
        "queueing time, MIP over<br>greedy",
        "decision time",
        "gone",
    )
    assert figure.layout.yaxis.range == (2.5, -0.5)
    assert figure.layout.xaxis.type is None
    assert figure.layout.shapes[0].x0 == 1


def test_rows_are_as_high_as_the_longest_label() -> None:
    label = "Mean completion time of the jobs completed, elastic / largest batch, at 2.5 jobs/min"
    long = charts.published_vs_simulated([ROWS[0] | {"metric": label}, ROWS[0]])
    lines = long.layout.yaxis.ticktext[0].count("<br>") + 1
    assert lines == 4
    short = charts.published_vs_simulated([ROWS[0], ROWS[0]])
    room = [
        figure.layout.height - figure.layout.margin.t - figure.layout.margin.b
        for figure in (long, short)
    ]
    assert room[0] / 2 > lines * 18.2
    assert room[0] - room[1] >= 2 * 30


def test_the_axis_of_a_curve_is_marked_where_its_slider_stops() -> None:
    axis = charts.ratio_curve(curve(), "load").layout.xaxis
    assert (list(axis.tickvals), axis.ticktext, axis.type) == ([1, 2], ("1", "2"), None)
    wide = pd.concat([curve().assign(value=value) for value in (0.625, 2.5, 10.0)])
    axis = charts.ratio_curve(wide, "network").layout.xaxis
    assert (axis.ticktext, axis.type) == (("0.625", "2.5", "10"), "log")
    many = pd.concat([curve().assign(value=float(value)) for value in range(20)])
    assert charts.ratio_curve(many, "seed").layout.xaxis.tickvals is None


def test_tenfold_figures_are_logarithmic() -> None:
    figure = charts.published_vs_simulated([ROWS[0] | {"published": 10.0, "band": [4, 20]}])
    assert figure.layout.xaxis.type == "log"
    names = [trace.name for trace in charts.published_vs_simulated(ROWS[1:2]).data]
    assert names == ["simulated", "no difference"]


def test_names_are_no_markup_and_colours_no_policys() -> None:
    figure = charts.published_vs_simulated([ROWS[0] | {"metric": "<b>a & b"}])
    assert figure.layout.yaxis.ticktext == ("&lt;b&gt;a &amp; b",)
    assert not {PUBLISHED, *(look[0] for look in (*MEASURES, *LINES))} & {
        *POLICY_COLOURS,
        BASELINE_COLOUR,
    }
