"""How many nodes meet a target: the search under way for every policy at once, and the answer with
what it rests on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from sim.errors import TrainyardError
from trainyard.runs.batch import Lost, ScenarioBatch, stored_numbers
from trainyard.runs.executors import DEFAULT
from trainyard.runs.queue import RunQueue
from trainyard.runs.run import key_of
from trainyard.runs.task import Numbers
from trainyard.store import Store
from trainyard.study.capacity import Search, Size
from trainyard.study.scenario import Scenario
from trainyard.study.search import SizeQuestion

HOURS_A_MONTH: Final = 730.0
_SAME: Final = 1e-9
_FAR: Final = 2.0
"""By what factor a target is missed that is missed by far."""


@dataclass(frozen=True)
class Reading:
    """What a policy came to at a size.

    Parameters
    ----------
    size : tuple of int
        Nodes of the groups that vary.
    value : float
        The metric, mean over repeats; NaN where a run failed or no job was completed.
    low, high : float
        Least and greatest over repeats.
    completed : float
        Share of jobs completed.
    holds : bool
        Whether it meets the target.
    failed : str
        Why a run gave no numbers; "" = all did.
    """

    size: Size
    value: float
    low: float
    high: float
    completed: float
    holds: bool
    failed: str = ""


@dataclass(frozen=True)
class PolicyAnswer:
    """What is known for a policy.

    Parameters
    ----------
    policy : str
        Its title.
    size : tuple of int or None
        The smallest, or cheapest, that holds; None = none of the range.
    usd_per_h : float
        What the whole cluster costs then.
    nearest : Reading or None
        Where none holds: the reading that came nearest.
    fewer : float
        The metric with one node fewer; NaN = not tried, or no number.
    runs : int
        Runs that it took.
    assumed : str
        What it rests on beside the runs.
    over : bool
        Whether the search has ended.
    failed : int
        Sizes of which a run gave no numbers.
    why : str
        Of the largest of them, as one sentence; "" = there is none.
    """

    policy: str
    size: Size | None
    usd_per_h: float
    nearest: Reading | None
    fewer: float
    runs: int
    assumed: str
    over: bool
    failed: int = 0
    why: str = ""


class PlanRun(ScenarioBatch):
    """A search under way, for all policies of the study at once.

    Parameters
    ----------
    question : Question
        What is asked.
    store, where
        As for `ScenarioBatch`.
    """

    def __init__(
        self, question: SizeQuestion, store: Store, where: str | RunQueue = DEFAULT
    ) -> None:
        super().__init__(store, where)
        self.question = question
        self._seekers = [
            _Seeker(question, policy, title) for policy, title in enumerate(question.study.titles)
        ]
        self._asked: set[str] = set()

    @property
    def done(self) -> int:
        """Runs that are over."""
        return sum(seeker.runs for seeker in self._seekers)

    @property
    def complete(self) -> bool:
        """Whether the search has ended for every policy."""
        return all(seeker.over for seeker in self._seekers)

    @property
    def keys(self) -> Sequence[str]:
        """Keys of all runs so far, once each."""
        return tuple(dict.fromkeys(key for seeker in self._seekers for key in seeker.keys.copy()))

    def _look_up(self) -> None:
        for seeker in self._seekers:
            seeker.look_up(self.store)

    def _wanted(self) -> Iterator[tuple[str, Scenario]]:
        self._look_up()
        self._shelve_keys()
        for key, scenario in [run for seeker in self._seekers for run in seeker.next_sizes()]:
            if key not in self._asked:
                self._asked.add(key)
                yield key, scenario

    def _note(self, key: str, outcome: Numbers | Lost) -> None:
        for seeker in self._seekers:
            seeker.take(key, outcome)

    def answers(self) -> tuple[PolicyAnswer, ...]:
        """Return what is known so far, by policy."""
        return tuple(seeker.answer() for seeker in self._seekers)

    def readings(self) -> pd.DataFrame:
        """Return one row per policy and size that was tried.

        Returns
        -------
        DataFrame
            `policy`, `size` (nodes; of two groups the first), `second` (nodes of the second group,
            or 0), `usd_per_h`, and the rest of `Reading`.
        """
        rows = [
            {
                "policy": seeker.title,
                "size": one.size[0],
                "second": one.size[1] if len(one.size) > 1 else 0,
                "usd_per_h": self.question.price_per_h(one.size),
                **{
                    name: getattr(one, name)
                    for name in ("value", "low", "high", "completed", "holds", "failed")
                },
            }
            for seeker in self._seekers
            for one in seeker.readings.copy().values()
        ]
        columns = [
            "policy",
            "size",
            "second",
            "usd_per_h",
            "value",
            "low",
            "high",
            "completed",
            "holds",
            "failed",
        ]
        return pd.DataFrame(rows, columns=columns).sort_values(
            ["policy", "size", "second"], ignore_index=True
        )


class _Seeker:
    """The search for one policy."""

    def __init__(self, question: SizeQuestion, policy: int, title: str) -> None:
        self.title = title
        self.readings: dict[Size, Reading] = {}
        self.keys: dict[str, None] = {}
        self._question, self._policy = question, policy
        self._search: Search = question.search()
        self._runs: dict[Size, list[tuple[str, Scenario]]] = {}
        self._outcomes: dict[str, Numbers | Lost] = {}
        self._lost: dict[Size, str] = {}
        self._most = math.nan

    @property
    def runs(self) -> int:
        """Runs that are over."""
        return len(self._outcomes)

    @property
    def over(self) -> bool:
        """Whether nothing more is to be tried."""
        return not self._sizes()

    def look_up(self, store: Store) -> None:
        """Find the runs of the sizes that are next_sizes, and take what is known of them."""
        while fresh := [size for size in self._sizes() if size not in self._runs]:
            for size in fresh:
                self._runs[size] = self._planned(size, store)
            self._outcomes |= stored_numbers(
                store, [key for size in fresh for key, _ in self._runs[size]]
            )
            before = len(self.readings)
            for size in fresh:
                self._tell(size)
            if len(self.readings) == before:
                break

    def _planned(self, size: Size, store: Store) -> list[tuple[str, Scenario]]:
        try:
            planned = [
                (key_of(scenario, store), scenario)
                for scenario in self._question.at(size).repeated(self._policy)
            ]
        except TrainyardError as error:
            # No machines at all, or none of a kind that the policy needs: such a size meets no
            # target.
            self._lost[size] = str(error)
            return []
        self.keys |= dict.fromkeys(key for key, _ in planned)
        return planned

    def next_sizes(self) -> list[tuple[str, Scenario]]:
        """Return the runs that are to be made now, the decisive ones first."""
        return [
            run
            for size in self._sizes()
            for run in self._runs.get(size, [])
            if run[0] not in self._outcomes
        ]

    def _sizes(self) -> list[Size]:
        """Return the sizes to try: the first of the search, then those that it wants."""
        if first := [size for size in self._search.largest if size not in self.readings]:
            return first
        return [size for size in self._search.next_sizes if size not in self.readings]

    def take(self, key: str, outcome: Numbers | Lost) -> None:
        """Take in what a run gave, if it is one of this search."""
        if key in self.keys and key not in self._outcomes:
            self._outcomes[key] = outcome
            for size, runs in self._runs.items():
                if size not in self.readings and any(own == key for own, _ in runs):
                    self._tell(size)

    def _tell(self, size: Size) -> None:
        outcomes = [self._outcomes.get(key) for key, _ in self._runs[size]]
        if None in outcomes:
            return
        lost = [outcome.why for outcome in outcomes if isinstance(outcome, Lost)]
        numbers = [outcome.summary for outcome in outcomes if isinstance(outcome, Numbers)]
        failed = self._lost.get(size, "") or (lost[0] if lost else "")
        self.readings[size] = reading = self._reading(size, numbers, failed)
        self._search.record(size, holds=reading.holds, far=self._far(reading.value))
        # Where a mix shows that more jobs can be completed than was known, those that complete
        # fewer hold no longer.
        for other in [
            one
            for one in self.readings.values()
            if one.holds and one.completed < self._most - _SAME
        ]:
            self.readings[other.size] = replace(other, holds=False)
            self._search.record(other.size, holds=False)

    def _far(self, value: float) -> bool:
        """Tell whether a value misses the target by far; of a target of nothing nobody can say."""
        limit = self._question.limit
        return limit > 0 and (
            value > _FAR * limit if self._question.lower else value < limit / _FAR
        )

    def _reading(self, size: Size, numbers: Sequence[Mapping[str, Any]], failed: str) -> Reading:
        if failed or not numbers:
            return Reading(size, math.nan, math.nan, math.nan, 0.0, False, failed)
        values = np.array(
            [
                (
                    math.nan
                    if one.get(self._question.metric) is None
                    else float(one[self._question.metric])
                )
                for one in numbers
            ]
        )
        completed = float(
            np.mean([float(one["completed"]) / max(float(one["jobs"]), 1.0) for one in numbers])
        )
        # The largest sizes are tried first: a smaller one on which fewer jobs can ever run would
        # only look fast.
        self._most = max(completed, self._most) if self._most == self._most else completed
        value, limit = float(values.mean()), self._question.limit
        meets = value <= limit + _SAME if self._question.lower else value >= limit - _SAME
        return Reading(
            size,
            value,
            float(values.min()),
            float(values.max()),
            completed,
            bool(meets and completed >= self._most - _SAME),
        )

    def answer(self) -> PolicyAnswer:
        """Return what is known."""
        size = self._search.answer
        known_readings = [one for one in self.readings.copy().values() if one.value == one.value]
        nearest = None
        if size is None and known_readings:
            # More completed jobs first: a good figure of few jobs is no near miss.
            nearest = min(
                known_readings,
                key=lambda one: (-one.completed, one.value if self._question.lower else -one.value),
            )
        less = self.readings.get((size[0] - 1,)) if size is not None and len(size) == 1 else None
        fewer = less.value if less is not None else math.nan
        usd = self._question.price_per_h(size) if size is not None else math.nan
        failed = sorted(
            (one for one in self.readings.copy().values() if one.failed),
            key=lambda one: (sum(one.size), one.size),
        )
        why = failed[-1].failed if failed else ""
        return PolicyAnswer(
            self.title,
            size,
            usd,
            nearest,
            fewer,
            self.runs,
            self._search.assumed,
            self.over,
            len(failed),
            why,
        )
