"""What an objective of Gavel is asked for at one instant, and the shares of time that it answers with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocators._problem import Problem, Shares, agnostic, isolated_rates
from allocators._queues import WAITS, fifo_any, whole
from allocators._rounds import Roster
from allocators._shares import OBJECTIVES
from sim.contract import Floats, Ints, View

COUNTS_WORK: Final = frozenset({"finish_time_fairness", "makespan", "cost_slo", "allox"})
"""Objectives that look at the work left."""
LOOKS_AT_RATES: Final = COUNTS_WORK | {"max_sum_throughput", "cost"}
"""Objectives that look at rates even if types are all alike to them."""
FASTEST: Final = 0


@dataclass(frozen=True)
class Wishes:
    """The parameters of `allocators.gavel.Gavel` that say what the shares are chosen for; see there."""

    objective: str
    aware: bool
    faithful: bool
    owner: str
    owner_weights: tuple[float, ...]
    within: str

    @property
    def looks(self) -> bool:
        """Whether rates are looked at, and not only where jobs can run."""
        return self.objective in LOOKS_AT_RATES if not self.aware else self.objective != "isolated"

    def shares(self, view: View, roster: Roster, columns: tuple[int, ...], gpus: tuple[int, ...]) -> Shares:
        """Return the shares of time of all jobs.

        Parameters
        ----------
        view : View
            The instant.
        roster : Roster
            The jobs; what finish-time fairness remembers of them is brought up to date.
        columns : tuple of int
            Which GPU type of the cluster each column is.
        gpus : tuple of int
            GPUs of each type.
        """
        problem = self._problem(view, roster, columns, np.array(gpus, np.int64))
        if self.objective == "finish_time_fairness":
            problem = _remember(roster, problem)
        special = _SPECIAL.get(self.objective)
        return special(self, view, roster, problem) if special else OBJECTIVES[self.objective](problem)

    def _problem(self, view: View, roster: Roster, columns: tuple[int, ...], gpus: Ints) -> Problem:
        here = roster.gangs[:, None] <= gpus
        rates = roster.rates * here
        if not self.aware:
            seen = agnostic(rates, FASTEST if self.objective in LOOKS_AT_RATES else None)
            rates = seen * (here if self.faithful else rates > 0)
        priority = column(view, "priority", roster.ids)
        return Problem(
            rates=rates,
            gangs=roster.gangs,
            devices=gpus,
            weights=np.where(priority > 0, priority, 1.0),
            left=column(view, "remaining_work", roster.ids) if self.objective in COUNTS_WORK else 1.0,
            age_s=view.now_s - column(view, "arrival_s", roster.ids),
            due_s=column(view, "deadline_s", roster.ids) - view.now_s if self.objective == "cost_slo" else np.inf,
            prices=prices(view, columns),
        )


def column(view: View, name: str, ids: Ints) -> Floats:
    """Return a column of some of the active jobs."""
    values = view.active.column(name)
    return values if len(values) == len(ids) else values[np.searchsorted(view.active.ids, ids)]


def prices(view: View, columns: tuple[int, ...]) -> Floats:
    """Return USD per GPU and hour of each type; a type without a price is counted as cheap as the cheapest with one, and all as 1 USD if none has one."""
    asked = np.array([view.cluster.types[at].price_per_gpu_hour for at in columns])
    return np.where(asked > 0, asked, asked[asked > 0].min(initial=np.inf) if (asked > 0).any() else 1.0)


def _remember(roster: Roster, problem: Problem) -> Problem:
    done = np.maximum(roster.left - problem.left, 0.0)
    roster.fair_s += np.where(roster.counted & (roster.fair_rate > 0), done / np.where(roster.fair_rate > 0, roster.fair_rate, 1.0), 0.0)
    roster.left = np.array(problem.left)
    roster.fair_rate = isolated_rates(problem)
    return problem._replace(isolated_s=roster.fair_s.copy())


def _first_come(wishes: Wishes, view: View, roster: Roster, problem: Problem) -> Shares:
    if wishes.aware:
        return OBJECTIVES["fifo"](problem)
    given = np.where(roster.share.max(axis=1) > 0, roster.share.argmax(axis=1), WAITS)
    return Shares(whole(fifo_any(problem._replace(rates=roster.rates * (roster.gangs[:, None] <= problem.devices)), given, view.rng), len(problem.devices)))


_SPECIAL: Final[Mapping[str, Callable[[Wishes, View, Roster, Problem], Shares]]] = {"fifo": _first_come}
