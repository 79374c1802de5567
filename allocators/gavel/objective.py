"""What an objective of Gavel is asked for at one instant, and the shares of time that it answers with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocators.gavel.rounds import Roster
from allocators.timeshare.fluid import Standing
from allocators.timeshare.matching import WAITS, allox, fifo, fifo_any, whole
from allocators.timeshare.problem import Hint, NoSharesError, Problem, Shares, agnostic, isolated_rates, per_job
from allocators.timeshare.published import PUBLISHED
from allocators.timeshare.shares import OBJECTIVES
from allocators.timeshare.water import Entities, water_filling
from sim.contract import ContractError, Floats, Ints, View

COUNTS_WORK: Final = frozenset({"finish_time_fairness", "makespan", "cost_slo", "allox"})
"""Objectives that look at the work left."""
LOOKS_AT_RATES: Final = COUNTS_WORK | {"max_sum_throughput", "cost"}
"""Objectives that look at rates even if types are all alike to them."""
EQUAL: Final = frozenset({"isolated", "gandiva"})
"""Objectives that part the cluster equally, whatever the rates."""
FASTEST: Final = 0
GANGS: Final = "AlloX matches jobs of one GPU; here larger ones come first, in order of arrival, each on the fastest type with room."


@dataclass(frozen=True)
class Wishes:
    """The parameters of `allocators.gavel.policy.Gavel` that say what the shares are chosen for; see there."""

    objective: str
    aware: bool
    faithful: bool
    owner: str
    owner_weights: tuple[float, ...]
    within: str

    @property
    def looks(self) -> bool:
        """Whether rates are looked at, and not only where jobs can run."""
        return self.objective in LOOKS_AT_RATES if not self.aware else self.objective not in EQUAL

    @property
    def owner_column(self) -> str:
        """Column of the trace that says who owns a job; empty where that does not matter."""
        return self.owner if self.objective == "water_filling" and self.owner != "none" else ""

    def shares(self, standing: Standing, roster: Roster, rng: np.random.Generator, hint: Hint | None) -> Shares:
        """Return the shares of time of all jobs.

        Parameters
        ----------
        standing : Standing
            Jobs and GPUs.
        roster : Roster
            The same jobs; what finish-time fairness remembers of them is brought up to date.
        rng : numpy.random.Generator
            For what is drawn.
        hint : Hint, optional
            That of the last answer.

        Raises
        ------
        ContractError
            If no shares could be found.
        """
        try:
            return self._shares(standing, roster, rng, hint)
        except NoSharesError as error:
            raise ContractError(str(error)) from error

    def _shares(self, standing: Standing, roster: Roster, rng: np.random.Generator, hint: Hint | None) -> Shares:
        problem = self._problem(standing)._replace(hint=hint)
        if self.objective == "finish_time_fairness":
            problem = _remember(roster, problem)
        special = _SPECIAL.get(self.objective)
        if special:
            return special(self, standing, roster, problem, rng)
        if self.faithful and self.objective in PUBLISHED:
            return PUBLISHED[self.objective](problem)
        return OBJECTIVES["isolated" if self.objective in EQUAL else self.objective](problem)

    def _problem(self, standing: Standing) -> Problem:
        here = standing.gangs[:, None] <= standing.gpus
        rates = standing.rates * here
        if not self.aware:
            seen = agnostic(rates, FASTEST if self.objective in LOOKS_AT_RATES else None)
            rates = seen * (here if self.faithful else rates > 0)
        weights = np.where(standing.priority > 0, standing.priority, 1.0)
        return Problem(rates, standing.gangs, standing.gpus, weights, standing.left, standing.age_s, 0.0, standing.due_s, prices(standing.prices))


def standing_of(view: View, wishes: Wishes, roster: Roster, columns: Sequence[int], gpus: Sequence[int]) -> Standing:
    """Return how the jobs of a roster stand now, with what the wishes look at.

    Parameters
    ----------
    view : View
        The instant.
    wishes : Wishes
        What is asked for.
    roster : Roster
        The jobs.
    columns : sequence of int
        Which GPU type of the cluster each column is.
    gpus : sequence of int
        GPUs of each type.
    """
    ids, owner = roster.ids, wishes.owner_column
    return Standing(
        ids,
        roster.gangs,
        roster.rates,
        np.array(gpus, np.int64),
        np.array([view.cluster.types[at].price_per_gpu_hour for at in columns]),
        column(view, "priority", ids),
        view.now_s - column(view, "arrival_s", ids),
        column(view, "remaining_work", ids) if wishes.objective in COUNTS_WORK else 1.0,
        column(view, "deadline_s", ids) - view.now_s if wishes.objective == "cost_slo" else np.inf,
        column(view, owner, ids).astype(np.int64) if owner else None,
        len(view.names(owner)) if owner else 1,
    )


def column(view: View, name: str, ids: Ints) -> Floats:
    """Return a column of some of the active jobs."""
    values = view.active.column(name)
    return values if len(values) == len(ids) else values[np.searchsorted(view.active.ids, ids)]


def prices(asked: Floats) -> Floats:
    """Return USD per GPU and hour above 0: a type without a price is as cheap as the cheapest that has one, and all cost the same if none has."""
    return np.where(asked > 0, asked, asked[asked > 0].min() if (asked > 0).any() else 1.0)


def _remember(roster: Roster, problem: Problem) -> Problem:
    done = np.maximum(roster.left - problem.left, 0.0)
    roster.fair_s += np.where(roster.counted & (roster.fair_rate > 0), done / np.where(roster.fair_rate > 0, roster.fair_rate, 1.0), 0.0)
    roster.left = np.array(problem.left)
    roster.fair_rate = isolated_rates(problem)
    return problem._replace(isolated_s=roster.fair_s.copy())


def _held(roster: Roster) -> Ints:
    return np.where(roster.share.max(axis=1, initial=0.0) > 0, roster.share.argmax(axis=1), WAITS)


def _first_come(wishes: Wishes, standing: Standing, roster: Roster, problem: Problem, rng: np.random.Generator) -> Shares:
    if wishes.aware:
        return fifo(problem)
    known = problem._replace(rates=standing.rates * (standing.gangs[:, None] <= standing.gpus))
    return Shares(whole(fifo_any(known, _held(roster), rng), len(problem.devices)))


def _matched(wishes: Wishes, standing: Standing, roster: Roster, problem: Problem, rng: np.random.Generator) -> Shares:
    # Larger jobs, which the method does not know, go first: in order of arrival each on the fastest type with room. Who has a type keeps it.
    del wishes, standing, rng
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


def _poured(wishes: Wishes, standing: Standing, roster: Roster, problem: Problem, rng: np.random.Generator) -> Shares:
    del roster, rng
    if standing.owner is None:
        return water_filling(problem)
    weights = np.array([*wishes.owner_weights, *[wishes.owner_weights[-1]] * standing.owners][: standing.owners])
    return water_filling(problem, Entities(standing.owner, weights, np.full(standing.owners, wishes.within == "fifo")))


_SPECIAL: Final[Mapping[str, Callable[[Wishes, Standing, Roster, Problem, np.random.Generator], Shares]]] = {
    "fifo": _first_come,
    "allox": _matched,
    "water_filling": _poured,
}
