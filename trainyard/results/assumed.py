"""What a comparison assumes and its results hang on: which jobs can be resized, what stops and
copies cost. Said beside every result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sim.cluster import Cluster
from sim.overheads import Overheads
from sim.perf import PerfSpec
from sim.perf.resizable import Sizing, job_share
from sim.trace import Trace
from trainyard.clusters.prices import guessed
from trainyard.results import plainest
from trainyard.store import Store, profiles
from trainyard.study import catalog
from trainyard.study.study import Study
from trainyard.text import gpu_type


def assumed(
    study: Study,
    trace: Trace,
    summaries: Sequence[Mapping[str, Any]] | None = None,
    store: Store | None = None,
) -> tuple[str, ...]:
    """Return what is assumed of these policies on these jobs, as sentences; only what moves a
    result of theirs.

    Parameters
    ----------
    study : Study
        The policies, how fast jobs run, and what changes cost.
    trace : Trace
        The jobs.
    summaries : sequence of mapping or None
        `sim.metrics.summary` of the runs, as far as they are there: where none of them restarted a
        job, nothing is said of restarts. None = before the runs.
    store : Store or None
        Where profiles of the user are kept.

    Raises
    ------
    ParameterError
        If the profile of the performance model is not kept any more.
    """
    perf = profiles.resolved(study.base.perf, store)
    ready = [
        choice
        for choice in (catalog.allocator(spec, trace, study.base.perf) for spec in study.allocators)
        if not choice.reason
    ]
    needs = frozenset[str]().union(*(choice.needs.requires for choice in ready))
    said = (
        [plainest.about(study.allocators, trace, study.base.perf), _staffing(trace)]
        if perf.staffed
        else []
    )
    said += [_resizing(perf, trace)] if "scaling" in needs else []
    if summaries is None or any(one["restarts"] for one in summaries):
        said.append(restarts(catalog.instance("overheads", study.base.overheads)))
    if (
        "forks" in needs
        and sum(group.count for group in study.base.cluster.groups if group.gpus) > 1
    ):  # a copy has a node of its own
        price = perf.price()
        said.append(f"{price[:1].upper()}{price[1:]}.")
    said.append(guessed_speeds(study.base.cluster, trace))
    said.append(_without_run_time(study, store))
    return tuple(filter(None, said))


def _without_run_time(study: Study, store: Store | None) -> str:
    """Return how many jobs of an upload ran or waited when its file was written; "" = none."""
    kind, _, digest = study.base.trace.source.partition(":")
    about = store.trace_info(digest) if store is not None and kind == "store" else None
    counts = about.account.get("unended", {}) if about is not None else {}
    if not counts:
        return ""
    states = " and ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))
    return f"Left out, because they have no run time yet: {states} jobs of the file."


def guessed_speeds(cluster: Cluster, trace: Trace) -> str:
    """Return which speeds of GPU types were neither measured nor entered; "" = none, or none that
    moves a result: jobs of an unnamed type on GPUs of one type take as long as they took.
    """
    there = {group.gpu_type for group in cluster.groups if group.gpus}
    recorded = {str(kind) for kind in trace.texts("gpu_type").categories} - {""}
    if not (kinds := guessed(cluster)) or len(there | recorded) < 2:
        return ""
    named = ", ".join(f"{gpu_type(kind.name)} ({kind.speed:.3g})" for kind in kinds)
    return (
        f"Not measured but guessed, against a V100: the speed of {named}. Enter your own on the"
        " Cluster page."
    )


def restarts(costs: Overheads) -> str:
    """Return in a sentence what it costs to stop a job, or to resize it, and to go on."""
    if costs.on_preempt == "forbidden":
        return "No job is stopped by a policy (on_preempt = forbidden)."
    if costs.on_preempt == "lose_all":
        return f"A stopped job loses all its work, and takes {costs.restart_s:g} s to begin again."
    if not costs.restart_s:
        return "Stopping or resizing a job costs nothing (restart_s = 0 s)."
    return f"A stopped or resized job takes {costs.restart_s:g} s to come back from its checkpoint."


def _staffing(trace: Trace) -> str:
    """Return how many jobs are assumed to have parameter servers; "" = all say what they are made
    of.
    """
    silent = np.isnan(trace.numbers("servers"))
    if not silent.any():
        return ""
    return (
        f"{int(silent.sum()):,} of {len(trace):,} jobs do not state parameter servers and are"
        " assumed to train with them, with step times that are computed."
    )


def _resizing(perf: PerfSpec, trace: Trace) -> str:
    """Return which jobs are assumed to be resizable, over which range, and by what curve; "" = the
    trace says all that.
    """
    if not isinstance(perf, Sizing):
        return ""
    on_gpus = trace.numbers("num_gpus") > 0
    silent = on_gpus & (np.isnan(trace.numbers("min_gpus")) | np.isnan(trace.numbers("max_gpus")))
    curve = perf.curve(trace)
    if not silent.any():
        return (
            f"The jobs state between which sizes they can run; assumed: {curve}."
            if curve and on_gpus.any()
            else ""
        )
    low = f"{perf.shrink:g}" if perf.shrink else "the fewest possible"
    sizes = (
        f"{job_share(silent, on_gpus)} are assumed to be resizable, from {low} to {perf.grow:g}"
        " times the GPUs they asked for"
    )
    return f"{sizes}{f', with {curve}' if curve else ''}."
