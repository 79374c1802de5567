from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from charts import STATES, Row, TimeAxis, busy_row, fragmentation_row, linked_rows, policy_style, state_row, timeline, type_row, type_style, waiting_row
from charts.over_time import MOST_BANDS, Frames

LABELS = ["fifo", "sjf", "las"]
STYLE = policy_style(LABELS, "fifo")
TYPES = type_style(["v100", "t4", ""])
X = TimeAxis(0.0, 10 * 86_400.0)


def series(points: int = 1000, *, reduced: bool = True, **columns: float) -> pd.DataFrame:
    t = np.linspace(0, 10 * 86_400, points)
    found = {"t_s": t}
    for name, level in columns.items():
        wave = level * (1 + np.sin(t / 1e5)) / 2
        found |= {name: wave, f"{name}_low": wave * (0.9 if reduced else 1), f"{name}_high": wave * (1.1 if reduced else 1)}
    return pd.DataFrame(found)


def parts(labels: list[str], points: int = 1000) -> dict[str, Frames]:
    queue = {label: series(points, waiting=50) for label in labels}
    busy = {label: series(points, v100=8, t4=4, total=12) for label in labels}
    capacity = {label: pd.DataFrame({"t_s": [0, 4e5, 8e5], "total": [16.0, 12, 12]}) for label in labels}
    states = {label: series(points, busy=8, paused=1, fragmented=3, idle=4, down=0) for label in labels}
    return {"queue": queue, "utilisation": busy, "capacity": capacity, "states": states}


def whole(labels: list[str] = LABELS, points: int = 1000, below: str = "") -> go.Figure:
    return timeline(parts(labels, points), (policy_style(labels, labels[0]), TYPES), X, below, "SJF halves the queue.")


def test_all_rows_share_the_lowest_x_axis() -> None:
    figure = whole()
    assert {trace.xaxis for trace in figure.data} == {"x"}
    assert {trace.yaxis for trace in figure.data} == {"y", "y2", "y3", "y4", "y5", "y6"}
    assert figure.layout.xaxis.anchor == "y6"
    assert (figure.layout.hovermode, figure.layout.hoversubplots) == ("x unified", "axis")
    assert figure.layout.xaxis.range == (0, 10)
    assert "xaxis2" not in figure.to_dict()["layout"]
    domains = [figure.layout[f"yaxis{at}" if at > 1 else "yaxis"].domain for at in range(1, 7)]
    assert domains[0][1] == 1
    assert domains[-1][0] == pytest.approx(0)
    assert all(upper[0] > lower[1] for upper, lower in pairwise(domains))
    assert figure.layout.title.text == "SJF halves the queue."


def test_a_policy_has_one_colour_and_dash_in_every_row_and_one_legend_entry() -> None:
    figure = whole()
    for label in LABELS:
        lines = [trace for trace in figure.data if trace.name == label and trace.fill is None and trace.line.width]
        assert [trace.yaxis for trace in lines] == ["y", "y2", "y3"]
        assert {(trace.line.color, trace.line.dash) for trace in lines} == {STYLE[label]}
        assert sum(trace.showlegend for trace in figure.data if trace.name == label) == 1


def test_gpu_types_are_stacked_per_policy_with_their_own_legend() -> None:
    figure = whole()
    for row, label in enumerate(LABELS, 4):
        stack = [trace for trace in figure.data if trace.stackgroup == label]
        assert [trace.name for trace in stack] == ["v100", "t4"]
        assert {trace.yaxis for trace in stack} == {f"y{row}"}
        assert [trace.line.color for trace in stack] == [TYPES["v100"], TYPES["t4"]]
        assert {trace.legend for trace in stack} == {"legend2"}
    assert [trace.showlegend for trace in figure.data if trace.name == "v100"] == [True, False, False]
    titles = [note.text for note in figure.layout.annotations]
    assert titles[3:] == ["<b>By GPU type · fifo</b>", "<b>sjf</b>", "<b>las</b>"]


def test_utilisation_is_in_per_cent_of_the_full_cluster() -> None:
    figure = whole()
    busy = parts(LABELS)["utilisation"]["sjf"]
    drawn = next(trace for trace in figure.data if trace.stackgroup == "sjf" and trace.name == "t4")
    assert np.allclose(drawn.y, busy["t4"] / 16 * 100)
    ceiling = [trace for trace in figure.data if trace.name == "capacity"]
    assert [trace.yaxis for trace in ceiling] == ["y2", "y4", "y5", "y6"]
    assert ceiling[0].y.tolist() == [16, 12, 12]
    assert ceiling[1].y.tolist() == [100, 75, 75]


def test_without_capacity_gpus_are_shown() -> None:
    row = type_row("sjf", series(v100=8, t4=4, total=12), {"v100": "#44AA99", "t4": "#DDCC77", "h100": "#999933"}, X)
    assert [trace["name"] for trace in row.traces] == ["v100", "t4"]
    assert "GPUs" in row.traces[0]["hovertemplate"]
    assert "range" not in row.axis
    frames = parts(["fifo"]) | {"capacity": {}}
    assert not [trace for trace in timeline(frames, (STYLE, TYPES), X).data if trace.name == "capacity"]


def test_lines_are_steps_of_arrays_never_webgl_and_within_the_limits() -> None:
    figure = whole([*LABELS, "easy", "srtf", "recorded"], 615)
    assert {trace.type for trace in figure.data} == {"scatter"}
    assert {trace.line.shape for trace in figure.data} == {"hv"}
    assert all(isinstance(trace.x, np.ndarray) and isinstance(trace.y, np.ndarray) and trace.y.dtype == np.float32 for trace in figure.data)
    assert max(len(trace.x) for trace in figure.data) <= 1000
    assert sum(len(trace.x) for trace in figure.data) <= 32_000
    assert len(figure.to_json()) <= 500_000


def test_bands_show_the_bins_of_a_few_lines_only() -> None:
    few = waiting_row({label: series(waiting=9) for label in LABELS}, STYLE, X)
    bands = [trace for trace in few.traces if trace.get("fill") == "tonexty"]
    assert len(bands) == 3
    assert np.allclose(bands[0]["y"], series(waiting=9)["waiting_high"])
    assert few.title == "Jobs waiting · each point = 14 min, mean, band = least to most"
    labels = [str(at) for at in range(MOST_BANDS + 1)]
    many = waiting_row({label: series(waiting=9) for label in labels}, policy_style(labels, "0"), X)
    assert not [trace for trace in many.traces if "fill" in trace]
    assert many.title.endswith("each point = 14 min, mean")


def test_an_exact_series_has_no_note_and_no_band() -> None:
    row = waiting_row({"fifo": series(20, reduced=False, waiting=3)}, STYLE, X)
    assert row.title == "Jobs waiting"
    assert len(row.traces) == 1


def test_only_the_first_row_is_in_the_legend() -> None:
    frames = parts(LABELS)
    assert [trace["showlegend"] for trace in waiting_row(frames["queue"], STYLE, X).traces if "fill" not in trace and trace["line"]["width"]] == [True] * 3
    assert not any(trace["showlegend"] for trace in busy_row(frames["utilisation"], STYLE, X).traces)
    row = fragmentation_row({"las": series(fragmented=4)}, STYLE, X)
    assert row.traces[-1]["line"]["color"] == STYLE["las"][0]


def test_rows_can_be_chosen_freely() -> None:
    row = fragmentation_row({"las": series(fragmented=4)}, STYLE, X)
    figure = linked_rows([row], X, "")
    assert figure.layout.xaxis.anchor == "y"
    assert figure.layout.height == 170 + 16 + 24 + 52
    assert linked_rows([Row("nothing", [])], X, "").data == ()


def test_the_calendar_reaches_every_trace() -> None:
    figure = timeline(parts(["fifo"], 10), (STYLE, TYPES), TimeAxis(0, 864_000, "2017-10-03T00:00:00"))
    assert figure.layout.xaxis.type == "date"
    assert all(trace.x[0] == 1_506_988_800_000 for trace in figure.data)


def test_figures_are_transparent_and_leave_text_colours_to_the_page() -> None:
    layout = json.loads(whole().to_json())["layout"]
    assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"
    assert "color" not in layout["font"]


def test_states_of_one_policy_are_stacked_with_their_names_above_the_row() -> None:
    figure = whole(below="sjf")
    stack = [trace for trace in figure.data if trace.stackgroup == "states"]
    # Nothing was ever down, so nothing is said of it.
    assert [trace.name for trace in stack] == [state.name for state in STATES[:-1]]
    assert {(trace.yaxis, trace.legend, trace.showlegend) for trace in stack} == {("y4", "legend2", True)}
    assert np.allclose(np.sum([trace.y for trace in stack], axis=0), series(busy=16)["busy"])
    note = next(note for note in figure.layout.annotations if "What the GPUs do under sjf" in note.text)
    assert note.yshift > 24
    assert figure.layout.legend2.y > figure.layout.yaxis4.domain[1]
    assert figure.layout.legend2.y < figure.layout.yaxis3.domain[0]
    assert not {trace.fillcolor for trace in stack} & {colour for colour, _ in STYLE.values()}


def test_without_gpus_only_the_queue_is_drawn() -> None:
    figure = timeline({"queue": parts(["fifo"])["queue"]}, (STYLE, {}), X)
    assert {trace.yaxis for trace in figure.data} == {"y"}


def test_a_row_of_states_says_whose_they_are() -> None:
    row = state_row("<b>", series(busy=8, paused=0, fragmented=0, idle=8, down=8), X)
    assert row.title == "What the GPUs do under &lt;b&gt;"
    assert row.legend == ["busy", "idle", "down"]
