"""The ``runs`` and ``compare`` commands: what was run on this machine, found again, passed on, and
set beside each other.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from sim.metrics.registry import COLUMNS
from trainyard.cli.backtest import backtest_document, backtest_lines
from trainyard.cli.errors import UsageError
from trainyard.cli.plan import plan_document, plan_text
from trainyard.cli.sweep import DEFAULT_METRIC, columns, sweep_document, sweep_text, with_unit
from trainyard.labs.backtests.run import BacktestRun
from trainyard.library import archive, library
from trainyard.library.library import HERE, Item
from trainyard.store import Store, plain
from trainyard.study.branch import FromHere
from trainyard.study.check import Check
from trainyard.study.search import SizeQuestion
from trainyard.study.study import Study
from trainyard.study.sweep import Sweep
from trainyard.sweeps.plan import PlanRun
from trainyard.sweeps.sweep_run import SweepRun
from trainyard.text import plural

_ACTIONS = ("list", "show", "export", "import", "rm", "name", "tag")


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard runs``."""
    parser.set_defaults(command=command_runs)
    parser.add_argument("action", choices=_ACTIONS, help="what to do")
    told_what = (
        "ids or names; for import a file; for list words to search for; for name and tag the id and"
        " the text"
    )
    parser.add_argument("what", metavar="ID|FILE|WORDS", nargs="*", help=told_what)
    parser.add_argument("-o", "--out", metavar="FILE.zip", help="for export: where to write")
    parser.add_argument(
        "--json", action="store_true", help="for list and show: print JSON instead of a table"
    )


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard compare``."""
    parser.set_defaults(command=command_compare)
    parser.add_argument("first", metavar="ID", help="id or name of something in the library")
    parser.add_argument("second", metavar="ID", help="of another one")


def command_runs(args: argparse.Namespace) -> None:
    """Execute ``python -m trainyard runs``.

    Raises
    ------
    TrainyardError
        If something is not there, or a file cannot be used.
    """
    store, words = Store(), list(args.what)
    actions = {
        "list": _list,
        "show": _show,
        "export": _export,
        "import": _import,
        "rm": _remove,
        "name": _name,
        "tag": _tag,
    }
    least = {"list": 0, "name": 2, "tag": 2}.get(args.action, 1)
    if len(words) < least or (args.action == "show" and len(words) > 1):
        raise UsageError(
            f"runs {args.action} wants {plural(least, 'argument')}. See: python -m trainyard runs"
            " --help."
        )
    sys.stdout.write(actions[args.action](store, words, args) + "\n")


def _list(store: Store, words: list[str], args: argparse.Namespace) -> str:
    found = library.items(store, HERE, " ".join(words))
    if args.json:
        return json.dumps(library.listing(found), indent=2, ensure_ascii=False)
    if not found:
        return (
            "Nothing is in the library yet."
            if not words
            else f"Nothing in the library contains: {' '.join(words)}."
        )
    return "\n".join(
        columns([("id", "kind", "runs kept", "last used", "name", "tags"), *map(_line, found)])
    )


def _line(one: Item) -> tuple[str, ...]:
    used = datetime.fromtimestamp(one.used_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    return (
        one.id[:12],
        one.kind,
        f"{one.there} of {one.runs}",
        used,
        one.name or one.title,
        ", ".join(one.tags),
    )


def _show(store: Store, words: list[str], args: argparse.Namespace) -> str:
    one = library.item(store, HERE, words[0])
    recipe = one.recipe()
    if args.json:
        body = {
            **library.listing([one])[0],
            "document": dict(one.kept.document),
            "kept": _document(store, one.id, recipe),
        }
        return json.dumps(body, indent=2, ensure_ascii=False, allow_nan=False)
    return "\n".join(
        [
            (
                f"{one.name or one.title} (id {one.id[:12]}, {one.there} of"
                f" {plural(one.runs, 'run')} kept)"
            ),
            "",
            _text(store, one.id, recipe),
        ]
    )


def _document(store: Store, made: str, recipe: library.Recipe) -> Any:
    """Return what is kept of something, as its command prints it with --json; of a comparison one
    row per run.
    """
    if isinstance(recipe, Study | FromHere):
        return plain(library.numbers(store, recipe).astype(object).to_dict("records"))
    if isinstance(recipe, Check):
        return backtest_document(_check(store, recipe))
    return (
        sweep_document(made, _sweep(store, recipe), DEFAULT_METRIC)
        if isinstance(recipe, Sweep)
        else plan_document(made, _plan(store, recipe))
    )


def _text(store: Store, made: str, recipe: library.Recipe) -> str:
    if isinstance(recipe, Study | FromHere):
        return "\n".join(
            columns(
                [
                    ("run", *(metric.title for metric in _SHOWN)),
                    *_lines(library.numbers(store, recipe)),
                ]
            )
        )
    if isinstance(recipe, Check):
        return "\n".join(backtest_lines(_check(store, recipe)))
    return (
        sweep_text(made, _sweep(store, recipe), DEFAULT_METRIC)
        if isinstance(recipe, Sweep)
        else plan_text(made, _plan(store, recipe))
    )


def _sweep(store: Store, recipe: Sweep) -> SweepRun:
    run = SweepRun(recipe, store)
    run.recall()
    return run


def _check(store: Store, recipe: Check) -> BacktestRun:
    run = BacktestRun(recipe, store)
    run.recall()
    return run


def _plan(store: Store, recipe: SizeQuestion) -> PlanRun:
    run = PlanRun(recipe, store)
    run.recall()
    return run


_SHOWN = tuple(metric for name, metric in COLUMNS.items() if name in library.BRIEF)


def _lines(runs: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return one line per run of a comparison whose numbers are kept; of a sweep or search those at
    its own settings.
    """
    rows = runs.to_dict("records")
    return [
        (
            f"{row['policy']}, seed {row['seed']}",
            *(_told(row[metric.name], metric.unit) for metric in _SHOWN),
        )
        for row in rows
    ]


def _told(value: float, unit: str) -> str:
    return "-" if math.isnan(value) else with_unit(value, unit)


def _export(store: Store, words: list[str], args: argparse.Namespace) -> str:
    out = Path(args.out or "trainyard-runs.zip")
    if out.suffix != ".zip":
        raise UsageError(f"{out}: the name must end in .zip.")
    chosen = dict.fromkeys(library.item(store, HERE, mark).id for mark in words)
    data, damaged = archive.packed(store, HERE, list(chosen))
    part = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        # An earlier archive of that name stays until this one is complete.
        part.write_bytes(data)
        part.replace(out)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise UsageError(
            f"{out}: this cannot be written ({error.strerror or error}). Choose another place."
        ) from error
    summary = f"{out}: {plural(len(chosen), 'thing')}, {len(data) / 1e6:.1f} MB"
    if not damaged:
        return summary
    which = ", ".join(key[:12] for key in damaged)
    were = (
        f"{plural(len(damaged), 'result')} ({which}) {'was' if len(damaged) == 1 else 'were'}"
        " damaged"
    )
    return (
        f"{summary}\n{were}: only the numbers are left, here and in the file. Run again to have the"
        " rest."
    )


def _import(store: Store, words: list[str], args: argparse.Namespace) -> str:
    del args
    return "\n".join(_taken(store, Path(word)) for word in words)


def _taken(store: Store, path: Path) -> str:
    try:
        if path.stat().st_size > archive.MOST_MB * 1e6:
            raise UsageError(
                f"{path}: this file has more than {archive.MOST_MB:.0f} MB. Export fewer things at"
                " once."
            )
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path}: this cannot be read ({error.strerror or error}). Check the path and the"
            " rights."
        ) from error
    made = archive.unpack(store, HERE, data, path.name, results=True)
    return "\n".join(
        [
            f"{path}: {', '.join(one[:12] for one in made.ids) or 'nothing'} taken over",
            *([made.summary] if made.summary else []),
        ]
    )


def _remove(store: Store, words: list[str], args: argparse.Namespace) -> str:
    del args
    chosen = dict.fromkeys(library.item(store, HERE, mark).id for mark in words)
    gone = sum(library.remove(store, HERE, one) for one in chosen)
    return (
        f"{plural(len(chosen), 'thing')} removed, and {plural(gone, 'run')} that nothing else needs"
    )


def _name(store: Store, words: list[str], args: argparse.Namespace) -> str:
    del args
    one = library.item(store, HERE, words[0])
    name = " ".join(" ".join(words[1:]).split())
    library.label(store, HERE, one.id, name=name)
    return f"{one.id[:12]} is called {name}" if name else f"{one.id[:12]} has no name"


def _tag(store: Store, words: list[str], args: argparse.Namespace) -> str:
    del args
    one = library.item(store, HERE, words[0])
    tags = [" ".join(tag.split()) for text in words[1:] for tag in text.split(",") if tag.strip()]
    library.label(store, HERE, one.id, tags=tags)
    return f"{one.id[:12]} has the tags {', '.join(tags)}" if tags else f"{one.id[:12]} has no tags"


def command_compare(args: argparse.Namespace) -> None:
    """Execute ``python -m trainyard compare``: what differs between two things in the library, and
    their numbers beside each other.

    Raises
    ------
    TrainyardError
        If one is not there, or no run of it is kept.
    """
    store = Store()
    both = (library.item(store, HERE, args.first), library.item(store, HERE, args.second))
    found = library.beside(store, *both)
    lines = [
        (f"{name}: {line[0]}", *line[1:])
        for name, runs in (("A", found.first), ("B", found.second))
        for line in _lines(runs)
    ]
    heads = [
        f"{name} = {one.name or one.title} (id {one.id[:12]})"
        for name, one in zip("AB", both, strict=True)
    ]
    told_changes = (
        f"From A to B: {'; '.join(found.changes)}."
        if found.changes
        else "Both have the same settings."
    )
    table = columns([("run", *(metric.title for metric in _SHOWN)), *lines])
    sys.stdout.write("\n".join([*heads, told_changes, "", *table]) + "\n")
