"""Read delimited text as batches of text cells; rows that do not fit are counted."""

from __future__ import annotations

import codecs
import csv
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from jobtraces.readers.content import DAMAGED_BYTE, NAMES, Content, make_distinct, plain_name
from jobtraces.readers.draft import Report
from jobtraces.readers.options import ReadOptions, size_text
from sim.errors import TraceError

T = TypeVar("T")
MAX_CELL_CHARS: Final = 10_000
"""Largest number of characters in a cell; ids, names and resource lists are shorter."""
MAX_UNREAD_NAMES: Final = 21
"""Number of unused columns kept by name: one more than messages show."""
BLOCK: Final = 1 << 22
BATCH_ROWS: Final = 20_000
ROW: Final = "\x00row"
"""Column of row numbers; no source column can have this name."""
DAMAGED_ROW: Final = "the row contains a NUL byte: the file is damaged there"
_LAST_CELL: Final = DAMAGED_BYTE + "last"
SURPLUS: Final = "the row has more fields than the header"
_TEXT: Final = pd.StringDtype("pyarrow", na_value=np.nan)


@dataclass
class Rows:
    """The rows of a text table or log, which can be read once.

    Parameters
    ----------
    content : Content
        Text of the table.
    separator : str
        Separator of cells: one character or, with `split_line`, a regular expression.
    header : sequence of str
        Unique name of each column.
    wanted : collection of str or None
        Columns to read; None = all.
    options : ReadOptions
        Size limits.
    headed : bool
        Whether the first row is a header.
    records : bool
        For a log: quotes are plain text, and rows with too few fields are dropped, not filled.
    split_line : callable or None
        Returns the fields of a line, for a separator that is a regular expression.
    overflow : str
        The column whose cells may contain the separator.
    comment : str
        Prefix of lines to skip; only with `split_line`.
    as_written : bool
        Whether decimal commas are kept; otherwise they become points in files with semicolons.
    """

    content: Content
    separator: str
    header: Sequence[str]
    wanted: Collection[str] | None
    options: ReadOptions
    headed: bool = True
    records: bool = False
    split_line: Callable[[str], list[str]] | None = None
    overflow: str = ""
    comment: str = ""
    as_written: bool = False
    read: int = 0
    _dropped: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    _has_decimal_commas: bool = False
    _odd_quote_line: int = 0

    def __post_init__(self) -> None:
        """Select the columns, and raise an error if there are too many cells."""
        names = list(self.header)
        self._selected = [
            index for index, name in enumerate(names) if self.wanted is None or name in self.wanted
        ]
        self._id = names.index("job_id") if "job_id" in names else len(names)
        lines = _count_lines(self.content.data)
        check_cell_count(lines, len(self._selected), self.content.name, self.options)

    @property
    def names(self) -> list[str]:
        """Names of the columns that are read."""
        return [self.header[at] for at in self._selected]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the usable rows: their 1-based numbers as `ROW`, and the cells by name.

        Short rows come last.

        Raises
        ------
        TraceError
            If a cell is too long, or the table cannot be read.
        """
        try:
            yield from self._split_lines(self.split_line) if self.split_line else self._parse_rows()
        except pa.ArrowInvalid as error:
            fault = str(error).splitlines()[0][:120]
            raise TraceError(
                f"{self.content.name}: the table cannot be read ({fault}). Check quotes and"
                " separators."
            ) from error

    def report(self) -> Report:
        """Return the report on the rows, after all are read.

        It has the dropped rows, and notes about an open quote and decimal commas.
        """
        report = Report(self.read)
        report.guesses.extend(self.content.guesses)
        if self._odd_quote_line:
            report.warnings.append(
                f"A quote is never closed (line {self._odd_quote_line:,} is the first with an odd"
                " number of quotes): quotes are read as plain text."
            )
        if self._has_decimal_commas:
            report.guess("Numbers are read with a decimal comma.")
        columns = ["reason", "detail", "job_id"]
        index = pd.Index(list(self._dropped), dtype=np.int64)
        dropped = pd.DataFrame(list(self._dropped.values()), index=index, columns=columns)
        for reason in dropped["reason"].unique():
            dropped = report.drop(dropped, dropped["reason"] == reason, reason, dropped["detail"])
        return report

    def table(self) -> pa.Table:
        """Read and return the usable rows as text, in order, with 1-based numbers as `ROW`.

        Works once; `report` tells which rows were dropped.
        """
        schema = pa.schema([(ROW, pa.int64()), *((name, pa.string()) for name in self.names)])
        table = pa.Table.from_batches(self.batches(), schema=schema)
        numbers = table.column(ROW).to_numpy()
        return table if (numbers[1:] > numbers[:-1]).all() else table.sort_by(ROW)

    def frame(self) -> pd.DataFrame:
        """Read and return the usable rows as text, indexed by 1-based row number."""
        return as_frame(self.table())

    def _parse_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield batches parsed by Arrow; rows that do not fit follow, parsed one by one.

        Sets `read`, the number of rows without header and blank lines.
        """
        width = len(self.header)
        # Damage may be in any column.
        columns = list(map(str, range(width) if self.content.damaged else self._selected))
        has_quotes = not self.records and not self._has_open_quote()
        if not has_quotes and not self.records:
            lines = self.content.data.split(b"\n")
            self._odd_quote_line = next(
                at for at, line in enumerate(lines, 1) if line.count(b'"') % 2
            )
        misfits: list[tuple[int, str]] = []

        def keep_misfit(row: Any) -> str:
            """Store a row that does not fit, and skip it."""
            misfits.append((row.number, row.text))
            return "skip"

        reader = arrow_csv.open_csv(
            pa.BufferReader(self._without_mark()),
            read_options=arrow_csv.ReadOptions(
                use_threads=False,
                block_size=BLOCK,
                column_names=list(map(str, range(width))),
                encoding=self.content.encoding,
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.separator,
                quote_char='"' if has_quotes else False,
                newlines_in_values=has_quotes,
                invalid_row_handler=keep_misfit,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                strings_can_be_null=False,
                include_columns=columns,
            ),
        )
        line = 0
        for batch in reader:
            lines = _next_lines(line, batch.num_rows, [at for at, _ in misfits])
            line = int(lines[-1]) if len(lines) else line
            yield from self._clean_batch(batch, self._row_numbers(lines, misfits))
        self.read = int(
            self._row_numbers(np.array([max(line, *(at for at, _ in misfits), 0)]), misfits)[0]
        )
        non_blank = [(at, text) for at, text in misfits if text.strip()]
        numbers = self._row_numbers(np.array([at for at, _ in non_blank], np.int64), misfits)
        yield from self._fit_rows(
            (int(at), self._split_row(text, has_quotes))
            for at, (_, text) in zip(numbers, non_blank, strict=True)
        )

    def _row_numbers(self, lines: Any, misfits: Sequence[tuple[int, str]]) -> Any:
        """Return row numbers from line numbers, not counting blank lines."""
        blank_lines = [at for at, text in misfits if not text.strip()]
        return lines - np.searchsorted(blank_lines, lines, side="right") - self.headed

    def _split_row(self, text: str, quoted: bool) -> list[str]:
        """Return the cells of one row of text."""
        if not quoted:
            return text.rstrip("\r\n").split(self.separator)
        return next(csv.reader(text.splitlines(keepends=True), delimiter=self.separator))

    def _split_lines(self, split_line: Callable[[str], list[str]]) -> Iterator[pa.RecordBatch]:
        """Yield batches of lines split by a regular expression, without blanks and comments."""
        with self.content.stream("\r\n \t", newline=None) as stream:
            lines = (line.strip() for line in stream if not line.startswith(self.comment or "\n"))
            cells = (split_line(line)[: len(self.header)] for line in lines if line)
            yield from self._fit_rows(self._count_rows(cells))

    def _count_rows(self, rows: Iterable[list[str]]) -> Iterator[tuple[int, list[str]]]:
        """Yield (row number, cells), counting the rows read."""
        for row in rows:
            self.read += 1
            yield self.read, row

    def _fit_rows(self, rows: Iterable[tuple[int, list[str]]]) -> Iterator[pa.RecordBatch]:
        """Yield batches of the usable rows, cut or filled to the width of the header."""
        columns = range(len(self.header)) if self.content.damaged else self._selected
        for group in split_into_groups((row for row in rows if self._is_usable(row)), BATCH_ROWS):
            cells = [self._fit_width(row) for _, row in group]
            batch = pa.record_batch(
                [pa.array([row[at] for row in cells], pa.string()) for at in columns],
                list(map(str, columns)),
            )
            yield from self._clean_batch(batch, np.array([at for at, _ in group], np.int64))

    def _is_usable(self, numbered: tuple[int, list[str]]) -> bool:
        """Return whether a row is usable; otherwise record why it is dropped."""
        number, row = numbered
        width = len(self.header)
        job_id = row[self._id] if self._id < len(row) else ""
        if self.content.damaged and any(DAMAGED_BYTE in cell for cell in row):
            self._dropped[number] = (DAMAGED_ROW, "", job_id)
        elif self.records and len(row) < width:
            self._dropped[number] = (f"the row has fewer than {width} fields", row[0], "")
        elif not self.records and any(cell.strip() for cell in row[width:]):
            self._dropped[number] = (SURPLUS, "", job_id)
        return number not in self._dropped

    def _fit_width(self, row: list[str]) -> list[str]:
        """Return a row cut, joined or filled to the width of the header.

        Surplus fields of a log are joined in the overflow column, or the last; of a table they are
        cut.
        """
        width, surplus = len(self.header), len(row) - len(self.header)
        if surplus <= 0 or not self.records:
            return [*row[:width], *[""] * -surplus]
        index = self.header.index(self.overflow) if self.overflow in self.header else width - 1
        return [
            *row[:index],
            self.separator.join(row[index : index + surplus + 1]),
            *row[index + surplus + 1 :],
        ]

    def _clean_batch(self, batch: pa.RecordBatch, numbers: Any) -> Iterator[pa.RecordBatch]:
        """Yield a batch in the selected columns, without header and damaged rows.

        Damaged rows are recorded as dropped, cell lengths are checked, and decimal commas become
        points.
        """
        is_good = numbers > 0
        if self.content.damaged:
            for column in batch.columns:
                is_good &= ~pc.match_substring(column, DAMAGED_BYTE).to_numpy(zero_copy_only=False)
            ids = batch.column(str(self._id)) if self._id < len(self.header) else None
            self._dropped |= {
                int(numbers[at]): (DAMAGED_ROW, "", "" if ids is None else ids[at].as_py())
                for at in np.flatnonzero((numbers > 0) & ~is_good)
            }
        if not is_good.all():
            batch, numbers = batch.filter(pa.array(is_good)), numbers[is_good]
        columns = [batch.column(str(at)) for at in self._selected]
        for name, column in zip(self.names, columns, strict=True):
            self._check_length(name, column, numbers)
        if self.separator == ";" and not (self.records or self.as_written):
            columns = [self._replace_decimal_commas(column) for column in columns]
        yield pa.record_batch([pa.array(numbers, pa.int64()), *columns], [ROW, *self.names])

    def _check_length(self, name: str, column: pa.Array, numbers: Any) -> None:
        """Raise an error for a cell that is too long, unless the table has a single column."""
        # Count characters only if there are enough bytes. A cell that is a whole line has the limit
        # of lines.
        if (
            len(self.header) > 1
            and (pc.max(pc.binary_length(column)).as_py() or 0) > MAX_CELL_CHARS
        ):
            letters = pc.utf8_length(column)
            longest = pc.max(letters).as_py()
            if longest > MAX_CELL_CHARS:
                at = pc.index(pc.greater(letters, MAX_CELL_CHARS), True).as_py()
                raise long_cell_error(
                    self.content.name, name, int(numbers[at]), letters[at].as_py()
                )

    def _replace_decimal_commas(self, column: pa.Array) -> pa.Array:
        """Return a column with decimal commas replaced by points; note whether there are any."""
        # Spreadsheets write semicolons if their decimal sign is a comma.
        pattern = r"^(-?\d+),(\d+)$"
        if not pc.any(pc.match_substring_regex(column, pattern)).as_py():
            return column
        self._has_decimal_commas = True
        return pc.replace_substring_regex(column, pattern, r"\1.\2")

    def _without_mark(self) -> memoryview:
        """Return the content without byte-order mark and leading blanks.

        If tabs separate cells, only line ends count as blanks: the first cell may be empty.
        """
        data = self.content.data
        blanks = b"\r\n" if self.separator == "\t" else b"\r\n \t"
        start = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
        while data[start : start + 1] and data[start] in blanks:
            start += 1
        return memoryview(data)[start:]

    def _has_open_quote(self) -> bool:
        """Return whether a quote is never closed, so that quotes are read as plain text."""
        data = self.content.data
        if b'"' not in data or data.count(b'"') % 2 == 0:
            return False
        with self.content.stream("\r\n \t") as stream:
            rows = csv.reader(chain(stream, [_LAST_CELL]), delimiter=self.separator)
            try:
                return deque(rows, maxlen=1)[-1] != [_LAST_CELL]
            except csv.Error:
                return True


def _count_lines(data: bytes) -> int:
    """Return the number of lines, faster than `bytes.count`."""
    codes = np.frombuffer(data, np.uint8)
    parts = (codes[at : at + BLOCK] for at in range(0, len(data), BLOCK))
    return 1 + sum(int(np.count_nonzero(part == ord("\n"))) for part in parts)


def as_frame(table: pa.Table) -> pd.DataFrame:
    """Return rows of `Rows.table` as text, indexed by 1-based row number."""
    numbers = table.column(ROW).to_numpy()
    frame: pd.DataFrame = table.drop_columns(ROW).to_pandas(types_mapper={pa.string(): _TEXT}.get)
    # Without dropped rows a range is a faster index.
    if len(numbers) and (np.diff(numbers) == 1).all():
        frame.index = pd.RangeIndex(int(numbers[0]), int(numbers[-1]) + 1)
    else:
        frame.index = pd.Index(numbers)
    return frame


def _next_lines(line: int, count: int, misfit_lines: Sequence[int]) -> Any:
    """Return the next `count` line numbers after a line, without the lines of misfits."""
    max_count = count + sum(misfit > line for misfit in misfit_lines)
    lines = np.setdiff1d(
        np.arange(line + 1, line + 1 + max_count), misfit_lines, assume_unique=True
    )
    return lines[:count]


def add_unread_columns(frame: pd.DataFrame, header: Sequence[str]) -> pd.DataFrame:
    """Return the table in header order, with some of the unread columns as empty ones.

    Parameters
    ----------
    frame : DataFrame
        The columns that were read.
    header : sequence of str
        Names of all columns.
    """
    unread = [name for name in header if name not in frame.columns][:MAX_UNREAD_NAMES]
    # Half floats are the smallest type with NaN.
    empty = pd.DataFrame(
        np.full((len(frame), len(unread)), np.nan, np.float16),
        columns=pd.Index(unread, dtype="str"),
        index=frame.index,
    )
    all_names = {*unread, *frame.columns}
    order = [name for name in header if name in all_names]
    return pd.concat([frame, empty], axis=1)[order] if unread else frame


def check_cell_count(rows: int, columns: int, name: str, options: ReadOptions) -> None:
    """Raise an error for more cells than the limit allows even if all are empty.

    Raises
    ------
    TraceError
        If the cells exceed the limit.
    """
    if rows * columns * 8 > options.max_bytes:
        limit = size_text(options.max_bytes)
        raise TraceError(
            f"{name}: {rows:,} rows of {columns:,} columns do not fit into the limit of {limit}."
            " Remove columns."
        )


def long_cell_error(name: str, column: str, row: int, length: int) -> TraceError:
    """Return the error for a cell that is too long."""
    return TraceError(
        f"{name}: row {row:,}, column {column} holds {length:,} characters, more than the limit of"
        f" {MAX_CELL_CHARS:,}. Shorten or remove it."
    )


def split_into_groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of up to `size` items."""
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group


def check_length(values: pd.Series, column: str, name: str) -> None:
    """Raise an error for cells that are too long."""
    lengths = values.str.len()
    if len(values) and lengths.max() > MAX_CELL_CHARS:
        row = int(np.argmax((lengths > MAX_CELL_CHARS).to_numpy()))
        raise long_cell_error(name, column, int(values.index[row]), int(lengths.iloc[row]))


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
        Size limits.
    wanted : collection of str or None
        Plain names of the columns to read; None = all. Others are returned empty, to be named
        without taking memory.
    as_written : bool
        Whether decimal commas are kept; otherwise they become points in files with semicolons.

    Returns
    -------
    DataFrame
        Text cells with plain column names, indexed by 1-based row number.
    Report
        Holds the dropped rows: too many fields, or a NUL byte.

    Raises
    ------
    TraceError
        If there is a single column, no row, too many rows, or a cell that is too long.
    """
    rows = replace(table_rows(content, options, wanted), as_written=as_written)
    frame = add_unread_columns(rows.frame(), rows.header)
    check_rows(rows.read, content.name, options)
    return frame, rows.report()


def table_rows(content: Content, options: ReadOptions, wanted: Collection[str] | None) -> Rows:
    """Return the rows of a table with a header as a stream; see `read_table`.

    Raises
    ------
    TraceError
        If it is not a table, or has too many cells.
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
    header = make_distinct(plain_name(cell) for cell in sample.cells)
    return Rows(content, sample.delimiter, header, wanted, options)


def check_rows(rows: int, name: str, options: ReadOptions) -> None:
    """Raise an error for no rows or too many.

    Raises
    ------
    TraceError
        If the number of rows is 0 or above the limit.
    """
    if rows == 0:
        raise TraceError(f"{name}: there is a header but no row below it. Choose another file.")
    if rows > options.max_rows:
        raise TraceError(
            f"{name}: {rows:,} rows are more than the limit of {options.max_rows:,}. Use a shorter"
            " time range."
        )


def report_unused_columns(columns: Iterable[str], used: Mapping[str, str], report: Report) -> None:
    """Add a sentence with the names of up to 20 unused columns to the report."""
    unused = [str(column) for column in columns if column and column not in used.values()]
    if unused:
        report.guess(
            f"Columns not used: {', '.join(unused[:20])}{' and more' if len(unused) > 20 else ''}."
        )
