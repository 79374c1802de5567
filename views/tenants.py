"""Teams under compared policies: what they held against their quotas, and when they starved."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, nan
from typing import Any, Final

import numpy as np
import pandas as pd

from sim.metrics import reduce_frame
from trainyard.results.tenants import Teams, TenantReport
from trainyard.text import MISSING, plural, share, time
from views import charts
from views.compared import ComparedRuns
from views.figure_view import FigureView

MOST_DRAWN: Final = 8
"""Teams in the figure: those that are entitled to the most GPU-hours."""
_BINS: Final = 240
COLUMNS: Final[Mapping[str, str]] = {
    "team": "Team",
    "quota": "Quota (GPUs)",
    "jobs": "Jobs",
    "deserved_h": "Entitled to (GPU-h)",
    "used_h": "Used (GPU-h)",
    "borrowed_h": "Borrowed (GPU-h)",
    "lent_h": "Lent (GPU-h)",
    "starved_s": "Starved (s)",
    "starved_h": "Lacking (GPU-h)",
    "by_borrowers_h": "By borrowers (GPU-h)",
    "by_place_h": "By order or place (GPU-h)",
    "reclaim_p50_s": "Until it had its quota, median (s)",
    "reclaim_p95_s": "Until it had its quota, 95 % (s)",
    "stopped": "Jobs stopped",
    "evicted": "Jobs evicted for it",
    "evicted_lost_h": "Lost by these (GPU-h)",
    "share_error": "Off its fair share (GPUs)",
    "wait_p50_s": "Wait, median (s)",
    "wait_p95_s": "Wait, 95 % (s)",
}
LESS_IS_BETTER: Final = ("starved_h", "reclaim_p95_s", "stopped", "share_error", "wait_p95_s")
NOTE: Final = (
    "A team is entitled to the smaller of its quota and what it asks for. It lacks what it holds"
    " less than that; by borrowers as far as others hold more than their quotas at that instant."
    " A job that was stopped counts as evicted for the other team that then lacked most, or else"
    " for the one that got most."
)


def tenants(compared: ComparedRuns, title: str, teams: Teams, report: TenantReport) -> FigureView:
    """Describe what each team holds over time under one policy."""
    table = report.table
    drawn = table.nlargest(MOST_DRAWN, "deserved_h").sort_index()
    axis = compared.axis
    courses = [
        charts.TeamCourse(
            str(row["team"]),
            float(row["quota"]),
            _course(report, str(row["team"]), float(row["quota"]), axis),
        )
        for row in drawn.to_dict("records")
    ]
    figure = charts.tenants(
        courses, axis, f"Who holds, who borrows, who starves under {charts.literal(title)}?"
    )
    most = max(table.to_dict("records"), key=lambda row: row["starved_h"])
    finding = (
        f"Team {charts.visible(str(most['team']))} lacks the most, {most['starved_h']:,.1f}"
        f" GPU-hours, {share(most['by_borrowers_h'] / most['starved_h'])} of it while others borrow"
        if most["starved_h"] > 0
        else "No team starves"
    )
    left_out = len(table) - len(drawn)
    more = f" {plural(left_out, 'team')} with less are in the table only." if left_out else ""
    return FigureView(
        f"tenants-{compared.report.labels.index(title) + 1}",
        figure,
        f"GPUs of each team over time under {title}, against its quota. {finding}.",
        lambda: table.rename(columns=dict(COLUMNS)),
        f"{NOTE} {teams.assumed}{more}",
    )


def _course(report: TenantReport, team: str, quota: float, axis: charts.TimeAxis) -> pd.DataFrame:
    used = report.used[team]
    columns = {
        "within": np.minimum(used, quota),
        "borrowed": np.maximum(used - quota, 0.0),
        "lacking": report.lacking[team],
    }
    frame = pd.DataFrame(
        {"t_s": report.t_s}
        | {name: np.append(values, values[-1:]) for name, values in columns.items()}
    )
    return reduce_frame(frame, axis.t0_s, axis.t1_s, _BINS)


def side_by_side(reports: Mapping[str, TenantReport]) -> pd.DataFrame:
    """Return the table of teams under several policies as texts, team by team; the best of what is
    judged is marked where policies differ.
    """
    every = pd.concat(
        [one.table.assign(policy=title) for title, one in reports.items()], ignore_index=True
    )
    best = {
        (team, key): rows[key].min() if rows[key].min() < rows[key].max() else nan
        for team, rows in every.groupby("team", sort=False)
        for key in LESS_IS_BETTER
    }
    teams = list(dict.fromkeys(every["team"]))
    rows = sorted(every.to_dict("records"), key=lambda row: teams.index(row["team"]))
    return pd.DataFrame(
        [
            {
                "Team": row["team"],
                "Policy": row["policy"],
                **{
                    name: _text(row, key)
                    + (" ★" if best.get((row["team"], key)) == row[key] else "")
                    for name, key in _SHOWN.items()
                },
            }
            for row in rows
        ]
    )


def jain(reports: Mapping[str, TenantReport]) -> str:
    """Return Jain's index under each policy as a sentence; "" = nobody was entitled to anything."""
    known = [f"{title} {one.jain:.2f}" for title, one in reports.items() if not isnan(one.jain)]
    if not known:
        return ""
    return f"Jain's index of used ÷ entitled, 1 = all teams have the same part: {', '.join(known)}."


_SHOWN: Final = {
    "Quota": "quota",
    "Entitled to, GPU-h": "deserved_h",
    "Used": "used_h",
    "Borrowed": "borrowed_h",
    "Lent": "lent_h",
    "Starved": "starved_s",
    "Lacking": "starved_h",
    "By borrowers": "by_borrowers_h",
    "Until it had its quota, 95 %": "reclaim_p95_s",
    "Jobs stopped": "stopped",
    "Evicted for it": "evicted",
    "Lost by these, GPU-h": "evicted_lost_h",
    "Off its fair share, GPUs": "share_error",
    "Wait, median": "wait_p50_s",
    "Wait, 95 %": "wait_p95_s",
}


def _text(row: Mapping[Any, Any], key: str) -> str:
    value = float(row[key])
    if isnan(value):
        return MISSING
    if key.endswith("_s"):
        return time(value)
    return f"{value:,.1f}" if key.endswith("_h") or key == "share_error" else f"{value:,g}"
