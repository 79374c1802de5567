"""The study of a new session, and changes of trace, cluster and policies of a study."""

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
from trainyard.traces.fitting import fit_cluster
from trainyard.traces.samples import SAMPLES
from trainyard.traces.sources import load_source, load_trace

FIRST_SAMPLE: Final = next(iter(SAMPLES))
FIRST_POLICIES: Final = ("fifo", "easy", "srtf", "recorded")
"""Policies of the first comparison: two queues, shortest first, and the recorded schedule."""
RETRIES: Final = 3
"""Retries of DLRover's job master; limited, because a job with too little memory never succeeds."""


def sample_study(name: str = FIRST_SAMPLE) -> Study:
    """Return the study that a sample opens with: its cluster, and first policies that can run.

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


def has_file_trace(study: Study) -> bool:
    """Return True if the trace is a file path: no sample, upload or generated workload."""
    return not study.base.trace.source.startswith(("sample:", "store:", "made:"))


def refuse_server_file(study: Study) -> Study:
    """Return a study from a link or form; raise if its trace is a file of the server.

    Raises
    ------
    TrainyardError
        If the trace is a file of the server.
    """
    if has_file_trace(study):
        raise ParameterError(
            f"The scenario refers to the file {study.base.trace.source}, which the app cannot open"
            " by path. Load it on the Trace page."
        )
    return study


def is_trace_missing(study: Study, store: Store) -> bool:
    """Return True if the trace is an upload that this store lacks, or has an invalid digest."""
    kind, _, digest = study.base.trace.source.partition(":")
    try:
        return kind == "store" and store.trace_info(digest) is None
    except TrainyardError:
        return True  # not a valid digest of the store


def with_trace(study: Study, trace: TraceSpec, store: Store | None = None) -> Study:
    """Return the study with other jobs and, unless the user chose one, a cluster for them.

    Samples and generated workloads bring their cluster; jobs of a file get one that fits (see
    `trainyard.traces.fitting.fit_cluster`). A cluster that the user chose stays. Policies that need
    a recorded schedule are removed if the jobs have none.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    cluster = study.base.cluster
    if trace.source != study.base.trace.source:
        cluster = _cluster_for_trace(study, trace, store)
    changed = replace(study, base=replace(study.base, trace=trace, cluster=cluster))
    if load_trace(trace, store).has("start_time_s"):
        return changed
    runnable = [
        index
        for index, spec in enumerate(changed.allocators)
        if "recorded_start" not in catalog.allocator(spec).needs.reads
    ]
    return changed.only(runnable) if runnable else changed


def with_required_models(study: Study, store: Store | None = None) -> Study:
    """Return the study with the models that its jobs require, unchanged if it has them.

    Jobs with parameter servers get a performance model that supports them; jobs that may request
    less memory than they need are abandoned after `RETRIES`.

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


def _cluster_for_trace(study: Study, trace: TraceSpec, store: Store | None) -> Cluster:
    """Return the cluster for a new trace: one that the user chose stays, else one is fitted.

    A choice made for a sample or generated workload does not stay for the jobs of a file. The
    present cluster also stays if none is large enough.
    """
    current, old_trace = study.base.cluster, study.base.trace
    is_default, source = _is_default_cluster(current, old_trace, store), load_source(trace, store)
    # A cluster chosen for a sample was not chosen for the jobs of a file.
    if not is_default and (source.cluster is not None or _is_from_file(old_trace)):
        return current
    try:
        return fit_cluster(source).cluster
    except ClusterError:
        return current  # no cluster is large enough: the Trace page reports it


def _is_from_file(trace: TraceSpec) -> bool:
    """Return True if a trace comes from a file or the store."""
    return not trace.source.startswith(("sample:", "made:"))


def _is_default_cluster(cluster: Cluster, trace: TraceSpec, store: Store | None) -> bool:
    """Return True if a cluster is the default one of this trace or of any sample."""
    # Include the clusters of samples: they stay if no cluster is large enough for a file.
    return any(
        _default_cluster(source, store) == cluster
        for source in (trace, *(TraceSpec(f"sample:{name}") for name in SAMPLES))
    )


def _default_cluster(trace: TraceSpec, store: Store | None) -> Cluster | None:
    """Return the default cluster of a trace; None if the trace cannot be loaded."""
    try:
        return fit_cluster(load_source(trace, store)).cluster
    except TrainyardError:
        return None  # a trace that is gone is being replaced


def with_cluster(study: Study, cluster: Cluster) -> Study:
    """Return the study with another cluster."""
    return replace(study, base=replace(study.base, cluster=cluster))


def with_model(study: Study, kind: str, spec: Spec) -> Study:
    """Return the study with another performance model, estimator, overheads or faults.

    `kind` is one of `trainyard.study.catalog.KINDS`.
    """
    changes: dict[str, Any] = {kind: spec}
    return replace(study, base=replace(study.base, **changes))


def with_policies(study: Study, specs: tuple[Spec, ...], baseline: int = 0) -> Study:
    """Return the study with other policies; a `baseline` beyond them becomes the last one.

    Raises
    ------
    ParameterError
        If no policy is left, or a value is out of bounds.
    """
    return study.choosing(specs, min(baseline, max(len(specs) - 1, 0)))


def refusal_reason(study: Study, policy_index: int, store: Store | None = None) -> str:
    """Return why a policy of the study cannot run on its trace; "" if it can.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded, or the profile of the performance model was deleted.
    """
    profiles.build_model(study.base.perf, store)
    return catalog.allocator(
        study.allocators[policy_index], load_trace(study.base.trace, store), study.base.perf
    ).reason
