from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from trainyard.views import charts
from trainyard.views.charts import TimeAxis
from trainyard.views.charts.lines import short_names, smooth, spread_names

DAY_S = 86_400.0
LOOK = charts.Look({"fifo": "#5F6875", "sjf": "#1B4FD0", "las": "#C24A00"}, "fifo", "las")
EDGES = np.arange(0.0, 161 * 5400.0, 5400.0)
AXIS = TimeAxis(0.0, EDGES[-1])


def course(*, exact: bool = False, ends: int = 160) -> charts.Course:
    wave = 50 * (1 + np.sin(EDGES[:-1] / 1e5))
    gone = np.where(np.arange(160) < ends, wave, np.nan)
    waiting = {"fifo": wave, "sjf": wave / 2, "las": gone / 4}
    return charts.Course(
        EDGES, exact, waiting, {name: np.minimum(v, 100) for name, v in waiting.items()}
    )


def strip() -> tuple[np.ndarray, np.ndarray, TimeAxis]:
    return EDGES, course().waiting["fifo"], AXIS


def test_two_lines_are_strong_and_each_policy_is_the_same_in_both_rows() -> None:
    figure = charts.load(course(), LOOK, AXIS, strip(), "3,600 hours")
    lines = [line for line in figure.data if line.legendgroup]
    assert [(line.legendgroup, line.yaxis) for line in lines] == [
        (title, axis) for axis in ("y", "y2") for title in ("sjf", "fifo", "las")
    ]
    looks = {line.legendgroup: (line.line.width, line.opacity, line.line.color) for line in lines}
    assert looks == {
        "sjf": (1.2, 0.55, "#1B4FD0"),
        "fifo": (2.0, 1.0, "#5F6875"),
        "las": (2.6, 1.0, "#C24A00"),
    }
    assert len({line.uid for line in lines}) == 6
    assert figure.layout.hovermode is False
    assert len(figure.to_json()) < 60_000


def test_the_area_between_the_strong_lines_is_filled_and_has_no_opacity_of_its_own() -> None:
    figure = charts.load(course(), LOOK, AXIS, strip(), "3,600 hours")
    edge, other = figure.data[:2]
    assert (edge.fill, other.fill, other.fillcolor) == (None, "tonexty", "rgba(194, 74, 0, 0.14)")
    assert (edge.opacity, other.opacity) == (None, None)
    assert "shaded: 3,600 hours" in figure.layout.annotations[0].text
    assert not [line for line in charts.load(course(), LOOK, AXIS).data if line.fill]


def test_the_strong_lines_have_a_band_from_the_mean_to_the_most() -> None:
    """Of FIFO at most 1 to 101 jobs wait in bins with means of 0 to 100, of LAS at most 31."""
    made = course(ends=100)
    most = {"fifo": made.waiting["fifo"] + 1, "las": np.where(np.arange(160) < 100, 31.0, np.nan)}
    figure = charts.load(replace(made, most=most), LOOK, AXIS)
    low, high = figure.data[2:4]
    assert [(line.fill, line.fillcolor, line.line.width) for line in (low, high)] == [
        (None, "rgba(194, 74, 0, 0.22)", 0),
        ("tonexty", "rgba(194, 74, 0, 0.22)", 0),
    ]
    # Within a pixel.
    assert low.y[:200:2] == pytest.approx(made.waiting["las"][:100], abs=0.05)
    assert set(high.y[:199]) == {31.0}
    assert not any(high.y[200:])
    assert max(figure.data[1].y) == pytest.approx(1 + made.waiting["fifo"].max(), abs=0.05)
    assert any("1.5-h averages in both charts" in one.text for one in figure.layout.annotations)
    alone = charts.load(replace(made, busy={}, most=most), LOOK, AXIS)
    assert "1.5-h averages" in alone.layout.annotations[0].text
    assert alone.layout.annotations[0].text.endswith("; pale band: highest</span>")
    exact = charts.load(replace(made, exact=True, most=most), LOOK, AXIS)
    assert not [line for line in exact.data if line.fill]
    assert "band" not in exact.layout.annotations[0].text


def test_without_a_highlighted_policy_the_baseline_has_a_band() -> None:
    made = course()
    look = charts.Look({"fifo": "#5F6875"}, "fifo")
    one = {"fifo": made.waiting["fifo"]}
    figure = charts.load(charts.Course(EDGES, False, one, {}, most=one), look, AXIS)
    assert [line.fillcolor for line in figure.data if line.fill] == ["rgba(95, 104, 117, 0.22)"]


def test_pointers_read_whole_numbers() -> None:
    lines = charts.load(course(), charts.Look(LOOK.colours, "fifo", "las", alone=True), AXIS).data
    assert {(line.yaxis, line.hovertemplate) for line in lines} == {
        ("y", "%{y:,.0f} waiting"),
        ("y2", "%{y:.0f} % busy"),
    }


def test_lines_go_through_the_middles_and_end_with_their_run() -> None:
    figure = charts.load(course(ends=100), LOOK, AXIS)
    line = next(line for line in figure.data if line.legendgroup == "las")
    middle = float(AXIS.place(np.array([2700.0]))[0])
    step = float(AXIS.place(np.array([8100.0]))[0]) - middle
    assert line.x0 == pytest.approx(middle)
    assert line.dx == pytest.approx(step / 2)
    assert line.y[::2] == pytest.approx(course(ends=100).waiting["las"], nan_ok=True, abs=0.05)
    assert np.isnan(line.y[200:]).all()
    assert np.isfinite(line.y[:199]).all()


def test_few_changes_are_steps() -> None:
    line = charts.load(course(exact=True), LOOK, AXIS).data[0]
    assert line.line.shape == "hv"
    assert len(line.x) == len(line.y) == 161


def test_a_smooth_line_never_leaves_the_range_of_its_neighbours() -> None:
    values = np.array([0, 0, 100, 0, 0, 7, 8, 8, 3, np.nan, np.nan, 5.0])
    curve = smooth(values)
    assert curve[::2] == pytest.approx(values, nan_ok=True)
    for at in range(len(values) - 1):
        low, high = sorted(values[at : at + 2])
        part = curve[2 * at : 2 * at + 2]
        assert np.isnan([low, high]).any() or ((part >= low) & (part <= high)).all()
    assert smooth(np.array([4.0])).tolist() == [4.0]


def test_the_strip_shows_the_whole_run_and_frames_the_window() -> None:
    window = TimeAxis(2 * DAY_S, 4 * DAY_S)
    layout = charts.load(course(), LOOK, window, strip(), "").layout
    whole = AXIS.place(np.array([0.0, EDGES[-1]]))
    assert layout.xaxis2.range == pytest.approx(tuple(whole))
    assert [(one.x0, one.x1) for one in layout.shapes if one.type == "rect"] == [
        tuple(pytest.approx(float(at)) for at in AXIS.place(np.array([2 * DAY_S, 4 * DAY_S])))
    ]
    shapes = charts.load(course(), LOOK, AXIS, strip(), "").layout.shapes
    assert {one.type for one in shapes} == {"line"}


def test_without_gpus_only_the_queue_is_drawn() -> None:
    made = course()
    figure = charts.load(charts.Course(EDGES, False, made.waiting, {}), LOOK, AXIS)
    assert {line.yaxis for line in figure.data} == {"y"}


@pytest.mark.parametrize("alone", [False, True])
def test_every_line_is_named_at_its_end(alone: bool) -> None:
    """At the end 100 jobs wait under fifo, 50 under sjf and 25 under las.

    The row of the queue ends at 106 and reaches from 24 to 161 px, so 100 stands at 31.75 px.
    """
    flat = {"fifo": np.full(160, 100.0), "sjf": np.full(160, 50.0), "las": np.full(160, 25.0)}
    look = charts.Look(LOOK.colours, "fifo", "las", alone=alone)
    figure = charts.load(charts.Course(EDGES, False, flat, {}), look, AXIS)
    assert figure.layout.yaxis.range == (0, 106)
    assert not figure.layout.showlegend
    names = [note for note in figure.layout.annotations if note.captureevents]
    assert [(note.text, note.name) for note in names] == [
        ("<b>fifo</b>", "fifo"),
        ("sjf", "sjf"),
        ("<b>las</b>", "las"),
    ]
    height = 344
    tops = [316 - part * (316 - 24) for part in (100 / 106, 50 / 106, 25 / 106)]
    assert [height * (1 - note.y) for note in names] == pytest.approx(tops)
    samples = [shape for shape in figure.layout.shapes if (shape.x0, shape.x1) == (10, 22)]
    assert [(one.line.color, one.line.width) for one in samples] == [
        ("#5F6875", 3),
        ("#1B4FD0", 2),
        ("#C24A00", 3),
    ]


def test_a_line_that_leaves_the_row_is_named_with_its_maximum() -> None:
    flat = {"fifo": np.full(160, 10.0), "sjf": np.full(160, 3010.0), "las": np.full(160, 5.0)}
    figure = charts.load(charts.Course(EDGES, False, flat, {}), LOOK, AXIS)
    assert figure.layout.yaxis.range == pytest.approx((0, 10.6))
    texts = [note.text for note in figure.layout.annotations if note.captureevents]
    assert texts == ["sjf ↑3,010", "<b>fifo</b>", "<b>las</b>"]


@pytest.mark.parametrize(
    ("ends", "places"),
    [
        ([10, 60], [10, 60]),  # far apart
        ([50, 50, 50], [32, 50, 68]),  # around their common end
        ([10, 10, 10], [0, 18, 36]),  # not above the top
        ([100, 100], [82, 100]),  # not below the bottom
        ([40, 42, 90], [32, 50, 90]),  # only two of them meet
        ([50] * 9, [18 * at for at in range(9)]),  # closer, and beyond the row
        ([], []),
    ],
)
def test_names_stand_as_near_to_their_lines_as_they_fit(
    ends: list[float], places: list[float]
) -> None:
    assert spread_names(ends, 0, 100) == pytest.approx(places)


def test_names_are_short_and_differ() -> None:
    titles = [
        "LAS (Tiresias)",
        "EASY backfilling",
        "Policy per partition",
        "SRTF · backfill=none",
        "SRTF · backfill=easy",
        "x" * 200,
    ]
    assert list(short_names(titles).values()) == [
        "LAS",
        "EASY",
        "Policy per pa…",
        "SRTF ·…ll=none",
        "SRTF ·…ll=easy",
        "x" * 13 + "…",
    ]


def test_a_name_is_cut_for_its_note() -> None:
    flat = {"conservative": np.full(160, 10.0), "hadar": np.full(160, 3010.0)}
    look = charts.Look({"conservative": "#5F6875", "hadar": "#1B4FD0"}, "conservative")
    figure = charts.load(charts.Course(EDGES, False, flat, {}), look, AXIS)
    texts = [note.text for note in figure.layout.annotations if note.captureevents]
    assert texts == ["hadar ↑3,010", "<b>conservative</b>"]
    times = pd.DataFrame({"share": [0.0, 1.0], "jct_s": [19_800.0, 19_800.0]})
    curve = charts.jct_cdf({"conservative": times}, look)
    assert "<b>conserv… 5.5 h</b>" in [note.text for note in curve.layout.annotations]


@pytest.mark.parametrize(("scale", "pitch"), [(1.0, 18), (1.35, 24.3)])
def test_names_of_twelve_lines_fit_beside_both_rows(scale: float, pitch: float) -> None:
    """All end at 0, so the names of the queue begin at the top, 30 px, and reach into the other
    row. Its two names begin one and a half steps below them.
    """
    titles = [f"P{at}" for at in range(12)]
    flat = {title: np.zeros(160) for title in titles}
    busy = {"P0": np.full(160, 104.0), "P1": np.full(160, 104.0)}
    course = charts.Course(EDGES, False, flat, busy, few_note="P0 and P1")
    look = charts.Look(dict.fromkeys(titles, "#1B4FD0"), "P0", "P1", scale=scale)
    figure = charts.load(course, look, AXIS)
    notes = [note for note in figure.layout.annotations if note.captureevents]
    assert [note.name for note in notes] == [*titles, "P0", "P1"]
    places = [344 * (1 - note.y) for note in notes]
    assert places == pytest.approx([30 + pitch * at for at in (*range(12), 12.5, 13.5)])
    assert {line.legendgroup for line in figure.data if line.yaxis == "y2"} == {"P0", "P1"}
    texts = [note.text for note in figure.layout.annotations]
    assert any(
        "P0 and P1</span>" in text and "; point at a policy for its" in text for text in texts
    )


def test_what_is_left_out_is_named_last() -> None:
    look = charts.Look(LOOK.colours, "fifo", "las", more=28)
    for figure in (
        charts.load(course(), look, AXIS),
        charts.jct_cdf({"fifo": pd.DataFrame({"share": [1.0], "jct_s": [60.0]})}, look),
    ):
        (note,) = (one for one in figure.layout.annotations if one.text == "28 more in the table")
        named = [one for one in figure.layout.annotations if one.captureevents and one.y > 0.5]
        assert note.y < min(one.y for one in named)
        assert not note.captureevents


def test_a_line_keeps_its_id_while_others_come_and_go() -> None:
    assert charts.Look({"las": "#C24A00"}).line("las", "y")["uid"] == LOOK.line("las", "y")["uid"]
    assert len({LOOK.line(title, row)["uid"] for title in LOOK.colours for row in "ab"}) == 6
