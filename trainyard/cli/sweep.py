"""The ``sweep`` command, and functions that it shares with ``plan``."""

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
from trainyard.cli.arguments import read_text
from trainyard.cli.errors import CommandStoppedError, UsageError
from trainyard.cli.replay import three_digits
from trainyard.formatting import duration, plural
from trainyard.library import library
from trainyard.library.library import HERE
from trainyard.runs.batch import ScenarioBatch, check_shared_store
from trainyard.runs.estimate import Costs, estimate
from trainyard.runs.executors import DASK, DEFAULT, check_executor_name
from trainyard.store import Store, plain, profiles
from trainyard.study.document import parse_json, whole_number
from trainyard.study.settings import with_settings
from trainyard.study.study import Study
from trainyard.study.sweep import Sweep, axis_from_text
from trainyard.sweeps import tables
from trainyard.sweeps.summaries import batch_seconds, failure_reasons
from trainyard.sweeps.sweep_run import SweepRun

MAX_LOOKED_UP: Final = 1000
"""Number of runs above which the time is estimated without looking up stored runs first, because
that takes long too.
"""
_DEFINING_OPTIONS: Final = ("axis", "draw", "set", "group", "range", "target", "budget", "no_check")
"""Options that define a sweep or search, so they cannot be combined with --resume."""
LONG_S: Final = 600.0
"""Estimated seconds above which a sweep needs --yes."""
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
        help="a sweep, or a scenario saved in the app to vary with --axis",
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
        "--draw", metavar="N", help="draw N random points instead of the whole grid"
    )
    parser.add_argument(
        "--metric",
        metavar="NAME",
        default=DEFAULT_METRIC,
        help=f"metric of the table (default {DEFAULT_METRIC}); the JSON has all numbers",
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="store full results, which the app opens at once, instead of numbers only",
    )
    add_batch_arguments(parser)


def add_batch_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that sweeps and size searches share."""
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
        help="continue an earlier one: the last, or the one with this id",
    )
    parser.add_argument(
        "--yes",
        action="store_true",
        help=f"start even if it is estimated to take more than {LONG_S / 60:.0f} minutes",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document instead of a table"
    )


def command_sweep(args: argparse.Namespace) -> None:
    """Execute ``sweep``: run all points that are not stored, and print a table or JSON.

    Raises
    ------
    TrainyardError
        If the input cannot be used, the machines cannot be reached, the sweep was interrupted, or
        runs failed for other reasons than settings that their policy rejects.
    """
    if args.metric not in COLUMNS:
        raise UsageError(
            f"--metric {args.metric}: there is no such metric. Choose one of {', '.join(COLUMNS)}."
        )
    store = Store()
    sweep = find_resumed(store, args, "sweep", Sweep) or _sweep_of_arguments(args)
    run = SweepRun(sweep, store, check_executor_name(args.executor), whole=args.whole)
    if args.whole and args.executor.startswith(DASK):
        check_shared_store(store)
    if sweep.runs > MAX_LOOKED_UP:
        check_duration(args, store, sweep.study, sweep.runs)
    run.recall()
    if sweep.runs <= MAX_LOOKED_UP:
        check_duration(args, store, sweep.study, run.total - run.done)
    item_id = library.shelve(store, HERE, sweep, run.keys)
    run_with_progress(run, f"sweep {item_id[:12]}", run.total)
    if args.json:
        sys.stdout.write(
            json.dumps(sweep_document(item_id, run, args.metric), indent=2, allow_nan=False) + "\n"
        )
    else:
        done = "" if run.complete else f"{run.done} of "
        took = duration(max(run.wall_s, 0.1))
        sys.stdout.write(
            f"{sweep_text(item_id, run, args.metric)}\n{done}{plural(run.total, 'run')},"
            f" {run.stored_runs} of them stored before; {took}.\n"
        )
    raise_unless_done(run, item_id, " --whole" * args.whole)
    if broken := sum(not lost.refused for lost in run.failed.values()):
        raise CommandStoppedError(
            f"{plural(broken, 'run')} of {len(run.table())} failed; see the reasons above. To"
            f" repeat them: --resume {item_id[:12]}."
        )


def load_document(args: argparse.Namespace) -> dict[str, Any]:
    """Return the document of a sweep or search file, or one around a scenario file.

    Changes of --set are applied.

    Raises
    ------
    TrainyardError
        If there is no file, or it cannot be used.
    """
    if not args.file:
        raise UsageError(
            "Name a file: a scenario, sweep or search saved as JSON. To continue the last one, use"
            " --resume."
        )
    document = parse_json(read_text(Path(args.file), "a scenario file"), args.file)
    if document.get("kind") not in ("sweep", "plan"):
        document = {"study": document}
    inner = dict(document["study"]) if isinstance(document.get("study"), dict) else {}
    study = Study.from_json(profiles.with_contents(inner)).to_json()
    return document | {"study": profiles.with_contents(with_settings(study, args.set or ()))}


def _sweep_of_arguments(args: argparse.Namespace) -> Sweep:
    """Return the sweep of the file, with its axes and draw replaced by --axis and --draw."""
    document = load_document(args)
    if args.axis:
        document["axes"] = [axis_from_text(text).to_json() for text in args.axis]
    if args.draw is not None:
        document["draw"] = whole_number("--draw", args.draw)
    return Sweep.from_json({"axes": [], **document})


def find_resumed(store: Store, args: argparse.Namespace, name: str, kind: type[T]) -> T | None:
    """Return the sweep or search of --resume, the last or the one with the id, else None.

    Raises
    ------
    TrainyardError
        If there is none of that kind.
    """
    if args.resume is None:
        return None
    if args.file:
        raise UsageError(
            "--resume continues an earlier run, so it takes no file. Leave one of both out."
        )
    if changed := [
        name.replace("_", "-")
        for name in _DEFINING_OPTIONS
        if getattr(args, name, None) not in (None, False)
    ]:
        raise UsageError(
            f"--resume continues an earlier run unchanged, so --{changed[0]} has no effect. Leave"
            " one of both out."
        )
    candidates = (
        [library.item(store, HERE, args.resume)] if args.resume else library.items(store, HERE)
    )
    document = next(
        (
            recipe
            for one in candidates
            if one.kind == name and isinstance(recipe := one.recipe(), kind)
        ),
        None,
    )
    if document is None:
        raise UsageError(
            f"There is no {name} with that id to continue. See: python -m trainyard runs list."
        )
    return document


def check_duration(
    args: argparse.Namespace, store: Store, study: Study, runs: int, bound: str = "At most"
) -> None:
    """Print the estimated time of some runs; raise if it is long and --yes is missing.

    `bound` = "At most" or "About", before the number of runs.

    Raises
    ------
    UsageError
        If it takes long and --yes is missing.
    """
    if not runs:
        return
    costs = Costs()
    for entry in store.entries():
        costs.record(entry)
    estimated = estimate(study, store, costs, 1)
    took_s = batch_seconds(estimated, runs, args.executor)
    is_measured, jobs = estimated.is_measured, plural(estimated.jobs, "job")
    sys.stderr.write(
        f"{bound} {plural(runs, 'run')} of {jobs}, about"
        f" {duration(took_s)}{'' if is_measured else ' or more'}.\n"
    )
    if took_s > LONG_S and not args.yes:
        raise UsageError(
            f"That is more than {LONG_S / 60:.0f} minutes. Add --yes to start, or choose fewer"
            " values, policies, repeats or jobs."
        )


def run_with_progress(
    run: ScenarioBatch, name: str, total: int | None, stream: TextIO | None = None
) -> None:
    """Run a batch to its end with progress on a terminal; an interrupt keeps finished runs.

    A batch that is complete is not run. An interrupt leaves it in state "cancelled". `stream`:
    None = standard error.
    """
    if run.complete:
        return
    stream = stream or sys.stderr
    run.start()
    began_s = time.monotonic()
    try:
        while not run.wait(_TICK_S):
            if stream.isatty():
                stream.write(
                    f"\r{name}: {run.done} of {total if total is not None else '?'} runs,"
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


def raise_unless_done(run: ScenarioBatch, item_id: str, options: str = "") -> None:
    """Raise if a batch failed or was interrupted, with the options to continue it.

    Raises
    ------
    CommandStoppedError
        If the batch failed.
    KeyboardInterrupt
        If it was interrupted.
    """
    again = f"Continue with: --resume {item_id[:12]}{options}."
    if run.state == "failed":
        raise CommandStoppedError(f"{run.error} {again}")
    if run.state == "cancelled":
        raise KeyboardInterrupt(f"Interrupted; finished runs are kept. {again}")


def sweep_document(item_id: str, run: SweepRun, metric_name: str) -> dict[str, Any]:
    """Return state, results, changes against the baseline and failures of a sweep for JSON."""
    sweep, table = run.sweep, run.table()
    curves = tables.curves(table, sweep, metric_name)
    baseline = sweep.study.titles[sweep.study.baseline]
    return {
        "id": item_id,
        "state": run.state,
        "error": run.error,
        "sweep": sweep.to_json(),
        "known_before": run.stored_runs,
        "metric": metric_name,
        "verdict": tables.verdict(curves, table, sweep, metric_name, COLUMNS[metric_name].title),
        "curves": _json_rows(curves),
        "baseline": baseline,
        "differences": _json_rows(tables.differences(table, sweep, metric_name, baseline)),
        "failed": [
            {"runs": count, "why": why}
            for why, count in Counter(lost.why for lost in run.failed.values()).most_common()
        ],
        "runs": _json_rows(table),
    }


def _json_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame as JSON values; NaN becomes None."""
    rows: list[dict[str, Any]] = plain(frame.astype(object).to_dict("records"))
    return rows


def sweep_text(item_id: str, run: SweepRun, metric_name: str) -> str:
    """Return the results of a sweep as text: values, then changes against the baseline.

    Both have 95 % bands if there are enough repeats.
    """
    sweep, metric, table = run.sweep, COLUMNS[metric_name], run.table()
    curves, policies = tables.curves(table, sweep, metric_name), sweep.study.titles
    lines = [f"{metric.title} (id {item_id[:12]})", *_curve_lines(curves, sweep, metric.unit)]
    if len(policies) > 1:
        baseline = policies[sweep.study.baseline]
        changes = tables.differences(table, sweep, metric_name, baseline)
        lines += [
            "",
            f"Change against {baseline}, repeat by repeat",
            *_curve_lines(changes, sweep, "1", "+"),
        ]
    failures = failure_reasons(lost.why for lost in run.failed.values())
    return "\n".join(
        [*lines, "", tables.verdict(curves, table, sweep, metric_name, metric.title), *failures]
    )


def _curve_lines(curves: pd.DataFrame, sweep: Sweep, unit: str, sign: str = "") -> list[str]:
    """Return a table as lines: one per point of the sweep, with a column per policy."""
    paths, policies = [axis.path for axis in sweep.axes], list(dict.fromkeys(curves["policy"]))
    lines = [(*paths, *policies)]
    for _, group in curves.groupby("point"):
        by_policy = group.set_index("policy").to_dict("index")
        values = (str(group[path].iloc[0]) for path in paths)
        lines.append(
            (
                *values,
                *(
                    _curve_cell(by_policy[policy], unit, sign) if policy in by_policy else "-"
                    for policy in policies
                ),
            )
        )
    return align_columns(lines)


def _curve_cell(row: Mapping[Any, Any], unit: str, sign: str) -> str:
    """Return a value as text, with its band (low .. high) and the number of failed runs."""
    value, low, high = (
        f"{sign if row[name] > 0 else ''}{with_unit(float(row[name]), unit)}"
        for name in ("value", "low", "high")
    )
    band = "" if math.isnan(row["low"]) else f" ({low} .. {high})"
    return value + band + (f" ({row['failed']} failed)" if row["failed"] else "")


def with_unit(value: float, unit: str) -> str:
    """Return a number with its unit, see `sim.metrics.registry.Metric.unit`; "-" for NaN."""
    if math.isnan(value):
        return "-"
    return (
        duration(value)
        if unit == "s"
        else f"{100 * value:.1f} %"
        if unit == "1"
        else f"{three_digits(value)} {unit}".rstrip()
    )


def align_columns(lines: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows of cells as lines with aligned columns."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
