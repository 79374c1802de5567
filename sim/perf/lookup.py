"""From jobs to rows of a table of measured throughputs: which combinations a trace holds, and what
stands in for those that were not measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from sim.cluster import KNOWN_TYPES, Cluster
from sim.contract import Floats, Ints
from sim.errors import ParameterError
from sim.perf.measured import ANY_BATCH, Key, Measured, ProfileTable, split_name
from sim.perf.profiles import plain
from sim.trace import Trace

RELATIVE: Final = "relative"
"""Value of `stand_in` that fills gaps of known models without taking one model for another."""
NOT_KNOWN: Final = Measured(math.nan, math.nan)
KINDS: Final[Mapping[str, str]] = {
    "model": "model",
    "batch": "batch size",
    "gpu_type": "GPU type",
    "gpus": "number of GPUs",
}
"""What may be missing in a table -> in words, the most fundamental first."""
RUNS_NOT: Final = "throughput is 0: the job does not fit there"
GAP_COLUMNS: Final = ("model", "batch_size", "num_gpus", "gpu_type", "jobs", "first_job", "why")


class Combination(NamedTuple):
    """What the throughput of a job depends on, but for the GPU type."""

    model: str
    batch: float  # of one GPU; NaN = not given
    gpus: int

    def __str__(self) -> str:
        """Write it as a user reads it."""
        batch = "" if math.isnan(self.batch) else f", batch size {self.batch:g}"
        model = self.model or "model not given"
        return f"{model}{batch}, {self.gpus} GPU{'s' if self.gpus > 1 else ''}"


class LookupResult(NamedTuple):
    """A throughput, and what about it was assumed: keys of `KINDS`."""

    measured: Measured
    assumed: tuple[str, ...] = ()


class Combinations:
    """The distinct combinations of a trace, and which one each job has.

    Attributes
    ----------
    each : tuple of Combination
        In no particular order.
    group : array of shape (jobs,)
        Place in `each`; that of CPU jobs is ``len(each)``.
    """

    def __init__(self, trace: Trace) -> None:
        models = trace.texts("model")
        names = [split_name(str(name)) for name in models.categories]
        batch = trace.numbers("batch_size")
        # A name such as "LM (batch size 5)" says the batch size where the column does not.
        batch = np.where(
            np.isnan(batch), np.array([named for _, named in names])[models.codes], batch
        )
        gpus = trace.numbers("num_gpus")
        rows = np.stack(
            [models.codes.astype(np.float64), np.where(np.isnan(batch), -1.0, batch), gpus], axis=1
        )
        distinct, group = np.unique(rows[gpus > 0], axis=0, return_inverse=True)
        self.each = tuple(
            Combination(names[int(code)][0], size if size >= 0 else math.nan, int(count))
            for code, size, count in distinct.tolist()
        )
        self.group: Ints = np.full(len(trace), len(self.each), np.int64)
        self.group[gpus > 0] = group.reshape(-1)
        self.group.flags.writeable = False

    def counts(self) -> Ints:
        """Return the jobs of each combination."""
        return np.bincount(self.group, minlength=len(self.each) + 1)[:-1].astype(np.int64)


@dataclass(frozen=True)
class Finder:
    """Throughputs of a table, with stand-ins for missing ones.

    Parameters
    ----------
    table : ProfileTable
        The measurements.
    stand_in : str
        "" = nothing stands in. Else, in this order: a model that the table lacks is taken for the
        model named here (`RELATIVE` names none); a batch size for the nearest measured of the
        model, none for the middle one; a GPU type for another, by their relative speeds; a number
        of GPUs for the largest measured below it (or the smallest), at the same speed per GPU.
    reference : str
        GPU type that others are compared with first.
    speeds : mapping
        GPU type -> relative speed.
    """

    table: ProfileTable
    stand_in: str
    reference: str
    speeds: Mapping[str, float]

    def __post_init__(self) -> None:
        """Refuse a stand-in that is not in the table."""
        model = plain(split_name(self.stand_in)[0])
        if self.stand_in not in {"", RELATIVE} and not self.table.batches(model):
            known = ", ".join(self.table.models.values())
            raise ParameterError(
                f"profiled: the table has no model '{self.stand_in}' to stand in. It has: {known};"
                f" or write {RELATIVE}."
            )

    def find(self, wanted: Combination, gpu_type: str) -> LookupResult:
        """Return iterations per second of a combination on a type; NaN where nothing stands in."""
        row = self.table.find(plain(wanted.model), wanted.batch, wanted.gpus, gpu_type)
        if row is not None or not self.stand_in:
            return LookupResult(row or NOT_KNOWN)
        model, batch, assumed = self._job(wanted)
        if not model:
            return LookupResult(NOT_KNOWN)
        kind, speed, by_type = self._type(model, batch, gpu_type)
        size, share, by_size = self._size(model, batch, wanted.gpus, kind)
        row = self.table.rows.get(Key(model, batch, size, kind), NOT_KNOWN)
        factor = speed * share
        return LookupResult(
            Measured(row.together * factor, row.spread * factor), assumed + by_type + by_size
        )

    def gap(self, wanted: Combination, gpu_type: str) -> str:
        """Return what the table lacks of a combination: a key of `KINDS`, "" if nothing."""
        model = plain(wanted.model)
        if self.table.find(model, wanted.batch, wanted.gpus, gpu_type) is not None:
            return ""
        known = self.table.batches(model)
        batch = ANY_BATCH if known == (ANY_BATCH,) else wanted.batch
        if not known:
            return "model"
        if batch not in known:
            return "batch"
        return "gpus" if self.table.sizes(model, batch, gpu_type) else "gpu_type"

    def _job(self, wanted: Combination) -> tuple[str, float, tuple[str, ...]]:
        model, batch, assumed = plain(wanted.model), wanted.batch, tuple[str, ...]()
        if not self.table.batches(model):
            if self.stand_in == RELATIVE:
                return "", batch, ()
            name, named = split_name(self.stand_in)
            model, batch, assumed = plain(name), batch if math.isnan(named) else named, ("model",)
        known = self.table.batches(model)
        if known == (ANY_BATCH,):
            return model, ANY_BATCH, assumed
        if batch in known:
            return model, batch, assumed
        named_ones = [size for size in known if size != ANY_BATCH]
        nearest = (
            named_ones[len(named_ones) // 2]
            if math.isnan(batch)
            else min(named_ones, key=lambda size: abs(math.log(size / max(batch, 1.0))))
        )
        return model, nearest, (*assumed, "batch") if "model" not in assumed else assumed

    def _type(self, model: str, batch: float, gpu_type: str) -> tuple[str, float, tuple[str, ...]]:
        if self.table.sizes(model, batch, gpu_type):
            return gpu_type, 1.0, ()
        ordered = dict.fromkeys((self.reference, *self.table.types))
        kind = next(kind for kind in ordered if self.table.sizes(model, batch, kind))
        return kind, self.speeds.get(gpu_type, 1.0) / self.speeds.get(kind, 1.0), ("gpu_type",)

    def _size(
        self, model: str, batch: float, gpus: int, kind: str
    ) -> tuple[int, float, tuple[str, ...]]:
        sizes = self.table.sizes(model, batch, kind)
        if gpus in sizes:
            return gpus, 1.0, ()
        size = max([size for size in sizes if size < gpus], default=sizes[0])
        return size, gpus / size, ("gpus",)


def speeds_of(cluster: Cluster) -> dict[str, float]:
    """Return the relative speeds of the known GPU types, replaced and extended by those of a
    cluster.
    """
    return {name: kind.speed for name, kind in KNOWN_TYPES.items()} | {
        kind.name: kind.speed for kind in cluster.types
    }


def allowed(trace: Trace, types: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Return which GPU types each job admits by its column ``gpu_types_allowed``, of shape (jobs,
    types).
    """
    texts = trace.texts("gpu_types_allowed")
    admits = np.array(
        [[not text or kind in str(text).split("|") for kind in types] for text in texts.categories],
        bool,
    ).reshape(len(texts.categories), len(types))
    return np.asarray(admits[texts.codes], bool)


def used_types(cluster: Cluster) -> tuple[str, ...]:
    """Return the GPU types of which a cluster has GPUs, in its order."""
    there = {node.gpu_type for node in cluster.nodes if node.gpus}
    return tuple(kind.name for kind in cluster.types if kind.name in there)


def missing(trace: Trace, cluster: Cluster, table: ProfileTable) -> pd.DataFrame:
    """List the combinations of a trace that a table lacks on the types of a cluster, and those that
    do not run there.

    Parameters
    ----------
    trace : Trace
        The jobs; a type that a job does not admit is not asked for.
    cluster : Cluster
        The machines.
    table : ProfileTable
        The measurements.

    Returns
    -------
    DataFrame
        One row per combination and type, with the columns of `GAP_COLUMNS`: the number of such
        jobs, the id of the first, and `why`, a sentence without its stop: what the table lacks, or
        that the throughput is 0. Most jobs first.
    """
    combinations, types = Combinations(trace), used_types(cluster)
    finder = Finder(table, "", "", {})
    admits = allowed(trace, types)
    ids = trace.frame["job_id"]
    lines = []
    for place, wanted in enumerate(combinations.each):
        of_this = combinations.group == place
        for at, kind in enumerate(types):
            rows = np.flatnonzero(of_this & admits[:, at])
            why = _why(finder, wanted, kind)
            if why and len(rows):
                lines.append(
                    (
                        wanted.model,
                        wanted.batch,
                        wanted.gpus,
                        kind,
                        len(rows),
                        str(ids.iloc[rows[0]]),
                        why,
                    )
                )
    frame = pd.DataFrame(lines, columns=list(GAP_COLUMNS))
    return frame.sort_values(
        ["jobs", "model", "batch_size", "num_gpus"],
        ascending=[False, True, True, True],
        kind="stable",
        ignore_index=True,
    )


def _why(finder: Finder, wanted: Combination, kind: str) -> str:
    gap = finder.gap(wanted, kind)
    if gap:
        return (
            f"the table lacks this {KINDS[gap]}"
            if gap != "model" or wanted.model
            else "the job names no model"
        )
    return "" if finder.find(wanted, kind).measured.together else RUNS_NOT


def rates_of(
    finder: Finder, wanted: Sequence[Combination], types: Sequence[str]
) -> tuple[Floats, Floats]:
    """Return iterations per second on one server and spread over several, both of shape
    (combinations, types); NaN = not known.
    """
    found = [[finder.find(one, kind).measured for kind in types] for one in wanted]
    values = np.array(found, np.float64).reshape(len(wanted), len(types), 2)
    return values[:, :, 0], values[:, :, 1]
