"""Views of tenants under compared policies: GPUs against quotas, and starvation."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, nan
from typing import Final

import numpy as np
import pandas as pd

from sim.metrics import reduce_frame
from trainyard.formatting import plural
from trainyard.results.tenants import Teams, TenantReport
from trainyard.views import charts
from trainyard.views.compared_runs import ComparedRuns
from trainyard.views.figure_view import FigureView

MAX_DRAWN: Final = 8
"""Maximum number of tenants in the figure, first those entitled to the most GPU-hours."""
_BINS: Final = 240
COLUMNS: Final[Mapping[str, str]] = {
    "team": "Tenant",
    "quota": "Quota (GPUs)",
    "jobs": "Jobs",
    "deserved_h": "Entitled to (GPU-h)",
    "used_h": "Used (GPU-h)",
    "borrowed_h": "Borrowed (GPU-h)",
    "lent_h": "Lent (GPU-h)",
    "starved_s": "Time short of GPUs (s)",
    "starved_h": "Lacking (GPU-h)",
    "by_borrowers_h": "By borrowers (GPU-h)",
    "by_place_h": "By order or place (GPU-h)",
    "reclaim_p50_s": "Shortage length, median (s)",
    "reclaim_p95_s": "Shortage length, 95 % (s)",
    "stopped": "Jobs stopped",
    "evicted": "Jobs evicted for it",
    "evicted_lost_h": "Work lost by evicted jobs (GPU-h)",
    "share_error": "Distance from fair share (GPUs)",
    "wait_p50_s": "Wait, median (s)",
    "wait_p95_s": "Wait, 95 % (s)",
}
HELP: Final[Mapping[str, str]] = {
    COLUMNS["quota"]: "GPUs that the tenant may always have if it requests them.",
    COLUMNS["deserved_h"]: (
        "GPUs that its jobs request, up to its quota, over time. It differs by policy: a job"
        " requests GPUs until it ends, and each policy ends jobs at other times."
    ),
    COLUMNS["used_h"]: "GPUs that its jobs hold, over time, borrowed ones included.",
    COLUMNS["borrowed_h"]: "GPUs that it holds above its quota, over time.",
    COLUMNS["lent_h"]: "Unused GPUs of its quota that other tenants borrow, over time.",
    COLUMNS["starved_s"]: "Total time while over half a GPU is lacking.",
    COLUMNS["starved_h"]: "GPUs that it requests within its quota but does not get, over time.",
    COLUMNS["by_borrowers_h"]: "The part of Lacking that tenants above their quota hold.",
    COLUMNS["by_place_h"]: "The rest of Lacking: due to queue order or placement.",
    COLUMNS["reclaim_p95_s"]: (
        "Time from the start of a shortage until no GPUs within the quota are lacking;"
        " 95 % of its shortages are at most this long."
    ),
    COLUMNS["stopped"]: "How often the policy stops jobs of this tenant.",
    COLUMNS["evicted"]: "Jobs of other tenants that are stopped to give this tenant GPUs.",
    COLUMNS["evicted_lost_h"]: "Work that jobs evicted for this tenant must repeat.",
    COLUMNS["share_error"]: (
        "Mean difference between the GPUs that it holds and its fair share: its quota plus a part"
        " of the unused GPUs by weight, at most its request."
    ),
    COLUMNS["wait_p50_s"]: "From submission to the first start.",
    COLUMNS["wait_p95_s"]: "95 % of its jobs that started waited at most this long.",
}
"""Column title -> help of the header."""
LESS_IS_BETTER: Final = ("starved_h", "reclaim_p95_s", "stopped", "share_error", "wait_p95_s")
NOTE: Final = (
    "Lacking: GPUs that a tenant requests within its quota but does not get. By borrowers:"
    " lacking GPUs that tenants above their quota hold. By order or place: the rest of these."
    " Evicted for it: jobs of other tenants,"
    " stopped while this tenant lacked the most GPUs (if none lacked any: gained the most)."
)


def tenants(compared: ComparedRuns, title: str, teams: Teams, report: TenantReport) -> FigureView:
    """Return the figure of GPUs over time under a policy, one row for each of up to 8 tenants.

    Tenants entitled to the most GPU-hours are drawn; the table has all.
    """
    table = report.table
    drawn = table.nlargest(MAX_DRAWN, "deserved_h").sort_index()
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
        courses, axis, f"GPUs held, borrowed and lacking by tenant under {charts.literal(title)}"
    )
    most = max(table.to_dict("records"), key=lambda row: row["starved_h"])
    finding = (
        f"Tenant {charts.visible(str(most['team']))} is short by {most['starved_h']:,.0f}"
        f" GPU-hours, {100 * most['by_borrowers_h'] / most['starved_h']:.0f} % of it while others"
        " borrow"
        if most["starved_h"] > 0
        else "No tenant starves"
    )
    left_out = len(table) - len(drawn)
    more = f"{plural(left_out, 'tenant')} with less are in the table only. " if left_out else ""
    return FigureView(
        f"tenants-{compared.report.labels.index(title) + 1}",
        figure,
        f"GPUs of each tenant over time under {title}, against its quota. {finding}.",
        lambda: table.rename(columns=dict(COLUMNS)),
        f"{more}{NOTE}",
    )


def _course(report: TenantReport, team: str, quota: float, axis: charts.TimeAxis) -> pd.DataFrame:
    """Return a tenant's GPUs in the window as reduced steps: within quota, borrowed, lacking."""
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
    """Return a table of tenants, a row per tenant and policy, grouped by tenant.

    Column "Best" lists the figures that are lowest under this policy, if policies differ.
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
    every = every.sort_values("team", key=lambda names: names.map(teams.index), kind="stable")
    wins = [
        ", ".join(_SHOWN[key] for key in LESS_IS_BETTER if best[row["team"], key] == row[key])
        for row in every.to_dict("records")
    ]
    shown = every[[*_SHOWN]].rename(columns={key: COLUMNS[key] for key in _SHOWN if key in COLUMNS})
    hours = [name for name in shown.columns if name.endswith(("(GPU-h)", "share (GPUs)"))]
    shown = shown.round(dict.fromkeys(hours, 1)).rename(columns={"policy": "Policy"})
    return shown.assign(Best=wins).reset_index(drop=True)


def jain_sentence(reports: Mapping[str, TenantReport]) -> str:
    """Return Jain's index under each policy as a sentence; "" without entitlement."""
    indices = [f"{title} {one.jain:.2f}" for title, one in reports.items() if not isnan(one.jain)]
    if not indices:
        return ""
    return (
        f"Jain's index of used ÷ entitled, 1 = equal parts for all tenants: {', '.join(indices)}."
    )


_SHOWN: Final = {
    "team": "tenant",
    "policy": "policy",
    "quota": "quota",
    "deserved_h": "entitled to",
    "used_h": "used",
    "borrowed_h": "borrowed",
    "lent_h": "lent",
    "starved_s": "starved",
    "starved_h": "lacking",
    "by_borrowers_h": "by borrowers",
    "reclaim_p95_s": "shortage length",
    "stopped": "jobs stopped",
    "evicted": "evicted",
    "evicted_lost_h": "lost",
    "share_error": "distance from fair share",
    "wait_p50_s": "median wait",
    "wait_p95_s": "wait, 95 %",
}
"""Columns of the table of several policies -> name in a list."""
