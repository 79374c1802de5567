"""What the expressions of a recipe run over: the rows of a table, or the items of a JSON file."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import pandas as pd
import pyarrow as pa

from sim.errors import TraceError
from sim.readers.cells import OFFSET, text
from sim.readers.format import ReadOptions
from sim.readers.items import items
from sim.readers.recipes.engine import JSON, ROW
from sim.readers.recipes.recipe import Recipe, SourceTable
from sim.readers.report import Report
from sim.readers.source import Content
from sim.readers.table import check_rows, ignored, read_table

BATCH: Final = 1_000
_SCHEMA: Final = pa.schema([(ROW, pa.int64()), (JSON, pa.string())])
_TIMES: Final = re.compile(r"\b(iso|dated)\(\"?([a-z_][a-z0-9_]*)")


class TableSource:
    """A table of text.

    Attributes
    ----------
    present : mapping of str to str
        Column of the recipe -> column of the rows.
    naive : bool
        Whether times carry no offset.
    raw : mapping of str to Series
        As `sim.readers.format.Draft`.

    Raises
    ------
    TraceError
        If a column that the recipe asks for is missing, or its times are written in several ways.
    """

    def __init__(self, recipe: Recipe, content: Content, options: ReadOptions) -> None:
        spellings = {names[0]: names for names in recipe.required}
        spellings |= {name: (name,) for name in recipe.optional}
        if recipe.tables:
            spellings |= {name: (name,) for name in recipe.tables[0].columns}
            content = headed(content, recipe.tables[0])
        wanted = {name for names in spellings.values() for name in names}
        self._frame, self._report = read_table(content, options, wanted)
        self._columns = {
            column: next((name for name in names if name in self._frame), "")
            for column, names in spellings.items()
        }
        for names in recipe.required:
            if not self._columns[names[0]]:
                found = ", ".join(str(known) for known in self._frame.columns[:20])
                raise TraceError(
                    f"{content.name}: column {names[0]} is missing. Columns found: {found}. Choose"
                    " another format or map the columns."
                )
        self._columns = {column: name for column, name in self._columns.items() if name}
        ignored(self._frame, self._columns, self._report)
        self.present = {column: f"cell {at}" for at, column in enumerate(self._columns)}
        sources = recipe.sources()
        self.raw = {
            native: self._frame[next(name for name in names if name in self._frame)]
            for native, names in sources.items()
            if any(name in self._frame for name in names)
        }
        self.naive = self._has_no_offsets(recipe, content.name)

    def rows(self) -> pa.RecordBatchReader:
        """Return the rows as a stream that can be read once."""
        table = pa.table(
            {ROW: pa.array(self._frame.index.to_numpy("int64"))}
            | {
                self.present[column]: pa.Array.from_pandas(self._frame[name], type=pa.string())
                for column, name in self._columns.items()
            }
        )
        return table.to_reader()

    def finish(self) -> Report:
        """Return the account of the rows."""
        return self._report

    def _has_no_offsets(self, recipe: Recipe, name: str) -> bool:
        told = " ".join([*recipe.let.values(), *recipe.columns.values()])
        times = {column for _, column in _TIMES.findall(told) if column in self._columns}
        naive = aware = ""
        for column in sorted(times):
            written = self._columns[column]
            cells = text(self._frame[written])
            carries = cells[cells != ""].str.contains(OFFSET, regex=True)
            naive = naive or (written if not carries.all() else "")
            aware = aware or (written if carries.any() else "")
        if naive and aware:
            raise TraceError(
                f"{name}: {naive} holds times without an offset, and {aware} some with one. Give"
                " every time an offset, or none and choose a zone."
            )
        return bool(naive)


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
        self.naive = False
        self.raw: Mapping[str, pd.Series] = {}

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
        found = (text for text, _ in items(self._content.text, self._key, self._content.name))
        try:
            while batch := list(islice(found, BATCH)):
                first = self._read + 1
                self._read += len(batch)
                check_rows(self._read, self._content.name, self._options)
                numbers_of = pa.array(range(first, self._read + 1), pa.int64())
                yield pa.record_batch([numbers_of, pa.array(batch, pa.string())], schema=_SCHEMA)
        except TraceError as error:
            self._fault = error
