"""Details of a study, computed on first use: estimates, resources, GPU types, groups, teams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd

from sim.errors import ParameterError
from sim.metrics import Accuracy, accuracy, note_families, prediction_points, quantiles, ratios
from sim.perf.lookup import used_types
from sim.trace import Trace
from trainyard.results import groups
from trainyard.results.groups import GroupComparison, Grouping
from trainyard.results.outcomes import StudyResults, measured_jobs
from trainyard.results.tenants import Teams, TenantReport, teams_of, tenant_report
from trainyard.store import Store, StoredResult
from trainyard.study import catalog
from trainyard.traces.sources import load_trace

_EXACT: Final = 1e-9
Frames = Mapping[str, pd.DataFrame]


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """Estimates of run times and resource use of the complete policies, first repeats.

    Parameters
    ----------
    points : mapping of DataFrame
        Title -> `job_id`, `ideal_s` and `believed_s`, at most 1,000 jobs, see
        `sim.metrics.predictions.prediction_points`; only policies that read run times, and empty
        where every estimate was exact.
    accuracy : mapping of Accuracy
        Title -> accuracy of the estimates; the same policies.
    resources : mapping of DataFrame
        Title -> reduced `sim.metrics.resource_series`; only runs with known use of a resource.
    """

    points: Mapping[str, pd.DataFrame]
    accuracy: Mapping[str, Accuracy]
    resources: Mapping[str, pd.DataFrame]


def diagnose(shown: StudyResults, trace: Trace) -> Diagnostics:
    """Return run-time estimates and resource use of the complete policies, first repeats.

    Points and accuracy are empty if every estimate was exact.

    Raises
    ------
    StoreError
        If a stored result was deleted.
    """
    entries = {shown.titles[at]: shown.entries[at][0] for at in shown.places}
    jobs = {title: entry.jobs() for title, entry in entries.items()}
    masks = {title: measured_jobs(frame, shown.study) for title, frame in jobs.items()}
    reading = [
        shown.titles[at]
        for at in shown.places
        if "remaining_work" in catalog.allocator(shown.study.allocators[at]).needs.reads
    ]
    accuracies = {
        title: result for title in reading if (result := accuracy(jobs[title], masks[title])).jobs
    }
    names = trace.frame["job_id"].to_numpy()
    points = {
        title: (
            (frame := prediction_points(jobs[title], masks[title])).assign(
                job_id=names[frame["job"].to_numpy()]
            )
        )
        for title in accuracies
    }
    if not any(_has_wrong_estimate(frame) for frame in points.values()):
        points, accuracies = {}, {}
    used = {
        title: frame for title, entry in entries.items() if len(frame := entry.chart("resources"))
    }
    return Diagnostics(points, accuracies, used)


def _has_wrong_estimate(points: pd.DataFrame) -> bool:
    """Return True if an estimate differs from the true run time."""
    return bool((np.abs(points["believed_s"] / points["ideal_s"] - 1) > _EXACT).any())


@dataclass(frozen=True, eq=False)
class TypeReport:
    """Results by GPU type of the complete policies, first repeats.

    Parameters
    ----------
    types : tuple of str
        GPU types that have nodes.
    shares : mapping of DataFrame
        Title -> see `sim.metrics.type_shares`.
    use : mapping of DataFrame
        Title -> see `sim.metrics.type_use`.
    notes : mapping of DataFrame
        Title -> see `sim.metrics.note_series`; only policies with notes.
    fairness : mapping of DataFrame
        Title -> `share` and `rho` against the isolated run time, see `sim.metrics.isolated_s`.
    """

    types: tuple[str, ...]
    shares: Frames
    use: Frames
    notes: Frames
    fairness: Frames

    def families(self, title: str) -> Mapping[str, Mapping[str, str]]:
        """Return the notes of a policy by family: family -> name of the note -> line label."""
        return note_families(list(dict.fromkeys(self.notes[title]["name"].astype(str))), self.types)


def has_several_types(shown: StudyResults) -> bool:
    """Return True if the cluster of a study has nodes of more than one GPU type."""
    return len(used_types(shown.study.base.cluster)) > 1


def type_report(shown: StudyResults) -> TypeReport:
    """Return shares, use, notes and fairness by GPU type of the complete policies.

    First repeats only.

    Raises
    ------
    StoreError
        If a stored result was deleted, or is older than these figures.
    """
    firsts = _first_repeats(shown)
    noted = {title: frame for title, entry in firsts.items() if len(frame := entry.chart("notes"))}
    shares, use, fair = (
        {title: entry.chart(kind) for title, entry in firsts.items()}
        for kind in ("types", "use", "fairness")
    )
    return TypeReport(used_types(shown.study.base.cluster), shares, use, noted, fair)


def fairness_against(shown: StudyResults, reference: str) -> dict[str, pd.DataFrame]:
    """Return quantiles of each other policy's finish-time fairness against a reference policy.

    Parameters
    ----------
    shown : StudyResults
        The runs.
    reference : str
        Title of a complete policy.

    Raises
    ------
    StoreError
        If a stored result was deleted.

    Notes
    -----
    rho = completion time / completion time under the reference, per measured job completed under
    both.
    """
    jobs = {title: entry.jobs() for title, entry in _first_repeats(shown).items()}
    base = jobs.pop(reference)
    own = np.where(
        np.asarray(base["outcome"] == "completed"), base["finish_s"] - base["submit_s"], np.nan
    )
    mask = measured_jobs(base, shown.study)
    return {title: quantiles(ratios(frame, own)[mask]) for title, frame in jobs.items()}


def _first_repeats(shown: StudyResults) -> dict[str, StoredResult]:
    """Return the first repeat of each complete policy, by title."""
    return {shown.titles[at]: shown.entries[at][0] for at in shown.places}


class Details:
    """Data of the detail views of a comparison; each part is computed on first use.

    Every property raises TrainyardError if the trace or a stored result was deleted.

    Parameters
    ----------
    runs : StudyResults
        The runs.
    store : Store
        Holds the runs and the trace.
    """

    def __init__(self, runs: StudyResults, store: Store) -> None:
        self._runs, self._store = runs, store

    @property
    def trace(self) -> Trace:
        """The trace of the study."""
        return load_trace(self._runs.study.base.trace, self._store)

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """Resource use and run-time estimates."""
        return diagnose(self._runs, self.trace)

    @cached_property
    def types(self) -> TypeReport:
        """Results by GPU type."""
        return type_report(self._runs)

    @cached_property
    def groupings(self) -> Mapping[str, Grouping]:
        """Groupings of the jobs, by key."""
        return groups.groupings(self.trace, self._runs.entries[self._runs.places[0]][0].jobs())

    def of_jobs(
        self, group: tuple[str, str] | None, window: tuple[float, float] | None = None
    ) -> GroupComparison | None:
        """Return the comparison over the jobs of a group submitted in a window.

        None without such a job, or without a complete baseline; parameters as in `groups.members`.
        """
        jobs = self._runs.entries[self._runs.places[0]][0].jobs()
        mask = groups.members(self.trace, jobs, group, window)
        if not mask.any() or self._runs.baseline not in self._runs.places:
            return None
        return groups.compare_subset(self._runs, mask, self.trace)

    @cached_property
    def teams(self) -> Teams | None:
        """Teams of the trace with their quotas.

        None if the trace names no teams, or only users and no policy has quotas.
        """
        study = self._runs.study
        try:
            teams = teams_of(self.trace, study.base.cluster, study.allocators)
        except ParameterError:
            return None
        return None if teams.column == "user" and teams.proposed else teams

    def tenant_report(self, title: str, teams: Teams) -> TenantReport:
        """Return the team report of a complete policy, first repeat; not kept, for its size."""
        result = _first_repeats(self._runs)[title].result()
        return tenant_report(result, teams, self._runs.study.base.cluster)
