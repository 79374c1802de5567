"""Objectives of Gavel: the problem at one instant and its shares of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocators.heterogeneous.gavel.rounds import Roster
from allocators.heterogeneous.timeshare.fluid import JobsSnapshot
from allocators.heterogeneous.timeshare.matching import WAITS, allox, fifo, fifo_any, whole_shares
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
from allocators.heterogeneous.timeshare.water_filling import Entities, water_filling
from sim.contract import ContractError, Floats, Ints, View

READS_WORK: Final = frozenset({"finish_time_fairness", "makespan", "cost_slo", "allox"})
"""Objectives that read the remaining work."""
READS_RATES: Final = READS_WORK | {"max_sum_throughput", "cost"}
"""Objectives that read rates even if they ignore differences between types."""
EQUAL_SHARES: Final = frozenset({"isolated", "gandiva"})
"""Objectives that divide the cluster equally, regardless of rates."""
FASTEST: Final = 0
ALLOX_GANGS_NOTE: Final = (
    "AlloX matches jobs of one GPU; here larger ones come first, in order of arrival, each on the"
    " fastest type with room."
)


@dataclass(frozen=True)
class ObjectiveSpec:
    """The parameters of `allocators.heterogeneous.gavel.policy.Gavel` for its shares."""

    objective: str
    aware: bool
    faithful: bool
    owner: str
    owner_weights: tuple[float, ...]
    within: str

    @property
    def looks(self) -> bool:
        """Return True if the objective reads rates, False if only where jobs can run."""
        return (
            self.objective in READS_RATES if not self.aware else self.objective not in EQUAL_SHARES
        )

    @property
    def owner_column(self) -> str:
        """Trace column with the owner of a job; "" if owners do not matter."""
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
            The same jobs; the records of finish-time fairness are updated.
        rng : numpy.random.Generator
            Source of random draws.
        hint : Hint, optional
            Hint of the last shares.

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
        """Return the shares of time by the solver of the objective."""
        problem = self._problem(snapshot)._replace(hint=hint)
        if self.objective == "finish_time_fairness":
            problem = _update_fair_records(roster, problem)
        special = _SPECIAL.get(self.objective)
        if special:
            return special(self, snapshot, roster, problem, rng)
        if self.faithful and self.objective in PUBLISHED:
            return PUBLISHED[self.objective](problem)
        return OBJECTIVES["isolated" if self.objective in EQUAL_SHARES else self.objective](problem)

    def _problem(self, snapshot: JobsSnapshot) -> Problem:
        """Return the problem of a snapshot, with rates as the objective sees them.

        Rates are 0 where a gang exceeds the GPUs of the type. If not `aware`, all types have equal
        rates.
        """
        fits = snapshot.gangs[:, None] <= snapshot.gpus
        rates = snapshot.rates * fits
        if not self.aware:
            seen = agnostic(rates, FASTEST if self.objective in READS_RATES else None)
            rates = seen * (fits if self.faithful else rates > 0)
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
    """Return the state of the roster's jobs with the columns that the objective reads.

    Parameters
    ----------
    view : View
        The instant.
    spec : ObjectiveSpec
        The objective.
    roster : Roster
        The jobs.
    columns : sequence of int
        Index of the GPU type of each column.
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
        column(view, "remaining_work", ids) if spec.objective in READS_WORK else 1.0,
        column(view, "deadline_s", ids) - view.now_s if spec.objective == "cost_slo" else np.inf,
        column(view, owner, ids).astype(np.int64) if owner else None,
        len(view.names(owner)) if owner else 1,
    )


def column(view: View, name: str, ids: Ints) -> Floats:
    """Return a column of the active jobs, for these job ids only."""
    values = view.active.column(name)
    return values if len(values) == len(ids) else values[np.searchsorted(view.active.ids, ids)]


def prices(listed: Floats) -> Floats:
    """Return USD per GPU hour above 0; a missing price is replaced by the lowest one.

    Without any price all types cost the same.
    """
    return np.where(listed > 0, listed, listed[listed > 0].min() if (listed > 0).any() else 1.0)


def _update_fair_records(roster: Roster, problem: Problem) -> Problem:
    """Add the isolated time of work done since the last shares; return the problem with it.

    The work left and the isolated rates are recorded for the next update.
    """
    done = np.maximum(roster.left - problem.left, 0.0)
    roster.fair_s += np.where(
        roster.counted & (roster.fair_rate > 0),
        done / np.where(roster.fair_rate > 0, roster.fair_rate, 1.0),
        0.0,
    )
    roster.left = np.array(problem.left)
    roster.fair_rate = isolated_rates(problem)
    return problem._replace(isolated_s=roster.fair_s.copy())


def _held_types(roster: Roster) -> Ints:
    """Return the column of the type with each job's largest share; `WAITS` for none."""
    return np.where(roster.share.max(axis=1, initial=0.0) > 0, roster.share.argmax(axis=1), WAITS)


def _fifo_shares(
    spec: ObjectiveSpec,
    snapshot: JobsSnapshot,
    roster: Roster,
    problem: Problem,
    rng: np.random.Generator,
) -> Shares:
    """Return shares of 1 on one type for the objective ``fifo``; of 0 for jobs that wait.

    If `aware`, the fastest type with room; otherwise jobs keep their type or get a random one.
    """
    if spec.aware:
        return fifo(problem)
    known_rates = problem._replace(
        rates=snapshot.rates * (snapshot.gangs[:, None] <= snapshot.gpus)
    )
    return Shares(
        whole_shares(fifo_any(known_rates, _held_types(roster), rng), len(problem.devices))
    )


def _allox_shares(
    spec: ObjectiveSpec,
    snapshot: JobsSnapshot,
    roster: Roster,
    problem: Problem,
    rng: np.random.Generator,
) -> Shares:
    """Return the shares of the objective ``allox``; jobs keep their type, then gangs go first."""
    # AlloX has no gangs, so they go first: in order of arrival, each on the fastest type with room.
    # A job that has a type keeps it.
    del spec, snapshot, rng
    held, one = _held_types(roster), roster.gangs == 1
    if one.all():
        return Shares(whole_shares(allox(problem, held), len(problem.devices)))
    taken = np.bincount(
        held[held != WAITS], roster.gangs[held != WAITS], len(problem.devices)
    ).astype(np.int64)
    free = np.maximum(problem.devices - taken, 0)
    large = np.flatnonzero(~one & (held == WAITS))
    x = whole_shares(held, len(free))
    x[large] = fifo(_subproblem(problem, large, free)).x
    free -= roster.gangs[large] @ x[large].astype(np.int64)
    small = np.flatnonzero(one & (held == WAITS))
    x[small] = whole_shares(allox(_subproblem(problem, small, free), held[small]), len(free))
    return Shares(x, note=ALLOX_GANGS_NOTE)


def _subproblem(problem: Problem, jobs: Ints, devices: Ints) -> Problem:
    """Return the problem of these jobs only, on these GPUs."""

    def select(values: Floats | float) -> Floats:
        """Return a column of the problem as one number for each of these jobs."""
        return per_job(problem, values)[jobs]

    return problem._replace(
        rates=problem.rates[jobs],
        gangs=problem.gangs[jobs],
        devices=devices,
        left=select(problem.left),
        age_s=select(problem.age_s),
    )


def _water_filling_shares(
    spec: ObjectiveSpec,
    snapshot: JobsSnapshot,
    roster: Roster,
    problem: Problem,
    rng: np.random.Generator,
) -> Shares:
    """Return the shares of the objective ``water_filling``, divided among owners if any."""
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
    "fifo": _fifo_shares,
    "allox": _allox_shares,
    "water_filling": _water_filling_shares,
}
