"""Reads only what a run without a record needs from a native Parquet file, one row group after the
other: traces that do not fit into memory as tables.
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

_READ: Final = {"submit_time_s": np.float64, "num_gpus": np.int64, "duration_s": np.float64}
_MORE: Final = ("priority", "time_limit_s")
_DECISIVE: Final = ("gpu_type", "gpu_types_allowed", "cpus", "mem_gb")
_WAY: Final = "Run it without --summary-only, or convert it first (python -m trainyard convert)."


def read_bare(path: Path) -> Trace:
    """Return the jobs of a Parquet file in the native schema, without ids and names.

    Parameters
    ----------
    path : Path
        The file: in order of submission, times in seconds, nothing to be mended.

    Raises
    ------
    TraceError
        If it cannot be read so.
    """
    try:
        with pq.ParquetFile(path) as file:
            columns = _columns(file, path)
    except (OSError, pa.ArrowException) as error:
        raise TraceError(f"{path}: this is no Parquet file that can be read ({error}).") from error
    submit_s, gpus, duration_s = (columns[name] for name in _READ)
    for wrong, what in (
        (not len(submit_s), "holds no job"),
        (not np.isfinite(submit_s).all(), "holds a submission that is not a finite number"),
        (bool((np.diff(submit_s) < 0).any()), "is not in order of submission"),
        (bool((gpus < 0).any()), "holds a job with fewer than 0 GPUs"),
        (
            not bool(((duration_s > 0) & (duration_s <= LATEST_S)).all()),
            f"holds a run time outside 0 to {LATEST_S:g} s",
        ),
    ):
        if wrong:
            raise TraceError(f"{path}: the file {what}. {_WAY}")
    columns["submit_time_s"] = instants(submit_s - submit_s[0])
    if columns["submit_time_s"][-1] > LATEST_S:
        raise TraceError(f"{path}: the file spans more than {LATEST_S:g} s. {_WAY}")
    return Trace(pd.DataFrame(columns, copy=False), path.stem)


def _columns(file: pq.ParquetFile, path: Path) -> dict[str, NDArray[np.float64]]:
    names = set(file.schema_arrow.names)
    missing = [name for name in _READ if name not in names]
    if missing:
        raise TraceError(f"{path}: column {missing[0]} is missing. {_WAY}")
    decisive = [name for name in _DECISIVE if name in names]
    if decisive:
        raise TraceError(f"{path}: column {decisive[0]} would play a part. {_WAY}")
    wanted = [*_READ, *(name for name in _MORE if name in names)]
    columns = {
        name: np.empty(file.metadata.num_rows, _READ.get(name, np.float64)) for name in wanted
    }
    row = 0
    for at in range(file.num_row_groups):
        group = file.read_row_group(at, columns=wanted)
        for name in wanted:
            column = group.column(name)
            if name in _READ and column.null_count:
                raise TraceError(f"{path}: column {name} has empty cells. {_WAY}")
            values = column.cast(pa.from_numpy_dtype(columns[name].dtype)).to_numpy()
            columns[name][row : row + len(group)] = values
        row += len(group)
    return columns
