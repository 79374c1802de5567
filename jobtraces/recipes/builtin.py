"""Built-in tables that recipes can join, such as measured throughputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from jobtraces.readers.cells import numbers
from sim.perf.lookup import RELATIVE, Combination, Finder
from sim.perf.measured import ANY_BATCH, ProfileTable, built_in, split_name
from sim.perf.profiles import plain

MEASURED_ON: Final = "v100"


class Builtin(NamedTuple):
    """A table with rows computed for the kinds of jobs in a file.

    Parameters
    ----------
    keys, columns : tuple of str
        Names of the key columns of a kind of job, and of the computed columns.
    rows : callable
        Maps one row of keys (as texts) per kind to the computed columns, in the same order.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    rows: Callable[[pd.DataFrame], pd.DataFrame]


class _Throughput(NamedTuple):
    """Throughput of one kind of job, the batch size assumed for it, and other assumptions."""

    throughput: float
    batch_taken: float
    assumed: Sequence[str] = ()


def _throughput_rows(kinds: pd.DataFrame) -> pd.DataFrame:
    """Return model, batch size and iterations/s in Gavel's table for each kind of job.

    Also the batch size assumed if none is known (else NaN), and the names of all assumptions. The
    batch size of one GPU comes from the job type, else from the given column.
    """
    table = built_in("simulation")
    models = [split_name(str(name)) for name in kinds["job_type"]]
    given_batches = numbers(kinds["batch"]).to_numpy()
    batches = [
        size if np.isfinite(size) else given
        for (_, size), given in zip(models, given_batches, strict=True)
    ]
    gpus = numbers(kinds["gpus"])
    speeds = [
        _lookup_throughput(table, model, batch, count)
        for (model, _), batch, count in zip(models, batches, gpus, strict=True)
    ]
    return pd.DataFrame(
        {
            "model": [model for model, _ in models],
            "batch_size": batches,
            "throughput": [speed.throughput for speed in speeds],
            "batch_taken": [speed.batch_taken for speed in speeds],
            "assumed": [" ".join(speed.assumed) for speed in speeds],
        }
    )


def _lookup_throughput(table: ProfileTable, model: str, batch: float, gpus: float) -> _Throughput:
    """Return the throughput of one kind of job in Gavel's table, with its assumptions.

    NaN without a GPU count; for an unknown model the median of all models; for an unknown batch
    size that of the middle one measured.
    """
    if not np.isfinite(gpus):
        return _Throughput(np.nan, np.nan)
    batches = table.batches(plain(model))
    if not batches:
        return _Throughput(_median_throughput(table, gpus), np.nan, ("model",))
    batch_is_unknown = bool(np.isnan(batch)) and batches != (ANY_BATCH,)
    size = batches[len(batches) // 2] if batch_is_unknown else batch
    lookup = Finder(table, RELATIVE, MEASURED_ON, {}).find(
        Combination(model, size, max(1, int(np.ceil(gpus)))), MEASURED_ON
    )
    return _Throughput(
        lookup.measured.together,
        size if batch_is_unknown else np.nan,
        (*lookup.assumed, "silent") if batch_is_unknown else lookup.assumed,
    )


def _median_throughput(table: ProfileTable, gpus: float) -> float:
    """Return the median throughput of all models and batch sizes at a GPU count.

    In iterations per second.
    """
    throughputs = [
        _lookup_throughput(table, model, batch or np.nan, gpus).throughput
        for model in table.models
        for batch in table.batches(model)
    ]
    return float(np.median(throughputs))


BUILTIN: Final[Mapping[str, Builtin]] = {
    "gavel_throughputs": Builtin(
        ("job_type", "batch", "gpus"),
        ("model", "batch_size", "throughput", "batch_taken", "assumed"),
        _throughput_rows,
    )
}
