from __future__ import annotations

import json
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.study.study import SLOTS
from trainyard.views.charts import (
    darken_figure,
    image_config,
    policy_colours,
    policy_style,
    type_style,
)
from trainyard.views.charts.axes import TimeAxis, duration_text, duration_unit, log_duration
from trainyard.views.charts.sweeps import Amount, sweep_map
from trainyard.views.charts.theme import (
    AMBER,
    BASELINE_COLOUR,
    BETTER,
    DARK,
    DIVERGING,
    NEUTRAL,
    POLICY_COLOURS,
    PRINTED,
    SEQUENTIAL,
    TEXT,
    TYPE_COLOURS,
    WORSE,
    enlarge_figure,
    figure,
    legend_px,
    with_opacity,
    wrap_title,
)
from trainyard.views.metric_table import swatch

SIX = ["fifo", "sjf", "easy", "srtf", "las", "recorded"]


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_baseline_is_grey_and_every_line_is_solid_on_a_screen() -> None:
    style = policy_style(SIX, "fifo")
    assert style["fifo"] == (BASELINE_COLOUR, "solid")
    assert [style[label] for label in SIX[1:]] == [(one, "solid") for one in POLICY_COLOURS[:5]]


def test_a_colour_is_that_of_the_slot() -> None:
    slots = (2, 5, 1, 3, 3, 4)
    colours = policy_colours(SIX, "easy", slots)
    assert [colours[name] for name in SIX] == [
        POLICY_COLOURS[1],
        POLICY_COLOURS[4],
        BASELINE_COLOUR,
        POLICY_COLOURS[2],
        POLICY_COLOURS[2],
        POLICY_COLOURS[3],
    ]
    dark = policy_colours(SIX, "easy", slots, dark=True)
    assert dark == {name: DARK[colour] for name, colour in colours.items()}


def test_another_baseline_recolours_two_policies_only() -> None:
    slots = (5, 3, 1, 2, 4, 1)
    first, second = policy_colours(SIX, "fifo", slots), policy_colours(SIX, "srtf", slots)
    assert {label for label in SIX if first[label] != second[label]} == {"fifo", "srtf"}


def test_a_figure_of_the_dark_theme_differs_in_its_colours_only() -> None:
    x = np.arange(3.0)
    line = {"type": "scatter", "x": x, "line": {"color": POLICY_COLOURS[1]}}
    made = figure(
        [line | {"fillcolor": with_opacity(POLICY_COLOURS[0], 0.2)}],
        f"<b style='{BETTER}'>a</b>",
        100,
    )
    before = made.to_dict()
    dark = darken_figure(made).to_dict()
    assert dark["data"][0]["x"] == before["data"][0]["x"]
    assert dark["data"][0]["line"]["color"] == DARK[POLICY_COLOURS[1]]
    assert dark["data"][0]["fillcolor"] == "rgba(77, 134, 255, 0.2)"
    assert DARK[BETTER] in dark["layout"]["title"]["text"]
    assert made.to_dict()["layout"] == before["layout"]
    assert not {colour for colour in DARK if colour in json.dumps(dark["layout"], default=str)}


def test_types_and_policies_share_no_colour() -> None:
    assert not set(TYPE_COLOURS) & {*POLICY_COLOURS, BASELINE_COLOUR}
    style = type_style(["v100", "", "t4"])
    assert (style["v100"], style["t4"]) == TYPE_COLOURS[:2]
    assert style[""] == NEUTRAL


GROUNDS = {False: "#FFFFFF", True: "#10161D"}
LINES = [BASELINE_COLOUR, *POLICY_COLOURS]
SHIFTS = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
"""Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB."""


def linear(colour: str) -> Any:
    rgb = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: Any) -> Any:
    xyz = (
        np.array(
            [
                [0.4124564, 0.3575761, 0.1804375],
                [0.2126729, 0.7151522, 0.0721750],
                [0.0193339, 0.1191920, 0.9503041],
            ]
        )
        @ np.clip(rgb, 0, 1)
        / [0.95047, 1.0, 1.08883]
    )
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("sight", [*SHIFTS])
def test_colours_of_policies_differ_for_every_eye(sight: str, dark: bool) -> None:
    """Of twelve colors some are close with color blindness; their lines are named."""
    own = [linear(DARK[colour] if dark else colour) for colour in LINES]
    seen = [lab(SHIFTS[sight] @ one) for one in own]
    for count, least in ((6, 20), (12, 29 if sight == "normal" else 15.9)):
        assert min(np.linalg.norm(a - b) for a, b in combinations(seen[:count], 2)) >= least


def test_every_colour_has_its_own_dash_in_print() -> None:
    assert len(set(PRINTED.values())) == len(POLICY_COLOURS) == SLOTS
    # Drawn and free in turn, and at least two pixels each.
    assert all(len(one.split(",")) % 2 == 0 for one in PRINTED.values())
    red = swatch("#DC1546", PRINTED["#DC1546"])
    assert "#DC1546 0px 5px, transparent 5px 7px)" in red


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("colour", [*LINES, TEXT, NEUTRAL, BETTER, WORSE, AMBER])
def test_names_and_texts_can_be_read(colour: str, dark: bool) -> None:
    assert contrast(DARK[colour] if dark else colour, GROUNDS[dark]) >= 4.5


def test_small_things() -> None:
    assert with_opacity("#0072B2", 0.25) == "rgba(0, 114, 178, 0.25)"
    assert image_config("compare")["toImageButtonOptions"] == {
        "format": "png",
        "scale": 2,
        "filename": "compare",
    }
    assert wrap_title("") == ("", 0)
    assert wrap_title("word " * 30)[0].count("<br>") == 1
    assert legend_px([]) == 0
    assert legend_px(["fifo", "sjf"]) == 24
    assert legend_px(["a rather long label"] * 6) == 48


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.25 s"),
        (45, "45 s"),
        (60, "1 min"),
        (5400, "1.5 h"),
        (3600, "1 h"),
        (86_400, "1 day"),
        (599.9, "10 min"),
        (86_400 * 4000, "4,000 days"),
    ],
)
def test_durations_are_told_as_a_person_would(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_an_axis_of_days_is_labelled_at_midnight() -> None:
    layout = TimeAxis(0, 8.5 * 86_400).layout()
    assert layout["range"] == [0, 8.5 * 86_400]
    assert layout["tickvals"] == [day * 86_400 for day in range(9)]
    assert layout["ticktext"] == [f"day {day + 1}" for day in range(9)]


def test_an_axis_of_hours_has_the_day_at_midnight_and_at_its_begin() -> None:
    layout = TimeAxis(4 * 86_400 + 24_000, 6 * 86_400 + 80_000).layout()
    assert layout["ticktext"] == [
        *("12:00<br>day 5", "day 6", "12:00", "day 7", "12:00"),
    ]


def test_the_axis_of_a_calendar_is_labelled_at_its_midnights() -> None:
    axis = TimeAxis(0, 2 * 86_400, "2024-01-06T18:00:00+08:00")
    assert axis.layout()["tickvals"][:2] == [0, 21_600]
    assert axis.layout()["ticktext"][:2] == ["18:00<br>Sat 6 Jan", "Sun 7 Jan"]
    assert axis.heading(np.array([37_800.0]))["text"] == ["Sun 7 Jan, 04:30"]


@given(st.floats(0, 1e9), st.floats(1e-3, 1e9))
def test_no_axis_has_more_labels_than_fit(begin: float, span: float) -> None:
    layout = TimeAxis(begin, begin + span).layout()
    assert len(layout["tickvals"]) <= 11
    assert len(layout["ticktext"]) == len(layout["tickvals"])


def test_a_place_on_the_axis_is_in_seconds() -> None:
    assert TimeAxis(0, 10).place(np.array([0.0, 7200.0])).tolist() == [0, 7200]


@pytest.mark.parametrize(
    ("longest", "unit"),
    [(3600, (60, "minutes")), (86_400, (3600, "hours")), (1e7, (86_400, "days"))],
)
def test_the_unit_of_durations_follows_the_longest(longest: float, unit: object) -> None:
    assert duration_unit(longest) == unit


def test_log_axes_are_labelled_in_words() -> None:
    wide = log_duration(1, 10 * 86_400)
    assert wide["ticktext"] == ["1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 day", "7 days"]
    assert wide["range"] == pytest.approx([0, np.log10(864_000)])
    assert log_duration(3.8 * 3600, 9.9 * 3600)["ticktext"] == ["4 h", "5 h", "6 h", "7 h", "8 h"]
    assert len(log_duration(100, 101)["tickvals"]) == 4
    assert log_duration(50, 50)["range"][1] > log_duration(50, 50)["range"][0]
    assert np.isfinite(log_duration(0, 0)["range"]).all()


def test_marks_of_a_log_axis_stand_apart() -> None:
    assert log_duration(20 * 60, 9 * 3600)["ticktext"] == [
        "20 min",
        "30 min",
        "1 h",
        "2 h",
        "3 h",
        "5 h",
        "7 h",
    ]


def test_a_figure_for_a_projector_has_larger_type_and_the_same_data() -> None:
    made = figure(
        [{"type": "scatter", "x": np.arange(3.0), "line": {"width": 2}}],
        "Title",
        100,
        xaxis={"range": [0, 2]},
    )
    large, usual = enlarge_figure(made, 1.5).to_dict(), made.to_dict()
    assert large["layout"]["font"]["size"] == 1.5 * usual["layout"]["font"]["size"]
    assert large["layout"]["xaxis"]["tickfont"]["size"] == 21
    assert large["layout"]["xaxis"]["range"] == [0, 2]
    assert large["data"][0]["line"]["width"] == 3
    assert large["data"][0]["x"] == usual["data"][0]["x"]


@pytest.mark.parametrize("scale", [SEQUENTIAL, DIVERGING])
def test_text_is_legible_on_every_colour_of_a_scale(scale: tuple[tuple[float, str], ...]) -> None:
    for theme in ({}, DARK):
        text, *ends = (theme.get(colour, colour) for colour in (TEXT, *(one[1] for one in scale)))
        for low, high in pairwise(ends):
            assert contrast(low, high) >= 2
            for share in np.linspace(0.0, 1.0, 21):
                channels = [
                    round(
                        (1 - share) * int(low[at : at + 2], 16) + share * int(high[at : at + 2], 16)
                    )
                    for at in (1, 3, 5)
                ]
                assert contrast(text, "#" + "".join(f"{one:02X}" for one in channels)) >= 4.5


def test_a_map_has_the_scale_and_the_text_of_the_theme() -> None:
    table = pd.DataFrame({"x": [1, 2], "y": [1, 1], "policy": "A", "value": [60.0, 120.0]})
    shown = darken_figure(sweep_map(table, "A", Amount("Delay", "s"), ("x", "y"))).to_dict()[
        "data"
    ][0]
    assert [colour for _, colour in shown["colorscale"]] == [DARK[one] for _, one in SEQUENTIAL]
    assert shown["textfont"]["color"] == DARK[TEXT]
