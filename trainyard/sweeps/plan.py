"""Runs of a size search, for all policies at once, and their answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from sim.errors import TrainyardError
from trainyard.runs.batch import FailedRun, ScenarioBatch, stored_numbers
from trainyard.runs.executors import DEFAULT
from trainyard.runs.queue import RunQueue
from trainyard.runs.run import scenario_key
from trainyard.runs.task import Numbers
from trainyard.store import Store
from trainyard.study.scenario import Scenario
from trainyard.study.size_question import SizeQuestion
from trainyard.study.size_search import Size

_SAME: Final = 1e-9
_READ: Final = ("value", "low", "high", "completed", "holds", "failed", "jct_mean_s")
_FAR: Final = 2.0
"""Ratio of value and target above which the value misses the target "by far"."""


@dataclass(frozen=True)
class Reading:
    """Results of a policy at one size.

    Parameters
    ----------
    size : tuple of int
        Numbers of nodes of the varying groups.
    value : float
        The metric, mean over repeats; NaN if a run failed or no job completed.
    low, high : float
        Minimum and maximum over repeats.
    completed : float
        Share of completed jobs.
    holds : bool
        Whether it meets the target.
    failed : str
        Why a run has no numbers; "" = all have.
    jct_mean_s : float
        Average completion time, mean over repeats.
    """

    size: Size
    value: float
    low: float
    high: float
    completed: float
    holds: bool
    failed: str = ""
    jct_mean_s: float = math.nan


@dataclass(frozen=True)
class PolicyAnswer:
    """Answer of the search for one policy.

    Parameters
    ----------
    policy : str
        Title of the policy.
    size : tuple of int or None
        Smallest or cheapest size that meets the target; None = none in the range.
    usd_per_h : float
        Price of the whole cluster at that size.
    nearest : Reading or None
        Reading closest to the target, if no size meets it.
    fewer : float
        The metric with one node fewer; NaN = not tried, or no number.
    runs : int
        Number of runs.
    assumed : str
        Assumption behind the answer, as one sentence.
    over : bool
        Whether the search has ended.
    failed : int
        Number of sizes with failed runs.
    why : str
        Failure at the largest of them, as one sentence; "" = none.
    now, best : Reading or None
        Results with the owned nodes, and at `size`; None = not tried.
    alone : Reading or None
        Results with the fewest nodes of the first type that meet the target without more of other
        types; None = none do.
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
    now: Reading | None = None
    best: Reading | None = None
    alone: Reading | None = None


class PlanRun(ScenarioBatch):
    """A size search in progress, for all policies of the study at once.

    Parameters
    ----------
    question : SizeQuestion
        The search.
    store, where
        See `ScenarioBatch`.
    """

    def __init__(
        self, question: SizeQuestion, store: Store, where: str | RunQueue = DEFAULT
    ) -> None:
        super().__init__(store, where)
        self.question = question
        self._searches = [
            _PolicySearch(question, policy, title)
            for policy, title in enumerate(question.study.titles)
        ]
        self._sizes: dict[Size, None] = {}
        self._yielded_keys: set[str] = set()

    @property
    def done(self) -> int:
        """Number of finished runs."""
        return sum(seeker.runs for seeker in self._searches)

    @property
    def complete(self) -> bool:
        """Whether the search has ended for every policy."""
        return all(seeker.over for seeker in self._searches)

    @property
    def keys(self) -> Sequence[str]:
        """Distinct keys of all runs so far."""
        return tuple(dict.fromkeys(key for seeker in self._searches for key in seeker.keys.copy()))

    def _look_up(self) -> None:
        """Plan the next runs of all policies, and load those with stored results."""
        # In rounds, so that the mixes do not depend on which run ends first.
        while not any(seeker.is_waiting for seeker in self._searches):
            fresh = dict.fromkeys(size for seeker in self._searches for size in seeker.next_sizes)
            if not fresh.keys() - self._sizes.keys():
                break
            self._sizes |= fresh
            for seeker in self._searches:
                seeker.look_up(fresh, self.store)

    def _next_runs(self) -> Iterator[tuple[str, Scenario]]:
        """Yield the runs to make next, most decisive first, each once.

        Loads stored results first, and announces the run keys.
        """
        self._look_up()
        self._shelve_keys()
        for key, scenario in [run for seeker in self._searches for run in seeker.next_runs()]:
            if key not in self._yielded_keys:
                self._yielded_keys.add(key)
                yield key, scenario

    def _record_outcome(self, key: str, outcome: Numbers | FailedRun) -> None:
        """Record the outcome of a run for all policies that use it."""
        for seeker in self._searches:
            seeker.record(key, outcome)

    def answers(self) -> tuple[PolicyAnswer, ...]:
        """Return the answers so far, one per policy."""
        return tuple(seeker.answer() for seeker in self._searches)

    def readings(self) -> pd.DataFrame:
        """Return one row per policy and tried mix.

        Returns
        -------
        DataFrame
            `policy`, `mix` (nodes of each group), `size` and `second` (the first two of them),
            `usd_per_h`, and the other fields of `Reading`.
        """
        rows = [
            {
                "policy": seeker.title,
                "mix": one.size,
                "size": one.size[0],
                "second": one.size[1] if len(one.size) > 1 else 0,
                "usd_per_h": self.question.price_per_h(one.size),
                **{name: getattr(one, name) for name in _READ},
            }
            for seeker in self._searches
            for one in seeker.readings.copy().values()
        ]
        return pd.DataFrame(
            rows, columns=["policy", "mix", "size", "second", "usd_per_h", *_READ]
        ).sort_values(["policy", "mix"], ignore_index=True)


class _PolicySearch:
    """The size search of one policy."""

    def __init__(self, question: SizeQuestion, policy: int, title: str) -> None:
        self.title = title
        self.readings: dict[Size, Reading] = {}
        self.keys: dict[str, None] = {}
        self._question, self._policy = question, policy
        self._search = question.search()
        self._runs: dict[Size, list[tuple[str, Scenario]]] = {}
        self._outcomes: dict[str, Numbers | FailedRun] = {}
        self._lost: dict[Size, str] = {}
        self._most = math.nan

    @property
    def runs(self) -> int:
        """Number of finished runs."""
        return len(self._outcomes)

    @property
    def next_sizes(self) -> Sequence[Size]:
        """Sizes to try next; empty = the search has ended."""
        return self._search.next_sizes

    @property
    def over(self) -> bool:
        """Whether the search has ended."""
        return not self.is_waiting and not self.next_sizes

    @property
    def is_waiting(self) -> bool:
        """Whether runs of planned sizes have not ended."""
        return len(self.readings) < len(self._runs)

    def look_up(self, sizes: Iterable[Size], store: Store) -> None:
        """Plan the runs of sizes, and load their stored results."""
        fresh = [size for size in sizes if size not in self._runs]
        self._runs |= {size: self._plan_runs(size, store) for size in fresh}
        self._outcomes |= stored_numbers(
            store, [key for size in fresh for key, _ in self._runs[size]]
        )
        for size in fresh:
            self._evaluate_size(size)

    def _plan_runs(self, size: Size, store: Store) -> list[tuple[str, Scenario]]:
        """Return keys and scenarios of a size; [] with the reason noted if it cannot run."""
        try:
            planned = [
                (scenario_key(scenario, store), scenario)
                for scenario in self._question.study_at(size).policy_scenarios(self._policy)
            ]
        except TrainyardError as error:
            # No nodes, or none that the policy needs: such a size cannot meet the target.
            self._lost[size] = str(error)
            return []
        self.keys |= dict.fromkeys(key for key, _ in planned)
        return planned

    def next_runs(self) -> list[tuple[str, Scenario]]:
        """Return the runs to make next."""
        return [
            run
            for size, runs in self._runs.items()
            if size not in self.readings
            for run in runs
            if run[0] not in self._outcomes
        ]

    def record(self, key: str, outcome: Numbers | FailedRun) -> None:
        """Record the outcome of a run if it belongs to this search."""
        if key in self.keys and key not in self._outcomes:
            self._outcomes[key] = outcome
            for size, runs in self._runs.items():
                if size not in self.readings and any(own == key for own, _ in runs):
                    self._evaluate_size(size)

    def _evaluate_size(self, size: Size) -> None:
        """Compute the reading of a size once all its runs have ended, and tell the search.

        Sizes that complete fewer jobs than another then count as missing the target.
        """
        outcomes = [self._outcomes.get(key) for key, _ in self._runs[size]]
        if None in outcomes:
            return
        lost = [outcome.why for outcome in outcomes if isinstance(outcome, FailedRun)]
        numbers = [outcome.summary for outcome in outcomes if isinstance(outcome, Numbers)]
        failed = self._lost.get(size, "") or (lost[0] if lost else "")
        self.readings[size] = reading = self._reading(size, numbers, failed)
        self._search.record(size, holds=reading.holds, far=self._misses_by_far(reading.value))
        # If this size completes more jobs than any before, sizes that complete fewer fail.
        for other in [
            one
            for one in self.readings.values()
            if one.holds and one.completed < self._most - _SAME
        ]:
            self.readings[other.size] = replace(other, holds=False)
            self._search.record(other.size, holds=False)

    def _misses_by_far(self, value: float) -> bool:
        """Return True if a value misses the target by far; False for a target of 0."""
        limit = self._question.limit
        return limit > 0 and (
            value > _FAR * limit if self._question.lower else value < limit / _FAR
        )

    def _reading(self, size: Size, numbers: Sequence[Mapping[str, Any]], failed: str) -> Reading:
        """Return the reading of a size from the numbers of its repeats.

        It meets the target only if no size seen before completes more jobs. A failure gives NaN.
        """
        if failed or not numbers:
            return Reading(size, math.nan, math.nan, math.nan, 0.0, False, failed)
        values, times = (
            np.array([math.nan if one.get(name) is None else float(one[name]) for one in numbers])
            for name in (self._question.metric, "jct_mean_s")
        )
        completed = float(
            np.mean([float(one["completed"]) / max(float(one["jobs"]), 1.0) for one in numbers])
        )
        # The largest sizes come first: a smaller one that can run fewer jobs would only look fast.
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
            jct_mean_s=float(times.mean()),
        )

    def answer(self) -> PolicyAnswer:
        """Return the answer so far: size, price, nearest miss, runs, assumption and failures."""
        size = self._search.answer
        with_values = [one for one in self.readings.copy().values() if one.value == one.value]
        nearest = None
        if size is None and with_values:
            # Most completed jobs first: a good value for few jobs is not close to the target.
            nearest = min(
                with_values,
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
            *(
                None if of is None else self.readings.get(of)
                for of in (self._question.owned, size, self._search.answer_alone)
            ),
        )
