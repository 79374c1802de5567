"""Views of a replay: published and simulated figures, measures over an axis, speed-ups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from trainyard.formatting import BY_UNIT, MISSING
from trainyard.labs.replays import cards, curves
from trainyard.labs.replays.report import ClaimRow
from trainyard.labs.replays.types import CardFigure, Replay, ReplayAxis, ReplayMeasure
from trainyard.views import charts
from trainyard.views.figure_view import FigureView


def speedups(replay: Replay) -> FigureView | None:
    """Return the figure of speed-ups, a panel per class of jobs; None if batches are fixed."""
    table = curves.speed_curves(replay.base)
    if table is None:
        return None
    title = "Speed-up of each class of jobs, by how the batch is chosen"
    return FigureView("speedups", charts.speedup_figure(table, title), title, lambda: table)


def published_view(rows: Sequence[tuple[ClaimRow, str]]) -> FigureView | None:
    """Return the figure of published and simulated ratios, a row per claim; None without any.

    Other kinds of measures, and changes, have no common scale and stay in the table.
    """
    some = [
        (row, label)
        for row, label in rows
        if row.claim.measure.kind == "ratio" and row.claim.since is None and row.pooled.seeds
    ]
    if not some:
        return None
    title = "Published and simulated: ratio of the first policy to the second"
    finding = "; ".join(
        f"{label}: published {row.claim.published_text or 'no figure'}, simulated"
        f" {number(row.claim.measure, row.pooled.value)}, {row.verdict}"
        for row, label in some
    )
    figure = charts.published_vs_simulated(
        [{**row.to_json(""), "metric": label} for row, label in some], title
    )
    return FigureView("published", figure, finding)


def measure_curve(
    replay: Replay, table: pd.DataFrame, axis: ReplayAxis, group: Sequence[ReplayMeasure], at: float
) -> FigureView:
    """Return the figure of measures of one metric over an axis, a line each, with the claim.

    Parameters
    ----------
    replay : Replay
        What was repeated.
    table : DataFrame
        Rows of `ReplayReport.curves` of this axis.
    axis : ReplayAxis
        The axis.
    group : sequence of ReplayMeasure
        What is drawn.
    at : float
        Value of the axis that is marked by a vertical line.
    """
    first = group[0]
    table = table[table["measure"].isin([measure.label for measure in group])]
    claim = next(
        (
            published
            for measure in group
            if not replay.is_line(measure)
            and (published := _claim(replay, axis, measure)) is not None
        ),
        None,
    )
    of = curves.title(first.metric)
    unit = f" ({curves.unit(first.metric)})" if curves.unit(first.metric) in ("s", "ms") else ""
    title = f"{of}, {first.kind}" if first.kind != "value" else of
    computed = [measure.label for measure in group if replay.is_line(measure)]
    figure = charts.ratio_curve(
        table.assign(computed=table["measure"].isin(computed)),
        axis.label,
        claim,
        even={"ratio": 1.0, "difference": 0.0}.get(first.kind, math.nan),
        value=first.kind if first.kind == "ratio" else f"{of}{unit}",
        title=title,
    )
    figure.add_vline(x=at, line={"color": "rgba(128, 128, 128, 0.6)", "width": 2, "dash": "dot"})
    of_measure = {measure.label: measure for measure in group}
    columns = (table[name].tolist() for name in ("measure", "value", "estimate"))
    values = "; ".join(
        f"{name} at {value:g}: {number(of_measure[name], estimate)}"
        for name, value, estimate in zip(*columns, strict=True)
    )
    return FigureView(
        f"curve/{axis.name}/{first.text}", figure, f"{title} over {axis.label}. {values}."
    )


def _claim(
    replay: Replay, axis: ReplayAxis, measure: ReplayMeasure
) -> charts.PublishedClaim | None:
    """Return the published figure and band for a measure's curve; None without a claim.

    Claims at a value of this axis come first, then those without an axis.
    """
    key = (measure.metric, measure.arms, measure.kind)
    own = [
        claim
        for claim in replay.claims
        if claim.since is None
        and (claim.measure.metric, claim.measure.arms, claim.measure.kind) == key
    ]
    here = [claim for claim in own if claim.at.axis == axis.name] or [
        claim for claim in own if not claim.at.axis
    ]
    if not here:
        return None
    claim = next((one for one in here if one.published is not None), here[0])
    low, high = claim.band or (math.nan, math.nan)
    place = claim.at.value if claim.at.axis == axis.name else math.nan
    return charts.PublishedClaim(
        place, math.nan if claim.published is None else claim.published, low, high
    )


class CardLine(NamedTuple):
    """Texts of a figure on a card.

    Parameters
    ----------
    published, simulated : str
        The figures.
    verdict : str
        As in the rows of a replay.
    detail : str
        Interval, or what weakens the verdict.
    """

    published: str
    simulated: str
    verdict: str
    detail: str


def card_line(figure: CardFigure) -> CardLine:
    """Return the texts of a figure on a card, from the stored rows of its claims."""
    rows = cards.figure_rows(figure)
    values, verdicts = [row["simulated"] for row in rows], {row["verdict"] for row in rows}
    verdict = "undecided" if figure.finding or len(verdicts) > 1 else verdicts.pop()
    detail = ""
    if verdict == "in" and any(row["mark"] for row in rows):
        detail = "range set later"
    elif len(rows) == 1 and rows[0]["ci95"]:
        detail = f"95 %: {_card_range(figure, rows[0]['ci95'], '')}"
    scale, sign = (100, "+") if figure.kind == "difference" else (1, "")
    return CardLine(
        f"{scale * rows[0]['published']:{sign}g}",
        _card_range(figure, (min(values), max(values)), sign),
        verdict,
        detail,
    )


def _card_range(figure: CardFigure, ends: Sequence[float], sign: str) -> str:
    """Return two figures of a card as a range, or one if they are equal when rounded."""
    scale = 100 if figure.kind == "difference" else 1
    texts = [f"{'−' if end < 0 else sign}{_short(scale * abs(end))}" for end in ends]
    return "–".join(dict.fromkeys(texts))


def number(measure: ReplayMeasure, value: float) -> str:
    """Return a measure as text: "× 1.50" for a ratio, signed for a difference, with its unit."""
    if not math.isfinite(value):
        return MISSING
    if measure.kind == "ratio":
        return f"× {_short(value)}"
    text = metric_text(measure.metric, abs(value))
    if measure.kind == "difference" and text.endswith("%"):
        text = f"{text[:-1].rstrip()} points"
    return f"{'−' if value < 0 else '+' if measure.kind == 'difference' else ''}{text}"


def metric_text(metric: str, value: float) -> str:
    """Return a value of a metric with its unit; a dash if it is not finite."""
    unit = curves.unit(metric)
    if unit in BY_UNIT and unit:
        return BY_UNIT[unit](value)
    return f"{_short(value)} {unit}".rstrip() if math.isfinite(value) else MISSING


def _short(value: float) -> str:
    return (
        f"{value:,.0f}"
        if abs(value) >= 100
        else f"{value:.2f}"
        if abs(value) < 10
        else f"{value:.1f}"
    )
