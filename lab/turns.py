"""What costly stops mean for policies in rounds, which stop and start jobs again and again: said before the run."""

from __future__ import annotations

from typing import Final

import allocators
from lab import catalog
from sim.overheads import Overheads
from sim.params import Spec, parameters

_ROUND: Final = "round_s"


def warnings(policy: Spec, overheads: Spec) -> tuple[str, ...]:
    """Say what may keep jobs from ever getting done, as sentences for the user.

    Parameters
    ----------
    policy : Spec
        An allocator. It works in rounds if it, or one inside it, has the parameter ``round_s``.
    overheads : Spec
        What stops and restarts cost.

    Raises
    ------
    ParameterError
        If one of them is unknown, or a value is out of its bounds.
    """
    rounds = _rounds_s(policy)
    if not rounds:
        return ()
    shortest = f"{_ROUND} = {min(rounds):g} s"
    costs: Overheads = catalog.instance("overheads", overheads)
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


def _rounds_s(policy: Spec) -> list[float]:
    made = allocators.make(policy)
    values = {info.name: getattr(made, info.name) for info in parameters(type(made))}
    inside = [length for value in values.values() if isinstance(value, Spec) for length in _rounds_s(value)]
    return [float(values[_ROUND]), *inside] if _ROUND in values else inside
