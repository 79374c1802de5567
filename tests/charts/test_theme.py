from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from charts import image_config, policy_style, type_style
from charts.axes import TimeAxis, duration_text, log_duration
from charts.theme import BASELINE_COLOUR, DASHES, POLICY_COLOURS, TYPE_COLOURS, faded, legend_px, wrapped
from trainyard.text import duration

SIX = ["fifo", "sjf", "easy", "srtf", "las", "recorded"]


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_baseline_is_grey_and_solid_and_the_others_follow_okabe_and_ito() -> None:
    style = policy_style(SIX, "fifo")
    assert style["fifo"] == (BASELINE_COLOUR, "solid")
    assert [style[label][0] for label in SIX[1:]] == list(POLICY_COLOURS[:5])
    assert [style[label][1] for label in SIX[1:]] == list(DASHES[1:])


def test_another_baseline_recolours_two_policies_only() -> None:
    first, second = policy_style(SIX, "fifo"), policy_style(SIX, "srtf")
    assert {label for label in SIX if first[label] != second[label]} == {"fifo", "srtf"}
    assert len(set(second.values())) == len(SIX)


def test_another_policy_at_the_end_recolours_nobody() -> None:
    assert policy_style([*SIX, "new"], "fifo").items() >= policy_style(SIX, "fifo").items()


def test_thirty_six_policies_differ() -> None:
    labels = [str(at) for at in range(36)]
    assert len(set(policy_style(labels, "0").values())) == 36
    assert len(set(policy_style(labels, "").values())) == 36


def test_types_and_policies_share_no_colour() -> None:
    assert not set(TYPE_COLOURS) & {*POLICY_COLOURS, BASELINE_COLOUR}
    style = type_style(["v100", "", "t4"])
    assert (style["v100"], style["t4"]) == TYPE_COLOURS[:2]
    assert style[""] == BASELINE_COLOUR


@pytest.mark.parametrize("colour", [BASELINE_COLOUR, *POLICY_COLOURS])
@pytest.mark.parametrize("ground", ["#FFFFFF", "#0E1117"])
def test_lines_are_visible_in_light_and_dark(colour: str, ground: str) -> None:
    assert contrast(colour, ground) >= 2.2


def test_grey_text_is_readable_in_light_and_dark() -> None:
    assert contrast(BASELINE_COLOUR, "#FFFFFF") >= 3.5
    assert contrast(BASELINE_COLOUR, "#0E1117") >= 4.5


def test_small_things() -> None:
    assert faded("#0072B2", 0.25) == "rgba(0, 114, 178, 0.25)"
    assert image_config("compare")["toImageButtonOptions"] == {"format": "png", "scale": 2, "filename": "compare"}
    assert wrapped("") == ("", 0)
    assert wrapped("word " * 30)[0].count("<br>") == 1
    assert legend_px([]) == 0
    assert legend_px(["fifo", "sjf"]) == 24
    assert legend_px(["a rather long label"] * 6) == 48


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (45, "45 s"), (60, "1 min"), (5400, "1.5 h"), (3600, "1 h"), (86_400, "1 day"), (599.9, "10 min"), (86_400 * 4000, "4,000 days")],
)
def test_durations_are_told_as_a_person_would(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@given(st.floats(0, 1e9))
def test_charts_and_tables_tell_durations_alike(seconds: float) -> None:
    assert duration_text(seconds) == duration(seconds)


@pytest.mark.parametrize(("span", "unit", "place"), [(3600, "minutes", 60), (3 * 86_400, "hours", 3600), (30 * 86_400, "days", 86_400)])
def test_the_unit_follows_the_span(span: float, unit: str, place: float) -> None:
    axis = TimeAxis(0, span)
    assert axis.unit == (place, unit)
    assert axis.layout()["range"] == [0, span / place]
    assert axis.layout()["title"]["text"] == f"{unit} since the first submission"
    assert axis.place(np.array([0.0, 2.0 * place])).tolist() == [0, 2]


def test_the_calendar_is_in_milliseconds_of_the_wall_clock() -> None:
    axis = TimeAxis(0, 3600, "1970-01-02T00:00:00+08:00")
    assert axis.layout() == {"type": "date", "range": [86_400_000.0, 86_400_000.0 + 3_600_000]}
    assert axis.place(np.array([1.0])).tolist() == [86_401_000.0]


def test_log_axes_are_labelled_in_words() -> None:
    wide = log_duration(1, 10 * 86_400)
    assert wide["ticktext"] == ["1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 day", "7 days"]
    assert wide["range"] == pytest.approx([0, np.log10(864_000)])
    assert log_duration(3.8 * 3600, 9.9 * 3600)["ticktext"] == ["4 h", "5 h", "6 h", "7 h", "8 h"]
    assert len(log_duration(100, 101)["tickvals"]) == 4
    assert log_duration(50, 50)["range"][1] > log_duration(50, 50)["range"][0]
    assert np.isfinite(log_duration(0, 0)["range"]).all()


def test_marks_of_a_log_axis_stand_apart() -> None:
    assert log_duration(20 * 60, 9 * 3600)["ticktext"] == ["20 min", "30 min", "1 h", "2 h", "3 h", "5 h", "7 h"]
