"""Assumptions that a comparison depends on: known run times, resizable jobs, restart costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sim.cluster import Cluster
from sim.overheads import Overheads
from sim.params import Spec
from sim.perf import PerfSpec
from sim.perf.resizable import Sizing, job_share
from sim.trace import Trace
from trainyard.clusters.prices import types_with_guessed_speed
from trainyard.formatting import gpu_type
from trainyard.results import simplest_model
from trainyard.store import Store, profiles
from trainyard.study import catalog
from trainyard.study.scenario import EXACT
from trainyard.study.study import Study


def assumption_sentences(
    study: Study,
    trace: Trace,
    summaries: Sequence[Mapping[str, Any]] | None = None,
    store: Store | None = None,
) -> tuple[str, ...]:
    """Return the assumptions that can change these policies' results, as sentences.

    They concern run times known exactly, parameter servers, resizing, restart costs, copies of
    jobs, guessed GPU speeds, and jobs left out for want of a run time.

    Parameters
    ----------
    study : Study
        The policies, the performance model and the overheads.
    trace : Trace
        The jobs.
    summaries : sequence of mapping or None
        `sim.metrics.summary` of the finished runs. If none of them restarted a job, restart costs
        are left out. None = before the runs.
    store : Store or None
        Holds the user's profiles.

    Raises
    ------
    ParameterError
        If the profile of the performance model was deleted.
    """
    perf = profiles.build_model(study.base.perf, store)
    ready = [
        choice
        for choice in (catalog.allocator(spec, trace, study.base.perf) for spec in study.allocators)
        if not choice.reason
    ]
    needs = frozenset[str]().union(*(choice.needs.requires for choice in ready))
    sentences = (
        [
            simplest_model.simplest_model_note(study.allocators, trace, study.base.perf),
            _servers_sentence(trace),
        ]
        if perf.staffed
        else []
    )
    sentences += [_resizing_sentence(perf, trace)] if "scaling" in needs else []
    if summaries is None or any(one["restarts"] for one in summaries):
        sentences.append(restart_cost_sentence(catalog.instance("overheads", study.base.overheads)))
    if (
        "forks" in needs
        and sum(group.count for group in study.base.cluster.groups if group.gpus) > 1
    ):  # a copy runs on its own node
        copy_cost = perf.price()
        sentences.append(f"{copy_cost[:1].upper()}{copy_cost[1:]}.")
    sentences.append(guessed_speeds_sentence(study.base.cluster, trace))
    sentences.append(_jobs_without_run_time(study, store))
    sentences.append(exact_run_times_sentence(study, trace))
    return tuple(filter(None, sentences))


def exact_run_times_sentence(study: Study, trace: Trace) -> str:
    """Return the sentence that names policies that know run times exactly; "" if none does."""
    if study.base.estimator != EXACT:
        return ""
    titles = [
        title
        for title, spec in zip(study.titles, study.allocators, strict=True)
        if _reads_run_times(spec, trace, study)
    ]
    if not titles:
        return ""
    names = ", ".join(titles[:-1]) + (" and " if titles[1:] else "") + titles[-1]
    verb = "know" if titles[1:] else "knows"
    return f"{names} {verb} each job's true run time (run-time estimates: exact)."


def _reads_run_times(spec: Spec, trace: Trace, study: Study) -> bool:
    """Return True if a policy that can run uses estimated run times, not only time limits."""
    choice = catalog.allocator(spec, trace, study.base.perf)
    has_limits = bool(np.isfinite(trace.numbers("time_limit_s")).all())
    reads = "remaining_work" in choice.needs.reads
    return not choice.reason and reads and not (has_limits and _uses_limits(spec))


def _uses_limits(spec: Spec) -> bool:
    """Return True if a policy, or one within it, uses time limits as run times."""
    return any(
        value == "limit" if name == "run_times" else isinstance(value, Spec) and _uses_limits(value)
        for name, value in spec.params
    )


def _jobs_without_run_time(study: Study, store: Store | None) -> str:
    """Return the sentence that counts jobs left out of an upload by state; "" if none are.

    Jobs without a run time are left out. "" also for samples and generated traces.
    """
    kind, _, digest = study.base.trace.source.partition(":")
    about = store.trace_info(digest) if store is not None and kind == "store" else None
    counts = about.account.get("unended", {}) if about is not None else {}
    if not counts:
        return ""
    states = " and ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))
    return f"Left out, because they have no run time yet: {states} jobs of the file."


def guessed_speeds_sentence(cluster: Cluster, trace: Trace) -> str:
    """Return the sentence that names GPU types with a guessed speed; "" if none matters.

    Jobs of an unnamed type on GPUs of one type take as long as recorded, whatever the speed.
    """
    cluster_types = {group.gpu_type for group in cluster.groups if group.gpus}
    trace_types = {str(kind) for kind in trace.texts("gpu_type").categories} - {""}
    if not (kinds := types_with_guessed_speed(cluster)) or len(cluster_types | trace_types) < 2:
        return ""
    named = ", ".join(f"{gpu_type(kind.name)} ({kind.speed:.3g})" for kind in kinds)
    return (
        f"Not measured but guessed, against a V100: the speed of {named}. Enter your own on the"
        " Cluster page."
    )


def restart_cost_sentence(costs: Overheads) -> str:
    """Return the sentence on what stopping or resizing a job costs."""
    if costs.on_preempt == "forbidden":
        return "No job is stopped by a policy (on_preempt = forbidden)."
    if costs.on_preempt == "lose_all":
        return f"A stopped job loses all its work, and takes {costs.restart_s:g} s to begin again."
    if not costs.restart_s:
        return "Stopping or resizing a job costs nothing (restart_s = 0 s)."
    return f"A stopped or resized job takes {costs.restart_s:g} s to come back from its checkpoint."


def _servers_sentence(trace: Trace) -> str:
    """Return how many jobs are assumed to use parameter servers; "" if all state their roles."""
    is_unstated = np.isnan(trace.numbers("servers"))
    if not is_unstated.any():
        return ""
    return (
        f"{int(is_unstated.sum()):,} of {len(trace):,} jobs do not state parameter servers and are"
        " assumed to train with them, with step times that are computed."
    )


def _resizing_sentence(perf: PerfSpec, trace: Trace) -> str:
    """Return the sentence on assumed GPU ranges and speedups of jobs; "" if none are assumed."""
    if not isinstance(perf, Sizing):
        return ""
    on_gpus = trace.numbers("num_gpus") > 0
    is_unstated = on_gpus & (
        np.isnan(trace.numbers("min_gpus")) | np.isnan(trace.numbers("max_gpus"))
    )
    curve = perf.curve(trace)
    if not is_unstated.any():
        return (
            f"The jobs state between which sizes they can run; assumed: {curve}."
            if curve and on_gpus.any()
            else ""
        )
    low = f"{perf.shrink:g}" if perf.shrink else "the fewest possible"
    sizes = (
        f"{job_share(is_unstated, on_gpus)} are assumed to be resizable, from {low} to"
        f" {perf.grow:g} times the GPUs they asked for"
    )
    return f"{sizes}{f', with {curve}' if curve else ''}."
