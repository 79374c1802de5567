"""Leaves jobs out of a trace for a counted reason; the rest becomes a stored trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.errors import ParameterError
from sim.trace import Trace
from trainyard.clusters import machines
from trainyard.store import Store
from trainyard.store.profiles import build_model
from trainyard.study.study import Study
from trainyard.traces.sources import Source, load_source

Jobs = NDArray[np.bool_]


def drop_jobs(source: Source, bad: Jobs, reason: str, named: Mapping[str, Any]) -> Source:
    """Return a source without some of its jobs, counted in its reading report.

    used + left out = read.

    Parameters
    ----------
    source : Source
        The jobs, before window and load.
    bad : array of bool of shape (jobs,)
        Jobs to leave out; not all.
    reason : str
        Reason for the reading report.
    named : mapping
        ``format`` and ``title`` of the remaining trace.
    """
    trace, account, count = source.trace, source.account, int(bad.sum())
    left = Trace.of(trace.frame[~bad].reset_index(drop=True), **trace.about)
    counts = {
        "used": len(left),
        "dropped": account.get("dropped", 0) + count,
        "reasons": [
            *account.get("reasons", ()),
            {"action": "dropped", "reason": reason, "rows": count},
        ],
    }
    return Source(left, {**account, **counts, **named, "file": account.get("file", trace.name)})


def with_remaining_jobs(study: Study, kept: Source, bad: Jobs, store: Store) -> Study:
    """Store the remaining jobs; return the study on them, its window at the same instants.

    Parameters
    ----------
    study : Study
        The study on the whole source.
    kept : Source
        The remaining jobs from `drop_jobs`.
    bad : array of bool
        Jobs that were left out.
    store : Store
        Store of the new trace.

    Raises
    ------
    TrainyardError
        If the store cannot be written.
    """
    spec = study.base.trace
    kind, _, origin = spec.source.partition(":")
    # Recorded so that both traces are deleted together.
    family = [*kept.account.get("of", ()), *([origin] if kind == "store" else [])]
    # The owners of the original trace own the new one.
    digest = store.put_trace(
        kept.trace,
        {**kept.account, "of": family},
        store.index.owners(origin) if kind == "store" else (),
    )
    # Seconds count from the first submission, which may have been dropped.
    moved_s = float(load_source(spec, store).trace.numbers("submit_time_s")[~bad][0])
    trace = replace(
        spec,
        source=f"store:{digest}",
        fmt="",
        read=(),
        from_s=max(spec.from_s - moved_s, 0.0),
        to_s=spec.to_s - moved_s,
    )
    return replace(study, base=replace(study.base, trace=trace))


def without_unschedulable(study: Study, store: Store) -> Study:
    """Return the study without jobs that can never start; the others are stored.

    Unchanged if all jobs can start.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded, no job is left, or the store cannot be written.
    """
    base = study.base
    source = load_source(base.trace, store)
    bad = machines.find_unschedulable_jobs(
        source.trace, base.cluster, build_model(base.perf, store)
    ).mask
    if not bad.any():
        return study
    if bad.all():
        raise ParameterError(
            f"None of the jobs of {source.trace.name} can ever start on {base.cluster.name}. Change"
            " the cluster."
        )
    named = {
        "format": "left_out",
        "title": f"without jobs that can never start on {base.cluster.name}",
    }
    kept = drop_jobs(source, bad, f"can never start on {base.cluster.name}", named)
    return with_remaining_jobs(study, kept, bad, store)
