"""A figure of a result with all that belongs to it, described once for pages, reports and
notebooks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pandas as pd

from trainyard.views.charts.theme import darkened, enlarged

_LARGE: Final = 1.35


@dataclass(frozen=True, eq=False)
class FigureView:
    """A figure, what it shows in words, and its numbers.

    Parameters
    ----------
    name : str
        Of its files, and of its place in a page.
    figure : Figure
        Made by `trainyard.views.charts`; its title is the question that it answers.
    alt : str
        The finding as a sentence.
    data : callable or None
        Makes the table of its numbers, columns named as a reader wants them. None = a table beside
        the figure holds them.
    note : str
        How to read it; "" = the figure needs no explanation.
    """

    name: str
    figure: Any
    alt: str
    data: Callable[[], pd.DataFrame] | None = None
    note: str = ""

    def shown(self, dark: bool, *, large: bool = False) -> Any:
        """Return the figure in the colours of a theme, on a projector with larger type."""
        made = self._darkened if dark else self.figure
        return enlarged(made, _LARGE) if large else made

    @cached_property
    def _darkened(self) -> Any:
        return darkened(self.figure)


def stacked(frames: Mapping[str, pd.DataFrame], columns: Mapping[str, str]) -> pd.DataFrame:
    """Return frames of several policies below each other: the policy, then those of the columns
    that are there, renamed.
    """
    rows = pd.concat(
        [frame.assign(policy=title) for title, frame in frames.items()], ignore_index=True
    )
    names = {"policy": "Policy"} | {name: text for name, text in columns.items() if name in rows}
    return rows[list(names)].rename(columns=names)
