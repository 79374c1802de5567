"""What an objective of Gavel is asked for at one instant, and the shares of time that it answers with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocators._problem import Hint, Problem, Shares, agnostic, isolated_rates, per_job
from allocators._rounds import Roster
from allocators._shares import OBJECTIVES, WAITS, Entities, allox, fifo, fifo_any, makespan, water_filling, whole
from sim.contract import Floats, Ints, View

COUNTS_WORK: Final = frozenset({"finish_time_fairness", "makespan", "cost_slo", "allox"})
"""Objectives that look at the work left."""
LOOKS_AT_RATES: Final = COUNTS_WORK | {"max_sum_throughput", "cost"}
"""Objectives that look at rates even if types are all alike to them."""
FASTEST: Final = 0
GANGS: Final = "AlloX matches jobs of one GPU; here larger ones come first, in order of arrival, each on the fastest type with room."


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

    def shares(self, view: View, roster: Roster, columns: tuple[int, ...], gpus: tuple[int, ...], hint: Hint | None = None) -> Shares:
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
        hint : Hint, optional
            That of the last answer.
        """
        problem = self._problem(view, roster, columns, np.array(gpus, np.int64))._replace(hint=hint)
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


def _held(roster: Roster) -> Ints:
    return np.where(roster.share.max(axis=1, initial=0.0) > 0, roster.share.argmax(axis=1), WAITS)


def _first_come(wishes: Wishes, view: View, roster: Roster, problem: Problem) -> Shares:
    if wishes.aware:
        return OBJECTIVES["fifo"](problem)
    known = problem._replace(rates=roster.rates * (roster.gangs[:, None] <= problem.devices))
    return Shares(whole(fifo_any(known, _held(roster), view.rng), len(problem.devices)))


def _matched(wishes: Wishes, view: View, roster: Roster, problem: Problem) -> Shares:
    """Match jobs of one GPU after larger ones, which the method does not know, have got the fastest type with room in order of arrival; who has, keeps."""
    del wishes, view
    held, one = _held(roster), roster.gangs == 1
    if one.all():
        return Shares(whole(allox(problem, held), len(problem.devices)))
    taken = np.bincount(held[held != WAITS], roster.gangs[held != WAITS], len(problem.devices)).astype(np.int64)
    free = np.maximum(problem.devices - taken, 0)
    large = np.flatnonzero(~one & (held == WAITS))
    x = whole(held, len(free))
    x[large] = fifo(_part(problem, large, free)).x
    free -= roster.gangs[large] @ x[large].astype(np.int64)
    small = np.flatnonzero(one & (held == WAITS))
    x[small] = whole(allox(_part(problem, small, free), held[small]), len(free))
    return Shares(x, note=GANGS)


def _part(problem: Problem, jobs: Ints, devices: Ints) -> Problem:
    def of(values: Floats | float) -> Floats:
        return per_job(problem, values)[jobs]

    return problem._replace(rates=problem.rates[jobs], gangs=problem.gangs[jobs], devices=devices, left=of(problem.left), age_s=of(problem.age_s))


def _poured(wishes: Wishes, view: View, roster: Roster, problem: Problem) -> Shares:
    if wishes.owner == "none":
        return water_filling(problem)
    owner = column(view, wishes.owner, roster.ids).astype(np.int64)
    count = len(view.names(wishes.owner))
    weights = np.array([*wishes.owner_weights, *[wishes.owner_weights[-1]] * count][:count])
    return water_filling(problem, Entities(owner, weights, np.full(count, wishes.within == "fifo")))


def _soonest(wishes: Wishes, view: View, roster: Roster, problem: Problem) -> Shares:
    del view, roster
    return makespan(problem, bisection=wishes.faithful)


_SPECIAL: Final[Mapping[str, Callable[[Wishes, View, Roster, Problem], Shares]]] = {
    "fifo": _first_come,
    "allox": _matched,
    "water_filling": _poured,
    "makespan": _soonest,
}
