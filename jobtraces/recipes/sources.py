"""What the expressions of a recipe run over: the rows of a table, or the items of a JSON file."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from jobtraces.readers.cells import LENGTHS, MISSING, OFFSET
from jobtraces.readers.content import Content, Sample, distinct, plain
from jobtraces.readers.draft import Report
from jobtraces.readers.items import items
from jobtraces.readers.options import ReadOptions
from jobtraces.readers.table import ROW as NUMBER
from jobtraces.readers.table import Rows, as_frame, check_rows, ignored, read_table, table_rows
from jobtraces.recipes import engine
from jobtraces.recipes.builtin import BUILTIN
from jobtraces.recipes.engine import JSON, ROW
from jobtraces.recipes.recipe import Recipe, SourceTable
from sim.errors import TraceError
from sim.trace import INSTANTS, REQUIRED

BATCH: Final = 1_000
_SCHEMA: Final = pa.schema([(ROW, pa.int64()), (JSON, pa.string())])
_SHOWN: Final = frozenset({*REQUIRED, *INSTANTS, *LENGTHS})
"""Native columns of which the cells are needed once more: to be shown, and to see their unit."""
_TIMES: Final = re.compile(r"\b(iso|dated)\(\"?([a-z_][a-z0-9_]*)")


class _Cells(Mapping[str, pd.Series]):
    """The cells that native columns came from, made to series when they are asked for."""

    def __init__(self, table: pa.Table, names: Mapping[str, str]) -> None:
        self._names = names
        self._table = table.select([NUMBER, *dict.fromkeys(names.values())])

    def __getitem__(self, native: str) -> pd.Series:
        name = self._names[native]
        return as_frame(self._table.select([NUMBER, name]))[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class TableSource:
    """A table of text.

    Attributes
    ----------
    present : mapping of str to str
        Column of the recipe -> column of the rows.
    naive : bool or None
        Whether written times carry no offset; None = there are none, or that is not known yet.
    raw : mapping of str to Series
        As `jobtraces.readers.draft.Draft`.
    header : mapping of str to str
        What the comments of a log say.

    Raises
    ------
    TraceError
        If a column that the recipe asks for is missing, or its times are written in several ways.
    """

    def __init__(self, recipe: Recipe, content: Content, options: ReadOptions) -> None:
        self.header = recipe.lines.header(content.sample.head) if recipe.lines else {}
        spellings = {names[0]: names for names in recipe.required}
        named = {*recipe.optional, *recipe.needed, *(recipe.known & recipe.words)}
        spellings |= {name: (name,) for name in sorted(named - spellings.keys())}
        if recipe.tables:
            content = headed(content, recipe.tables[0])
        wanted = {name for names in spellings.values() for name in names}
        rows = _rows(recipe, content, options, wanted)
        self._table = rows.table()
        check_rows(rows.read, content.name, options)
        self._report = rows.report()
        read = {*rows.names}
        columns = {
            column: next((name for name in names if name in read), "")
            for column, names in spellings.items()
        }
        lacking = [names[0] for names in recipe.required if not columns[names[0]]]
        for column in [*lacking, *(name for name in recipe.needed if not columns[name])]:
            what = recipe.needed.get(column, "Choose another format or map the columns.")
            raise TraceError(
                f"{content.name}: column {column} is missing. Columns found:"
                f" {', '.join(rows.header[:20])}. {what}"
            )
        self._columns = {column: name for column, name in columns.items() if name}
        if rows.headed:
            ignored(rows.header, self._columns, self._report)
        elif recipe.required:
            first, last = ", ".join(rows.header[:4]), rows.header[-1]
            self._report.guess(
                f"There is no header; the {len(rows.header)} fields are taken in the usual order:"
                f" {first} ... {last}."
            )
        self.present = {column: f"cell {at}" for at, column in enumerate(self._columns)}
        self.raw = _Cells(
            self._table,
            {
                native: next(name for name in names if name in read)
                for native, names in recipe.sources().items()
                if native in _SHOWN and any(name in read for name in names)
            },
        )
        self.naive = self._has_no_offsets(recipe, content.name)

    def rows(self) -> pa.RecordBatchReader:
        """Return the rows as a stream that can be read once."""
        names = [NUMBER, *self._columns.values()]
        table, self._table = self._table.select(names), None
        return table.rename_columns([ROW, *self.present.values()]).to_reader()

    def finish(self) -> Report:
        """Return the account of the rows."""
        return self._report

    def _has_no_offsets(self, recipe: Recipe, name: str) -> bool | None:
        told = " ".join([*recipe.let.values(), *recipe.columns.values()])
        times = {column for _, column in _TIMES.findall(told) if column in self._columns}
        naive = aware = ""
        for column in sorted(times):
            written = self._columns[column]
            cells = pc.utf8_lower(pc.utf8_trim_whitespace(self._table.column(written)))
            known = cells.filter(pc.invert(pc.is_in(cells, pa.array([*MISSING, "-"]))))
            carries = pc.match_substring_regex(known, OFFSET, ignore_case=True)
            naive = naive or ("" if pc.all(carries, min_count=0).as_py() else written)
            aware = aware or (written if pc.any(carries, min_count=0).as_py() else "")
        if naive and aware:
            raise TraceError(
                f"{name}: {naive} holds times without an offset, and {aware} some with one. Give"
                " every time an offset, or none and choose a zone."
            )
        return bool(naive) if naive or aware else None


def _rows(recipe: Recipe, content: Content, options: ReadOptions, wanted: set[str]) -> Rows:
    """Return the rows of a table with a header, or of the lines of a log."""
    lines, sample = recipe.lines, content.sample
    no_lines = bool(recipe.required) and not (
        lines and (lines.pattern or lines.split in sample.head)
    )
    if lines is None or sample.kind != "text" or no_lines:
        return table_rows(content, options, wanted)
    headed = bool(recipe.required) and has_header(recipe, sample)
    if headed and sample.delimiter != lines.split:
        return table_rows(content, options, wanted)
    try:
        layout = [plain(cell) for cell in sample.cells] if headed else lines.layout(sample.head)
    except TraceError as error:
        raise TraceError(f"{content.name}: {error}.") from error
    if not layout:
        raise TraceError(f"{content.name}: this is no {recipe.title}. Choose another format.")
    return Rows(
        content,
        lines.split,
        distinct(layout),
        wanted,
        options,
        headed=headed,
        records=True,
        pattern=lines.pattern,
        overflow=lines.overflow,
        comment=lines.comment,
    )


def has_header(recipe: Recipe, sample: Sample) -> bool:
    """Tell whether the first line names all columns that a recipe asks for, and no other."""
    return (
        bool(sample.delimiter)
        and not recipe.without & sample.keys
        and all(sample.keys & set(names) for names in recipe.required)
        and (not recipe.exact or len(sample.keys) == len(recipe.required))
    )


def headed(content: Content, table: SourceTable) -> Content:
    """Return a table without header with the names of its columns above it."""
    line = content.sample.delimiter.join(table.columns) + "\n"
    data = content.data.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    return Content(
        content.name,
        line.encode(content.encoding) + data,
        content.encoding,
        content.guesses,
        content.damaged,
    )


def assigned(recipe: Recipe, contents: Iterable[Content]) -> dict[str, Content]:
    """Return which file is which table of a recipe: name of a `SourceTable` -> file; files that are
    none of them are left out.

    Raises
    ------
    TraceError
        If two files are the same table.
    """
    found: dict[str, Content] = {}
    for content in contents:
        sample = content.sample
        if sample.kind != "text" or not re.fullmatch(recipe.first_cell, sample.cells[0]):
            continue
        for table in recipe.tables:
            if len(sample.cells) == len(table.columns):
                if table.name in found:
                    raise TraceError(
                        f"{content.name}: this and {found[table.name].name} are both the table"
                        f" {table.title}. Leave one of them out."
                    )
                found[table.name] = content
    return found


def joined_rows(
    recipe: Recipe, tables: Mapping[str, Content], options: ReadOptions, report: Report
) -> dict[str, pa.Table]:
    """Return the rows of the tables beside the first, as texts; only columns that joins name.

    Raises
    ------
    TraceError
        If one of them cannot be read.
    """
    told = [
        text for join in recipe.joins for text in (*join.on_other, join.where, *join.take.values())
    ]
    words = set(re.findall(r"[a-z_][a-z0-9_]*", " ".join(told).lower()))
    rows = {}
    for table in recipe.tables[1:]:
        if table.name not in tables:
            report.guess(f"The table {table.title} is not given; the jobs are read without it.")
            continue
        wanted = [name for name in table.columns if name in words]
        frame, account = read_table(headed(tables[table.name], table), options, wanted)
        if lost := account.read - len(frame):
            report.warnings.append(
                f"{lost:,} rows of {table.title} cannot be read and are left out."
            )
        rows[table.name] = pa.table(
            {name: pa.Array.from_pandas(frame[name], type=pa.string()) for name in wanted}
            | {
                name: pa.nulls(len(frame), pa.string())
                for name in table.columns
                if name not in words
            }
        )
    return rows


def builtin_rows(recipe: Recipe, rows: pa.Table, present: Mapping[str, str]) -> dict[str, pa.Table]:
    """Return the rows of the tables of this package that are joined, for the jobs in a file."""
    found = {}
    for join in recipe.joins:
        for table in (one for one in recipe.builtin if one.name == join.table):
            known = BUILTIN[table.builtin]
            kinds = engine.kinds(recipe, rows.to_reader(), present, join)
            kinds.columns = pd.Index(known.keys)
            told = pd.concat([kinds, known.rows(kinds)], axis=1)
            texts = {
                str(name): [None if pd.isna(cell) else str(cell) for cell in column]
                for name, column in told.items()
            }
            found[table.name] = pa.table(
                {name: pa.array(cells, pa.string()) for name, cells in texts.items()}
            )
    return found


class ItemSource:
    """The items of a JSON file, read one batch after the other; attributes as of `TableSource`.

    Raises
    ------
    TraceError
        If it is no JSON.
    """

    def __init__(self, recipe: Recipe, content: Content, options: ReadOptions) -> None:
        if content.sample.kind != "json":
            raise TraceError(f"{content.name}: this is not JSON. Choose another format.")
        self._content, self._options, self._key = content, options, recipe.items or ""
        self._read = 0
        self._fault: TraceError | None = None
        self.present: Mapping[str, str] = {JSON: JSON}
        self.naive: bool | None = None
        self.raw: Mapping[str, pd.Series] = {}
        self.header: Mapping[str, str] = {}

    def rows(self) -> pa.RecordBatchReader:
        """Return the items as a stream that can be read once."""
        return pa.RecordBatchReader.from_batches(_SCHEMA, self._batches())

    def finish(self) -> Report:
        """Return the account of the items.

        Raises
        ------
        TraceError
            If the JSON is damaged or no list of jobs.
        """
        if self._fault is not None:
            raise self._fault
        check_rows(self._read, self._content.name, self._options)
        report = Report(self._read)
        report.guesses.extend(self._content.guesses)
        return report

    def _batches(self) -> Iterator[pa.RecordBatch]:
        # An error raised in here would reach the reader as one of the database.
        parts = self._content.parts()
        found = (text for text, _ in items(parts, self._key, self._content.name))
        try:
            while batch := list(islice(found, BATCH)):
                first = self._read + 1
                self._read += len(batch)
                check_rows(self._read, self._content.name, self._options)
                numbers_of = pa.array(range(first, self._read + 1), pa.int64())
                yield pa.record_batch([numbers_of, pa.array(batch, pa.string())], schema=_SCHEMA)
        except TraceError as error:
            self._fault = error
