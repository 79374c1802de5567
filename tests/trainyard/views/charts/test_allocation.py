from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sim.metrics import JCT_PARTS
from tests.trainyard.views.charts.test_theme import contrast
from trainyard.views import charts
from trainyard.views.charts import PARTS, TimeAxis
from trainyard.views.charts.theme import (
    BASELINE_COLOUR,
    INK,
    JOB_COLOURS,
    NEUTRAL,
    POLICY_COLOURS,
    TYPE_COLOURS,
)

X = TimeAxis(0.0, 10 * 86_400.0)


def held(jobs: int = 3, points: int = 500) -> pd.DataFrame:
    t = np.linspace(0, 10 * 86_400, points)
    columns = {
        str(job): np.where((t > job * 1e5) & (t < (job + 2) * 1e5), 4.0 * (job + 1), 0.0)
        for job in range(jobs)
    }
    return pd.DataFrame({"t_s": t, **columns, "others": np.full(points, 5.0)})


def parts(**more: float) -> pd.DataFrame:
    one = {
        "policy": "fifo",
        "jobs": 9,
        "jct_s": 7200.0,
        "queue_s": 3600.0,
        "requeue_s": 0.0,
        "paused_s": 0.0,
        "redone_s": 0.0,
        "slower_s": 600.0,
        "ideal_s": 3000.0,
    }
    return pd.DataFrame(
        [one, one | {"policy": "elastic", "jct_s": 4200.0, "queue_s": 600.0} | more]
    )


def test_jobs_are_stacked_steps_with_their_names_and_the_rest_is_grey() -> None:
    figure = charts.allocation(
        held(),
        X,
        {"0": "a", "1": "b"},
        pd.DataFrame({"t_s": [0.0, 864_000.0], "total": [32.0, 32.0]}),
        "Who?",
    )
    assert [trace.name for trace in figure.data] == ["a", "b", "2", "other jobs", "", "capacity"]
    layers = figure.data[:-2]
    assert {(trace.stackgroup, trace.line.shape, trace.stackgaps) for trace in layers} == {
        ("jobs", "hv", "infer zero")
    }
    assert [trace.line.color for trace in layers] == [*JOB_COLOURS[:3], NEUTRAL]
    assert layers[0].hovertemplate == "job a: %{y:,.1~f} GPUs<extra></extra>"
    assert figure.data[-1].stackgroup is None
    assert figure.data[-1].line.dash == "dot"
    assert figure.layout.legend.traceorder == "normal"
    assert figure.layout.xaxis.title.text == "each point = 29 min, mean"


def test_only_points_with_gpus_and_the_step_down_after_them_are_sent() -> None:
    series = pd.DataFrame(
        {
            "t_s": [0.0, 864.0, 1728.0, 2592.0, 3456.0],
            "7": [0.0, 2.0, 2.0, 0.0, 0.0],
            "others": [1.0] * 5,
        }
    )
    figure = charts.allocation(series, TimeAxis(0, 3456), {})
    assert figure.data[0].x.tolist() == [864, 1728, 2592]
    assert figure.data[0].y.tolist() == [2, 2, 0]
    assert len(figure.data[1].x) == 5
    assert figure.layout.xaxis.title.text is None


def test_many_jobs_stay_within_the_limits_and_long_names_within_the_legend() -> None:
    series = held(8)
    figure = charts.allocation(
        series, X, {str(job): f"application_1506638472019_{job:05}" for job in range(8)}
    )
    assert sum(len(trace.x) for trace in figure.data) <= 4500
    assert figure.data[3].name == "applic…472019_00003"
    assert figure.data[3].hovertemplate.startswith("job application_1506638472019_00003:")
    assert all(trace.y.dtype == np.float32 for trace in figure.data[:-1])


def test_the_calendar_says_what_a_point_is_too() -> None:
    figure = charts.allocation(held(), TimeAxis(0, 864_000, "2017-10-03T00:00:00"), {})
    assert figure.layout.xaxis.ticktext[0] == "Tue 3 Oct"
    assert figure.layout.xaxis.title.text == "each point = 29 min, mean"


def test_job_names_are_no_markup() -> None:
    figure = charts.allocation(held(1), X, {"0": "<b>%{x}"})
    assert figure.data[0].name == "&lt;b&gt;%&#123;x}"
    assert "<b>" not in figure.data[0].hovertemplate


def test_bars_add_up_to_the_mean_completion_time() -> None:
    figure = charts.decomposition(parts(requeue_s=300.0, jct_s=4500.0))
    assert [trace.name for trace in figure.data] == [
        "waiting to start",
        "waiting again",
        "slower than full speed",
        "running at full speed",
    ]
    assert figure.layout.barmode == "stack"
    # Two hours at most, so in minutes.
    assert np.sum([trace.x for trace in figure.data], axis=0).tolist() == [120, 75]
    assert figure.layout.xaxis.title.text == "average completion time, minutes"
    assert [note.text for note in figure.layout.annotations] == ["<b>2 h</b>", "<b>75 min</b>"]
    assert figure.layout.yaxis.ticktext == ("fifo", "elastic")
    assert list(figure.data[0].text) == ["1 h", "10 min"]
    assert list(figure.data[0].customdata) == ["1 h, 50 %", "10 min, 13 %"]
    assert (figure.layout.uniformtext.mode, figure.layout.uniformtext.minsize) == ("hide", 14)


def test_a_policy_that_completed_nothing_has_no_bar() -> None:
    table = parts()
    table.loc[1, [part.column for part in PARTS] + ["jct_s"]] = np.nan
    figure = charts.decomposition(table)
    assert [trace.x[1] for trace in figure.data] == [0] * 3
    assert figure.layout.annotations[1].text == "<b>no job completed</b>"
    assert charts.decomposition(table.iloc[1:]).layout.xaxis.range[1] > 0


def test_part_names_are_those_of_the_metrics() -> None:
    assert tuple(part.column for part in PARTS) == JCT_PARTS
    assert len({part.colour for part in PARTS}) == len(PARTS)


def test_nothing_here_has_the_colour_of_a_policy_or_a_type() -> None:
    taken = {*POLICY_COLOURS, *TYPE_COLOURS, BASELINE_COLOUR}
    assert not taken & {*JOB_COLOURS, *(part.colour for part in PARTS)}
    assert len(set(JOB_COLOURS)) == 8


@pytest.mark.parametrize("colour", [part.colour for part in PARTS])
def test_what_is_written_on_a_bar_can_be_read(colour: str) -> None:
    assert contrast(INK, colour) >= 4.5
    assert contrast(colour, "#0E1117") >= 3
