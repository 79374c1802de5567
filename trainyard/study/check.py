"""The document of a backtest: policy, jobs, machines and options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sim.engine.simulator import Measure
from sim.errors import ParameterError
from sim.params import Spec
from trainyard.study import catalog
from trainyard.study.document import Document, checked_fields, number, whole_number
from trainyard.study.scenario import NO_FAULTS, Scenario
from trainyard.study.study import Study

KIND: Final = "check"
"""Kind of a stored `Check` document."""
MAX_REPEATS: Final = 50
INNER: Final = "inner"
"""Parameter of wrappers that holds the inner policy."""
HALF_LIFE: Final = "half_life_s"
"""Attribute of policies that track usage: half-life in seconds, 0 = no decay."""


@dataclass(frozen=True)
class Check(Document):
    """A backtest: a policy to compare with the recorded waits.

    Parameters
    ----------
    scenario : Scenario
        Jobs, machines and policy; failures, horizon and measured window are ignored, see
        `backtest_scenario`.
    repeats : int
        Runs with different seeds, which draw the phases of scheduler timers; 1 if seeds have no
        effect.
    warm_s, judge_s : float or None, seconds
        See `trainyard.labs.backtests.record.split_record`.
    anyway : bool
        Whether to accept a record that cannot serve as a yardstick; no comparison is made then.
    use : tuple of str
        Ids of the `trainyard.labs.backtests.proposal.Proposal` to apply.
    fit : bool
        Whether to fit open settings to the part before the judged one; needs two repeats.

    Raises
    ------
    ParameterError
        If a number is invalid, or the policy replays the recorded schedule.
    """

    scenario: Scenario
    repeats: int = 5
    warm_s: float | None = None
    judge_s: float | None = None
    anyway: bool = False
    use: tuple[str, ...] = ()
    fit: bool = False

    def __post_init__(self) -> None:
        """Validate the options."""
        policy = self.scenario.allocator
        if "recorded_start" in catalog.allocator(policy).needs.reads:
            raise ParameterError(
                f"{policy.name} replays the recorded schedule, so a backtest of it is pointless."
                " Choose a simulated policy."
            )
        if not 1 <= self.repeats <= MAX_REPEATS:
            raise ParameterError(f"repeats = {self.repeats} is not between 1 and {MAX_REPEATS}.")
        if self.fit and self.repeats == 1:
            raise ParameterError(
                "One repeat cannot tell a better setting from chance. Fit with 2 repeats or more;"
                " 5 tell more."
            )
        for name, value in (("warm-up", self.warm_s), ("judged part", self.judge_s)):
            if value is not None and not 0 <= value < math.inf:
                raise ParameterError(f"The {name} of {value:g} s is not a length of time.")
        object.__setattr__(self, "use", tuple(sorted(set(map(str, self.use)))))
        object.__setattr__(self, "scenario", backtest_scenario(self.scenario, policy))

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
        """Return the document as plain values."""
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
        """Return a backtest from a document of `to_json`.

        Raises
        ------
        TrainyardError
            If a key is missing or unknown, or a value cannot be used.
        """
        fields = checked_fields("check", data, cls, "study")
        if not isinstance(fields.get("study"), Mapping):
            raise ParameterError("A check needs 'study' (what Save wrote).")
        study = Study.from_json(fields["study"])
        lengths = {
            name: None if fields.get(name) is None else number(name, fields[name])
            for name in ("warm_s", "judge_s")
        }
        return cls(
            replace(study.base, allocator=study.allocators[0]),
            whole_number("repeats", fields.get("repeats", cls.repeats)),
            **lengths,
            anyway=bool(fields.get("anyway", False)),
            use=tuple(fields.get("use", ())),
            fit=bool(fields.get("fit", False)),
        )


def parameter_value(policy: Spec, name: str) -> Any:
    """Return a parameter of a policy or its inner policy, or its default; None = unknown."""
    defaults = {info.name: info.default for info in catalog.allocator(policy).params}
    inner = policy.values.get(INNER)
    if name not in defaults and isinstance(inner, Spec):
        return parameter_value(inner, name)
    return policy.values.get(name, defaults.get(name))


def with_values(policy: Spec, values: Mapping[str, Any]) -> Spec:
    """Return a policy with changed parameters; those it does not have go to its inner policy."""
    own_names = {info.name for info in catalog.allocator(policy).params}
    inner = policy.values.get(INNER)
    if not isinstance(inner, Spec) or values.keys() <= own_names:
        return Spec.of(policy.name, **{**policy.values, **values})
    own = {name: value for name, value in values.items() if name in own_names}
    deeper = {name: value for name, value in values.items() if name not in own_names}
    return Spec.of(policy.name, **{**policy.values, INNER: with_values(inner, deeper), **own})


def innermost_policy(policy: Spec) -> Spec:
    """Return the policy inside all wrappers."""
    inner = policy.values.get(INNER)
    return innermost_policy(inner) if isinstance(inner, Spec) else policy


def backtest_scenario(base: Scenario, policy: Spec) -> Scenario:
    """Return the scenario of a backtest: all jobs to their end, without random failures.

    The record already contains the failures that happened.
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
