from __future__ import annotations

import pandas as pd
import pytest

from trainyard.views import charts

STYLE = charts.policy_style(["was", "here"], "was")


def series(**columns: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"t_s": [0.0, 3600.0], **columns})


def frames(gpus: float) -> dict[str, dict[str, pd.DataFrame]]:
    queue = {
        name: series(waiting=[0.0, 2.0], waiting_low=[0.0, 2.0], waiting_high=[0.0, 2.0])
        for name in STYLE
    }
    busy = {
        name: series(total=[gpus, gpus], total_low=[gpus, gpus], total_high=[gpus, gpus])
        for name in STYLE
    }
    return {"queue": queue, "utilisation": busy, "capacity": {"here": series(total=[8.0, 16.0])}}


@pytest.mark.parametrize(("gpus", "rows"), [(4.0, 2), (0.0, 1)])
def test_the_line_stands_where_they_part(gpus: float, rows: int) -> None:
    drawn = charts.branch_rows(frames(gpus), STYLE, charts.TimeAxis(0.0, 86_400.0), 7200.0, "?")
    (line,) = drawn.layout.shapes
    assert (line.x0, line.x1, line.y0, line.y1) == (7200, 7200, 0, 1)
    assert len([name for name in drawn.to_dict()["layout"] if name.startswith("yaxis")]) == rows
    assert {trace.name for trace in drawn.data if trace.name} == {
        "was",
        "here",
        *(["capacity"] if gpus else []),
    }
