"""What costly stops mean for policies in rounds or with queues, which stop and start jobs again and again: said before the run."""

from __future__ import annotations

from typing import Any, Final

import allocators
from lab import catalog
from lab.words import plural
from sim.overheads import Overheads
from sim.params import Spec, parameters

_ROUND: Final = "round_s"
_QUEUES: Final = "thresholds"
_SERVICE: Final = "GPU-s"
_MEASURE: Final = "measure"


def warnings(policy: Spec, overheads: Spec, gpus: int = 1) -> tuple[str, ...]:
    """Say what may keep jobs from ever getting done, as sentences for the user.

    Parameters
    ----------
    policy : Spec
        An allocator. It works in rounds if it, or one inside it, has the parameter ``round_s``, and with queues if it has ``thresholds`` of service.
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
    inside = [sentence for value in values.values() if isinstance(value, Spec) for sentence in _of_queues(value, costs, gpus)]
    if costs.on_preempt == "forbidden" or not any(info.name == _QUEUES and info.unit == _SERVICE for info in parameters(type(allocators.make(policy)))):
        return tuple(inside)
    each, unit = (1, "s") if values.get(_MEASURE) == "s" else (max(gpus, 1), _SERVICE)
    lowest, restart = min(values[_QUEUES], default=0.0), costs.restart_s * each
    if not 0 < lowest <= restart:
        return tuple(inside)
    return (
        f"One restart of the largest job counts as {restart:,.0f} {unit} of service ({costs.restart_s:g} s on {plural(max(gpus, 1), 'GPU')}), no less than "
        f"the lowest of {_QUEUES}, {lowest:,.0f} {unit}: such jobs lose their queue while they restart, and may take turns for ever without progress. Raise "
        f"{_QUEUES}, or lower restart_s.",
        *inside,
    )


def _of_rounds(rounds: list[float], costs: Overheads) -> tuple[str, ...]:
    if not rounds:
        return ()
    shortest = f"{_ROUND} = {min(rounds):g} s"
    said = []
    if costs.restart_s >= min(rounds):
        said.append(
            f"A restart takes restart_s = {costs.restart_s:g} s, no less than a round of {shortest}: a job that is moved in every round makes "
            "no progress. Choose longer rounds or a shorter restart."
        )
    if costs.on_preempt == "lose_all":
        said.append(
            "Jobs take turns from round to round, and on_preempt = lose_all takes all work from who is stopped: what is longer than its turn may never be "
            f"done. Choose on_preempt = checkpoint, or longer rounds ({shortest})."
        )
    return tuple(said)


def _values(policy: Spec) -> dict[str, Any]:
    made = allocators.make(policy)
    return {info.name: getattr(made, info.name) for info in parameters(type(made))}


def _rounds_s(policy: Spec) -> list[float]:
    values = _values(policy)
    inside = [length for value in values.values() if isinstance(value, Spec) for length in _rounds_s(value)]
    return [float(values[_ROUND]), *inside] if _ROUND in values else inside
