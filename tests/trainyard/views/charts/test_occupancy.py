"""Machines over time: what is sent, hatched, and offered to click on; the strip with the
instant.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

from trainyard.views import charts
from trainyard.views.charts import theme
from trainyard.views.charts.machines import MAX_CELLS, MAX_DOWN_SPELLS, label_px, spells

AXIS = charts.TimeAxis(0.0, 4 * 3600.0)


def grid(label: str, share: Any, down: Any = None) -> charts.Grid:
    cells = np.asarray(share, np.float32)
    return charts.Grid(
        label, cells, np.zeros_like(cells) if down is None else np.asarray(down, np.float32)
    )


FRAME = pd.DataFrame({"t_s": [0.0, 3600, 14_400], "waiting": [0.0, 2, 2]})


def machines(grids: list[charts.Grid], labels: list[str], x: charts.TimeAxis, **more: Any) -> Any:
    waiting = charts.Waiting({"A": FRAME}, FRAME, 14_400.0)
    return charts.machines(grids, labels, x, waiting, {"A": ("#123456", "solid")}, **more)


def test_the_queue_has_a_band_up_to_what_the_table_of_an_instant_may_show() -> None:
    """The mean of an hour is 2 jobs while at one instant 27 wait."""
    mean = FRAME.assign(waiting_high=[0.0, 27, 2])
    waiting = charts.Waiting({"A": mean}, FRAME, 14_400.0)
    grids, style = [grid("A", [[0.5] * 4])], {"A": ("#123456", "solid")}
    figure = charts.machines(grids, ["n1"], AXIS, waiting, style)
    low, high, line = (trace for trace in figure.data if trace.yaxis == "y2")
    assert (low.line.width, high.line.width, high.fill) == (0, 0, "tonexty")
    assert (low.y.tolist(), high.y.tolist(), line.y.tolist()) == ([0, 2, 2], [0, 27, 2], [0, 2, 2])
    titles = [note.text for note in figure.layout.annotations]
    assert any("Jobs waiting: 1-h mean; pale band: highest" in title for title in titles)
    exact = machines(grids, ["n1"], AXIS)
    assert len([trace for trace in exact.data if trace.yaxis == "y2"]) == 1


def of(figure: Any, kind: str) -> list[Any]:
    return [trace for trace in figure.data if trace.type == kind]


def test_a_cell_is_a_byte_of_per_cent_in_the_middle_of_its_bin() -> None:
    figure = machines([grid("A", [[0.0, 0.255, 1.0, 0.5], [0.25, 0, 0, 0]])], ["n1", "n2"], AXIS)
    (cells,) = of(figure, "heatmap")
    assert cells.z.dtype == np.uint8
    assert cells.z.tolist() == [[0, 26, 100, 50], [25, 0, 0, 0]]
    assert (cells.zmin, cells.zmax) == (0, 100)
    assert (cells.x0, cells.dx) == (1800, 3600)
    assert list(cells.y) == ["n1", "n2"]
    assert figure.layout.yaxis.range == (1.5, -0.5)  # the first row is on top
    assert cells.colorscale == theme.SEQUENTIAL


def test_two_policies_have_the_same_rows_and_scale_and_one_legend() -> None:
    down = [[1, 1, 0, 0], [0, 0, 0, 0]]
    figure = machines(
        [grid(name, [[0.5] * 4] * 2, down) for name in ("A", "<b>")],
        ["n1", "n2"],
        AXIS,
    )
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
    figure = machines([grid("A", np.zeros((3, 4)), down)], ["n1", "n2", "n3"], AXIS)
    (bars,) = of(figure, "bar")
    assert list(bars.y) == ["n1", "n3", "n3"]
    assert (bars.base.tolist(), bars.x.tolist()) == ([3600, 0, 10_800], [7200, 3600, 3600])
    assert bars.marker.pattern.shape == "/"
    assert charts.down_spells(grid("A", down, down)) == 3


def test_the_shortest_spells_are_left_out_and_counted() -> None:
    down = np.zeros((2, 1000), np.float32)
    down[:, ::2] = 1
    down[1, 1] = 1  # one spell of three bins
    made = grid("A", down, down)
    assert charts.hidden_spells([made]) == charts.down_spells(made) - MAX_DOWN_SPELLS == 499
    (bars,) = of(machines([made], ["n1", "n2"], charts.TimeAxis(0.0, 3.6e6)), "bar")
    assert len(bars.x) == MAX_DOWN_SPELLS
    assert np.isclose(bars.x.max(), 3 * bars.x.min(), rtol=1e-3)


def test_a_difference_diverges_from_zero() -> None:
    (cells,) = of(
        machines([grid("A minus B", [[-1.0, -0.5, 0, 0.25]])], ["n1"], AXIS, difference=True),
        "heatmap",
    )
    assert cells.z.dtype == np.int8
    assert cells.z.tolist() == [[-100, -50, 0, 25]]
    assert (cells.zmin, cells.zmax) == (-100, 100)
    blue, orange = cells.colorscale[0][1], cells.colorscale[-1][1]
    assert int(blue[5:7], 16) > int(blue[1:3], 16)
    assert int(orange[1:3], 16) > int(orange[5:7], 16)


def test_names_of_rows_are_short_different_and_harmless() -> None:
    long = [f"node-of-a-very-long-name-{at}-in-the-middle-and-the-same-end" for at in range(2)]
    made = charts.row_labels(["<b>x</b>", *long])
    assert made[0] == "&lt;b&gt;x&lt;/b&gt;"
    assert made[1] != made[2]
    assert all(len(name) < 36 for name in made)
    assert label_px(["n1"]) < label_px(["a-rather-long-name"]) <= label_px(["x" * 200]) == 210


@pytest.mark.parametrize(
    ("rows", "policies", "bins"), [(128, 2, 500), (128, 1, 1000), (8, 2, 1000)]
)
def test_a_page_has_at_most_so_many_cells(rows: int, policies: int, bins: int) -> None:
    share = np.tile(np.array([0.0, 1.0], np.float32), (rows, 500))
    made = charts.thin_grids([grid("A", share)] * policies)
    assert [one.share.shape for one in made] == [(rows, bins)] * policies
    assert sum(one.share.size for one in made) <= MAX_CELLS
    assert np.isclose(made[0].share.mean(), 0.5)


def test_jobs_waiting_and_the_whole_run_stand_below_on_their_axes() -> None:
    figure = machines([grid("A", np.zeros((1, 4)))], ["n"], charts.TimeAxis(3600.0, 7200.0))
    line, whole, part = of(figure, "scatter")
    assert (line.name, line.line.color, line.line.shape) == ("A", "#123456", "hv")
    assert (line.xaxis, line.yaxis, whole.xaxis, whole.yaxis) == (None, "y2", "x2", "y3")
    assert figure.layout.xaxis.range == (3600.0, 7200.0)
    assert figure.layout.xaxis2.range == (0.0, 14_400.0)
    assert part.y.tolist() == [0, 2, 0]  # what the window shows stands out
    rows = [figure.layout[f"yaxis{at}"].domain for at in ("", "2", "3")]
    assert all(upper[0] > lower[1] for upper, lower in pairwise(rows))
    assert figure.layout.height <= 260 + 200


def test_many_rows_are_at_most_260_px_high() -> None:
    one = machines([grid("A", np.zeros((8, 4)))], [f"n{at}" for at in range(8)], AXIS)
    many = machines([grid("A", np.zeros((128, 4)))], [f"n{at}" for at in range(128)], AXIS)
    assert many.layout.height - one.layout.height == 260 - 8 * 18


def test_a_calendar_is_drawn_on_dates() -> None:
    axis = charts.TimeAxis(0.0, 4 * 3600.0, "2024-01-01T00:00:00")
    figure = machines([grid("A", [[0.0, 1, 1, 0]], [[0, 1, 0, 0]])], ["n"], axis)
    (cells,), (bars,) = of(figure, "heatmap"), of(figure, "bar")
    assert (cells.x0, cells.dx) == (1800, 3600)
    assert (bars.base[0], bars.x[0]) == (3600, 3600)
    assert figure.layout.xaxis.ticktext[:2] == ("Mon 1 Jan", "00:30")
