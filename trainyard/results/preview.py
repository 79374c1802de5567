"""What a comparison would say with one setting changed, while a user drags it: the policies that
the fast engine can run are run in a process that stays warm, and nothing is kept of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import process_time
from typing import Any, Final

import pandas as pd

from sim.conditions import Conditions
from sim.contract import rule_of
from sim.engine.fast import lane
from sim.engine.fast.arrays import FastRun
from sim.params import Spec
from sim.result import Progress, RunResult
from sim.trace import Trace
from trainyard.results import groups, outcomes
from trainyard.results.groups import GroupComparison
from trainyard.results.loads import Loads, Window, loads
from trainyard.results.outcomes import ComparisonReport, Shown
from trainyard.runs.executors import RunLimits, WarmProcess
from trainyard.runs.queue import RunQueue, Submission, Task
from trainyard.runs.run import conditions, key_of, summarise
from trainyard.store import Store, StoredResult, plain
from trainyard.store.files import StoreError
from trainyard.study import catalog
from trainyard.study.scenario import Scenario
from trainyard.study.study import Study
from trainyard.traces.sources import check_measure, load_trace

MOST_JOBS: Final = 200_000
"""Jobs above which nothing is shown while a setting is dragged: an answer would take seconds."""
_USUAL_S: Final = 0.3
"""Estimate of what an answer takes."""
_MARK: Final = "preview "


@dataclass(frozen=True)
class InMemory(StoredResult):
    """A run that is not stored.

    Parameters
    ----------
    run : RunResult or None
        All of it.
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
        """What the allocator had to say of the run."""
        return self.result().remarks

    def chart(self, name: str) -> pd.DataFrame:
        """Raise: reduced frames are made for runs that are stored."""
        raise StoreError(f"A run that is not stored has no frame '{name}'.")


@dataclass(frozen=True, eq=False)
class PreviewRequest:
    """What is to be answered; plain values, as it goes to the process.

    Parameters
    ----------
    study : mapping
        `Study.to_json` of the changed study.
    address : str
        Of the store with its trace.
    window : (float, float) or None, seconds
        The part of the runs that figures over time show; None = all of it.
    midnight_s : float, seconds
        Where a day begins, on the clock of the runs.
    group : (str, str) or None
        Title of a grouping and name of the group whose figures are wanted; None = of all jobs.
    stored : mapping of str
        Title -> key of the stored run that is shown for a policy as long as there is no new one.
    """

    study: Mapping[str, Any]
    address: str
    window: Window | None = None
    midnight_s: float = 0.0
    group: tuple[str, str] | None = None
    stored: Mapping[str, str] | None = None


@dataclass(frozen=True, eq=False)
class PreviewAnswer:
    """What the changed study says.

    Parameters
    ----------
    shown : Shown
        Its policies without their results.
    report : ComparisonReport or None
        The comparison of those that were run; None = there is none. It has no frames but ``cdf``,
        and nothing of the recorded history.
    loads : mapping
        Window -> jobs waiting and GPUs busy in it: the asked one, and None, the whole runs.
    group : GroupComparison or None
        Of the asked group.
    others : mapping of str
        Title -> why a policy was not run.
    simulated_s, cpu_s : float, seconds
        Processor time of the runs alone, and of everything.
    """

    shown: Shown
    report: ComparisonReport | None
    loads: Mapping[Window | None, Loads]
    group: GroupComparison | None
    others: Mapping[str, str]
    simulated_s: float
    cpu_s: float


def fast_policies(study: Study, store: Store) -> frozenset[str]:
    """Return the titles of the policies that state a rule which the fast engine can follow here.

    Raises
    ------
    TrainyardError
        If the trace or a profile cannot be loaded.
    """
    trace = load_trace(study.base.trace, store)
    if len(trace) > MOST_JOBS:
        return frozenset()
    given = conditions(study.base, store)
    return frozenset(
        title
        for title, spec in zip(study.titles, study.allocators, strict=True)
        if isinstance(_prepared(study, spec, trace, given), FastRun)
    )


def answer(
    asked: PreviewRequest, progress: Callable[[Progress], None] | None = None
) -> PreviewAnswer:
    """Answer in this process; the function that the warm process executes.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded, or there is nothing to measure.
    """
    began_s = process_time()
    study, store = Study.from_json(asked.study), Store.at(asked.address)
    trace, simulated_s = load_trace(study.base.trace, store), 0.0
    check_measure(trace, study.base.measure)
    given = conditions(study.base, store)
    others: dict[str, str] = {}
    entries: list[tuple[StoredResult, ...]] = []
    for title, spec in zip(study.titles, study.allocators, strict=True):
        if progress is not None:
            progress(Progress(0, len(trace), 0.0, trace.span_s))
        since_s = process_time()
        made = _prepared(study, spec, trace, given)
        if isinstance(made, str):
            others[title] = made
            entries.append(())
            continue
        result = lane.run(made, progress)
        simulated_s += process_time() - since_s
        scenario = study.repeated(study.allocators.index(spec))[0]
        entries.append((_entry(scenario, result, trace, store),))
    keys = tuple(tuple(entry.key for entry in own) or ("",) for own in entries)
    shown = Shown(
        study, study.titles, keys, tuple(entries), outcomes.stand_in(study, entries, store)
    )
    report = outcomes.report(shown, store, brief=True)
    found: dict[Window | None, Loads] = {}
    if report is not None:
        firsts = {shown.titles[at]: shown.entries[at][0] for at in shown.places}
        drawn = _stored(asked, store) | firsts
        for window in dict.fromkeys((asked.window, None)):
            found[window] = loads(drawn, study.base.cluster, window, asked.midnight_s)
    empty = Shown(study, study.titles, keys, ((),) * len(keys), shown.instead)
    whole = _group(asked, shown, trace)
    return PreviewAnswer(empty, report, found, whole, others, simulated_s, process_time() - began_s)


def _prepared(study: Study, spec: Spec, trace: Trace, given: Conditions) -> FastRun | str:
    """Return a run as the fast engine takes it, or why it cannot."""
    reason = catalog.allocator(spec, trace, study.base.perf).reason
    if reason:
        return reason
    allocator = catalog.instance("allocator", spec)
    if rule_of(allocator) is None:
        return "no rule of a queue"
    try:
        return lane.prepared(trace, study.base.cluster, allocator, given)
    except lane.NotPlainError as error:
        return str(error)


def _entry(scenario: Scenario, result: RunResult, trace: Trace, store: Store) -> InMemory:
    # It must never be taken for the stored run, of which there is more.
    key = f"{_MARK}{key_of(scenario, store)}"
    summary = plain(summarise(scenario, result, trace))
    return InMemory(key, None, {}, summary, {}, {}, result)  # type: ignore[arg-type]


def _stored(asked: PreviewRequest, store: Store) -> dict[str, StoredResult]:
    found = ((title, store.get(key)) for title, key in (asked.stored or {}).items())
    return {title: entry for title, entry in found if entry is not None}


def _group(asked: PreviewRequest, shown: Shown, trace: Trace) -> GroupComparison | None:
    if asked.group is None or shown.baseline not in shown.places:
        return None
    title, name = asked.group
    ways = groups.groupings(trace, shown.entries[shown.places[0]][0].jobs()).values()
    way = next((way for way in ways if way.title == title and name in way.names), None)
    if way is None:
        return None
    return groups.compare_subset(shown, way.codes == way.names.index(name), trace)


class Previews:
    """Answers of a server, one at a time, in a process that has jobs and rules at hand."""

    def __init__(self) -> None:
        self._queue = RunQueue(WarmProcess(RunLimits.from_environment()))
        self._numbers: Iterator[int] = itertools.count()

    def ask(self, asked: PreviewRequest, watcher: str, base: Scenario) -> Submission:
        """Ask for an answer, which `Submission.result` is; cancel what was asked before and is
        overtaken.

        Parameters
        ----------
        asked : PreviewRequest
            What is wanted.
        watcher : str
            The session; the process is shared fairly.
        base : Scenario
            Of the study.
        """
        # Equal questions are rare, and a run that was asked to stop must not be joined.
        key = f"{_MARK}{next(self._numbers)}"
        return self._queue.put(Task(key, base, answer, (asked,), _USUAL_S), watcher)

    def close(self) -> None:
        """End the process."""
        self._queue.close()
