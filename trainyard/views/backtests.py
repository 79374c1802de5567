"""Views of a backtest: recorded and simulated lines, and tables of errors."""

from __future__ import annotations

import math

from trainyard import formatting as words
from trainyard.labs.backtests.figures import BIN_S, Measures
from trainyard.labs.backtests.report import BacktestReport, FitReport
from trainyard.views import charts
from trainyard.views.figure_view import FigureView
from trainyard.views.markup import html_scroll_table, text

Colours = tuple[str, str]
_COLUMNS = (
    ("Jobs", "jobs of which both waits are known"),
    ("Bias", "mean simulated wait less mean recorded wait"),
    ("Median error", "median absolute error of the wait of a job"),
    ("90 % within", "90th percentile of the absolute error"),
    ("Within 10 min", "share of the jobs whose error is at most 10 minutes"),
    ("Rank", "rank correlation: whether the same jobs wait long"),
    ("Distance", "recorded against simulated distribution of waits: 0 = same, 1 = no overlap"),
    ("Explained", "share of the variation of waits that is explained; 100 % = all"),
)


def waits(report: BacktestReport, mark: str, colours: Colours, epoch: str) -> FigureView | None:
    """Return the figure of recorded and simulated median waits; None if nothing was simulated.

    Lines through bins of six hours, with a band over the repeats.

    Parameters
    ----------
    report : BacktestReport
        What was found.
    mark : str
        Id of the backtest, part of the figure's name.
    colours : (str, str)
        Of the policy and of the recorded schedule.
    epoch : str
        Instant of second 0; "" = days are counted.
    """
    medians = report.medians
    if medians is None or report.split is None:
        return None
    x = charts.TimeAxis(*_span(report), epoch)
    names = {
        "from_s": "From (s)",
        "jobs": "Jobs",
        "recorded_s": "Recorded median wait (s)",
        "simulated_s": "Simulated median wait (s)",
        "low_s": "Least of the repeats (s)",
        "high_s": "Most of the repeats (s)",
    }
    band = " The band is the range over the repeats." if report.repeats > 1 else ""
    return FigureView(
        f"past-waits/{mark}",
        charts.past_waits(medians, _lines(report, colours), x, BIN_S),
        f"{report.headline} Median waits of each six hours, recorded and simulated.",
        lambda: medians.rename(columns=names),
        f"By submission.{band}",
    )


def use(report: BacktestReport, mark: str, colours: Colours, epoch: str) -> FigureView | None:
    """Return the figure of recorded and simulated use over time; None if nothing was simulated.

    Lines through the means of bins, in GPUs or cores. Parameters as in `waits`.
    """
    frame = report.use
    if frame is None:
        return None
    unit = report.unit
    names = {
        "from_s": "From (s)",
        "to_s": "To (s)",
        "recorded": f"Recorded {unit} in use",
        "simulated": f"Simulated {unit} in use",
    }
    x = charts.TimeAxis(*_span(report), epoch)
    return FigureView(
        f"past-use/{mark}",
        charts.past_use(frame, _lines(report, colours), x, unit),
        f"{unit} in use over time, recorded and simulated.",
        lambda: frame.rename(columns=names),
        "Means, of the jobs with a recorded start.",
    )


def _span(report: BacktestReport) -> tuple[float, float]:
    """Return the (start, end) in seconds of the use table, which both figures show."""
    assert report.use is not None, "computed with the medians"
    return float(report.use["from_s"].min()), float(report.use["to_s"].max())


def _lines(report: BacktestReport, colours: Colours) -> charts.TwoLines:
    """Return policy, colors and start of the judged part; the start is inf without a split."""
    judged_s = math.inf if report.split is None else report.split.judge_s
    return charts.TwoLines(report.policy, *colours, judged_s)


def table(report: BacktestReport, *, dark: bool) -> str:
    """Return an HTML table of the errors of simulated waits; "" without a judged part.

    One row each for the judged part, the earlier part, two repeats against each other, and every
    rival, as far as known.
    """
    if report.judged is None:
        return ""
    rows = [(f"{report.policy}, judged part", report.judged.mean)]
    if report.fitted is not None:
        rows.append((f"{report.policy}, earlier part", report.fitted.mean))
    if report.floor is not None:
        rows.append(("Floor: two repeats against each other", report.floor))
    rows += list((report.rivals or {}).items())
    head = '<th scope="col"></th>' + "".join(
        f'<th scope="col" title="{text(hint)}">{text(name)}</th>' for name, hint in _COLUMNS
    )
    body = "".join(
        f'<tr><th scope="row">{text(name)}</th>'
        f"{''.join(f'<td>{text(cell)}</td>' for cell in cells(one))}</tr>"
        for name, one in rows
    )
    return html_scroll_table(f"<tr>{head}</tr>", body, dark=dark)


def groups(report: BacktestReport, *, dark: bool) -> str:
    """Return an HTML table of errors, one row per partition and per size; "" without groups.

    A single partition or size has no row.
    """
    frame = report.groups
    if frame is None or frame.empty:
        return ""
    names = ("Jobs", "Recorded wait", "Bias", "Median error", "Within 10 min", "Explained")
    head = '<th scope="col">Judged jobs by</th>' + "".join(
        f'<th scope="col">{name}</th>' for name in names
    )
    body = "".join(
        f'<tr><th scope="row">{text(_group(row["kind"], row["name"], report.unit))}</th>'
        f"<td>{row['jobs']:,}</td><td>{words.time(row['recorded_s'])}</td>"
        f"<td>{words.signed_duration(row['bias_s'])}</td><td>{words.time(row['error_s'])}</td>"
        f"<td>{words.share(row['within'])}</td><td>{words.share(row['explained'])}</td></tr>"
        for row in frame.to_dict("records")
    )
    return html_scroll_table(f"<tr>{head}</tr>", body, dark=dark)


def steps(fit: FitReport, *, dark: bool) -> str:
    """Return an HTML table of a fit: a row per tried setting with error, spread, if kept."""
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("Setting", "Tried", "Error + bias", "Spread", "Kept")
    )
    body = "".join(
        f'<tr><th scope="row">{text(one.knob or "As given")}</th><td>{text(one.option)}</td>'
        f"<td>{words.time(one.objective_s)}</td><td>{words.time(one.spread_s)}</td>"
        f"<td>{'yes' if one.kept else ''}</td></tr>"
        for one in fit.steps
    )
    return html_scroll_table(f"<tr>{head}</tr>", body, dark=dark)


def cells(one: Measures) -> tuple[str, ...]:
    """Return the cells of a table row as plain text, in the order of `_COLUMNS`."""
    return (
        f"{one.jobs:,.0f}",
        f"{words.signed_duration(one.bias_s)} ({words.change(one.bias) or words.MISSING})",
        words.time(one.error_s),
        words.time(one.p90_s),
        words.share(one.within),
        words.factor(one.rank).replace("-", "−"),
        words.factor(one.distance),
        words.share(one.explained),
    )


def _group(kind: str, name: str, unit: str) -> str:
    """Return the label of a group of jobs: its size with the unit, or kind and name."""
    if kind == "Size":
        return f"{words.with_en_dash(name)} {unit[:-1] if name == '1' else unit}"
    return f"{kind} {name}"
