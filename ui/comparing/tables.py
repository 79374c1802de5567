"""The table of a comparison as HTML: one row per policy or per metric, the lowest or highest value underlined, differences with sign, arrow and word."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import pandas as pd

from trainyard.results.metrics_shown import METRICS, SLOWER, Metric
from trainyard.runs import frames
from trainyard.text import MANY, SEEN
from ui import words

MAIN: Final = (
    *("jct_mean_s", "jct_p50_s", "jct_p95_s", "wait_mean_s", "completion_rate", "deadline_rate"),
    *("utilisation", "cpus_used", "mem_used", "slower", "cost_held_per_job_usd"),
)
"""Metrics of the first table; the other one has them all."""
OVERLOADED: Final = ("makespan_s", "utilisation")
"""Those that mean something where jobs ask for more than the cluster can do."""
_ALL: Final[Mapping[str, Metric]] = {metric.name: metric for metric in (*METRICS, SLOWER)}
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
Style = Mapping[str, tuple[str, str]]
_DASH: Final = {
    "solid": ((28, 0),),
    "dash": ((8, 4),),
    "dot": ((3, 3),),
    "dashdot": ((8, 3), (3, 3)),
    "longdash": ((12, 4),),
    "longdashdot": ((12, 3), (3, 3)),
}
"""Dash of a line -> (pixels drawn, pixels left free), as in `charts.theme`."""


@dataclass(frozen=True)
class Look:
    """How a comparison is drawn.

    Parameters
    ----------
    style : mapping
        Title of a policy -> (colour, dash), from `charts.policy_style`.
    baseline : str
        Its title; "" = differences are not shown.
    dark : bool
        Whether the viewer's theme is dark.
    """

    style: Style
    baseline: str
    dark: bool = False

    def drawn(self, titles: Sequence[str]) -> tuple[str, ...]:
        """Return which of some policies are drawn where one chart has several: the first few, the baseline always among them."""
        return frames.drawn(titles, self.baseline)


def main_table(
    table: pd.DataFrame,
    look: Look,
    remarks: Mapping[str, str] = _NONE,
    goal: str = "",
    *,
    skipped: Mapping[str, str] = _NONE,
    names: Sequence[str] = MAIN,
) -> str:
    """Return the table with one row per policy, the metric that matters most first; a remark (title -> text) stands below a policy's name.

    Policies that were skipped (title -> reason) have a row with the reason.
    """
    cells = _by_place(table)
    metrics = [
        _ALL[name]
        for name in sorted(names if goal in names or not goal else (goal, *names), key=lambda name: name != goal)
        if any((title, name) in cells for title in look.style)
    ]
    head = "".join(f'<th scope="col" title="{html.escape(metric.help)}">{html.escape(metric.title)}{_direction(metric)}</th>' for metric in metrics)
    rows = []
    for title in [title for title in look.style if (title, metrics[0].name) in cells]:
        row = "".join(_cell(cells.get((title, metric.name)), metric, look) for metric in metrics)
        rows.append(f'<tr><th scope="row">{_named(title, look, remarks)}</th>{row}</tr>')
    wide = f'<td class="long skipped" colspan="{len(metrics)}"><div>Skipped: '
    rows += [f'<tr><th scope="row">{_named(title, look, remarks)}</th>{wide}{html.escape(why)}</div></td></tr>' for title, why in skipped.items()]
    return _framed(f'<tr><th scope="col">Policy</th>{head}</tr>', rows, look, table)


def full_table(table: pd.DataFrame, look: Look, remarks: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the table with one row per metric and one column per policy; a remark (title -> text) stands below its name."""
    cells = _by_place(table)
    titles = [title for title in look.style if (title, METRICS[0].name) in cells]
    head = "".join(f'<th scope="col">{_named(title, look, remarks)}</th>' for title in titles)
    rows = []
    for metric in _ALL.values():
        if not any((title, metric.name) in cells for title in titles):
            continue
        row = "".join(_cell(cells.get((title, metric.name)), metric, look) for title in titles)
        rows.append(f'<tr><th scope="row" title="{html.escape(metric.help)}">{html.escape(metric.title)}{_direction(metric)}</th>{row}</tr>')
    return _framed(f'<tr><th scope="col">Metric</th>{head}</tr>', rows, look, table)


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return the numbers as a table for export: one row per policy, plain units in the header, differences beside each value."""
    values = table.pivot_table(index="label", columns="metric", values=["value", "change"], sort=False, dropna=False)
    values.columns = [str(pair[1]) if pair[0] == "value" else f"{pair[1]}_change" for pair in values.columns.to_flat_index()]
    return values.dropna(axis=1, how="all").reset_index().rename(columns={"label": "policy"})


def swatch(colour: str, dash: str) -> str:
    """Return a short line as a policy is drawn everywhere."""
    stripes, at = [], 0
    for drawn, gap in _DASH[dash]:
        stripes.append(f"{colour} {at}px {at + drawn}px, transparent {at + drawn}px {at + drawn + gap}px")
        at += drawn + gap
    return f'<span class="swatch" style="background: repeating-linear-gradient(90deg, {", ".join(stripes)})"></span>'


def legend(titles: Sequence[str], look: Look, begin: str) -> str:
    """Return a line that tells which policy is drawn how."""
    keys = " &nbsp; ".join(f"{swatch(*look.style[title])}{html.escape(title)}" for title in titles)
    return f'<p class="ty-note">{html.escape(begin)} &nbsp; {keys}</p>'


def _named(title: str, look: Look, remarks: Mapping[str, str]) -> str:
    base = ' <span class="unit">(baseline)</span>' if title == look.baseline else ""
    remark = f'<br><span class="unit">{html.escape(remarks[title])}</span>' if title in remarks else ""
    return f"{swatch(*look.style[title])}{html.escape(title)}{base}{remark}"


def _direction(metric: Metric) -> str:
    arrow = {"lower": "lower is better", "higher": "higher is better"}.get(metric.better, "")
    return f'<br><span class="unit">{arrow or "&nbsp;"}</span>'


def _cell(row: Mapping[str, Any] | None, metric: Metric, look: Look) -> str:
    if row is None:
        return f"<td>{words.MISSING}</td>"
    value = words.BY_UNIT[metric.unit](float("nan") if row["value"] is None else float(row["value"]))
    best = ' class="best" title="lowest or highest of this comparison"' if row["best"] else ""
    mark = '<span class="sr">, lowest or highest of the compared</span>' if row["best"] else ""
    return f"<td><span{best}>{value}</span>{mark}{_difference(row, look)}</td>"


def _difference(row: Mapping[str, Any], look: Look) -> str:
    text = words.change(float(row["change"]))
    if not text or not look.baseline:
        return '<span class="diff">&nbsp;</span>' if look.baseline else ""
    low, high, bounds = float(row["low"]), float(row["high"]), ""
    if max(abs(low), abs(high)) >= SEEN:  # not of NaN
        text += f" ± {_half((high - low) / 2, float(row['change']))}"
        bounds = f' title="95 % of resamples: {words.change(low)} to {words.change(high)}"'
    word = f" {row['verdict']}" if row["verdict"] else ""
    if row["verdict"]:
        text = f"{'▲' if float(row['change']) > 0 else '▼'} {text}"
    return f'<span class="diff {row["verdict"]}"{bounds}>{text}{word}</span>'


def _half(half: float, change: float) -> str:
    """Return half of an interval in the unit of its change, per cent or times, with as many digits as it takes to see it."""
    half = half if change > MANY else 100 * half
    return f"{half:,.0f}" if half >= 9.5 else f"{half:.1f}"


def _framed(head: str, rows: Sequence[str], look: Look, table: pd.DataFrame) -> str:
    compared = look.baseline and table["change"].notna().any()
    against = f"Differences against {html.escape(look.baseline)}. " if compared else ""
    titles = table["label"].unique()
    barred = [html.escape(str(title)) for title in table.loc[table["barred"], "label"].unique()]
    besides = f"; {', '.join(barred)} not counted" if barred else ""
    told = f"{against}Underlined: the lowest or highest value where they differ{besides}."
    # Below the frame, not a caption: that would be as wide as the table, and so be cut with it on a narrow page.
    note = f'<p class="ty-note">{told}</p>' if len(titles) > 1 else ""
    tone = "dark" if look.dark else "light"
    return f'<div class="ty-scroll" tabindex="0"><table class="ty {tone}"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>{note}'


def _by_place(table: pd.DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    rows = [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
    return {(str(row["label"]), str(row["metric"])): row for row in rows}
