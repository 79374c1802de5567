"""Parquet files, measured before they are unfolded: a few kilobytes can claim terabytes."""

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

from jobtraces.readers.cells import REAL
from jobtraces.readers.content import Content, distinct, plain
from jobtraces.readers.draft import Report
from jobtraces.readers.options import ReadOptions, size_text
from jobtraces.readers.table import LONGEST_CELL, check_cells_number, check_rows, named, too_long
from sim.errors import TraceError

BATCH: Final = 20_000
SECONDS_KNOWN: Final = "seconds"
"""Attribute of a table: its columns that are lengths of time by their type, in seconds."""
_PER_S: Final = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
TEXT: Final = pd.StringDtype("pyarrow", na_value=np.nan)


def copy_to_arrow(data: bytes) -> pa.BufferReader:
    """Return bytes as a file of Arrow; the copy keeps Python objects from Arrow's threads.

    A thread that still holds one when the process ends can abort it
    (https://github.com/apache/arrow/issues/34314 and 50482).
    """
    return pa.BufferReader(pa.array([data], pa.large_binary()).buffers()[2])


def read_parquet(
    content: Content, options: ReadOptions, wanted: Collection[str]
) -> tuple[pd.DataFrame, Report]:
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
        asked = [name for name, key in flat if key in wanted]
        _refuse_bomb(file, asked, content, options)
        # Of two columns of one name both come.
        columns = _unfolded(content, [key for name, key in flat if name in asked], asked, options)
        columns = {key: values for key, values in columns.items() if key in wanted}
        frame = pd.DataFrame(columns, index=pd.RangeIndex(file.metadata.num_rows))
        nested = [plain(field.name) for field in file.schema_arrow if _is_nested(field)]
        names = list(dict.fromkeys([*(key for _, key in flat), *nested]))
        kinds = [field.type for field in file.schema_arrow if not _is_nested(field)]
        spans = [
            key for (_, key), kind in zip(flat, kinds, strict=True) if pa.types.is_duration(kind)
        ]
    frame.index = pd.RangeIndex(1, len(frame) + 1)
    frame = named(frame, names)
    frame.attrs[SECONDS_KNOWN] = spans
    return frame, Report(len(frame))


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
        _refuse_bomb(file, [name for name, _ in flat], content, options)
        batch = next(file.iter_batches(batch_size=rows, columns=[name for name, _ in flat]), None)
        keys = [key for _, key in flat]
        shown = (
            {}
            if batch is None
            else {key: _shown(values) for key, values in zip(keys, _columns(batch), strict=True)}
        )
    return pd.DataFrame(shown, columns=pd.Index(keys, dtype="str"), dtype="str")


def parquet_bytes(frame: pd.DataFrame) -> bytes:
    """Return a DataFrame as a Parquet file; named levels of its index become columns, unless it has
    a column of that name.
    """
    levels = [
        level for level in frame.index.names if level is not None and level not in frame.columns
    ]
    frame = pd.concat(
        [frame.index.to_frame(index=False)[levels], frame.reset_index(drop=True)], axis=1
    )
    arrays = [_arrow(frame.iloc[:, column]) for column in range(frame.shape[1])]
    target = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, names=list(map(str, frame.columns))), target)
    return target.getvalue()


def _arrow(values: pd.Series) -> pa.Array:
    """Return a column of a DataFrame as Arrow holds it; as text where its cells differ in type."""
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
    with _opened(content) as file:
        return [key for _, key in _flat(file)]


@contextmanager
def _opened(content: Content) -> Iterator[pq.ParquetFile]:
    try:
        yield pq.ParquetFile(copy_to_arrow(content.data))
    except (pa.ArrowException, OSError, ValueError) as error:
        first = (str(error).splitlines() or [""])[0][:120]
        raise TraceError(
            f"{content.name}: the Parquet file is damaged ({first}). Write it again."
        ) from error


def _is_nested(field: pa.Field) -> bool:
    return bool(pa.types.is_nested(field.type))


def _flat(file: pq.ParquetFile) -> list[tuple[str, str]]:
    """Return the columns that hold one value per row, in order: name as written, and `plain` name,
    numbered where it occurs again.
    """
    flat = [field.name for field in file.schema_arrow if not _is_nested(field)]
    return list(zip(flat, distinct(plain(name) for name in flat), strict=True))


def _columns(batch: pa.RecordBatch) -> list[pa.Array]:
    """Return the columns that were asked for by name; a nested one of the same name comes with
    them.
    """
    return [batch.column(at) for at, field in enumerate(batch.schema) if not _is_nested(field)]


def _shown(values: pa.Array) -> list[str]:
    plain_values = _plain(values)
    try:
        texts = plain_values.cast(pa.large_string()).to_pylist()
    except pa.ArrowException:
        texts = plain_values.to_pandas().astype("str").tolist()
    return [text if isinstance(text, str) else "" for text in texts]


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _refuse_bomb(
    file: pq.ParquetFile, columns: Collection[str], content: Content, options: ReadOptions
) -> None:
    meta, name, file_bytes = file.metadata, content.name, content.data
    check_rows(meta.num_rows, name, options)
    check_cells_number(meta.num_rows, len(columns), name, options)
    claimed = sum(meta.row_group(group).total_byte_size for group in range(meta.num_row_groups))
    if claimed > options.max_bytes:
        # A column that is not read costs nothing, however large.
        claimed = _claimed(file_bytes, columns, name)
    if claimed > options.max_bytes:
        raise _too_large(claimed, name, options)


_SIZES: Final = """
import io, sys
import pyarrow.parquet as pq
meta = pq.read_metadata(io.BytesIO(sys.stdin.buffer.read()))
chunks = [meta.row_group(group).column(at) for group in range(meta.num_row_groups) for at in range(meta.num_columns)]
print(sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in sys.argv[1:]))
"""  # noqa: E501


def _claimed(data: bytes, columns: Collection[str], name: str) -> int:
    """Return the size of some columns when unfolded, as a file says it; asked in a process of its
    own, because Arrow ends the process if that is damaged.
    """
    asked = subprocess.run(
        [sys.executable, "-c", _SIZES, *columns], input=data, capture_output=True, check=False
    )
    if asked.returncode:
        raise TraceError(
            f"{name}: the Parquet file is damaged (the sizes of its columns). Write it again."
        )
    return int(asked.stdout)


def _too_large(size: int, name: str, options: ReadOptions) -> TraceError:
    limit = size_text(options.max_bytes)
    return TraceError(
        f"{name}: the Parquet file unfolds to {size_text(size)} or more, the limit being {limit}."
        " Cut a window out of it."
    )


def _unfolded(
    content: Content, keys: list[str], asked: list[str], options: ReadOptions
) -> dict[str, pd.Series]:
    texts = [
        field.name
        for field in pq.read_schema(io.BytesIO(content.data))
        if field.name in asked and _is_text(field.type)
    ]
    # Texts stay dictionaries until measured: one long value repeated a million times is small only
    # as such.
    file = pq.ParquetFile(copy_to_arrow(content.data), read_dictionary=texts)
    parts: list[list[pa.Array]] = [[] for _ in keys]
    size, row = 0, 1
    for batch in file.iter_batches(batch_size=BATCH, columns=asked, use_threads=False):
        for part, key, values in zip(parts, keys, _columns(batch), strict=True):
            size += _measured(values, key, row, content.name)
            part.append(_plain(values))
        if size > options.max_bytes:
            raise _too_large(size, content.name, options)
        row += batch.num_rows
    return {key: _series(pa.chunked_array(part)) for key, part in zip(keys, parts, strict=True)}


def _measured(values: pa.Array, column: str, row: int, name: str) -> int:
    """Return the bytes that values take when unfolded, without unfolding them."""
    if not pa.types.is_dictionary(values.type) or not _is_text(values.type.value_type):
        return int(values.nbytes)
    lengths = pc.binary_length(values.dictionary).take(values.indices)
    longest = pc.max(lengths).as_py() or 0
    # A letter takes up to four bytes, so that this many letters have at least as many bytes.
    if longest > LONGEST_CELL:
        letters = pc.utf8_length(_text(values.dictionary)).take(values.indices)
        longest = pc.max(letters).as_py()
        if longest > LONGEST_CELL:
            raise too_long(name, column, row + pc.index(letters, longest).as_py(), longest)
    return (pc.sum(lengths).as_py() or 0) + 8 * len(values)


def _plain(values: pa.Array) -> pa.Array:
    """Return values of a kind that pandas holds without a Python object for each."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_dictionary(kind):
        return _plain(
            values.storage if isinstance(kind, pa.BaseExtensionType) else values.dictionary_decode()
        )
    if pa.types.is_decimal(kind):
        return values.cast(pa.float64())
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _real(values.cast(pa.timestamp("ms")) if pa.types.is_date(kind) else values)
    if pa.types.is_duration(kind):
        return pc.divide(values.cast(pa.int64()).cast(pa.float64(), safe=False), _PER_S[kind.unit])
    return (
        _text(values)
        if _is_text(kind) or pa.types.is_time(kind) or pa.types.is_fixed_size_binary(kind)
        else values
    )


def _real(values: pa.Array) -> pa.Array:
    """Return instants, those that are none of a job as missing."""
    since, (first, last) = (
        values.cast(pa.int64()),
        (int(second * _PER_S[values.type.unit]) for second in REAL),
    )
    return pc.if_else(
        pc.and_(pc.greater_equal(since, first), pc.less_equal(since, last)),
        values,
        pa.scalar(None, values.type),
    )


def _text(values: pa.Array) -> pa.Array:
    """Return values as text; bytes that are no UTF-8 become marks, as in text files."""
    try:
        made = values.cast(pa.large_string())
        made.validate(full=True)  # a column that says it is text may hold other bytes all the same
    except pa.ArrowInvalid:
        cells = values.cast(pa.large_binary()).to_pylist()
        made = pa.array(
            [None if cell is None else cell.decode("utf-8", "replace") for cell in cells],
            pa.large_string(),
        )
    return made


def _series(values: pa.ChunkedArray) -> pd.Series:
    if pa.types.is_large_string(values.type):
        return pd.Series(pd.array(values, dtype=TEXT))
    return pd.Series(values.to_pandas())
