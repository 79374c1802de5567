"""Runs scenarios in this process, and stores results with their charts."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final

import allocators
from sim import metrics
from sim.engine.simulator import Conditions, Progress
from sim.errors import ParameterError
from sim.params import Spec
from sim.result import RESULTS_VERSION, RunResult
from sim.trace import Trace
from trainyard.runs.engines import simulate
from trainyard.runs.frames import chart_frames, type_frames
from trainyard.store import Store, StoreError, profiles
from trainyard.study import catalog
from trainyard.study.scenario import Scenario
from trainyard.study.study import Study
from trainyard.traces.sources import check_measure, load_trace, source_digest

_PACKAGES: Final = ("numpy", "pandas", "simpy", "pulp", "pyarrow")


def run(
    scenario: Scenario,
    *,
    trace: Trace | None = None,
    store: Store | None = None,
    progress: Callable[[Progress], None] | None = None,
    engine: str = "",
) -> RunResult:
    """Run a scenario in this process.

    Parameters
    ----------
    scenario : Scenario
        The scenario.
    trace : Trace or None
        Its jobs if already loaded; None = load them as the scenario says.
    store : Store or None
        Store of traces and profiles named ``store:``.
    progress : callable or None
        Called at intervals during the run.
    engine : str
        One of `trainyard.runs.engines.ENGINES`; "" = the default engine.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded, the allocator does not support it, or a fault of the
        allocator stops the run.
    """
    jobs = load_trace(scenario.trace, store) if trace is None else trace
    check_measure(jobs, scenario.measure)
    reason = catalog.allocator(scenario.allocator, jobs, scenario.perf).reason
    if reason:
        raise ParameterError(f"{scenario.allocator.name} cannot run here: {reason}")
    allocator = catalog.instance("allocator", scenario.allocator)
    given = conditions(scenario, store)
    return simulate(jobs, scenario.cluster, allocator, given, engine, progress)


def conditions(scenario: Scenario, store: Store | None = None) -> Conditions:
    """Return performance model, estimator, overheads, faults and limits of a scenario.

    `store` holds profiles of the user.

    Raises
    ------
    ParameterError
        If a parameter is invalid, or the profile was deleted.
    """
    return Conditions(
        perf=profiles.build_model(scenario.perf, store),
        estimator=catalog.instance("estimator", scenario.estimator),
        overheads=catalog.instance("overheads", scenario.overheads),
        faults=catalog.instance("faults", scenario.faults),
        seed=scenario.seed,
        horizon_s=scenario.horizon_s,
        measure=scenario.measure,
        stop=scenario.stop,
    )


def scenario_key(scenario: Scenario, store: Store | None = None) -> str:
    """Return the store key of a scenario; reads the trace if its digest is unknown.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    return scenario.key(source_digest(scenario.trace, store))


def summarize_run(scenario: Scenario, result: RunResult, trace: Trace) -> dict[str, Any]:
    """Return the summary numbers of a run, see `sim.metrics.summary`."""
    return metrics.summary(result, trace, scenario.cluster, scenario.measure)


def run_to_store(
    document: Mapping[str, Any], root: str, progress: Callable[[Progress], None] | None = None
) -> str:
    """Run a scenario and store the result, unless stored already; used by workers.

    Parameters
    ----------
    document : mapping
        `Scenario.to_json`.
    root : str
        Folder of the store.
    progress : callable or None
        As for `run`.

    Returns
    -------
    str
        The key of the result.

    Raises
    ------
    TrainyardError
        As `run`; also if the store cannot be written.
    """
    scenario, store = Scenario.from_json(document), Store.open(root)
    key = scenario_key(scenario, store)
    if store.has(key):
        return key
    trace = load_trace(scenario.trace, store)
    store_result(
        store, key, scenario, run(scenario, trace=trace, store=store, progress=progress), trace
    )
    return key


def rerun_to_store(
    document: Mapping[str, Any], root: str, progress: Callable[[Progress], None] | None = None
) -> str:
    """Run a scenario although its result is stored, to check that it is equal.

    Parameters and errors are as for `run_to_store`.

    Raises
    ------
    StoreError
        If the result differs from the stored one; the new result is stored.
    """
    scenario, store = Scenario.from_json(document), Store.open(root)
    key = scenario_key(scenario, store)
    trace = load_trace(scenario.trace, store)
    result, before = run(scenario, trace=trace, store=store, progress=progress), store.get(key)
    changed = before is not None and before.provenance["digest"] != result.digest()
    if changed:
        store.delete(key)
    store_result(store, key, scenario, result, trace)
    if changed:
        raise StoreError(
            "The run differs from the stored result, which is replaced. Please report it with the"
            " scenario file: equal scenarios must give equal results."
        )
    return key


def store_result(
    store: Store, key: str, scenario: Scenario, result: RunResult, trace: Trace
) -> None:
    """Store a result with its summary and the frames of all charts.

    Raises
    ------
    StoreError
        If the store cannot be written.
    """
    charts = chart_frames(result, scenario.cluster, scenario.measure)
    charts |= type_frames(
        result,
        trace,
        scenario.cluster,
        scenario.measure,
        profiles.build_model(scenario.perf, store),
    )
    about = {"scenario": scenario.to_json(), "versions": versions()}
    store.put(key, result, summarize_run(scenario, result, trace), charts, about)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions that results depend on: results, Python and packages."""
    own = {"results": str(RESULTS_VERSION), "python": platform.python_version()}
    return own | {name: version(name) for name in _PACKAGES} | allocators.PACKAGES


def run_missing(
    study: Study,
    store: Store,
    watch: Callable[[Scenario], Callable[[Progress], None] | None] = lambda _: None,
    engine: str = "",
) -> tuple[int, dict[Spec, str]]:
    """Run all scenarios of a study that are not stored, in this process.

    Parameters
    ----------
    study : Study
        The study.
    store : Store
        Store of the results.
    watch : callable
        Scenario -> progress callback of its run, or None.
    engine : str
        As for `run`.

    Returns
    -------
    tuple of int and dict
        Number of new runs; policy -> reason why it cannot run.

    Raises
    ------
    TrainyardError
        If no policy can run, or a run stops.
    """
    trace, perf = load_trace(study.base.trace, store), study.base.perf
    profiles.build_model(perf, store)
    skipped = {
        spec: reason
        for spec in study.allocators
        if (reason := catalog.allocator(spec, trace, perf).reason)
    }
    if len(skipped) == len(set(study.allocators)):
        name, reason = study.labels[0], skipped[study.allocators[0]]
        raise ParameterError(f"{name} cannot run here: {reason}")
    runnable = [scenario for scenario in study.scenarios() if scenario.allocator not in skipped]
    missing = [(one, key) for one in runnable if not store.has(key := scenario_key(one, store))]
    for one, key in missing:
        result = run(one, trace=trace, store=store, progress=watch(one), engine=engine)
        store_result(store, key, one, result, trace)
    return len(missing), skipped
