"""The ``recipes`` command: lists, shows, checks and tries recipes for trace formats."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from jobtraces import ReadOptions, peek, read
from jobtraces.readers.options import OpenQuestionError, digest_of
from jobtraces.recipes import (
    USER_PREFIX,
    parse_recipe,
    recognize_own,
    shipped_recipes,
    shipped_text,
)
from sim.errors import TraceError
from trainyard.cli.errors import UsageError
from trainyard.formatting import plural
from trainyard.traces.own_recipes import (
    check_own_recipe,
    parse_own_recipe,
    recipe_text,
    recipes_folder,
    stored_recipes,
)

_ARGUMENTS: Final = {"list": (), "show": ("NAME",), "check": ("FILE",), "try": ("FILE", "DATA")}
SHOWN: Final = 5
"""Number of jobs that ``try`` prints."""


def add_recipes(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard recipes``."""
    parser.set_defaults(command=command_recipes)
    parser.add_argument(
        "action",
        choices=_ARGUMENTS,
        help="list them, show NAME, check FILE without data, or try FILE on DATA",
    )
    parser.add_argument("what", metavar="NAME|FILE|DATA", nargs="*", help="arguments of the action")


def command_recipes(args: argparse.Namespace) -> None:
    """Execute ``recipes``: print the result of list, show, check or try.

    Raises
    ------
    TrainyardError
        If there is no such recipe, it is faulty, or the data cannot be read by it.
    """
    needed = _ARGUMENTS[args.action]
    if len(args.what) < len(needed) or (len(args.what) > len(needed) and args.action != "try"):
        raise UsageError(f"recipes {args.action} takes {' and '.join(needed) or 'no arguments'}.")
    sys.stdout.writelines(f"{line}\n" for line in _ACTIONS[args.action](*args.what))


def _list_recipes() -> list[str]:
    """Return one line per shipped recipe and per user recipe, then the folder of the latter."""
    shipped_lines = [
        f"{recipe.name:<20} {recipe.title}{' (refused)' if recipe.refuse else ''}"
        for recipe in shipped_recipes()
    ]
    own = [
        f"{USER_PREFIX + name:<20} {parse_own_recipe(recipe_text(name), str(path)).title}"
        for name, path in stored_recipes().items()
    ]
    return [*shipped_lines, *own, f"Recipes of your own: TOML files in {recipes_folder()}."]


def _show_recipe(name: str) -> list[str]:
    """Return the text of a recipe, of the user or shipped, as a list with one item."""
    own = name.startswith(USER_PREFIX) or name in stored_recipes() or Path(name).suffix == ".toml"
    return [(recipe_text(name) if own else shipped_text(name)).rstrip()]


def _check_recipe(place: str) -> list[str]:
    """Return one line that confirms a recipe file and describes it; raise if it is faulty."""
    text = recipe_text(place)
    own = check_own_recipe(text, place)
    heading = f"{place}: valid, digest {digest_of(text)}. {own.title}: "
    if own.fmt:
        return [f"{heading}read as {own.fmt}, {', '.join(own.choices) or 'no other choices'}."]
    recipe = parse_recipe(text, place)
    facts = ", ".join(recipe.columns) or f"refuses such files: {recipe.refuse}"
    return [f"{heading}{facts}."]


def _try_recipe(place: str, *files: str) -> list[str]:
    """Return the reading report and the first jobs of files read by a recipe."""
    own = check_own_recipe(recipe_text(place), place)
    given = {one: Path(one).expanduser() for one in files}
    source = given if len(given) > 1 else given[files[0]]
    options = ReadOptions(**own.choices)
    start = peek(source, options=options)
    reason = recognize_own([own.text], start.sample)[0][0] if not own.fmt else ""
    note = f"[recognise] does not fit: {reason}." if reason else ""
    try:
        imported = read(source, fmt=own.fmt or None, options=options)
    except TraceError as error:
        if not reason or reason in str(error) or isinstance(error, OpenQuestionError):
            raise
        raise TraceError(f"{error} {note}") from error
    fingerprint = start.fingerprint
    return [
        f"{' + '.join(path.name for path in given.values())}: {plural(imported.read, 'row')} read,"
        f" {imported.used:,} used, {imported.dropped:,} left out"
        f"{f', {imported.merged:,} merged into others' if imported.merged else ''}",
        *(f"  {rows:,} {action}: {reason}" for action, reason, rows in imported.counts()),
        *(f"  {sentence}" for sentence in (*imported.warnings, *imported.guesses)),
        *([f"  {note}"] if note else []),
        imported.trace.frame.head(SHOWN).to_string(index=False),
        *(
            [f'To apply the recipe to such files automatically, add: fingerprint = "{fingerprint}"']
            if fingerprint not in ("", own.fingerprint) and "[lines]" not in own.text
            else []
        ),
    ]


_ACTIONS: Final[Mapping[str, Callable[..., list[str]]]] = {
    "list": _list_recipes,
    "show": _show_recipe,
    "check": _check_recipe,
    "try": _try_recipe,
}
