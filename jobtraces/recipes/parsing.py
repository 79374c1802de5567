"""Reads the text of a recipe, and refuses what is none."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from zoneinfo import ZoneInfo

from jobtraces.readers.options import NUMBER, Question
from jobtraces.recipes.builtin import BUILTIN
from jobtraces.recipes.recipe import (
    ANYTHING,
    IDENTIFIER,
    Join,
    Lines,
    Merge,
    Recipe,
    RecipeQuestion,
    RowRule,
    SourceTable,
)
from sim.errors import TraceError
from sim.params import did_you_mean
from sim.trace import COLUMNS

MOST_TEXT: Final = 64_000
MOST_EXPRESSIONS: Final = 100
MOST_SOURCES: Final = 20
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_\-/]*")
_COLUMN: Final = re.compile(r"[a-z_][a-z0-9_.]*")
TAKEN: Final = ("min", "max", "sum", "first", "last")
_KEYS: Final = {
    "": {
        *("name", "title", "zone", "items", "lines", "source", "join", "recognise", "refuse"),
        *("optional", "needed", "without_gpus", "unix_times", "attempts", "ids_repeat"),
        *("let", "columns", "status", "leave_out", "alter", "say", "ask", "choices", "merge"),
        *("fingerprint", "saved"),
    },
    "recognise": {"columns", "exact", "without", "paths", "fields", "first_cell", "file"},
    "lines": {"split", "pattern", "overflow", "comment", "zone", "layouts", "cells"},
    "leave_out": {"when", "reason", "so_far", "since"},
    "alter": {"when", "reason", "detail"},
    "say": {"when", "text", "warn"},
    "ask": {"id", "when", "text", "options", "default", "free", "each"},
    "choices": {"text", "options", "default"},
    "merge": {"by", "order", "choice", "take"},
    "source": {"title", "columns", "optional", "builtin"},
    "join": {"table", "on", "on_other", "where", "take"},
}


def parse(text: str, where: str) -> Recipe:
    """Read a recipe.

    Parameters
    ----------
    text : str
        TOML.
    where : str
        For messages.

    Raises
    ------
    TraceError
        If it is no TOML, has keys that are not known, lacks some, or is too large.
    """
    if len(text) > MOST_TEXT:
        raise TraceError(f"{where}: a recipe may have {MOST_TEXT:,} characters. Shorten it.")
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise TraceError(f"{where}: the recipe is no TOML ({str(error)[:80]}).") from error
    _check_keys(raw, "", where)
    recognise = _table(raw, "recognise", where)
    _check_keys(recognise, "recognise", where)
    columns = _expressions(raw, "columns", where)
    for native in columns:
        if native not in COLUMNS:
            hint = did_you_mean(native, COLUMNS)
            raise TraceError(f"{where}: columns.{native} is no native column. {hint}".rstrip())
    sources = _source_tables(raw, where)
    tables = tuple(table for table in sources if not table.builtin)
    recipe = Recipe(
        name=_text(raw, "name", where),
        title=_text(raw, "title", where),
        zone=_zone(raw, where),
        items=raw.get("items") if isinstance(raw.get("items"), str) else None,
        required=tuple(tuple(one.split("|")) for one in _texts(recognise, "columns", where)),
        optional=frozenset(_texts(raw, "optional", where)),
        exact=recognise.get("exact") is True,
        without=frozenset(_texts(recognise, "without", where)),
        paths=frozenset(_texts(recognise, "paths", where)),
        fields=frozenset(_counts(recognise, where) or (len(one.columns) for one in tables)),
        first_cell=_text({"first_cell": ANYTHING} | dict(recognise), "first_cell", where),
        file=_text(recognise, "file", where).lower() if "file" in recognise else "",
        let=MappingProxyType(_expressions(raw, "let", where)),
        columns=MappingProxyType(columns),
        status=MappingProxyType(
            {word.upper(): out for word, out in _expressions(raw, "status", where).items()}
        ),
        leave_out=_rules(raw, "leave_out", "reason", where),
        alter=_rules(raw, "alter", "reason", where),
        say=_rules(raw, "say", "text", where),
        attempts=raw.get("attempts") is True,
        refuse=_text(raw, "refuse", where) if "refuse" in raw else "",
        tables=tables,
        builtin=tuple(table for table in sources if table.builtin),
        joins=_joins(raw, where),
        asks=_asks(raw, where),
        choices=_choices(raw, where),
        lines=_lines(raw, where),
        needed=MappingProxyType(_expressions(raw, "needed", where)),
        without_gpus=_text(raw, "without_gpus", where) if "without_gpus" in raw else "",
        ids_repeat=raw.get("ids_repeat") is True,
        unix_times=raw.get("unix_times") is True,
        merge=_merge(raw, where),
    )
    _check_whole(recipe, where)
    return recipe


def _check_whole(recipe: Recipe, where: str) -> None:
    if not _NAME.fullmatch(recipe.name):
        raise TraceError(f"{where}: name may hold small letters, digits and dashes only.")
    if not recipe.weight:
        raise TraceError(f"{where}: recognise names no columns, paths or fields.")
    for name in (*recipe.let, *recipe.known):
        if not (IDENTIFIER if name in recipe.let else _COLUMN).fullmatch(name):
            raise TraceError(f"{where}: {name!r} is no plain name; use small letters and _.")
    _check_joins(recipe, where)
    count = len(recipe.let) + len(recipe.columns) + len(recipe.leave_out) + len(recipe.say)
    count += sum(1 + bool(ask.each) for ask in recipe.asks) + len(recipe.alter)
    count += sum(1 + len(join.on) + len(join.on_other) + len(join.take) for join in recipe.joins)
    if count > MOST_EXPRESSIONS:
        raise TraceError(f"{where}: {count} expressions are more than {MOST_EXPRESSIONS}.")
    for native in () if recipe.refuse else ("submit_time_s", "num_gpus", "duration_s"):
        if native not in recipe.columns:
            raise TraceError(f"{where}: columns.{native} is missing.")


def _check_joins(recipe: Recipe, where: str) -> None:
    for name in (name for table in recipe.tables for name in table.columns):
        if not IDENTIFIER.fullmatch(name):
            raise TraceError(f"{where}: {name!r} is no plain name; use small letters and _.")
    taken = {*recipe.known, *recipe.let}
    others = [table.name for table in (*recipe.tables[1:], *recipe.builtin)]
    for join in recipe.joins:
        if join.table not in others:
            raise TraceError(
                f"{where}: join names the table {join.table!r}, but the other sources are"
                f" {', '.join(others) or 'none'}."
            )
        if not join.on or len(join.on) != len(join.on_other):
            raise TraceError(f"{where}: join.on and join.on_other must be equally many.")
        for name in join.take:
            if name in taken or not IDENTIFIER.fullmatch(name):
                raise TraceError(
                    f"{where}: join.take.{name} must be a new name of small letters and _."
                )
            taken.add(name)


def _check_keys(table: Mapping[str, Any], part: str, where: str) -> None:
    for key in table:
        if key not in _KEYS[part]:
            named = f"{part}.{key}" if part else key
            hint = did_you_mean(key, _KEYS[part])
            raise TraceError(f"{where}: the key {named} is not known. {hint}".rstrip())


def _table(raw: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    table = raw.get(key, {})
    if not isinstance(table, dict):
        raise TraceError(f"{where}: {key} must be a table.")
    return table


def _listed(raw: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    listed = raw.get(key, [])
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise TraceError(f"{where}: write [[{key}]] above each of them.")
    for one in listed:
        _check_keys(one, key, where)
    return listed


def _expressions(raw: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    table = _table(raw, key, where)
    return {name: _text(table, name, f"{where}, {key}") for name in table}


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise TraceError(f"{where}: {key} must be a text.")
    return value


def _texts(table: Mapping[str, Any], key: str, where: str) -> list[str]:
    values = table.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TraceError(f"{where}: {key} must be a list of texts.")
    return values


def _counts(table: Mapping[str, Any], where: str) -> list[int]:
    values = table.get("fields", [])
    if not isinstance(values, list) or not all(isinstance(value, int) for value in values):
        raise TraceError(f"{where}: fields must be a list of whole numbers.")
    return values


def _zone(raw: Mapping[str, Any], where: str) -> str:
    zone = _text({"zone": "UTC"} | dict(raw), "zone", where)
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError) as error:
        raise TraceError(f"{where}: the time zone {zone!r} is not known.") from error
    return zone


def _source_tables(raw: Mapping[str, Any], where: str) -> tuple[SourceTable, ...]:
    listed = _table(raw, "source", where)
    if len(listed) > MOST_SOURCES:
        raise TraceError(f"{where}: {len(listed)} sources are more than {MOST_SOURCES}.")
    made = []
    for name in listed:
        table, place = _table(listed, name, where), f"{where}, source.{name}"
        _check_keys(table, "source", place)
        columns = tuple(_texts(table, "columns", place))
        title = _text({"title": name} | dict(table), "title", place)
        builtin = _text(table, "builtin", place) if "builtin" in table else ""
        if builtin and builtin not in BUILTIN:
            raise TraceError(f"{place}: builtin must be one of {', '.join(BUILTIN)}.")
        if builtin:
            columns = (*BUILTIN[builtin].keys, *BUILTIN[builtin].columns)
        made.append(SourceTable(name, title, columns, table.get("optional") is True, builtin))
    files = [table for table in made if not table.builtin]
    if len({len(table.columns) for table in files}) < len(files):
        raise TraceError(f"{where}: the sources must differ in their numbers of columns.")
    return tuple(made)


def _joins(raw: Mapping[str, Any], where: str) -> tuple[Join, ...]:
    listed = _listed(raw, "join", where)
    if len(listed) > MOST_SOURCES:
        raise TraceError(f"{where}: {len(listed)} joins are more than {MOST_SOURCES}.")
    made = []
    for join in listed:
        on = tuple(_texts(join, "on", f"{where}, join"))
        table = _text(join, "table", f"{where}, join")
        source = _table(_table(raw, "source", where), table, where)
        known = BUILTIN.get(str(source.get("builtin")))
        usual = [f"coalesce({key}, '')" for key in known.keys] if known else [*on]
        made.append(
            Join(
                table,
                on,
                tuple(_texts({"on_other": usual} | dict(join), "on_other", f"{where}, join")),
                _text(join, "where", f"{where}, join") if "where" in join else "",
                MappingProxyType(_expressions(join, "take", f"{where}, join")),
            )
        )
    return tuple(made)


def _asks(raw: Mapping[str, Any], where: str) -> tuple[RecipeQuestion, ...]:
    listed = _listed(raw, "ask", where)
    made: dict[str, RecipeQuestion] = {}
    for ask in listed:
        key, place = _text(ask, "id", f"{where}, ask"), f"{where}, ask"
        options = _expressions(ask, "options", place)
        default = _text(ask, "default", place) if "default" in ask else ""
        if key in made or not IDENTIFIER.fullmatch(key):
            raise TraceError(f"{place}: id {key!r} must be a new name of small letters and _.")
        free, each = (_text(ask, one, place) if one in ask else "" for one in ("free", "each"))
        if free not in ("", NUMBER) or (free and (options or default)):
            raise TraceError(
                f'{place} {key}: free must be "{NUMBER}", without options and default.'
            )
        if each and not free:
            raise TraceError(f"{place} {key}: each goes with free questions only.")
        if not free and (not options or default not in ("", *options)):
            raise TraceError(f"{place} {key}: default must be one of the options.")
        question = Question(key, _text(ask, "text", place), options, default, free)
        made[key] = RecipeQuestion(
            _text({"when": "true"} | dict(ask), "when", place), question, each
        )
    return tuple(made.values())


def _choices(raw: Mapping[str, Any], where: str) -> tuple[Question, ...]:
    listed = _table(raw, "choices", where)
    made = []
    for key in listed:
        choice, place = _table(listed, key, where), f"{where}, choices.{key}"
        _check_keys(choice, "choices", place)
        options, default = _expressions(choice, "options", place), _text(choice, "default", place)
        if default not in options or not IDENTIFIER.fullmatch(key):
            raise TraceError(f"{place}: default must be one of the options.")
        made.append(Question(key, _text(choice, "text", place), options, default))
    return tuple(made)


def _merge(raw: Mapping[str, Any], where: str) -> Merge | None:
    if "merge" not in raw:
        return None
    merge, place = _table(raw, "merge", where), f"{where}, merge"
    _check_keys(merge, "merge", place)
    take = _expressions(merge, "take", place)
    made = Merge(
        _text(merge, "by", place),
        _text(merge, "order", place),
        _text(merge, "choice", place) if "choice" in merge else "",
        MappingProxyType(take),
    )
    columns = _table(raw, "columns", where)
    for native in (made.order, *take, *({made.by} - _table(raw, "let", where).keys())):
        if native not in columns:
            raise TraceError(f"{place}: {native} is not one of the columns of this recipe.")
    for native, how in take.items():
        if how not in TAKEN:
            raise TraceError(f"{place}: take.{native} must be one of {', '.join(TAKEN)}.")
    asked = [ask.get("id") for ask in raw.get("ask", [])]
    if made.choice and made.choice not in [*_table(raw, "choices", where), *asked]:
        raise TraceError(
            f"{place}: choice names {made.choice!r}, which is no choice and no question."
        )
    return made


def _lines(raw: Mapping[str, Any], where: str) -> Lines | None:
    if "lines" not in raw:
        return None
    lines, place = _table(raw, "lines", where), f"{where}, lines"
    _check_keys(lines, "lines", place)
    layouts = lines.get("layouts", [])
    if not isinstance(layouts, list) or not all(isinstance(layout, list) for layout in layouts):
        raise TraceError(f"{place}: layouts must be a list of lists of columns.")
    cells = _expressions(lines, "cells", place)
    made = Lines(
        _separator(lines, place),
        lines.get("pattern") is True,
        _text(lines, "overflow", place) if "overflow" in lines else "",
        _text(lines, "comment", place) if "comment" in lines else "",
        _text(lines, "zone", place) if "zone" in lines else "",
        tuple(tuple(_texts({"layouts": layout}, "layouts", place)) for layout in layouts),
        MappingProxyType(cells),
    )
    try:
        for pattern in (made.split, *cells.values()):
            re.compile(pattern)
    except re.error as error:
        raise TraceError(f"{place}: {pattern!r} is no regular expression.") from error
    return made


def _separator(lines: Mapping[str, Any], place: str) -> str:
    split = lines.get("split", "|")
    if not isinstance(split, str) or (lines.get("pattern") is not True and len(split) != 1):
        raise TraceError(f"{place}: split must be one character, or a pattern (pattern = true).")
    return split


def _rules(raw: Mapping[str, Any], key: str, text: str, where: str) -> tuple[RowRule, ...]:
    return tuple(
        RowRule(
            _text(rule, "when", f"{where}, {key}"),
            _text(rule, text, f"{where}, {key}"),
            rule.get("warn") is True,
            **{
                name: _text(rule, name, f"{where}, {key}")
                for name in ("detail", "so_far", "since")
                if name in rule
            },
        )
        for rule in _listed(raw, key, where)
    )
