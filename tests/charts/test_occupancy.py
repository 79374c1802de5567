"""Machines over time: what is sent, hatched, and offered to click on; the strip with the instant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import charts
from charts.occupancy import GUTTER, MOST_CELLS, MOST_DOWN, PICK, spells

AXIS = charts.TimeAxis(0.0, 4 * 3600.0)


def grid(label: str, share: Any, down: Any = None) -> charts.Grid:
    cells = np.asarray(share, np.float32)
    return charts.Grid(label, cells, np.zeros_like(cells) if down is None else np.asarray(down, np.float32))


def of(figure: Any, kind: str) -> list[Any]:
    return [trace for trace in figure.data if trace.type == kind]


def test_a_cell_is_a_byte_of_per_cent_in_the_middle_of_its_bin() -> None:
    figure = charts.occupancy([grid("A", [[0.0, 0.255, 1.0, 0.5], [0.25, 0, 0, 0]])], ["n1", "n2"], AXIS)
    (cells,) = of(figure, "heatmap")
    assert cells.z.dtype == np.uint8
    assert cells.z.tolist() == [[0, 26, 100, 50], [25, 0, 0, 0]]
    assert (cells.zmin, cells.zmax) == (0, 100)
    assert (cells.x0, cells.dx) == (0.5, 1.0)  # hours
    assert list(cells.y) == ["n1", "n2"]
    assert figure.layout.yaxis.range == (1.5, -0.5)  # the first row is on top
    assert cells.colorscale[0][1] == "#00224e"  # Cividis


def test_two_policies_have_the_same_rows_and_scale_and_one_legend() -> None:
    down = [[1, 1, 0, 0], [0, 0, 0, 0]]
    figure = charts.occupancy([grid(name, [[0.5] * 4] * 2, down) for name in ("A", "<b>")], ["n1", "n2"], AXIS, title="Which?")
    first, second = of(figure, "heatmap")
    assert (first.yaxis, second.yaxis) == ("y", "y2")
    assert (first.zmax, first.colorscale) == (second.zmax, second.colorscale)
    assert [first.showscale, second.showscale] == [True, False]
    assert [trace.showlegend for trace in of(figure, "bar")] == [True, False]
    assert {"<b>A</b>", "<b>&lt;b&gt;</b>"} <= {note.text for note in figure.layout.annotations}
    assert figure.layout.yaxis.domain[0] > figure.layout.yaxis2.domain[1]


def test_what_is_down_is_hatched_for_as_long_as_it_is() -> None:
    down = [[0, 0.5, 1, 0.49], [0, 0, 0, 0], [1, 0, 0, 1]]
    assert spells(np.asarray(down, np.float32)).tolist() == [[0, 1, 3], [2, 0, 1], [2, 3, 4]]
    figure = charts.occupancy([grid("A", np.zeros((3, 4)), down)], ["n1", "n2", "n3"], AXIS)
    (bars,) = of(figure, "bar")
    assert list(bars.y) == ["n1", "n3", "n3"]
    assert (bars.base.tolist(), bars.x.tolist()) == ([1, 0, 3], [2, 1, 1])
    assert bars.marker.pattern.shape == "/"
    assert list(bars.customdata) == ["2 h", "1 h", "1 h"]
    assert charts.down_spells(grid("A", down, down)) == 3


def test_the_shortest_spells_are_left_out_and_counted() -> None:
    down = np.zeros((2, 1000), np.float32)
    down[:, ::2] = 1
    down[1, 1] = 1  # one spell of three bins
    made = grid("A", down, down)
    assert charts.left_out([made]) == charts.down_spells(made) - MOST_DOWN == 499
    (bars,) = of(charts.occupancy([made], ["n1", "n2"], charts.TimeAxis(0.0, 3.6e6)), "bar")
    assert len(bars.x) == MOST_DOWN
    assert np.isclose(bars.x.max(), 3 * bars.x.min(), rtol=1e-3)


def test_a_difference_diverges_from_zero() -> None:
    (cells,) = of(charts.occupancy([grid("A minus B", [[-1.0, -0.5, 0, 0.25]])], ["n1"], AXIS, difference=True), "heatmap")
    assert cells.z.dtype == np.int8
    assert cells.z.tolist() == [[-100, -50, 0, 25]]
    assert (cells.zmin, cells.zmax) == (-100, 100)
    blue, orange = cells.colorscale[0][1], cells.colorscale[-1][1]
    assert int(blue[5:7], 16) > int(blue[1:3], 16)
    assert int(orange[1:3], 16) > int(orange[5:7], 16)


def test_every_row_has_a_mark_to_click_on_beside_the_data() -> None:
    labels = charts.row_labels(["a", "b"])
    (marks,) = of(charts.occupancy([grid("A", np.zeros((2, 4)))], labels, AXIS), "scatter")
    assert marks.name == PICK
    assert list(marks.y) == labels
    assert all(4.0 < x < 4.0 * (1 + GUTTER) for x in marks.x)


def test_names_of_rows_are_short_different_and_harmless() -> None:
    long = [f"node-of-a-very-long-name-{at}-in-the-middle-and-the-same-end" for at in range(2)]
    made = charts.row_labels(["<b>x</b>", *long])
    assert made[0] == "&lt;b&gt;x&lt;/b&gt;"
    assert made[1] != made[2]
    assert all(len(name) < 36 for name in made)
    assert charts.label_px(["n1"]) < charts.label_px(["a-rather-long-name"]) <= charts.label_px(["x" * 200]) == 210


@pytest.mark.parametrize(("rows", "policies", "bins"), [(128, 2, 500), (128, 1, 1000), (8, 2, 1000)])
def test_a_page_has_at_most_so_many_cells(rows: int, policies: int, bins: int) -> None:
    share = np.tile(np.array([0.0, 1.0], np.float32), (rows, 500))
    made = charts.thinned([grid("A", share)] * policies)
    assert [one.share.shape for one in made] == [(rows, bins)] * policies
    assert sum(one.share.size for one in made) <= MOST_CELLS
    assert np.isclose(made[0].share.mean(), 0.5)


def test_the_strip_has_a_line_at_the_instant_and_the_axis_of_the_figure_above() -> None:
    frame = pd.DataFrame({"t_s": [0.0, 3600, 14_400], "waiting": [0.0, 2, 2]})
    strip = charts.instant_strip({"A": frame}, {"A": ("#123456", "dash")}, AXIS, 7200.0, 120)
    above = charts.occupancy([grid("A", np.zeros((1, 4)))], ["n"], AXIS)
    assert strip.layout.xaxis.range == above.layout.xaxis.range
    assert strip.layout.margin.l == 120
    assert strip.layout.margin.r == above.layout.margin.r
    (line,) = strip.layout.shapes
    assert line.x0 == line.x1 == 2.0
    (waiting,) = strip.data
    assert (waiting.line.color, waiting.line.dash, waiting.line.shape) == ("#123456", "dash", "hv")
    assert strip.layout.yaxis.dtick == 1


def test_a_calendar_is_drawn_on_dates() -> None:
    axis = charts.TimeAxis(0.0, 4 * 3600.0, "2024-01-01T00:00:00")
    figure = charts.occupancy([grid("A", [[0.0, 1, 1, 0]], [[0, 1, 0, 0]])], ["n"], axis)
    midnight_ms = 1_704_067_200_000
    (cells,), (bars,) = of(figure, "heatmap"), of(figure, "bar")
    assert (cells.x0, cells.dx) == (midnight_ms + 1_800_000, 3_600_000)
    assert (bars.base[0], bars.x[0]) == (midnight_ms + 3_600_000, 3_600_000)
    assert figure.layout.xaxis.type == "date"
