"""Parquet files, measured before they are unfolded: a few kilobytes can claim terabytes."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sim.errors import TraceError
from sim.readers.delimited import LONGEST_CELL, check_cells_number, named, too_long
from sim.readers.format import ReadOptions, size_text
from sim.readers.report import Report
from sim.readers.sniff import plain
from sim.readers.source import Content
from sim.readers.table import check_rows

BATCH: Final = 20_000
TEXT: Final = pd.StringDtype("pyarrow", na_value=np.nan)


def read_parquet(content: Content, options: ReadOptions, wanted: Collection[str]) -> tuple[pd.DataFrame, Report]:
    """Read the wanted flat columns of a Parquet file.

    Parameters
    ----------
    content : Content
        The file.
    options : ReadOptions
        Holds the limits.
    wanted : collection of str
        `plain` names; others come back empty, so that they can be named but take no memory.

    Returns
    -------
    DataFrame
        Columns under plain names, index = 1-based row.
    Report
        Of this import.

    Raises
    ------
    TraceError
        If the file is damaged, a cell is too long, or it unfolds to more than the limits.
    """
    with _opened(content) as file:
        flat = _flat(file)
        columns = [name for name, key in flat.items() if key in wanted]
        _refuse_bomb(file, columns, content.name, options)
        table = _unfolded(content, columns, options)
        frame = pd.DataFrame({flat[name]: _series(table.column(name)) for name in columns}, index=pd.RangeIndex(table.num_rows))
        names = [plain(field.name) for field in file.schema_arrow]
    frame.index = pd.RangeIndex(1, len(frame) + 1)
    return named(frame, names), Report(len(frame))


def parquet_head(content: Content, options: ReadOptions, rows: int) -> pd.DataFrame:
    """Return the first rows of all flat columns as text, under plain names.

    Parameters
    ----------
    content : Content
        The file.
    options : ReadOptions
        Holds the limits.
    rows : int
        How many.

    Raises
    ------
    TraceError
        As `read_parquet`.
    """
    with _opened(content) as file:
        flat = _flat(file)
        _refuse_bomb(file, flat, content.name, options)
        batch = next(file.iter_batches(batch_size=rows, columns=list(flat)), None)
        # Metadata written by pandas may be damaged, and is not needed.
        head = pa.Table.from_batches([batch]).to_pandas(ignore_metadata=True) if batch is not None else pd.DataFrame(columns=list(flat))
    return head.astype("str").set_axis(list(flat.values()), axis=1)


@contextmanager
def _opened(content: Content) -> Iterator[pq.ParquetFile]:
    try:
        yield pq.ParquetFile(io.BytesIO(content.data))
    except (pa.ArrowException, OSError, ValueError) as error:
        first = (str(error).splitlines() or [""])[0][:120]
        raise TraceError(f"{content.name}: the Parquet file is damaged ({first}). Write it again.") from error


def _flat(file: pq.ParquetFile) -> dict[str, str]:
    return {field.name: plain(field.name) for field in file.schema_arrow if not pa.types.is_nested(field.type)}


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _refuse_bomb(file: pq.ParquetFile, columns: Collection[str], name: str, options: ReadOptions) -> None:
    meta = file.metadata
    check_rows(meta.num_rows, name, options)
    check_cells_number(meta.num_rows, len(columns), name, options)
    # A column that is not read costs nothing, however large.
    chunks = [meta.row_group(group).column(at) for group in range(meta.num_row_groups) for at in range(meta.num_columns)]
    claimed = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in columns)
    if claimed > options.max_bytes:
        raise _too_large(claimed, name, options)


def _too_large(size: int, name: str, options: ReadOptions) -> TraceError:
    limit = size_text(options.max_bytes)
    return TraceError(f"{name}: the Parquet file unfolds to {size_text(size)} or more, the limit being {limit}. Cut a window out of it.")


def _unfolded(content: Content, columns: list[str], options: ReadOptions) -> pa.Table:
    schema = pq.read_schema(io.BytesIO(content.data))
    texts = [name for name in columns if _is_text(schema.field(name).type)]
    # Texts stay dictionaries until measured: one long value repeated a million times is small only as such.
    file = pq.ParquetFile(io.BytesIO(content.data), read_dictionary=texts)
    batches, size, row = [], 0, 1
    for batch in file.iter_batches(batch_size=BATCH, columns=columns, use_threads=False):
        for name in columns:
            size += _measured(batch.column(name), name, row, content.name)
        if size > options.max_bytes:
            raise _too_large(size, content.name, options)
        batches.append(pa.RecordBatch.from_arrays([_plain(batch.column(name)) for name in columns], names=columns))
        row += batch.num_rows
    return pa.Table.from_batches(batches)


def _measured(values: pa.Array, column: str, row: int, name: str) -> int:
    """Return the bytes that values take when unfolded, without unfolding them."""
    if not pa.types.is_dictionary(values.type) or not _is_text(values.type.value_type):
        return int(values.nbytes)
    lengths = pc.binary_length(values.dictionary).take(values.indices)
    longest = pc.max(lengths).as_py() or 0
    # A letter takes up to four bytes, so that this many letters have at least as many bytes.
    if longest > LONGEST_CELL:
        letters = pc.utf8_length(values.dictionary.cast(pa.large_string())).take(values.indices)
        longest = pc.max(letters).as_py()
        if longest > LONGEST_CELL:
            raise too_long(name, column, row + pc.index(letters, longest).as_py(), longest)
    return (pc.sum(lengths).as_py() or 0) + 8 * len(values)


def _plain(values: pa.Array) -> pa.Array:
    """Return values of a kind that pandas holds without a Python object for each."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(values.storage)
    if pa.types.is_dictionary(kind):
        return _plain(values.dictionary_decode())
    if pa.types.is_decimal(kind):
        return values.cast(pa.float64())
    if pa.types.is_date(kind):
        return values.cast(pa.timestamp("ms"))
    if _is_text(kind) or pa.types.is_time(kind) or pa.types.is_fixed_size_binary(kind):
        return values.cast(pa.large_string())
    return values


def _series(values: pa.ChunkedArray) -> pd.Series:
    if pa.types.is_large_string(values.type):
        return pd.Series(pd.array(values, dtype=TEXT))
    return pd.Series(values.to_pandas())
