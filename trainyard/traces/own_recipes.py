"""User recipes: stored answers for files with the same columns, or recipes with expressions.

TOML files in the folder ``recipes`` of the user's data folder or elsewhere; in the app they belong
to the browser.
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
from jobtraces.readers.plausible import DROP, KEEP, ROW_QUESTIONS, WINDOW
from jobtraces.recipes import USER_PREFIX, check_recipe, parse_recipe, recognize_own
from jobtraces.recipes.parsing import MAX_TEXT_CHARS
from sim.errors import TraceError, TrainyardError
from sim.params import did_you_mean
from trainyard.store import default_root

_READ_OPTIONS: Final = ("zone", "since", "time_unit", "duration_unit", "date_format")
"""Options of `jobtraces.ReadOptions` that describe a kind of file."""
_KEYS: Final = ("name", "title", "saved", "fingerprint", "read")
_READ_KEYS: Final = ("format", *_READ_OPTIONS, "columns", "answers")
_OWN_LINE: Final = re.compile(r"(?m)^(?:fingerprint|saved)[ \t]*=.*\n?")
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{12}|")
_NOT_PLAIN: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class OwnRecipe:
    """A user recipe: stored choices for reading files of one kind.

    Parameters
    ----------
    name, title : str
        Name of the recipe, and description of its files.
    text : str
        TOML.
    fmt : str
        Key of `jobtraces.FORMATS`; "" = the recipe has expressions.
    choices : mapping
        Values for `jobtraces.ReadOptions`.
    fingerprint : str
        Fingerprint of files that are read with it automatically; "" = none.
    saved : str
        ISO date on which it was saved; "" = unknown.
    """

    name: str
    title: str
    text: str
    fmt: str
    choices: Mapping[str, Any]
    fingerprint: str = ""
    saved: str = ""

    @property
    def label(self) -> str:
        """Name for messages: ``your recipe “jobs” of 3 March 2026``; the date if known."""
        day = date.fromisoformat(self.saved) if self.saved else None
        return f"your recipe “{self.name}”" + (
            f" of {day.day} {day:%B} {day.year}" if day is not None else ""
        )

    def reads_like(self, other: OwnRecipe) -> bool:
        """Return True if both recipes read files the same way."""
        return (self.fmt, self.choices) == (other.fmt, other.choices)


def parse_own_recipe(text: str, where: str) -> OwnRecipe:
    """Return the recipe in a TOML text.

    Parameters
    ----------
    text : str
        TOML, with a table ``read`` (stored answers) or with expressions.
    where : str
        Name of the recipe in messages.

    Raises
    ------
    TraceError
        If it is not TOML, too long, or has unknown keys or values.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise TraceError(
            f"{where}: the recipe has more than {MAX_TEXT_CHARS:,} characters. Shorten it."
        )
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise TraceError(f"{where}: the recipe is not valid TOML ({str(error)[:80]}).") from error
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
        recipe = parse_recipe(text, where)
        name = recipe.name.removeprefix(USER_PREFIX)
        return OwnRecipe(name, recipe.title, text, "", {"recipe": text}, fingerprint, saved)
    _check_keys(raw, _KEYS, where)
    read = _sub_table(raw, "read", where)
    _check_keys(read, _READ_KEYS, f"{where}, read")
    fmt = _text_value(read, "format", f"{where}, read")
    if fmt not in FORMATS:
        raise TraceError(f"{where}: unknown format {fmt!r}. Choose a listed format.")
    choices: dict[str, Any] = {
        name: _text_value(read, name, f"{where}, read") for name in _READ_OPTIONS if name in read
    }
    for key, choice in (("columns", "mapping"), ("answers", "answers")):
        table = _sub_table(read, key, f"{where}, read")
        if table:
            choices[choice] = {
                name: _text_value(table, name, f"{where}, read.{key}", empty=True) for name in table
            }
    try:
        ReadOptions(**choices)
    except TrainyardError as error:
        raise TraceError(f"{where}: {error}") from error
    name, title = (_text_value(raw, key, where) for key in ("name", "title"))
    return OwnRecipe(name, title, text, fmt, choices, fingerprint, saved)


def recipe_of_import(
    file: str, imported: Import, choices: Mapping[str, Any], fingerprint: str, name: str = ""
) -> OwnRecipe:
    """Return a recipe that reads the next file with the same columns like this one.

    Parameters
    ----------
    file : str
        Name of the file.
    imported : Import
        The result of reading it.
    choices : mapping
        Values of `jobtraces.ReadOptions` used.
    fingerprint : str
        Fingerprint of the file.
    name : str
        Name of the recipe; "" = from the file name.

    Notes
    -----
    Answers about single rows, and answers that keep implausible data, are left out: these questions
    are asked again for the next file.
    """
    name = name or _NOT_PLAIN.sub("-", file.partition(".")[0].lower()).strip("-") or "table"
    today = datetime.now(UTC).date().isoformat()
    if text := str(choices.get("recipe", "")):
        return parse_own_recipe(_set_fingerprint(text, fingerprint, today), name)
    columns = dict(imported.columns) | dict(choices.get("mapping") or {})
    # Include answers to questions that were not asked: the columns of a recipe settle some.
    answers = {
        name: answer
        for name, answer in dict(choices.get("answers") or {}).items()
        if name not in ROW_QUESTIONS and answer not in (KEEP, WINDOW, DROP)
    }
    lines = [
        f"name = {_quote_toml(name)}",
        f"title = {_quote_toml(file)}",
        f"saved = {_quote_toml(today)}",
        f"fingerprint = {_quote_toml(fingerprint)}",
        "",
        "[read]",
        f"format = {_quote_toml(imported.fmt)}",
        *(f"{key} = {_quote_toml(choices[key])}" for key in _READ_OPTIONS if choices.get(key)),
    ]
    for key, values in (("columns", columns), ("answers", answers)):
        if values:
            lines += ["", f"[read.{key}]"]
            lines += [f"{_quote_toml(key)} = {_quote_toml(value)}" for key, value in values.items()]
    return parse_own_recipe("\n".join([*lines, ""]), name)


def _set_fingerprint(text: str, fingerprint: str, today: str) -> str:
    """Return the text of a recipe with its fingerprint and saved date set or replaced."""
    keys, bracket, rest = text.partition("[")
    keys = _OWN_LINE.sub("", keys)
    return f'saved = "{today}"\nfingerprint = "{fingerprint}"\n{keys}{bracket}{rest}'


def _quote_toml(value: Any) -> str:
    """Return a text as a TOML string, which is JSON except for one character."""
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_keys(raw: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    """Raise an error for the first unknown key, with a suggestion."""
    for key in raw:
        if key not in keys:
            hint = did_you_mean(key, keys)
            raise TraceError(f"{where}: unknown key {key}. {hint}".rstrip())


def _sub_table(raw: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    """Return a sub-table of the TOML data; {} if absent, an error if it is no table."""
    table = raw.get(key, {})
    if not isinstance(table, dict):
        raise TraceError(f"{where}: {key} must be a table.")
    return table


def _text_value(raw: Mapping[str, Any], key: str, where: str, *, empty: bool = False) -> str:
    """Return the text at a key; raise if it is missing, no text, or blank unless `empty`."""
    value = raw.get(key)
    if not isinstance(value, str) or not (empty or value.strip()):
        raise TraceError(f"{where}: {key} must be a non-empty text.")
    return value


def check_own_recipe(text: str, where: str) -> OwnRecipe:
    """Parse a user recipe, check its expressions without data, and return it.

    Raises
    ------
    TraceError
        If the recipe has an error.
    """
    recipe = parse_own_recipe(text, where)
    if not recipe.fmt:
        check_recipe(text, where)
    return recipe


def recipe_for_file(path: Path) -> OwnRecipe | None:
    """Return the stored recipe with the fingerprint of a file or for its log lines, or None.

    Faulty recipes are skipped.

    Raises
    ------
    TrainyardError
        If the file cannot be opened, or several recipes fit a log equally.
    """
    by_fingerprint: dict[str, OwnRecipe] = {}
    logs: list[OwnRecipe] = []
    for name, place in stored_recipes().items():
        try:
            recipe = parse_own_recipe(recipe_text(name), str(place))
        except TraceError:
            continue  # 'recipes list' shows the error
        if recipe.fingerprint:
            by_fingerprint[recipe.fingerprint] = recipe
        if "[lines" in recipe.text and not recipe.fmt:
            logs.append(recipe)
    if not (by_fingerprint or logs):
        return None
    start = peek(path)
    if start.fingerprint in by_fingerprint or not logs or start.fmt == "native":
        return by_fingerprint.get(start.fingerprint)
    _, indexes = recognize_own([log.text for log in logs], start.sample)
    best = [logs[index] for index in indexes]
    if len(best) > 1:
        names = " and ".join(f"{USER_PREFIX}{recipe.name}" for recipe in best)
        raise TraceError(f"{path.name}: {names} fit equally. Choose one with --recipe.")
    return best[0] if best else None


def write_recipe(recipe: OwnRecipe, place: str) -> Path:
    """Write a recipe to a file and return its path.

    Parameters
    ----------
    recipe : OwnRecipe
        The recipe.
    place : str
        Path of a TOML file; a plain name = in `recipes_folder`, where it is applied automatically.

    Raises
    ------
    TraceError
        If it cannot be written.
    """
    path = Path(place).expanduser()
    if place == path.name and not path.suffix:
        path = recipes_folder() / f"{place}.toml"
    elif path.suffix != ".toml":
        raise TraceError(f"{place}: a recipe is a TOML file. Use a name that ends in .toml.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(recipe.text, encoding="utf-8")
    except OSError as error:
        raise TraceError(
            f"{place}: the recipe cannot be written ({error.strerror or error}). Choose another"
            " path."
        ) from error
    return path


def recipes_folder() -> Path:
    """Return the folder of recipes that can be used by name."""
    return default_root() / "recipes"


def stored_recipes() -> dict[str, Path]:
    """Return name -> file of the recipes in `recipes_folder`."""
    try:
        return {path.stem: path for path in sorted(recipes_folder().glob("*.toml"))}
    except OSError:  # an unreadable folder has no recipes
        return {}


def recipe_text(place: str) -> str:
    """Return the text of a user recipe.

    Parameters
    ----------
    place : str
        Path of a file, or a name in `stored_recipes`.

    Raises
    ------
    TraceError
        If there is no such recipe, or it cannot be read.
    """
    path = stored_recipes().get(place.removeprefix(USER_PREFIX), Path(place).expanduser())
    try:
        if path.stat().st_size > 4 * MAX_TEXT_CHARS:
            raise TraceError(
                f"{path}: the recipe has more than {MAX_TEXT_CHARS:,} characters. Shorten it."
            )
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TraceError(
            f"{place}: there is no such recipe ({error.strerror or error}). Give the path of a TOML"
            " file or a name from 'recipes list'."
        ) from error
    except ValueError as error:
        raise TraceError(f"{path}: this file is not a text. Check the path.") from error
