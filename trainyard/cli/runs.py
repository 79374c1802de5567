"""The ``runs`` and ``compare`` commands: list, export, name, delete, compare stored runs."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from sim.metrics.registry import COLUMNS
from trainyard.cli.backtest import backtest_document, backtest_lines
from trainyard.cli.errors import UsageError
from trainyard.cli.plan import plan_document, plan_text
from trainyard.cli.sweep import DEFAULT_METRIC, align_columns, sweep_document, sweep_text, with_unit
from trainyard.formatting import plural
from trainyard.labs.backtests.run import BacktestRun
from trainyard.library import archive, library
from trainyard.library.library import HERE, Item
from trainyard.store import Store, plain
from trainyard.study.branch_point import FromHere
from trainyard.study.check import Check
from trainyard.study.size_question import SizeQuestion
from trainyard.study.study import Study
from trainyard.study.sweep import Sweep
from trainyard.sweeps.plan import PlanRun
from trainyard.sweeps.sweep_run import SweepRun

_ACTIONS = ("list", "show", "export", "import", "rm", "name", "tag")


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard runs``."""
    parser.set_defaults(command=command_runs)
    parser.add_argument("action", choices=_ACTIONS, help="action to take")
    what_help = (
        "ids or names; for import files; for list search words; for name and tag the id, then the"
        " text"
    )
    parser.add_argument("what", metavar="ID|FILE|WORDS", nargs="*", help=what_help)
    parser.add_argument(
        "-o",
        "--out",
        metavar="FILE.zip",
        help="for export: output file (default trainyard-runs.zip)",
    )
    parser.add_argument(
        "--json", action="store_true", help="for list and show: print JSON instead of a table"
    )


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard compare``."""
    parser.set_defaults(command=command_compare)
    parser.add_argument("first", metavar="ID", help="id or name of an item of the library")
    parser.add_argument("second", metavar="ID", help="id or name of another item")


def command_runs(args: argparse.Namespace) -> None:
    """Execute ``runs``: do one action on items of the library, and print its result.

    Raises
    ------
    TrainyardError
        If an item does not exist, or a file cannot be used.
    """
    store, words = Store(), list(args.what)
    actions: Mapping[str, Callable[[], str]] = {
        "list": lambda: _list_items(store, words, args),
        "show": lambda: _show_item(store, words, args),
        "export": lambda: _export_items(store, words, args),
        "import": lambda: _import_files(store, words),
        "rm": lambda: _remove_items(store, words),
        "name": lambda: _name_item(store, words),
        "tag": lambda: _tag_item(store, words),
    }
    least = {"list": 0, "name": 2, "tag": 2}.get(args.action, 1)
    if len(words) < least or (args.action == "show" and len(words) > 1):
        raise UsageError(
            f"runs {args.action} needs {plural(least, 'argument')}. See: python -m trainyard runs"
            " --help."
        )
    sys.stdout.write(actions[args.action]() + "\n")


def _list_items(store: Store, words: list[str], args: argparse.Namespace) -> str:
    """Return the items of the library that match the words, as a table or JSON."""
    items = library.items(store, HERE, " ".join(words))
    if args.json:
        return json.dumps(library.items_json(items), indent=2, ensure_ascii=False)
    if not items:
        return (
            "The library is empty."
            if not words
            else f"No item of the library contains: {' '.join(words)}."
        )
    return "\n".join(
        align_columns(
            [("id", "kind", "runs kept", "last used", "name", "tags"), *map(_item_cells, items)]
        )
    )


def _item_cells(one: Item) -> tuple[str, ...]:
    """Return the table row of an item: id, kind, runs kept, last use, name and tags."""
    used = datetime.fromtimestamp(one.used_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    return (
        one.id[:12],
        one.kind,
        f"{one.there} of {one.runs}",
        used,
        one.name or one.title,
        ", ".join(one.tags),
    )


def _show_item(store: Store, words: list[str], args: argparse.Namespace) -> str:
    """Return one item with the results stored for it, as text or JSON."""
    one = library.item(store, HERE, words[0])
    recipe = one.recipe()
    if args.json:
        body = {
            **library.items_json([one])[0],
            "document": dict(one.kept.document),
            "kept": _item_document(store, one.id, recipe),
        }
        return json.dumps(body, indent=2, ensure_ascii=False, allow_nan=False)
    return "\n".join(
        [
            (
                f"{one.name or one.title} (id {one.id[:12]}, {one.there} of"
                f" {plural(one.runs, 'run')} kept)"
            ),
            "",
            _item_text(store, one.id, recipe),
        ]
    )


def _item_document(store: Store, item_id: str, recipe: library.Recipe) -> Any:
    """Return the stored results of an item as JSON; for a study one row per run."""
    if isinstance(recipe, Study | FromHere):
        return plain(library.run_numbers_table(store, recipe).astype(object).to_dict("records"))
    if isinstance(recipe, Check):
        return backtest_document(_recall_backtest(store, recipe))
    return (
        sweep_document(item_id, _recall_sweep(store, recipe), DEFAULT_METRIC)
        if isinstance(recipe, Sweep)
        else plan_document(item_id, _recall_plan(store, recipe))
    )


def _item_text(store: Store, item_id: str, recipe: library.Recipe) -> str:
    """Return the stored results of an item as text; for a study a table of its runs."""
    if isinstance(recipe, Study | FromHere):
        return "\n".join(
            align_columns(
                [
                    ("run", *(metric.title for metric in _TABLE_METRICS)),
                    *_run_rows(library.run_numbers_table(store, recipe)),
                ]
            )
        )
    if isinstance(recipe, Check):
        return "\n".join(backtest_lines(_recall_backtest(store, recipe)))
    return (
        sweep_text(item_id, _recall_sweep(store, recipe), DEFAULT_METRIC)
        if isinstance(recipe, Sweep)
        else plan_text(item_id, _recall_plan(store, recipe))
    )


def _recall_sweep(store: Store, recipe: Sweep) -> SweepRun:
    """Return a sweep with its stored results loaded; nothing is run."""
    run = SweepRun(recipe, store)
    run.recall()
    return run


def _recall_backtest(store: Store, recipe: Check) -> BacktestRun:
    """Return a backtest with its stored results loaded; nothing is run."""
    run = BacktestRun(recipe, store)
    run.recall()
    return run


def _recall_plan(store: Store, recipe: SizeQuestion) -> PlanRun:
    """Return a size search with its stored results loaded; nothing is run."""
    run = PlanRun(recipe, store)
    run.recall()
    return run


_TABLE_METRICS = tuple(metric for name, metric in COLUMNS.items() if name in library.BRIEF)


def _run_rows(runs: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the table row of each stored run: policy with seed, then the main metrics."""
    rows = runs.to_dict("records")
    return [
        (
            f"{row['policy']}, seed {row['seed']}",
            *(_format_value(row[metric.name], metric.unit) for metric in _TABLE_METRICS),
        )
        for row in rows
    ]


def _format_value(value: float, unit: str) -> str:
    return "-" if math.isnan(value) else with_unit(value, unit)


def _export_items(store: Store, words: list[str], args: argparse.Namespace) -> str:
    """Write items to a zip file; return a sentence on its size and on damaged results."""
    out = Path(args.out or "trainyard-runs.zip")
    if out.suffix != ".zip":
        raise UsageError(f"{out}: the name must end in .zip.")
    chosen = dict.fromkeys(library.item(store, HERE, name).id for name in words)
    data, damaged = archive.pack_items(store, HERE, list(chosen))
    part = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        # An earlier archive of that name stays until this one is complete.
        part.write_bytes(data)
        part.replace(out)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise UsageError(
            f"{out}: the file cannot be written ({error.strerror or error}). Choose another place."
        ) from error
    summary = f"{out}: {plural(len(chosen), 'item')}, {len(data) / 1e6:.1f} MB"
    if not damaged:
        return summary
    which = ", ".join(key[:12] for key in damaged)
    were = (
        f"{plural(len(damaged), 'result')} ({which}) {'was' if len(damaged) == 1 else 'were'}"
        " damaged"
    )
    return (
        f"{summary}\n{were}: only their numbers remain, here and in the file. Run them again for"
        " the rest."
    )


def _import_files(store: Store, words: list[str]) -> str:
    """Import exported files into the library; return one line or two per path in `words`."""
    return "\n".join(_import_file(store, Path(word)) for word in words)


def _import_file(store: Store, path: Path) -> str:
    """Import one exported file into the library; return a sentence with the ids."""
    try:
        if path.stat().st_size > archive.MAX_MB * 1e6:
            raise UsageError(
                f"{path}: this file is larger than {archive.MAX_MB:.0f} MB. Export fewer items at"
                " once."
            )
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path}: the file cannot be read ({error.strerror or error}). Check the path and the"
            " rights."
        ) from error
    imported = archive.import_archive(store, HERE, data, path.name, results=True)
    return "\n".join(
        [
            f"{path}: {', '.join(one[:12] for one in imported.ids) or 'nothing'} imported",
            *([imported.summary] if imported.summary else []),
        ]
    )


def _remove_items(store: Store, words: list[str]) -> str:
    """Remove items and the runs that only they use; return a sentence with the counts."""
    chosen = dict.fromkeys(library.item(store, HERE, name).id for name in words)
    runs = sum(library.remove_item(store, HERE, one) for one in chosen)
    return (
        f"{plural(len(chosen), 'item')} removed, and {plural(runs, 'run')} that nothing else uses"
    )


def _name_item(store: Store, words: list[str]) -> str:
    """Set or clear the name of an item; return a confirmation."""
    one = library.item(store, HERE, words[0])
    name = " ".join(" ".join(words[1:]).split())
    library.label_item(store, HERE, one.id, name=name)
    return f"{one.id[:12]} is now named {name}" if name else f"{one.id[:12]} has no name"


def _tag_item(store: Store, words: list[str]) -> str:
    """Replace the tags of an item by comma-separated ones; return a sentence that lists them."""
    one = library.item(store, HERE, words[0])
    tags = [" ".join(tag.split()) for text in words[1:] for tag in text.split(",") if tag.strip()]
    library.label_item(store, HERE, one.id, tags=tags)
    return f"{one.id[:12]} has the tags {', '.join(tags)}" if tags else f"{one.id[:12]} has no tags"


def command_compare(args: argparse.Namespace) -> None:
    """Execute ``compare``: print the changed settings and numbers of two items.

    Raises
    ------
    TrainyardError
        If an item does not exist, or has no stored run.
    """
    store = Store()
    both = (library.item(store, HERE, args.first), library.item(store, HERE, args.second))
    comparison = library.compare_items(store, *both)
    lines = [
        (f"{name}: {line[0]}", *line[1:])
        for name, runs in (("A", comparison.first), ("B", comparison.second))
        for line in _run_rows(runs)
    ]
    heads = [
        f"{name} = {one.name or one.title} (id {one.id[:12]})"
        for name, one in zip("AB", both, strict=True)
    ]
    changes = (
        f"From A to B: {'; '.join(comparison.changes)}."
        if comparison.changes
        else "Both have the same settings."
    )
    table = align_columns([("run", *(metric.title for metric in _TABLE_METRICS)), *lines])
    sys.stdout.write("\n".join([*heads, changes, "", *table]) + "\n")
