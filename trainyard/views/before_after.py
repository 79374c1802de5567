"""The effect of a change of the scenario on a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sim.cluster import Cluster
from sim.metrics.registry import Metric
from trainyard import formatting
from trainyard.clusters import prices
from trainyard.results.differences import study_changes
from trainyard.study.size_question import HOURS_A_MONTH
from trainyard.views import ledger
from trainyard.views.compared_runs import ComparedRuns
from trainyard.views.ledger import Cells, LedgerCell, LedgerView

_MAX_CHANGES: Final = 3


@dataclass(frozen=True)
class BeforeAfter:
    """The effect of a change of the scenario.

    Parameters
    ----------
    changes : str
        The settings that changed, such as "4 → 5 A100 nodes".
    figures : tuple of (str, str, str)
        Title of a strong policy, and the judged metric before and after.
    cost : str
        The change of the cluster's price, such as "$17,100 more a month."; "" = none is known.
    cells : mapping
        The figures before the change, see `trainyard.views.ledger.by_place`.
    """

    changes: str
    figures: tuple[tuple[str, str, str], ...]
    cost: str
    cells: Cells

    def was(self, title: str, metric: Metric) -> str:
        """Return a figure before the change as text; "" if unknown."""
        text = ledger.cell(self.cells, title, metric, "").text
        return "" if text == formatting.MISSING else text


def before_after(
    compared: ComparedRuns,
    high: str,
    metric: Metric,
    tables: tuple[Cells, Cells],
    *,
    is_draft: bool = False,
) -> BeforeAfter | None:
    """Return the effect of the last change; None if no strong policy is affected.

    Parameters
    ----------
    compared : ComparedRuns
        The runs after the change, with those `before` it.
    high : str
        Title of the highlighted policy.
    metric : Metric
        The metric that policies are judged by.
    tables : (Cells, Cells)
        The figures before and after.
    is_draft : bool
        Whether a slider that moves asks for it: then the runs have one repeat for now.
    """
    affected = [
        title
        for title in dict.fromkeys((high, compared.baseline))
        if compared.differs_before(title)
    ]
    # Under overload completion times measure how long jobs kept arriving.
    if (
        compared.before is None
        or not affected
        or "overload"
        in (
            compared.report.first_headline.verdict,
            compared.before.report.first_headline.verdict,
        )
    ):
        return None
    before, after = compared.before.runs.study, compared.runs.study
    after = replace(after, repeats=before.repeats) if is_draft else after
    changes = study_changes(before, after)
    more = f" and {len(changes) - _MAX_CHANGES} more" if len(changes) > _MAX_CHANGES else ""
    result = BeforeAfter("; ".join(changes[:_MAX_CHANGES]) + more, (), "", tables[0])
    figures = [
        (title, result.was(title, metric), ledger.cell(tables[1], title, metric, "").text)
        for title in affected
    ]
    figures = [one for one in figures if one[1] and one[2] != formatting.MISSING]
    if not changes or not figures:
        return None
    return replace(
        result, figures=tuple(figures), cost=_cost(before.base.cluster, after.base.cluster)
    )


def _cost(before: Cluster, after: Cluster) -> str:
    """Return how much more or less a cluster costs a month; "" if equal or a price is missing."""
    if any(prices.types_without_own_price(cluster)[1] for cluster in (before, after)):
        return ""
    usd = (after.price_per_hour - before.price_per_hour) * HOURS_A_MONTH
    if round(usd) == 0:
        return ""
    size = formatting.money(round(abs(usd), -2) or abs(usd))
    return f"{size} {'more' if usd > 0 else 'less'} a month."


def scenarios(view: LedgerView, metrics: Sequence[Metric], change: BeforeAfter) -> LedgerView:
    """Return a ledger with the figures of scenarios A and B, and the difference, in each cell."""
    rows = [
        row
        if row.kind == "earlier"
        else replace(
            row,
            cells=[
                _both(change, row.title, metric, cell)
                for metric, cell in zip(metrics, row.cells, strict=False)
            ],
        )
        for row in view.rows
    ]
    return replace(view, rows=rows, over=f"Scenario A → B, {view.over[:1].lower()}{view.over[1:]}")


def _both(change: BeforeAfter, title: str, metric: Metric, after: LedgerCell) -> LedgerCell:
    """Return a cell with a figure of A and of B, and the difference."""
    was = ledger.cell(change.cells, title, metric, "")
    text = f"{was.text} → {after.text}"
    if formatting.MISSING in (was.text, after.text):
        return LedgerCell(text, value=after.value)
    if metric.unit == "1":
        points = round(100 * after.value) - round(100 * was.value)
        size, is_same = f"{points:+d} pt".replace("-", "−"), points == 0
    elif was.value:
        relative = after.value / was.value - 1
        size, is_same = formatting.change(relative), abs(relative) < ledger.ALIKE
    else:
        size, is_same = "", after.value == 0
    if is_same:
        return LedgerCell(text, "≈", help="about the same", value=after.value)
    is_good = (after.value < was.value) == (metric.better == "lower")
    verdict = ("better" if is_good else "worse") if metric.better and metric.is_judged else ""
    return LedgerCell(text, size, verdict, value=after.value)
