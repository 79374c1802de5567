"""Backtest verdicts: how well a policy reproduces the recorded waits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from trainyard.formatting import duration
from trainyard.runs.run import scenario_key
from trainyard.store import Store
from trainyard.study import catalog
from trainyard.study.check import backtest_scenario
from trainyard.study.scenario import Scenario
from trainyard.study.study import Study

Level = Literal["reproduces", "most", "order", "nothing"]
LEVELS: Final[tuple[Level, ...]] = ("reproduces", "most", "order", "nothing")
"""How well a policy explains a recording, best first."""
_NEAR_FLOOR: Final = 1.3
_WHOLE_S: Final = 1.0
"""Records are written in whole seconds."""
_BIAS: Final = 0.10
_MIN_EXPLAINED: Final = 0.5
_MAX_BIAS: Final = 0.25
_SOME: Final = 0.2
_ORDERED: Final = 0.5


@dataclass(frozen=True)
class Past:
    """Verdict on how well a simulated policy reproduces the recorded waits.

    Parameters
    ----------
    policy : str
        Title of the policy.
    level : {"reproduces", "most", "order", "nothing"}
        The verdict, see `LEVELS`.
    sentence : str
        The verdict as a sentence.
    believe_s : float, seconds
        95th percentile of the error of 6-hour medians; smaller differences between policies mean
        nothing; NaN = unknown.
    at : int
        Index of the policy in the current study; -1 = in none.
    """

    policy: str
    level: Level
    sentence: str
    believe_s: float = math.nan
    at: int = field(default=-1, compare=False)

    @property
    def comparable(self) -> bool:
        """Whether gains over the recorded schedule can be claimed."""
        return self.level in LEVELS[:2]

    @property
    def full_sentence(self) -> str:
        """The verdict as a sentence that names the policy."""
        return f"{self.policy}, in the backtest, {self.sentence[:1].lower()}{self.sentence[1:]}"


class Closeness(NamedTuple):
    """Errors of simulated waits on the judged part of a recording.

    Parameters
    ----------
    error_s, floor_s : float, seconds
        Median absolute error of a job's wait against the record, and between two repeats of the
        simulation.
    bias : float
        Mean simulated less mean recorded wait, relative to the recorded one.
    explained : float
        Share of the waits' deviation from their earlier median that is explained, 0 to 1.
    rank : float
        Rank correlation of simulated and recorded waits; NaN = one of them is constant.
    believe_s : float, seconds
        See `Past`.
    """

    error_s: float
    floor_s: float
    bias: float
    explained: float
    rank: float
    believe_s: float


def judge_closeness(policy: str, closeness: Closeness, missing: str) -> Past:
    """Return the verdict on a policy from its errors.

    Parameters
    ----------
    policy : str
        Title of the policy.
    closeness : Closeness
        Its errors.
    missing : str
        Likely missing facts, as text, for the case that nothing is explained.

    Notes
    -----
    "reproduces": error within 1.3 times the floor and bias within 10 %. "most": 50 % of the
    deviation explained and bias within 25 %. "order": 20 % explained, or a rank correlation of 0.5.
    """
    error_s, floor_s, bias, explained, rank, believe_s = closeness
    near = error_s <= max(_NEAR_FLOOR * floor_s, _WHOLE_S)
    above = duration(believe_s) if math.isfinite(believe_s) else "a few hours"
    if near and abs(bias) <= _BIAS:
        return Past(
            policy,
            "reproduces",
            "Reproduces the recorded waits as well as chance allows. Differences between policies"
            f" above {above} can be believed.",
            believe_s,
        )
    if explained >= _MIN_EXPLAINED and abs(bias) <= _MAX_BIAS:
        return Past(
            policy,
            "most",
            f"Reproduces most of the waits; trust only differences above {above} (95th percentile"
            " of the error of 6-hour medians).",
            believe_s,
        )
    if explained >= _SOME or rank >= _ORDERED:
        return Past(
            policy,
            "order",
            "Orders the waits but not their size: compare simulated policies with each other, not"
            " with the record.",
            believe_s,
        )
    return Past(
        policy,
        "nothing",
        f"Does not explain the recorded waits. Something is missing: {missing}.",
        believe_s,
    )


def store_verdict(past: Past, scenario: Scenario, store: Store) -> None:
    """Store a verdict for comparisons on the same jobs and machines.

    Parameters
    ----------
    past : Past
        The verdict.
    scenario : Scenario
        Result of `trainyard.study.check.backtest_scenario`.
    store : Store
        Receives the verdict.

    Raises
    ------
    TrainyardError
        If the store cannot be written, or the trace was deleted.
    """
    store.put_numbers(_verdict_key(scenario, store), asdict(past), scenario.to_json())


def best_verdict(study: Study, store: Store) -> Past | None:
    """Return the best stored backtest verdict on the simulated policies of a study, or None.

    None if no policy was backtested, or no policy of the study replays the recorded schedule.

    Raises
    ------
    TrainyardError
        If the trace was deleted.
    """
    replays = [
        "recorded_start" in catalog.allocator(policy).needs.reads for policy in study.allocators
    ]
    if not any(replays):
        return None
    places = {
        _verdict_key(backtest_scenario(study.base, policy), store): at
        for at, policy in enumerate(study.allocators)
        if not replays[at]
    }
    verdicts = [
        replace(_verdict_from_json(summary), at=places[key])
        for key, summary in store.numbers(list(places)).items()
    ]
    return min(verdicts, key=lambda one: (LEVELS.index(one.level), one.at), default=None)


def policy_verdict(study: Study, at: int, store: Store) -> Past | None:
    """Return the stored backtest verdict on the policy at index `at`; None if not backtested.

    Raises
    ------
    TrainyardError
        If the trace was deleted.
    """
    key = _verdict_key(backtest_scenario(study.base, study.allocators[at]), store)
    return next((_verdict_from_json(summary) for summary in store.numbers([key]).values()), None)


def _verdict_key(scenario: Scenario, store: Store) -> str:
    """Return the store key of the backtest verdict on a scenario, a hash of the run's key."""
    text = f"check against the past, {scenario_key(scenario, store)}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _verdict_from_json(summary: Mapping[str, Any]) -> Past:
    """Return a verdict from its stored values."""
    believe_s = summary["believe_s"]
    return Past(
        summary["policy"],
        summary["level"],
        summary["sentence"],
        math.nan if believe_s is None else believe_s,
    )
