"""Choice of the simplest performance model under which a study's policies can run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sim.cluster import Cluster
from sim.errors import TrainyardError
from sim.params import Spec
from sim.perf import PERF
from sim.trace import Trace
from trainyard.results.suggestions import is_reference_policy
from trainyard.study import catalog
from trainyard.study.study import Study

AUTO: Final = "auto"
"""Value of the command line option that selects the model automatically."""


class PerfPart(NamedTuple):
    """Policies compared under one performance model, by index in the study."""

    perf: Spec
    places: tuple[int, ...]


def candidates() -> tuple[Spec, ...]:
    """Return one performance model per kind, simplest first: rigid, scaling, with servers."""
    kinds: dict[tuple[bool, bool], Spec] = {}
    for name, model in PERF.items():
        kinds.setdefault((model.staffed, model.scales), Spec(name))
    return tuple(kinds[kind] for kind in sorted(kinds))


def simplest_for_all(policies: Sequence[Spec], trace: Trace, cluster: Cluster) -> Spec:
    """Return the simplest performance model among those under which most policies can run.

    The simplest of all if none can be bound to the trace.
    """
    able = _runnable_policies(policies, trace, cluster)
    return (
        max(able, key=lambda perf: len(able[perf])) if able else candidates()[0]
    )  # the simplest of equals


def split_by_model(study: Study, trace: Trace) -> tuple[PerfPart, ...]:
    """Split a study into comparisons, each policy under its simplest performance model.

    Notes
    -----
    Jobs of fixed size finish at the same instants under all models without parameter servers, so
    one of these serves all policies that need no servers. Policies that need servers are compared
    under a model with servers; the baseline runs again there, because runs under different models
    are never compared. With a recorded schedule as the baseline, its reference policies run again
    too. If the baseline cannot run, the first policy that can replaces it. If the baseline needs
    servers, all policies run with servers. Models that cannot be bound to the trace are skipped.
    """
    able = _runnable_policies(study.allocators, trace, study.base.cluster)
    runnable = set[int]().union(*able.values())
    base = study.baseline if study.baseline in runnable else min(runnable, default=0)
    repeated = {base}
    if "recorded_start" in catalog.allocator(study.allocators[base]).needs.reads:
        repeated |= {at for at, spec in enumerate(study.allocators) if is_reference_policy(spec)}
    kinds = sorted(
        {_has_servers(perf) for perf in able},
        key=lambda kind: (
            not any(base in able[perf] for perf in able if _has_servers(perf) == kind),
            kind,
        ),
    )
    remaining, parts = set(range(len(study.allocators))), list[PerfPart]()
    for kind in kinds:
        family = [perf for perf in able if _has_servers(perf) == kind]
        perf = max(family, key=lambda one: len(able[one] & remaining))
        chosen = able[perf] & remaining
        if chosen:
            parts.append(PerfPart(perf, tuple(sorted(chosen | (repeated & able[perf])))))
            remaining -= chosen
    return tuple(
        one for one in parts if not any(set(one.places) < set(other.places) for other in parts)
    )


def simplest_model_note(policies: Sequence[Spec], trace: Trace, perf: Spec) -> str:
    """Return the sentence that names policies without a simpler model; "" if all have one.

    Simpler = before `perf` in `candidates`. Policies that cannot run under `perf` are ignored.
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


def _has_servers(perf: Spec) -> bool:
    """Return True if a performance model has parameter servers."""
    return PERF[perf.name].staffed


def _runnable_policies(
    policies: Sequence[Spec], trace: Trace, cluster: Cluster
) -> dict[Spec, set[int]]:
    """Return model -> indices of policies that can run, for models that fit the trace."""
    runnable = {}
    for perf in candidates():
        try:
            catalog.instance("perf", perf).bind(trace, cluster)
        except TrainyardError:
            continue
        runnable[perf] = {
            at
            for at, spec in enumerate(policies)
            if not catalog.allocator(spec, trace, perf).reason
        }
    return runnable
