"""Row sources for the expressions of a recipe: tables of text, and items of JSON."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from jobtraces.readers.cells import DURATION_COLUMNS, MISSING, OFFSET
from jobtraces.readers.content import Content, Sample, make_distinct, plain_name
from jobtraces.readers.draft import Report
from jobtraces.readers.items import first_item_paths, read_items
from jobtraces.readers.options import ReadOptions
from jobtraces.readers.table import ROW as NUMBER
from jobtraces.readers.table import (
    Rows,
    as_frame,
    check_rows,
    read_table,
    report_unused_columns,
    table_rows,
)
from jobtraces.recipes import engine
from jobtraces.recipes.builtin import BUILTIN
from jobtraces.recipes.engine import JSON, ROW
from jobtraces.recipes.recipe import Recipe, SourceTable
from sim.errors import TraceError
from sim.trace import INSTANTS, REQUIRED

BATCH: Final = 1_000
_SCHEMA: Final = pa.schema([(ROW, pa.int64()), (JSON, pa.string())])
_CELL_COLUMNS: Final = frozenset({*REQUIRED, *INSTANTS, *DURATION_COLUMNS})
"""Native columns whose source cells are needed later, for the preview and for units."""
_TIMES: Final = re.compile(r"\b(iso|dated)\(\"?([a-z_][a-z0-9_]*)")


class _Cells(Mapping[str, pd.Series]):
    """The source cells of native columns, converted to a Series on access."""

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
    """The rows of a table of text or a log, as columns for a recipe.

    Attributes
    ----------
    present : mapping of str to str
        Column of the recipe -> column of the rows.
    naive : bool or None
        Whether written times lack a UTC offset; None = no written times, or not known yet.
    raw : mapping of str to Series
        As `jobtraces.readers.draft.Draft`.
    header : mapping of str to str
        Key -> value in the comments of a log.

    Raises
    ------
    TraceError
        If a required column is missing, or only some times have an offset.
    """

    def __init__(self, recipe: Recipe, content: Content, options: ReadOptions) -> None:
        self.header = recipe.lines.header(content.sample.head) if recipe.lines else {}
        spellings = {names[0]: names for names in recipe.required}
        used_columns = {
            *recipe.optional,
            *recipe.needed,
            *(recipe.source_columns & recipe.identifiers),
        }
        spellings |= {name: (name,) for name in sorted(used_columns - spellings.keys())}
        if recipe.tables:
            content = add_header(content, recipe.tables[0])
        column_names = {name for names in spellings.values() for name in names}
        rows = _open_rows(recipe, content, options, column_names)
        self._table = rows.table()
        check_rows(rows.read, content.name, options)
        self._report = rows.report()
        read = {*rows.names}
        columns = {
            column: next((name for name in names if name in read), "")
            for column, names in spellings.items()
        }
        missing_columns = [names[0] for names in recipe.required if not columns[names[0]]]
        for column in [*missing_columns, *(name for name in recipe.needed if not columns[name])]:
            advice = recipe.needed.get(column, "Choose another format or map the columns.")
            raise TraceError(
                f"{content.name}: column {column} is missing. Columns found:"
                f" {', '.join(rows.header[:20])}. {advice}"
            )
        self._columns = {column: name for column, name in columns.items() if name}
        if rows.headed:
            report_unused_columns(rows.header, self._columns, self._report)
        elif recipe.required:
            first, last = ", ".join(rows.header[:4]), rows.header[-1]
            self._report.guess(
                f"No header: the {len(rows.header)} fields are read in the usual order:"
                f" {first} ... {last}."
            )
        self.present = {column: f"cell {index}" for index, column in enumerate(self._columns)}
        self.raw = _Cells(
            self._table,
            {
                native: next(name for name in names if name in read)
                for native, names in recipe.sources().items()
                if native in _CELL_COLUMNS and any(name in read for name in names)
            },
        )
        self.naive = self._has_no_offsets(recipe, content.name)

    def rows(self) -> pa.RecordBatchReader:
        """Return the rows as a stream, which can be read once, and release the table."""
        names = [NUMBER, *self._columns.values()]
        table, self._table = self._table.select(names), None
        return table.rename_columns([ROW, *self.present.values()]).to_reader()

    def finish(self) -> Report:
        """Return the report on the rows."""
        return self._report

    def _has_no_offsets(self, recipe: Recipe, name: str) -> bool | None:
        """Return whether written times lack a UTC offset; None without such times.

        Raises
        ------
        TraceError
            If only some times have an offset.
        """
        expressions = " ".join([*recipe.let.values(), *recipe.columns.values()])
        times = {column for _, column in _TIMES.findall(expressions) if column in self._columns}
        naive = aware = ""
        for column in sorted(times):
            column_name = self._columns[column]
            cells = pc.utf8_lower(pc.utf8_trim_whitespace(self._table.column(column_name)))
            present = cells.filter(pc.invert(pc.is_in(cells, pa.array([*MISSING, "-"]))))
            has_offset = pc.match_substring_regex(present, OFFSET, ignore_case=True)
            naive = naive or ("" if pc.all(has_offset, min_count=0).as_py() else column_name)
            aware = aware or (column_name if pc.any(has_offset, min_count=0).as_py() else "")
        if naive and aware:
            raise TraceError(
                f"{name}: {naive} holds times without a UTC offset, but {aware} has offsets. Give"
                " every time an offset, or none, and choose a time zone."
            )
        return bool(naive) if naive or aware else None


def _open_rows(
    recipe: Recipe, content: Content, options: ReadOptions, column_names: set[str]
) -> Rows:
    """Return the rows of a table with a header, or of the lines of a log.

    Raises
    ------
    TraceError
        If the lines of a log have no layout of the recipe.
    """
    lines, sample = recipe.lines, content.sample
    is_plain_table = bool(recipe.required) and not (
        lines and (lines.pattern or lines.split in sample.head)
    )
    if lines is None or sample.kind != "text" or is_plain_table:
        return table_rows(content, options, column_names)
    is_headed = bool(recipe.required) and not header_misfit(recipe, sample)
    if is_headed and sample.delimiter != lines.split:
        return table_rows(content, options, column_names)
    try:
        layout = (
            [plain_name(cell) for cell in sample.cells] if is_headed else lines.layout(sample.head)
        )
    except TraceError as error:
        raise TraceError(f"{content.name}: {error}.") from error
    if not layout:
        raise TraceError(
            f"{content.name}: this file is not {recipe.title}: {misfit(recipe, sample)}."
            " Choose another format."
        )
    return Rows(
        content,
        lines.split,
        make_distinct(layout),
        column_names,
        options,
        headed=is_headed,
        records=True,
        split_line=partial(lines.split_line, columns=layout) if lines.pattern else None,
        overflow=lines.overflow,
        comment=lines.comment,
    )


def header_misfit(recipe: Recipe, sample: Sample) -> str:
    """Return why the first line is not a header that fits the recipe; "" = it fits.

    It has all required columns, no forbidden ones and, for exact recipes, no others.
    """
    absent = ["|".join(names) for names in recipe.required if not sample.keys & {*names}]
    required = {name for names in recipe.required for name in names}
    surplus = sample.keys - required if recipe.exact else sample.keys & recipe.without
    if not sample.delimiter:
        return "the first line has a single field"
    if absent:
        return f"the first line lacks {', '.join(absent)}"
    if surplus:
        names = ", ".join(sorted(surplus)[:5])
        return f"the first line has {names}, which no such file has"
    return ""


def misfit(recipe: Recipe, sample: Sample, *, names_line: bool = True) -> str:
    """Return why the start of a file is not of the format of a recipe; "" = it fits.

    A log without a header fits if its first lines have one of the recipe's layouts. Naming the line
    that differs takes longer.
    """
    kind = "text" if recipe.items is None else "json"
    if sample.kind != kind:
        return f"it is {sample.kind} instead of {kind}"
    if recipe.items is not None:
        # A first item longer than the sample shows only some of its keys.
        paths = first_item_paths(sample.head, recipe.items) or sample.keys
        absent = sorted(names for names in recipe.paths if not paths & {*names.split("|")})
        return f"the first item of {recipe.items!r} lacks {', '.join(absent)}" if absent else ""
    widths, first = recipe.fields, sample.cells[0]
    reason = header_misfit(recipe, sample)
    if not reason and widths and len(sample.cells) not in widths:
        expected = " or ".join(map(str, sorted(widths)))
        reason = f"the first line has {len(sample.cells)} fields instead of {expected}"
    if not reason and not re.fullmatch(recipe.first_cell, first):
        reason = f"its first cell {first[:60]!r} does not match first_cell"
    if recipe.lines is None or (recipe.required and not reason):
        return reason
    try:
        if recipe.lines.layout(sample.head):
            return ""
    except TraceError:  # reported when the file is read
        return ""
    layout_reason = recipe.lines.misfit(sample.head)
    return f"{reason}; {layout_reason}" if recipe.required else layout_reason


def add_header(content: Content, table: SourceTable) -> Content:
    """Return a headerless table with its column names added as the first line."""
    line = content.sample.delimiter.join(table.columns) + "\n"
    data = content.data.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    return Content(
        content.name,
        line.encode(content.encoding) + data,
        content.encoding,
        content.guesses,
        content.damaged,
    )


def assign_tables(recipe: Recipe, contents: Iterable[Content]) -> dict[str, Content]:
    """Return table name -> file for the files that are tables of a recipe.

    A file is the table with the same number of columns, if its first cell fits; others are left
    out.

    Raises
    ------
    TraceError
        If two files are the same table.
    """
    files: dict[str, Content] = {}
    for content in contents:
        sample = content.sample
        if sample.kind != "text" or not re.fullmatch(recipe.first_cell, sample.cells[0]):
            continue
        for table in recipe.tables:
            if len(sample.cells) == len(table.columns):
                if table.name in files:
                    raise TraceError(
                        f"{content.name}: this file and {files[table.name].name} are both the table"
                        f" {table.title}. Remove one of them."
                    )
                files[table.name] = content
    return files


def join_rows(
    recipe: Recipe, tables: Mapping[str, Content], options: ReadOptions, report: Report
) -> dict[str, pa.Table]:
    """Return the rows of all tables but the first, as texts, in the columns joins use.

    Other columns are empty. Missing tables and dropped rows are reported.

    Raises
    ------
    TraceError
        If a table cannot be read.
    """
    expressions = [
        text for join in recipe.joins for text in (*join.on_other, join.where, *join.take.values())
    ]
    words = set(re.findall(r"[a-z_][a-z0-9_]*", " ".join(expressions).lower()))
    rows = {}
    for table in recipe.tables[1:]:
        if table.name not in tables:
            report.guess(f"The table {table.title} is missing; jobs are read without it.")
            continue
        columns = [name for name in table.columns if name in words]
        frame, account = read_table(add_header(tables[table.name], table), options, columns)
        if lost_rows := account.read - len(frame):
            report.warnings.append(
                f"{lost_rows:,} rows of {table.title} cannot be read and are dropped."
            )
        rows[table.name] = pa.table(
            {name: pa.Array.from_pandas(frame[name], type=pa.string()) for name in columns}
            | {
                name: pa.nulls(len(frame), pa.string())
                for name in table.columns
                if name not in words
            }
        )
    return rows


def builtin_rows(recipe: Recipe, rows: pa.Table, present: Mapping[str, str]) -> dict[str, pa.Table]:
    """Return the rows of the built-in tables to join, for the jobs in a file.

    Table name -> one row of texts per distinct key of the jobs.
    """
    rows_by_table = {}
    for join in recipe.joins:
        for table in (table for table in recipe.builtin if table.name == join.table):
            builtin = BUILTIN[table.builtin]
            kinds = engine.distinct_keys(recipe, rows.to_reader(), present, join)
            kinds.columns = pd.Index(builtin.keys)
            joined = pd.concat([kinds, builtin.rows(kinds)], axis=1)
            texts = {
                str(name): [None if pd.isna(cell) else str(cell) for cell in column]
                for name, column in joined.items()
            }
            rows_by_table[table.name] = pa.table(
                {name: pa.array(cells, pa.string()) for name, cells in texts.items()}
            )
    return rows_by_table


class ItemSource:
    """The items of a JSON file, read in batches; attributes as for `TableSource`.

    Raises
    ------
    TraceError
        If the file is not JSON.
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
        """Return the items as a stream, which can be read once."""
        return pa.RecordBatchReader.from_batches(_SCHEMA, self._batches())

    def finish(self) -> Report:
        """Return the report on the items.

        Raises
        ------
        TraceError
            If the JSON is damaged or is not a list of jobs.
        """
        if self._fault is not None:
            raise self._fault
        check_rows(self._read, self._content.name, self._options)
        report = Report(self._read)
        report.guesses.extend(self._content.guesses)
        return report

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the items in batches of row numbers and texts; store an error for `finish`.

        An error ends the batches.
        """
        # Raised here, an error would be reported as one of the database.
        parts = self._content.parts()
        texts = (text for text, _ in read_items(parts, self._key, self._content.name))
        try:
            while batch := list(islice(texts, BATCH)):
                first = self._read + 1
                self._read += len(batch)
                check_rows(self._read, self._content.name, self._options)
                row_numbers = pa.array(range(first, self._read + 1), pa.int64())
                yield pa.record_batch([row_numbers, pa.array(batch, pa.string())], schema=_SCHEMA)
        except TraceError as error:
            self._fault = error
