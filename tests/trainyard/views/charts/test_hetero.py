from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from tests.trainyard.views.charts.test_theme import contrast
from trainyard.views import charts
from trainyard.views.charts import TimeAxis, policy_style, type_style
from trainyard.views.charts.gpu_types import HEADINGS
from trainyard.views.charts.theme import INK, JOB_COLOURS, POLICY_COLOURS, TYPE_COLOURS

STYLE = policy_style(["fifo", "sjf", "las"], "fifo")
TYPES = {name: colour for name, colour in type_style(["v100", "k80", "t4"]).items() if name}
SHARES = pd.DataFrame(
    {
        "kind": ["all", "size", "size", "model", "job", "job"],
        "group": ["all jobs", "1", "2-4", "<b>%{x}", "7", "a-very-long-name-of-a-job-0001"],
        "jobs": [9, 4, 5, 9, 1, 1],
        "gpu_s": [7200.0, 3600.0, 3600.0, 7200.0, 360.0, 36.0],
        "v100": [0.5, 0.0, 1.0, 0.5, 0.05, 0.95],
        "k80": [0.5, 1.0, 0.0, 0.5, 0.95, 0.05],
        "t4": [0.0] * 6,
    }
)
USE = pd.DataFrame(
    {
        "gpu_type": ["v100", "k80"],
        "held_gpu_h": [50.0, 20.0],
        "capacity_gpu_h": [100.0, 80.0],
        "held_usd": [125.0, 9.0],
        "capacity_usd": [250.0, 40.0],
    }
)


def test_shares_are_stacked_bars_of_100_per_cent_under_headings() -> None:
    figure = charts.type_shares(SHARES, TYPES, "Who?")
    assert [trace.name for trace in figure.data] == ["V100", "K80"]
    assert [trace.marker.color for trace in figure.data] == list(TYPE_COLOURS[:2])
    assert figure.layout.barmode == "stack"
    assert figure.layout.xaxis.ticktext == ("0 %", "20 %", "40 %", "60 %", "80 %", "100 %")
    assert np.add(figure.data[0].x, figure.data[1].x) == pytest.approx(np.full(6, 100.0))
    assert figure.layout.yaxis.ticktext == (
        "all jobs",
        "1 GPU",
        "2–4 GPUs",
        "&lt;b&gt;%&#123;x}",
        "job 7",
        "job a-ve…-of-a-job-0001",
    )
    assert [note.text for note in figure.layout.annotations] == [
        f"<b>{text}</b>" for text in HEADINGS.values() if text
    ]
    heights = [*figure.data[0].y, *(note.y for note in figure.layout.annotations)]
    assert len(set(heights)) == 9
    assert figure.layout.yaxis.range[0] > max(heights)
    # 5 % of a bar has no room for its number; the hover label says it with the GPU-hours.
    assert list(figure.data[0].text) == ["50 %", "", "100 %", "50 %", "", "95 %"]
    assert figure.data[0].customdata[4] == "5.0 %, 0.0 GPU-hours"
    assert figure.data[1].customdata[1] == "100.0 %, 1.0 GPU-hours"


@pytest.mark.parametrize("colour", TYPE_COLOURS)
def test_numbers_can_be_read_on_every_type(colour: str) -> None:
    figure = charts.type_shares(SHARES.assign(v100=1.0, k80=0.0), {"v100": colour})
    ink = figure.data[0].textfont.color
    other = "#FFFFFF" if ink == INK else INK
    assert contrast(ink, colour) > 4.5
    assert contrast(ink, colour) >= contrast(other, colour)


def test_shares_of_nobody() -> None:
    assert charts.type_shares(SHARES.iloc[:0], TYPES).data == ()


def test_notes_are_steps_in_the_colour_of_their_type() -> None:
    notes = pd.DataFrame(
        {
            "name": ["price_k80"] * 2 + ["payoff"] * 2,
            "t_s": [0.0, 3600.0] * 2,
            "value": [1.0, 2.0, 3.0, 4.0],
        }
    )
    colours = charts.note_colours(["k80", "payoff"], TYPES)
    assert colours == {"k80": TYPES["k80"], "payoff": JOB_COLOURS[0]}
    assert not set(colours.values()) & set(POLICY_COLOURS)
    figure = charts.note_lines(
        notes,
        {"price_k80": ("k80", colours["k80"]), "payoff": ("payoff", colours["payoff"])},
        TimeAxis(0, 3600),
        "Prices",
    )
    assert [(trace.name, trace.line.shape, trace.line.color) for trace in figure.data[:-1]] == [
        ("k80", "hv", TYPES["k80"]),
        ("payoff", "hv", JOB_COLOURS[0]),
    ]
    assert figure.data[1].y.tolist() == [3, 4]
    assert figure.data[0].x.tolist() == [0, 3600]
    assert figure.layout.showlegend
    assert not charts.note_lines(
        notes, {"payoff": ("payoff", colours["payoff"])}, TimeAxis(0, 3600)
    ).layout.showlegend


def test_fairness_marks_one() -> None:
    curves = {
        label: pd.DataFrame({"share": [0.5, 1.0], "rho": [0.2 * factor, 3.0 * factor]})
        for label, factor in (("fifo", 4), ("sjf", 1))
    }
    figure = charts.fairness_cdf(curves, STYLE, "Fair?", "under <x>")
    assert [(trace.name, trace.line.color, trace.line.dash) for trace in figure.data] == [
        ("fifo", *STYLE["fifo"]),
        ("sjf", *STYLE["sjf"]),
    ]
    assert figure.data[1].y.tolist() == [50, 100]
    assert (figure.layout.shapes[0].x0, figure.layout.shapes[0].x1) == (1, 1)
    assert figure.layout.xaxis.ticktext == ("1/4", "1/2", "1", "2", "4")
    assert figure.layout.xaxis.title.text == "JCT / JCT under &lt;x&gt;"


@pytest.mark.parametrize("rho", [[1.0], [], [1e-9, 1e9]])
def test_fairness_of_strange_values_has_an_axis(rho: list[float]) -> None:
    table = pd.DataFrame({"share": np.linspace(0, 1, len(rho)), "rho": np.array(rho, np.float64)})
    low, high = charts.fairness_cdf({"fifo": table}, STYLE).layout.xaxis.range
    assert low < 0 < high
    assert np.isfinite([low, high]).all()


def test_use_has_a_bar_for_every_policy_and_type() -> None:
    figure = charts.type_use(
        {"fifo": USE, "sjf": USE.assign(capacity_gpu_h=[100.0, 0.0])}, STYLE, "Busy?"
    )
    assert [trace.x.tolist() for trace in figure.data] == [[50, 25], [50, 0]]
    assert [list(trace.text) for trace in figure.data] == [["50 %", "25 %"], ["50 %", "0 %"]]
    assert [trace.marker.color for trace in figure.data] == [STYLE["fifo"][0], STYLE["sjf"][0]]
    bars = sorted(
        (float(y) - trace.width / 2, float(y) + trace.width / 2)
        for trace in figure.data
        for y in trace.y
    )
    assert all(before[1] < after[0] for before, after in pairwise(bars))
    assert figure.layout.yaxis.ticktext == ("V100", "K80")


def test_cost_stacks_types_and_marks_the_whole_cluster() -> None:
    figure = charts.type_cost({"fifo": USE, "sjf": USE.assign(held_usd=[0.0, 1.0])}, TYPES, "Dear?")
    assert [trace.name for trace in figure.data] == ["V100", "K80", "whole cluster"]
    assert figure.data[0].x.tolist() == [125, 0]
    assert figure.data[1].x.tolist() == [9, 1]
    assert figure.data[2].x.tolist() == [290, 290]
    assert figure.layout.yaxis.ticktext == ("fifo", "sjf")


def test_bars_of_a_metric_share_one_unit() -> None:
    # By hand: up to two hours are drawn in minutes; sjf completed no job.
    waits = pd.Series({"fifo": 5400.0, "sjf": np.nan})
    figure = charts.metric_bars(waits, STYLE, "s", "Average wait")
    assert figure.data[0].x.tolist() == [90, 0]
    assert figure.data[0].text == ("1.5 h", "–")
    assert figure.layout.xaxis.title.text == "minutes"
    assert figure.layout.yaxis.ticktext == ("fifo", "sjf")
    shares = charts.metric_bars(pd.Series({"fifo": 0.0}), STYLE, "1")
    assert shares.layout.xaxis.range == (0, pytest.approx(114))


def test_nothing_to_draw() -> None:
    assert charts.type_use({}, STYLE).data == ()
    assert [trace.name for trace in charts.type_cost({}, TYPES).data] == ["whole cluster"]
    variants = [
        "Gavel · objective finish_time_fairness",
        "Gavel · objective finish_time_fairness · aware no",
        "x" * 90,
    ]
    assert charts.type_cost(dict.fromkeys(variants, USE), TYPES).layout.yaxis.ticktext == (
        "Gavel · objective<br>finish_time_fairness",
        "Gavel · objective<br>finish_t…ess · aware no",
        f"{'x' * 24}<br>{'x' * 8}…{'x' * 14}",
    )
