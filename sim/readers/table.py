"""Delimited text as a table of text cells, with the rows that do not fit counted."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Final

import pandas as pd

from sim.errors import TraceError
from sim.readers.format import ReadOptions
from sim.readers.report import Report
from sim.readers.sniff import NAMES, plain
from sim.readers.source import Content

OVERFLOW: Final = "\x00more"


def read_table(content: Content, options: ReadOptions) -> tuple[pd.DataFrame, Report]:
    """Read a table with a header.

    Parameters
    ----------
    content : Content
        Delimited text.
    options : ReadOptions
        Holds the row limit.

    Returns
    -------
    DataFrame
        Text cells, columns under their `plain` names, index = 1-based row.
    Report
        Rows with more fields than the header are dropped in it.

    Raises
    ------
    TraceError
        If there is a single column, no row, or more rows than the limit.
    """
    sample = content.sample
    if sample.kind != "text":
        raise TraceError(f"{content.name}: this is {sample.kind}, but the chosen format is a table of text. Choose another format.")
    if not sample.delimiter:
        raise TraceError(
            f"{content.name}: the first line has a single column ({sample.cells[0][:60]!r}). Separate the columns with commas, tabs, semicolons or bars."
        )
    header = _header(sample.cells)
    frame = _parse(content, sample.delimiter, len(header))
    check_rows(len(frame), content.name, options)
    report = Report(len(frame))
    report.guesses.extend(content.guesses)
    if sample.delimiter != ",":
        report.guess(f"Columns are separated by {NAMES[sample.delimiter]}.")
    frame.index = pd.RangeIndex(1, len(frame) + 1)
    extra = frame.pop(frame.columns[-1]).fillna("").str.strip() != ""
    frame.columns = pd.Index(header)
    if sample.delimiter == ";":
        frame = _decimal_points(frame, report)
    return report.drop(frame, extra, "the row has more fields than the header"), report


def _decimal_points(frame: pd.DataFrame, report: Report) -> pd.DataFrame:
    # Spreadsheets that separate by semicolons do so because their decimals have commas.
    pattern = r"^(-?\d+),(\d+)$"
    if any(frame[column].str.match(pattern).any() for column in frame):
        report.guess("Numbers are read with a decimal comma.")
        return pd.DataFrame({column: frame[column].str.replace(pattern, r"\1.\2", regex=True) for column in frame})
    return frame


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
        raise TraceError(f"{name}: {rows:,} rows are more than the limit of {options.max_rows:,}. Cut a window out of the file.")


def pick(frame: pd.DataFrame, columns: Mapping[str, str], name: str) -> pd.DataFrame:
    """Return the named source columns under native names.

    Parameters
    ----------
    frame : DataFrame
        As `read_table` returns it.
    columns : mapping
        Native name -> `plain` source name.
    name : str
        For messages.

    Raises
    ------
    TraceError
        If one of them is missing.
    """
    for column in columns.values():
        if column not in frame.columns:
            found = ", ".join(str(known) for known in frame.columns[:20])
            raise TraceError(f"{name}: column {column} is missing. Columns found: {found}. Choose another format or map the columns.")
    return pd.DataFrame({native: frame[column] for native, column in columns.items()})


def ignored(frame: pd.DataFrame, used: Mapping[str, str], report: Report) -> None:
    """Name the columns that are not read."""
    left = [str(column) for column in frame.columns if column and column not in used.values()]
    if left:
        report.guess(f"Columns not used: {', '.join(left[:20])}{' and more' if len(left) > 20 else ''}.")


def _header(cells: tuple[str, ...]) -> list[str]:
    seen: dict[str, int] = {}
    header = []
    for at, cell in enumerate(cells):
        key = plain(cell) or f"column_{at + 1}"
        seen[key] = seen.get(key, 0) + 1
        header.append(key if seen[key] == 1 else f"{key}#{seen[key]}")
    return header


def _parse(content: Content, delimiter: str, width: int) -> pd.DataFrame:
    columns = [str(at) for at in range(width)] + [OVERFLOW]
    body = content.text.lstrip("\r\n \t") if delimiter != "\t" else content.text.lstrip("\r\n")
    # A first row of full width makes the fast parser accept rows of any length, so that those that are too long can be counted.
    full = delimiter.join("x" * len(columns)) + "\n"
    try:
        frame = pd.read_csv(
            io.StringIO(full + body),
            sep=delimiter,
            header=None,
            names=columns,
            usecols=columns,
            skiprows=[1],
            index_col=False,
            dtype="str",
            keep_default_na=False,
            low_memory=False,
        )
    except pd.errors.ParserError:
        # It stops at a quote that is never closed; the slow parser goes on.
        return _parse_slowly(body, delimiter, columns, content.name)
    return frame.iloc[1:].reset_index(drop=True)


def _parse_slowly(body: str, delimiter: str, columns: list[str], name: str) -> pd.DataFrame:
    # A quote that is never closed would swallow the rest of the file as one cell.
    lone = body.count('"') % 2 == 1
    try:
        reader = csv.reader(io.StringIO(body), delimiter=delimiter, quoting=csv.QUOTE_NONE if lone else csv.QUOTE_MINIMAL)
        next(reader, None)
        rows = [_fit(row, len(columns)) for row in reader if row]
    except csv.Error as error:
        raise TraceError(f"{name}: the table cannot be read ({error}). Check the quotes and the separator.") from error
    return pd.DataFrame(rows, columns=columns, dtype="str")


def _fit(row: list[str], width: int) -> list[str]:
    own = width - 1
    return [*row[:own], *[""] * (own - len(row)), "".join(row[own:])]
