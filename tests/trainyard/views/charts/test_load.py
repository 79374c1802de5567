from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from trainyard.views import charts
from trainyard.views.charts import TimeAxis
from trainyard.views.charts.lines import smooth

DAY_S = 86_400.0
LOOK = charts.Look({"fifo": "#5F6875", "sjf": "#1B4FD0", "las": "#C24A00"}, "fifo", "las")
LOOK_OF_TWO = charts.Look({"fifo": "#5F6875", "las": "#C24A00"}, "fifo", "las")
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
    assert low.y[:200:2] == pytest.approx(made.waiting["las"][:100], rel=1e-5)
    assert set(high.y[:199].tolist()) == {31.0}
    assert not high.y[200:].any()
    assert max(figure.data[1].y) == pytest.approx(1 + made.waiting["fifo"].max())
    assert "1.5-h averages in both charts" in figure.layout.annotations[-1].text
    alone = charts.load(replace(made, busy={}, most=most), LOOK, AXIS)
    assert "1.5-h averages · band: peak" in alone.layout.annotations[0].text
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
    assert line.y[::2] == pytest.approx(course(ends=100).waiting["las"], nan_ok=True, rel=1e-5)
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
    assert [(frame.x0, frame.x1) for frame in layout.shapes] == [
        tuple(pytest.approx(float(at)) for at in AXIS.place(np.array([2 * DAY_S, 4 * DAY_S])))
    ]
    assert not charts.load(course(), LOOK, AXIS, strip(), "").layout.shapes


def test_without_gpus_only_the_queue_is_drawn() -> None:
    made = course()
    figure = charts.load(charts.Course(EDGES, False, made.waiting, {}), LOOK, AXIS)
    assert {line.yaxis for line in figure.data} == {"y"}


def test_alone_the_figure_names_its_lines() -> None:
    alone = charts.Look(LOOK.colours, "fifo", "las", alone=True)
    figure = charts.load(course(), alone, AXIS)
    assert [line.name for line in figure.data if line.showlegend] == ["sjf", "fifo", "las"]
    assert json.loads(figure.to_json())["layout"]["title"]["text"] == "Jobs waiting, GPUs busy"


def test_names_of_the_strong_lines_do_not_lie_on_each_other() -> None:
    figure = charts.load(course(), LOOK, AXIS)
    fifo, las = (
        note for note in figure.layout.annotations if note.text in ("<b>fifo</b>", "<b>las</b>")
    )
    apart = abs(fifo.x - las.x) / (AXIS.place(np.array([EDGES[-1]]))[0]) > 0.11
    assert apart or abs(fifo.y - las.y) / 100 > 0.15


def test_a_name_stands_where_the_other_strong_line_does_not_pass() -> None:
    # The second line peaks where the first one climbs past it, and less high where that is far up.
    first, second = np.zeros(160), np.zeros(160)
    first[40:120], second[40:45], second[80:90] = 100.0, 30.0, 20.0
    made = charts.Course(EDGES, False, {"fifo": first, "las": second}, {})
    figure = charts.load(made, LOOK_OF_TWO, AXIS)
    (name,) = (note for note in figure.layout.annotations if note.text == "<b>las</b>")
    assert name.y == 20.0
    assert name.bgcolor == "rgba(255, 255, 255, 0.8)"
    dark = charts.theme.darken_figure(figure).to_dict()["layout"]["annotations"]
    assert {note.get("bgcolor") for note in dark} == {None, "rgba(16, 22, 29, 0.8)"}
