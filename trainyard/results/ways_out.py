"""What can be done where a comparison has no clear verdict: structured ways out, and the study to
which each of them leads.
"""

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
from trainyard.clusters.doubts import CONCURRENCY, FITS, UNKNOWN
from trainyard.clusters.machines import offered_load
from trainyard.study import catalog
from trainyard.study.scenario import MADE, TraceSpec
from trainyard.study.study import Study
from trainyard.traces import start
from trainyard.traces.fitting import cluster_for
from trainyard.traces.sources import load_source

TARGET: Final = 0.85
"""Load to go to: high enough that jobs wait, low enough that queues drain; also that of the
samples.
"""
_LOADS: Final = (0.001, 1000.0)
"""Bounds of `trainyard.study.scenario.TraceSpec.load`."""
_REFERENCES: Final = ("fifo", "easy")
"""Queues as clusters run them: first come first served, and with backfilling."""
_REPEATS: Final = (5, 20, 50)
"""Numbers of repeats to go to, one after the other."""
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
class WayOut:
    """One thing to do.

    Parameters
    ----------
    name : str
        What kind of thing; "hint" = only a sentence, which no button can do.
    text : str
        Label of its button, or the sentence.
    command : str
        What to add on the command line; "" = nothing that would do it.
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


COMPARE_ANYWAY: Final = WayOut("compare_anyway", "Compare all the same")
CHECK_PAST: Final = WayOut(
    "check_past", "Check the policy that was in force", "python -m trainyard backtest"
)
LEAVE_OUT: Final = WayOut("leave_out", "Leave out the jobs that can never start")
NAME_SPEEDS: Final = WayOut("name_speeds", "Enter the speeds")


def is_reference(spec: Spec) -> bool:
    """Tell whether a policy simulates how clusters usually run, so that it should explain a
    recording.
    """
    return spec.name in _REFERENCES


def references() -> tuple[Spec, ...]:
    """Return those policies with their defaults."""
    return tuple(Spec(name) for name in _REFERENCES if name in REGISTRY)


class JobsOnCluster(NamedTuple):
    """What is simulated, as far as it is known.

    Parameters
    ----------
    trace, cluster : Trace or None, Cluster or None
        Jobs and machines.
    source : str
        Of the trace: see `TraceSpec.source`.
    """

    trace: Trace | None = None
    cluster: Cluster | None = None
    source: str = ""


NOTHING_KNOWN: Final = JobsOnCluster()


def fit_cluster(jobs: JobsOnCluster, most_load: float = math.inf) -> tuple[WayOut, ...]:
    """Return the way to machines that fit the jobs; none if there are no others, or if they were
    asked for more than `most_load` too.
    """
    if jobs.trace is None or jobs.cluster is None:
        return ()
    try:
        fitting = _fitting(jobs.source, jobs.trace)
    except ClusterError:
        return ()  # no cluster is large enough
    if fitting.groups == jobs.cluster.groups or offered_load(jobs.trace, fitting) > most_load:
        return ()
    text = f"Fit the cluster to the jobs: {fitting.gpus:,} GPUs"
    short = ",".join(f"{group.count}x{group.gpus}:{group.gpu_type}" for group in fitting.groups)
    plain = Cluster.parse(short).groups == fitting.groups
    return (WayOut("fit_cluster", text, f"--cluster {short}" if plain else ""),)


def _fitting(source: str, trace: Trace) -> Cluster:
    """Return the machines that come with jobs, or some that fit them."""
    # The jobs may be a part of the source, which is large enough for them all.
    ready = source.startswith(("sample:", MADE))
    return cluster_for(load_source(TraceSpec(source)) if ready else trace).cluster


def for_doubts(doubts: Iterable[str], jobs: JobsOnCluster) -> tuple[WayOut, ...]:
    """Return what helps where something is in doubt of jobs on machines; `doubts` are keys of
    `trainyard.clusters.doubts.found`.
    """
    found = set(doubts)
    return (
        *(fit_cluster(jobs) if found & {CONCURRENCY, FITS} else ()),
        *([LEAVE_OUT] if FITS in found else []),
        *([NAME_SPEEDS] if UNKNOWN in found else []),
    )


def for_overload(
    load: float, scale: float, jobs: JobsOnCluster = NOTHING_KNOWN
) -> tuple[WayOut, ...]:
    """Return what helps where jobs ask for more than a cluster can do.

    Parameters
    ----------
    load : float
        Of this cluster; NaN = not known.
    scale : float
        `TraceSpec.load` under which it is that.
    jobs : JobsOnCluster
        On which machines.
    """
    # Below 1 the queue has other reasons, such as gangs that do not fit beside each other.
    target = TARGET if not load <= 1.0 else round(load / 2, 2)
    lower = _load("lower_load", f"Lower the load to {target:g}", scale * target / load)
    return (
        *fit_cluster(jobs, 1.0),
        *lower,
        WayOut("enough_gpus", "Find enough GPUs", "python -m trainyard plan"),
        COMPARE_ANYWAY,
    )


def for_idle(load: float, scale: float, cluster: Cluster | None) -> tuple[WayOut, ...]:
    """Return what helps where jobs hardly wait; see `for_overload`."""
    target = TARGET if not load >= TARGET - 0.05 else 1.0
    if not 0 < load < target:
        return (WayOut("hint", "Take a trace with more jobs."),)
    ways = _load("raise_load", f"Raise the load to {target:g}", scale * target / load)
    # Dated changes name nodes by their number, which would be others then.
    if cluster is not None and not cluster.changes:
        share = load / target
        gpus = sum(group.gpus * count for group, count in _kept(cluster, share, 0))
        if gpus < cluster.gpus:
            ways += (WayOut("fewer_nodes", f"Fewer nodes: about {gpus:,} GPUs", value=share),)
    return ways


def more_repeats(repeats: int) -> tuple[WayOut, ...]:
    """Return the way to see how much is chance, as long as there is more to see."""
    more = next((number for number in _REPEATS if number > repeats), 0)
    return (
        (WayOut("repeats", f"Run {more} repeats", f"--set repeats={more}", more),) if more else ()
    )


def add_references() -> WayOut:
    """Return the way to find out whether the model explains a recording."""
    specs = references()
    names = " and ".join(catalog.allocator(spec).title for spec in specs)
    return WayOut(
        "add_references", f"Add {names}", " ".join(f"--policy {spec.name}" for spec in specs)
    )


def change_baseline(label: str, place: int) -> WayOut:
    """Return the way to compare simulated with simulated."""
    return WayOut("change_baseline", f"Compare against {label}", f"--set baseline={place}", place)


def apply(study: Study, way: WayOut, trace: Trace) -> Study:
    """Return the study to which a way out leads.

    Parameters
    ----------
    study : Study
        The one that is shown.
    way : WayOut
        Of its headline.
    trace : Trace
        Its jobs: a smaller cluster must still hold the largest of them.

    Notes
    -----
    Ways that need more than the study (a plan, a check, comparing all the same, jobs left out,
    speeds, a hint) return it as it is.
    """
    if way.name == "fit_cluster":
        return start.with_cluster(study, _fitting(study.base.trace.source, trace))
    if way.name in ("lower_load", "raise_load"):
        spec = replace(study.base.trace, load=way.value)
        return _simulated(replace(study, base=replace(study.base, trace=spec)))
    if way.name == "fewer_nodes":
        return start.with_cluster(
            study, _smaller(study.base.cluster, way.value, int(trace.frame["num_gpus"].max()))
        )
    if way.name == "repeats":
        return replace(study, repeats=int(way.value))
    if way.name == "add_references":
        missing = tuple(spec for spec in references() if spec not in study.allocators)
        return study.choosing((*study.allocators, *missing), study.baseline)
    return replace(study, baseline=int(way.value)) if way.name == "change_baseline" else study


def _load(name: Name, text: str, scale: float) -> tuple[WayOut, ...]:
    scale = float(f"{scale:.4g}")
    if not _LOADS[0] <= scale <= _LOADS[1]:
        return ()
    return (WayOut(name, text, f"--set trace.load={scale:g}", scale),)


def _simulated(study: Study) -> Study:
    """Leave out recorded schedules: at another load there is no history."""
    baseline = study.allocators[study.baseline]
    kept = tuple(
        spec
        for spec in study.allocators
        if "recorded_start" not in catalog.allocator(spec).needs.reads
    )
    return (
        start.with_policies(study, kept, kept.index(baseline) if baseline in kept else 0)
        if kept
        else study
    )


def _kept(cluster: Cluster, share: float, largest: int) -> list[tuple[NodeGroup, int]]:
    """Return how many nodes of each group are left; a gang of the largest size still fits where it
    did.
    """
    kept = []
    for group in cluster.groups:
        fewest = math.ceil(largest / group.gpus) if group.gpus else group.count
        kept.append((group, min(group.count, max(round(group.count * share), fewest, 1))))
    return kept


def _smaller(cluster: Cluster, share: float, largest: int) -> Cluster:
    groups = tuple(replace(group, count=count) for group, count in _kept(cluster, share, largest))
    gpus = sum(group.count * group.gpus for group in groups)
    return replace(
        cluster, groups=groups, name=f"{cluster.name}, {gpus:,} of {cluster.gpus:,} GPUs"
    )


TEXTS: Final[Mapping[str, str]] = {
    "doubted": (
        "Read the trace again with an answer to the question, or choose a cluster that holds its"
        " jobs."
    ),
    "carried": "Compare medians, or take a trace with more jobs.",
    "blocked": "Take a longer trace, or one without such jobs.",
    "few": "Take a trace with more jobs, or a longer part of it.",
    "cut": "Let the runs go on until all jobs are done: no horizon, and retries without an end.",
    "unexplained": (
        "Look for what the description lacks: nodes that were not there, quotas, partitions, jobs"
        " of others."
    ),
}
"""Verdict of a headline -> what to do about it, where no button can."""


def hint(verdict: str) -> tuple[WayOut, ...]:
    """Return the sentence on what to do about a verdict, or nothing."""
    return (WayOut("hint", TEXTS[verdict]),) if verdict in TEXTS else ()
