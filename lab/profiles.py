"""Measured profiles of the user: kept under their content hash, found again where a scenario names one, and what one lacks for a trace."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lab import catalog
from lab.scenario import TraceSpec
from lab.sources import Source, load_source
from lab.store import Store
from lab.study import Study
from lab.words import plural
from sim.cluster import Cluster
from sim.demand import Demands, narrowed, pools_of
from sim.errors import ParameterError
from sim.params import Spec
from sim.perf import PerfSpec
from sim.perf.lookup import RELATIVE, Combination, Combinations, Finder, allowed, missing, speeds_of, used_types
from sim.perf.measured import BUILT_IN, MOST_BYTES, ProfileTable, read_profile
from sim.perf.profiled import STORED, Profiled, ProfiledModel
from sim.trace import Trace

__all__ = [
    "PROFILE_MB",
    "RELATIVE",
    "Fit",
    "Kept",
    "assumptions",
    "check",
    "from_file",
    "is_profiled",
    "localised",
    "measured_only",
    "models_of",
    "resolved",
    "table_of",
    "take",
    "with_table",
    "without_unmeasured",
]

PROFILE_MB: Final = MOST_BYTES // 1_000_000
_NAMED_TYPES: Final = 5
_ZERO: Final = "the throughput is 0 on every GPU type here"
_NO_ROOM: Final = "no GPU type on which such a job runs has room for a gang of that size, unless a policy mixes types"
_WAY_OUT: Final = "Such jobs count as impossible and stop nobody; add nodes of a type on which they run, or leave them."
_AT_HAND: Final[dict[str, ProfileTable]] = {}
"""Digest -> profile that the command line read from a file of this machine; these are not kept."""


class Kept(NamedTuple):
    """A profile of the user: what `table` of the performance model is set to, and the measurements."""

    source: str
    table: ProfileTable


@dataclass(frozen=True, eq=False)
class Fit:
    """What a profile knows of the jobs of a trace on a cluster.

    Parameters
    ----------
    missing : DataFrame
        Combinations without a measurement or with throughput 0, see `sim.perf.lookup.missing`; also those for which something stands in.
    unmeasured : array of bool of shape (jobs,)
        Jobs of which nothing is known on some GPU type that they may use, so that they stop the run.
    sentences : tuple of str
        Everything that a user must know before the run: who stops it, who can never start, what is strange.
    """

    missing: pd.DataFrame
    unmeasured: NDArray[np.bool_]
    sentences: tuple[str, ...]

    def lines(self, most: int = 5) -> tuple[str, ...]:
        """Return the first of the missing combinations as text, one line each."""
        rows = [{str(key): value for key, value in row.items()} for row in self.missing.head(most).to_dict("records")]
        told = [
            f"{Combination(row['model'], row['batch_size'], row['num_gpus'])} on {row['gpu_type']}: {row['why']} ({plural(row['jobs'], 'job')})" for row in rows
        ]
        more = len(self.missing) - len(rows)
        return (*told, f"and {plural(more, 'combination')} more") if more > 0 else tuple(told)

    @property
    def runs(self) -> bool:
        """Whether the run can begin."""
        return not self.unmeasured.any()


def take(data: bytes, name: str, store: Store) -> Kept:
    """Read a CSV file and keep its measurements.

    Raises
    ------
    TrainyardError
        If the file cannot be used, in one sentence, or the store cannot be written.
    """
    table = read_profile(data, name)
    content = _content(table)
    digest = _digest(content)
    store.put_profile(digest, content, {"name": name, "notes": list(table.notes)})
    return Kept(STORED + digest, table)


def with_table(perf: Spec, kept: Kept, cluster: Cluster) -> Spec:
    """Return a performance model that uses a profile of the user; a reference type and a stand-in that the profile lacks are replaced or taken away."""
    values = dict(perf.values) | {"table": kept.source}
    types = kept.table.types
    if values.get("reference", Profiled.reference) not in types:
        values["reference"] = next((kind for kind in used_types(cluster) if kind in types), types[0])
    if values.get("stand_in", "") not in ("", RELATIVE, *kept.table.models.values()):
        del values["stand_in"]
    return Spec.of(perf.name, **values)


def models_of(perf: Spec, store: Store | None = None) -> tuple[str, ...]:
    """Return the models that a profile has measurements of, as written there.

    Raises
    ------
    ParameterError
        As `resolved`.
    """
    made = resolved(perf, store)
    return tuple(sorted(made.measurements().models.values(), key=str.lower)) if isinstance(made, Profiled) else ()


def from_file(perf: Spec) -> Spec:
    """Return a performance model whose table is the path of a file with the content hash in its place; other models as they are.

    Notes
    -----
    For the command line only. The measurements stay in this process and are not kept, so a scenario with the hash runs elsewhere where the file was uploaded.

    Raises
    ------
    ParameterError
        If the file cannot be read or used.
    """
    path = str(perf.values.get("table", ""))
    if not is_profiled(perf) or path in ("", *BUILT_IN) or path.startswith(STORED):
        return perf
    try:
        if Path(path).stat().st_size > MOST_BYTES:
            raise ParameterError(f"{path}: the file is larger than the {PROFILE_MB} MB that a profile may have. Cut rows out.")
        table = read_profile(Path(path).read_bytes(), Path(path).name)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ParameterError(f"{path}: the profile cannot be opened ({why}). Check the path, or choose one of {', '.join(BUILT_IN)}.") from error
    digest = _digest(_content(table))
    _AT_HAND[digest] = table
    return Spec.of(perf.name, **(perf.values | {"table": STORED + digest}))


def localised(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario or study as JSON in which a profile that is named by its path is named by its content; see `from_file`.

    Raises
    ------
    ParameterError
        As `from_file`.
    """
    made = dict(document)
    if isinstance(made.get("base"), Mapping):
        return made | {"base": localised(made["base"])}
    perf = made.get("perf")
    if isinstance(perf, str) or (isinstance(perf, Mapping) and "name" in perf and isinstance(perf.get("params", {}), Mapping)):
        made["perf"] = from_file(Spec.parse(perf) if isinstance(perf, str) else Spec.from_json(perf)).to_json()
    return made


def is_profiled(perf: Spec) -> bool:
    """Tell whether a performance model works from measured throughputs per GPU type."""
    return catalog.is_model(perf, Profiled)


def resolved(perf: Spec, store: Store | None = None) -> PerfSpec:
    """Build a performance model, with the user's profile where it names one.

    Parameters
    ----------
    perf : Spec
        Name and parameters.
    store : Store or None
        Where profiles are kept; None = the default store.

    Raises
    ------
    ParameterError
        If a parameter cannot be used, or the profile is not here any more.
    """
    made: PerfSpec = catalog.instance("perf", perf)
    if not isinstance(made, Profiled) or not made.table.startswith(STORED):
        return made
    return replace(made, own=table_of(made.table, store))


def table_of(source: str, store: Store | None = None) -> ProfileTable:
    """Return the profile of the user behind ``store:DIGEST``.

    Raises
    ------
    ParameterError
        If it is not here any more, or damaged.
    """
    digest = source.removeprefix(STORED)
    return _AT_HAND[digest] if digest in _AT_HAND else _kept(digest, str((store or Store()).root))


def assumptions(perf: Spec, trace: Trace, store: Store | None = None) -> tuple[str, ...]:
    """Return what a performance model assumes of a trace, as `lab.catalog.assumptions`, also with a profile of the user.

    Raises
    ------
    ParameterError
        As `resolved`.
    """
    return resolved(perf, store).assumptions(trace)


def check(perf: Spec, trace: Trace, cluster: Cluster, store: Store | None = None) -> Fit | None:
    """Return what a profile knows of the jobs of a trace; None if the performance model has no profile.

    Raises
    ------
    ParameterError
        As `resolved`.
    """
    made = resolved(perf, store)
    if not isinstance(made, Profiled):
        return None
    table = made.measurements()
    gaps = _gaps(made, trace, cluster)
    said = [*_unmeasured_said(gaps.unmeasured, trace), *_never_said(gaps.nowhere, _ZERO, trace), *_never_said(gaps.too_large, _NO_ROOM, trace)]
    return Fit(missing(trace, cluster, table), gaps.unmeasured, (*said, *_types_said(made, table, trace, cluster)))


def without_unmeasured(study: Study, store: Store) -> Study:
    """Return the study without the jobs of which its profile knows too little; the rest is kept as a trace of its own, with its account.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded, no job is left, or the store cannot be written.
    """
    spec = study.base.trace
    source = load_source(spec, store)
    kept = measured_only(source, study.base.perf, study.base.cluster, store)
    if kept is source:
        return study
    digest = store.put_trace(kept.trace, kept.account)
    # Seconds count from the first submission, which may be another one now.
    dropped = _unmeasured(study.base.perf, source.trace, study.base.cluster, store)
    moved_s = float(source.trace.numbers("submit_time_s")[~dropped][0])
    trace = TraceSpec(f"store:{digest}", from_s=max(spec.from_s - moved_s, 0.0), to_s=spec.to_s - moved_s, load=spec.load)
    return replace(study, base=replace(study.base, trace=trace))


def measured_only(source: Source, perf: Spec, cluster: Cluster, store: Store | None = None) -> Source:
    """Return a source without the jobs of which a profile knows too little, and with their number in its account; the very source if there are none.

    Raises
    ------
    ParameterError
        If no job is left, or as `resolved`.
    """
    trace = source.trace
    bad = _unmeasured(perf, trace, cluster, store)
    count = int(bad.sum())
    if not count:
        return source
    if count == len(trace):
        raise ParameterError(f"The profile knows none of the {plural(len(trace), 'job')} of {trace.name}. Let something stand in, or bring another profile.")
    left = Trace.of(trace.frame[~bad].reset_index(drop=True), name=trace.name, epoch=trace.epoch)
    reason = {"action": "dropped", "reason": "no throughput was measured of such a job", "rows": count}
    counts = {"used": len(left), "dropped": source.account.get("dropped", 0) + count, "reasons": [*source.account.get("reasons", ()), reason]}
    named = {"format": "measured", "title": "only jobs whose throughput was measured", "file": source.account.get("file", trace.name)}
    return Source(left, {**source.account, **counts, **named})


def _unmeasured(perf: Spec, trace: Trace, cluster: Cluster, store: Store | None) -> NDArray[np.bool_]:
    made = resolved(perf, store)
    return _gaps(made, trace, cluster).unmeasured if isinstance(made, Profiled) else np.zeros(len(trace), bool)


class _Gaps(NamedTuple):
    """Which jobs `Profiled.bind` refuses; of the others, which have throughput 0 wherever they may run, and which gangs fit nowhere else."""

    unmeasured: NDArray[np.bool_]
    nowhere: NDArray[np.bool_]
    too_large: NDArray[np.bool_]


def _gaps(spec: Profiled, trace: Trace, cluster: Cluster) -> _Gaps:
    combinations, names = Combinations(trace), [kind.name for kind in cluster.types]
    finder = Finder(spec.measurements(), spec.stand_in, spec.reference, speeds_of(cluster))
    model = ProfiledModel(spec, trace, cluster, finder, combinations)
    on_gpus = trace.numbers("num_gpus") > 0
    may = allowed(trace, names) & np.isin(names, used_types(cluster)) & on_gpus[:, None]
    rates = model.alone[combinations.group]
    unknown = (np.isnan(rates) & may).any(axis=1) | np.isnan(model.work())
    admitted = may.any(axis=1) & ~unknown
    nowhere = admitted & ~((np.nan_to_num(rates) > 0) & may).any(axis=1)
    held = ~Demands(narrowed(trace, cluster, model.fits()), cluster, pools_of(cluster)).impossible(mixed=False)
    return _Gaps(np.asarray(unknown, bool), np.asarray(nowhere, bool), np.asarray(admitted & ~nowhere & ~held, bool))


def _unmeasured_said(bad: NDArray[np.bool_], trace: Trace) -> list[str]:
    if not bad.any():
        return []
    first = trace.frame["job_id"].iloc[int(np.flatnonzero(bad)[0])]
    return [
        f"Nothing was measured of {int(bad.sum()):,} of {plural(len(trace), 'job')} on some GPU type that they may use; the first is job {first}. "
        "No run can begin until something stands in for them or they are left out."
    ]


def _never_said(never: NDArray[np.bool_], why: str, trace: Trace) -> list[str]:
    if not never.any():
        return []
    first = trace.frame["job_id"].iloc[int(np.flatnonzero(never)[0])]
    return [f"{plural(int(never.sum()), 'job')} can never start, because {why}; the first is job {first}. {_WAY_OUT}"]


def _types_said(spec: Profiled, table: ProfileTable, trace: Trace, cluster: Cluster) -> list[str]:
    said = []
    recorded = trace.texts("gpu_type")
    strange = {str(kind): int((recorded.codes == at).sum()) for at, kind in enumerate(recorded.categories) if kind and kind not in table.types}
    strange = {kind: jobs for kind, jobs in strange.items() if jobs}
    if strange:
        said.append(f"The profile does not know GPU types on which jobs were recorded: {_counted(strange)}.")
    wanted = trace.texts("gpu_types_allowed")
    there = set(used_types(cluster))
    absent = {str(text): int((wanted.codes == at).sum()) for at, text in enumerate(wanted.categories) if text and not there & set(str(text).split("|"))}
    absent = {text.replace("|", " or "): jobs for text, jobs in absent.items() if jobs}
    if absent:
        said.append(f"The cluster has no GPU of the types that jobs ask for: {_counted(absent)}. They can never start.")
    lacking = [kind for kind in used_types(cluster) if kind not in table.types]
    if lacking:
        instead = " Those of other types stand in, times the relative speed on the Cluster page." if spec.stand_in else ""
        said.append(f"The profile has no measurement on {', '.join(lacking)}, of which this cluster has nodes.{instead}")
    return said


def _counted(jobs: Mapping[str, int]) -> str:
    ordered = sorted(jobs.items(), key=lambda item: -item[1])
    told = ", ".join(f"{name[:40]} ({plural(count, 'job')})" for name, count in ordered[:_NAMED_TYPES])
    return f"{told} and {len(ordered) - _NAMED_TYPES} more" if len(ordered) > _NAMED_TYPES else told


def _content(table: ProfileTable) -> bytes:
    return table.to_frame().to_csv(index=False, lineterminator="\n").encode()


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@lru_cache(maxsize=8)
def _kept(digest: str, root: str) -> ProfileTable:
    found = Store(Path(root)).get_profile(digest)
    if found is None:
        raise ParameterError(
            f"The profile {digest[:12]} is not kept on this machine (any more). Upload its file again, or choose one of {', '.join(BUILT_IN)}."
        )
    content, about = found
    if _digest(content) != digest:
        raise ParameterError(f"The kept profile {digest[:12]} was changed on the disk. Load its file again.")
    table = read_profile(content, str(about.get("name", "profile")))
    return replace(table, notes=tuple(map(str, about.get("notes", ()))))
