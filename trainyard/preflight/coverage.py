"""Coverage of a measured profile: jobs that it cannot run, and suggestions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.demand import Demands, group_into_pools, limit_gpu_types
from sim.errors import ParameterError
from sim.params import Spec
from sim.perf.lookup import (
    RELATIVE,
    Combination,
    Combinations,
    Finder,
    allowed_types,
    missing_combinations,
    speeds_of,
    used_types,
)
from sim.perf.measured import ProfileTable
from sim.perf.profiled import Profiled, ProfiledModel
from sim.trace import Trace
from trainyard.clusters import machines
from trainyard.formatting import job_counts, plural
from trainyard.preflight.leave_out import drop_jobs, with_remaining_jobs
from trainyard.store import Store
from trainyard.store.profiles import build_model
from trainyard.study.study import Study
from trainyard.traces.sources import Source, load_source

_ZERO: Final = "the throughput is 0 on every GPU type here"
_NO_ROOM: Final = (
    "no GPU type on which they run has room for a gang of that size, unless a policy mixes types"
)
_NEVER_STARTS_ADVICE: Final = (
    "They count as impossible and delay no other job. Add nodes of a type on"
    " which they run, or keep them."
)
_STOPPED: Final = "Substitute their throughput or leave these jobs out before the run."
_NO_WORK: Final = (
    "Leave them out, add their iterations (total_steps) to the trace, or choose another"
    " reference before the run."
)


@dataclass(frozen=True, eq=False)
class ProfileCoverage:
    """Coverage of the jobs of a trace by a profile on a cluster.

    Parameters
    ----------
    missing : DataFrame
        Combinations without a measurement or with throughput 0, see
        `sim.perf.lookup.missing_combinations`; also those with a substitute.
    unmeasured : array of bool of shape (jobs,)
        Jobs that prevent the run: their throughput on an allowed GPU type, or their amount of work,
        is unknown.
    helped : mapping of int
        Substitute (`RELATIVE`, or "" for a model) -> number of those jobs that could run with it,
        if any.
    sentences : tuple of str
        Messages before the run: jobs that prevent it, jobs that can never start, and unusual data.
    """

    missing: pd.DataFrame
    unmeasured: NDArray[np.bool_]
    helped: Mapping[str, int]
    sentences: tuple[str, ...]

    @property
    def heading(self) -> str:
        """Heading of `lines`, with the number of missing combinations; "" without any."""
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
        """Return the first `most` missing combinations as lines, then how many are left."""
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
        """Whether the run can start."""
        return not self.unmeasured.any()


def profile_coverage(
    perf: Spec, trace: Trace, cluster: Cluster, store: Store | None = None
) -> ProfileCoverage | None:
    """Return the coverage of a trace by a profile; None for models without a profile.

    Raises
    ------
    ParameterError
        If a parameter of the model is invalid, or the profile was deleted.
    """
    model = build_model(perf, store)
    if not isinstance(model, Profiled):
        return None
    table = model.measurements()
    gaps = _find_gaps(model, trace, cluster)
    sentences = [
        *_stopped_messages(gaps, trace),
        *_never_start_messages(gaps.nowhere, _ZERO, trace),
        *_never_start_messages(gaps.too_large, _NO_ROOM, trace),
    ]
    types = (
        *_type_messages(model, table, trace, cluster),
        *machines.describe_absent_types(trace, cluster),
    )
    return ProfileCoverage(
        missing_combinations(trace, cluster, table),
        gaps.stopped,
        _count_helped_jobs(model, trace, cluster, gaps.stopped),
        (*sentences, *types),
    )


def without_unmeasured(study: Study, store: Store) -> Study:
    """Return the study without jobs that its profile does not cover; store the covered jobs.

    Unchanged if the profile covers all jobs.

    The remaining jobs are stored as a trace with its own reading report.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded, no job is left, or the store cannot be written.
    """
    source = load_source(study.base.trace, store)
    measured = measured_only(source, study.base.perf, study.base.cluster, store)
    if measured is source:
        return study
    return with_remaining_jobs(
        study,
        measured,
        _uncovered_jobs(study.base.perf, source.trace, study.base.cluster, store),
        store,
    )


def measured_only(
    source: Source, perf: Spec, cluster: Cluster, store: Store | None = None
) -> Source:
    """Return a source without jobs that a profile does not cover, unchanged if there are none.

    Their number is added to the reading report.

    Raises
    ------
    ParameterError
        If no job is left, or as for `profile_coverage`.
    """
    trace = source.trace
    bad = _uncovered_jobs(perf, trace, cluster, store)
    count = int(bad.sum())
    if not count:
        return source
    if count == len(trace):
        raise ParameterError(
            f"The profile covers none of the {plural(len(trace), 'job')} of {trace.name}. Choose a"
            " substitute or another profile."
        )
    named = {"format": "measured", "title": "only jobs whose throughput was measured"}
    return drop_jobs(source, bad, "no throughput was measured of such a job", named)


def _uncovered_jobs(
    perf: Spec, trace: Trace, cluster: Cluster, store: Store | None
) -> NDArray[np.bool_]:
    """Return a mask of the jobs that a profile does not cover; all False for other models."""
    model = build_model(perf, store)
    return (
        _find_gaps(model, trace, cluster).stopped
        if isinstance(model, Profiled)
        else np.zeros(len(trace), bool)
    )


class _Gaps(NamedTuple):
    """Jobs that a profile cannot run, by reason.

    The four sets are disjoint: no measurement, unknown work, zero throughput everywhere, gang too
    large.
    """

    unmeasured: NDArray[np.bool_]
    workless: NDArray[np.bool_]
    nowhere: NDArray[np.bool_]
    too_large: NDArray[np.bool_]

    @property
    def stopped(self) -> NDArray[np.bool_]:
        """Jobs that prevent the run."""
        return self.unmeasured | self.workless


def _find_gaps(spec: Profiled, trace: Trace, cluster: Cluster) -> _Gaps:
    """Return masks of the jobs that a profile cannot run on a cluster, by reason."""
    combinations, names = Combinations(trace), [kind.name for kind in cluster.types]
    finder = Finder(spec.measurements(), spec.stand_in, spec.reference, speeds_of(cluster))
    model = ProfiledModel(spec, trace, cluster, finder, combinations)
    on_gpus = trace.numbers("num_gpus") > 0
    may = allowed_types(trace, names) & np.isin(names, used_types(cluster)) & on_gpus[:, None]
    rates = model.alone[combinations.group]
    unmeasured = np.asarray((np.isnan(rates) & may).any(axis=1), bool)
    workless = np.asarray(np.isnan(model.work()) & ~unmeasured, bool)
    admitted = may.any(axis=1) & ~unmeasured & ~workless
    nowhere = admitted & ~((np.nan_to_num(rates) > 0) & may).any(axis=1)
    held = ~Demands(
        limit_gpu_types(trace, cluster, model.fits()), cluster, group_into_pools(cluster)
    ).unschedulable(mixed=False)
    return _Gaps(
        unmeasured,
        workless,
        np.asarray(nowhere, bool),
        np.asarray(admitted & ~nowhere & ~held, bool),
    )


def _count_helped_jobs(
    spec: Profiled, trace: Trace, cluster: Cluster, stopped: NDArray[np.bool_]
) -> dict[str, int]:
    """Return how many stopped jobs could run with `RELATIVE`, and with some model (key "").

    A number of 0 is left out; that of a model also if it is not above that of `RELATIVE`.
    """
    if not stopped.any():
        return {}
    # Any model helps the same jobs: those whose own model is missing.
    tried = {RELATIVE: RELATIVE, "": next(iter(sorted(spec.measurements().models.values())))}
    helped = {
        stand_in: int(
            (stopped & ~_find_gaps(replace(spec, stand_in=value), trace, cluster).stopped).sum()
        )
        for stand_in, value in tried.items()
    }
    return {
        stand_in: jobs
        for stand_in, jobs in helped.items()
        if jobs and jobs > (helped[RELATIVE] if not stand_in else 0)
    }


def _stopped_messages(gaps: _Gaps, trace: Trace) -> list[str]:
    """Return up to two messages on jobs that prevent the run: no measurement, unknown work."""
    unmeasured, workless = (
        f"{int(bad.sum()):,} of {plural(len(trace), 'job')}"
        for bad in (gaps.unmeasured, gaps.workless)
    )
    sentences = []
    if gaps.unmeasured.any():
        sentences.append(
            f"No measurement exists for {unmeasured} on some GPU type that they may use; the first"
            f" is job {_first_job_id(gaps.unmeasured, trace)}. {_STOPPED}"
        )
    if gaps.workless.any():
        where = (
            "the profile has no throughput above 0 on the GPU type on which their duration was"
            " measured"
        )
        sentences.append(
            f"The work of {workless} is unknown, because {where}; the first is job"
            f" {_first_job_id(gaps.workless, trace)}. {_NO_WORK}"
        )
    return sentences


def _first_job_id(bad: NDArray[np.bool_], trace: Trace) -> str:
    return str(trace.frame["job_id"].iloc[int(np.flatnonzero(bad)[0])])


def _never_start_messages(never: NDArray[np.bool_], why: str, trace: Trace) -> list[str]:
    """Return the message on jobs that can never start, [] if there are none."""
    if not never.any():
        return []
    return [
        f"{plural(int(never.sum()), 'job')} can never start, because {why}; the first is job"
        f" {_first_job_id(never, trace)}. {_NEVER_STARTS_ADVICE}"
    ]


def _type_messages(
    spec: Profiled, table: ProfileTable, trace: Trace, cluster: Cluster
) -> list[str]:
    """Return messages on GPU types of recorded jobs or of nodes that the profile lacks."""
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
            f"The profile lacks GPU types on which jobs were recorded: {job_counts(strange)}."
        )
    lacking = [kind for kind in used_types(cluster) if kind not in table.types]
    if lacking:
        instead = (
            " Those of other types are used, times the relative speed on the Cluster page."
            if spec.stand_in
            else ""
        )
        sentences.append(
            f"The profile has no measurement on {', '.join(lacking)}, of which this cluster has"
            f" nodes.{instead}"
        )
    return sentences
