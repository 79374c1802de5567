"""Read Parquet files after checking the size they claim: a few kB can claim terabytes."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobtraces.readers.cells import PLAUSIBLE_TIMES
from jobtraces.readers.content import Content, make_distinct, plain_name
from jobtraces.readers.draft import Report
from jobtraces.readers.options import ReadOptions, size_text
from jobtraces.readers.table import (
    MAX_CELL_CHARS,
    add_unread_columns,
    check_cell_count,
    check_rows,
    long_cell_error,
)
from sim.errors import TraceError

BATCH: Final = 20_000
DURATION_ATTRIBUTE: Final = "seconds"
"""Attribute of a table: its columns of type duration, converted to seconds."""
_PER_S: Final = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
TEXT: Final = pd.StringDtype("pyarrow", na_value=np.nan)


def copy_to_arrow(data: bytes) -> pa.BufferReader:
    """Return a copy of bytes as an Arrow file, free of Python objects.

    A thread that still holds one when the process ends can abort it
    (https://github.com/apache/arrow/issues/34314 and 50482).
    """
    return pa.BufferReader(pa.array([data], pa.large_binary()).buffers()[2])


def read_parquet(
    content: Content, options: ReadOptions, wanted: Collection[str]
) -> tuple[pd.DataFrame, Report]:
    """Read selected flat columns of a Parquet file.

    Parameters
    ----------
    content : Content
        The file.
    options : ReadOptions
        Size limits.
    wanted : collection of str
        Plain names to read; others are returned empty, to be named without taking memory.

    Returns
    -------
    DataFrame
        Columns with plain names, indexed by 1-based row number.
    Report
        Report of this import.

    Raises
    ------
    TraceError
        If the file is damaged, a cell is too long, or the size limit is exceeded.
    """
    with _open_parquet(content) as file:
        flat_columns = _flat_columns(file)
        source_names = [name for name, key in flat_columns if key in wanted]
        _refuse_bomb(file, source_names, content, options)
        # Columns with equal names are both read.
        columns = _read_columns(
            content,
            [key for name, key in flat_columns if name in source_names],
            source_names,
            options,
        )
        columns = {key: values for key, values in columns.items() if key in wanted}
        frame = pd.DataFrame(columns, index=pd.RangeIndex(file.metadata.num_rows))
        nested = [plain_name(field.name) for field in file.schema_arrow if _is_nested(field)]
        names = list(dict.fromkeys([*(key for _, key in flat_columns), *nested]))
        types = [field.type for field in file.schema_arrow if not _is_nested(field)]
        duration_keys = [
            key
            for (_, key), arrow_type in zip(flat_columns, types, strict=True)
            if pa.types.is_duration(arrow_type)
        ]
    frame.index = pd.RangeIndex(1, len(frame) + 1)
    frame = add_unread_columns(frame, names)
    frame.attrs[DURATION_ATTRIBUTE] = duration_keys
    return frame, Report(len(frame))


def parquet_head(content: Content, options: ReadOptions, rows: int) -> pd.DataFrame:
    """Return the first rows of all flat columns as text, with plain names.

    Parameters
    ----------
    content : Content
        The file.
    options : ReadOptions
        Size limits.
    rows : int
        Number of rows.

    Raises
    ------
    TraceError
        As for `read_parquet`.
    """
    with _open_parquet(content) as file:
        flat_columns = _flat_columns(file)
        _refuse_bomb(file, [name for name, _ in flat_columns], content, options)
        batch = next(
            file.iter_batches(batch_size=rows, columns=[name for name, _ in flat_columns]), None
        )
        keys = [key for _, key in flat_columns]
        texts = (
            {}
            if batch is None
            else {
                key: _preview_texts(values)
                for key, values in zip(keys, _flat_arrays(batch), strict=True)
            }
        )
    return pd.DataFrame(texts, columns=pd.Index(keys, dtype="str"), dtype="str")


def parquet_bytes(frame: pd.DataFrame) -> bytes:
    """Return a DataFrame as Parquet; named index levels become columns.

    A level is left out if a column has its name.
    """
    levels = [
        level for level in frame.index.names if level is not None and level not in frame.columns
    ]
    frame = pd.concat(
        [frame.index.to_frame(index=False)[levels], frame.reset_index(drop=True)], axis=1
    )
    arrays = [_to_arrow(frame.iloc[:, column]) for column in range(frame.shape[1])]
    target = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, names=list(map(str, frame.columns))), target)
    return target.getvalue()


def _to_arrow(values: pd.Series) -> pa.Array:
    """Return a column as an Arrow array; as text if its cells have mixed types."""
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError):
        return pa.array(
            [
                None if missing else str(cell)
                for cell, missing in zip(values, values.isna(), strict=True)
            ]
        )


def column_names(content: Content) -> list[str]:
    """Return the plain names of the flat columns of a file.

    Raises
    ------
    TraceError
        If it is damaged.
    """
    with _open_parquet(content) as file:
        return [key for _, key in _flat_columns(file)]


@contextmanager
def _open_parquet(content: Content) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; damage is reported as a `TraceError`."""
    try:
        yield pq.ParquetFile(copy_to_arrow(content.data))
    except (pa.ArrowException, OSError, ValueError) as error:
        first = (str(error).splitlines() or [""])[0][:120]
        raise TraceError(
            f"{content.name}: the Parquet file is damaged ({first}). Write it again."
        ) from error


def _is_nested(field: pa.Field) -> bool:
    """Return whether a field holds lists or structures."""
    return bool(pa.types.is_nested(field.type))


def _flat_columns(file: pq.ParquetFile) -> list[tuple[str, str]]:
    """Return (name as written, unique plain name) of the columns with one value per row."""
    names = [field.name for field in file.schema_arrow if not _is_nested(field)]
    return list(zip(names, make_distinct(plain_name(name) for name in names), strict=True))


def _flat_arrays(batch: pa.RecordBatch) -> list[pa.Array]:
    """Return the columns of a batch that are not nested, in order."""
    return [
        batch.column(index) for index, field in enumerate(batch.schema) if not _is_nested(field)
    ]


def _preview_texts(values: pa.Array) -> list[str]:
    """Return values as texts for the preview, "" where missing."""
    plain_values = _simplify(values)
    try:
        texts = plain_values.cast(pa.large_string()).to_pylist()
    except pa.ArrowException:
        texts = plain_values.to_pandas().astype("str").tolist()
    return [text if isinstance(text, str) else "" for text in texts]


def _is_text(kind: pa.DataType) -> bool:
    """Return whether a type is text or bytes."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _refuse_bomb(
    file: pq.ParquetFile, columns: Collection[str], content: Content, options: ReadOptions
) -> None:
    """Raise an error if a file claims too many rows, or selected columns claim too much."""
    meta, name, file_bytes = file.metadata, content.name, content.data
    check_rows(meta.num_rows, name, options)
    check_cell_count(meta.num_rows, len(columns), name, options)
    claimed_bytes = sum(
        meta.row_group(group).total_byte_size for group in range(meta.num_row_groups)
    )
    if claimed_bytes > options.max_bytes:
        # Columns that are not read do not count.
        claimed_bytes = _claimed_bytes(file_bytes, columns, name)
    if claimed_bytes > options.max_bytes:
        raise _size_error(claimed_bytes, name, options)


_SIZES: Final = """
import io, sys
import pyarrow.parquet as pq
meta = pq.read_metadata(io.BytesIO(sys.stdin.buffer.read()))
chunks = [meta.row_group(group).column(at) for group in range(meta.num_row_groups) for at in range(meta.num_columns)]
print(sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in sys.argv[1:]))
"""  # noqa: E501


def _claimed_bytes(data: bytes, columns: Collection[str], name: str) -> int:
    """Return the uncompressed size of some columns, as the file claims it.

    Read in a separate process, because Arrow aborts the process if the file is damaged.

    Raises
    ------
    TraceError
        If the file is damaged.
    """
    process = subprocess.run(
        [sys.executable, "-c", _SIZES, *columns], input=data, capture_output=True, check=False
    )
    if process.returncode:
        raise TraceError(
            f"{name}: the Parquet file is damaged (the sizes of its columns). Write it again."
        )
    return int(process.stdout)


def _size_error(size: int, name: str, options: ReadOptions) -> TraceError:
    """Return the error for a file that exceeds the size limit."""
    limit = size_text(options.max_bytes)
    return TraceError(
        f"{name}: the Parquet file takes {size_text(size)} or more unpacked; the limit is {limit}."
        " Use a shorter time range."
    )


def _read_columns(
    content: Content, keys: list[str], source_names: list[str], options: ReadOptions
) -> dict[str, pd.Series]:
    """Return plain name -> values of some columns, within the size limit.

    Raises
    ------
    TraceError
        If the values exceed the size limit, or a text is too long.
    """
    texts = [
        field.name
        for field in pq.read_schema(io.BytesIO(content.data))
        if field.name in source_names and _is_text(field.type)
    ]
    # Keep texts as dictionaries until measured: a long value repeated a million times is small only
    # in that form.
    file = pq.ParquetFile(copy_to_arrow(content.data), read_dictionary=texts)
    parts: list[list[pa.Array]] = [[] for _ in keys]
    size, row = 0, 1
    for batch in file.iter_batches(batch_size=BATCH, columns=source_names, use_threads=False):
        for part, key, values in zip(parts, keys, _flat_arrays(batch), strict=True):
            size += _measure_bytes(values, key, row, content.name)
            part.append(_simplify(values))
        if size > options.max_bytes:
            raise _size_error(size, content.name, options)
        row += batch.num_rows
    return {key: _to_series(pa.chunked_array(part)) for key, part in zip(keys, parts, strict=True)}


def _measure_bytes(values: pa.Array, column: str, row: int, name: str) -> int:
    """Return the bytes that values take when decoded, without decoding them.

    Raises
    ------
    TraceError
        If a text has too many characters.
    """
    if not pa.types.is_dictionary(values.type) or not _is_text(values.type.value_type):
        return int(values.nbytes)
    lengths = pc.binary_length(values.dictionary).take(values.indices)
    longest = pc.max(lengths).as_py() or 0
    # Count characters only if there are enough bytes.
    if longest > MAX_CELL_CHARS:
        letters = pc.utf8_length(_decode_text(values.dictionary)).take(values.indices)
        longest = pc.max(letters).as_py()
        if longest > MAX_CELL_CHARS:
            raise long_cell_error(name, column, row + pc.index(letters, longest).as_py(), longest)
    return (pc.sum(lengths).as_py() or 0) + 8 * len(values)


def _simplify(values: pa.Array) -> pa.Array:
    """Return values of a type that pandas holds without Python objects.

    Decimals become floats, durations float seconds, dates timestamps (missing outside the years
    1700 to 2200), and bytes and times of day text; dictionaries are decoded.
    """
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_dictionary(kind):
        return _simplify(
            values.storage if isinstance(kind, pa.BaseExtensionType) else values.dictionary_decode()
        )
    if pa.types.is_decimal(kind):
        return values.cast(pa.float64())
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _drop_implausible_times(
            values.cast(pa.timestamp("ms")) if pa.types.is_date(kind) else values
        )
    if pa.types.is_duration(kind):
        return pc.divide(values.cast(pa.int64()).cast(pa.float64(), safe=False), _PER_S[kind.unit])
    return (
        _decode_text(values)
        if _is_text(kind) or pa.types.is_time(kind) or pa.types.is_fixed_size_binary(kind)
        else values
    )


def _drop_implausible_times(values: pa.Array) -> pa.Array:
    """Return instants, with those outside the years 1700 to 2200 as missing."""
    counts, (first, last) = (
        values.cast(pa.int64()),
        (int(second * _PER_S[values.type.unit]) for second in PLAUSIBLE_TIMES),
    )
    return pc.if_else(
        pc.and_(pc.greater_equal(counts, first), pc.less_equal(counts, last)),
        values,
        pa.scalar(None, values.type),
    )


def _decode_text(values: pa.Array) -> pa.Array:
    """Return values as text; invalid UTF-8 becomes replacement characters."""
    try:
        texts = values.cast(pa.large_string())
        texts.validate(full=True)  # a text column may hold invalid bytes
    except pa.ArrowInvalid:
        cells = values.cast(pa.large_binary()).to_pylist()
        texts = pa.array(
            [None if cell is None else cell.decode("utf-8", "replace") for cell in cells],
            pa.large_string(),
        )
    return texts


def _to_series(values: pa.ChunkedArray) -> pd.Series:
    """Return values as a pandas Series; texts stay Arrow strings."""
    if pa.types.is_large_string(values.type):
        return pd.Series(pd.array(values, dtype=TEXT))
    return pd.Series(values.to_pandas())
