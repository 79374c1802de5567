"""Performance models for a comparison whose policies cannot all run under the plainest: as plain as
they can be, and the same for all that are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sim.cluster import Cluster
from sim.errors import TrainyardError
from sim.params import Spec
from sim.perf import PERF
from sim.trace import Trace
from trainyard.results.ways_out import is_reference
from trainyard.study import catalog
from trainyard.study.study import Study

AUTO: Final = "auto"
"""What stands for the choice on the command line."""


class PerfPart(NamedTuple):
    """Policies that are compared under one performance model: their places in the study."""

    perf: Spec
    places: tuple[int, ...]


def candidates() -> tuple[Spec, ...]:
    """Return the first performance model of each kind, the plainest kind first: jobs of one size,
    jobs that scale, jobs made of workers and servers.
    """
    kinds: dict[tuple[bool, bool], Spec] = {}
    for name, model in PERF.items():
        kinds.setdefault((model.staffed, model.scales), Spec(name))
    return tuple(kinds[kind] for kind in sorted(kinds))


def for_all(policies: Sequence[Spec], trace: Trace, cluster: Cluster) -> Spec:
    """Return the plainest performance model with its defaults under which the most of these
    policies can run on these jobs and machines.
    """
    able = _able(policies, trace, cluster)
    return (
        max(able, key=lambda perf: len(able[perf])) if able else candidates()[0]
    )  # of equals the first


def arranged(study: Study, trace: Trace) -> tuple[PerfPart, ...]:
    """Return the comparisons that a study falls into if every policy runs under the plainest model
    that it can run under.

    Notes
    -----
    Jobs that keep their size finish at the same instants under models without parameter servers,
    so that one of these, the plainest under which the most of the policies can run, serves all
    that need no servers. Those that need them are compared under a model that has them, beside the
    baseline, which is run again: runs under different models are never compared. Beside a recorded
    schedule those that should explain it are run again too, else nothing could be said. The first
    policy that can run stands in for a baseline that cannot. If the baseline needs servers, all run
    so. A model that cannot be bound to the trace, e.g. because it lacks what the model reads, is
    none for anybody.
    """
    able = _able(study.allocators, trace, study.base.cluster)
    some = set[int]().union(*able.values())
    base = study.baseline if study.baseline in some else min(some, default=0)
    again = {base}
    if "recorded_start" in catalog.allocator(study.allocators[base]).needs.reads:
        again |= {at for at, spec in enumerate(study.allocators) if is_reference(spec)}
    kinds = sorted(
        {_staffed(perf) for perf in able},
        key=lambda kind: (
            not any(base in able[perf] for perf in able if _staffed(perf) == kind),
            kind,
        ),
    )
    left, parts = set(range(len(study.allocators))), list[PerfPart]()
    for kind in kinds:
        family = [perf for perf in able if _staffed(perf) == kind]
        perf = max(family, key=lambda one: len(able[one] & left))
        taken = able[perf] & left
        if taken:
            parts.append(PerfPart(perf, tuple(sorted(taken | (again & able[perf])))))
            left -= taken
    return tuple(
        one for one in parts if not any(set(one.places) < set(other.places) for other in parts)
    )


def about(policies: Sequence[Spec], trace: Trace, perf: Spec) -> str:
    """Return which of these policies cannot run under a plainer model than this one, in a sentence;
    "" = all can.
    """
    every = candidates()
    plainer = every[: next((at for at, one in enumerate(every) if one.name == perf.name), 0)]
    needing = [
        catalog.allocator(spec).title
        for spec in policies
        if not catalog.allocator(spec, trace, perf).reason
        and all(catalog.allocator(spec, trace, other).reason for other in plainer)
    ]
    if not plainer or not needing:
        return ""
    names = ", ".join(dict.fromkeys(needing))
    return (
        f"All policies here run under “{catalog.model_title(perf)}”, so that they can be compared:"
        f" {names} cannot run under a plainer model."
    )


def _staffed(perf: Spec) -> bool:
    return PERF[perf.name].staffed


def _able(policies: Sequence[Spec], trace: Trace, cluster: Cluster) -> dict[Spec, set[int]]:
    """Return the candidates that can be bound, the plainest first, and the places of the policies
    that can run under each.
    """
    found = {}
    for perf in candidates():
        try:
            catalog.instance("perf", perf).bind(trace, cluster)
        except TrainyardError:
            continue
        found[perf] = {
            at
            for at, spec in enumerate(policies)
            if not catalog.allocator(spec, trace, perf).reason
        }
    return found
