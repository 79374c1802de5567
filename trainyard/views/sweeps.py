"""Views of a sweep, and of a search for the cheapest purchase."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from sim.metrics.registry import COLUMNS
from trainyard.formatting import BY_UNIT, in_sentence
from trainyard.study.size_question import SizeQuestion
from trainyard.study.sweep import Sweep
from trainyard.sweeps.axes import group_name
from trainyard.sweeps.plan import PolicyAnswer
from trainyard.sweeps.summaries import extra_cost_text, purchase_text, target_metric
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


def purchase_chart(
    question: SizeQuestion,
    answers: Sequence[PolicyAnswer],
    readings: pd.DataFrame,
    style: Style,
    finding: str,
) -> FigureView:
    """Return the figure of the target metric by extra cost a month; by nodes without prices.

    Parameters
    ----------
    question : SizeQuestion
        The search.
    answers, readings : sequence of PolicyAnswer, DataFrame
        Its results so far, of `PlanRun`.
    style : mapping
        Of the policies that are drawn.
    finding : str
        The headline, which is the alternative text.
    """
    usd = pd.Series([question.extra_per_month(mix) for mix in readings["mix"]], dtype=float)
    has_prices = question.price_per_h(question.high) > 0
    nodes = [float(sum(mix) - sum(question.owned)) for mix in readings["mix"]]
    table = readings.assign(
        x=usd if has_prices else nodes,
        name=[
            "what you own" if mix == question.owned else purchase_text(question, mix, short=True)
            for mix in readings["mix"]
        ],
    )
    for column, of in (("is_cheapest", "best"), ("is_alone", "alone")):
        chosen = {
            (answer.policy, reading.size)
            for answer in answers
            if (reading := getattr(answer, of)) is not None
        }
        table[column] = [pair in chosen for pair in zip(table["policy"], table["mix"], strict=True)]
    table["is_alone"] &= ~table["is_cheapest"]
    is_owned = table["mix"] == question.owned
    table.loc[table["is_cheapest"] & is_owned, "name"] = "buy nothing"
    table["is_best_for_money"] = best_for_money(table, lower=question.lower)
    amount = _amount(question.metric)
    table["text"] = [
        charts.literal(f"{policy}: {', '.join(part for part in parts if part)}")
        for policy, name, mix, value in table[["policy", "name", "mix", "value"]].to_numpy(object)
        for cost in (extra_cost_text(question, mix),)
        for parts in ((name, f"{cost} a month" if cost else "", BY_UNIT[amount.unit](value)),)
    ]
    table["mix"] = [",".join(map(str, mix)) for mix in table["mix"]]
    figure = charts.purchase_chart(
        table,
        style,
        charts.SweepTarget(amount, question.limit, question.lower),
        "extra cost a month" if has_prices else "extra nodes",
        charts.literal(f"{target_metric(question.metric, starts=True)}, by what you buy"),
    )
    note = "Line: best for the money. Dots: other purchases. Click one to compare."
    return FigureView("purchases", figure, finding, lambda: _readings(question, readings), note)


def best_for_money(table: pd.DataFrame, *, lower: bool) -> pd.Series[bool]:
    """Return which rows no cheaper row of their policy equals or beats.

    Parameters
    ----------
    table : DataFrame
        `policy`, `x` (price), `value`, `completed`; rows with fewer completed jobs than another
        of their policy never count.
    lower : bool
        Whether lower values are better.
    """
    values = table["value"] if lower else -table["value"]
    most = table.groupby("policy")["completed"].transform("max")
    complete = table.assign(cost=values)[(table["completed"] >= most - 1e-9) & values.notna()]
    ordered = complete.sort_values(["x", "cost"], kind="stable")
    before = ordered.groupby("policy")["cost"].transform(lambda cost: cost.cummin().shift())
    is_better = before.isna() | (ordered["cost"] < before)
    return pd.Series(table.index.isin(ordered.index[is_better]), table.index)


def _amount(metric: str, *, change: bool = False) -> charts.Amount:
    """Return a metric's title and unit for charts, and whether changes are drawn."""
    about = COLUMNS[metric]
    return charts.Amount(about.title, about.unit, change)


def _readings(question: SizeQuestion, readings: pd.DataFrame) -> pd.DataFrame:
    """Return the table of tried mixes with readable column names."""
    columns = {
        "policy": "Policy",
        "mix": " + ".join(f"{group_name(question.rows[at])} nodes" for at in question.groups),
        "usd_per_h": "USD per hour",
        "value": title_with_unit(COLUMNS[question.metric]),
        "low": "Lowest",
        "high": "Highest",
        "completed": "Jobs completed (share)",
        "holds": "Meets the target",
        "failed": "Why there is no figure",
        "jct_mean_s": f"{title_with_unit(COLUMNS['jct_mean_s'])}",
    }
    texts = [" + ".join(map(str, mix)) for mix in readings["mix"]]
    return readings.assign(mix=texts)[list(columns)].rename(columns=columns)
