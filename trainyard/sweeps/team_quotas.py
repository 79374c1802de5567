"""Smallest quotas at which the jobs of each team start within a target wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import nan
from typing import Final

import numpy as np

from allocators import hard_quotas
from sim.errors import ParameterError
from sim.params import Spec
from sim.trace import Trace
from trainyard.results.tenants import Quota, column_of, team_names, write_quotas
from trainyard.runs.run import run
from trainyard.study import catalog
from trainyard.study.scenario import Scenario
from trainyard.study.size_search import MixSearch

WAIT_AT: Final = 0.95
"""Share of a team's jobs that must start within the target."""


@dataclass(frozen=True)
class TeamNeed:
    """Quota that a team needs.

    Parameters
    ----------
    team : str
        Name of the team.
    jobs : int
        Number of its jobs with GPUs.
    quota : int or None
        Smallest quota that meets the target; None = the whole cluster is too small.
    wait_s : float, seconds
        95th percentile of its waits with that quota, or with the whole cluster, if the team runs
        alone.
    together_s : float, seconds
        The same in one run of all teams with these quotas; NaN = no such run.
    """

    team: str
    jobs: int
    quota: int | None
    wait_s: float
    together_s: float = nan


@dataclass(frozen=True)
class QuotaPlan:
    """Quotas that all teams need together.

    Parameters
    ----------
    needs : tuple of TeamNeed
        Needs of each team.
    limit_s : float, seconds
        The target.
    gpus : int
        GPUs of the cluster.
    runs : int
        Number of runs.
    """

    needs: tuple[TeamNeed, ...]
    limit_s: float
    gpus: int
    runs: int

    @property
    def table(self) -> str:
        """The quotas in the syntax of the policy quota; the whole cluster if none is enough."""
        rows = [Quota(need.team, float(need.quota or self.gpus)) for need in self.needs]
        return write_quotas(rows)

    @property
    def sentence(self) -> str:
        """Summary of the plan in one or two sentences."""
        total = sum([need.quota or self.gpus for need in self.needs])
        never = [need.team for need in self.needs if need.quota is None]
        if never:
            return (
                f"Not even the whole cluster, {self.gpus} GPUs, is enough for {', '.join(never)}."
                " Allow longer waits, or plan more nodes."
            )
        if total > self.gpus:
            return (
                f"The quotas add up to {total} GPUs and the cluster has {self.gpus}: plan more"
                " nodes, allow longer waits, or lend unused quotas."
            )
        late = [need.team for need in self.needs if need.together_s > self.limit_s]
        if late:
            return (
                f"The quotas fit, {total} of {self.gpus} GPUs, but together {', '.join(late)} waits"
                " longer: free GPUs are scattered over nodes."
            )
        return f"The quotas fit, {total} of {self.gpus} GPUs, and hold in one run of all teams."


def can_plan(policy: Spec) -> bool:
    """Return True if quotas affect a policy, which is false for recorded schedules."""
    return "recorded_start" not in catalog.allocator(policy).needs.reads


def plan_quotas(
    scenario: Scenario,
    trace: Trace,
    limit_s: float,
    column: str = "auto",
    on_run: Callable[[str, int], None] = lambda team, runs: None,
) -> QuotaPlan:
    """Find the smallest hard quota of each team at which 95 % of its jobs start within a target.

    Parameters
    ----------
    scenario : Scenario
        Machines and policy; the policy starts the jobs within the quotas.
    trace : Trace
        The jobs.
    limit_s : float, seconds
        The target.
    column : str
        Column of the trace that names teams; "auto" = the first with several names.
    on_run : callable
        Called with a team and the number of runs so far before each run.

    Raises
    ------
    TrainyardError
        If the trace names no teams, the policy replays the record or changes the size of jobs, or
        a run fails.

    Notes
    -----
    The quota of each team is found by bisection with its own jobs only, from its largest job to the
    whole cluster. One run of all teams then shows whether the quotas suffice together. Bisection
    assumes that more GPUs never make waits longer.
    """
    if limit_s < 0:
        raise ParameterError("The target is below 0 s. Give a wait of 0 s or more.")
    if not can_plan(scenario.allocator):
        raise ParameterError(
            f"{scenario.allocator.name} replays the recorded schedule, so quotas have no effect."
            " Choose a simulated policy."
        )
    column = column_of(trace, column)
    names = team_names(trace, column).to_numpy()
    gpus, total = trace.numbers("num_gpus"), scenario.cluster.gpus
    needs, runs = [], 0
    for team in sorted({str(name) for name in names if name}):
        own = (names == team) & (gpus > 0)
        own &= gpus <= total
        if not own.any():
            continue
        part = Trace.of(trace.frame[own].reset_index(drop=True), **trace.about)
        search = MixSearch((int(gpus[own].max()),), (total,), (1.0,), check=False)
        waits: dict[int, float] = {}
        while search.next_sizes:
            size = search.next_sizes[0]
            on_run(team, runs)
            waits[size[0]] = _wait_p95_s(scenario, part, [Quota(team, float(size[0]))], column)[
                team
            ]
            runs += 1
            search.record(size, holds=waits[size[0]] <= limit_s)
        quota = search.answer[0] if search.answer is not None else None
        needs.append(TeamNeed(team, int(own.sum()), quota, waits[quota or total]))
    if not needs:
        raise ParameterError("No job of a named team asks for GPUs that this cluster has.")
    if all(need.quota for need in needs) and sum(need.quota or 0 for need in needs) <= total:
        on_run("", runs)
        rows = [Quota(need.team, float(need.quota or 0)) for need in needs]
        waits_together = _wait_p95_s(scenario, trace, rows, column)
        needs = [replace(need, together_s=waits_together[need.team]) for need in needs]
        runs += 1
    return QuotaPlan(tuple(needs), limit_s, total, runs)


def _wait_p95_s(
    scenario: Scenario, trace: Trace, rows: list[Quota], column: str
) -> dict[str, float]:
    """Return team -> 95th percentile of waits in one run under hard quotas, in seconds.

    inf if jobs up to this rank never start; 0 for a team without jobs that can run.
    """
    spec = hard_quotas(scenario.allocator, write_quotas(rows), column)
    jobs = run(replace(scenario, allocator=spec), trace=trace).jobs
    wait_s = (jobs["first_start_s"] - jobs["submit_s"]).fillna(np.inf).to_numpy(np.float64)
    names = team_names(trace, column).to_numpy()
    possible = (jobs["outcome"] != "impossible").to_numpy() & (jobs["gpus"] > 0).to_numpy()
    percentiles = {}
    for row in rows:
        own = np.sort(wait_s[(names == row.name) & possible])
        percentiles[row.name] = (
            float(own[int(np.ceil(WAIT_AT * len(own))) - 1]) if len(own) else 0.0
        )
    return percentiles
