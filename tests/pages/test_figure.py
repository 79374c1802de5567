"""Tables of durations: numbers of one unit per column, whatever the page."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from trainyard.formatting import common_unit
from ui import figure

NAN = math.nan


@pytest.mark.parametrize(
    ("seconds", "unit"),
    [
        ([9.9 * 3600, 9.8 * 60, 8.4 * 3600], (3600.0, "h")),  # on average 6.2 h
        ([3 * 3600.0, 600.0, 300.0, 60.0, 60.0], (60.0, "min")),  # on average 39 min
        # The largest come first in a table: 58 h is no number of minutes.
        ([58 * 3600.0, 3600.0, 3600.0], (3600.0, "h")),  # on average 20 h
        ([0.0, 0.0, 12.0], (1.0, "s")),  # what does not wait does not count
        ([-3 * 86_400.0, 3 * 86_400.0], (86_400.0, "days")),
        ([NAN, math.inf, 100.0], (60.0, "min")),
        ([], (1.0, "s")),
    ],
)
def test_the_unit_of_a_column_suits_the_mean(seconds: list[float], unit: tuple[float, str]) -> None:
    assert common_unit(seconds) == unit


def test_columns_of_seconds_become_numbers_of_one_unit() -> None:
    rows = pd.DataFrame(
        {
            "Job": ["a", "b", "c"],
            "Wait (s)": [9.9 * 3600, 9.8 * 60, 8.4 * 3600],
            "Difference (s)": [-1800.0, 900.0, NAN],
            "Pause (s)": [-60.0, 120.0, NAN],
            "Name (s)": ["x", "y", "z"],
        }
    )
    shown, formats = figure.in_units(rows)
    assert list(shown) == ["Job", "Wait (h)", "Difference (h)", "Pause (min)", "Name (s)"]
    assert shown["Wait (h)"].tolist() == pytest.approx([9.9, 9.8 / 60, 8.4])
    # The mean of a difference is minutes, but it is read beside the hours that it is one of.
    assert shown["Difference (h)"].tolist()[:2] == [-0.5, 0.25]
    assert shown["Pause (min)"].tolist()[:2] == [-1.0, 2.0]
    # Sorted as times: 9.8 min before 8.4 h before 9.9 h.
    assert shown.sort_values("Wait (h)")["Job"].tolist() == ["b", "c", "a"]
    assert {name: one["type_config"]["format"] for name, one in formats.items()} == {
        "Wait (h)": "%.2f",
        "Difference (h)": "%+.2f",
        "Pause (min)": "%+.1f",
    }
