"""The ``replay`` command: a published claim beside what the simulation gives, as a table for people
or rows of JSON.
"""

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
from trainyard.labs.replays import curves
from trainyard.labs.replays.reading import MOST_SEEDS, load, names
from trainyard.labs.replays.report import ClaimRow, ReplayReport, expected, tally
from trainyard.labs.replays.run import MOST_WORKERS, ReplayError, ReplayRun
from trainyard.labs.replays.types import Replay
from trainyard.runs.executors import cores
from trainyard.text import duration, plural

ALL: Final = "all"
_TICK_S: Final = 0.2
_LONG_S: Final = 30.0
"""Whoever is to wait for so long is told before."""


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard replay``."""
    parser.set_defaults(command=command_replay)
    parser.add_argument(
        "name", metavar="NAME|all", help=f"one of {', '.join(names())}, or all of them"
    )
    parser.add_argument(
        "--seeds",
        metavar="N",
        help="runs per policy (default: as the replay says); curves never take more than they say",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        help=f"worker processes (default: one per core, at most {MOST_WORKERS})",
    )
    parser.add_argument(
        "--curves",
        action="store_true",
        help="also every point of the axes along which the claim is followed",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON list of rows instead of tables"
    )


def command_replay(args: argparse.Namespace) -> None:
    """Execute ``python -m trainyard replay``.

    Raises
    ------
    TrainyardError
        If there is no such replay, an argument cannot be used, or a run was stopped.
    """
    seeds = _whole("--seeds", args.seeds, MOST_SEEDS)
    workers = _whole("--workers", args.workers, 64) or min(cores(), MOST_WORKERS)
    replays = [load(name) for name in (names() if args.name == ALL else (args.name,))]
    rows, texts = [], []
    for replay in replays:
        run = ReplayRun(replay, seeds, curves=args.curves, where=f"processes:{workers}")
        if (takes_s := run.of * replay.run_s / workers) >= _LONG_S:
            budget = " ".join(replay.budget.split())
            sys.stderr.write(
                f"{replay.name}: {plural(run.of, 'simulation')}, about {duration(takes_s)}"
                f" if nothing else runs. {budget}\n"
            )
        found = _finish(run)
        shown = [*found.rows, *(_new_points(found) if args.curves else ())]
        rows += [row.to_json(replay.name) for row in shown]
        texts.append(_text(replay, found, shown, run))
        if args.json:
            sys.stderr.writelines(f"{replay.name}: {line}\n" for line in found.sentences)
    sys.stdout.write(
        (
            json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False)
            if args.json
            else "\n\n".join(texts)
        )
        + "\n"
    )


def _finish(run: ReplayRun) -> ReplayReport:
    """Wait for a run; on a terminal with a line that says how far it is."""
    stream = sys.stderr
    run.start()
    try:
        while not run.wait(_TICK_S):
            if stream.isatty():
                stream.write(f"\r{run.replay.name}: {run.done} of {plural(run.of, 'run')}\x1b[K")
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


def _new_points(found: ReplayReport) -> list[ClaimRow]:
    claimed = {row.claim.text for row in found.rows}
    return [row for row in found.points if row.claim.text not in claimed]


def _text(replay: Replay, found: ReplayReport, shown: Sequence[ClaimRow], run: ReplayRun) -> str:
    paper = replay.paper
    table = [
        ("measure", "published", "simulated", "95 % interval", "band", "verdict", "certainty"),
        *(_cells(replay, row) for row in shown),
    ]
    widths = [max(len(line[at]) for line in table) for at in range(len(table[0]))]
    return "\n".join(
        [
            f"{replay.title} ({replay.name})",
            f"{paper.authors}: {paper.title}. {paper.venue}, {paper.year}. {paper.link}",
            *_wrapped("Published", replay.claim),
            "",
            *(
                "  ".join(
                    cell.ljust(width) for cell, width in zip(line, widths, strict=True)
                ).rstrip()
                for line in table
            ),
            "",
            *_wrapped("Verdict", tally(found.rows)),
            *(line for said in found.sentences for line in _wrapped("Remark", said)),
            *_wrapped("Known", replay.known),
            *_wrapped("Our reading", replay.reading),
            *_wrapped("Notice", curves.explanation(replay, found)),
            (
                f"{plural(run.of, 'run')}, {plural(run.seeds, 'seed')}, {found.wall_s:.0f} s"
                f" ({found.cpu_s:.0f} s of processor time)."
            ),
        ]
    )


def _wrapped(head: str, text: str) -> list[str]:
    if not text:
        return []
    return textwrap.wrap(f"{head}: {' '.join(text.split())}", width=140, subsequent_indent="  ")


def _cells(replay: Replay, row: ClaimRow) -> tuple[str, ...]:
    claim, found = row.claim, row.found

    def told(value: float) -> str:
        of = claim.figure
        return (
            f"{figure(value)} {curves.unit(of.metric).replace('1', '')}".rstrip()
            if of.kind != "ratio"
            else figure(value)
        )

    interval = "-" if math.isnan(found.low) else f"{figure(found.low)} to {told(found.high)}"
    band = expected(claim.figure, claim.band, told)
    published = claim.published_text or "-"
    if claim.published is not None:
        published = f"{told(claim.published)} ({published})"
    marked = claim.band and claim.mark
    return (
        replay.label(claim),
        published,
        told(found.value),
        interval,
        f"{band} ({claim.band_from})" if band else "-",
        f"{row.verdict} ({claim.mark})" if marked else row.verdict,
        claim.certainty,
    )


def figure(value: float) -> str:
    """Return a number with three significant digits, without an exponent."""
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _whole(option: str, text: str | None, most: int) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= most:
        raise UsageError(f"{option} {text}: this is not a whole number from 1 to {most}.")
    return int(text)
