from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.trainyard.views.charts.test_theme import contrast
from trainyard.views import charts
from trainyard.views.charts.replay import ARMS
from trainyard.views.charts.theme import BASELINE_COLOUR, POLICY_COLOURS

CLASSES = ["compute", "comm", "balanced", "non-scalable"]
WAYS = ["elastic batch", "largest batch", "smallest batch"]


def curves(classes: list[str] = CLASSES, ways: list[str] = WAYS) -> pd.DataFrame:
    rows = [
        (name, gpus, way, np.nan if way == "largest batch" and gpus < 4 else gpus**0.5)
        for name in classes
        for gpus in range(1, 11)
        for way in ways
    ]
    return pd.DataFrame(rows, columns=["class", "gpus", "arm", "speedup"])


def test_one_panel_per_class_and_one_line_per_way() -> None:
    figure = charts.speedup_figure(curves(), "Why?")
    headings = [note.text for note in figure.layout.annotations]
    assert headings == [f"<b>{name}</b>" for name in CLASSES]
    for at in range(4):
        mine = [trace for trace in figure.data if trace.yaxis == ("y" if at == 0 else f"y{at + 1}")]
        lines = [trace for trace in mine if trace.mode == "lines+markers"]
        assert [trace.name for trace in lines] == WAYS
        assert [
            (trace.line.color, trace.line.dash, trace.marker.symbol) for trace in lines
        ] == list(ARMS[:3])
        assert lines[0].x.tolist() == list(range(1, 11))
    domains = [
        (figure.layout[f"xaxis{n}"].domain, figure.layout[f"yaxis{n}"].domain)
        for n in ("", 2, 3, 4)
    ]
    assert domains[0][0] == domains[2][0]
    assert domains[0][0][1] < domains[1][0][0]
    assert domains[0][1] == domains[1][1]
    assert domains[0][1][0] > domains[2][1][1]
    assert domains[3][1][0] == pytest.approx(0)
    assert len({figure.layout[f"yaxis{n}"].range for n in ("", 2, 3, 4)}) == 1


def test_sizes_that_cannot_run_are_gaps_and_marked() -> None:
    figure = charts.speedup_figure(curves(["compute"]))
    line = next(
        trace
        for trace in figure.data
        if trace.name == "largest batch" and trace.mode == "lines+markers"
    )
    assert np.isnan(line.y[:3]).all()
    assert line.connectgaps is False
    cross = next(
        trace for trace in figure.data if trace.name == "largest batch" and trace.mode == "markers"
    )
    assert cross.x.tolist() == [1, 2, 3]
    assert set(cross.y) == {cross.y[0]}
    assert cross.y[0] < 0
    assert "cannot run so" in cross.hovertemplate
    assert [trace.name for trace in figure.data if len(trace.x) and trace.x[0] is None] == [
        "cannot run so"
    ]


def test_the_ideal_is_dotted_whether_given_or_not() -> None:
    own = charts.speedup_figure(curves(["compute"])).data[0]
    assert own.line.dash == "dot"
    assert own.x.tolist() == own.y.tolist() == list(range(1, 11))
    given = curves(["compute"], ["elastic batch", "ideal"]).assign(
        speedup=lambda table: table["speedup"] * 2
    )
    figure = charts.speedup_figure(given)
    assert figure.data[0].y[3] == 4
    assert [trace.name for trace in figure.data if trace.mode == "lines+markers"] == [
        "elastic batch"
    ]


def test_every_name_is_in_the_legend_once() -> None:
    figure = charts.speedup_figure(curves())
    shown = [trace.name for trace in figure.data if trace.showlegend is not False]
    assert sorted(shown) == sorted([*WAYS, "as many times as GPUs", "cannot run so"])


def test_a_frame_without_rows_or_without_numbers_is_drawn_empty() -> None:
    assert len(charts.speedup_figure(curves([])).data) == 1
    nothing = charts.speedup_figure(curves(["compute"]).assign(speedup=np.nan))
    assert np.isfinite(nothing.layout.yaxis.range).all()


def test_colours_are_no_policys_and_visible() -> None:
    assert not {colour for colour, _, _ in ARMS} & {*POLICY_COLOURS, BASELINE_COLOUR}
    assert (
        min(contrast(colour, ground) for colour, _, _ in ARMS for ground in ("#FFFFFF", "#0E1117"))
        >= 2.2
    )
