"""Read only the columns of a native Parquet file that a summary run needs.

Reads one row group after another, for traces that do not fit into memory as tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sim.clock import LATEST_S, instants
from sim.errors import TraceError
from sim.trace import Trace

_REQUIRED: Final = {"submit_time_s": np.float64, "num_gpus": np.int64, "duration_s": np.float64}
_OPTIONAL: Final = ("priority", "time_limit_s")
_UNSUPPORTED: Final = ("gpu_type", "gpu_types_allowed", "cpus", "mem_gb")
_ADVICE: Final = "Run it without --summary-only, or convert it first (python -m trainyard convert)."


def read_minimal_trace(path: Path) -> Trace:
    """Return the jobs of a native Parquet file without ids and names, starting at second 0.

    Parameters
    ----------
    path : Path
        File in order of submission, with times in seconds and no invalid values.

    Raises
    ------
    TraceError
        If it cannot be read this way.
    """
    try:
        with pq.ParquetFile(path) as file:
            columns = _read_columns(file, path)
    except (OSError, pa.ArrowException) as error:
        raise TraceError(
            f"{path}: the Parquet file cannot be read ({error}). Check the file."
        ) from error
    submit_s, gpus, duration_s = (columns[name] for name in _REQUIRED)
    for is_wrong, fault in (
        (not len(submit_s), "holds no job"),
        (not np.isfinite(submit_s).all(), "holds a submission that is not a finite number"),
        (bool((np.diff(submit_s) < 0).any()), "is not in order of submission"),
        (bool((gpus < 0).any()), "holds a job with fewer than 0 GPUs"),
        (
            not bool(((duration_s > 0) & (duration_s <= LATEST_S)).all()),
            f"holds a run time outside 0 to {LATEST_S:g} s",
        ),
    ):
        if is_wrong:
            raise TraceError(f"{path}: the file {fault}. {_ADVICE}")
    columns["submit_time_s"] = instants(submit_s - submit_s[0])
    if columns["submit_time_s"][-1] > LATEST_S:
        raise TraceError(f"{path}: the file spans more than {LATEST_S:g} s. {_ADVICE}")
    return Trace(pd.DataFrame(columns, copy=False), path.stem)


def _read_columns(file: pq.ParquetFile, path: Path) -> dict[str, NDArray[np.float64]]:
    """Return the needed columns as arrays, read one row group after another.

    Raises an error for a missing column, an empty cell, or a column that affects the schedule.
    """
    names = set(file.schema_arrow.names)
    missing = [name for name in _REQUIRED if name not in names]
    if missing:
        raise TraceError(f"{path}: column {missing[0]} is missing. {_ADVICE}")
    decisive = [name for name in _UNSUPPORTED if name in names]
    if decisive:
        raise TraceError(f"{path}: column {decisive[0]} would affect the schedule. {_ADVICE}")
    names_read = [*_REQUIRED, *(name for name in _OPTIONAL if name in names)]
    columns = {
        name: np.empty(file.metadata.num_rows, _REQUIRED.get(name, np.float64))
        for name in names_read
    }
    row = 0
    for index in range(file.num_row_groups):
        group = file.read_row_group(index, columns=names_read)
        for name in names_read:
            column = group.column(name)
            if name in _REQUIRED and column.null_count:
                raise TraceError(f"{path}: column {name} has empty cells. {_ADVICE}")
            values = column.cast(pa.from_numpy_dtype(columns[name].dtype)).to_numpy()
            columns[name][row : row + len(group)] = values
        row += len(group)
    return columns
