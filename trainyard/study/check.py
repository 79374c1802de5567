"""What is asked of a check against the past: which policy on which jobs and machines, and how."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sim.engine.simulator import Measure
from sim.errors import ParameterError
from sim.params import Spec
from trainyard.study import catalog
from trainyard.study.document import Document, number, settings, whole
from trainyard.study.scenario import NO_FAULTS, Scenario
from trainyard.study.study import Study

KIND: Final = "check"
"""Of a `Check` that is kept."""
MOST_REPEATS: Final = 50
INNER: Final = "inner"
"""Parameter of wrappers: the policy inside."""
HALF_LIFE: Final = "half_life_s"
"""Attribute of policies that remember usage: its half-life in seconds, 0 = for ever."""


@dataclass(frozen=True)
class Check(Document):
    """A policy that is to be checked against the recorded waits.

    Parameters
    ----------
    scenario : Scenario
        Jobs, machines and policy; failures, horizon and measured window are not taken over, see
        `checked`.
    repeats : int
        Runs with other seeds, which draw the phases of a scheduler's timers; one if they change
        nothing.
    warm_s, judge_s : float or None, seconds
        See `trainyard.labs.backtests.record.split`.
    anyway : bool
        Whether a record that is no yardstick is used all the same; nothing is compared with it
        then.
    use : tuple of str
        Ids of `trainyard.labs.backtests.proposal.Proposal` that are applied.
    fit : bool
        Whether open settings are fitted to the part before the judged one; wants two repeats.

    Raises
    ------
    ParameterError
        If a number makes no sense, or the policy replays the record itself.
    """

    scenario: Scenario
    repeats: int = 5
    warm_s: float | None = None
    judge_s: float | None = None
    anyway: bool = False
    use: tuple[str, ...] = ()
    fit: bool = False

    def __post_init__(self) -> None:
        """Check."""
        policy = self.scenario.allocator
        if "recorded_start" in catalog.allocator(policy).needs.reads:
            raise ParameterError(
                f"{policy.name} replays the record, so a check against the record says nothing."
                " Choose a policy that is simulated."
            )
        if not 1 <= self.repeats <= MOST_REPEATS:
            raise ParameterError(f"repeats = {self.repeats} is not between 1 and {MOST_REPEATS}.")
        if self.fit and self.repeats == 1:
            raise ParameterError(
                "One repeat cannot tell a better setting from chance. Fit with 2 repeats or more;"
                " 5 tell more."
            )
        for name, value in (("warm-up", self.warm_s), ("judged part", self.judge_s)):
            if value is not None and not 0 <= value < math.inf:
                raise ParameterError(f"The {name} of {value:g} s is not a length of time.")
        object.__setattr__(self, "use", tuple(sorted(set(map(str, self.use)))))
        object.__setattr__(self, "scenario", checked(self.scenario, policy))

    @property
    def half_life_s(self) -> float:
        """Half-life of the usage that the policy remembers, seconds; 0 = of none."""
        # A policy that reads it from a site's file says what it is; any other has no such thing.
        return float(getattr(catalog.instance("allocator", self.scenario.allocator), HALF_LIFE, 0))

    @property
    def study(self) -> Study:
        """The policy alone, as a comparison."""
        return Study(self.scenario, (self.scenario.allocator,))

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "kind": KIND,
            "study": self.study.to_json(),
            "repeats": self.repeats,
            "warm_s": self.warm_s,
            "judge_s": self.judge_s,
            "anyway": self.anyway,
            "use": list(self.use),
            "fit": self.fit,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Check:
        """Read what `to_json` wrote.

        Raises
        ------
        TrainyardError
            If a key is missing or unknown, or a value cannot be used.
        """
        known = settings("check", data, cls, "study")
        if not isinstance(known.get("study"), Mapping):
            raise ParameterError("A check needs 'study' (what Save wrote).")
        study = Study.from_json(known["study"])
        lengths = {
            name: None if known.get(name) is None else number(name, known[name])
            for name in ("warm_s", "judge_s")
        }
        return cls(
            replace(study.base, allocator=study.allocators[0]),
            whole("repeats", known.get("repeats", cls.repeats)),
            **lengths,
            anyway=bool(known.get("anyway", False)),
            use=tuple(known.get("use", ())),
            fit=bool(known.get("fit", False)),
        )


def value_of(policy: Spec, name: str) -> Any:
    """Return the value of a parameter of a policy, or of the one inside it; its default where none
    is set; None = neither has such a parameter.
    """
    known = {info.name: info.default for info in catalog.allocator(policy).params}
    inner = policy.values.get(INNER)
    if name not in known and isinstance(inner, Spec):
        return value_of(inner, name)
    return policy.values.get(name, known.get(name))


def with_values(policy: Spec, values: Mapping[str, Any]) -> Spec:
    """Return a policy with other values of some parameters; those that it does not have are of the
    one inside it.
    """
    known = {info.name for info in catalog.allocator(policy).params}
    inner = policy.values.get(INNER)
    if not isinstance(inner, Spec) or values.keys() <= known:
        return Spec.of(policy.name, **{**policy.values, **values})
    own = {name: value for name, value in values.items() if name in known}
    deeper = {name: value for name, value in values.items() if name not in known}
    return Spec.of(policy.name, **{**policy.values, INNER: with_values(inner, deeper), **own})


def innermost(policy: Spec) -> Spec:
    """Return the policy inside all wrappers."""
    inner = policy.values.get(INNER)
    return innermost(inner) if isinstance(inner, Spec) else policy


def checked(base: Scenario, policy: Spec) -> Scenario:
    """Return what a check simulates of a policy in a scenario: all jobs to their end, without
    failures at random, because the record holds those that happened.
    """
    return replace(
        base,
        allocator=policy,
        faults=NO_FAULTS,
        seed=0,
        horizon_s=math.inf,
        measure=Measure(),
        stop="drained",
        name="",
    )
