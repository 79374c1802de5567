"""Recipes of the user's own: what was answered about a file, kept for the next one with the same
columns, or expressions that the user wrote; TOML files in the folder ``recipes`` of the user's data
folder, or anywhere else, and in the app on the shelf of a browser.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from jobtraces import FORMATS, Import, ReadOptions, peek
from jobtraces.readers.plausible import DROP, GO_ON, OF_ROWS, WINDOW
from jobtraces.recipes import MINE, check, parse
from jobtraces.recipes.parsing import MOST_TEXT
from sim.errors import TraceError, TrainyardError
from sim.params import did_you_mean
from trainyard.store import default_root

_READ: Final = ("zone", "since", "time_unit", "duration_unit", "date_format")
"""Choices of `jobtraces.ReadOptions` that belong to a kind of file, not to what is done
with it.
"""
_KEYS: Final = ("name", "title", "saved", "fingerprint", "read")
_READ_KEYS: Final = ("format", *_READ, "columns", "answers")
_OWN_LINE: Final = re.compile(r"(?m)^(?:fingerprint|saved)[ \t]*=.*\n?")
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{12}|")
_NOT_PLAIN: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class OwnRecipe:
    """How files of one kind are read, by their user's word.

    Parameters
    ----------
    name, title : str
        What it is called, and what its files are.
    text : str
        TOML.
    fmt : str
        Key of `jobtraces.FORMATS`; "" = it has expressions of its own.
    choices : mapping
        Of `jobtraces.ReadOptions`.
    fingerprint : str
        Of the files that are read by it unasked; "" = of none.
    saved : str
        ISO date on which it was kept; "" = not known.
    """

    name: str
    title: str
    text: str
    fmt: str
    choices: Mapping[str, Any]
    fingerprint: str = ""
    saved: str = ""

    @property
    def told(self) -> str:
        """What a user calls it: ``your recipe “jobs” of 3 March 2026``."""
        day = date.fromisoformat(self.saved) if self.saved else None
        return f"your recipe “{self.name}”" + (
            f" of {day.day} {day:%B} {day.year}" if day is not None else ""
        )

    def same(self, other: OwnRecipe) -> bool:
        """Tell whether both read alike."""
        return (self.fmt, self.choices) == (other.fmt, other.choices)


def of_text(text: str, where: str) -> OwnRecipe:
    """Return a recipe of either kind.

    Parameters
    ----------
    text : str
        TOML: with a table ``read`` what was answered about a file, else expressions.
    where : str
        For messages.

    Raises
    ------
    TraceError
        If it is no TOML, too long, or has keys or values that are not known.
    """
    if len(text) > MOST_TEXT:
        raise TraceError(f"{where}: a recipe may have {MOST_TEXT:,} characters. Shorten it.")
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise TraceError(f"{where}: the recipe is no TOML ({str(error)[:80]}).") from error
    saved = raw.get("saved", "")
    saved = saved.isoformat() if isinstance(saved, date) else saved
    fingerprint = raw.get("fingerprint", "")
    if not isinstance(fingerprint, str) or not _FINGERPRINT.fullmatch(fingerprint):
        raise TraceError(f"{where}: fingerprint must be twelve hexadecimal digits.")
    try:
        date.fromisoformat(saved or "2000-01-01")
    except (ValueError, TypeError) as error:
        raise TraceError(f"{where}: saved must be a date such as 2026-03-03.") from error
    if "read" not in raw:
        recipe = parse(text, where)
        name = recipe.name.removeprefix(MINE)
        return OwnRecipe(name, recipe.title, text, "", {"recipe": text}, fingerprint, saved)
    _known(raw, _KEYS, where)
    read = _table(raw, "read", where)
    _known(read, _READ_KEYS, f"{where}, read")
    fmt = _text(read, "format", f"{where}, read")
    if fmt not in FORMATS:
        raise TraceError(f"{where}: the format {fmt!r} is not known. Choose one of those listed.")
    choices: dict[str, Any] = {
        name: _text(read, name, f"{where}, read") for name in _READ if name in read
    }
    for key, choice in (("columns", "mapping"), ("answers", "answers")):
        table = _table(read, key, f"{where}, read")
        if table:
            choices[choice] = {
                name: _text(table, name, f"{where}, read.{key}", empty=True) for name in table
            }
    try:
        ReadOptions(**choices)
    except TrainyardError as error:
        raise TraceError(f"{where}: {error}") from error
    name, title = (_text(raw, key, where) for key in ("name", "title"))
    return OwnRecipe(name, title, text, fmt, choices, fingerprint, saved)


def of_import(
    file: str, imported: Import, choices: Mapping[str, Any], fingerprint: str, name: str = ""
) -> OwnRecipe:
    """Return the recipe by which the next file with the same columns is read as this one was.

    Parameters
    ----------
    file : str
        Name of the file.
    imported : Import
        What came of it.
    choices : mapping
        Of `jobtraces.ReadOptions`, by which it was read.
    fingerprint : str
        Of the file.
    name : str
        What to call the recipe; "" = after the file.

    Notes
    -----
    Answers that speak of single rows, and "go on" to what looked wrong, are left out: the next file
    is asked about anew.
    """
    name = name or _NOT_PLAIN.sub("-", file.partition(".")[0].lower()).strip("-") or "table"
    today = datetime.now(UTC).date().isoformat()
    if text := str(choices.get("recipe", "")):
        return of_text(_marked(text, fingerprint, today), name)
    columns = dict(imported.columns) | dict(choices.get("mapping") or {})
    # Also those that were not asked: the columns of a recipe settle some of its own questions.
    answers = {
        name: answer
        for name, answer in dict(choices.get("answers") or {}).items()
        if name not in OF_ROWS and answer not in (GO_ON, WINDOW, DROP)
    }
    lines = [
        f"name = {_quoted(name)}",
        f"title = {_quoted(file)}",
        f"saved = {_quoted(today)}",
        f"fingerprint = {_quoted(fingerprint)}",
        "",
        "[read]",
        f"format = {_quoted(imported.fmt)}",
        *(f"{key} = {_quoted(choices[key])}" for key in _READ if choices.get(key)),
    ]
    for key, values in (("columns", columns), ("answers", answers)):
        if values:
            lines += ["", f"[read.{key}]"]
            lines += [f"{_quoted(one)} = {_quoted(value)}" for one, value in values.items()]
    return of_text("\n".join([*lines, ""]), name)


def _marked(text: str, fingerprint: str, today: str) -> str:
    """Return a recipe of expressions with the fingerprint of the files that it reads."""
    keys, bracket, rest = text.partition("[")
    keys = _OWN_LINE.sub("", keys)
    return f'saved = "{today}"\nfingerprint = "{fingerprint}"\n{keys}{bracket}{rest}'


def _quoted(value: Any) -> str:
    """Return a text as TOML writes it, which is JSON but for one letter."""
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _known(raw: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in raw:
        if key not in keys:
            hint = did_you_mean(key, keys)
            raise TraceError(f"{where}: the key {key} is not known. {hint}".rstrip())


def _table(raw: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    table = raw.get(key, {})
    if not isinstance(table, dict):
        raise TraceError(f"{where}: {key} must be a table.")
    return table


def _text(raw: Mapping[str, Any], key: str, where: str, *, empty: bool = False) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not (empty or value.strip()):
        raise TraceError(f"{where}: {key} must be a text.")
    return value


def checked(text: str, where: str) -> OwnRecipe:
    """Return a recipe after its expressions were checked without any data.

    Raises
    ------
    TraceError
        If it is faulty.
    """
    found = of_text(text, where)
    if not found.fmt:
        check(text, where)
    return found


def for_file(path: Path) -> OwnRecipe | None:
    """Return the recipe of `kept` that was kept for files like this one; None = there is none.

    Raises
    ------
    TrainyardError
        If the file cannot be opened.
    """
    known: dict[str, OwnRecipe] = {}
    for name, place in kept().items():
        try:
            found = of_text(own_text(name), str(place))
        except TraceError:
            continue  # 'recipes list' says what is wrong with it
        if found.fingerprint:
            known[found.fingerprint] = found
    return known.get(peek(path).fingerprint) if known else None


def keep(recipe: OwnRecipe, place: str) -> Path:
    """Write a recipe and return where it is.

    Parameters
    ----------
    recipe : OwnRecipe
        What to write.
    place : str
        Path of a TOML file; a plain name = in `folder`, from where it is applied unasked.

    Raises
    ------
    TraceError
        If it cannot be written.
    """
    path = Path(place).expanduser()
    if place == path.name and not path.suffix:
        path = folder() / f"{place}.toml"
    elif path.suffix != ".toml":
        raise TraceError(f"{place}: a recipe is a TOML file. Let its name end in .toml.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(recipe.text, encoding="utf-8")
    except OSError as error:
        raise TraceError(
            f"{place}: the recipe cannot be written ({error.strerror or error}). Choose another"
            " place."
        ) from error
    return path


def folder() -> Path:
    """Return the folder whose recipes are known by their names."""
    return default_root() / "recipes"


def kept() -> dict[str, Path]:
    """Return the recipes in that folder: name of the file without suffix -> file."""
    try:
        return {path.stem: path for path in sorted(folder().glob("*.toml"))}
    except OSError:  # a folder that cannot be read holds nothing for us
        return {}


def own_text(place: str) -> str:
    """Return the text of a recipe.

    Parameters
    ----------
    place : str
        Path of a file, or the name of one of `kept`.

    Raises
    ------
    TraceError
        If there is none, or it cannot be read.
    """
    path = kept().get(place.removeprefix(MINE), Path(place).expanduser())
    try:
        if path.stat().st_size > 4 * MOST_TEXT:
            raise TraceError(f"{path}: a recipe may have {MOST_TEXT:,} characters. Shorten it.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TraceError(
            f"{place}: there is no such recipe ({error.strerror or error}). Give the path of a TOML"
            " file or a name from 'recipes list'."
        ) from error
    except ValueError as error:
        raise TraceError(
            f"{path}: this is no recipe, but something that is no text. Check the path."
        ) from error
