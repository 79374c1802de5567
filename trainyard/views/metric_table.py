"""Comparison tables as HTML, with best values underlined and differences marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import pandas as pd

from sim.metrics.registry import Metric
from trainyard import formatting as words
from trainyard.formatting import MANY, MIN_CHANGE
from trainyard.results.recorded_accuracy import Trust
from trainyard.views import ledger
from trainyard.views.charts.theme import Style
from trainyard.views.markup import html_scroll_table, text


@dataclass(frozen=True)
class TableStyle:
    """Style of a comparison table.

    Parameters
    ----------
    policies : mapping
        Title of a policy -> (colour, dash), from `charts.policy_style`.
    baseline : str
        Its title; "" = differences are not shown.
    dark : bool
        Whether the viewer's theme is dark.
    """

    policies: Style
    baseline: str
    dark: bool = False


def full_table(table: pd.DataFrame, style: TableStyle) -> str:
    """Return an HTML table with one row per known metric and one column per policy."""
    cells = ledger.by_place(table)
    titles = [title for title in style.policies if any(title == one for one, _ in cells)]
    head = "".join(f'<th scope="col">{_policy_header(title, style)}</th>' for title in titles)
    rows = []
    for metric in ledger.ALL.values():
        if not any((title, metric.name) in cells for title in titles):
            continue
        row = "".join(_cell(cells.get((title, metric.name)), metric, style) for title in titles)
        rows.append(
            f'<tr><th scope="row" title="{text(metric.help)}">{text(metric.title)}</th>{row}</tr>'
        )
    return _frame_table(f'<tr><th scope="col">Metric</th>{head}</tr>', rows, style, table)


def export_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with one row per policy, and columns of each metric's value and change.

    Columns without any number are left out.
    """
    values = table.pivot_table(
        index="label", columns="metric", values=["value", "change"], sort=False, dropna=False
    )
    values.columns = [
        str(pair[1]) if pair[0] == "value" else f"{pair[1]}_change"
        for pair in values.columns.to_flat_index()
    ]
    return values.dropna(axis=1, how="all").reset_index().rename(columns={"label": "policy"})


def swatch(colour: str, dash: str) -> str:
    """Return an HTML line in a policy's color; printed with its dash."""
    lengths = [28] if dash == "solid" else [int(one.removesuffix("px")) for one in dash.split(",")]
    ends = list(accumulate(lengths, initial=0))
    stripes = [
        f"{'transparent' if turn % 2 else colour} {begin}px {end}px"
        for turn, (begin, end) in enumerate(pairwise(ends))
    ]
    printed = f"repeating-linear-gradient(90deg, {', '.join(stripes)})"
    return f'<span class="swatch" style="background: {colour}; --printed: {printed}"></span>'


def _policy_header(title: str, style: TableStyle) -> str:
    """Return the column header of a policy: swatch, title, "(baseline)"."""
    base = ' <span class="unit">(baseline)</span>' if title == style.baseline else ""
    return f"{swatch(*style.policies[title])}{text(title)}{base}"


def _cell(row: Mapping[str, Any] | None, metric: Metric, style: TableStyle) -> str:
    """Return the HTML cell of one policy and metric: value, mark of the best, difference."""
    if row is None:
        return f"<td>{words.MISSING}</td>"
    value = words.BY_UNIT[metric.unit](
        float("nan") if row["value"] is None else float(row["value"])
    )
    best = ' class="best" title="lowest or highest of this comparison"' if row["best"] else ""
    mark = '<span class="sr">, lowest or highest of the compared</span>' if row["best"] else ""
    return f"<td><span{best}>{value}</span>{mark}{_difference(row, style)}</td>"


def _difference(row: Mapping[str, Any], style: TableStyle) -> str:
    """Return the difference to the baseline as HTML: arrow, change, half interval, verdict."""
    change = words.change(float(row["change"]))
    if not change or not style.baseline:
        return '<span class="diff">&nbsp;</span>' if style.baseline else ""
    low, high, bounds = float(row["low"]), float(row["high"]), ""
    if max(abs(low), abs(high)) >= MIN_CHANGE:  # not of NaN
        change += f" ± {_half((high - low) / 2, float(row['change']))}"
        bounds = f' title="95 % of resamples: {words.change(low)} to {words.change(high)}"'
    word = f" {row['verdict']}" if row["verdict"] else ""
    if row["verdict"]:
        change = f"{'▲' if float(row['change']) > 0 else '▼'} {change}"
    return f'<span class="diff {row["verdict"]}"{bounds}>{change}{word}</span>'


def _half(half: float, change: float) -> str:
    """Return half an interval as text: a factor if the change is above `MANY`, else percent."""
    half = half if change > MANY else 100 * half
    return f"{half:,.0f}" if half >= 9.5 else f"{half:.1f}"


def _frame_table(head: str, rows: Sequence[str], style: TableStyle, table: pd.DataFrame) -> str:
    """Return the table in its frame; with several policies a note explains it."""
    compared = style.baseline and table["change"].notna().any()
    against = (
        f"Differences against {style.baseline}, over the jobs completed under both. "
        if compared
        else ""
    )
    barred = ", ".join(str(title) for title in table.loc[table["barred"], "label"].unique())
    barred_text = f"; {barred} not counted" if barred else ""
    several = len(table["label"].unique()) > 1
    # A caption would be as wide as the table and be cut off on a narrow page.
    note = f"{against}Underlined: the best value{barred_text}."
    return html_scroll_table(head, "".join(rows), dark=style.dark, note=note if several else "")


def accuracy_table(trust: Trust) -> pd.DataFrame:
    """Return recorded waits and errors of simulated ones as a table, a row per job size."""
    sizes = trust.by_size
    columns = {
        "size": "GPUs",
        "jobs": "Jobs",
        "recorded_s": "Median recorded wait (s)",
        "median_s": "Median error (s)",
        "p95_s": "95th percentile of the error (s)",
    }
    return sizes[list(columns)].rename(columns=columns)
