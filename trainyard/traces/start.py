"""Where a new session begins: a sample on its own cluster under a few policies, and the study that
a chosen trace leads to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from allocators import REGISTRY
from sim.cluster import Cluster
from sim.errors import ClusterError, ParameterError, TrainyardError
from sim.params import Spec
from trainyard.store import Store, profiles
from trainyard.study import catalog
from trainyard.study.scenario import NEW_COSTS, Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces.fitting import cluster_for
from trainyard.traces.samples import SAMPLES
from trainyard.traces.sources import load_source, load_trace

FIRST_SAMPLE: Final = next(iter(SAMPLES))
FIRST_POLICIES: Final = ("fifo", "easy", "srtf", "recorded")
"""What the first comparison shows: the usual queue, the usual improvement, the shortest-first
bound, and what was recorded.
"""
RETRIES: Final = 3
"""As DLRover's job master gives up; without an end, a job that asks for too little memory would be
tried for ever.
"""


def sample_study(name: str = FIRST_SAMPLE) -> Study:
    """Return the comparison that a sample opens with.

    Raises
    ------
    TraceError
        If there is no such sample.
    """
    source = load_source(TraceSpec(f"sample:{name}"))
    cluster = source.cluster
    assert cluster is not None, "every sample comes with a cluster"
    specs = tuple(Spec(policy) for policy in FIRST_POLICIES if policy in REGISTRY) or (
        Spec(next(iter(REGISTRY))),
    )
    specs = tuple(spec for spec in specs if not catalog.allocator(spec, source.trace).reason)
    return Study(
        Scenario(TraceSpec(f"sample:{name}"), cluster, specs[0], overheads=NEW_COSTS), specs
    )


def names_a_file(study: Study) -> bool:
    """Tell whether the trace is the path of a file, which means something on the machine where the
    scenario was written only.
    """
    return not study.base.trace.source.startswith(("sample:", "store:", "made:"))


def admitted(study: Study) -> Study:
    """Return a study that came from outside, an address or a form, if a shared server may work on
    it.

    Raises
    ------
    TrainyardError
        If it names a file of the server.
    """
    if names_a_file(study):
        raise ParameterError(
            f"The scenario names the file {study.base.trace.source}, which the app does not open by"
            " its path. Load it on the Trace page."
        )
    return study


def trace_is_gone(study: Study, store: Store) -> bool:
    """Tell whether the trace is an upload that is not kept here, because its time is over, it was
    deleted, or it was uploaded elsewhere.
    """
    kind, _, digest = study.base.trace.source.partition(":")
    try:
        return kind == "store" and store.trace_info(digest) is None
    except TrainyardError:
        return True  # no name that the store could have given


def with_trace(study: Study, trace: TraceSpec, store: Store | None = None) -> Study:
    """Return the study on other jobs, on machines for them: samples and made workloads bring their
    cluster, jobs of a file get one that fits (`trainyard.traces.fitting.cluster_for`). What the
    user chose stays: with a sample any cluster of theirs, with a file the one they chose for
    another file. A recorded schedule that the jobs do not have is left out, if there is another
    policy.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    cluster = study.base.cluster
    if trace.source != study.base.trace.source:
        cluster = _next_cluster(study, trace, store)
    made = replace(study, base=replace(study.base, trace=trace, cluster=cluster))
    if load_trace(trace, store).has("start_time_s"):
        return made
    able = [
        at
        for at, spec in enumerate(made.allocators)
        if "recorded_start" not in catalog.allocator(spec).needs.reads
    ]
    return made.only(able) if able else made


def with_fitting_conditions(study: Study, store: Store | None = None) -> Study:
    """Return the study under conditions in which its jobs can show what they are made of, and
    unchanged where they can already.

    Jobs with parameter servers get a performance model that knows those; jobs that may ask for less
    memory than they need are given up after `RETRIES`.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    trace, faults = load_trace(study.base.trace, store), study.base.faults
    if trace.has("servers") and not catalog.instance("perf", study.base.perf).staffed:
        study = with_model(study, "perf", catalog.with_servers())
    if (trace.has("worker_mem_need_gb") or trace.has("server_mem_need_gb")) and catalog.instance(
        "faults", faults
    ).retries < 0:
        study = with_model(
            study, "faults", Spec.of(faults.name, **{**faults.values, "retries": RETRIES})
        )
    return study


def _next_cluster(study: Study, trace: TraceSpec, store: Store | None) -> Cluster:
    now, before = study.base.cluster, study.base.trace
    ready, source = _is_ready(now, before, store), load_source(trace, store)
    # A cluster that somebody made for a sample was not chosen for the jobs of a file.
    if not ready and (source.cluster is not None or _of_a_file(before)):
        return now
    try:
        return cluster_for(source).cluster
    except ClusterError:
        return now  # no cluster is large enough: the Trace page says so


def _of_a_file(trace: TraceSpec) -> bool:
    return not trace.source.startswith(("sample:", "made:"))


def _is_ready(cluster: Cluster, trace: TraceSpec, store: Store | None) -> bool:
    """Tell whether a cluster came with its trace or with a sample, so that nobody loses by another
    one.
    """
    # The clusters of samples too: with a file of which no cluster is large enough they stayed.
    return any(
        _brought(source, store) == cluster
        for source in (trace, *(TraceSpec(f"sample:{name}") for name in SAMPLES))
    )


def _brought(trace: TraceSpec, store: Store | None) -> Cluster | None:
    try:
        return cluster_for(load_source(trace, store)).cluster
    except TrainyardError:
        return None  # a trace that is gone is being replaced


def with_cluster(study: Study, cluster: Cluster) -> Study:
    """Return the study on other machines."""
    return replace(study, base=replace(study.base, cluster=cluster))


def with_model(study: Study, kind: str, spec: Spec) -> Study:
    """Return the study with another performance model, estimator, overheads or faults; `kind` is
    one of `trainyard.study.catalog.KINDS`.
    """
    changes: dict[str, Any] = {kind: spec}
    return replace(study, base=replace(study.base, **changes))


def with_policies(study: Study, specs: tuple[Spec, ...], baseline: int = 0) -> Study:
    """Return the study with other policies.

    Raises
    ------
    ParameterError
        If none is left, or a value is out of its bounds.
    """
    return study.choosing(specs, min(baseline, max(len(specs) - 1, 0)))


def reason(study: Study, at: int, store: Store | None = None) -> str:
    """Return why a policy of the study cannot run on its trace and cluster, as one sentence; "" =
    it can.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded, or the profile of the performance model is not kept any more.
    """
    profiles.resolved(study.base.perf, store)
    return catalog.allocator(
        study.allocators[at], load_trace(study.base.trace, store), study.base.perf
    ).reason
