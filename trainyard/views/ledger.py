"""The ledger of compared runs: legend, table and readout, as plain values."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Final
from zlib import crc32

import pandas as pd

from sim.metrics.registry import COLUMNS, Metric
from trainyard import formatting
from trainyard.results.compare import SLOWER
from trainyard.views import charts
from trainyard.views.charts import visible
from trainyard.views.compared_runs import ComparedRuns

MAIN: Final = (
    *("jct_mean_s", "jct_p95_s", "wait_mean_s", "slower"),
    *("utilisation", "cost_held_per_job_usd"),
)
"""Default columns of the ledger, if available."""
OVERLOADED: Final = ("makespan_s", "utilisation")
"""Columns that are meaningful under overload."""
CURVE: Final = 400
"""Points of a completion curve in the readout."""
ALIKE: Final = 0.01
"""Relative change below which values count as about the same."""
NAME: Final = 200
"""Maximum length of a policy's title."""
NOTE: Final = 400
"""Maximum length of a note."""
ALL: Final[Mapping[str, Metric]] = {**COLUMNS, SLOWER.name: SLOWER}


@dataclass(frozen=True)
class LedgerCell:
    """One metric of one policy.

    Parameters
    ----------
    text : str
        The value.
    change : str
        The difference to the baseline: "−47 %", "−2 pt", "≈"; "" = none is told.
    verdict : {"better", "worse", ""}
        Whether that is clear, and good.
    help : str
        The interval of the difference, if there is one.
    value : float
        What it is sorted by; NaN = not known.
    """

    text: str
    change: str = ""
    verdict: str = ""
    help: str = ""
    value: float = math.nan


@dataclass(frozen=True)
class Row:
    """One policy of the ledger.

    Parameters
    ----------
    title, colour : str
        Of the policy.
    cells : sequence of LedgerCell
        One per column.
    kind : {"base", "high", "earlier", ""}
        Whether it is the baseline or the highlighted policy, or a result of earlier settings.
    mark : str
        What stands behind the title, e.g. "baseline".
    note : str
        One sentence in place of all cells: progress of the run, or why there is no result.
    share : float or None
        Part of the run that is done, 0 to 1, drawn as a bar before the note; None = no bar.
    changed : bool
        Whether the policy has been changed since the run.
    hidden : bool or None
        Whether its lines are hidden; None = they cannot be.
    rest : (str, str)
        What the readout shows while nothing is pointed at.
    waiting, most, busy : sequence of float or None
        What it shows within each bin: mean and maximum of the queue, GPUs busy; None = the run has
        ended, or there are no GPUs.
    curve : sequence of float
        Within how many seconds 0 to 100 % of the jobs are done, in equal steps.
    """

    title: str
    colour: str
    cells: Sequence[LedgerCell] = ()
    kind: str = ""
    mark: str = ""
    note: str = ""
    share: float | None = None
    changed: bool = False
    hidden: bool | None = None
    rest: tuple[str, str] = ("", "")
    waiting: Sequence[float | None] = ()
    most: Sequence[float | None] = ()
    busy: Sequence[float | None] = ()
    curve: Sequence[float] = ()


@dataclass(frozen=True)
class LedgerView:
    """The ledger: columns, rows and readout.

    Parameters
    ----------
    columns : sequence of Metric
        Of the cells.
    rows : sequence of Row
        From top to bottom.
    over : str
        What stands over the columns: of what the figures are.
    rest : str
        What stands over the readout while nothing is pointed at.
    heads, rest_heads : (str, str)
        Titles of the two columns of the readout: of an instant, and while nothing is pointed at.
    edges_s, labels : sequence
        Begin of every bin in seconds with the end of the last one, and how each bin is named.
    window, span : (float, float), seconds
        What the figures over time show, and the whole run.
    log : (float, float)
        Ends of the axis of the completion curve, as logarithms of seconds.
    sort : (int, bool) or None
        Index of the column to sort rows by (-1 = title), and whether ascending; None = as given.
    """

    columns: Sequence[Metric]
    rows: Sequence[Row]
    over: str = ""
    rest: str = ""
    heads: tuple[str, str] = ("Jobs waiting", "GPUs busy")
    rest_heads: tuple[str, str] = ("Jobs waiting", "Time")
    edges_s: Sequence[float] = ()
    labels: Sequence[str] = ()
    window: tuple[float, float] = (0.0, 1.0)
    span: tuple[float, float] = (0.0, 1.0)
    log: tuple[float, float] = (0.0, 1.0)
    sort: tuple[int, bool] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with the rows sorted by `sort`; titles and notes are shortened."""
        columns = [{"title": one.title, "help": one.help} for one in self.columns]
        rows: Sequence[Row] = self.rows
        if self.sort is not None:
            at, up = self.sort
            rows = sorted(rows, key=lambda row: row.title.lower() if at < 0 else "", reverse=not up)
            rows.sort(key=lambda row: _sort_key(row, at, up=up))
            if 0 <= at < len(columns):
                columns[at]["sorted"] = "up" if up else "down"
        return {
            "columns": columns,
            "rows": [_row(row) for row in rows],
            "over": self.over,
            "rest": self.rest,
            "heads": list(self.heads),
            "rest_heads": list(self.rest_heads),
            "window": list(self.window),
            "span": list(self.span),
            "curve": {"log": list(self.log)},
        }

    @cached_property
    def readout(self) -> dict[str, Any]:
        """Series of the readout by policy as plain values, and their hash as `mark`."""
        rows = {
            visible(row.title, NAME): {
                name: list(getattr(row, name)) for name in ("waiting", "most", "busy", "curve")
            }
            for row in self.rows
        }
        series = {"t": list(self.edges_s), "labels": list(self.labels), "rows": rows}
        return {"mark": crc32(json.dumps(series).encode()), **series}


def _sort_key(row: Row, at: int, *, up: bool) -> tuple[bool, float]:
    """Return the sort key of a row by column `at`, gaps last; by title only if `at` is negative."""
    if at < 0:
        return bool(row.note), 0.0
    value = row.cells[at].value if at < len(row.cells) else math.nan
    return math.isnan(value), value if up else -value


def _row(row: Row) -> dict[str, Any]:
    """Return a row as plain values, with title and note on one line and shortened."""
    return {
        "title": visible(row.title, NAME),
        "colour": row.colour,
        "kind": row.kind,
        "mark": row.mark,
        "note": visible(row.note, NOTE),
        "share": row.share,
        "changed": row.changed,
        "hidden": row.hidden,
        "rest": list(row.rest),
        "cells": [[cell.text, cell.change, cell.verdict, cell.help] for cell in row.cells],
    }


@dataclass(frozen=True)
class State:
    """State of a ledger that does not come from results.

    Parameters
    ----------
    high : str
        Title of the highlighted policy.
    notes : mapping of str
        Title of a policy without a result -> its progress, or why there is none.
    shares : mapping of float
        Title of a policy that runs -> part that is done, 0 to 1.
    changed, hidden : collection of str
        Policies that have been changed since the run, and those whose lines are hidden.
    dark : bool
        Whether the page is dark.
    """

    high: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    changed: Collection[str] = ()
    hidden: Collection[str] = ()
    dark: bool = False


def ledger_of(
    compared: ComparedRuns,
    table: pd.DataFrame,
    metrics: Sequence[Metric],
    state: State,
    of_what: str = "Whole run",
) -> LedgerView:
    """Return the ledger of compared runs, a row per policy in the order of the study.

    A policy without a result has a row with a note in place of cells.

    Parameters
    ----------
    compared : ComparedRuns
        The runs, with the window.
    table : DataFrame
        Their figures, see `trainyard.results.compare.table`; of all jobs or of some.
    metrics : sequence of Metric
        The columns, from `columns`.
    state : State
        What is highlighted, missing or changed.
    of_what : str
        What the figures are of, as a heading.

    Raises
    ------
    StoreError
        If a stored result was deleted.
    """
    loads, cells = compared.loads, by_place(table)
    differ = compared.baseline if table["change"].notna().any() else ""
    colours = compared.colours(state.dark)
    rows = [
        _complete_row(compared, title, [cell(cells, title, one, differ) for one in metrics], state)
        if title in loads.runs and title in compared.frames["cdf"]
        else unfinished_row(title, colours[title], state)
        for title in compared.runs.titles
    ]
    against = f" vs. {visible(differ)}" if differ else ""
    ends = [frame["jct_s"] for frame in compared.frames["cdf"].values() if len(frame)]
    low = min((float(one.min()) for one in ends), default=60.0)
    high = max((float(one.max()) for one in ends), default=86_400.0)
    bounds = charts.axes.log_duration(low, high)["range"]
    return LedgerView(
        metrics,
        rows,
        f"{of_what}{against}",
        "Peak queue",
        edges_s=[round(at, 1) for at in loads.edges_s.tolist()],
        labels=_labels(compared),
        window=(compared.axis.t0_s, compared.axis.t1_s),
        span=(0.0, max(compared.report.end_s, 1.0)),
        log=(bounds[0], bounds[1]),
    )


def unfinished_row(title: str, colour: str, state: State) -> Row:
    """Return the row of a policy without a result: its progress, or why there is none."""
    note = state.notes.get(title, formatting.MISSING)
    return Row(title, colour, note=note, share=state.shares.get(title))


def _complete_row(
    compared: ComparedRuns, title: str, cells: Sequence[LedgerCell], state: State
) -> Row:
    """Return the row of a policy with a result, of present or of earlier settings."""
    load = compared.loads.runs[title]
    curve = compared.frames["cdf"][title]
    base, earlier = title == compared.baseline, title in compared.earlier
    clock = compared.axis.clock
    mark = "baseline" if base else compared.report.remarks.get(title, "")
    return Row(
        title,
        compared.colours(state.dark)[title],
        cells,
        "earlier" if earlier else "high" if title == state.high else "base" if base else "",
        "earlier" if earlier else mark,
        changed=title in state.changed,
        hidden=None if title in (compared.baseline, state.high) else title in state.hidden,
        rest=(formatting.count(load.peak), clock.format(load.peak_s)),
        waiting=[_round_for_readout(value) for value in load.waiting.tolist()],
        most=[_round_for_readout(value) for value in load.most.tolist()],
        busy=[_round_for_readout(value) for value in load.busy.tolist()],
        curve=charts.lines.significant(charts.quantiles(curve, CURVE), 3) if len(curve) else (),
    )


def _round_for_readout(value: float) -> float | None:
    """Return a value with one decimal below 10, else a whole number; None for NaN."""
    if math.isnan(value):
        return None
    return round(value, 1) if value < 10 and round(value, 1) % 1 else round(value)


def _labels(compared: ComparedRuns) -> list[str]:
    """Return the label of each bin: its ends, or the instant of an exact step."""
    edges, clock = compared.loads.edges_s.tolist(), compared.axis.clock
    if compared.loads.exact:
        return [clock.format(at) for at in edges[:-1]]
    return [clock.span(since, until) for since, until in pairwise(edges)]


Cells = Mapping[tuple[str, str], Mapping[str, Any]]


def by_place(table: pd.DataFrame) -> Cells:
    """Return (policy, metric) -> row of the comparison table."""
    rows = [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
    return {(str(row["label"]), str(row["metric"])): row for row in rows}


def columns(table: pd.DataFrame, goal: str = "", names: Sequence[str] = MAIN) -> list[Metric]:
    """Return the metrics in `names` that the table has; a `goal` not in them comes first."""
    available = set(table["metric"])
    requested = [*([goal] if goal and goal not in names else []), *names]
    return [ALL[name] for name in requested if name in available]


def cell(cells: Cells, title: str, metric: Metric, baseline: str) -> LedgerCell:
    """Return one metric of one policy as a cell, with its difference to the baseline.

    Without a baseline, for the baseline itself and for unknown values there is no difference.
    """
    row = cells.get((title, metric.name))
    if row is None or row["value"] is None or math.isnan(float(row["value"])):
        return LedgerCell(formatting.MISSING)
    value = float(row["value"])
    shown = f"{100 * value:.0f} %" if metric.unit == "1" else formatting.BY_UNIT[metric.unit](value)
    base = cells.get((baseline, metric.name))
    change = float(row["change"])
    if not baseline or title == baseline or base is None or math.isnan(change):
        return LedgerCell(shown, value=value)
    # Points of the displayed values: 82 % and 78 % differ by 4.
    points = round(100 * value) - round(100 * float(base["value"]))
    is_same = points == 0 if metric.unit == "1" else abs(change) < ALIKE
    low, high = float(row["low"]), float(row["high"])
    bounds = f"{formatting.change(low)} to {formatting.change(high)}" if math.isfinite(low) else ""
    help = f"95 % of resamples: {bounds}" if bounds else ""
    if is_same or low <= 0 <= high:
        return LedgerCell(shown, "≈", help=help or "about the same", value=value)
    change_text = (
        f"{points:+d} pt".replace("-", "−") if metric.unit == "1" else formatting.change(change)
    )
    return LedgerCell(shown, change_text, str(row["verdict"]), help, value)
