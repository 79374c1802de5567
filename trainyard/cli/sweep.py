"""The ``sweep`` command: runs of many settings, which go on where they stopped; and what it has in
common with ``plan``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import pandas as pd

from sim.metrics.registry import COLUMNS
from trainyard.cli.errors import CommandStoppedError, UsageError
from trainyard.cli.given import read_text
from trainyard.cli.replay import three_digits
from trainyard.library import library
from trainyard.library.library import HERE
from trainyard.runs.batch import ScenarioBatch, check_shared_store
from trainyard.runs.estimate import Costs, estimate
from trainyard.runs.executors import DASK, DEFAULT, check_executor_name
from trainyard.store import Store, plain, profiles
from trainyard.study.document import parse_json, whole
from trainyard.study.settings import with_settings
from trainyard.study.study import Study
from trainyard.study.sweep import Sweep, axis_from_text
from trainyard.sweeps import tables
from trainyard.sweeps.sentences import reasons, seconds
from trainyard.sweeps.sweep_run import SweepRun
from trainyard.text import duration, plural

MOST_LOOKED_UP: Final = 1000
"""Of a larger sweep the time is estimated before it is known which of its runs are kept: to look
them up takes long itself.
"""
_FIXED: Final = ("axis", "draw", "set", "group", "range", "target", "budget", "no_check")
"""Arguments that make a recipe, which one that is resumed has already."""
LONG_S: Final = 600.0
"""A sweep that is estimated to take longer is not begun without --yes."""
DEFAULT_METRIC: Final = "jct_mean_s"
_TICK_S: Final = 0.2


T = TypeVar("T")


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard sweep``."""
    parser.set_defaults(command=command_sweep)
    parser.add_argument(
        "file",
        metavar="FILE.json",
        nargs="?",
        help="a sweep, or a scenario that a page saved, for which --axis says what varies",
    )
    parser.add_argument(
        "--axis",
        metavar="PATH=VALUES",
        action="append",
        help=(
            "e.g. trace.load=0.6..1.1:6, faults.mtbf_h=100,1000, estimator=exact;noisy:sigma=0.5;"
            " repeat for more"
        ),
    )
    parser.add_argument(
        "--draw", metavar="N", help="so many points drawn at random instead of the whole grid"
    )
    parser.add_argument(
        "--metric",
        metavar="NAME",
        default=DEFAULT_METRIC,
        help=f"what the table shows (default {DEFAULT_METRIC}); the JSON holds all numbers",
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="keep whole results, which the app opens at once, instead of numbers only",
    )
    add_common(parser)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that sweeps and searches have in common."""
    parser.add_argument(
        "--set",
        metavar="path=value",
        action="append",
        help="change one value, e.g. repeats=5; repeat for more",
    )
    parser.add_argument(
        "--executor",
        metavar="WHERE",
        default=DEFAULT,
        help="inline, processes, processes:N or dask://host:port (default processes)",
    )
    parser.add_argument(
        "--resume",
        metavar="ID",
        nargs="?",
        const="",
        help="go on with what was begun before: the last, or the one with this id",
    )
    parser.add_argument(
        "--yes",
        action="store_true",
        help=f"begin even if it is estimated to take more than {LONG_S / 60:.0f} minutes",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document instead of a table"
    )


def command_sweep(args: argparse.Namespace) -> None:
    """Execute ``python -m trainyard sweep``.

    Raises
    ------
    TrainyardError
        If the input cannot be used, the machines cannot be reached, the sweep was interrupted, or
        runs failed that were not refused by their policy.
    """
    if args.metric not in COLUMNS:
        raise UsageError(
            f"--metric {args.metric}: there is no such number. Choose one of {', '.join(COLUMNS)}."
        )
    store = Store()
    sweep = resumed(store, args, "sweep", Sweep) or _sweep(args)
    run = SweepRun(sweep, store, check_executor_name(args.executor), whole=args.whole)
    if args.whole and args.executor.startswith(DASK):
        check_shared_store(store)
    if sweep.runs > MOST_LOOKED_UP:
        ask_first(args, store, sweep.study, sweep.runs)
    run.recall()
    if sweep.runs <= MOST_LOOKED_UP:
        ask_first(args, store, sweep.study, run.of - run.done)
    made = library.shelve(store, HERE, sweep, run.keys)
    finish(run, f"sweep {made[:12]}", run.of)
    if args.json:
        sys.stdout.write(
            json.dumps(sweep_document(made, run, args.metric), indent=2, allow_nan=False) + "\n"
        )
    else:
        done = "" if run.complete else f"{run.done} of "
        took = duration(max(run.wall_s, 0.1))
        sys.stdout.write(
            f"{sweep_text(made, run, args.metric)}\n{done}{plural(run.of, 'run')}, {run.known} of"
            f" them known before; {took}.\n"
        )
    raise_unless_done(run, made, " --whole" * args.whole)
    if broken := sum(not lost.refused for lost in run.failed.values()):
        raise CommandStoppedError(
            f"{plural(broken, 'run')} of {len(run.table())} failed; see the reasons above. To try"
            f" what failed again: --resume {made[:12]}."
        )


def document_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the sweep or question in the file, or a beginning of one around the scenario in it,
    with what --set changes.

    Raises
    ------
    TrainyardError
        If there is no file, or it cannot be used.
    """
    if not args.file:
        raise UsageError(
            "Name a file: a scenario that a page saved, or a sweep or question as JSON. To go on"
            " with the last one, use --resume."
        )
    document = parse_json(read_text(Path(args.file), "a scenario file"), args.file)
    if document.get("kind") not in ("sweep", "plan"):
        document = {"study": document}
    inner = dict(document["study"]) if isinstance(document.get("study"), dict) else {}
    study = Study.from_json(profiles.localised(inner)).to_json()
    return document | {"study": profiles.localised(with_settings(study, args.set or ()))}


def _sweep(args: argparse.Namespace) -> Sweep:
    document = document_of(args)
    if args.axis:
        document["axes"] = [axis_from_text(text).to_json() for text in args.axis]
    if args.draw is not None:
        document["draw"] = whole("--draw", args.draw)
    return Sweep.from_json({"axes": [], **document})


def resumed(store: Store, args: argparse.Namespace, name: str, kind: type[T]) -> T | None:
    """Return what was begun before, if that is asked for; the last, or the one that is named.

    Raises
    ------
    TrainyardError
        If there is none of that kind.
    """
    if args.resume is None:
        return None
    if args.file:
        raise UsageError(
            "--resume goes on with what was begun before, so no file is needed. Leave one of both"
            " out."
        )
    if changed := [
        name.replace("_", "-") for name in _FIXED if getattr(args, name, None) not in (None, False)
    ]:
        raise UsageError(
            f"--resume goes on with what was begun as it is, and --{changed[0]} cannot change it."
            " Leave one of both out."
        )
    begun = [library.item(store, HERE, args.resume)] if args.resume else library.items(store, HERE)
    found = next(
        (recipe for one in begun if one.kind == name and isinstance(recipe := one.recipe(), kind)),
        None,
    )
    if found is None:
        raise UsageError(
            f"There is no {name} of that id to go on with. See: python -m trainyard runs list."
        )
    return found


def ask_first(args: argparse.Namespace, store: Store, study: Study, runs: int) -> None:
    """Say how long it will take.

    Raises
    ------
    UsageError
        If that is long, and --yes was not given.
    """
    if not runs:
        return
    costs = Costs()
    for entry in store.entries():
        costs.note(entry)
    found = estimate(study, store, costs, 1)
    took_s = seconds(found, runs, args.executor)
    known, jobs = found.known, plural(found.jobs, "job")
    sys.stderr.write(
        f"At most {plural(runs, 'run')} of {jobs}, about"
        f" {duration(took_s)}{'' if known else ' or more'}.\n"
    )
    if took_s > LONG_S and not args.yes:
        raise UsageError(
            f"That is more than {LONG_S / 60:.0f} minutes. Add --yes to begin, or take fewer"
            " values, policies, repeats or jobs."
        )


def finish(run: ScenarioBatch, name: str, of: int | None, stream: TextIO = sys.stderr) -> None:
    """Wait; on a terminal with a line that says how far it is. An interruption keeps what is
    done.
    """
    if run.complete:
        return
    run.start()
    began_s = time.monotonic()
    try:
        while not run.wait(_TICK_S):
            if stream.isatty():
                stream.write(
                    f"\r{name}: {run.done} of {of if of is not None else '?'} runs,"
                    f" {duration(time.monotonic() - began_s)}\x1b[K"
                )
                stream.flush()
    except KeyboardInterrupt:
        run.cancel()
        run.wait()
    finally:
        if stream.isatty():
            stream.write("\r\x1b[K")
            stream.flush()


def raise_unless_done(run: ScenarioBatch, made: str, options: str = "") -> None:
    """Say how to go on, with which options beside the id.

    Raises
    ------
    CommandStoppedError
        If it ended early.
    KeyboardInterrupt
        If it was interrupted.
    """
    again = f"Go on with: --resume {made[:12]}{options}."
    if run.state == "failed":
        raise CommandStoppedError(f"{run.error} {again}")
    if run.state == "cancelled":
        raise KeyboardInterrupt(f"Interrupted; what is done is kept. {again}")


def sweep_document(made: str, run: SweepRun, name: str) -> dict[str, Any]:
    """Return what a sweep came to so far, for JSON."""
    sweep, table = run.sweep, run.table()
    found = tables.curves(table, sweep, name)
    baseline = sweep.study.titles[sweep.study.baseline]
    return {
        "id": made,
        "state": run.state,
        "error": run.error,
        "sweep": sweep.to_json(),
        "known_before": run.known,
        "metric": name,
        "verdict": tables.verdict(found, table, sweep, name, COLUMNS[name].title),
        "curves": _rows(found),
        "baseline": baseline,
        "differences": _rows(tables.differences(table, sweep, name, baseline)),
        "failed": [
            {"runs": count, "why": why}
            for why, count in Counter(lost.why for lost in run.failed.values()).most_common()
        ],
        "runs": _rows(table),
    }


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = plain(frame.astype(object).to_dict("records"))
    return rows


def sweep_text(made: str, run: SweepRun, name: str) -> str:
    """Return what a sweep came to so far, for people: values, then changes against the baseline,
    both with their 95 % bands where there are repeats enough.
    """
    sweep, metric, table = run.sweep, COLUMNS[name], run.table()
    found, policies = tables.curves(table, sweep, name), sweep.study.titles
    lines = [f"{metric.title} (id {made[:12]})", *_block(found, sweep, metric.unit)]
    if len(policies) > 1:
        baseline = policies[sweep.study.baseline]
        changes = tables.differences(table, sweep, name, baseline)
        lines += [
            "",
            f"Change against {baseline}, repeat by repeat",
            *_block(changes, sweep, "1", "+"),
        ]
    failures = reasons(lost.why for lost in run.failed.values())
    return "\n".join(
        [*lines, "", tables.verdict(found, table, sweep, name, metric.title), *failures]
    )


def _block(found: pd.DataFrame, sweep: Sweep, unit: str, sign: str = "") -> list[str]:
    """Return a line per point, with a column per policy."""
    paths, policies = [axis.path for axis in sweep.axes], list(dict.fromkeys(found["policy"]))
    lines = [(*paths, *policies)]
    for _, group in found.groupby("point"):
        of = group.set_index("policy").to_dict("index")
        values = (str(group[path].iloc[0]) for path in paths)
        lines.append(
            (
                *values,
                *(_cell(of[policy], unit, sign) if policy in of else "-" for policy in policies),
            )
        )
    return columns(lines)


def _cell(row: Mapping[Any, Any], unit: str, sign: str) -> str:
    value, low, high = (
        f"{sign if row[name] > 0 else ''}{with_unit(float(row[name]), unit)}"
        for name in ("value", "low", "high")
    )
    band = "" if math.isnan(row["low"]) else f" ({low} .. {high})"
    return value + band + (f" ({row['failed']} failed)" if row["failed"] else "")


def with_unit(value: float, unit: str) -> str:
    """Return a number with its unit, as `sim.metrics.registry.Metric.unit` names it."""
    if math.isnan(value):
        return "-"
    return (
        duration(value)
        if unit == "s"
        else f"{100 * value:.1f} %"
        if unit == "1"
        else f"{three_digits(value)} {unit}".rstrip()
    )


def columns(lines: Sequence[tuple[str, ...]]) -> list[str]:
    """Return lines of cells that stand below each other."""
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
