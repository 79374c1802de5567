"""Fit of a policy's open settings to the earlier part of a recording, one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np

from allocators.tenants import TENANT_NOUNS
from sim.params import Spec
from sim.trace import Trace
from trainyard.labs.backtests.figures import Measures
from trainyard.labs.backtests.proposal import HIDDEN, LIMIT, Proposal, halve_proposal
from trainyard.study import catalog
from trainyard.study.check import HALF_LIFE, innermost_policy, parameter_value, with_values
from trainyard.study.scenario import Scenario

MAX_RUNS: Final = 60
MAX_REPEATS: Final = 5
"""Maximum number of repeats per candidate setting."""
CERTAIN: Final = 2.0
"""Margin of a win, in standard errors."""
WORSE: Final = 1.5
"""Ratio of the errors on judged and fitted part above which a fit does not carry over."""
_CHOSEN: Final = ("fairshare", "size_nodes")
"""Policy parameters unknown from recordings; all combinations are tried, as they interact."""
_SUGGESTED: Final = "auto"
"""A choice that resolves to another choice."""
_HALF_LIFE_H: Final = "half_life_h"
_FACTORS: Final = (0.5, 2.0)


class Option(NamedTuple):
    """A value of an open setting: its label, and the function that applies it."""

    text: str
    make: Callable[[Scenario], Scenario]


@dataclass(frozen=True, eq=False)
class Knob:
    """An open setting with its alternative values."""

    title: str
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Step:
    """A candidate setting that was tried.

    Parameters
    ----------
    knob, option : str
        Labels of setting and value; "" = the start.
    objective_s : float, seconds
        Mean over repeats of the median absolute error and the absolute bias.
    spread_s : float, seconds
        Standard deviation between the repeats; 0 for a single repeat.
    kept : bool
        Whether the value was kept.
    """

    knob: str
    option: str
    objective_s: float
    spread_s: float
    kept: bool


@dataclass(frozen=True)
class Fit:
    """State of a fit.

    Parameters
    ----------
    scenario : Scenario
        The best settings so far.
    steps : tuple of Step
        Candidates tried so far, in order.
    wanted : tuple of Scenario
        Scenarios to run before the fit can continue; empty = finished.
    """

    scenario: Scenario
    steps: tuple[Step, ...]
    wanted: tuple[Scenario, ...] = ()


def knobs(
    trace: Trace, scenario: Scenario, proposals: Sequence[Proposal], used: Sequence[str]
) -> tuple[Knob, ...]:
    """Return the settings to fit: policy choices, half-life, time limit, unused proposals.

    Only settings that the innermost policy has; proposals that limit owners come first.

    Parameters
    ----------
    trace, scenario : Trace, Scenario
        The jobs, and the start of the fit.
    proposals : sequence of Proposal
        Proposals from the recording.
    used : sequence of str
        Ids of proposals already applied.
    """
    policy = innermost_policy(scenario.allocator)
    settings = list(_combined_choices(policy))
    hours = float(getattr(catalog.instance("allocator", policy), HALF_LIFE, 0)) / 3600
    limit_h = 0.0 if _has_time_limits(trace) else float(parameter_value(policy, LIMIT) or 0)
    for name, usual in ((_HALF_LIFE_H, hours), (LIMIT, limit_h)):
        if usual and parameter_value(policy, name) is not None:
            title = next(one.title for one in catalog.allocator(policy).params if one.name == name)
            options = [
                _parameter_option({name: usual * by}, f"{usual * by:g} h") for by in _FACTORS
            ]
            settings.append(Knob(title, tuple(options)))
    # Limits first: they also explain what missing machines would explain.
    for one in sorted(proposals, key=lambda one: not one.quotas):
        # The time limit is already an open setting.
        if (one.changes or one.quotas) and one.id not in used:
            halves = (
                [Option("half of it", halve_proposal(one).apply_to)] if one.id == HIDDEN else []
            )
            by = TENANT_NOUNS.get(one.tenant, "")
            title = f"Limits by {by}" if by else one.id.replace("-", " ")
            settings.append(
                Knob(title.capitalize(), (Option("as inferred", one.apply_to), *halves))
            )
    return tuple(settings)


def _combined_choices(policy: Spec) -> Iterator[Knob]:
    """Yield one setting with all other combinations of a policy's parameters in `_CHOSEN`.

    Nothing if the policy has none of them.
    """
    params = [
        one for one in catalog.allocator(policy).params if one.name in _CHOSEN and one.choices
    ]
    if not params:
        return
    now = tuple(parameter_value(policy, one.name) for one in params)
    ways = product(*([way for way in one.choices if way != _SUGGESTED] for one in params))
    options = tuple(
        _parameter_option(
            {one.name: value for one, value in zip(params, way, strict=True)},
            ", ".join(one.label(value) for one, value in zip(params, way, strict=True)),
        )
        for way in ways
        if way != now
    )
    yield Knob(", ".join(one.title for one in params), options)


def _parameter_option(values: Mapping[str, Any], text: str) -> Option:
    """Return the option with this label that sets parameters of the policy to `values`."""

    def make(scenario: Scenario) -> Scenario:
        return replace(scenario, allocator=with_values(scenario.allocator, values))

    return Option(text, make)


def _has_time_limits(trace: Trace) -> bool:
    """Return True if every job of a trace has a time limit."""
    return trace.has("time_limit_s") and bool(np.isfinite(trace.numbers("time_limit_s")).all())


Measured = Callable[[Scenario], Sequence[Measures]]
"""Errors of a scenario on the fitted part, one per repeat; empty = runs are missing."""


def descend(begin: Scenario, settings: Sequence[Knob], measured: Measured) -> Fit:
    """Try settings one by one and keep values that beat the chance between repeats.

    Parameters
    ----------
    begin : Scenario
        Start of the fit.
    settings : sequence of Knob
        Open settings.
    measured : callable
        See `Measured`.

    Notes
    -----
    Coordinate descent in one pass: each setting is decided with the winners of the earlier ones. A
    value wins by more than `CERTAIN` standard errors of the difference of the two means. The result
    depends only on `measured`, so a reopened backtest gives the same fit. If `measured` lacks runs
    of a setting, the fit stops there with these scenarios as `Fit.wanted`. Settings that would need
    more than `MAX_RUNS` runs in all are skipped.
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
        if runs + more > MAX_RUNS:
            continue  # a setting with fewer values can still fit in
        runs += more
        errors = [measured(one) for one in tried]
        if missing := tuple(
            scenario for scenario, one in zip(tried, errors, strict=True) if not one
        ):
            return Fit(best, tuple(steps), missing)
        values = [_objective(one) for one in errors]
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


def _objective(repeats: Sequence[Measures]) -> tuple[float, float]:
    """Return mean and standard deviation over repeats of median error plus absolute bias."""
    values = [one.error_s + abs(one.bias_s) for one in repeats]
    mean_s = float(np.mean(values))
    # All values are infinite if the policy cannot run.
    spread = len(values) > 1 and math.isfinite(mean_s)
    return mean_s, float(np.std(values, ddof=1)) if spread else 0.0
