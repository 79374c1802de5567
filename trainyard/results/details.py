"""What explains the results of a study, computed when it is asked for: estimates of run times, use
of cores and memory, GPU types, and the ways in which jobs can be grouped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd

from sim.errors import ParameterError
from sim.metrics import Accuracy, accuracy, note_families, predicted, quantiles, ratios
from sim.perf.lookup import used_types
from sim.trace import Trace
from trainyard.results import groups
from trainyard.results.groups import GroupComparison, Grouping
from trainyard.results.outcomes import Shown, measured_jobs
from trainyard.results.tenants import Teams, TenantReport, teams_of, tenant_report
from trainyard.store import Store, StoredResult
from trainyard.study import catalog
from trainyard.traces.sources import load_trace

_EXACT: Final = 1e-9
Frames = Mapping[str, pd.DataFrame]


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """Estimates of run times and use of resources under the complete policies of a study, first
    repeats.

    Parameters
    ----------
    points : mapping of DataFrame
        Title -> `job_id`, `ideal_s` and `believed_s`, at most 1,000 jobs, see
        `sim.metrics.predicted`; only of policies that asked for run times, and empty where every
        estimate was true.
    accuracy : mapping of Accuracy
        Title -> how near they were; the same policies.
    resources : mapping of DataFrame
        Title -> reduced `sim.metrics.resource_series`; only of runs of which the use of something
        is known.
    """

    points: Mapping[str, pd.DataFrame]
    accuracy: Mapping[str, Accuracy]
    resources: Mapping[str, pd.DataFrame]


def diagnose(shown: Shown, trace: Trace) -> Diagnostics:
    """Collect the diagnostics of the complete policies.

    Raises
    ------
    StoreError
        If a stored result was removed meanwhile.
    """
    entries = {shown.titles[at]: shown.entries[at][0] for at in shown.places}
    jobs = {title: entry.jobs() for title, entry in entries.items()}
    masks = {title: measured_jobs(frame, shown.study) for title, frame in jobs.items()}
    asked = [
        shown.titles[at]
        for at in shown.places
        if "remaining_work" in catalog.allocator(shown.study.allocators[at]).needs.reads
    ]
    near = {title: found for title in asked if (found := accuracy(jobs[title], masks[title])).jobs}
    names = trace.frame["job_id"].to_numpy()
    points = {
        title: (
            (frame := predicted(jobs[title], masks[title])).assign(
                job_id=names[frame["job"].to_numpy()]
            )
        )
        for title in near
    }
    if not any(_differ(frame) for frame in points.values()):
        points, near = {}, {}
    used = {
        title: frame for title, entry in entries.items() if len(frame := entry.chart("resources"))
    }
    return Diagnostics(points, near, used)


def _differ(points: pd.DataFrame) -> bool:
    return bool((np.abs(points["believed_s"] / points["ideal_s"] - 1) > _EXACT).any())


@dataclass(frozen=True, eq=False)
class TypeReport:
    """The complete policies of a study on a cluster of several GPU types, first repeats.

    Parameters
    ----------
    types : tuple of str
        Those of which there are nodes.
    shares : mapping of DataFrame
        Title -> see `sim.metrics.type_shares`.
    use : mapping of DataFrame
        Title -> see `sim.metrics.type_use`.
    notes : mapping of DataFrame
        Title -> see `sim.metrics.note_series`; only of policies that note anything.
    fairness : mapping of DataFrame
        Title -> `share` and `rho` against the isolated run time, see `sim.metrics.isolated_s`.
    """

    types: tuple[str, ...]
    shares: Frames
    use: Frames
    notes: Frames
    fairness: Frames

    def families(self, title: str) -> Mapping[str, Mapping[str, str]]:
        """Return the kinds of notes of a policy: family -> name of the note -> what its line is
        called.
        """
        return note_families(list(dict.fromkeys(self.notes[title]["name"].astype(str))), self.types)


def several_types(shown: Shown) -> bool:
    """Tell whether the cluster of a study has nodes of more than one GPU type."""
    return len(used_types(shown.study.base.cluster)) > 1


def type_report(shown: Shown) -> TypeReport:
    """Collect what the complete policies left behind.

    Raises
    ------
    StoreError
        If a stored result was removed meanwhile, or is older than these figures.
    """
    firsts = _firsts(shown)
    noted = {title: frame for title, entry in firsts.items() if len(frame := entry.chart("notes"))}
    shares, use, fair = (
        {title: entry.chart(kind) for title, entry in firsts.items()}
        for kind in ("types", "use", "fairness")
    )
    return TypeReport(used_types(shown.study.base.cluster), shares, use, noted, fair)


def fairness_against(shown: Shown, reference: str) -> dict[str, pd.DataFrame]:
    """Return the finish-time fairness of the other complete policies, with the completion times
    under one of them as the reference.

    Parameters
    ----------
    shown : Shown
        The runs.
    reference : str
        Title of a complete policy.

    Raises
    ------
    StoreError
        If a stored result was removed meanwhile.

    Notes
    -----
    rho = completion time / completion time under the reference, job by job, over measured jobs that
    were completed under both.
    """
    jobs = {title: entry.jobs() for title, entry in _firsts(shown).items()}
    base = jobs.pop(reference)
    own = np.where(
        np.asarray(base["outcome"] == "completed"), base["finish_s"] - base["submit_s"], np.nan
    )
    mask = measured_jobs(base, shown.study)
    return {title: quantiles(ratios(frame, own)[mask]) for title, frame in jobs.items()}


def _firsts(shown: Shown) -> dict[str, StoredResult]:
    return {shown.titles[at]: shown.entries[at][0] for at in shown.places}


class Details:
    """What some views need beside the report of the runs; each part is computed on first use.

    Every property raises TrainyardError if the trace or a stored result was removed meanwhile.

    Parameters
    ----------
    runs : Shown
        The runs.
    store : Store
        Where they are kept, with the trace.
    """

    def __init__(self, runs: Shown, store: Store) -> None:
        self._runs, self._store = runs, store

    @property
    def trace(self) -> Trace:
        """The jobs."""
        return load_trace(self._runs.study.base.trace, self._store)

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """Use of cores and memory, and estimates of run times."""
        return diagnose(self._runs, self.trace)

    @cached_property
    def types(self) -> TypeReport:
        """What the results say of GPU types."""
        return type_report(self._runs)

    @cached_property
    def groupings(self) -> Mapping[str, Grouping]:
        """The ways in which the jobs can be grouped."""
        return groups.groupings(self.trace, self._runs.entries[self._runs.places[0]][0].jobs())

    def of_group(self, title: str, name: str) -> GroupComparison:
        """Return the comparison over one group of the grouping with this title."""
        way = next(way for way in self.groupings.values() if way.title == title)
        return groups.only(self._runs, way.codes == way.names.index(name), self.trace)

    @cached_property
    def teams(self) -> Teams | None:
        """The teams of the trace with their quotas; None = nothing names any but users, and no
        policy has quotas.
        """
        study = self._runs.study
        try:
            found = teams_of(self.trace, study.base.cluster, study.allocators)
        except ParameterError:
            return None
        return None if found.column == "user" and found.proposed else found

    @cached_property
    def tenants(self) -> Mapping[str, TenantReport]:
        """What those teams had under each complete policy, first repeats; empty without teams."""
        teams, cluster = self.teams, self._runs.study.base.cluster
        if teams is None or not cluster.gpus:
            return {}
        firsts = _firsts(self._runs).items()
        return {title: tenant_report(one.result(), teams, cluster) for title, one in firsts}
