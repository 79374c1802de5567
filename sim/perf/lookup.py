"""Lookup of measured throughputs for the jobs of a trace, with fallbacks for missing rows."""

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
"""Value of `stand_in` that fills gaps of known models but does not replace unknown models."""
NOT_KNOWN: Final = Measured(math.nan, math.nan)
KINDS: Final[Mapping[str, str]] = {
    "model": "model",
    "batch": "batch size",
    "gpu_type": "GPU type",
    "gpus": "number of GPUs",
}
"""Key that a table may lack -> its label, the most fundamental first."""
RUNS_NOT: Final = "throughput is 0: the job does not fit there"
GAP_COLUMNS: Final = ("model", "batch_size", "num_gpus", "gpu_type", "jobs", "first_job", "why")


class Combination(NamedTuple):
    """Model, batch size and GPUs: the keys of a throughput, except the GPU type."""

    model: str
    batch: float  # per GPU; NaN = unknown
    gpus: int

    def __str__(self) -> str:
        """Return the combination as text for users."""
        batch = "" if math.isnan(self.batch) else f", batch size {self.batch:g}"
        model = self.model or "model not given"
        return f"{model}{batch}, {self.gpus} GPU{'s' if self.gpus > 1 else ''}"


class LookupResult(NamedTuple):
    """A throughput, and the keys of `KINDS` that were assumed for it."""

    measured: Measured
    assumed: tuple[str, ...] = ()


class Combinations:
    """The distinct combinations of a trace, and the index of each job's.

    Attributes
    ----------
    each : tuple of Combination
        The distinct combinations, in no particular order.
    group : array of shape (jobs,)
        Index in `each`; ``len(each)`` for CPU jobs.
    """

    def __init__(self, trace: Trace) -> None:
        models = trace.texts("model")
        names = [split_name(str(name)) for name in models.categories]
        batch = trace.numbers("batch_size")
        # A name such as "LM (batch size 5)" gives the batch size if the column does not.
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
        """Return the number of jobs per combination."""
        return np.bincount(self.group, minlength=len(self.each) + 1)[:-1].astype(np.int64)


@dataclass(frozen=True)
class Finder:
    """Throughputs of a table, with fallbacks for missing ones.

    Parameters
    ----------
    table : ProfileTable
        The measurements.
    stand_in : str
        "" = no stand-ins. Else, in this order: an unknown model is replaced by the model named here
        (`RELATIVE` names none); a batch size by the nearest measured one of the model, a missing
        one by the middle; a GPU type by another, with their relative speeds; a number of GPUs by
        the largest measured below it (or the smallest), at the same speed per GPU.
    reference : str
        GPU type that is tried first as a stand-in.
    speeds : mapping
        GPU type -> relative speed.
    """

    table: ProfileTable
    stand_in: str
    reference: str
    speeds: Mapping[str, float]

    def __post_init__(self) -> None:
        """Refuse a `stand_in` model that is not in the table."""
        model = plain(split_name(self.stand_in)[0])
        if self.stand_in not in {"", RELATIVE} and not self.table.batches(model):
            model_names = ", ".join(self.table.models.values())
            raise ParameterError(
                f"profiled: stand_in: the table has no model '{self.stand_in}'. It has:"
                f" {model_names}; or write {RELATIVE}."
            )

    def find(self, wanted: Combination, gpu_type: str) -> LookupResult:
        """Return iterations per second of a combination on a type; NaN without a fallback."""
        row = self.table.find(plain(wanted.model), wanted.batch, wanted.gpus, gpu_type)
        if row is not None or not self.stand_in:
            return LookupResult(row or NOT_KNOWN)
        model, batch, assumed = self._fallback_job(wanted)
        if not model:
            return LookupResult(NOT_KNOWN)
        kind, speed, by_type = self._fallback_type(model, batch, gpu_type)
        size, share, by_size = self._fallback_size(model, batch, wanted.gpus, kind)
        row = self.table.rows.get(Key(model, batch, size, kind), NOT_KNOWN)
        factor = speed * share
        return LookupResult(
            Measured(row.together * factor, row.spread * factor), assumed + by_type + by_size
        )

    def gap(self, wanted: Combination, gpu_type: str) -> str:
        """Return the key of `KINDS` that the table lacks for a combination; "" = none."""
        model = plain(wanted.model)
        if self.table.find(model, wanted.batch, wanted.gpus, gpu_type) is not None:
            return ""
        batches = self.table.batches(model)
        batch = ANY_BATCH if batches == (ANY_BATCH,) else wanted.batch
        if not batches:
            return "model"
        if batch not in batches:
            return "batch"
        return "gpus" if self.table.sizes(model, batch, gpu_type) else "gpu_type"

    def _fallback_job(self, wanted: Combination) -> tuple[str, float, tuple[str, ...]]:
        """Return model, batch size and assumed keys of a fallback row; model "" = none."""
        model, batch, assumed = plain(wanted.model), wanted.batch, tuple[str, ...]()
        if not self.table.batches(model):
            if self.stand_in == RELATIVE:
                return "", batch, ()
            name, named = split_name(self.stand_in)
            model, batch, assumed = plain(name), batch if math.isnan(named) else named, ("model",)
        batches = self.table.batches(model)
        if batches == (ANY_BATCH,):
            return model, ANY_BATCH, assumed
        if batch in batches:
            return model, batch, assumed
        known_sizes = [size for size in batches if size != ANY_BATCH]
        nearest = (
            known_sizes[len(known_sizes) // 2]
            if math.isnan(batch)
            else min(known_sizes, key=lambda size: abs(math.log(size / max(batch, 1.0))))
        )
        return model, nearest, (*assumed, "batch") if "model" not in assumed else assumed

    def _fallback_type(
        self, model: str, batch: float, gpu_type: str
    ) -> tuple[str, float, tuple[str, ...]]:
        """Return the GPU type, relative speed and assumed keys of a type's fallback row.

        The first measured type, with the reference type before all others.
        """
        if self.table.sizes(model, batch, gpu_type):
            return gpu_type, 1.0, ()
        ordered = dict.fromkeys((self.reference, *self.table.types))
        kind = next(kind for kind in ordered if self.table.sizes(model, batch, kind))
        return kind, self.speeds.get(gpu_type, 1.0) / self.speeds.get(kind, 1.0), ("gpu_type",)

    def _fallback_size(
        self, model: str, batch: float, gpus: int, kind: str
    ) -> tuple[int, float, tuple[str, ...]]:
        """Return the size, speed ratio and assumed keys of a size's fallback row.

        The largest measured size below, else the smallest; the ratio keeps the speed per GPU.
        """
        sizes = self.table.sizes(model, batch, kind)
        if gpus in sizes:
            return gpus, 1.0, ()
        size = max([size for size in sizes if size < gpus], default=sizes[0])
        return size, gpus / size, ("gpus",)


def speeds_of(cluster: Cluster) -> dict[str, float]:
    """Return GPU type -> relative speed: that of the cluster, else that of the catalog."""
    return {name: kind.speed for name, kind in KNOWN_TYPES.items()} | {
        kind.name: kind.speed for kind in cluster.types
    }


def allowed_types(
    trace: Trace, types: Sequence[str]
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Return whether ``gpu_types_allowed`` admits each type, of shape (jobs, types)."""
    texts = trace.texts("gpu_types_allowed")
    admits = np.array(
        [[not text or kind in str(text).split("|") for kind in types] for text in texts.categories],
        bool,
    ).reshape(len(texts.categories), len(types))
    return np.asarray(admits[texts.codes], bool)


def used_types(cluster: Cluster) -> tuple[str, ...]:
    """Return the GPU types with GPUs in a cluster, in its order."""
    present = {node.gpu_type for node in cluster.nodes if node.gpus}
    return tuple(kind.name for kind in cluster.types if kind.name in present)


def missing_combinations(trace: Trace, cluster: Cluster, table: ProfileTable) -> pd.DataFrame:
    """Return the combinations of a trace that a table lacks on a cluster's types.

    Parameters
    ----------
    trace : Trace
        The jobs; types that a job does not admit are not needed.
    cluster : Cluster
        The machines.
    table : ProfileTable
        The measurements.

    Returns
    -------
    DataFrame
        One row per combination and type, with the columns of `GAP_COLUMNS`: number of such jobs, id
        of the first, and `why`, a clause without a full stop: the missing key, or that the
        throughput is 0. Most jobs first.
    """
    combinations, types = Combinations(trace), used_types(cluster)
    finder = Finder(table, "", "", {})
    admits = allowed_types(trace, types)
    ids = trace.frame["job_id"]
    lines = []
    for combination_index, wanted in enumerate(combinations.each):
        has_combination = combinations.group == combination_index
        for type_index, kind in enumerate(types):
            rows = np.flatnonzero(has_combination & admits[:, type_index])
            why = _gap_reason(finder, wanted, kind)
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


def _gap_reason(finder: Finder, wanted: Combination, kind: str) -> str:
    """Return why a combination cannot run on a type, as a clause; "" = it can."""
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
    """Return iterations per second on one server and on several; NaN = unknown.

    Both of shape (combinations, types).
    """
    measurements = [[finder.find(one, kind).measured for kind in types] for one in wanted]
    values = np.array(measurements, np.float64).reshape(len(wanted), len(types), 2)
    return values[:, :, 0], values[:, :, 1]
