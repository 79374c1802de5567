from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from trainyard.views.charts import (
    STATES,
    TimeAxis,
    busy_row,
    linked_rows,
    policy_style,
    state_row,
    type_style,
    waiting_row,
)
from trainyard.views.charts.over_time import MAX_BANDS, Frames, LinkedRow
from trainyard.views.charts.theme import NEUTRAL, TEXT

LABELS = ["fifo", "sjf", "las"]
STYLE = policy_style(LABELS, "fifo")
TYPES = type_style(["v100", "t4", ""])
X = TimeAxis(0.0, 10 * 86_400.0)


def series(points: int = 1000, *, reduced: bool = True, **columns: float) -> pd.DataFrame:
    t = np.linspace(0, 10 * 86_400, points)
    found = {"t_s": t}
    for name, level in columns.items():
        wave = level * (1 + np.sin(t / 1e5)) / 2
        found |= {
            name: wave,
            f"{name}_low": wave * (0.9 if reduced else 1),
            f"{name}_high": wave * (1.1 if reduced else 1),
        }
    return pd.DataFrame(found)


def parts(labels: list[str], points: int = 1000) -> dict[str, Frames]:
    queue = {label: series(points, waiting=50) for label in labels}
    busy = {label: series(points, v100=8, t4=4, total=12) for label in labels}
    capacity = {
        label: pd.DataFrame({"t_s": [0, 4e5, 8e5], "total": [16.0, 12, 12]}) for label in labels
    }
    states = {
        label: series(points, busy=8, paused=1, fragmented=3, idle=4, down=0) for label in labels
    }
    return {"queue": queue, "utilisation": busy, "capacity": capacity, "states": states}


def test_bands_show_the_bins_of_a_few_lines_only() -> None:
    few = waiting_row({label: series(waiting=9) for label in LABELS}, STYLE, X)
    bands = [trace for trace in few.traces if trace.get("fill") == "tonexty"]
    assert len(bands) == 3
    assert np.allclose(bands[0]["y"], series(waiting=9)["waiting_high"])
    assert few.title == "Jobs waiting · mean of each 14 min; pale band: lowest to highest"
    labels = [str(at) for at in range(MAX_BANDS + 1)]
    many = waiting_row({label: series(waiting=9) for label in labels}, policy_style(labels, "0"), X)
    assert not [trace for trace in many.traces if "fill" in trace]
    assert many.title.endswith("mean of each 14 min")


def test_an_exact_series_has_no_note_and_no_band() -> None:
    row = waiting_row({"fifo": series(20, reduced=False, waiting=3)}, STYLE, X)
    assert row.title == "Jobs waiting"
    assert len(row.traces) == 1


def test_only_the_first_row_is_in_the_legend() -> None:
    frames = parts(LABELS)
    assert [
        trace["showlegend"]
        for trace in waiting_row(frames["queue"], STYLE, X).traces
        if "fill" not in trace and trace["line"]["width"]
    ] == [True] * 3
    assert not any(
        trace["showlegend"] for trace in busy_row(frames["utilisation"], STYLE, X).traces
    )


def test_rows_can_be_chosen_freely() -> None:
    row = waiting_row({"las": series(20, reduced=False, waiting=4)}, STYLE, X)
    figure = linked_rows([row], X, "")
    assert figure.layout.xaxis.anchor == "y"
    assert figure.layout.height == 170 + 16 + 24 + 52
    assert all(
        trace.x is None or not len(trace.x)
        for trace in linked_rows([LinkedRow("", [])], X, "").data
    )


def test_a_row_of_states_says_whose_they_are() -> None:
    row = state_row("<b>", series(busy=8, paused=0, fragmented=0, idle=8, down=8), X)
    assert row.title == "GPUs under &lt;b&gt;"
    assert row.legend == ["working", "idle", "down"]


def test_rows_above_each_other_share_the_lowest_axis() -> None:
    frames = parts(["fifo"])
    rows = [
        waiting_row(frames["queue"], STYLE, X),
        busy_row(frames["utilisation"], STYLE, X, frames["capacity"]),
        state_row("fifo", frames["states"]["fifo"], X),
    ]
    figure = linked_rows(rows, X, "Title", ["fifo"])
    assert {line.xaxis for line in figure.data} == {"x"}
    assert {line.yaxis for line in figure.data} == {"y", "y2", "y3"}
    assert figure.layout.xaxis.anchor == "y3"
    stack = [line for line in figure.data if line.stackgroup == "states"]
    # Nothing was ever down, so nothing is said of it.
    assert [line.name for line in stack] == [state.name for state in STATES[:-1]]
    assert np.allclose(np.sum([line.y for line in stack], axis=0), series(busy=16)["busy"])
    layout = json.loads(figure.to_json())["layout"]
    assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"
    assert layout["font"]["color"] == TEXT
    assert layout["xaxis"]["tickfont"]["color"] == NEUTRAL


def test_only_the_first_row_of_equal_names_has_room_for_them_above() -> None:
    frame = parts(["fifo"])["states"]["fifo"]
    rows = [state_row(title, frame, X) for title in ("fifo", "sjf")]
    # 48 px of names, 170 px, a gap of 40 px, 170 px.
    layout = linked_rows(rows, X, "").layout
    assert layout.yaxis.domain == pytest.approx((210 / 428, 380 / 428))
    assert layout.yaxis2.domain == pytest.approx((0, 170 / 428))
