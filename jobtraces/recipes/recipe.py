"""What a recipe says: how a format is recognised, and one expression for each native column."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from jobtraces.readers.options import Question
from sim.errors import TraceError

ANYTHING: Final = ".*"
IDENTIFIER: Final = re.compile(r"[a-z_][a-z0-9_]*")
_WRITTEN: Final = re.compile(r"\biso\((text\(j, *'[^']*'\))\)")
EVERY: Final = "*"
FIRST_ROWS: Final = 1_000
FIRST_FITTING: Final = 50


@dataclass(frozen=True)
class RowRule:
    """Rows of which something is said, or that are left out.

    Parameters
    ----------
    when : str
        Expression: which rows.
    text : str
        The sentence, in which ``{n}`` is their number; for rows left out, the reason.
    warn : bool
        Whether what is said may distort a result.
    detail : str
        Expression: what is told of each such row, "" = nothing.
    so_far, since : str
        Expressions, of jobs that still run: the seconds that they had run, and where those are not
        known the instant from which they ran until the end of the trace; "" = not known, and from
        their start.
    """

    when: str
    text: str
    warn: bool = False
    detail: str = ""
    so_far: str = ""
    since: str = ""


@dataclass(frozen=True)
class Merge:
    """Several records that are one job.

    Parameters
    ----------
    by, order : str
        Native columns, the first also a name of ``let``: records that are equal in the first are
        one job, in order of the second.
    choice : str
        Id of a choice or question that must be answered ``merge``; "" = always.
    take : mapping of str to str
        Native column -> which counts: the min, max, sum, first or last of the records; of all
        others the first. If it names no duration, that is the time from start to end.
    """

    by: str
    order: str
    choice: str
    take: Mapping[str, str]


@dataclass(frozen=True)
class Lines:
    """Lines of a log: quotes are letters, and a line with too few fields is left out.

    Parameters
    ----------
    split : str
        What stands between fields: one character, or where `pattern` a regular expression, with
        which fields beyond those of the layout are left alone.
    pattern : bool
        Whether `split` is one.
    overflow : str
        The one column in which the separator may occur.
    comment : str
        Begins lines that are no rows; ``Key: value`` in them is ``header('Key')`` in expressions.
    zone : str
        Key of such a line that names the zone of the log.
    layouts : tuple of tuple of str
        Names of the columns in order, of lines without a header: that which has as many as most of
        the first lines is taken.
    cells : mapping of str to str
        Column of a layout -> regular expression that its cells fit; `EVERY` = all other columns.
    """

    split: str = "|"
    pattern: bool = False
    overflow: str = ""
    comment: str = ""
    zone: str = ""
    layouts: tuple[tuple[str, ...], ...] = ()
    cells: Mapping[str, str] = field(default_factory=dict)

    def layout(self, head: str) -> tuple[str, ...]:
        """Return the columns of lines without a header, one of them "" where each line ends with a
        separator; none if the lines have no known layout.

        Raises
        ------
        TraceError
            If lines fit a layout, and most have another number of fields.
        """
        rows = self._rows(head)
        if not rows:
            return ()
        width = Counter(map(len, rows)).most_common(1)[0][0]
        usual = [row for row in rows if len(row) == width]
        bar = int(all(row[-1] == "" for row in usual))
        fitting = [columns for columns in self.layouts if self._fit(columns, usual)]
        for columns in fitting:
            more = width - len(columns)
            if more in (0, bar) or (self.pattern and more > 0):
                return columns if self.pattern else (*columns, *[""] * more)
        nearest = max((len(layout) for layout in self.layouts if len(layout) <= width), default=0)
        if any(len(columns) == nearest for columns in fitting):
            raise TraceError(
                f"the rows have {width} fields and no header, which is no known layout. Export"
                " them with a header"
            )
        return ()

    def header(self, head: str) -> dict[str, str]:
        """Return what the comments at the beginning say: key -> value."""
        found: dict[str, str] = {}
        if self.comment:
            told = re.compile(rf"{re.escape(self.comment)}\s*(\w+):\s*(.*?)\s*$")
            for line in head.splitlines():
                if said := told.match(line):
                    found.setdefault(said[1], said[2])
        return found

    def _rows(self, head: str) -> list[list[str]]:
        told = (
            line.strip() if self.pattern else line
            for line in head.splitlines()
            if line.strip() and not (self.comment and line.startswith(self.comment))
        )
        cut = re.compile(self.split if self.pattern else re.escape(self.split))
        return [cut.split(line) for line in islice(told, FIRST_ROWS)]

    def _fit(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
        """Tell whether lines have a layout: half of the first ones, which may hold damaged cells,
        and the very first but for one cell, as it may be a header.
        """
        wrong = [self._misfits(columns, row) for row in rows[:FIRST_FITTING]]
        return wrong[0] <= 1 and wrong.count(0) * 2 >= len(wrong)

    def _misfits(self, columns: Sequence[str], row: Sequence[str]) -> int:
        if len(row) < len(columns):
            return len(columns)
        every = self.cells.get(EVERY, ANYTHING)
        return sum(
            re.fullmatch(self.cells.get(column, every), cell) is None
            for column, cell in zip(columns, row, strict=False)
        )


@dataclass(frozen=True)
class RecipeQuestion:
    """A question that is asked where a row gives rise to it.

    Parameters
    ----------
    when : str
        Expression: which rows.
    question : Question
        Its text may hold ``{n}``, the number of those rows; its answer is ``answer('ID')`` in
        expressions.
    each : str
        Expression: the question is asked for each of its values, ``{value}`` in the text, and the
        answers are ``answer('ID.' || value)``; "" = it is one question.
    """

    when: str
    question: Question
    each: str = ""


@dataclass(frozen=True)
class SourceTable:
    """One of several tables that a format is made of: a file without a header, or of this package.

    Parameters
    ----------
    name, title : str
        What joins call it, and what the user reads.
    columns : tuple of str
        Names of its columns in order.
    optional : bool
        Whether the jobs can be read without it.
    builtin : str
        Key in `jobtraces.recipes.builtin.BUILTIN`, "" = it is a file.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    optional: bool = False
    builtin: str = ""


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
    file : str
        Glob of the names that such files have, in small letters; it decides only where several
        recipes fit equally. "" = any.
    let, columns : mapping
        Name -> expression, and native column -> expression.
    status : mapping
        Word in upper case -> outcome.
    leave_out, alter, say : tuple of Rule
        Rows of which the first that holds leaves a row out, rows of which something was changed,
        and rows of which something is said.
    attempts : bool
        Whether durations add up several attempts of a job.
    refuse : str
        Why a file of this kind cannot be read, "" = it can.
    tables : tuple of SourceTable
        Of a format that is made of several tables: each of them, the first holds one record per
        job.
    builtin : tuple of SourceTable
        Tables of this package that are joined.
    joins : tuple of Join
        In the order in which they are made.
    asks : tuple of Ask
        What the file does not say.
    choices : tuple of Question
        What the user may choose: ``answer('ID')`` in expressions.
    lines : Lines or None
        Of a log: how its lines are cut.
    needed : mapping of str to str
        Column without which a file of this format cannot be read -> what to do where it is missing.
    without_gpus : str
        What may be the reason where no job names a GPU, and what to do; "" = nothing is said.
    ids_repeat : bool
        Whether the source repeats ids: they are made unique.
    unix_times : bool
        Whether times are known to be Unix seconds, whatever their size.
    merge : Merge or None
        Which records are one job.
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
    file: str = ""
    let: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, str] = field(default_factory=dict)
    leave_out: tuple[RowRule, ...] = ()
    alter: tuple[RowRule, ...] = ()
    say: tuple[RowRule, ...] = ()
    attempts: bool = False
    refuse: str = ""
    tables: tuple[SourceTable, ...] = ()
    builtin: tuple[SourceTable, ...] = ()
    joins: tuple[Join, ...] = ()
    asks: tuple[RecipeQuestion, ...] = ()
    choices: tuple[Question, ...] = ()
    lines: Lines | None = None
    needed: Mapping[str, str] = field(default_factory=dict)
    without_gpus: str = ""
    ids_repeat: bool = False
    unix_times: bool = False
    merge: Merge | None = None

    @property
    def weight(self) -> int:
        """How much must fit: of two recipes that recognise a file the heavier one is meant."""
        cells = bool(self.fields) + (self.first_cell != ANYTHING)
        laid_out = bool(self.lines and self.lines.layouts)
        return len(self.required) + len(self.paths) + cells + laid_out

    @property
    def known(self) -> frozenset[str]:
        """The columns an expression may name."""
        base = self.tables[0].columns if self.tables else ()
        laid_out = {name for layout in self.lines.layouts for name in layout} if self.lines else ()
        first = {names[0] for names in self.required}
        return self.optional | first | self.needed.keys() | {*base, *laid_out}

    @property
    def words(self) -> frozenset[str]:
        """All names in the expressions."""
        rules = [*self.leave_out, *self.alter, *self.say]
        told = [*self.let.values(), *self.columns.values(), *(ask.when for ask in self.asks)]
        told += [ask.each for ask in self.asks]
        told += [part for one in rules for part in (one.when, one.detail, one.so_far, one.since)]
        told += [text for join in self.joins for text in join.on]
        return frozenset(IDENTIFIER.findall(" ".join(told).lower()))

    def written_times(self) -> list[str]:
        """Return the expressions that yield the texts of written times in items of JSON."""
        told = " ".join([*self.let.values(), *self.columns.values()])
        return sorted({found[1] for found in _WRITTEN.finditer(told)})

    def sources(self) -> dict[str, tuple[str, ...]]:
        """Return native column -> the columns of the table that its expression is made of."""

        def named(expression: str) -> dict[str, None]:
            words = IDENTIFIER.findall(re.sub(r"'[^']*'", "", expression.lower()))
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
