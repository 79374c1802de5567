"""Recorded and simulated lines over time."""

from __future__ import annotations

import pandas as pd
import pytest

from trainyard.views import charts

X = charts.TimeAxis(0.0, 43_200.0)
ABOUT = charts.TwoLines("a <b>", "#1B4FD0", "#7B1885", 21_600.0)
MEDIANS = pd.DataFrame(
    {
        "from_s": [0.0, 21_600.0],
        "jobs": [3, 4],
        "recorded_s": [600.0, 1200.0],
        "simulated_s": [300.0, 1200.0],
        "low_s": [240.0, 1200.0],
        "high_s": [360.0, 1200.0],
    }
)


def test_waits_are_two_lines_in_a_unit_with_the_range_of_the_repeats() -> None:
    figure = charts.past_waits(MEDIANS, ABOUT, X, 21_600.0)
    low, high, recorded, simulated = figure.data
    assert (recorded.name, simulated.name) == ("Recorded", "a &lt;b&gt;")
    assert (recorded.line.color, simulated.line.color) == ("#7B1885", "#1B4FD0")
    assert recorded.y.tolist() == [10.0, 20.0]
    assert (low.y.tolist(), high.y.tolist()) == ([4.0, 20.0], [6.0, 20.0])
    assert figure.layout.yaxis.title.text == "median wait, minutes"
    assert simulated.text[0] == "day 1, 00:00–06:00<br>a &lt;b&gt;: 5 min, 3 jobs"
    assert [shape.x0 for shape in figure.layout.shapes] == [21_600.0]


def test_one_run_has_no_range_and_use_has_its_unit() -> None:
    alone = MEDIANS.assign(low_s=MEDIANS["simulated_s"], high_s=MEDIANS["simulated_s"])
    assert len(charts.past_waits(alone, ABOUT, X, 21_600.0).data) == 2
    use = pd.DataFrame(
        {"from_s": [0.0], "to_s": [3600.0], "recorded": [4.0], "simulated": [1234.5]}
    )
    figure = charts.past_use(use, ABOUT, X, "cores")
    assert figure.layout.title.text == "Cores in use"
    assert figure.data[1].text[0].endswith(": 1,234 cores")
    assert figure.data[1].x.tolist() == pytest.approx([1800.0])


@pytest.mark.parametrize(("judged_s", "lines"), [(0.0, 0), (1.0, 1), (43_199.0, 1), (43_200.0, 0)])
def test_where_judging_begins_is_marked_within_the_window_only(judged_s: float, lines: int) -> None:
    figure = charts.past_waits(MEDIANS, ABOUT._replace(judged_s=judged_s), X, 21_600.0)
    assert len(figure.layout.shapes) == lines
