"""Views of two traces: sizes, run times, gaps and hours of the day."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import pandas as pd

from trainyard.traces.likeness import Likeness
from trainyard.views import charts
from trainyard.views.figure_view import FigureView

THIS, OTHER = "This trace", "The other"
"""Short names for the legends of small figures."""
_MARKS: Final = 5.0
"""Maximum number of duration labels in a small figure."""
_SHOWN: Final = {
    "gpus": ("GPUs per job, at most", "of jobs ask for at most %{x:,.0f}", "GPUs"),
    "duration_s": ("Run time, at most", "of jobs run at most that long", "Seconds"),
    "gap_s": ("Gap between jobs, at most", "of jobs follow within that time", "Seconds"),
    "hour": ("Jobs by hour of the day", "of jobs come in that hour", "Hour"),
}


def views(likeness: Likeness, first: str, second: str) -> Iterator[FigureView]:
    """Yield figures of two traces as two step lines: sizes, run times, gaps, hours of the day.

    Curves without data are left out.

    Parameters
    ----------
    likeness : Likeness
        Both, side by side.
    first, second : str
        What they are called.
    """
    for name, (title, unit, column) in _SHOWN.items():
        table = likeness.curves[name]
        if table.empty:
            continue
        what = title if table.attrs.get("dated", True) else "Jobs by hour since the first"
        gap = (table["first"] - table["second"]).abs()
        at = int(gap.argmax())
        finding = (
            f"{what}: {first} {100 * table['first'].iloc[at]:.0f} % and {second}"
            f" {100 * table['second'].iloc[at]:.0f} % where they differ most."
        )
        yield FigureView(
            f"beside-{name}",
            charts.overlay(table, (THIS, OTHER), what, unit, _axis(name, table)),
            finding,
            _rows(table, {"x": column, "first": first, "second": second}),
        )


def _rows(table: pd.DataFrame, names: dict[str, str]) -> Callable[[], pd.DataFrame]:
    """Return a function that returns the data of a figure."""
    return lambda: table.rename(columns=names)


def _axis(name: str, table: pd.DataFrame) -> dict[str, Any]:
    """Return the Plotly x axis of a curve, by its name: hours, GPUs (log) or durations (log)."""
    low, high = float(table["x"].min()), float(table["x"].max())
    if name == "hour":
        return {"tickvals": [0, 6, 12, 18, 23]}
    if name == "gpus":
        if low < 1 or high < 16:
            return {"type": "linear", "nticks": 5}
        step = max(round(math.log2(high) / 5), 1)
        ticks = [2**at for at in range(0, int(math.log2(high)) + 1, step)]
        return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:,}" for tick in ticks]}
    return charts.log_duration(max(low, 1.0), max(high, 2.0), _MARKS)
