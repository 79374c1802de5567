"""What a search for nodes and a sweep are drawn as: what lies where, and what is said of what is
not there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from trainyard.views import charts
from trainyard.views import sweeps as views
from trainyard.views.charts import sweeps
from trainyard.views.charts.sweeps import unit_of, value_text

STYLE = {"A": ("#123456", "solid"), "B<b>": ("#654321", "dash")}
DELAY = charts.Amount("Delay", "s")


def purchases() -> pd.DataFrame:
    """Return four purchases of A and one of B; the second of A is the cheapest below 1 h."""
    rows = [
        ("A", 0.0, 36_000.0, "0,0", "what you own", True, False, False),
        ("A", 20_000.0, 3600.0, "0,9", "9 T4", True, True, False),
        ("A", 30_000.0, 14_400.0, "1,0", "1 A100", False, False, False),
        ("A", 90_000.0, 3600.0, "5,0", "5 A100", False, False, True),
        ("B<b>", 0.0, 0.0, "0,0", "buy nothing", True, True, False),
    ]
    columns = ["policy", "x", "value", "mix", "name"]
    flags = ["is_best_for_money", "is_cheapest", "is_alone"]
    return pd.DataFrame(rows, columns=[*columns, *flags]).assign(text=lambda one: one["name"])


def named(figure: Any, name: str) -> Any:
    """The line or the marks of that name, not the edges of a band."""
    (found,) = [trace for trace in figure.data if trace.name == name and trace.mode != "lines"]
    return found


def drawn_purchases(limit_s: float = 3600.0) -> Any:
    target = charts.SweepTarget(DELAY, limit_s)
    return charts.purchase_chart(purchases(), STYLE, target, "extra cost a month", "Waits")


def test_purchases_are_a_step_line_dots_a_ring_and_a_diamond() -> None:
    figure = drawn_purchases()
    line, dots, best, diamond, ring = figure.data[:5]
    assert (line.line.shape, list(line.x)[:2]) == ("hv", [0.0, 20_000.0])
    assert list(line.y) == pytest.approx([36_000**0.5, 60.0, 60.0])
    assert list(dots.x) == [30_000.0, 90_000.0]
    assert list(best.x) == [0.0, 20_000.0]
    assert (diamond.marker.symbol, list(diamond.x)) == ("diamond-open", [90_000.0])
    assert (ring.marker.symbol, list(ring.x)) == ("circle-open", [20_000.0])
    assert [mix for mix, _ in ring.customdata] == ["0,9"]
    (target,) = [shape for shape in figure.layout.shapes if shape.line.dash == "dash"]
    assert target.y0 == pytest.approx(60.0)


def test_the_axis_of_waits_is_a_square_root_with_round_times() -> None:
    axis = drawn_purchases().layout.yaxis
    assert list(axis.ticktext) == ["0", "15 min", "1 h", "2 h", "4 h", "6 h", "10 h"]
    assert list(axis.tickvals) == pytest.approx(
        [0, 30, 60, 7200**0.5, 120, 21_600**0.5, 36_000**0.5]
    )
    share = charts.SweepTarget(charts.Amount("Busy", "1"), 0.9, lower=False)
    table = purchases().assign(value=0.5)
    linear = charts.purchase_chart(table, STYLE, share, "extra nodes").layout
    assert list(linear.yaxis.ticktext) == ["0 %", "22.5 %", "45 %", "67.5 %", "90 %"]
    assert linear.xaxis.tickprefix is None


def test_names_are_at_the_ends_of_lines_in_any_order_of_purchases() -> None:
    target = charts.SweepTarget(DELAY, 3600.0)
    mixed = purchases().iloc[[3, 1, 4, 0, 2]]
    figures = [
        charts.purchase_chart(table, STYLE, target, "extra cost").layout.annotations
        for table in (purchases(), mixed)
    ]
    ends = [{note.text: note.y for note in notes if note.xref == "paper"} for notes in figures]
    assert ends[0] == ends[1] != {}


def test_rings_are_always_named_and_others_where_free() -> None:
    notes = {note.text: note for note in drawn_purchases().layout.annotations}
    assert {"<b>A: 9 T4</b>", "<b>B&lt;b&gt;: buy nothing</b>"} <= notes.keys()
    assert {"A: 5 A100", "what you own", "target: 1 h"} <= notes.keys()
    assert "1 A100" not in notes
    crowded = pd.concat([purchases()] * 12, ignore_index=True)
    crowded["x"] += np.arange(len(crowded))
    target = charts.SweepTarget(DELAY, 3600.0)
    texts = [
        note.text
        for note in charts.purchase_chart(crowded, STYLE, target, "extra nodes").layout.annotations
    ]
    assert texts.count("<b>A: 9 T4</b>") == 12
    assert texts.count("what you own") < 12


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


def test_the_best_for_the_money_is_cheaper_than_all_as_good() -> None:
    table = pd.DataFrame(
        {
            "policy": ["A", "A", "A", "A", "B"],
            "x": [2.0, 1.0, 3.0, 0.0, 9.0],
            "value": [5.0, 7.0, 5.0, 1.0, 8.0],
            "completed": [1.0, 1.0, 1.0, 0.5, 1.0],
        }
    )
    assert views.best_for_money(table, lower=True).tolist() == [True, True, False, False, True]
    assert views.best_for_money(table, lower=False).tolist() == [False, True, False, False, True]
