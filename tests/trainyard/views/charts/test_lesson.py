from __future__ import annotations

import numpy as np
import pandas as pd

from trainyard.views.charts.sweeps import lesson_curve
from trainyard.views.charts.theme import policy_style

STYLE = policy_style(("A", "B"), "A")


def table(*numbers: float) -> pd.DataFrame:
    half = len(numbers) // 2
    return pd.DataFrame(
        {"value": [*range(half)] * 2, "policy": ["A"] * half + ["B"] * half, "number": numbers}
    )


def test_one_line_per_policy_in_minutes_from_zero() -> None:
    drawn = lesson_curve(
        {"": table(60, 120, 3600, 7200)}, STYLE, "Load (%)", "mean wait", "How long?"
    )
    assert [trace.name for trace in drawn.data] == ["A", "B"]
    assert [trace.line.dash for trace in drawn.data] == [STYLE["A"][1], STYLE["B"][1]]
    assert drawn.data[0].y.tolist() == [1, 2]
    assert drawn.layout.yaxis.title.text == "mean wait, minutes"
    assert drawn.layout.yaxis.range[0] == 0
    assert list(drawn.layout.xaxis.tickvals) == [0, 1]
    assert list(drawn.data[1].text) == ["1 h", "2 h"]


def test_a_changed_run_keeps_the_colour_and_is_dotted_with_open_marks() -> None:
    drawn = lesson_curve(
        {"first": table(1, 2, 3, 4), "more <b>": table(5, 6, 7, np.nan)}, STYLE, "x", "y"
    )
    assert [trace.name for trace in drawn.data] == [
        "A · first",
        "B · first",
        "A · more &lt;b&gt;",
        "B · more &lt;b&gt;",
    ]
    assert drawn.data[2].line.color == drawn.data[0].line.color == STYLE["A"][0]
    assert [(trace.line.dash, trace.marker.symbol) for trace in drawn.data[2:]] == [
        ("dot", "circle-open")
    ] * 2
    assert drawn.data[3].text[1] == ""


def test_nothing_known_is_an_empty_axis() -> None:
    drawn = lesson_curve({"": table(np.nan, np.nan)}, STYLE, "x", "y")
    assert drawn.layout.yaxis.range[1] > 0
