"""Delimited text parsed piece by piece, so that memory holds little more than the cells that are
used.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

import numpy as np
import pandas as pd

from sim.errors import TraceError
from sim.readers.format import ReadOptions, size_text
from sim.readers.source import DAMAGE, Content

T = TypeVar("T")
LONGEST_CELL: Final = 10_000
"""Characters of a cell; no id, name or list of resources is longer."""
NAMED: Final = 21
"""So many unused columns are named: one more than any message shows."""
PIECE: Final = 1 << 24
MOST_ROWS: Final = 20_000
OVERFLOW: Final = "\x00more"
DAMAGED: Final = "\x00damaged"
BROKEN: Final = "the row holds a NUL byte: the file is damaged there"


def parse(
    content: Content,
    delimiter: str,
    header: Sequence[str],
    wanted: Collection[str] | None,
    options: ReadOptions,
) -> pd.DataFrame:
    """Return the wanted cells below a header.

    Parameters
    ----------
    content : Content
        Delimited text.
    delimiter : str
        Between cells.
    header : sequence of str
        Name of each column, all different.
    wanted : collection of str or None
        Which columns are read; None = all. Some others come back empty, so that they can be named
        but take no memory.
    options : ReadOptions
        Holds the limits.

    Returns
    -------
    DataFrame
        Text cells, index = 1-based row, and two columns of booleans: `OVERFLOW`, rows with more
        fields than the header; `DAMAGED`, rows with a NUL byte.

    Raises
    ------
    TraceError
        If a cell is too long, quotes do not match, or rows times columns pass the limit.
    """
    kept = [at for at, name in enumerate(header) if wanted is None or name in wanted]
    check_cells_number(content.data.count(b"\n") + 1, len(kept), content.name, options)
    reader = Pieces(content, delimiter, header, kept)
    try:
        pieces = list(reader.fast())
    except pd.errors.ParserError:
        # It stops at a quote that is never closed; the slow parser goes on.
        pieces = list(reader.slow())
    frame = (
        pd.concat(pieces)
        if len(pieces) > 1
        else (
            pieces[0] if pieces else reader.tidy(pd.DataFrame(columns=reader.names, dtype="str"), 0)
        )
    )
    return named(frame.set_axis([*(header[at] for at in kept), OVERFLOW, DAMAGED], axis=1), header)


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
    return (
        pd.concat([frame, empty], axis=1)[
            [*order, *(name for name in frame.columns if name not in header)]
        ]
        if unread
        else frame
    )


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


def check_length(values: pd.Series, column: str, name: str) -> None:
    """Refuse cells that are too long to be of use.

    Parameters
    ----------
    values : Series
        Text, index = row.
    column, name : str
        For the message.

    Raises
    ------
    TraceError
        It names the first such row.
    """
    lengths = values.str.len()
    if len(values) and lengths.max() > LONGEST_CELL:
        row = int(np.argmax((lengths > LONGEST_CELL).to_numpy()))
        raise too_long(name, column, int(values.index[row]), int(lengths.iloc[row]))


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


class Pieces:
    """Reads one content in pieces of a few thousand rows.

    Parameters
    ----------
    content : Content
        Delimited text with a header.
    delimiter : str
        Between cells.
    header : sequence of str
        Name of each column.
    kept : sequence of int
        The columns to keep.
    """

    def __init__(
        self, content: Content, delimiter: str, header: Sequence[str], kept: Sequence[int]
    ) -> None:
        self._content, self._delimiter, self._width = content, delimiter, len(header)
        self._titles = [header[at] for at in kept]
        self.names = [*(str(at) for at in kept), OVERFLOW]
        line = len(content.data) // (content.data.count(b"\n") + 1) + 1
        self._rows = max(500, min(PIECE // line, MOST_ROWS))
        self._blanks = "\r\n" if delimiter == "\t" else "\r\n \t"

    def fast(self) -> Iterator[pd.DataFrame]:
        """Yield pieces from the parser of pandas."""
        columns = [*map(str, range(self._width)), OVERFLOW]
        # A first row of full width makes the fast parser accept rows of any length, so that those
        # that are too long can be counted.
        full = self._delimiter.join("x" * len(columns)) + "\n"
        parser = pd.read_csv(
            self._content.stream(self._blanks, full),
            sep=self._delimiter,
            header=None,
            names=columns,
            # Damage may be in any column.
            usecols=columns if self._content.damaged else self.names,
            skiprows=[1],
            index_col=False,
            dtype="str",
            keep_default_na=False,
            low_memory=False,
            chunksize=self._rows,
        )
        with parser:
            for piece in parser:
                yield self.tidy(
                    piece.iloc[1:] if piece.index[0] == 0 else piece, int(piece.index[0])
                )

    def slow(self) -> Iterator[pd.DataFrame]:
        """Yield pieces from the parser of Python, which takes a quote that is never closed for a
        letter.

        Raises
        ------
        TraceError
            If it cannot read them either.
        """
        # A quote that is never closed would swallow the rest of the file as one cell.
        lone = self._content.data.count(b'"') % 2 == 1
        with self._content.stream(self._blanks) as stream:
            reader = csv.reader(
                stream,
                delimiter=self._delimiter,
                quoting=csv.QUOTE_NONE if lone else csv.QUOTE_MINIMAL,
            )
            columns = [*map(str, range(self._width)), OVERFLOW]
            try:
                next(reader, None)
                first = 1
                for group in groups((cells for cells in reader if cells), self._rows):
                    yield self.tidy(
                        pd.DataFrame(
                            [self._fit(cells) for cells in group], columns=columns, dtype="str"
                        ),
                        first,
                    )
                    first += len(group)
            except csv.Error as error:
                raise TraceError(
                    f"{self._content.name}: the table cannot be read ({error}). Check the quotes"
                    " and the separator."
                ) from error

    def tidy(self, piece: pd.DataFrame, first: int) -> pd.DataFrame:
        """Return the kept columns of a piece, checked, numbered from `first`."""
        index = pd.RangeIndex(max(first, 1), max(first, 1) + len(piece))
        piece = piece.set_axis(index, axis=0)
        damaged = pd.Series(False, index=index)
        if self._content.damaged:
            for column in piece:
                damaged |= piece[column].fillna("").str.contains(DAMAGE, regex=False)
        for column, title in zip(self.names, self._titles, strict=False):
            check_length(piece[column], title, self._content.name)
        overflow = piece[OVERFLOW].fillna("").str.strip() != ""
        return piece[self.names[:-1]].assign(**{OVERFLOW: overflow, DAMAGED: damaged})

    def _fit(self, row: list[str]) -> list[str]:
        own = self._width
        return [*row[:own], *[""] * (own - len(row)), "".join(row[own:])]
