"""Stored results with lazily loaded frames, and conversion of frames to Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from math import nan
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from jobtraces.readers.parquet import copy_to_arrow
from sim.result import RunResult, Timing
from trainyard.store.files import Files, StoreError

FRAMES: Final = (
    "jobs",
    "segments",
    "placements",
    "decisions",
    "notes",
    "outages",
    "failures",
    "usage",
)

_WRONG: Final = (ValueError, LookupError, TypeError, AttributeError)
"""Exceptions that reading damaged tables or metadata raises."""


@dataclass(frozen=True)
class StoredResult:
    """A stored result; frames are read on access.

    Parameters
    ----------
    key : str
        Key of the scenario.
    files : Files
        Files of the frames.
    rows : mapping
        Name of a frame -> number of rows.
    summary : mapping
        Name of a metric -> number.
    scenario : mapping
        `Scenario.to_json`.
    provenance : mapping
        Versions, time of creation, digest of the result.
    """

    key: str
    files: Files
    rows: Mapping[str, int]
    summary: Mapping[str, Any]
    scenario: Mapping[str, Any]
    provenance: Mapping[str, Any]

    def chart(self, name: str) -> pd.DataFrame:
        """Return a binned frame of `trainyard.runs.frames.chart_frames`.

        Raises
        ------
        StoreError
            If it is missing or damaged.
        """
        return self._frame(f"chart-{name}")

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks of the allocator on the run."""
        return tuple(self.provenance["result"]["remarks"])

    def jobs(self) -> pd.DataFrame:
        """Return one row per job; reads no other frame.

        Raises
        ------
        StoreError
            If it is missing or damaged.
        """
        return self._frame("jobs")

    @property
    def engine(self) -> str:
        """Engine of the run, see `sim.result.Timing`."""
        return str(self.provenance["timing"].get("engine", "kernel"))

    def result(self) -> RunResult:
        """Return the full result, after comparing its digest; a damaged one is removed.

        Raises
        ------
        StoreError
            If a frame is missing or damaged.
        """
        try:
            took: dict[str, Any] = {
                name: nan if value is None else value  # null = not measured
                for name, value in self.provenance["timing"].items()
            }
            facts: dict[str, Any] = {name: self._frame(name) for name in FRAMES} | dict(
                self.provenance["result"]
            )
            facts |= {
                "end_s": float(facts["end_s"]),
                "remarks": self.remarks,
                "timing": Timing(**took),
            }
            result = RunResult(**facts)
            same = result.digest() == self.provenance["digest"]
        except _WRONG as error:
            raise self._remove_damaged("its metadata") from error
        if not same:
            raise self._remove_damaged("its contents changed")
        return result

    def check(self) -> None:
        """Read all frames and verify the digest.

        Raises
        ------
        StoreError
            If a frame, including those of charts, is missing or damaged.
        """
        self.result()
        for name in self.rows.keys() - set(FRAMES):
            self._frame(name)

    def _frame(self, name: str) -> pd.DataFrame:
        """Return a frame from its Parquet file, with the categories of empty columns.

        Raises StoreError if it is missing; a damaged result is removed.
        """
        try:
            frame = read_frame(self.files.read(self.key, f"{name}.parquet"))
            # Parquet drops the categories of an empty table.
            for column, categories in self.provenance["categories"].get(name, {}).items():
                if (
                    not isinstance(frame[column].dtype, pd.CategoricalDtype)
                    or list(frame[column].cat.categories) != categories
                ):
                    frame[column] = pd.Categorical(frame[column], categories=categories)
        except FileNotFoundError as error:
            raise StoreError(
                f"The stored result {self.key[:12]} was removed, or has no frame '{name}'. Run the"
                " scenario again."
            ) from error
        except (OSError, *_WRONG) as error:
            raise self._remove_damaged(name) from error
        return frame

    def _remove_damaged(self, what: str) -> StoreError:
        """Remove the files of a damaged result; return the error to raise."""
        self.files.remove(self.key)
        return StoreError(
            f"The stored result {self.key[:12]} was damaged ({what}) and is removed. Run the"
            " scenario again."
        )


def column_categories(frame: pd.DataFrame) -> dict[str, list[str]]:
    """Return column -> categories of the categorical columns."""
    return {
        str(name): list(map(str, kind.categories))
        for name, kind in zip(frame.columns, frame.dtypes, strict=True)
        if isinstance(kind, pd.CategoricalDtype)
    }


def parquet_size(data: bytes) -> tuple[int, int]:
    """Return rows and minimum bytes in memory of a Parquet file, from its metadata only.

    Raises
    ------
    ValueError, OSError
        If the data are not a Parquet file.
    """
    about = pq.read_metadata(BytesIO(data))
    parts = [about.row_group(at) for at in range(about.num_row_groups)]
    values = sum(
        max(part.num_rows, part.column(at).num_values)
        for part in parts
        for at in range(part.num_columns)
    )
    return max(about.num_rows, sum(part.num_rows for part in parts)), 8 * values


def read_frame(data: bytes) -> pd.DataFrame:
    """Return the frame of a Parquet file."""
    return pd.read_parquet(
        copy_to_arrow(data), engine="pyarrow", to_pandas_kwargs={"use_threads": False}
    )


def to_parquet(frame: pd.DataFrame) -> bytes:
    """Return a frame of numbers, texts and categories as a Parquet file."""
    buffer, table = BytesIO(), _arrow_table(frame)
    # Numbers rarely repeat and are never searched by value: no dictionaries, no statistics.
    repeated = [
        name
        for name, of in zip(table.schema.names, table.schema.types, strict=True)
        if not (pa.types.is_floating(of) or pa.types.is_integer(of))
    ]
    pq.write_table(
        table, buffer, compression="lz4", use_dictionary=repeated, write_statistics=False
    )
    return buffer.getvalue()


def _arrow_table(frame: pd.DataFrame) -> pa.Table:
    """Return a frame as an Arrow table."""
    kinds = tuple(frame.dtypes)
    schema = _schema(tuple(frame.columns), kinds)
    if any(pa.types.is_null(getattr(of, "value_type", of)) for of in schema.types):
        # The type of object columns depends on their values.
        return pa.Table.from_pandas(frame, preserve_index=False, nthreads=1)
    columns = [
        pa.array(
            column.to_numpy() if isinstance(kind, np.dtype) else column.array,
            type=of,
            from_pandas=True,
        )
        for (_, column), kind, of in zip(frame.items(), kinds, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


@lru_cache(maxsize=64)
def _schema(names: tuple[str, ...], kinds: tuple[Any, ...]) -> pa.Schema:
    """Return the Arrow schema of columns; cached, as it costs more than writing the frame."""
    empty = {name: pd.Series([], dtype=kind) for name, kind in zip(names, kinds, strict=True)}
    return pa.Schema.from_pandas(pd.DataFrame(empty), preserve_index=False)
