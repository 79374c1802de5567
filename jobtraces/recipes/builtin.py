"""Tables of this package that recipes join: their rows follow from what the jobs of a file are."""

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
    """A table whose rows are made for the kinds of jobs in a file.

    Parameters
    ----------
    keys, columns : tuple of str
        Names of what tells kinds of jobs apart, and of what is told of each.
    rows : callable
        One row of keys as texts for each kind -> the columns, row by row.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    rows: Callable[[pd.DataFrame], pd.DataFrame]


class _Speed(NamedTuple):
    """What the table of throughputs says of one kind of job."""

    throughput: float
    batch_taken: float
    assumed: Sequence[str] = ()


def _throughputs(kinds: pd.DataFrame) -> pd.DataFrame:
    """Return model and batch size of one GPU, as the type names it, else the batch size given, and
    the iterations per second in Gavel's table with what was assumed for them.
    """
    table = built_in("simulation")
    named = [split_name(str(name)) for name in kinds["job_type"]]
    given = numbers(kinds["batch"]).to_numpy()
    batches = [
        size if np.isfinite(size) else other for (_, size), other in zip(named, given, strict=True)
    ]
    gpus = numbers(kinds["gpus"])
    speeds = [
        _speed(table, model, batch, count)
        for (model, _), batch, count in zip(named, batches, gpus, strict=True)
    ]
    return pd.DataFrame(
        {
            "model": [model for model, _ in named],
            "batch_size": batches,
            "throughput": [speed.throughput for speed in speeds],
            "batch_taken": [speed.batch_taken for speed in speeds],
            "assumed": [" ".join(speed.assumed) for speed in speeds],
        }
    )


def _speed(table: ProfileTable, model: str, batch: float, gpus: float) -> _Speed:
    if not np.isfinite(gpus):
        return _Speed(np.nan, np.nan)
    known = table.batches(plain(model))
    if not known:
        return _Speed(_median(table, gpus), np.nan, ("model",))
    silent = bool(np.isnan(batch)) and known != (ANY_BATCH,)
    size = known[len(known) // 2] if silent else batch
    found = Finder(table, RELATIVE, MEASURED_ON, {}).find(
        Combination(model, size, max(1, int(np.ceil(gpus)))), MEASURED_ON
    )
    return _Speed(
        found.measured.together,
        size if silent else np.nan,
        (*found.assumed, "silent") if silent else found.assumed,
    )


def _median(table: ProfileTable, gpus: float) -> float:
    each = [
        _speed(table, model, batch or np.nan, gpus).throughput
        for model in table.models
        for batch in table.batches(model)
    ]
    return float(np.median(each))


BUILTIN: Final[Mapping[str, Builtin]] = {
    "gavel_throughputs": Builtin(
        ("job_type", "batch", "gpus"),
        ("model", "batch_size", "throughput", "batch_taken", "assumed"),
        _throughputs,
    )
}
