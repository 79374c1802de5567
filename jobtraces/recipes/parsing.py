"""Parse and validate the TOML text of a recipe."""

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

MAX_TEXT_CHARS: Final = 64_000
MAX_EXPRESSIONS: Final = 100
MAX_SOURCES: Final = 20
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_\-/]*")
_COLUMN: Final = re.compile(r"[a-z_][a-z0-9_.]*")
MERGE_FUNCTIONS: Final = ("min", "max", "sum", "first", "last")
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


def parse_recipe(text: str, where: str) -> Recipe:
    """Parse the TOML text of a recipe.

    Parameters
    ----------
    text : str
        TOML.
    where : str
        Name of the recipe in messages.

    Raises
    ------
    TraceError
        If it is not TOML, has unknown keys, lacks required keys, or is too large.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise TraceError(
            f"{where}: the recipe has more than {MAX_TEXT_CHARS:,} characters. Shorten it."
        )
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise TraceError(f"{where}: the recipe is not valid TOML ({str(error)[:80]}).") from error
    _check_keys(raw, "", where)
    recognise = _table(raw, "recognise", where)
    _check_keys(recognise, "recognise", where)
    columns = _expressions(raw, "columns", where)
    for native in columns:
        if native not in COLUMNS:
            hint = did_you_mean(native, COLUMNS)
            raise TraceError(f"{where}: columns.{native} is not a native column. {hint}".rstrip())
    sources = _source_tables(raw, where)
    tables = tuple(table for table in sources if not table.builtin)
    recipe = Recipe(
        name=_text(raw, "name", where),
        title=_text(raw, "title", where),
        zone=_zone(raw, where),
        items=raw.get("items") if isinstance(raw.get("items"), str) else None,
        required=tuple(tuple(names.split("|")) for names in _texts(recognise, "columns", where)),
        optional=frozenset(_texts(raw, "optional", where)),
        exact=recognise.get("exact") is True,
        without=frozenset(_texts(recognise, "without", where)),
        paths=frozenset(_texts(recognise, "paths", where)),
        fields=frozenset(
            _field_counts(recognise, where) or (len(table.columns) for table in tables)
        ),
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
        asks=_recipe_questions(raw, where),
        choices=_choices(raw, where),
        lines=_lines(raw, where),
        needed=MappingProxyType(_expressions(raw, "needed", where)),
        without_gpus=_text(raw, "without_gpus", where) if "without_gpus" in raw else "",
        ids_repeat=raw.get("ids_repeat") is True,
        unix_times=raw.get("unix_times") is True,
        merge=_merge(raw, where),
    )
    _check_recipe(recipe, where)
    return recipe


def _check_recipe(recipe: Recipe, where: str) -> None:
    """Raise an error unless the parts of a recipe are complete and fit together.

    Checks the name, requirements, column names, joins, number of expressions, and required columns.
    """
    if not _NAME.fullmatch(recipe.name):
        raise TraceError(f"{where}: name may contain only lowercase letters, digits and dashes.")
    if not recipe.weight:
        raise TraceError(f"{where}: recognise lists no columns, paths or fields. Add one of them.")
    for name in (*recipe.let, *recipe.source_columns):
        if not (IDENTIFIER if name in recipe.let else _COLUMN).fullmatch(name):
            raise TraceError(
                f"{where}: the name {name!r} is not valid. Use lowercase letters and _."
            )
    _check_joins(recipe, where)
    count = len(recipe.let) + len(recipe.columns) + len(recipe.leave_out) + len(recipe.say)
    count += sum(1 + bool(ask.each) for ask in recipe.asks) + len(recipe.alter)
    count += sum(1 + len(join.on) + len(join.on_other) + len(join.take) for join in recipe.joins)
    if count > MAX_EXPRESSIONS:
        raise TraceError(
            f"{where}: {count} expressions exceed the limit of {MAX_EXPRESSIONS}. Remove some."
        )
    for native in () if recipe.refuse else ("submit_time_s", "num_gpus", "duration_s"):
        if native not in recipe.columns:
            raise TraceError(f"{where}: columns.{native} is missing. Add its expression.")


def _check_joins(recipe: Recipe, where: str) -> None:
    """Raise an error unless all joins name known tables and new columns."""
    for name in (name for table in recipe.tables for name in table.columns):
        if not IDENTIFIER.fullmatch(name):
            raise TraceError(
                f"{where}: the name {name!r} is not valid. Use lowercase letters and _."
            )
    used_names = {*recipe.source_columns, *recipe.let}
    other_tables = [table.name for table in (*recipe.tables[1:], *recipe.builtin)]
    for join in recipe.joins:
        if join.table not in other_tables:
            raise TraceError(
                f"{where}: join refers to the table {join.table!r}. The other sources are:"
                f" {', '.join(other_tables) or 'none'}."
            )
        if not join.on or len(join.on) != len(join.on_other):
            raise TraceError(f"{where}: join.on and join.on_other must have the same length.")
        for name in join.take:
            if name in used_names or not IDENTIFIER.fullmatch(name):
                raise TraceError(
                    f"{where}: join.take.{name} must be a new name of lowercase letters and _."
                )
            used_names.add(name)


def _check_keys(table: Mapping[str, Any], part: str, where: str) -> None:
    """Raise an error for a key that the recipe format does not define."""
    for key in table:
        if key not in _KEYS[part]:
            full_key = f"{part}.{key}" if part else key
            hint = did_you_mean(key, _KEYS[part])
            raise TraceError(f"{where}: unknown key {full_key}. {hint}".rstrip())


def _table(raw: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    """Return a sub-table of the TOML data, {} if absent; raise an error for other values."""
    table = raw.get(key, {})
    if not isinstance(table, dict):
        raise TraceError(f"{where}: {key} must be a table.")
    return table


def _table_list(raw: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """Return the tables under ``[[key]]``, [] if absent.

    Raises `TraceError` for other values, or keys that the recipe format does not define.
    """
    tables = raw.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise TraceError(f"{where}: {key} must be a list of tables. Write [[{key}]] above each.")
    for table in tables:
        _check_keys(table, key, where)
    return tables


def _expressions(raw: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    """Return name -> expression of a sub-table."""
    table = _table(raw, key, where)
    return {name: _text(table, name, f"{where}, {key}") for name in table}


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    """Return the text under a key; raise an error if it is missing, blank or no text."""
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise TraceError(f"{where}: {key} must be a non-empty text.")
    return value


def _texts(table: Mapping[str, Any], key: str, where: str) -> list[str]:
    """Return the list of texts under a key, [] if absent; raise an error for other values."""
    values = table.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TraceError(f"{where}: {key} must be a list of texts.")
    return values


def _field_counts(table: Mapping[str, Any], where: str) -> list[int]:
    """Return the allowed numbers of fields under the key ``fields``, [] if absent."""
    values = table.get("fields", [])
    if not isinstance(values, list) or not all(isinstance(value, int) for value in values):
        raise TraceError(f"{where}: fields must be a list of whole numbers.")
    return values


def _zone(raw: Mapping[str, Any], where: str) -> str:
    """Return the IANA time zone of the recipe, UTC by default."""
    zone = _text({"zone": "UTC"} | dict(raw), "zone", where)
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError) as error:
        raise TraceError(
            f"{where}: unknown time zone {zone!r}. Use an IANA name such as Asia/Shanghai."
        ) from error
    return zone


def _source_tables(raw: Mapping[str, Any], where: str) -> tuple[SourceTable, ...]:
    """Return the tables of a multi-table format, built-in tables included.

    Raises
    ------
    TraceError
        If there are too many, a built-in table is unknown, or two files have the same number of
        columns.
    """
    sources = _table(raw, "source", where)
    if len(sources) > MAX_SOURCES:
        raise TraceError(f"{where}: {len(sources)} sources exceed the limit of {MAX_SOURCES}.")
    tables = []
    for name in sources:
        table, place = _table(sources, name, where), f"{where}, source.{name}"
        _check_keys(table, "source", place)
        columns = tuple(_texts(table, "columns", place))
        title = _text({"title": name} | dict(table), "title", place)
        builtin = _text(table, "builtin", place) if "builtin" in table else ""
        if builtin and builtin not in BUILTIN:
            raise TraceError(f"{place}: builtin must be one of {', '.join(BUILTIN)}.")
        if builtin:
            columns = (*BUILTIN[builtin].keys, *BUILTIN[builtin].columns)
        tables.append(SourceTable(name, title, columns, table.get("optional") is True, builtin))
    files = [table for table in tables if not table.builtin]
    if len({len(table.columns) for table in files}) < len(files):
        raise TraceError(
            f"{where}: two sources have the same number of columns, so files cannot be assigned."
        )
    return tuple(tables)


def _joins(raw: Mapping[str, Any], where: str) -> tuple[Join, ...]:
    """Return the joins with other tables, in order.

    Key expressions of the other table are by default its built-in keys, or those of the jobs.
    """
    tables = _table_list(raw, "join", where)
    if len(tables) > MAX_SOURCES:
        raise TraceError(f"{where}: {len(tables)} joins exceed the limit of {MAX_SOURCES}.")
    joins = []
    for join in tables:
        on = tuple(_texts(join, "on", f"{where}, join"))
        table = _text(join, "table", f"{where}, join")
        source = _table(_table(raw, "source", where), table, where)
        builtin = BUILTIN.get(str(source.get("builtin")))
        default_keys = [f"coalesce({key}, '')" for key in builtin.keys] if builtin else [*on]
        joins.append(
            Join(
                table,
                on,
                tuple(
                    _texts({"on_other": default_keys} | dict(join), "on_other", f"{where}, join")
                ),
                _text(join, "where", f"{where}, join") if "where" in join else "",
                MappingProxyType(_expressions(join, "take", f"{where}, join")),
            )
        )
    return tuple(joins)


def _recipe_questions(raw: Mapping[str, Any], where: str) -> tuple[RecipeQuestion, ...]:
    """Return the questions about facts that the file lacks.

    Raises
    ------
    TraceError
        If an id is repeated or not valid, or default, options and free answers do not fit together.
    """
    tables = _table_list(raw, "ask", where)
    questions: dict[str, RecipeQuestion] = {}
    for ask in tables:
        key, place = _text(ask, "id", f"{where}, ask"), f"{where}, ask"
        options = _expressions(ask, "options", place)
        default = _text(ask, "default", place) if "default" in ask else ""
        if key in questions or not IDENTIFIER.fullmatch(key):
            raise TraceError(f"{place}: id {key!r} must be a new name of lowercase letters and _.")
        free, each = (_text(ask, name, place) if name in ask else "" for name in ("free", "each"))
        if free not in ("", NUMBER) or (free and (options or default)):
            raise TraceError(
                f'{place} {key}: free must be "{NUMBER}", without options and default.'
            )
        if each and not free:
            raise TraceError(f'{place} {key}: each requires free = "{NUMBER}".')
        if not free and (not options or default not in ("", *options)):
            raise TraceError(f"{place} {key}: default must be one of the options.")
        question = Question(key, _text(ask, "text", place), options, default, free)
        questions[key] = RecipeQuestion(
            _text({"when": "true"} | dict(ask), "when", place), question, each
        )
    return tuple(questions.values())


def _choices(raw: Mapping[str, Any], where: str) -> tuple[Question, ...]:
    """Return the optional choices of the user, each with a default among its options."""
    tables = _table(raw, "choices", where)
    choices = []
    for key in tables:
        choice, place = _table(tables, key, where), f"{where}, choices.{key}"
        _check_keys(choice, "choices", place)
        options, default = _expressions(choice, "options", place), _text(choice, "default", place)
        if default not in options or not IDENTIFIER.fullmatch(key):
            raise TraceError(f"{place}: default must be one of the options.")
        choices.append(Question(key, _text(choice, "text", place), options, default))
    return tuple(choices)


def _merge(raw: Mapping[str, Any], where: str) -> Merge | None:
    """Return how records of one job are merged, None if they are not.

    Raises
    ------
    TraceError
        If a column, function or choice is unknown.
    """
    if "merge" not in raw:
        return None
    table, place = _table(raw, "merge", where), f"{where}, merge"
    _check_keys(table, "merge", place)
    take = _expressions(table, "take", place)
    merge = Merge(
        _text(table, "by", place),
        _text(table, "order", place),
        _text(table, "choice", place) if "choice" in table else "",
        MappingProxyType(take),
    )
    columns = _table(raw, "columns", where)
    for native in (merge.order, *take, *({merge.by} - _table(raw, "let", where).keys())):
        if native not in columns:
            raise TraceError(f"{place}: {native} is not a column of this recipe.")
    for native, how in take.items():
        if how not in MERGE_FUNCTIONS:
            raise TraceError(f"{place}: take.{native} must be one of {', '.join(MERGE_FUNCTIONS)}.")
    question_ids = [ask.get("id") for ask in raw.get("ask", [])]
    if merge.choice and merge.choice not in [*_table(raw, "choices", where), *question_ids]:
        raise TraceError(
            f"{place}: choice {merge.choice!r} is neither a choice nor a question of this recipe."
        )
    return merge


def _lines(raw: Mapping[str, Any], where: str) -> Lines | None:
    """Return how the lines of a log are split, None for other files.

    Raises
    ------
    TraceError
        If a layout, the separator or a pattern is not valid.
    """
    if "lines" not in raw:
        return None
    table, place = _table(raw, "lines", where), f"{where}, lines"
    _check_keys(table, "lines", place)
    layouts = table.get("layouts", [])
    if not isinstance(layouts, list) or not all(isinstance(layout, list) for layout in layouts):
        raise TraceError(f"{place}: layouts must be a list of lists of columns.")
    cells = _expressions(table, "cells", place)
    lines = Lines(
        _separator(table, place),
        table.get("pattern") is True,
        _text(table, "overflow", place) if "overflow" in table else "",
        _text(table, "comment", place) if "comment" in table else "",
        _text(table, "zone", place) if "zone" in table else "",
        tuple(tuple(_texts({"layouts": layout}, "layouts", place)) for layout in layouts),
        MappingProxyType(cells),
    )
    try:
        for pattern in (lines.split, *cells.values()):
            re.compile(pattern)
    except re.error as error:
        raise TraceError(f"{place}: {pattern!r} is not a valid regular expression.") from error
    return lines


def _separator(lines: Mapping[str, Any], place: str) -> str:
    """Return the separator of fields, "|" by default: one character or a pattern."""
    split = lines.get("split", "|")
    if not isinstance(split, str) or (lines.get("pattern") is not True and len(split) != 1):
        raise TraceError(f"{place}: split must be one character, or a pattern (pattern = true).")
    return split


def _rules(raw: Mapping[str, Any], key: str, text: str, where: str) -> tuple[RowRule, ...]:
    """Return the row rules under a key."""
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
        for rule in _table_list(raw, key, where)
    )
