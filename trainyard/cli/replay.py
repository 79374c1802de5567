"""The ``replay`` command: compares published claims with simulated results."""

from __future__ import annotations

import argparse
import json
import math
import sys
import textwrap
from collections.abc import Sequence
from typing import Final

from sim.errors import ContractError
from trainyard.cli.errors import UsageError
from trainyard.formatting import duration, plural
from trainyard.labs.replays import curves
from trainyard.labs.replays.reading import MAX_SEEDS, load, names
from trainyard.labs.replays.report import ClaimRow, ReplayReport, band_text, tally
from trainyard.labs.replays.run import MAX_WORKERS, ReplayError, ReplayRun
from trainyard.labs.replays.types import Replay
from trainyard.runs.executors import cores

ALL: Final = "all"
_TICK_S: Final = 0.2
_LONG_S: Final = 30.0
"""Expected seconds above which a warning is printed before the runs."""


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard replay``."""
    parser.set_defaults(command=command_replay)
    parser.add_argument(
        "name", metavar="NAME|all", help=f"one of {', '.join(names())}, or all of them"
    )
    parser.add_argument(
        "--seeds",
        metavar="N",
        help="runs per policy (default: set by the replay; curves keep their own limit)",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        help=f"worker processes (default: one per core, at most {MAX_WORKERS})",
    )
    parser.add_argument(
        "--curves",
        action="store_true",
        help="also simulate every point of the axes of the claim",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON list of rows instead of tables"
    )


def command_replay(args: argparse.Namespace) -> None:
    """Execute ``replay``: simulate published comparisons; print claims next to the results.

    Raises
    ------
    TrainyardError
        If there is no such replay, an argument cannot be used, or a run was stopped.
    """
    seeds = _parse_limited_int("--seeds", args.seeds, MAX_SEEDS)
    workers = _parse_limited_int("--workers", args.workers, 64) or min(cores(), MAX_WORKERS)
    replays = [load(name) for name in (names() if args.name == ALL else (args.name,))]
    rows, texts = [], []
    for replay in replays:
        run = ReplayRun(replay, seeds, curves=args.curves, where=f"processes:{workers}")
        if (takes_s := run.total * replay.run_s / workers) >= _LONG_S:
            budget = " ".join(replay.budget.split())
            sys.stderr.write(
                f"{replay.name}: {plural(run.total, 'simulation')}, about {duration(takes_s)}"
                f" on an idle machine. {budget}\n"
            )
        report = _wait_for_report(run)
        shown = [*report.rows, *(_unclaimed_points(report) if args.curves else ())]
        rows += [row.to_json(replay.name) for row in shown]
        texts.append(_report_text(replay, report, shown, run))
        if args.json:
            sys.stderr.writelines(f"{replay.name}: {line}\n" for line in report.sentences)
    sys.stdout.write(
        (
            json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False)
            if args.json
            else "\n\n".join(texts)
        )
        + "\n"
    )


def _wait_for_report(run: ReplayRun) -> ReplayReport:
    """Run a replay to its end with progress on a terminal; return its report, or raise."""
    stream = sys.stderr
    run.start()
    try:
        while not run.wait(_TICK_S):
            if stream.isatty():
                stream.write(f"\r{run.replay.name}: {run.done} of {plural(run.total, 'run')}\x1b[K")
                stream.flush()
    except KeyboardInterrupt:
        run.cancel()
        run.wait()
        raise
    finally:
        if stream.isatty():
            stream.write("\r\x1b[K")
            stream.flush()
    if run.state == "failed":
        raise (ContractError if run.broken else ReplayError)(run.error)
    return run.report()


def _unclaimed_points(report: ReplayReport) -> list[ClaimRow]:
    """Return the points of curves that belong to no published claim."""
    claimed = {row.claim.text for row in report.rows}
    return [row for row in report.points if row.claim.text not in claimed]


def _report_text(
    replay: Replay, report: ReplayReport, shown: Sequence[ClaimRow], run: ReplayRun
) -> str:
    """Return a report as text: paper, table of claims, verdict and notes."""
    paper = replay.paper
    table = [
        ("measure", "published", "simulated", "95 % interval", "band", "verdict", "certainty"),
        *(_claim_cells(replay, row) for row in shown),
    ]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    return "\n".join(
        [
            f"{replay.title} ({replay.name})",
            f"{paper.authors}: {paper.title}. {paper.venue}, {paper.year}. {paper.link}",
            *_wrap_paragraph("Published", replay.claim),
            "",
            *(
                "  ".join(
                    cell.ljust(width) for cell, width in zip(line, widths, strict=True)
                ).rstrip()
                for line in table
            ),
            "",
            *_wrap_paragraph("Verdict", tally(report.rows)),
            *(
                line
                for sentence in report.sentences
                for line in _wrap_paragraph("Remark", sentence)
            ),
            *_wrap_paragraph("Known", replay.known),
            *_wrap_paragraph("Our reading", replay.reading),
            *_wrap_paragraph("Notice", curves.explanation(replay, report)),
            (
                f"{plural(run.total, 'run')}, {plural(run.seeds, 'seed')}, {report.wall_s:.0f} s"
                f" ({report.cpu_s:.0f} s of processor time)."
            ),
        ]
    )


def _wrap_paragraph(head: str, text: str) -> list[str]:
    """Return "HEAD: TEXT" wrapped to lines; [] for an empty text."""
    if not text:
        return []
    return textwrap.wrap(f"{head}: {' '.join(text.split())}", width=140, subsequent_indent="  ")


def _claim_cells(replay: Replay, row: ClaimRow) -> tuple[str, ...]:
    """Return the table row of a claim: published and simulated value, band, verdict."""
    claim, simulated = row.claim, row.pooled

    def with_unit(value: float) -> str:
        """Return a value with the unit of the measure; a ratio has none."""
        measure = claim.figure
        return (
            f"{three_digits(value)} {curves.unit(measure.metric).replace('1', '')}".rstrip()
            if measure.kind != "ratio"
            else three_digits(value)
        )

    interval = (
        "-"
        if math.isnan(simulated.low)
        else f"{three_digits(simulated.low)} to {with_unit(simulated.high)}"
    )
    band = band_text(claim.figure, claim.band, with_unit)
    published = claim.published_text or "-"
    if claim.published is not None:
        published = f"{with_unit(claim.published)} ({published})"
    marked = claim.band and claim.mark
    return (
        replay.label(claim),
        published,
        with_unit(simulated.value),
        interval,
        f"{band} ({claim.band_from})" if band else "-",
        f"{row.verdict} ({claim.mark})" if marked else row.verdict,
        claim.certainty,
    )


def three_digits(value: float) -> str:
    """Return a number with three significant digits, without an exponent; "-" for NaN."""
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _parse_limited_int(option: str, text: str | None, maximum: int) -> int | None:
    """Return an option's value as a whole number from 1 to `maximum`; None if not given."""
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= maximum:
        raise UsageError(f"{option} {text}: this must be a whole number from 1 to {maximum}.")
    return int(text)
