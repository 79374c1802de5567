"""Live previews of a comparison while a setting is dragged, in a warm worker process.

Only policies that the fast engine can run are previewed; nothing is stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import process_time
from typing import Any, Final

import pandas as pd

from sim.conditions import Conditions
from sim.engine.fast import runner
from sim.params import Spec
from sim.result import Progress, RunResult
from sim.trace import Trace
from trainyard.results import groups, outcomes
from trainyard.results.groups import GroupComparison
from trainyard.results.outcomes import ComparisonReport, StudyResults
from trainyard.results.window_series import Loads, Window, loads
from trainyard.runs.engines import simulate
from trainyard.runs.executors import RunLimits, WarmProcess
from trainyard.runs.queue import RunQueue, Submission, Task
from trainyard.runs.run import conditions, scenario_key, summarize_run
from trainyard.store import Store, StoredResult, plain
from trainyard.store.files import StoreError
from trainyard.study import catalog
from trainyard.study.scenario import Scenario
from trainyard.study.study import Study
from trainyard.traces.sources import check_measure, load_trace

MAX_JOBS: Final = 200_000
"""Jobs above which there is no preview: it would take seconds."""
_EXPECTED_S: Final = 0.3
"""Expected duration of a preview."""
MARK: Final = "preview "
"""Prefix of the key of a run that is not stored."""


@dataclass(frozen=True)
class InMemory(StoredResult):
    """A run result that is not stored.

    Parameters
    ----------
    run : RunResult or None
        The run result.
    """

    run: RunResult | None = None

    def jobs(self) -> pd.DataFrame:
        """Return one row per job."""
        return self.result().jobs

    def result(self) -> RunResult:
        """Return the whole result."""
        assert self.run is not None, "made with a result"
        return self.run

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks of the allocator on the run."""
        return self.result().remarks

    def chart(self, name: str) -> pd.DataFrame:
        """Raise StoreError: reduced frames exist for stored runs only."""
        raise StoreError(f"A run that is not stored has no frame '{name}'.")


@dataclass(frozen=True, eq=False)
class PreviewRequest:
    """A request for a preview, as plain values for the worker process.

    Parameters
    ----------
    study : mapping
        `Study.to_json` of the changed study.
    address : str
        Address of the store with the trace.
    window : (float, float) or None, seconds
        Zoom window; None = the whole runs.
    midnight_s : float, seconds
        Start of a day on the clock of the runs.
    group : (str, str) or None
        Title of a grouping and name of the group to compare; None = all jobs.
    stored : mapping of str
        Title -> key of the stored run to show until a policy has a new one.
    """

    study: Mapping[str, Any]
    address: str
    window: Window | None = None
    midnight_s: float = 0.0
    group: tuple[str, str] | None = None
    stored: Mapping[str, str] | None = None


@dataclass(frozen=True, eq=False)
class PreviewAnswer:
    """Result of a preview.

    Parameters
    ----------
    shown : StudyResults
        The changed study without stored results.
    report : ComparisonReport or None
        Comparison of the policies that were run; None = none. Its only frame is ``cdf``, and the
        recorded history is left out.
    loads : mapping
        Window -> queue and GPU use: the requested window, and None for the whole runs.
    group : GroupComparison or None
        Comparison over the requested group.
    others : mapping of str
        Title -> why a policy was not run.
    simulated_s, cpu_s : float, seconds
        Processor time of the runs alone, and of the whole answer.
    """

    shown: StudyResults
    report: ComparisonReport | None
    loads: Mapping[Window | None, Loads]
    group: GroupComparison | None
    others: Mapping[str, str]
    simulated_s: float
    cpu_s: float


def fast_policies(study: Study, store: Store) -> frozenset[str]:
    """Return the titles of policies that the fast engine can run; none above `MAX_JOBS` jobs.

    Raises
    ------
    TrainyardError
        If the trace or a profile cannot be loaded.
    """
    if len(load_trace(study.base.trace, store)) > MAX_JOBS:
        return frozenset()
    return frozenset(study.titles) - engine_obstacles(study, store).keys()


def engine_obstacles(study: Study, store: Store) -> dict[str, str]:
    """Return title -> why the fast engine cannot run a policy, as a clause.

    Raises
    ------
    TrainyardError
        If the trace or a profile cannot be loaded.
    """
    trace, given = load_trace(study.base.trace, store), conditions(study.base, store)
    reasons = {
        title: _unsupported_reason(study, spec, trace, given)
        for title, spec in zip(study.titles, study.allocators, strict=True)
    }
    return {title: reason for title, reason in reasons.items() if reason}


def answer(
    request: PreviewRequest, progress: Callable[[Progress], None] | None = None
) -> PreviewAnswer:
    """Compute a preview; runs in the worker process.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded, or no job is measured.
    """
    began_s = process_time()
    study, store = Study.from_json(request.study), Store.open(request.address)
    trace, simulated_s = load_trace(study.base.trace, store), 0.0
    check_measure(trace, study.base.measure)
    given = conditions(study.base, store)
    others: dict[str, str] = {}
    entries: list[tuple[StoredResult, ...]] = []
    for title, spec in zip(study.titles, study.allocators, strict=True):
        if progress is not None:
            progress(Progress(0, len(trace), 0.0, trace.span_s))
        since_s = process_time()
        reason = _unsupported_reason(study, spec, trace, given)
        if reason:
            others[title] = reason
            entries.append(())
            continue
        allocator = catalog.instance("allocator", spec)
        result = simulate(trace, study.base.cluster, allocator, given, progress=progress)
        simulated_s += process_time() - since_s
        scenario = study.policy_scenarios(study.allocators.index(spec))[0]
        entries.append((_in_memory_entry(scenario, result, trace, store),))
    keys = tuple(tuple(entry.key for entry in own) or ("",) for own in entries)
    shown = StudyResults(
        study,
        study.titles,
        keys,
        tuple(entries),
        outcomes.replacement_baseline(study, entries, store),
    )
    report = outcomes.report(shown, store, brief=True)
    windows: dict[Window | None, Loads] = {}
    if report is not None:
        firsts = {shown.titles[at]: shown.entries[at][0] for at in shown.places}
        drawn = _stored_entries(request, store) | firsts
        for window in dict.fromkeys((request.window, None)):
            windows[window] = loads(drawn, study.base.cluster, window, request.midnight_s)
    empty = StudyResults(study, study.titles, keys, ((),) * len(keys), shown.instead)
    whole = _compare_group(request, shown, trace)
    return PreviewAnswer(
        empty, report, windows, whole, others, simulated_s, process_time() - began_s
    )


def _unsupported_reason(study: Study, spec: Spec, trace: Trace, given: Conditions) -> str:
    """Return why a policy, or the fast engine with it, cannot run; "" = both can."""
    reason = catalog.allocator(spec, trace, study.base.perf).reason
    if reason:
        return reason
    allocator = catalog.instance("allocator", spec)
    try:
        runner.prepare_run(trace, study.base.cluster, allocator, given)
    except runner.NotPlainError as error:
        return str(error)
    return ""


def _in_memory_entry(scenario: Scenario, result: RunResult, trace: Trace, store: Store) -> InMemory:
    """Return a run result as an in-memory entry, under a key that no stored run has."""
    # A key of its own: an in-memory entry must never pass for the stored run.
    key = f"{MARK}{scenario_key(scenario, store)}"
    summary = plain(summarize_run(scenario, result, trace))
    return InMemory(key, None, {}, summary, {}, {}, result)  # type: ignore[arg-type]


def _stored_entries(request: PreviewRequest, store: Store) -> dict[str, StoredResult]:
    """Return title -> stored result for the keys of a request; deleted ones are left out."""
    entries = ((title, store.get(key)) for title, key in (request.stored or {}).items())
    return {title: entry for title, entry in entries if entry is not None}


def _compare_group(
    request: PreviewRequest, shown: StudyResults, trace: Trace
) -> GroupComparison | None:
    """Return the comparison over the requested group, submitted in the requested window.

    None without a requested group or window, a complete baseline, or such a job.
    """
    if (request.group or request.window) is None or shown.baseline not in shown.places:
        return None
    jobs = shown.entries[shown.places[0]][0].jobs()
    mask = groups.members(trace, jobs, request.group, request.window)
    return groups.compare_subset(shown, mask, trace) if mask.any() else None


class Previews:
    """Queue of previews of a server, computed one at a time in a warm process."""

    def __init__(self) -> None:
        self._queue = RunQueue(WarmProcess(RunLimits.from_environment()))
        self._numbers: Iterator[int] = itertools.count()

    def ask(self, request: PreviewRequest, watcher: str, base: Scenario) -> Submission:
        """Submit a preview request; cancels the watcher's earlier request.

        Parameters
        ----------
        request : PreviewRequest
            The request.
        watcher : str
            Id of the session; sessions share the process fairly.
        base : Scenario
            Base scenario of the study.
        """
        # Equal requests are rare, and a canceled run must not be joined.
        key = f"{MARK}{next(self._numbers)}"
        return self._queue.put(Task(key, base, answer, (request,), _EXPECTED_S), watcher)

    def close(self) -> None:
        """End the worker process."""
        self._queue.close()
