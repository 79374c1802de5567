"""What a recipe says: how a format is recognised, and one expression for each native column."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final
from zoneinfo import ZoneInfo

from sim.errors import TraceError
from sim.readers.questions import Question
from sim.trace import COLUMNS

MOST_TEXT: Final = 64_000
MOST_EXPRESSIONS: Final = 100
MOST_SOURCES: Final = 20
ANYTHING: Final = ".*"
_KEYS: Final = {
    "": {
        "name",
        "title",
        "zone",
        "attempts",
        "items",
        "optional",
        "recognise",
        "source",
        "join",
        "let",
        "columns",
        "status",
        "leave_out",
        "say",
        "ask",
        "refuse",
    },
    "recognise": {"columns", "exact", "without", "paths", "fields", "first_cell"},
    "leave_out": {"when", "reason"},
    "say": {"when", "text", "warn"},
    "ask": {"id", "when", "text", "options", "default"},
    "source": {"title", "columns", "optional"},
    "join": {"table", "on", "on_other", "where", "take"},
}
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_\-/]*")
_COLUMN: Final = re.compile(r"[a-z_][a-z0-9_.]*")
_IDENTIFIER: Final = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True)
class Rule:
    """Rows of which something is said, or that are left out.

    Parameters
    ----------
    when : str
        Expression: which rows.
    text : str
        The sentence, in which ``{n}`` is their number; for rows left out, the reason.
    warn : bool
        Whether what is said may distort a result.
    """

    when: str
    text: str
    warn: bool = False


@dataclass(frozen=True)
class Ask:
    """A question that is asked where a row gives rise to it.

    Parameters
    ----------
    when : str
        Expression: which rows.
    question : Question
        Its text may hold ``{n}``, the number of those rows; its answer is ``answer('ID')`` in
        expressions.
    """

    when: str
    question: Question


@dataclass(frozen=True)
class SourceTable:
    """One of several tables that a format is made of, each without a header.

    Parameters
    ----------
    name, title : str
        What joins call it, and what the user reads.
    columns : tuple of str
        Names of its columns in order.
    optional : bool
        Whether the jobs can be read without it.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    optional: bool = False


@dataclass(frozen=True)
class Join:
    """What another table adds to each record; never more records than there are.

    Parameters
    ----------
    table : str
        Name of a `SourceTable`.
    on, on_other : tuple of str
        Expressions that are equal where rows belong together, here and in the other table.
    where : str
        Which rows of the other table count, "" = all.
    take : mapping of str to str
        New name -> expression with an aggregate over the rows that belong to a record.
    """

    table: str
    on: tuple[str, ...]
    on_other: tuple[str, ...]
    where: str
    take: Mapping[str, str]


@dataclass(frozen=True)
class Recipe:
    """One format as data.

    Parameters
    ----------
    name, title : str
        Key of ``--format``, and what the user reads.
    zone : str
        IANA name, for times without an offset.
    items : str or None
        Of JSON: the key of the list, "" where the file is the list itself or one object per line;
        None = a table.
    required : tuple of tuple of str
        Columns that a table must have, each with the other names it goes by.
    optional : frozenset of str
        Columns that it may have; read as empty where it has not.
    exact : bool
        Whether a table may have no other columns than the required ones.
    without : frozenset of str
        Columns of which it may have none.
    paths : frozenset of str
        Key paths that the first item of JSON must have; ``kind=Pod`` also says which value.
    fields : frozenset of int
        Of a table without header: how many columns it may have.
    first_cell : str
        Regular expression that its first cell fits.
    let, columns : mapping
        Name -> expression, and native column -> expression.
    status : mapping
        Word in upper case -> outcome.
    leave_out, say : tuple of Rule
        The first that holds leaves a row out.
    attempts : bool
        Whether durations add up several attempts of a job.
    refuse : str
        Why a file of this kind cannot be read, "" = it can.
    tables : tuple of SourceTable
        Of a format that is made of several tables: each of them, the first holds one record per
        job.
    joins : tuple of Join
        In the order in which they are made.
    asks : tuple of Ask
        What the file does not say.
    """

    name: str
    title: str
    zone: str = "UTC"
    items: str | None = None
    required: tuple[tuple[str, ...], ...] = ()
    optional: frozenset[str] = frozenset()
    exact: bool = False
    without: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    fields: frozenset[int] = frozenset()
    first_cell: str = ANYTHING
    let: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, str] = field(default_factory=dict)
    leave_out: tuple[Rule, ...] = ()
    say: tuple[Rule, ...] = ()
    attempts: bool = False
    refuse: str = ""
    tables: tuple[SourceTable, ...] = ()
    joins: tuple[Join, ...] = ()
    asks: tuple[Ask, ...] = ()

    @property
    def weight(self) -> int:
        """How much must fit: of two recipes that recognise a file the heavier one is meant."""
        cells = bool(self.fields) + (self.first_cell != ANYTHING)
        return len(self.required) + len(self.paths) + cells

    @property
    def known(self) -> frozenset[str]:
        """The columns an expression may name."""
        base = self.tables[0].columns if self.tables else ()
        return self.optional | {names[0] for names in self.required} | set(base)

    def sources(self) -> dict[str, tuple[str, ...]]:
        """Return native column -> the columns of the table that its expression is made of."""

        def named(expression: str) -> dict[str, None]:
            words = _IDENTIFIER.findall(re.sub(r"'[^']*'", "", expression.lower()))
            found: dict[str, None] = {}
            for word in words:
                if word in self.let:
                    found |= named(self.let[word])
                elif word in self.known:
                    found[word] = None
            return found

        spellings = {names[0]: names for names in self.required}
        return {
            native: tuple(
                name for source in named(text) for name in spellings.get(source, (source,))
            )
            for native, text in self.columns.items()
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
            near = _near(native, COLUMNS)
            raise TraceError(f"{where}: columns.{native} is no native column{near}.")
    tables = _source_tables(raw, where)
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
        let=MappingProxyType(_expressions(raw, "let", where)),
        columns=MappingProxyType(columns),
        status=MappingProxyType(
            {word.upper(): out for word, out in _expressions(raw, "status", where).items()}
        ),
        leave_out=_rules(raw, "leave_out", "reason", where),
        say=_rules(raw, "say", "text", where),
        attempts=raw.get("attempts") is True,
        refuse=_text(raw, "refuse", where) if "refuse" in raw else "",
        tables=tables,
        joins=_joins(raw, where),
        asks=_asks(raw, where),
    )
    _check_whole(recipe, where)
    return recipe


def _check_whole(recipe: Recipe, where: str) -> None:
    if not _NAME.fullmatch(recipe.name):
        raise TraceError(f"{where}: name may hold small letters, digits and dashes only.")
    if not recipe.weight:
        raise TraceError(f"{where}: recognise names no columns, paths or fields.")
    for name in (*recipe.let, *recipe.known):
        if not (_IDENTIFIER if name in recipe.let else _COLUMN).fullmatch(name):
            raise TraceError(f"{where}: {name!r} is no plain name; use small letters and _.")
    _check_joins(recipe, where)
    count = len(recipe.let) + len(recipe.columns) + len(recipe.leave_out) + len(recipe.say)
    count += len(recipe.asks)
    count += sum(1 + len(join.on) + len(join.on_other) + len(join.take) for join in recipe.joins)
    if count > MOST_EXPRESSIONS:
        raise TraceError(f"{where}: {count} expressions are more than {MOST_EXPRESSIONS}.")
    for native in () if recipe.refuse else ("submit_time_s", "num_gpus", "duration_s"):
        if native not in recipe.columns:
            raise TraceError(f"{where}: columns.{native} is missing.")


def _check_joins(recipe: Recipe, where: str) -> None:
    for name in (name for table in recipe.tables for name in table.columns):
        if not _IDENTIFIER.fullmatch(name):
            raise TraceError(f"{where}: {name!r} is no plain name; use small letters and _.")
    taken = {*recipe.known, *recipe.let}
    others = [table.name for table in recipe.tables[1:]]
    for join in recipe.joins:
        if join.table not in others:
            raise TraceError(
                f"{where}: join names the table {join.table!r}, but the other sources are"
                f" {', '.join(others) or 'none'}."
            )
        if not join.on or len(join.on) != len(join.on_other):
            raise TraceError(f"{where}: join.on and join.on_other must be equally many.")
        for name in join.take:
            if name in taken or not _IDENTIFIER.fullmatch(name):
                raise TraceError(
                    f"{where}: join.take.{name} must be a new name of small letters and _."
                )
            taken.add(name)


def _near(word: str, known: Any) -> str:
    close = get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]}" if close else ""


def _check_keys(table: Mapping[str, Any], part: str, where: str) -> None:
    for key in table:
        if key not in _KEYS[part]:
            named = f"{part}.{key}" if part else key
            raise TraceError(f"{where}: the key {named} is not known{_near(key, _KEYS[part])}.")


def _table(raw: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    table = raw.get(key, {})
    if not isinstance(table, dict):
        raise TraceError(f"{where}: {key} must be a table.")
    return table


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
        made.append(SourceTable(name, title, columns, table.get("optional") is True))
    if len({len(table.columns) for table in made}) < len(made):
        raise TraceError(f"{where}: the sources must differ in their numbers of columns.")
    return tuple(made)


def _joins(raw: Mapping[str, Any], where: str) -> tuple[Join, ...]:
    listed = raw.get("join", [])
    if not isinstance(listed, list) or not all(isinstance(join, dict) for join in listed):
        raise TraceError(f"{where}: write [[join]] above each join.")
    if len(listed) > MOST_SOURCES:
        raise TraceError(f"{where}: {len(listed)} joins are more than {MOST_SOURCES}.")
    made = []
    for join in listed:
        _check_keys(join, "join", where)
        on = tuple(_texts(join, "on", f"{where}, join"))
        made.append(
            Join(
                _text(join, "table", f"{where}, join"),
                on,
                tuple(_texts({"on_other": [*on]} | dict(join), "on_other", f"{where}, join")),
                _text(join, "where", f"{where}, join") if "where" in join else "",
                MappingProxyType(_expressions(join, "take", f"{where}, join")),
            )
        )
    return tuple(made)


def _asks(raw: Mapping[str, Any], where: str) -> tuple[Ask, ...]:
    listed = raw.get("ask", [])
    if not isinstance(listed, list) or not all(isinstance(ask, dict) for ask in listed):
        raise TraceError(f"{where}: write [[ask]] above each question.")
    made: dict[str, Ask] = {}
    for ask in listed:
        _check_keys(ask, "ask", where)
        key, place = _text(ask, "id", f"{where}, ask"), f"{where}, ask"
        options = _expressions(ask, "options", place)
        default = _text(ask, "default", place) if "default" in ask else ""
        if key in made or not _IDENTIFIER.fullmatch(key):
            raise TraceError(f"{place}: id {key!r} must be a new name of small letters and _.")
        if not options or default not in ("", *options):
            raise TraceError(f"{place} {key}: default must be one of the options.")
        question = Question(key, _text(ask, "text", place), options, default)
        made[key] = Ask(_text({"when": "true"} | dict(ask), "when", place), question)
    return tuple(made.values())


def _rules(raw: Mapping[str, Any], key: str, text: str, where: str) -> tuple[Rule, ...]:
    listed = raw.get(key, [])
    if not isinstance(listed, list) or not all(isinstance(rule, dict) for rule in listed):
        raise TraceError(f"{where}: write [[{key}]] above each rule.")
    for rule in listed:
        _check_keys(rule, key, where)
    return tuple(
        Rule(
            _text(rule, "when", f"{where}, {key}"),
            _text(rule, text, f"{where}, {key}"),
            rule.get("warn") is True,
        )
        for rule in listed
    )
