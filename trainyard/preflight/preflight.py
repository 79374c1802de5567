"""What is to be said of a study before it runs: who cannot run, what will be different, and which
jobs will never start.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import allocators
from sim.engine.endings import HOPELESS
from sim.overheads import Overheads
from sim.params import Spec, parameters
from sim.perf.model import Needing, Staffed
from sim.trace import Trace
from trainyard.clusters import machines
from trainyard.store import profiles
from trainyard.study import catalog
from trainyard.study.study import Study
from trainyard.text import plural
from trainyard.traces.start import RETRIES

_ROUND: Final = "round_s"
_QUEUES: Final = "thresholds"
_SERVICE: Final = "GPU-s"
_MEASURE: Final = "measure"


def warnings(policy: Spec, overheads: Spec, gpus: int = 1) -> tuple[str, ...]:
    """Say what may keep jobs from ever getting done, as sentences for the user.

    Parameters
    ----------
    policy : Spec
        An allocator. It works in rounds if it, or one inside it, has the parameter ``round_s``, and
        with queues if it has ``thresholds`` of service.
    overheads : Spec
        What stops and restarts cost.
    gpus : int
        What the largest job asks for.

    Raises
    ------
    ParameterError
        If one of them is unknown, or a value is out of its bounds.
    """
    costs: Overheads = catalog.instance("overheads", overheads)
    return (*_of_rounds(_rounds_s(policy), costs), *_of_queues(policy, costs, gpus))


def _of_queues(policy: Spec, costs: Overheads, gpus: int) -> tuple[str, ...]:
    """Return a sentence for the lowest threshold of service that a job passes while it restarts."""
    values = _values(policy)
    inside = [
        sentence
        for value in values.values()
        if isinstance(value, Spec)
        for sentence in _of_queues(value, costs, gpus)
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


def _of_rounds(rounds: list[float], costs: Overheads) -> tuple[str, ...]:
    if not rounds:
        return ()
    shortest = f"{_ROUND} = {min(rounds):g} s"
    sentences = []
    if costs.restart_s >= min(rounds):
        sentences.append(
            f"A restart takes restart_s = {costs.restart_s:g} s, no less than a round of"
            f" {shortest}: a job that is moved in every round makes no progress. Choose longer"
            " rounds or a shorter restart."
        )
    if costs.on_preempt == "lose_all":
        sentences.append(
            "Jobs take turns from round to round, and on_preempt = lose_all takes all work from"
            " who is stopped: what is longer than its turn may never be done. Choose on_preempt ="
            f" checkpoint, or longer rounds ({shortest})."
        )
    return tuple(sentences)


def _values(policy: Spec) -> dict[str, Any]:
    made = allocators.make(policy)
    return {info.name: getattr(made, info.name) for info in parameters(type(made))}


def _rounds_s(policy: Spec) -> list[float]:
    values = _values(policy)
    inside = [
        length
        for value in values.values()
        if isinstance(value, Spec)
        for length in _rounds_s(value)
    ]
    return [float(values[_ROUND]), *inside] if _ROUND in values else inside


_ROUNDING_GB: Final = 1e-9


def remarks(study: Study, trace: Trace) -> list[str]:
    """Return what will run differently than one might think, and which jobs never will, as
    sentences; nothing on policies that cannot run here.
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
    if not profiles.is_profiled(
        base.perf
    ):  # what a profile cannot hold has been said, with the ways out
        sentences += machines.unschedulable(
            trace, base.cluster, catalog.instance("perf", base.perf)
        ).sentences()
    return sentences + _tried_for_ever(study, trace)


def _tried_for_ever(study: Study, trace: Trace) -> list[str]:
    perf = catalog.instance("perf", study.base.perf)
    if not perf.staffed or catalog.instance("faults", study.base.faults).retries >= 0:
        return []
    model = perf.bind(trace, study.base.cluster)
    if not (isinstance(model, Staffed) and isinstance(model, Needing)):
        return []
    roles, used = model.roles(), model.resources()
    asked = np.column_stack((roles.worker_mem_gb, roles.server_mem_gb))
    short = int(((asked > 0) & (used[:, 1::2] > asked + _ROUNDING_GB)).any(axis=1).sum())
    if not short:
        return []
    return [
        f"What {plural(short, 'job')} asked for will run out of memory: unless a policy gives more,"
        f" such a job is tried again forever, and after {HOPELESS:,} times the run is given up."
        f" Set a limit, e.g. --set faults.retries={RETRIES}."
    ]
