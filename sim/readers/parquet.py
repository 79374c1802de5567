"""Parquet files, measured before they are unfolded: a few kilobytes can claim terabytes."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sim.errors import TraceError
from sim.readers.format import ReadOptions
from sim.readers.report import Report
from sim.readers.sniff import plain
from sim.readers.source import Content
from sim.readers.table import check_rows


def read_parquet(content: Content, options: ReadOptions, wanted: Collection[str]) -> tuple[pd.DataFrame, Report]:
    """Read the wanted flat columns of a Parquet file.

    Parameters
    ----------
    content : Content
        The file.
    options : ReadOptions
        Holds the limits.
    wanted : collection of str
        `plain` names; other columns come back empty, so that they can be named but take no memory.

    Returns
    -------
    DataFrame
        Columns under plain names, index = 1-based row.
    Report
        Of this import.

    Raises
    ------
    TraceError
        If the file is damaged or unfolds to more than the limits.
    """
    with _opened(content) as file:
        flat = _flat(file)
        columns = [name for name, key in flat.items() if key in wanted]
        _refuse_bomb(file, columns, content.name, options)
        texts = [field.name for field in file.schema_arrow if field.name in columns and _is_text(field.type)]
        # Texts stay dictionaries until measured: one long value repeated a million times is small only as such.
        folded = pq.read_table(io.BytesIO(content.data), columns=columns, read_dictionary=texts, use_threads=False)
        _refuse_wide(folded, content.name, options)
        frame = folded.to_pandas(ignore_metadata=True)
    for name in texts:
        frame[name] = frame[name].astype("str")
    frame.columns = pd.Index([flat[name] for name in columns])
    frame.index = pd.RangeIndex(1, len(frame) + 1)
    others = [plain(field.name) for field in file.schema_arrow if field.name not in columns]
    report = Report(len(frame))
    if others:
        report.guess(f"Columns not used: {', '.join(others[:20])}{' and more' if len(others) > 20 else ''}.")
    return frame, report


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
    claimed = sum(meta.row_group(at).total_byte_size for at in range(meta.num_row_groups))
    unfolded = max(claimed, meta.num_rows * max(1, len(columns)) * 8)
    if unfolded > options.max_bytes:
        raise TraceError(
            f"{name}: the Parquet file unfolds to {unfolded / 1e6:,.0f} MB, more than the limit of {options.max_bytes / 1e6:,.0f} MB. Cut a window out of it."
        )


def _refuse_wide(table: pa.Table, name: str, options: ReadOptions) -> None:
    for column, values in zip(table.column_names, table.columns, strict=True):
        if not pa.types.is_dictionary(values.type):
            continue
        longest = max((pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0 for chunk in values.chunks), default=0)
        if longest * len(values) > options.max_bytes:
            raise TraceError(f"{name}: column {column} holds texts of {longest:,} bytes in {len(values):,} rows. Remove the column.")
