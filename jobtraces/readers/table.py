"""Delimited text as a table of text cells, with the rows that do not fit counted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import pandas as pd

from jobtraces.readers.delimited import Rows, named
from jobtraces.readers.options import ReadOptions
from jobtraces.readers.report import Report
from jobtraces.readers.sniff import NAMES, distinct, plain
from jobtraces.readers.source import Content
from sim.errors import TraceError


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
