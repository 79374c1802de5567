"""A figure with its finding, data and note, shared by pages, reports and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pandas as pd

from sim.metrics.registry import Metric
from trainyard.views.charts.theme import darken_figure, enlarge_figure

LARGE_SCALE: Final = 1.35
"""Factor on the size of text for projectors."""


@dataclass(frozen=True, eq=False)
class FigureView:
    """A figure, its finding as text, and its data.

    Parameters
    ----------
    name : str
        Name of its files and of its place in a page.
    figure : Figure
        Built by `trainyard.views.charts`; its title is the question that it answers.
    alt : str
        The finding as a sentence.
    data : callable or None
        Returns the data with readable column names. None = a table next to the figure has them.
    note : str
        How to read it; "" = the figure needs no explanation.
    """

    name: str
    figure: Any
    alt: str
    data: Callable[[], pd.DataFrame] | None = None
    note: str = ""

    def with_theme(self, dark: bool, *, large: bool = False) -> Any:
        """Return the figure in a theme's colors, with larger text for projectors."""
        figure = self._darkened if dark else self.figure
        return enlarge_figure(figure, LARGE_SCALE) if large else figure

    @cached_property
    def _darkened(self) -> Any:
        """The figure in dark theme colors."""
        return darken_figure(self.figure)


def title_with_unit(metric: Metric) -> str:
    """Return the title of a metric with its unit, for the head of a column."""
    return f"{metric.title}{f' ({metric.unit})' if metric.unit not in ('', '1') else ''}"


def stack_frames(frames: Mapping[str, pd.DataFrame], columns: Mapping[str, str]) -> pd.DataFrame:
    """Return frames of several policies as one table: policy, then the renamed columns.

    Only the columns in `columns` are kept.
    """
    rows = pd.concat(
        [frame.assign(policy=title) for title, frame in frames.items()], ignore_index=True
    )
    names = {"policy": "Policy"} | {name: text for name, text in columns.items() if name in rows}
    return rows[list(names)].rename(columns=names)
