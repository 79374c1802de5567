"""Chart of teams over time: GPUs within quota, borrowed and missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from trainyard.views.charts.axes import TimeAxis
from trainyard.views.charts.over_time import LinkedRow, linked_rows
from trainyard.views.charts.theme import NEUTRAL, Trace, literal, with_opacity

_ROW_PX: Final = 54
_WITHIN, _BORROWED, _LACKING, _QUOTA = "within its quota", "borrowed", "lacking", "quota"
LAYERS: Final = (
    ("within", _WITHIN, with_opacity("#6FB5AE", 0.85), ""),
    ("borrowed", _BORROWED, with_opacity("#A47FC0", 0.85), "x"),
    ("lacking", _LACKING, with_opacity("#E3B76B", 0.45), "/"),
)
"""From bottom to top of the stack: column, name, color, hatching; colors used nowhere else."""


@dataclass(frozen=True, eq=False)
class TeamCourse:
    """GPUs of one team over time.

    Parameters
    ----------
    name : str
        The team.
    quota : float
        GPUs.
    frame : DataFrame
        t_s, within, borrowed, lacking: reduced steps.
    """

    name: str
    quota: float
    frame: pd.DataFrame


def tenants(teams: Sequence[TeamCourse], x: TimeAxis, title: str) -> go.Figure:
    """Draw each team's GPUs over time, one row per team: within quota, borrowed, lacking.

    Stacked steps, and a dotted line at the quota.

    Parameters
    ----------
    teams : sequence of TeamCourse
        From top to bottom, at least one.
    x : TimeAxis
        The time that is drawn.
    title : str
        The question.
    """
    names = [name for _, name, _, _ in LAYERS] + [_QUOTA]
    most = max(
        max(team.quota, float(team.frame[[key for key, *_ in LAYERS]].sum(axis=1).max()))
        for team in teams
    )
    rows = [
        LinkedRow(
            f"{literal(team.name)} · quota {team.quota:,g} GPUs",
            [*_layers(team, x), _line(team, x)],
            height=_ROW_PX,
            axis={"range": [0, most * 1.05 or 1.0], "nticks": 3},
            legend=names,
        )
        for team in teams
    ]
    return linked_rows(rows, x, title)


def _layers(team: TeamCourse, x: TimeAxis) -> list[Trace]:
    """Return the stacked layers of one team."""
    return [
        {
            "type": "scatter",
            "x": x.place(team.frame["t_s"].to_numpy("float64")),
            "y": team.frame[column].to_numpy("float32"),
            "name": name,
            "legend": "legend2",
            "stackgroup": f"team {team.name}",
            "line": {"shape": "hv", "width": 0, "color": NEUTRAL},
            "fillcolor": fill,
            "hovertemplate": f"%{{y:,.1~f}} {name}<extra>{literal(team.name)}</extra>",
            **({"fillpattern": _hatch_pattern(hatch, fill)} if hatch else {}),
        }
        for column, name, fill, hatch in LAYERS
    ]


def _hatch_pattern(shape: str, fill: str) -> dict[str, Any]:
    """Return a hatching pattern on a fill color."""
    return {"shape": shape, "fgcolor": NEUTRAL, "bgcolor": fill, "size": 6, "solidity": 0.2}


def _line(team: TeamCourse, x: TimeAxis) -> Trace:
    """Return the dotted line of a team's quota, from the first to the last instant."""
    ends = team.frame["t_s"].iloc[[0, -1]].to_numpy("float64")
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x.place(ends),
        "y": [team.quota, team.quota],
        "name": _QUOTA,
        "legend": "legend2",
        "hoverinfo": "skip",
        "line": {"color": NEUTRAL, "width": 1, "dash": "dot"},
    }
