"""Delimited text as a stream of batches of text cells; rows that do not fit are counted."""

from __future__ import annotations

import codecs
import csv
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from jobtraces.readers.content import DAMAGE, NAMES, Content, distinct, plain
from jobtraces.readers.draft import Report
from jobtraces.readers.options import ReadOptions, size_text
from sim.errors import TraceError

T = TypeVar("T")
LONGEST_CELL: Final = 10_000
"""Characters of a cell; no id, name or list of resources is longer."""
NAMED: Final = 21
"""So many unused columns are named: one more than any message shows."""
BLOCK: Final = 1 << 22
MOST_ROWS: Final = 20_000
ROW: Final = "\x00row"
"""The numbers of rows: a name that no column has."""
BROKEN: Final = "the row holds a NUL byte: the file is damaged there"
LAST: Final = DAMAGE + "last"
SURPLUS: Final = "the row has more fields than the header"
_TEXT: Final = pd.StringDtype("pyarrow", na_value=np.nan)


@dataclass
class Rows:
    """The rows of one content, to be read once.

    Parameters
    ----------
    content : Content
        Text of cells.
    separator : str
        Between cells: one character, or a regular expression where `pattern`.
    header : sequence of str
        Name of each column, all different.
    wanted : collection of str or None
        Which columns are read; None = all.
    options : ReadOptions
        Holds the limits.
    headed : bool
        Whether the first row holds names.
    records : bool
        Of a log: quotes are letters, and a row with too few fields is left out instead of being
        filled up.
    pattern : bool
        Whether the separator is a regular expression; then surplus fields are left alone.
    overflow : str
        The column in which the separator may occur.
    comment : str
        Lines that begin with it are left alone; with a pattern only.
    as_written : bool
        Whether commas of figures are kept, which else become points where semicolons separate.
    """

    content: Content
    separator: str
    header: Sequence[str]
    wanted: Collection[str] | None
    options: ReadOptions
    headed: bool = True
    records: bool = False
    pattern: bool = False
    overflow: str = ""
    comment: str = ""
    as_written: bool = False
    read: int = 0
    _lost: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    _comma: bool = False
    _lone: int = 0

    def __post_init__(self) -> None:
        """Choose the columns, and refuse more cells than fit."""
        names = list(self.header)
        self._kept = [
            at for at, name in enumerate(names) if self.wanted is None or name in self.wanted
        ]
        self._id = names.index("job_id") if "job_id" in names else len(names)
        lines = _lines(self.content.data)
        check_cells_number(lines, len(self._kept), self.content.name, self.options)

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        return [self.header[at] for at in self._kept]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the usable rows: `ROW`, their 1-based numbers, and the cells under their names;
        short rows come last.

        Raises
        ------
        TraceError
            If a cell is too long, or the table cannot be read.
        """
        try:
            yield from self._split() if self.pattern else self._parsed()
        except pa.ArrowInvalid as error:
            fault = str(error).splitlines()[0][:120]
            raise TraceError(
                f"{self.content.name}: the table cannot be read ({fault}). Check the quotes and the"
                " separator."
            ) from error

    def report(self) -> Report:
        """Return the account of the rows, once all are read."""
        report = Report(self.read)
        report.guesses.extend(self.content.guesses)
        if self._lone:
            report.warnings.append(
                f"A quote is never closed (line {self._lone:,} is the first with an odd number of"
                " quotes): quotes are read as letters."
            )
        if self._comma:
            report.guess("Numbers are read with a decimal comma.")
        columns = ["reason", "detail", "job_id"]
        index = pd.Index(list(self._lost), dtype=np.int64)
        lost = pd.DataFrame(list(self._lost.values()), index=index, columns=columns)
        for reason in lost["reason"].unique():
            lost = report.drop(lost, lost["reason"] == reason, reason, lost["detail"])
        return report

    def table(self) -> pa.Table:
        """Return all rows as text, in their order, with their numbers as `ROW`."""
        schema = pa.schema([(ROW, pa.int64()), *((name, pa.string()) for name in self.names)])
        table = pa.Table.from_batches(self.batches(), schema=schema)
        numbers = table.column(ROW).to_numpy()
        return table if (numbers[1:] > numbers[:-1]).all() else table.sort_by(ROW)

    def frame(self) -> pd.DataFrame:
        """Return all rows as text, index = 1-based row."""
        return as_frame(self.table())

    def _parsed(self) -> Iterator[pa.RecordBatch]:
        width = len(self.header)
        # Damage may be in any column.
        columns = list(map(str, range(width) if self.content.damaged else self._kept))
        quoted = not self.records and not self._is_open()
        if not quoted and not self.records:
            lines = self.content.data.split(b"\n")
            self._lone = next(at for at, line in enumerate(lines, 1) if line.count(b'"') % 2)
        misfits: list[tuple[int, str]] = []

        def keep(row: Any) -> str:
            misfits.append((row.number, row.text))
            return "skip"

        reader = arrow_csv.open_csv(
            pa.BufferReader(self._data()),
            read_options=arrow_csv.ReadOptions(
                use_threads=False,
                block_size=BLOCK,
                column_names=list(map(str, range(width))),
                encoding=self.content.encoding,
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.separator,
                quote_char='"' if quoted else False,
                newlines_in_values=quoted,
                invalid_row_handler=keep,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                strings_can_be_null=False,
                include_columns=columns,
            ),
        )
        line = 0
        for batch in reader:
            lines = _following(line, batch.num_rows, [at for at, _ in misfits])
            line = int(lines[-1]) if len(lines) else line
            yield from self._usable(batch, self._numbers(lines, misfits))
        self.read = int(
            self._numbers(np.array([max(line, *(at for at, _ in misfits), 0)]), misfits)[0]
        )
        found = [(at, text) for at, text in misfits if text.strip()]
        numbers = self._numbers(np.array([at for at, _ in found], np.int64), misfits)
        yield from self._mended(
            (int(at), self._cells(text, quoted))
            for at, (_, text) in zip(numbers, found, strict=True)
        )

    def _numbers(self, lines: Any, misfits: Sequence[tuple[int, str]]) -> Any:
        """Return the numbers of rows from those of lines, of which some hold blanks only."""
        blank = [at for at, text in misfits if not text.strip()]
        return lines - np.searchsorted(blank, lines, side="right") - self.headed

    def _cells(self, text: str, quoted: bool) -> list[str]:
        if not quoted:
            return text.rstrip("\r\n").split(self.separator)
        return next(csv.reader(text.splitlines(keepends=True), delimiter=self.separator))

    def _split(self) -> Iterator[pa.RecordBatch]:
        cut = re.compile(self.separator)
        with self.content.stream("\r\n \t", newline=None) as stream:
            lines = (line.strip() for line in stream if not line.startswith(self.comment or "\n"))
            cells = (
                cut.split(line, len(self.header))[: len(self.header)] for line in lines if line
            )
            yield from self._mended(self._counted(cells))

    def _counted(self, rows: Iterable[list[str]]) -> Iterator[tuple[int, list[str]]]:
        for row in rows:
            self.read += 1
            yield self.read, row

    def _mended(self, rows: Iterable[tuple[int, list[str]]]) -> Iterator[pa.RecordBatch]:
        columns = range(len(self.header)) if self.content.damaged else self._kept
        for group in groups((row for row in rows if self._fits(row)), MOST_ROWS):
            cells = [self._full(row) for _, row in group]
            batch = pa.record_batch(
                [pa.array([row[at] for row in cells], pa.string()) for at in columns],
                list(map(str, columns)),
            )
            yield from self._usable(batch, np.array([at for at, _ in group], np.int64))

    def _fits(self, numbered: tuple[int, list[str]]) -> bool:
        number, row = numbered
        width = len(self.header)
        called = row[self._id] if self._id < len(row) else ""
        if self.content.damaged and any(DAMAGE in cell for cell in row):
            self._lost[number] = (BROKEN, "", called)
        elif self.records and len(row) < width:
            self._lost[number] = (f"the row has fewer than {width} fields", row[0], "")
        elif not self.records and any(cell.strip() for cell in row[width:]):
            self._lost[number] = (SURPLUS, "", called)
        return number not in self._lost

    def _full(self, row: list[str]) -> list[str]:
        width, over = len(self.header), len(row) - len(self.header)
        if over <= 0 or not self.records:
            return [*row[:width], *[""] * -over]
        at = self.header.index(self.overflow) if self.overflow in self.header else width - 1
        return [*row[:at], self.separator.join(row[at : at + over + 1]), *row[at + over + 1 :]]

    def _usable(self, batch: pa.RecordBatch, numbers: Any) -> Iterator[pa.RecordBatch]:
        good = numbers > 0
        if self.content.damaged:
            for column in batch.columns:
                good &= ~pc.match_substring(column, DAMAGE).to_numpy(zero_copy_only=False)
            ids = batch.column(str(self._id)) if self._id < len(self.header) else None
            self._lost |= {
                int(numbers[at]): (BROKEN, "", "" if ids is None else ids[at].as_py())
                for at in np.flatnonzero((numbers > 0) & ~good)
            }
        if not good.all():
            batch, numbers = batch.filter(pa.array(good)), numbers[good]
        columns = [batch.column(str(at)) for at in self._kept]
        for name, column in zip(self.names, columns, strict=True):
            self._check_length(name, column, numbers)
        if self.separator == ";" and not (self.records or self.as_written):
            columns = [self._pointed(column) for column in columns]
        yield pa.record_batch([pa.array(numbers, pa.int64()), *columns], [ROW, *self.names])

    def _check_length(self, name: str, column: pa.Array, numbers: Any) -> None:
        # A letter takes up to four bytes, so that this many letters have at least as many bytes; a
        # cell that is a whole line has the limit of lines.
        if len(self.header) > 1 and (pc.max(pc.binary_length(column)).as_py() or 0) > LONGEST_CELL:
            letters = pc.utf8_length(column)
            longest = pc.max(letters).as_py()
            if longest > LONGEST_CELL:
                at = pc.index(pc.greater(letters, LONGEST_CELL), True).as_py()
                raise too_long(self.content.name, name, int(numbers[at]), letters[at].as_py())

    def _pointed(self, column: pa.Array) -> pa.Array:
        # Spreadsheets that separate by semicolons do so because their decimals have commas.
        pattern = r"^(-?\d+),(\d+)$"
        if not pc.any(pc.match_substring_regex(column, pattern)).as_py():
            return column
        self._comma = True
        return pc.replace_substring_regex(column, pattern, r"\1.\2")

    def _data(self) -> memoryview:
        data = self.content.data
        blanks = b"\r\n" if self.separator == "\t" else b"\r\n \t"
        start = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
        while data[start : start + 1] and data[start] in blanks:
            start += 1
        return memoryview(data)[start:]

    def _is_open(self) -> bool:
        """Tell whether a quote is never closed: it would swallow the rest of the file as one cell,
        and is taken for a letter.
        """
        data = self.content.data
        if b'"' not in data or data.count(b'"') % 2 == 0:
            return False
        with self.content.stream("\r\n \t") as stream:
            rows = csv.reader(chain(stream, [LAST]), delimiter=self.separator)
            try:
                return deque(rows, maxlen=1)[-1] != [LAST]
            except csv.Error:
                return True


def _lines(data: bytes) -> int:
    """Return the number of lines, a multiple faster than `bytes.count`."""
    whole = np.frombuffer(data, np.uint8)
    parts = (whole[at : at + BLOCK] for at in range(0, len(data), BLOCK))
    return 1 + sum(int(np.count_nonzero(part == ord("\n"))) for part in parts)


def as_frame(table: pa.Table) -> pd.DataFrame:
    """Return rows of `Rows.table` as text, index = 1-based row."""
    numbers = table.column(ROW).to_numpy()
    found: pd.DataFrame = table.drop_columns(ROW).to_pandas(types_mapper={pa.string(): _TEXT}.get)
    # Where no row is left out, looking one up needs no table of all of them.
    if len(numbers) and (np.diff(numbers) == 1).all():
        found.index = pd.RangeIndex(int(numbers[0]), int(numbers[-1]) + 1)
    else:
        found.index = pd.Index(numbers)
    return found


def _following(line: int, count: int, taken: Sequence[int]) -> Any:
    """Return the numbers of so many lines after a line that are not taken by misfits."""
    most = count + sum(at > line for at in taken)
    lines = np.setdiff1d(np.arange(line + 1, line + 1 + most), taken, assume_unique=True)
    return lines[:count]


def named(frame: pd.DataFrame, header: Sequence[str]) -> pd.DataFrame:
    """Return the table in order of the header, with the first of the columns that were not read as
    empty ones.

    Parameters
    ----------
    frame : DataFrame
        What was read.
    header : sequence of str
        All columns.
    """
    unread = [name for name in header if name not in frame.columns][:NAMED]
    # Half floats are the smallest type that can say that there is nothing.
    empty = pd.DataFrame(
        np.full((len(frame), len(unread)), np.nan, np.float16),
        columns=pd.Index(unread, dtype="str"),
        index=frame.index,
    )
    shown = {*unread, *frame.columns}
    order = [name for name in header if name in shown]
    return pd.concat([frame, empty], axis=1)[order] if unread else frame


def check_cells_number(rows: int, columns: int, name: str, options: ReadOptions) -> None:
    """Refuse tables whose cells would not fit even if all were empty.

    Raises
    ------
    TraceError
        In that case.
    """
    if rows * columns * 8 > options.max_bytes:
        limit = size_text(options.max_bytes)
        raise TraceError(
            f"{name}: {rows:,} rows of {columns:,} columns are more than fits into the limit of"
            f" {limit}. Cut columns out."
        )


def too_long(name: str, column: str, row: int, length: int) -> TraceError:
    """Return the refusal of a cell."""
    return TraceError(
        f"{name}: row {row:,}, column {column} holds {length:,} characters, more than the limit of"
        f" {LONGEST_CELL:,}. Shorten or remove it."
    )


def groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of up to `size` items."""
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group


def check_length(values: pd.Series, column: str, name: str) -> None:
    """Refuse cells that are too long to be of use."""
    lengths = values.str.len()
    if len(values) and lengths.max() > LONGEST_CELL:
        row = int(np.argmax((lengths > LONGEST_CELL).to_numpy()))
        raise too_long(name, column, int(values.index[row]), int(lengths.iloc[row]))


def read_table(
    content: Content,
    options: ReadOptions,
    wanted: Collection[str] | None = None,
    *,
    as_written: bool = False,
) -> tuple[pd.DataFrame, Report]:
    """Read a table with a header.

    Parameters
    ----------
    content : Content
        Delimited text.
    options : ReadOptions
        Holds the limits.
    wanted : collection of str or None
        `plain` names of the columns that are read, None = all; others come back empty, so that they
        can be named but take no memory.
    as_written : bool
        Whether commas of figures are kept, which else become points where semicolons separate.

    Returns
    -------
    DataFrame
        Text cells, columns under their `plain` names, index = 1-based row.
    Report
        Rows with more fields than the header, or with a NUL byte, are dropped in it.

    Raises
    ------
    TraceError
        If there is a single column, no row, more rows than the limit, or a cell that is too long.
    """
    rows = replace(table_rows(content, options, wanted), as_written=as_written)
    frame = named(rows.frame(), rows.header)
    check_rows(rows.read, content.name, options)
    return frame, rows.report()


def table_rows(content: Content, options: ReadOptions, wanted: Collection[str] | None) -> Rows:
    """Return the rows of a table with a header as a stream; arguments as of `read_table`.

    Raises
    ------
    TraceError
        If it is no table, or has more cells than fit.
    """
    sample = content.sample
    if sample.kind != "text":
        raise TraceError(
            f"{content.name}: this is {sample.kind}, but the chosen format is a table of text."
            " Choose another format."
        )
    if not sample.delimiter:
        raise TraceError(
            f"{content.name}: the first line has a single column ({sample.cells[0][:60]!r})."
            " Separate the columns with commas, tabs, semicolons or bars."
        )
    if sample.delimiter != ",":
        content = replace(
            content,
            guesses=(
                *content.guesses,
                f"Columns are separated by {NAMES[sample.delimiter]}.",
            ),
        )
    header = distinct(plain(cell) for cell in sample.cells)
    return Rows(content, sample.delimiter, header, wanted, options)


def check_rows(rows: int, name: str, options: ReadOptions) -> None:
    """Refuse no rows and too many.

    Raises
    ------
    TraceError
        In both cases.
    """
    if rows == 0:
        raise TraceError(f"{name}: there is a header but no row below it. Choose another file.")
    if rows > options.max_rows:
        raise TraceError(
            f"{name}: {rows:,} rows are more than the limit of {options.max_rows:,}. Cut a window"
            " out of the file."
        )


def ignored(columns: Iterable[str], used: Mapping[str, str], report: Report) -> None:
    """Name the columns that are not read."""
    left = [str(column) for column in columns if column and column not in used.values()]
    if left:
        report.guess(
            f"Columns not used: {', '.join(left[:20])}{' and more' if len(left) > 20 else ''}."
        )
