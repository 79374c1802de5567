"""Delimited text as a table of text cells, with the rows that do not fit counted."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd

from sim.errors import TraceError
from sim.readers.delimited import BROKEN, DAMAGED, OVERFLOW, parse
from sim.readers.format import ReadOptions
from sim.readers.report import Report
from sim.readers.sniff import NAMES, distinct, plain
from sim.readers.source import Content


def read_table(
    content: Content, options: ReadOptions, wanted: Collection[str] | None = None
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
    header = distinct(plain(cell) for cell in sample.cells)
    frame = parse(content, sample.delimiter, header, wanted, options)
    check_rows(len(frame), content.name, options)
    report = Report(len(frame))
    report.guesses.extend(content.guesses)
    if sample.delimiter != ",":
        report.guess(f"Columns are separated by {NAMES[sample.delimiter]}.")
    extra, damaged = frame.pop(OVERFLOW), frame.pop(DAMAGED)
    if sample.delimiter == ";":
        frame = _decimal_points(frame, report)
    frame = report.drop(frame, damaged, BROKEN)
    return (
        report.drop(frame, extra.reindex(frame.index), "the row has more fields than the header"),
        report,
    )


def _decimal_points(frame: pd.DataFrame, report: Report) -> pd.DataFrame:
    # Spreadsheets that separate by semicolons do so because their decimals have commas.
    pattern = r"^(-?\d+),(\d+)$"
    texts = list(map(str, frame.select_dtypes("str").columns))
    affected = [column for column in texts if frame[column].str.match(pattern).any()]
    if affected:
        report.guess("Numbers are read with a decimal comma.")
    return frame.assign(
        **{column: frame[column].str.replace(pattern, r"\1.\2", regex=True) for column in affected}
    )


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
            raise TraceError(
                f"{name}: column {column} is missing. Columns found: {found}. Choose another format"
                " or map the columns."
            )
    return pd.DataFrame({native: frame[column] for native, column in columns.items()})


def ignored(frame: pd.DataFrame, used: Mapping[str, str], report: Report) -> None:
    """Name the columns that are not read."""
    left = [str(column) for column in frame.columns if column and column not in used.values()]
    if left:
        report.guess(
            f"Columns not used: {', '.join(left[:20])}{' and more' if len(left) > 20 else ''}."
        )
