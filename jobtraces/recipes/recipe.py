"""Data classes of a recipe: recognition of a format, and one expression per native column."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Final

from jobtraces.readers.options import Question
from sim.errors import TraceError

ANYTHING: Final = ".*"
IDENTIFIER: Final = re.compile(r"[a-z_][a-z0-9_]*")
_WRITTEN_TIME: Final = re.compile(r"\biso\((text\(j, *'[^']*'\))\)")
OTHER_COLUMNS: Final = "*"
FIRST_ROWS: Final = 1_000
FIRST_FITTING: Final = 50


@dataclass(frozen=True)
class RowRule:
    """A condition on rows, and the sentence or reason to report for them.

    Parameters
    ----------
    when : str
        Expression that is true for the rows concerned.
    text : str
        Sentence, in which ``{n}`` is the number of rows; for dropped rows, the reason.
    warn : bool
        Whether the sentence is a warning: results may be distorted.
    detail : str
        Expression: detail to report for each such row; "" = none.
    so_far, since : str
        Expressions for running jobs: seconds run so far and, where unknown, the instant they run
        since; "" = unknown, and since their start.
    """

    when: str
    text: str
    warn: bool = False
    detail: str = ""
    so_far: str = ""
    since: str = ""


@dataclass(frozen=True)
class Merge:
    """How several records of one job are merged.

    Parameters
    ----------
    by, order : str
        Native columns (`by` may also be a name of ``let``): records with equal `by` are one job,
        sorted by `order`.
    choice : str
        Id of the choice or question that must be answered ``merge``; "" = always merge.
    take : mapping of str to str
        Native column -> min, max, sum, first or last of the records; other columns take the first.
        Without a duration here, it is the time from start to end.
    """

    by: str
    order: str
    choice: str
    take: Mapping[str, str]


@dataclass(frozen=True)
class Lines:
    """How the lines of a log are split; quotes are plain text, short lines are dropped.

    Parameters
    ----------
    split : str
        Separator of fields: one character or, if `pattern`, a regular expression; surplus fields
        are then ignored without `overflow`.
    pattern : bool
        Whether `split` is a regular expression.
    overflow : str
        The one column whose cells may contain the separator.
    comment : str
        Prefix of comment lines; ``Key: value`` in them is ``header('Key')`` in expressions.
    zone : str
        Key of the comment that names the time zone.
    layouts : tuple of tuple of str
        Column names of lines without a header; the layout with as many columns as most of the first
        lines is used.
    cells : mapping of str to str
        Column of a layout -> regular expression of its cells; `OTHER_COLUMNS` = all other columns.
    """

    split: str = "|"
    pattern: bool = False
    overflow: str = ""
    comment: str = ""
    zone: str = ""
    layouts: tuple[tuple[str, ...], ...] = ()
    cells: Mapping[str, str] = field(default_factory=dict)

    def layout(self, head: str) -> tuple[str, ...]:
        """Return the column names of lines without a header; () if no layout fits.

        A trailing separator adds one column "". Surplus fields are folded into the overflow column
        if no number of fields is usual, or if there is a single layout.

        Raises
        ------
        TraceError
            If lines fit a layout, but most have another number of fields.
        """
        lines = self._lines(head)
        if not lines:
            return ()
        rows = [self._separator.split(line) for line in lines.values()]
        width, count = Counter(map(len, rows)).most_common(1)[0]
        usual = [row for row in rows if len(row) == width]
        trailing = int(all(row[-1] == "" for row in usual))
        fitting = [columns for columns in self.layouts if self._fit(columns, usual)]
        for columns in fitting:
            surplus = width - len(columns)
            is_cut = self.pattern and surplus > 0 and self.overflow not in columns
            if surplus in (0, trailing) or is_cut:
                return columns if self.pattern else (*columns, *[""] * surplus)
        foldable = [columns for columns in self.layouts if self.overflow in columns]
        can_fold = len(self.layouts) == 1 or count * 2 <= len(rows)
        for columns in sorted(foldable, key=len, reverse=True) if can_fold else ():
            is_closed = trailing and min(map(len, rows)) > len(columns)
            header = (*columns, "") if is_closed else columns
            folded = [
                self.split_line(line, header) for line in islice(lines.values(), FIRST_FITTING)
            ]
            if self._fit(header, folded):
                return header
        nearest = max((len(layout) for layout in self.layouts if len(layout) <= width), default=0)
        if any(len(columns) == nearest for columns in fitting):
            raise TraceError(
                f"the rows have {width} fields and no header, which is no known layout. Export"
                " them with a header"
            )
        return ()

    def header(self, head: str) -> dict[str, str]:
        """Return the key -> value pairs of the comments at the start of the file.

        The first value of a key counts; {} for formats without comments.
        """
        values: dict[str, str] = {}
        if self.comment:
            comment = re.compile(rf"{re.escape(self.comment)}\s*(\w+):\s*(.*?)\s*$")
            for line in head.splitlines():
                if match := comment.match(line):
                    values.setdefault(match[1], match[2])
        return values

    def misfit(self, head: str) -> str:
        """Return why the first lines have no layout: the cell or line that fits least.

        Compared with the layout that fits best.
        """
        lines = self._lines(head)
        if not (lines and self.layouts):
            return "[lines] lists no layouts" if lines else "the file has no line of data"
        counts = {
            columns: {
                number: self._misfits(columns, self.split_line(line, columns))
                for number, line in islice(lines.items(), FIRST_FITTING)
            }
            for columns in self.layouts
        }
        columns = min(self.layouts, key=lambda layout: sum(counts[layout].values()))
        number = max(counts[columns], key=lambda line: counts[columns][line])
        row = self.split_line(lines[number], columns)
        for column, cell in zip(columns, row, strict=False):
            pattern = self.cells.get(column, self.cells.get(OTHER_COLUMNS, ANYTHING))
            if len(row) >= len(columns) and not re.fullmatch(pattern, cell):
                return f"line {number}, {column}: {cell[:60]!r} does not match {pattern[:60]}"
        width = len(self.split_line(lines[number], ()))
        return f"line {number} has {width} fields instead of {len(columns)}"

    def split_line(self, line: str, columns: Sequence[str]) -> list[str]:
        """Return the fields of a line; those beyond the columns are folded into the overflow.

        Surplus fields stay if no column may hold the separator.
        """
        if self.overflow not in columns:
            return self._separator.split(line)
        separators = [*self._separator.finditer(line)]
        first, surplus = columns.index(self.overflow), len(separators) + 1 - len(columns)
        del separators[first : first + max(surplus, 0)]
        bounds = [0, *(bound for one in separators for bound in one.span()), len(line)]
        return [line[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)]

    @cached_property
    def _separator(self) -> re.Pattern[str]:
        """Compiled separator of fields."""
        return re.compile(self.split if self.pattern else re.escape(self.split))

    def _lines(self, head: str) -> dict[int, str]:
        """Return line number -> line of the first lines, without comments and blank lines."""
        lines = (
            (number, line.strip() if self.pattern else line)
            for number, line in enumerate(head.splitlines(), 1)
            if line.strip() and not (self.comment and line.startswith(self.comment))
        )
        return dict(islice(lines, FIRST_ROWS))

    def _fit(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
        """Return whether lines have a layout, by the patterns of its cells.

        Half of the first lines must fit, as cells may be damaged; the very first may miss by one
        cell, as it may be a header.
        """
        misfits = [self._misfits(columns, row) for row in rows[:FIRST_FITTING]]
        return misfits[0] <= 1 and misfits.count(0) * 2 >= len(misfits)

    def _misfits(self, columns: Sequence[str], row: Sequence[str]) -> int:
        """Return how many cells of a row do not match the patterns of a layout.

        All columns of the layout for a row that is too short; surplus cells do not count.
        """
        if len(row) < len(columns):
            return len(columns)
        every = self.cells.get(OTHER_COLUMNS, ANYTHING)
        return sum(
            re.fullmatch(self.cells.get(column, every), cell) is None
            for column, cell in zip(columns, row, strict=False)
        )


@dataclass(frozen=True)
class RecipeQuestion:
    """A question that is asked if any row matches its condition.

    Parameters
    ----------
    when : str
        Expression that is true for the rows concerned.
    question : Question
        ``{n}`` in its text is the number of rows; its answer is ``answer('ID')`` in expressions.
    each : str
        Expression: the question is asked once per value (``{value}`` in the text), with the answers
        ``answer('ID.' || value)``; "" = one question.
    """

    when: str
    question: Question
    each: str = ""


@dataclass(frozen=True)
class SourceTable:
    """One table of a format with several: a headerless file, or a built-in table.

    Parameters
    ----------
    name, title : str
        Name in joins, and title for the user.
    columns : tuple of str
        Names of its columns in order.
    optional : bool
        Whether the jobs can be read without it.
    builtin : str
        Key in `jobtraces.recipes.builtin.BUILTIN`; "" = a file.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    optional: bool = False
    builtin: str = ""


@dataclass(frozen=True)
class Join:
    """Columns that another table adds to each record; the number of records stays.

    Parameters
    ----------
    table : str
        Name of a `SourceTable`.
    on, on_other : tuple of str
        Expressions whose values match between a record and a row of the other table.
    where : str
        Condition on rows of the other table; "" = all rows.
    take : mapping of str to str
        New name -> aggregate expression over the matching rows.
    """

    table: str
    on: tuple[str, ...]
    on_other: tuple[str, ...]
    where: str
    take: Mapping[str, str]


@dataclass(frozen=True)
class Recipe:
    """A trace format as data.

    Parameters
    ----------
    name, title : str
        Value of ``--format``, and title for the user.
    zone : str
        IANA time zone of times without an offset.
    items : str or None
        For JSON: key of the list; "" = the file is the list, or has one object per line. None = a
        table.
    required : tuple of tuple of str
        Columns that a table must have, each with its alternative names.
    optional : frozenset of str
        Columns that it may have; read as empty if missing.
    exact : bool
        Whether a table may have no other columns than the required ones.
    without : frozenset of str
        Columns that it must not have.
    paths : frozenset of str
        Key paths that the first JSON item must have; ``kind=Pod`` also gives the value.
    fields : frozenset of int
        For a table without header: allowed numbers of columns.
    first_cell : str
        Regular expression that the first cell must match.
    file : str
        Glob of file names in lower case, used only where several recipes fit equally; "" = any.
    let, columns : mapping
        Name -> expression, and native column -> expression.
    status : mapping
        Status word in upper case -> outcome.
    leave_out, alter, say : tuple of RowRule
        Rules that drop rows (the first match wins), report changed rows, and add sentences.
    attempts : bool
        Whether durations are sums over several attempts of a job.
    refuse : str
        Why such a file cannot be read; "" = it can.
    tables : tuple of SourceTable
        Tables of a multi-table format; the first has one record per job.
    builtin : tuple of SourceTable
        Built-in tables to join.
    joins : tuple of Join
        Joins, in order.
    asks : tuple of RecipeQuestion
        Questions about facts that the file lacks.
    choices : tuple of Question
        Optional choices of the user: ``answer('ID')`` in expressions.
    lines : Lines or None
        For a log: how its lines are split.
    needed : mapping of str to str
        Column that a file needs -> advice if it is missing.
    without_gpus : str
        Likely reason and advice if no job has GPUs; "" = no message.
    ids_repeat : bool
        Whether the source repeats ids; they are then made unique.
    unix_times : bool
        Whether times are Unix seconds, regardless of their size.
    merge : Merge or None
        How records of one job are merged.
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
        """Number of requirements; of two recipes that fit a file the heavier one wins.

        Required columns, key paths, allowed numbers of fields, a first cell, and layouts.
        """
        cells = bool(self.fields) + (self.first_cell != ANYTHING)
        laid_out = bool(self.lines and self.lines.layouts)
        return len(self.required) + len(self.paths) + cells + laid_out

    @property
    def source_columns(self) -> frozenset[str]:
        """Columns of the file an expression may name: required, optional, needed, of layouts.

        Of alternative names the first; of several tables those of the first.
        """
        base = self.tables[0].columns if self.tables else ()
        laid_out = {name for layout in self.lines.layouts for name in layout} if self.lines else ()
        first = {names[0] for names in self.required}
        return self.optional | first | self.needed.keys() | {*base, *laid_out}

    @property
    def identifiers(self) -> frozenset[str]:
        """All identifiers in the expressions over the file's columns, in lower case."""
        rules = [*self.leave_out, *self.alter, *self.say]
        expressions = [*self.let.values(), *self.columns.values(), *(ask.when for ask in self.asks)]
        expressions += [ask.each for ask in self.asks]
        expressions += [
            part for rule in rules for part in (rule.when, rule.detail, rule.so_far, rule.since)
        ]
        expressions += [text for join in self.joins for text in join.on]
        return frozenset(IDENTIFIER.findall(" ".join(expressions).lower()))

    def written_times(self) -> list[str]:
        """Return the expressions that yield the texts of written times in JSON items, sorted.

        They are the arguments of ``iso(...)``.
        """
        expressions = " ".join([*self.let.values(), *self.columns.values()])
        return sorted({match[1] for match in _WRITTEN_TIME.finditer(expressions)})

    def sources(self) -> dict[str, tuple[str, ...]]:
        """Return native column -> the table columns its expression uses, with all spellings."""

        def columns_of(expression: str) -> dict[str, None]:
            """Return the table columns an expression uses, as ordered keys."""
            words = IDENTIFIER.findall(re.sub(r"'[^']*'", "", expression.lower()))
            columns: dict[str, None] = {}
            for word in words:
                if word in self.let:
                    columns |= columns_of(self.let[word])
                elif word in self.source_columns:
                    columns[word] = None
            return columns

        spellings = {names[0]: names for names in self.required}
        return {
            native: tuple(
                name for source in columns_of(text) for name in spellings.get(source, (source,))
            )
            for native, text in self.columns.items()
        }
