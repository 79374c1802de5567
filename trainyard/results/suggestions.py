"""Suggestions for a comparison without a clear verdict, and the studies they lead to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from allocators import REGISTRY
from sim.cluster import Cluster, NodeGroup
from sim.errors import ClusterError
from sim.params import Spec
from sim.trace import Trace
from trainyard.clusters.cluster_warnings import CONCURRENCY, FITS, UNKNOWN
from trainyard.clusters.machines import offered_load
from trainyard.study import catalog
from trainyard.study.scenario import MADE, TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.fitting import fit_cluster
from trainyard.traces.sources import load_source

TARGET: Final = 0.85
"""Suggested load: jobs wait, yet queues drain; the samples have it too."""
_LOADS: Final = (0.001, 1000.0)
"""Bounds of `trainyard.study.scenario.TraceSpec.load`."""
_REFERENCES: Final = ("fifo", "easy")
"""Usual queues of clusters: first come first served, and with backfilling."""
_REPEATS: Final = (5, 20, 50)
"""Suggested numbers of repeats, in order."""
Name = Literal[
    "lower_load",
    "raise_load",
    "fewer_nodes",
    "enough_gpus",
    "fit_cluster",
    "leave_out",
    "name_speeds",
    "compare_anyway",
    "repeats",
    "add_references",
    "change_baseline",
    "check_past",
    "hint",
]


@dataclass(frozen=True)
class Suggestion:
    """A suggestion: something the user can do.

    Parameters
    ----------
    name : str
        Kind of suggestion; "hint" = a sentence without a button.
    text : str
        Label of the button, or the sentence.
    command : str
        Command line option with the same effect; "" = none.
    value : float
        The new load, the share of nodes to keep, the number of repeats, or the place of the new
        baseline.
    """

    name: Name
    text: str
    command: str = ""
    value: float = math.nan

    def to_json(self) -> dict[str, Any]:
        """Return name, text and command."""
        return {key: value for key, value in asdict(self).items() if key != "value"}

    def __str__(self) -> str:
        return f"{self.text} ({self.command})" if self.command else self.text


COMPARE_ANYWAY: Final = Suggestion("compare_anyway", "Compare anyway")
CHECK_PAST: Final = Suggestion(
    "check_past", "Backtest the policy that was in force", "python -m trainyard backtest"
)
LEAVE_OUT: Final = Suggestion("leave_out", "Leave out the jobs that can never start")
NAME_SPEEDS: Final = Suggestion("name_speeds", "Enter the speeds")


def is_reference_policy(spec: Spec) -> bool:
    """Return True if a policy simulates the usual queue of clusters (FIFO, EASY)."""
    return spec.name in _REFERENCES


def reference_policies() -> tuple[Spec, ...]:
    """Return the reference policies with their defaults."""
    return tuple(Spec(name) for name in _REFERENCES if name in REGISTRY)


class JobsOnCluster(NamedTuple):
    """The simulated jobs and machines, as far as known.

    Parameters
    ----------
    trace, cluster : Trace or None, Cluster or None
        Jobs and machines.
    source : str
        Source of the trace, see `TraceSpec.source`.
    """

    trace: Trace | None = None
    cluster: Cluster | None = None
    source: str = ""


NOTHING_KNOWN: Final = JobsOnCluster()


def suggest_cluster(jobs: JobsOnCluster, most_load: float = math.inf) -> tuple[Suggestion, ...]:
    """Return the suggestion of the trace's own cluster, or one fitted to the jobs.

    At most one; none if jobs or machines are unknown, no cluster is large enough, it equals the
    present one, or its load would exceed `most_load`.
    """
    if jobs.trace is None or jobs.cluster is None:
        return ()
    try:
        fitting = _fitting_cluster(jobs.source, jobs.trace)
    except ClusterError:
        return ()  # no cluster is large enough
    if fitting.groups == jobs.cluster.groups or offered_load(jobs.trace, fitting) > most_load:
        return ()
    text = f"Fit the cluster to the jobs: {fitting.gpus:,} GPUs"
    short = ",".join(f"{group.count}x{group.gpus}:{group.gpu_type}" for group in fitting.groups)
    plain = Cluster.parse(short).groups == fitting.groups
    return (Suggestion("fit_cluster", text, f"--cluster {short}" if plain else ""),)


def _fitting_cluster(source: str, trace: Trace) -> Cluster:
    """Return the cluster that comes with a trace, or one that fits its jobs."""
    # The jobs can be a part of the source; the cluster of the source fits them too.
    ready = source.startswith(("sample:", MADE))
    return fit_cluster(load_source(TraceSpec(source)) if ready else trace).cluster


def suggest_for_doubts(doubts: Iterable[str], jobs: JobsOnCluster) -> tuple[Suggestion, ...]:
    """Return suggestions for doubts: a fitting cluster, leaving jobs out, naming GPU speeds.

    `doubts` are keys of `trainyard.clusters.cluster_warnings.find_doubts`.
    """
    ids = set(doubts)
    return (
        *(suggest_cluster(jobs) if ids & {CONCURRENCY, FITS} else ()),
        *([LEAVE_OUT] if FITS in ids else []),
        *([NAME_SPEEDS] if UNKNOWN in ids else []),
    )


def suggest_for_overload(
    load: float, scale: float, jobs: JobsOnCluster = NOTHING_KNOWN
) -> tuple[Suggestion, ...]:
    """Return suggestions for jobs that request more than the cluster can do.

    Another cluster, a lower load, a search for enough GPUs, and comparing anyway.

    Parameters
    ----------
    load : float
        Load of this cluster; NaN = unknown.
    scale : float
        `TraceSpec.load` that gives this load.
    jobs : JobsOnCluster
        Jobs and machines.
    """
    # Below 1 the queue has other reasons, such as gangs that do not fit together.
    target = TARGET if not load <= 1.0 else round(load / 2, 2)
    lower = _load_suggestion("lower_load", _load_text("Lower", target), scale * target / load)
    return (
        *suggest_cluster(jobs, 1.0),
        *lower,
        Suggestion("enough_gpus", "Find enough GPUs", "python -m trainyard plan"),
        COMPARE_ANYWAY,
    )


def suggest_for_idle(load: float, scale: float, cluster: Cluster | None) -> tuple[Suggestion, ...]:
    """Return suggestions for jobs that hardly wait: a higher load and fewer nodes.

    See `suggest_for_overload`. A hint to use more jobs if the load is unknown or high already.
    """
    target = TARGET if not load >= TARGET - 0.05 else 1.0
    if not 0 < load < target:
        return (Suggestion("hint", "Use a trace with more jobs."),)
    ways = _load_suggestion("raise_load", _load_text("Raise", target), scale * target / load)
    # Dated changes refer to nodes by number, which would change.
    if cluster is not None and not cluster.changes:
        share = load / target
        gpus = sum(group.gpus * count for group, count in _node_counts(cluster, share, 0))
        if gpus < cluster.gpus:
            ways += (Suggestion("fewer_nodes", f"Fewer nodes: about {gpus:,} GPUs", value=share),)
    return ways


def suggest_repeats(repeats: int) -> tuple[Suggestion, ...]:
    """Return the suggestion of the next larger number of repeats; empty at the largest."""
    more = next((number for number in _REPEATS if number > repeats), 0)
    return (
        (Suggestion("repeats", f"Run {more} repeats", f"--set repeats={more}", more),)
        if more
        else ()
    )


def suggest_references() -> Suggestion:
    """Return the suggestion to add the reference policies."""
    specs = reference_policies()
    names = " and ".join(catalog.allocator(spec).title for spec in specs)
    return Suggestion(
        "add_references", f"Add {names}", " ".join(f"--policy {spec.name}" for spec in specs)
    )


def suggest_baseline(label: str, place: int) -> Suggestion:
    """Return the suggestion to compare with a simulated baseline."""
    return Suggestion(
        "change_baseline", f"Compare against {label}", f"--set baseline={place}", place
    )


def apply_suggestion(study: Study, way: Suggestion, trace: Trace) -> Study:
    """Return the study to which a suggestion leads.

    Parameters
    ----------
    study : Study
        The current study.
    way : Suggestion
        A suggestion of its headline.
    trace : Trace
        The jobs: a smaller cluster must still hold the largest of them.

    Notes
    -----
    Suggestions that need more than the study (a plan, a backtest, comparing anyway, jobs left out,
    speeds, a hint) return it unchanged.
    """
    if way.name == "fit_cluster":
        return new_study.with_cluster(study, _fitting_cluster(study.base.trace.source, trace))
    if way.name in ("lower_load", "raise_load"):
        spec = replace(study.base.trace, load=way.value)
        return _drop_recorded(replace(study, base=replace(study.base, trace=spec)))
    if way.name == "fewer_nodes":
        return new_study.with_cluster(
            study,
            _shrink_cluster(study.base.cluster, way.value, int(trace.frame["num_gpus"].max())),
        )
    if way.name == "repeats":
        return replace(study, repeats=int(way.value))
    if way.name == "add_references":
        missing = tuple(spec for spec in reference_policies() if spec not in study.allocators)
        return study.choosing((*study.allocators, *missing), study.baseline)
    return replace(study, baseline=int(way.value)) if way.name == "change_baseline" else study


def _load_text(verb: str, target: float) -> str:
    """Return the text of a button that changes the load to a share of GPU time."""
    return f"{verb} the load until jobs request {100 * target:.0f} % of GPU time"


def _load_suggestion(name: Name, text: str, scale: float) -> tuple[Suggestion, ...]:
    """Return the suggestion of another load factor; empty if it is out of bounds.

    `scale` is the new `TraceSpec.load`.
    """
    scale = float(f"{scale:.4g}")
    if not _LOADS[0] <= scale <= _LOADS[1]:
        return ()
    return (Suggestion(name, text, f"--set trace.load={scale:g}", scale),)


def _drop_recorded(study: Study) -> Study:
    """Return the study without policies that replay the recording, unless no other is left.

    A recorded schedule does not exist at another load.
    """
    baseline = study.allocators[study.baseline]
    simulated = tuple(
        spec
        for spec in study.allocators
        if "recorded_start" not in catalog.allocator(spec).needs.reads
    )
    return (
        new_study.with_policies(
            study, simulated, simulated.index(baseline) if baseline in simulated else 0
        )
        if simulated
        else study
    )


def _node_counts(cluster: Cluster, share: float, largest: int) -> list[tuple[NodeGroup, int]]:
    """Return (group, nodes to keep) pairs: a share of the nodes, enough for the largest gang."""
    counts = []
    for group in cluster.groups:
        fewest = math.ceil(largest / group.gpus) if group.gpus else group.count
        counts.append((group, min(group.count, max(round(group.count * share), fewest, 1))))
    return counts


def _shrink_cluster(cluster: Cluster, share: float, largest: int) -> Cluster:
    """Return the cluster with a share of its nodes; the new name gives the GPUs that are left."""
    groups = tuple(
        replace(group, count=count) for group, count in _node_counts(cluster, share, largest)
    )
    gpus = sum(group.count * group.gpus for group in groups)
    return replace(
        cluster, groups=groups, name=f"{cluster.name}, {gpus:,} of {cluster.gpus:,} GPUs"
    )


HINTS: Final[Mapping[str, str]] = {
    "doubted": ("Answer the question on the Trace page, or choose a cluster that fits the jobs."),
    "carried": "Compare medians, or use a trace with more jobs.",
    "blocked": "Use a longer trace, or one without such jobs.",
    "few": "Use a trace with more jobs, or a longer part of it.",
    "cut": "Run until all jobs complete: set no horizon and no limit of retries.",
    "unexplained": (
        "Check for missing parts: absent nodes, quotas, partitions, jobs of other tenants."
    ),
}
"""Verdict of a headline -> hint, if no button can help."""


def hints_for(verdict: str) -> tuple[Suggestion, ...]:
    """Return the hint for a verdict, or nothing."""
    return (Suggestion("hint", HINTS[verdict]),) if verdict in HINTS else ()
