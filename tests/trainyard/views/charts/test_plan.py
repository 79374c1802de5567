"""What a search for nodes and a sweep are drawn as: what lies where, and what is said of what is
not there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from trainyard.views import charts
from trainyard.views.charts import sweeps
from trainyard.views.charts.sweeps import unit_of, value_text

STYLE = {"A": ("#123456", "solid"), "B<b>": ("#654321", "dash")}
DELAY = charts.Amount("Delay", "s")


def readings() -> pd.DataFrame:
    rows = [
        ("A", 2, 100_000.0),
        ("A", 3, 7200.0),
        ("A", 4, 1800.0),
        ("B<b>", 2, 3600.0),
        ("B<b>", 4, 0.0),
        ("B<b>", 6, np.nan),
    ]
    table = pd.DataFrame(rows, columns=["policy", "size", "value"])
    return table.assign(
        low=table["value"] - 60.0, high=table["value"] + 60.0, holds=table["value"] <= 3600.0
    )


def named(figure: Any, name: str) -> Any:
    """The line or the marks of that name, not the edges of a band."""
    (found,) = [trace for trace in figure.data if trace.name == name and trace.mode != "lines"]
    return found


def test_the_fewest_nodes_that_hold_are_ringed_and_what_is_out_of_sight_is_marked() -> None:
    figure = charts.capacity_curve(
        readings(), STYLE, charts.SweepTarget(DELAY, 3600.0), (2, 7), "A100 nodes"
    )
    assert figure.layout.yaxis.title.text == "Delay, hours"
    assert figure.layout.yaxis.range == pytest.approx((0, 5 * 1.06))
    ring = named(figure, "fewest nodes that hold")
    assert (list(ring.x), list(ring.y)) == ([2, 4], [1.0, 0.5])
    assert list(ring.text) == ["2\u2002", "4\u2002"]
    above = named(figure, "above the chart")
    assert list(above.x) == [2]
    assert list(above.customdata) == ["A, 2: 27.8 h"]
    line = named(figure, "A")
    assert list(line.y) == pytest.approx([100_000 / 3600, 2.0, 0.5])
    assert named(figure, "B&lt;b&gt;").line.to_plotly_json() == {
        "color": "#654321",
        "dash": "dash",
        "width": 2,
    }
    (target,) = figure.layout.shapes
    assert (target.y0, target.y1) == (1.0, 1.0)
    assert [note.text for note in figure.layout.annotations] == ["target 1 h"]


def test_what_comes_nearest_is_in_sight_where_nobody_meets_the_target() -> None:
    figure = charts.capacity_curve(
        readings().assign(holds=False), STYLE, charts.SweepTarget(DELAY, 60.0), (2, 7), "nodes"
    )
    assert figure.layout.yaxis.range[1] >= 1800 / 60


def test_a_mix_shows_what_was_tried() -> None:
    table = pd.DataFrame(
        {
            "size": [1, 2],
            "second": [3, 2],
            "value": [60.0, 7200.0],
            "holds": [True, False],
            "usd_per_h": [10.0, 12.0],
        }
    )
    rows = charts.NodeRange("<a>", 0, 4), charts.NodeRange("b", 0, 4)
    figure = charts.mix_map(table, charts.SweepTarget(DELAY, 600.0), rows, (1, 3))
    assert [(list(trace.x), list(trace.y)) for trace in figure.data] == [
        ([1], [3]),
        ([2], [2]),
        ([1], [3]),
    ]
    assert figure.data[1].customdata[0] == "2 h, $12.00 per hour"
    assert figure.layout.xaxis.title.text == "&lt;a&gt; nodes"
    assert figure.layout.yaxis.range == (-0.5, 4.5)


def points(values: list[float], failed: list[int] | None = None) -> pd.DataFrame:
    count = len(values)
    x = [2.0, 1.0, 3.0][:count]
    table = pd.DataFrame(
        {
            "x": x,
            "policy": "A",
            "value": values,
            "low": values,
            "high": values,
            "failed": failed or [0] * count,
        }
    )
    return table.assign(high=table["value"] + 0.1)


def test_a_sweep_is_drawn_in_order_with_bands_and_crosses_for_what_failed() -> None:
    figure = charts.sweep_curve(
        points([0.2, 0.1, np.nan], [0, 0, 2]), STYLE, charts.Amount("Busy", "1"), "Load", (1.0, 3.0)
    )
    line, cross = named(figure, "A"), named(figure, "run failed")
    assert list(line.x) == [1.0, 2.0, 3.0]
    assert list(line.y)[:2] == pytest.approx([10.0, 20.0])
    assert line.customdata[0] == "10 % (10 % to 20 %)"
    assert (list(cross.x), list(cross.customdata)) == ([3.0], ["A: 2 runs failed"])
    assert figure.layout.yaxis.title.text == "Busy, %"
    assert figure.layout.xaxis.range == pytest.approx((0.92, 3.08))
    bands = [trace for trace in figure.data if trace.fill == "tonexty"]
    assert list(bands[0].x) == [1.0, 2.0]


def test_names_on_an_axis_stay_names_and_nothing_is_drawn_of_nothing() -> None:
    figure = charts.sweep_curve(
        points([1.0, 2.0]).assign(x=["skip", "wait"]), STYLE, charts.Amount("Count", ""), "<what>"
    )
    assert figure.layout.xaxis.type == "category"
    assert figure.layout.xaxis.title.text == "&lt;what&gt;"
    assert len(charts.sweep_curve(points([]), STYLE, DELAY, "Load").data) == 0


def test_maps_of_policies_share_their_colours() -> None:
    table = pd.DataFrame(
        {
            "x": [1, 2, 1, 2],
            "y": [1, 1, 1, 1],
            "policy": ["A", "A", "B", "B"],
            "value": [60.0, 120.0, 600.0, np.nan],
        }
    )
    first, second = (
        charts.sweep_map(table, name, DELAY, ("x", "y")).data[0] for name in ("A", "B")
    )
    assert first.type == "heatmap"
    assert (first.zmin, first.zmax) == (second.zmin, second.zmax) == (1.0, 10.0)
    assert first.text[0][0] == "1 min"
    change = charts.sweep_map(
        table.assign(value=[0.1, -0.3, 0.0, 0.2]),
        "A",
        charts.Amount("Delay", "s", True),
        ("x", "y"),
    ).data[0]
    assert (change.zmin, change.zmax) == pytest.approx((-30.0, 30.0))
    assert change.text[0][1] == "−30 %"


def test_draws_at_random_are_dots() -> None:
    at = np.arange(5.0)
    table = pd.DataFrame({"x": at, "y": at[::-1], "policy": "A", "value": at})
    (drawn,) = charts.sweep_map(table, "A", charts.Amount("Cost", "USD"), ("x", "y")).data
    assert (drawn.type, drawn.mode, list(drawn.x)) == ("scatter", "markers", at.tolist())
    assert drawn.customdata[4] == "$4.00"


def test_units_suit_the_largest_value() -> None:
    assert [unit_of("s", top)[1] for top in (0.0, 90.0, 91.0, 7200.0, 7201.0, 1e6)] == [
        "seconds",
        "seconds",
        "minutes",
        "minutes",
        "hours",
        "days",
    ]
    assert unit_of("1", 0.4) == (0.01, "%")
    assert value_text(DELAY, float("nan")) == "no figure"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1800.0, 7200.0, "1 h (30 min to 2 h)"),
        (3600.0, 3600.0, "1 h"),
        (np.nan, np.nan, "1 h"),
        (1800.0, np.inf, "1 h"),
    ],
)
def test_a_label_has_an_interval_where_its_ends_differ(low: float, high: float, text: str) -> None:
    assert sweeps._hover_text(DELAY, (3600.0, low, high)) == text
