"""Views of a sweep, and of a search for the fewest nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from sim.metrics.registry import COLUMNS
from trainyard.formatting import in_sentence
from trainyard.study.size_question import SizeQuestion
from trainyard.study.sweep import Sweep
from trainyard.sweeps.axes import row_name
from trainyard.sweeps.plan import PolicyAnswer
from trainyard.views import charts
from trainyard.views.charts.theme import Style
from trainyard.views.figure_view import FigureView, title_with_unit


@dataclass(frozen=True, eq=False)
class SweepFindings:
    """A sweep with its axis labels and finished rows.

    Parameters
    ----------
    sweep : Sweep
        What is run.
    mark : str
        Its id.
    axes : tuple of str
        What its axes are called.
    rows : DataFrame
        `SweepRun.table`.
    """

    sweep: Sweep
    mark: str
    axes: tuple[str, ...]
    rows: pd.DataFrame

    @property
    def baseline(self) -> str:
        """Title of the policy that others are compared with."""
        return self.sweep.study.titles[self.sweep.study.baseline]


def sweep_curve(
    findings: SweepFindings, points: pd.DataFrame, metric: str, style: Style, verdict: str = ""
) -> FigureView:
    """Return the figure of a metric over the single axis of a sweep, one line per policy.

    Parameters
    ----------
    findings : SweepFindings
        The sweep.
    points : DataFrame
        From `trainyard.sweeps.tables.curves` or, of changes, `differences`.
    metric : str
        Name of the metric.
    style : mapping
        Of the policies that are drawn.
    verdict : str
        Which policy is ahead where; "" = changes against the baseline are drawn.
    """
    amount, axis = _amount(metric, change=not verdict), findings.sweep.axes[0]
    table, ends = points.rename(columns={axis.path: "x"}), None
    if axis.numeric:
        ends = (float(min(axis.values)), float(max(axis.values)))
    else:
        table["x"] = table["x"].map(lambda value: charts.literal(value_text(value)))
    title = (
        f"{'Change of ' if amount.change else ''}{amount.title} by {in_sentence(findings.axes[0])}"
    )
    return FigureView(
        "sweep",
        charts.sweep_curve(table, style, amount, findings.axes[0], ends, charts.literal(title)),
        verdict or f"{title}, every policy against {findings.baseline}.",
        lambda: sweep_table(findings, points, metric, change=amount.change),
    )


def sweep_map(
    findings: SweepFindings, points: pd.DataFrame, metric: str, policy: str, *, change: bool
) -> FigureView:
    """Return the map of a metric of one policy over both axes of a sweep.

    Its color scale spans all policies.
    `change` = whether the points are changes against the baseline.
    """
    amount = _amount(metric, change=change)
    x, y = (axis.path for axis in findings.sweep.axes)
    heading = f"{policy}: {'change of ' if change else ''}{amount.title}"
    of_policy = points[points["policy"] == policy]
    figure = charts.sweep_map(
        points.rename(columns={x: "x", y: "y"}),
        policy,
        amount,
        (findings.axes[0], findings.axes[1]),
        charts.literal(heading),
    )
    return FigureView(
        f"map/{policy}",
        figure,
        f"{heading} by {in_sentence(findings.axes[0])} and {in_sentence(findings.axes[1])}.",
        lambda: sweep_table(findings, of_policy, metric, change=change),
    )


def sweep_table(
    findings: SweepFindings, points: pd.DataFrame, metric: str, *, change: bool
) -> pd.DataFrame:
    """Return the points of a sweep, one row each, with readable column names.

    `change` = whether the values are changes; they are shares and keep their values.
    """
    amount = COLUMNS[metric]
    names = dict(zip((axis.path for axis in findings.sweep.axes), findings.axes, strict=True))
    columns = {
        "point": "Point",
        "policy": "Policy",
        "value": f"Change of {amount.title} (share)" if change else title_with_unit(amount),
        "low": "Low",
        "high": "High",
        "completed": "Jobs completed (share)",
        "runs": "Runs",
        "failed": "Failed",
    }
    return points.rename(columns=names | columns)


def value_text(value: object) -> str:
    """Return a value of an axis as text."""
    return (
        f"{value:g}"
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        else str(value)
    )


def capacity_curve(
    question: SizeQuestion, readings: pd.DataFrame, style: Style, finding: str
) -> FigureView:
    """Return the figure of the target metric by tried node count, one line per policy.

    `readings` = table of the tried sizes, `PlanRun.readings`.
    """
    target = _target(question)
    figure = charts.capacity_curve(
        readings,
        style,
        target,
        _drawn_range(question, readings),
        charts.literal(f"{row_name(question.study, question.groups[0])} nodes"),
    )
    return FigureView("capacity", figure, finding, lambda: _readings(question, readings))


def _drawn_range(question: SizeQuestion, readings: pd.DataFrame) -> tuple[int, int]:
    """Return the (least, most) nodes to draw: the whole range, or the tried part of it.

    The tried part, after a search that doubles sizes, ends at about 1.3 times the largest answer.
    """
    if not question.begin:
        return question.low[0], question.high[0]
    held = readings[readings["holds"]].groupby("policy")["size"].min()
    last = int(readings["size"].max())
    # Far above the answers, where the search doubled, nothing changes.
    high = last if held.empty else min(last, math.ceil(1.3 * float(held.max())) + 1)
    return int(readings["size"].min()), high


def mix_map(
    question: SizeQuestion, readings: pd.DataFrame, answer: PolicyAnswer, finding: str
) -> FigureView:
    """Return the figure of tried mixes of two rows of nodes under a policy, a mark each."""
    own = readings[readings["policy"] == answer.policy]
    first, second = (
        charts.NodeRange(row_name(question.study, at), low, high)
        for at, low, high in zip(question.groups, question.low, question.high, strict=True)
    )
    figure = charts.mix_map(
        own,
        _target(question),
        (first, second),
        None if answer.size is None else (answer.size[0], answer.size[1]),
        charts.literal(answer.policy),
    )
    return FigureView(
        f"mix/{answer.policy}",
        figure,
        f"{answer.policy}. {finding}",
        lambda: _readings(question, own),
    )


def _amount(metric: str, *, change: bool = False) -> charts.Amount:
    """Return a metric's title and unit for charts, and whether changes are drawn."""
    about = COLUMNS[metric]
    return charts.Amount(about.title, about.unit, change)


def _target(question: SizeQuestion) -> charts.SweepTarget:
    """Return the target of a search."""
    return charts.SweepTarget(_amount(question.metric), question.limit, question.lower)


def _readings(question: SizeQuestion, readings: pd.DataFrame) -> pd.DataFrame:
    """Return the table of tried sizes with readable column names."""
    names = [f"{row_name(question.study, at)} nodes" for at in question.groups]
    columns = {
        "policy": "Policy",
        "size": names[0],
        "second": names[-1],
        "usd_per_h": "USD per hour",
        "value": title_with_unit(COLUMNS[question.metric]),
        "low": "Lowest",
        "high": "Highest",
        "completed": "Jobs completed (share)",
        "holds": "Meets the target",
        "failed": "Why there is no figure",
    }
    unused = ["second"] if len(names) == 1 else []
    return readings.drop(columns=unused, errors="ignore").rename(columns=columns)
