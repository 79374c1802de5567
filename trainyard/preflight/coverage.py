"""What a measured profile lacks for the jobs of a trace: who cannot run, said before the run, and
the ways out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.demand import Demands, narrowed, pools_of
from sim.errors import ParameterError
from sim.params import Spec
from sim.perf.lookup import (
    RELATIVE,
    Combination,
    Combinations,
    Finder,
    allowed,
    missing,
    speeds_of,
    used_types,
)
from sim.perf.measured import ProfileTable
from sim.perf.profiled import Profiled, ProfiledModel
from sim.trace import Trace
from trainyard.clusters import machines
from trainyard.preflight.leave_out import on_the_rest, without
from trainyard.store import Store
from trainyard.store.profiles import resolved
from trainyard.study.study import Study
from trainyard.text import counted, plural
from trainyard.traces.sources import Source, load_source

_ZERO: Final = "the throughput is 0 on every GPU type here"
_NO_ROOM: Final = (
    "no GPU type on which such a job runs has room for a gang of that size, unless a policy mixes"
    " types"
)
_WAY_OUT: Final = (
    "Such jobs count as impossible and delay no other job; add nodes of a type on"
    " which they run, or keep them as they are."
)
_STOPPED: Final = "No run can begin until something stands in for them or they are left out."
_NO_WORK: Final = (
    "No run can begin until they are left out, the trace has their iterations (total_steps), or"
    " another reference is chosen."
)


@dataclass(frozen=True, eq=False)
class ProfileCoverage:
    """What a profile knows of the jobs of a trace on a cluster.

    Parameters
    ----------
    missing : DataFrame
        Combinations without a measurement or with throughput 0, see `sim.perf.lookup.missing`; also
        those for which something stands in.
    unmeasured : array of bool of shape (jobs,)
        Jobs that stop the run: nothing is known of them on some GPU type that they may use, or not
        how much work they are.
    helped : mapping of int
        What could stand in, `RELATIVE` or "" for a model -> how many of those jobs would run then;
        only what helps.
    sentences : tuple of str
        Everything that a user must know before the run: who stops it, who can never start, what is
        strange.
    """

    missing: pd.DataFrame
    unmeasured: NDArray[np.bool_]
    helped: Mapping[str, int]
    sentences: tuple[str, ...]

    @property
    def heading(self) -> str:
        """What stands above `lines`; "" if nothing is missing."""
        count = len(self.missing)
        if not count:
            return ""
        what, runs = (
            ("combination", "is not in the profile, or does")
            if count == 1
            else ("combinations", "are not in the profile, or do")
        )
        most = plural(int(self.missing["jobs"].max()), "job")
        return (
            f"{count:,} {what} of model, batch size, GPUs and GPU type {runs} not run there: up to"
            f" {most} each."
        )

    def lines(self, most: int = 5) -> tuple[str, ...]:
        """Return the first of the missing combinations as text, one line each."""
        rows = [
            {str(key): value for key, value in row.items()}
            for row in self.missing.head(most).to_dict("records")
        ]
        lines = [
            f"{Combination(row['model'], row['batch_size'], row['num_gpus'])} on {row['gpu_type']}:"
            f" {row['why']} ({plural(row['jobs'], 'job')})"
            for row in rows
        ]
        more = len(self.missing) - len(rows)
        return (*lines, f"and {plural(more, 'combination')} more") if more > 0 else tuple(lines)

    @property
    def runs(self) -> bool:
        """Whether the run can begin."""
        return not self.unmeasured.any()


def check(
    perf: Spec, trace: Trace, cluster: Cluster, store: Store | None = None
) -> ProfileCoverage | None:
    """Return what a profile knows of the jobs of a trace; None if the performance model has no
    profile.

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
    sentences = [
        *_stopped_said(gaps, trace),
        *_never_said(gaps.nowhere, _ZERO, trace),
        *_never_said(gaps.too_large, _NO_ROOM, trace),
    ]
    types = (*_types_said(made, table, trace, cluster), *machines.absent_types(trace, cluster))
    return ProfileCoverage(
        missing(trace, cluster, table),
        gaps.stopped,
        _helped(made, trace, cluster, gaps.stopped),
        (*sentences, *types),
    )


def without_unmeasured(study: Study, store: Store) -> Study:
    """Return the study without the jobs of which its profile knows too little; the rest is kept as
    a trace of its own, with its account.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded, no job is left, or the store cannot be written.
    """
    source = load_source(study.base.trace, store)
    kept = measured_only(source, study.base.perf, study.base.cluster, store)
    if kept is source:
        return study
    return on_the_rest(
        study, kept, _unmeasured(study.base.perf, source.trace, study.base.cluster, store), store
    )


def measured_only(
    source: Source, perf: Spec, cluster: Cluster, store: Store | None = None
) -> Source:
    """Return a source without the jobs of which a profile knows too little, and with their number
    in its account; the very source if there are none.

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
        raise ParameterError(
            f"The profile knows none of the {plural(len(trace), 'job')} of {trace.name}. Let"
            " something stand in, or bring another profile."
        )
    named = {"format": "measured", "title": "only jobs whose throughput was measured"}
    return without(source, bad, "no throughput was measured of such a job", named)


def _unmeasured(
    perf: Spec, trace: Trace, cluster: Cluster, store: Store | None
) -> NDArray[np.bool_]:
    made = resolved(perf, store)
    return (
        _gaps(made, trace, cluster).stopped
        if isinstance(made, Profiled)
        else np.zeros(len(trace), bool)
    )


class _Gaps(NamedTuple):
    """Which jobs `Profiled.bind` refuses, and why; of the others, which have throughput 0 wherever
    they may run, and which gangs fit nowhere else.
    """

    unmeasured: NDArray[np.bool_]
    workless: NDArray[np.bool_]
    nowhere: NDArray[np.bool_]
    too_large: NDArray[np.bool_]

    @property
    def stopped(self) -> NDArray[np.bool_]:
        return self.unmeasured | self.workless


def _gaps(spec: Profiled, trace: Trace, cluster: Cluster) -> _Gaps:
    combinations, names = Combinations(trace), [kind.name for kind in cluster.types]
    finder = Finder(spec.measurements(), spec.stand_in, spec.reference, speeds_of(cluster))
    model = ProfiledModel(spec, trace, cluster, finder, combinations)
    on_gpus = trace.numbers("num_gpus") > 0
    may = allowed(trace, names) & np.isin(names, used_types(cluster)) & on_gpus[:, None]
    rates = model.alone[combinations.group]
    unmeasured = np.asarray((np.isnan(rates) & may).any(axis=1), bool)
    workless = np.asarray(np.isnan(model.work()) & ~unmeasured, bool)
    admitted = may.any(axis=1) & ~unmeasured & ~workless
    nowhere = admitted & ~((np.nan_to_num(rates) > 0) & may).any(axis=1)
    held = ~Demands(
        narrowed(trace, cluster, model.fits()), cluster, pools_of(cluster)
    ).unschedulable(mixed=False)
    return _Gaps(
        unmeasured,
        workless,
        np.asarray(nowhere, bool),
        np.asarray(admitted & ~nowhere & ~held, bool),
    )


def _helped(
    spec: Profiled, trace: Trace, cluster: Cluster, stopped: NDArray[np.bool_]
) -> dict[str, int]:
    if not stopped.any():
        return {}
    # Which model stands in does not matter for whom it helps: those whose own model the table
    # lacks.
    tried = {RELATIVE: RELATIVE, "": next(iter(sorted(spec.measurements().models.values())))}
    found = {
        way: int((stopped & ~_gaps(replace(spec, stand_in=value), trace, cluster).stopped).sum())
        for way, value in tried.items()
    }
    return {
        way: jobs
        for way, jobs in found.items()
        if jobs and jobs > (found[RELATIVE] if not way else 0)
    }


def _stopped_said(gaps: _Gaps, trace: Trace) -> list[str]:
    unmeasured, workless = (
        f"{int(bad.sum()):,} of {plural(len(trace), 'job')}"
        for bad in (gaps.unmeasured, gaps.workless)
    )
    sentences = []
    if gaps.unmeasured.any():
        sentences.append(
            f"Nothing was measured of {unmeasured} on some GPU type that they may use; the first is"
            f" job {_first(gaps.unmeasured, trace)}. {_STOPPED}"
        )
    if gaps.workless.any():
        where = (
            "the profile has no throughput above 0 on the GPU type on which their duration was"
            " measured"
        )
        sentences.append(
            f"The work of {workless} is not known, because {where}; the first is job"
            f" {_first(gaps.workless, trace)}. {_NO_WORK}"
        )
    return sentences


def _first(bad: NDArray[np.bool_], trace: Trace) -> str:
    return str(trace.frame["job_id"].iloc[int(np.flatnonzero(bad)[0])])


def _never_said(never: NDArray[np.bool_], why: str, trace: Trace) -> list[str]:
    if not never.any():
        return []
    return [
        f"{plural(int(never.sum()), 'job')} can never start, because {why}; the first is job"
        f" {_first(never, trace)}. {_WAY_OUT}"
    ]


def _types_said(spec: Profiled, table: ProfileTable, trace: Trace, cluster: Cluster) -> list[str]:
    sentences = []
    recorded = trace.texts("gpu_type")
    strange = {
        str(kind): int((recorded.codes == at).sum())
        for at, kind in enumerate(recorded.categories)
        if kind and kind not in table.types
    }
    strange = {kind: jobs for kind, jobs in strange.items() if jobs}
    if strange:
        sentences.append(
            f"The profile does not know GPU types on which jobs were recorded: {counted(strange)}."
        )
    lacking = [kind for kind in used_types(cluster) if kind not in table.types]
    if lacking:
        instead = (
            " Those of other types stand in, times the relative speed on the Cluster page."
            if spec.stand_in
            else ""
        )
        sentences.append(
            f"The profile has no measurement on {', '.join(lacking)}, of which this cluster has"
            f" nodes.{instead}"
        )
    return sentences
