"""What an objective of Gavel is asked for at one instant, and the shares of time that it answers
with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocators.heterogeneous.gavel.rounds import Roster
from allocators.heterogeneous.timeshare.fluid import JobsSnapshot
from allocators.heterogeneous.timeshare.matching import WAITS, allox, fifo, fifo_any, whole
from allocators.heterogeneous.timeshare.problem import (
    Hint,
    NoSharesError,
    Problem,
    Shares,
    agnostic,
    isolated_rates,
    per_job,
)
from allocators.heterogeneous.timeshare.published import PUBLISHED
from allocators.heterogeneous.timeshare.shares import OBJECTIVES
from allocators.heterogeneous.timeshare.water import Entities, water_filling
from sim.contract import ContractError, Floats, Ints, View

COUNTS_WORK: Final = frozenset({"finish_time_fairness", "makespan", "cost_slo", "allox"})
"""Objectives that look at the work left."""
LOOKS_AT_RATES: Final = COUNTS_WORK | {"max_sum_throughput", "cost"}
"""Objectives that look at rates even if types are all alike to them."""
EQUAL: Final = frozenset({"isolated", "gandiva"})
"""Objectives that part the cluster equally, whatever the rates."""
FASTEST: Final = 0
GANGS: Final = (
    "AlloX matches jobs of one GPU; here larger ones come first, in order of arrival, each on the"
    " fastest type with room."
)


@dataclass(frozen=True)
class ObjectiveSpec:
    """The parameters of `allocators.heterogeneous.gavel.policy.Gavel` that say what the shares are
    chosen for; see there.
    """

    objective: str
    aware: bool
    faithful: bool
    owner: str
    owner_weights: tuple[float, ...]
    within: str

    @property
    def looks(self) -> bool:
        """Whether rates matter, and not only where jobs can run."""
        return self.objective in LOOKS_AT_RATES if not self.aware else self.objective not in EQUAL

    @property
    def owner_column(self) -> str:
        """Column of the trace that says who owns a job; empty where that does not matter."""
        return self.owner if self.objective == "water_filling" and self.owner != "none" else ""

    def shares(
        self, snapshot: JobsSnapshot, roster: Roster, rng: np.random.Generator, hint: Hint | None
    ) -> Shares:
        """Return the shares of time of all jobs.

        Parameters
        ----------
        snapshot : JobsSnapshot
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
            return self._shares(snapshot, roster, rng, hint)
        except NoSharesError as error:
            raise ContractError(str(error)) from error

    def _shares(
        self, snapshot: JobsSnapshot, roster: Roster, rng: np.random.Generator, hint: Hint | None
    ) -> Shares:
        problem = self._problem(snapshot)._replace(hint=hint)
        if self.objective == "finish_time_fairness":
            problem = _remember(roster, problem)
        special = _SPECIAL.get(self.objective)
        if special:
            return special(self, snapshot, roster, problem, rng)
        if self.faithful and self.objective in PUBLISHED:
            return PUBLISHED[self.objective](problem)
        return OBJECTIVES["isolated" if self.objective in EQUAL else self.objective](problem)

    def _problem(self, snapshot: JobsSnapshot) -> Problem:
        here = snapshot.gangs[:, None] <= snapshot.gpus
        rates = snapshot.rates * here
        if not self.aware:
            seen = agnostic(rates, FASTEST if self.objective in LOOKS_AT_RATES else None)
            rates = seen * (here if self.faithful else rates > 0)
        weights = np.where(snapshot.priority > 0, snapshot.priority, 1.0)
        return Problem(
            rates,
            snapshot.gangs,
            snapshot.gpus,
            weights,
            snapshot.left,
            snapshot.age_s,
            0.0,
            snapshot.due_s,
            prices(snapshot.prices),
        )


def snapshot_of(
    view: View, spec: ObjectiveSpec, roster: Roster, columns: Sequence[int], gpus: Sequence[int]
) -> JobsSnapshot:
    """Return the present state of the jobs of a roster, with the columns that the objective reads.

    Parameters
    ----------
    view : View
        The instant.
    spec : ObjectiveSpec
        What is asked for.
    roster : Roster
        The jobs.
    columns : sequence of int
        Which GPU type of the cluster each column is.
    gpus : sequence of int
        GPUs of each type.
    """
    ids, owner = roster.ids, spec.owner_column
    return JobsSnapshot(
        ids,
        roster.gangs,
        roster.rates,
        np.array(gpus, np.int64),
        np.array([view.cluster.types[at].price_per_gpu_hour for at in columns]),
        column(view, "priority", ids),
        view.now_s - column(view, "arrival_s", ids),
        column(view, "remaining_work", ids) if spec.objective in COUNTS_WORK else 1.0,
        column(view, "deadline_s", ids) - view.now_s if spec.objective == "cost_slo" else np.inf,
        column(view, owner, ids).astype(np.int64) if owner else None,
        len(view.names(owner)) if owner else 1,
    )


def column(view: View, name: str, ids: Ints) -> Floats:
    """Return a column of some of the active jobs."""
    values = view.active.column(name)
    return values if len(values) == len(ids) else values[np.searchsorted(view.active.ids, ids)]


def prices(asked: Floats) -> Floats:
    """Return USD per GPU and hour above 0: a type without a price is as cheap as the cheapest that
    has one, and all cost the same if none has.
    """
    return np.where(asked > 0, asked, asked[asked > 0].min() if (asked > 0).any() else 1.0)


def _remember(roster: Roster, problem: Problem) -> Problem:
    done = np.maximum(roster.left - problem.left, 0.0)
    roster.fair_s += np.where(
        roster.counted & (roster.fair_rate > 0),
        done / np.where(roster.fair_rate > 0, roster.fair_rate, 1.0),
        0.0,
    )
    roster.left = np.array(problem.left)
    roster.fair_rate = isolated_rates(problem)
    return problem._replace(isolated_s=roster.fair_s.copy())


def _held(roster: Roster) -> Ints:
    return np.where(roster.share.max(axis=1, initial=0.0) > 0, roster.share.argmax(axis=1), WAITS)


def _first_come(
    spec: ObjectiveSpec,
    snapshot: JobsSnapshot,
    roster: Roster,
    problem: Problem,
    rng: np.random.Generator,
) -> Shares:
    if spec.aware:
        return fifo(problem)
    known = problem._replace(rates=snapshot.rates * (snapshot.gangs[:, None] <= snapshot.gpus))
    return Shares(whole(fifo_any(known, _held(roster), rng), len(problem.devices)))


def _matched(
    spec: ObjectiveSpec,
    snapshot: JobsSnapshot,
    roster: Roster,
    problem: Problem,
    rng: np.random.Generator,
) -> Shares:
    # Larger jobs, which the method does not know, go first: in order of arrival each on the fastest
    # type with room. Who has a type keeps it.
    del spec, snapshot, rng
    held, one = _held(roster), roster.gangs == 1
    if one.all():
        return Shares(whole(allox(problem, held), len(problem.devices)))
    taken = np.bincount(
        held[held != WAITS], roster.gangs[held != WAITS], len(problem.devices)
    ).astype(np.int64)
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

    return problem._replace(
        rates=problem.rates[jobs],
        gangs=problem.gangs[jobs],
        devices=devices,
        left=of(problem.left),
        age_s=of(problem.age_s),
    )


def _water_filling(
    spec: ObjectiveSpec,
    snapshot: JobsSnapshot,
    roster: Roster,
    problem: Problem,
    rng: np.random.Generator,
) -> Shares:
    del roster, rng
    if snapshot.owner is None:
        return water_filling(problem)
    weights = np.array(
        [*spec.owner_weights, *[spec.owner_weights[-1]] * snapshot.owners][: snapshot.owners]
    )
    return water_filling(
        problem,
        Entities(snapshot.owner, weights, np.full(snapshot.owners, spec.within == "fifo")),
    )


_SPECIAL: Final[
    Mapping[
        str, Callable[[ObjectiveSpec, JobsSnapshot, Roster, Problem, np.random.Generator], Shares]
    ]
] = {
    "fifo": _first_come,
    "allox": _matched,
    "water_filling": _water_filling,
}
