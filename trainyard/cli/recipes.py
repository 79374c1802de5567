"""The ``recipes`` command: which recipes there are, what they say, and whether one of the user's
own is sound.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from jobtraces import ReadOptions, peek, read
from jobtraces.readers.options import digest_of
from jobtraces.recipes import MINE, parse, shipped, shipped_text
from trainyard.cli.errors import UsageError
from trainyard.text import plural
from trainyard.traces.own_recipes import checked, folder, kept, of_text, own_text

_WANTED: Final = {"list": (), "show": ("NAME",), "check": ("FILE",), "try": ("FILE", "DATA")}
SHOWN: Final = 5
"""Jobs that a trial shows."""


def add_recipes(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard recipes``."""
    parser.set_defaults(command=command_recipes)
    parser.add_argument(
        "action",
        choices=_WANTED,
        help="list them, show NAME, check FILE without data, or try FILE on DATA",
    )
    parser.add_argument("what", metavar="NAME|FILE|DATA", nargs="*", help="as the action wants")


def command_recipes(args: argparse.Namespace) -> None:
    """Execute ``python -m trainyard recipes``.

    Raises
    ------
    TrainyardError
        If there is no such recipe, it is faulty, or the data cannot be read by it.
    """
    wanted = _WANTED[args.action]
    if len(args.what) < len(wanted) or (len(args.what) > len(wanted) and args.action != "try"):
        raise UsageError(f"recipes {args.action} wants {' and '.join(wanted) or 'nothing more'}.")
    sys.stdout.writelines(f"{line}\n" for line in _ACTIONS[args.action](*args.what))


def _list() -> list[str]:
    known = [
        f"{recipe.name:<20} {recipe.title}{' (refused)' if recipe.refuse else ''}"
        for recipe in shipped()
    ]
    own = [
        f"{MINE + name:<20} {of_text(own_text(name), str(path)).title}"
        for name, path in kept().items()
    ]
    return [*known, *own, f"Recipes of your own: TOML files in {folder()}."]


def _show(name: str) -> list[str]:
    own = name.startswith(MINE) or name in kept() or Path(name).suffix == ".toml"
    return [(own_text(name) if own else shipped_text(name)).rstrip()]


def _check(place: str) -> list[str]:
    text = own_text(place)
    own = checked(text, place)
    told = f"{place}: sound, digest {digest_of(text)}. {own.title}: "
    if own.fmt:
        return [f"{told}read as {own.fmt}, {', '.join(own.choices) or 'nothing else chosen'}."]
    recipe = parse(text, place)
    facts = ", ".join(recipe.columns) or f"it refuses such files: {recipe.refuse}"
    return [f"{told}{facts}."]


def _try(place: str, *files: str) -> list[str]:
    own = checked(own_text(place), place)
    given = {one: Path(one).expanduser() for one in files}
    source = given if len(given) > 1 else given[files[0]]
    found = read(source, fmt=own.fmt or None, options=ReadOptions(**own.choices))
    mark = peek(source).fingerprint
    return [
        f"{' + '.join(path.name for path in given.values())}: {plural(found.read, 'row')} read,"
        f" {found.used:,} used, {found.dropped:,} left out"
        f"{f', {found.merged:,} merged into others' if found.merged else ''}",
        *(f"  {rows:,} {action}: {reason}" for action, reason, rows in found.counts()),
        *(f"  {sentence}" for sentence in (*found.warnings, *found.guesses)),
        found.trace.frame.head(SHOWN).to_string(index=False),
        *(
            [f'To read such files by a recipe of your folder unasked: fingerprint = "{mark}"']
            if mark and mark != own.fingerprint
            else []
        ),
    ]


_ACTIONS: Final[Mapping[str, Callable[..., list[str]]]] = {
    "list": _list,
    "show": _show,
    "check": _check,
    "try": _try,
}
