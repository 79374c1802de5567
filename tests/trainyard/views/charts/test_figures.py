from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from trainyard.views import charts
from trainyard.views.charts import TimeAxis, policy_style, type_style
from trainyard.views.charts.inputs import MAX_CELLS

STYLE = policy_style(["fifo", "sjf", "las"], "fifo")


def test_jct_curves() -> None:
    curves = {
        label: pd.DataFrame({"share": [0.5, 1.0], "jct_s": [60.0 * factor, 7200.0 * factor]})
        for label, factor in (("fifo", 3), ("sjf", 1))
    }
    look = charts.Look(colours(STYLE), "fifo", "sjf")
    assert charts.Look(colours(STYLE), "fifo", "fifo").order[-1:] == ["fifo"]
    figure = charts.jct_cdf(curves, look, {"fifo": 12, "sjf": 0})
    area, lines, dots = figure.data[:2], figure.data[2:4], figure.data[4:]
    assert area[1].fill == "tonexty"
    assert {line.legendgroup: line.line.color for line in lines} == colours(STYLE, ["fifo", "sjf"])
    assert {line.legendgroup: line.line.width for line in lines} == {"fifo": 2.0, "sjf": 2.6}
    # Half of the jobs within 1 min, all within 2 h: in 200 steps of half a per cent.
    assert [lines[1].x[at] for at in (0, 100, 101, 200)] == [60, 60, 7200, 7200]
    assert (lines[1].y0, lines[1].dy) == (0, 0.5)
    assert figure.layout.xaxis.type == "log"
    assert figure.layout.xaxis.ticktext == ("1 min", "10 min", "1 h", "6 h")
    assert figure.layout.hovermode is False
    assert [(dot.marker.color, dot.x[0], dot.y[0]) for dot in dots] == [
        ("#5F6875", 180, 50),
        (STYLE["sjf"][0], 60, 50),
    ]
    assert [note.text for note in figure.layout.annotations] == [
        "<b>Jobs completed within</b>",
        "<b>sjf 1 min</b>",
        "<b>fifo 3 min</b>",
        "from submission to finish; dot and time: half",
        "not completed, so not shown: fifo 12",
    ]


def test_the_curve_of_equal_jobs_lies_within_its_axis() -> None:
    # One completion time has an axis of a hundredth of it.
    curve = pd.DataFrame({"share": [1.0], "jct_s": [36_049.0]})
    figure = charts.jct_cdf({"fifo": curve}, charts.Look(colours(STYLE), "fifo"))
    (line,) = [one for one in figure.data if one.legendgroup]
    low, high = (10.0**end for end in figure.layout.xaxis.range)
    assert high < 1.02 * low
    assert {*line.x} == {36_049.0}
    assert low * 0.9999 <= 36_049.0 <= high


def test_times_of_narrow_curves_stand_apart() -> None:
    # 20 min to 8 h, a factor of 24: the seventh part is a factor of 1.57, so 30 min would lie on
    # 20 min, 3 h on 2 h, and 8 h on 7 h.
    curve = pd.DataFrame({"share": [0.5, 1.0], "jct_s": [1_200.0, 28_800.0]})
    figure = charts.jct_cdf({"fifo": curve}, charts.Look(colours(STYLE), "fifo"))
    assert figure.layout.xaxis.ticktext == ("20 min", "1 h", "2 h", "4 h", "7 h")


def colours(style: charts.theme.Style, labels: Sequence[str] = ()) -> dict[str, str]:
    return {label: style[label][0] for label in labels or style}


def test_jct_curves_of_nothing() -> None:
    empty = pd.DataFrame({"share": np.zeros(0), "jct_s": np.zeros(0)})
    figure = charts.jct_cdf({"fifo": empty}, charts.Look(colours(STYLE), "fifo"))
    assert np.isfinite(figure.layout.xaxis.range).all()
    assert charts.jct_cdf({}, charts.Look({})).data == ()


def test_winners_stand_left_of_the_middle_and_losers_are_hatched_right_of_it() -> None:
    table = pd.DataFrame(
        {"low": [0.25, 0.5, 1.0, 2.0], "high": [0.5, 1.0, 2.0, 4.0], "jobs": [1, 3, 4, 0]}
    )
    figure = charts.winners(table, ("40 %", "20 %", "less than 1 %"), STYLE["sjf"][0], "Who wins?")
    faster, slower = figure.data
    assert (faster.x.tolist(), faster.y.tolist()) == ([-1.5, -0.5], [1, 3])
    assert (slower.x.tolist(), slower.y.tolist()) == ([0.5, 1.5], [4, 0])
    assert (faster.marker.pattern.shape, slower.marker.pattern.shape) == ("", "/")
    assert list(faster.customdata) == ["0.25 to 0.5 times as long", "0.5 to 1 times as long"]
    assert figure.layout.xaxis.ticktext == ("1/4", "1/2", "same", "2 ×", "4 ×")
    assert figure.layout.xaxis.range[0] == -figure.layout.xaxis.range[1]
    assert [note.text for note in figure.layout.annotations] == [
        "<b>← faster 40 %</b>",
        "<b>same 20 %</b>",
        "<b>slower less than 1 % →</b>",
    ]
    assert figure.layout.shapes[0].x0 == 0


def test_dumbbell_joins_baseline_and_policy() -> None:
    values = {"fifo": [100.0, 200.0], "sjf": [50.0, np.nan], "las": [80.0, 90.0]}
    rows = [
        {"group": group, "label": label, "value": found[at]}
        for label, found in values.items()
        for at, group in enumerate(["1", "2-4"])
    ]
    table = pd.DataFrame(rows).assign(low=np.nan, high=np.nan)
    figure = charts.dumbbell(table, STYLE, "fifo")
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    begins, *marks = [trace for trace in figure.data if trace.mode == "markers"]
    assert (begins.x.tolist(), begins.y.tolist()) == (
        [100, 100, 200, 200],
        [-0.27, 0.27, 0.73, 1.27],
    )
    assert lines[0].x.tolist()[:2] == [100, 50]
    assert np.isnan(lines[0].x[2])
    assert (lines[0].y[0], lines[0].y[1]) == (-0.27, -0.27)
    assert np.isnan(lines[0].y[2])
    assert lines[1].y[3] == pytest.approx(1.27)
    assert [(mark.name, mark.marker.symbol) for mark in marks] == [
        ("sjf", "circle"),
        ("las", "circle"),
        ("fifo", "circle-open"),
    ]
    assert marks[2].y.tolist() == [0, 1]
    assert figure.layout.yaxis.ticktext == ("1", "2-4")
    assert not any(mark.error_x.array is not None for mark in marks)
    assert (
        charts.dumbbell(table[(table["label"] != "las").to_numpy()], STYLE, "fifo").data[0].y[0]
        == 0
    )
    bounded = charts.dumbbell(
        table.assign(low=table["value"] - 10, high=table["value"] + 20), STYLE, "fifo"
    )
    assert (bounded.data[3].error_x.arrayminus[0], bounded.data[3].error_x.array[0]) == (10, 20)
    assert bounded.data[3].text[0] == "1: 50 s (40 s to 70 s)"


def test_arrivals_are_steps() -> None:
    table = pd.DataFrame({"t_s": [0.0, 3600.0], "width_s": 3600.0, "jobs_per_hour": [5.0, 7.0]})
    figure = charts.arrivals(table, TimeAxis(0, 10 * 3600))
    assert figure.data[0].x.tolist() == [0, 3600, 7200]
    assert figure.data[0].y.tolist() == [5, 7, 7]
    assert figure.data[0].line.shape == "hv"
    assert "over 1 h" in figure.data[0].hovertemplate


def test_sizes_compare_jobs_with_gpu_hours() -> None:
    figure = charts.sizes(
        pd.DataFrame({"gpus": ["1", "2"], "jobs": [3, 1], "gpu_hours": [10.0, 30.0]})
    )
    assert figure.data[0].y.tolist() == [75, 25]
    assert figure.data[1].y.tolist() == [25, 75]
    assert figure.data[1].customdata.tolist() == [10, 30]
    assert figure.layout.xaxis.type == "category"
    nothing = charts.sizes(pd.DataFrame({"gpus": ["0"], "jobs": [1], "gpu_hours": [0.0]}))
    assert nothing.data[1].y.tolist() == [0]


def test_durations_name_their_bins() -> None:
    figure = charts.durations(
        pd.DataFrame({"low_s": [60.0, 600.0], "high_s": [600.0, 6000.0], "jobs": [2, 3]})
    )
    assert figure.data[0].x.tolist() == [60, 600, 6000]
    assert list(figure.data[0].text) == ["1 min to 10 min", "10 min to 1.7 h", ""]
    assert figure.layout.xaxis.type == "log"


def test_heaviest_has_the_heaviest_on_top_and_short_names() -> None:
    figure = charts.heaviest(
        pd.DataFrame(
            {
                "name": ["a user with a very long name", "bob"],
                "jobs": [4, 1],
                "gpu_hours": [9.0, 3.0],
            }
        )
    )
    assert figure.layout.yaxis.ticktext == ("a user with a ver…", "bob")
    assert figure.layout.yaxis.range == (1.5, -0.5)
    assert list(figure.data[0].hovertext) == ["a user with a very long name", "bob"]


def nodes(sizes: list[int], kinds: list[str]) -> pd.DataFrame:
    rows = [
        (f"{kind}-{i}", kind, 4 if kind else 0, f"r{at}")
        for at, (size, kind) in enumerate(zip(sizes, kinds, strict=True))
        for i in range(size)
    ]
    return pd.DataFrame(rows, columns=["name", "gpu_type", "gpus", "rack"])


def test_racks_are_columns_of_cells() -> None:
    style = type_style(["v100", "t4"])
    figure = charts.racks(nodes([3, 20, 2], ["v100", "t4", ""]), style, "A cluster")
    z = figure.data[0].z
    # Rack 0 in column 0, rack 1 goes on in a second column after 16 nodes: columns 2 and 3, rack 2
    # in column 5.
    assert z.shape == (16, 6)
    assert (~np.isnan(z)).sum(axis=0).tolist() == [3, 0, 16, 4, 0, 2]
    assert set(z[:, 2]) == {1.0}
    assert list(figure.layout.xaxis.tickvals) == [0, 2.5, 5]
    assert figure.layout.xaxis.ticktext == ("r0", "r1", "r2")
    scale = figure.data[0].colorscale
    assert [scale[0][1], scale[2][1], scale[4][1]] == [style["v100"], style["t4"], style[""]]
    assert figure.data[0].text[0, 0] == "v100-0: 4 × V100, r0"
    assert [trace.name for trace in figure.data[1:]] == [
        "V100 · 3 nodes · 12 GPUs",
        "T4 · 20 nodes · 80 GPUs",
        "no GPU · 2 nodes",
    ]


def test_a_large_cluster_stays_within_the_limits() -> None:
    figure = charts.racks(nodes([40] * 100, ["v100"] * 100), type_style(["v100"]))
    assert figure.data[0].z.size <= MAX_CELLS
    assert len(figure.layout.xaxis.tickvals) <= 24
    assert charts.racks(nodes([5], ["v100"]), type_style(["v100"])).data[0].z.shape == (5, 1)


def test_racks_of_a_group_are_told_in_words() -> None:
    own = pd.DataFrame(
        {"name": ["a-1", "a-2"], "gpu_type": "v100", "gpus": 8, "rack": ["a/r1", "a/r2"]}
    )
    figure = charts.racks(own, type_style(["v100"]))
    assert figure.layout.xaxis.ticktext == ("V100 rack 1", "V100 rack 2")
    assert figure.data[0].text[0, 0] == "a-1: 8 × V100, V100 rack 1"


def test_names_from_a_trace_are_no_markup() -> None:
    name = "<b>a&b</b> %{x}"
    shown = "&lt;b&gt;a&amp;b&lt;/b&gt; %&#123;x}"
    users = charts.heaviest(pd.DataFrame({"name": [name], "jobs": [1], "gpu_hours": [2.0]}))
    assert users.layout.yaxis.ticktext == (shown,)
    assert users.data[0].hovertext == (shown,)
    nodes = pd.DataFrame({"name": [name], "gpu_type": [name], "gpus": [1], "rack": [name]})
    picture = charts.racks(nodes, type_style([name]))
    assert picture.layout.xaxis.ticktext == (shown,)
    assert picture.data[0].text[0][0] == f"{shown}: 1 × {shown}, {shown}"
    assert picture.data[1].name == f"{shown} · 1 node · 1 GPU"
    curve = pd.DataFrame({"share": [1.0], "jct_s": [60.0]})
    style = policy_style([name], name)
    look = charts.Look(colours(style), name, name)
    lines = charts.jct_cdf({name: curve}, look, {name: 1})
    assert lines.data[0].name == shown
    assert any(shown in note.text for note in lines.layout.annotations)
    course = charts.Course(
        np.array([0.0, 9.0]), True, {name: np.array([1.0])}, {name: np.array([1.0])}
    )
    time = charts.load(course, look, TimeAxis(0.0, 9.0), shaded=name)
    assert {line.name for line in time.data if line.name} == {shown}
    assert all(name not in (note.text or "") for note in time.layout.annotations)


@pytest.mark.parametrize(("classes", "every"), [(5, 1), (9, 2)])
def test_classes_of_sizes_are_named_by_their_labels(classes: int, every: int) -> None:
    labels = ["1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65-128", "129-256"][:classes]
    table = pd.DataFrame({"gpus": labels, "jobs": 1.0, "gpu_hours": 1.0})
    drawn = charts.sizes(table)
    # Numbers would be taken for the classes "1" and "2".
    assert list(drawn.layout.xaxis.tickvals) == [
        label.replace("-", "–") for label in labels[::every]
    ]
