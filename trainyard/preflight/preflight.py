"""Messages about a study before it runs: endless preemption, deviations, impossible jobs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import allocators
from sim.engine.give_up import MAX_EVICTIONS
from sim.overheads import Overheads
from sim.params import Spec, parameters
from sim.perf.model import Needing, Staffed
from sim.trace import Trace
from trainyard.clusters import machines
from trainyard.formatting import plural
from trainyard.store import profiles
from trainyard.study import catalog
from trainyard.study.study import Study
from trainyard.traces.new_study import RETRIES

_ROUND: Final = "round_s"
_QUEUES: Final = "thresholds"
_SERVICE: Final = "GPU-s"
_MEASURE: Final = "measure"


def warnings(policy: Spec, overheads: Spec, gpus: int = 1) -> tuple[str, ...]:
    """Return warnings on settings that may prevent jobs from finishing.

    Parameters
    ----------
    policy : Spec
        An allocator. It uses rounds if it or a nested one has the parameter ``round_s``, and queues
        if it has ``thresholds`` of service.
    overheads : Spec
        Costs of preemptions and restarts.
    gpus : int
        Request of the largest job.

    Raises
    ------
    ParameterError
        If one of them is unknown, or a value is out of bounds.
    """
    costs: Overheads = catalog.instance("overheads", overheads)
    return (
        *_round_warnings(_round_lengths_s(policy), costs),
        *_queue_warnings(policy, costs, gpus),
    )


def _queue_warnings(policy: Spec, costs: Overheads, gpus: int) -> tuple[str, ...]:
    """Return warnings that one restart of a job exceeds the lowest queue threshold.

    Nested policies are checked too. `gpus` = request of the largest job.
    """
    values = _param_values(policy)
    inside = [
        sentence
        for value in values.values()
        if isinstance(value, Spec)
        for sentence in _queue_warnings(value, costs, gpus)
    ]
    if costs.on_preempt == "forbidden" or not any(
        info.name == _QUEUES and info.unit == _SERVICE
        for info in parameters(type(allocators.make(policy)))
    ):
        return tuple(inside)
    each, unit = (1, "s") if values.get(_MEASURE) == "s" else (max(gpus, 1), _SERVICE)
    lowest, restart = min(values[_QUEUES], default=0.0), costs.restart_s * each
    if not 0 < lowest <= restart:
        return tuple(inside)
    return (
        (
            f"One restart of the largest job counts as {restart:,.0f} {unit} of service"
            f" ({costs.restart_s:g} s on {plural(max(gpus, 1), 'GPU')}), no less than the lowest of"
            f" {_QUEUES}, {lowest:,.0f} {unit}: such jobs lose their queue while they restart, and"
            f" may preempt each other forever. Raise {_QUEUES}, or lower restart_s."
        ),
        *inside,
    )


def _round_warnings(rounds: list[float], costs: Overheads) -> tuple[str, ...]:
    """Return warnings on rounds no longer than a restart, and on work lost between rounds."""
    if not rounds:
        return ()
    shortest = f"{_ROUND} = {min(rounds):g} s"
    sentences = []
    if costs.restart_s >= min(rounds):
        sentences.append(
            f"A restart takes restart_s = {costs.restart_s:g} s, no less than a round of"
            f" {shortest}: a job that moves in every round makes no progress. Choose longer"
            " rounds or a shorter restart."
        )
    if costs.on_preempt == "lose_all":
        sentences.append(
            "Jobs are preempted between rounds, and on_preempt = lose_all discards their work, so"
            " long jobs may never finish. Choose on_preempt = checkpoint, or longer rounds"
            f" ({shortest})."
        )
    return tuple(sentences)


def _param_values(policy: Spec) -> dict[str, Any]:
    """Return parameter name -> value of a policy, defaults included."""
    allocator = allocators.make(policy)
    return {info.name: getattr(allocator, info.name) for info in parameters(type(allocator))}


def _round_lengths_s(policy: Spec) -> list[float]:
    """Return the ``round_s`` of a policy and of its nested policies; [] without rounds."""
    values = _param_values(policy)
    inside = [
        length
        for value in values.values()
        if isinstance(value, Spec)
        for length in _round_lengths_s(value)
    ]
    return [float(values[_ROUND]), *inside] if _ROUND in values else inside


_ROUNDING_GB: Final = 1e-9


def study_notes(study: Study, trace: Trace) -> list[str]:
    """Return notes before a run: deviations and risks of policies, impossible jobs, memory.

    Policies that cannot run are left out.
    """
    base = study.base
    choices = [catalog.allocator(spec, trace, base.perf) for spec in study.allocators]
    sentences: list[str] = []
    gpus = int(trace.numbers("num_gpus").max(initial=0.0))
    for label, spec, choice in zip(study.labels, study.allocators, choices, strict=True):
        if not choice.reason:
            sentences += [
                f"{label}: {sentence}"
                for sentence in (*choice.remarks, *warnings(spec, base.overheads, gpus))
            ]
    if not profiles.is_profiled(base.perf):  # `coverage` reports these jobs for profiles
        sentences += machines.find_unschedulable_jobs(
            trace, base.cluster, catalog.instance("perf", base.perf)
        ).sentences()
    return sentences + _memory_warnings(study, trace)


def _memory_warnings(study: Study, trace: Trace) -> list[str]:
    """Return a warning on jobs that run out of memory at every retry; [] if there are none."""
    perf = catalog.instance("perf", study.base.perf)
    if not perf.staffed or catalog.instance("faults", study.base.faults).retries >= 0:
        return []
    model = perf.bind(trace, study.base.cluster)
    if not (isinstance(model, Staffed) and isinstance(model, Needing)):
        return []
    roles, used = model.roles(), model.resources()
    requested_gb = np.column_stack((roles.worker_mem_gb, roles.server_mem_gb))
    short = int(
        ((requested_gb > 0) & (used[:, 1::2] > requested_gb + _ROUNDING_GB)).any(axis=1).sum()
    )
    if not short:
        return []
    return [
        f"{plural(short, 'job')} requested too little memory. Unless a policy gives more, they are"
        f" retried until the run stops after {MAX_EVICTIONS:,} times. Set a limit, e.g. --set"
        f" faults.retries={RETRIES}."
    ]
