"""Open settings of a policy fitted to the earlier part of a record, one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np

from allocators.tenants import COLUMN_WORDS
from sim.params import Spec
from sim.trace import Trace
from trainyard.labs.backtests.figures import Measures
from trainyard.labs.backtests.proposal import HIDDEN, LIMIT, Proposal, half
from trainyard.study import catalog
from trainyard.study.check import HALF_LIFE, innermost, value_of, with_values
from trainyard.study.scenario import Scenario

MOST_RUNS: Final = 60
TURNS: Final = 5
"""Repeats of each setting that is tried, at most."""
CERTAIN: Final = 2.0
"""Standard errors by which a setting has to win: the range of the repeats would grow with their
number, so that more evidence proved less.
"""
WORSE: Final = 1.5
"""A fit whose error on the judged part is by so much above that on the fitted part does not carry
over.
"""
_CHOSEN: Final = ("fairshare", "size_nodes")
"""Parameters of policies that records do not tell, of which all choices are tried together: a wrong
one can hide what another one gains.
"""
_SUGGESTED: Final = "auto"
"""A choice that stands for one of the others."""
_HALF_LIFE_H: Final = "half_life_h"
_FACTORS: Final = (0.5, 2.0)


class Option(NamedTuple):
    """A value of an open setting, in words, and the scenario with it."""

    text: str
    make: Callable[[Scenario], Scenario]


@dataclass(frozen=True, eq=False)
class Knob:
    """An open setting: what it is called, and its other values."""

    title: str
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Step:
    """A setting that was tried.

    Parameters
    ----------
    knob, option : str
        In words; "" = the beginning.
    objective_s : float, seconds
        Mean over repeats of the median absolute error and the absolute bias.
    spread_s : float, seconds
        Standard deviation between the repeats; 0 = there is one only.
    kept : bool
        Whether it was taken.
    """

    knob: str
    option: str
    objective_s: float
    spread_s: float
    kept: bool


@dataclass(frozen=True)
class Fit:
    """What a fit has come to so far.

    Parameters
    ----------
    scenario : Scenario
        The best settings so far.
    steps : tuple of Step
        What was tried, in order.
    wanted : tuple of Scenario
        What has to be run before it can go on; empty = it is over.
    """

    scenario: Scenario
    steps: tuple[Step, ...]
    wanted: tuple[Scenario, ...] = ()


def knobs(
    trace: Trace, scenario: Scenario, found: Sequence[Proposal], used: Sequence[str]
) -> tuple[Knob, ...]:
    """Return the open settings of a policy on a record.

    Parameters
    ----------
    trace, scenario : Trace, Scenario
        The jobs, and where the fit begins.
    found : sequence of Proposal
        What the record shows.
    used : sequence of str
        Ids of those that are applied already.
    """
    policy = innermost(scenario.allocator)
    made = list(_choices(policy))
    hours = float(getattr(catalog.instance("allocator", policy), HALF_LIFE, 0)) / 3600
    limit_h = 0.0 if _limited(trace) else float(value_of(policy, LIMIT) or 0)
    for name, usual in ((_HALF_LIFE_H, hours), (LIMIT, limit_h)):
        if usual and value_of(policy, name) is not None:
            title = next(one.title for one in catalog.allocator(policy).params if one.name == name)
            options = [_set({name: usual * by}, f"{usual * by:g} h") for by in _FACTORS]
            made.append(Knob(title, tuple(options)))
    # A limit says more than that some machines are gone, and explains what those would, too.
    for one in sorted(found, key=lambda one: not one.quotas):
        # A time limit is an open setting already.
        if (one.changes or one.quotas) and one.id not in used:
            halves = [Option("half of it", half(one).applied)] if one.id == HIDDEN else []
            by = COLUMN_WORDS.get(one.tenant, "")
            title = f"Limits by {by}" if by else one.id.replace("-", " ")
            made.append(Knob(title.capitalize(), (Option("as inferred", one.applied), *halves)))
    return tuple(made)


def _choices(policy: Spec) -> Iterator[Knob]:
    """Yield the parameters of `_CHOSEN` that a policy has, as one setting."""
    known = [one for one in catalog.allocator(policy).params if one.name in _CHOSEN and one.choices]
    if not known:
        return
    now = tuple(value_of(policy, one.name) for one in known)
    ways = product(*([way for way in one.choices if way != _SUGGESTED] for one in known))
    options = tuple(
        _set(
            {one.name: value for one, value in zip(known, way, strict=True)},
            ", ".join(one.label(value) for one, value in zip(known, way, strict=True)),
        )
        for way in ways
        if way != now
    )
    yield Knob(", ".join(one.title for one in known), options)


def _set(values: Mapping[str, Any], text: str) -> Option:
    def make(scenario: Scenario) -> Scenario:
        return replace(scenario, allocator=with_values(scenario.allocator, values))

    return Option(text, make)


def _limited(trace: Trace) -> bool:
    return trace.has("time_limit_s") and bool(np.isfinite(trace.numbers("time_limit_s")).all())


Measured = Callable[[Scenario], Sequence[Measures]]
"""Figures of the fitted part of a scenario, one per repeat; none = its runs are missing."""


def descend(begin: Scenario, settings: Sequence[Knob], measured: Measured) -> Fit:
    """Try one setting after the other and keep what wins by more than chance between repeats does.

    Parameters
    ----------
    begin : Scenario
        Where it begins.
    settings : sequence of Knob
        What is open.
    measured : callable
        See `Measured`.

    Notes
    -----
    Coordinate descent in one pass: it decides about a setting with the better ones of those before.
    A setting wins by more than `CERTAIN` standard errors of the difference of the two means. It is
    a function of what is known, so that a check that is opened again comes to the same.
    """
    first = measured(begin)
    if not first:
        return Fit(begin, (), (begin,))
    best, (best_s, spread_s) = begin, _objective(first)
    steps = [Step("", "", best_s, spread_s, kept=True)]
    runs = len(first)
    for knob in settings:
        tried = [option.make(best) for option in knob.options]
        more = len(tried) * len(first)
        if runs + more > MOST_RUNS:
            continue  # a setting with fewer values may still be within
        runs += more
        known = [measured(one) for one in tried]
        if missing := tuple(made for made, one in zip(tried, known, strict=True) if not one):
            return Fit(best, tuple(steps), missing)
        values = [_objective(one) for one in known]
        at = min(range(len(values)), key=lambda place: values[place][0])
        chance_s = math.hypot(spread_s, values[at][1]) / math.sqrt(len(first))
        wins = best_s - values[at][0] > CERTAIN * chance_s
        steps += [
            Step(knob.title, option.text, *value, kept=wins and place == at)
            for place, (option, value) in enumerate(zip(knob.options, values, strict=True))
        ]
        if wins:
            best, (best_s, spread_s) = tried[at], values[at]
    return Fit(best, tuple(steps))


def _objective(found: Sequence[Measures]) -> tuple[float, float]:
    values = [one.error_s + abs(one.bias_s) for one in found]
    mean_s = float(np.mean(values))
    # Where the policy cannot run, all are infinite.
    spread = len(values) > 1 and math.isfinite(mean_s)
    return mean_s, float(np.std(values, ddof=1)) if spread else 0.0
