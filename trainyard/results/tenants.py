"""Tenants of a run: entitlement, GPUs held, borrowed and lent, and times of starvation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from math import inf, nan
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocators.quotas import (
    CATCH_ALL,
    HasQuotas,
    Quota,
    QuotaTree,
    sort_quotas,
    with_catch_all,
    write_quotas,
)
from allocators.tenants import TENANT_COLUMNS, TENANT_NOUNS
from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.metrics.steps import accumulate
from sim.params import Spec
from sim.result import RunResult
from sim.trace import Trace
from trainyard.study import catalog

Floats = NDArray[np.float64]
_SLACK_GPUS: Final = 0.5
"""A team starves if it lacks at least this of its entitlement."""
_HOUR_S: Final = 3600.0
_STOPS: Final = ("preempted", "evicted")
MAX_TEAMS: Final = 40
"""Maximum number of rows; the teams with the fewest GPU-hours share the last one."""
_MAX_SHARE_INSTANTS: Final = 200_000
"""Maximum number of instants at which fair shares are computed."""


@dataclass(frozen=True, eq=False)
class Teams:
    """Teams of a trace with their quotas.

    Parameters
    ----------
    column : str
        Column of the trace with the team names.
    quotas : tuple of Quota
        Parents before their children; `CATCH_ALL` among them.
    leaf : array of int, shape (jobs,)
        Index of the quota of each job.
    assumed : str
        Origin of the quotas, as a sentence.
    proposed : bool
        Whether the quotas are a proposal of ours.
    """

    column: str
    quotas: tuple[Quota, ...]
    leaf: NDArray[np.int64]
    assumed: str
    proposed: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the quota rows."""
        return tuple(quota.name for quota in self.quotas)


@dataclass(frozen=True, eq=False)
class TenantReport:
    """Metrics of one run by team.

    Parameters
    ----------
    table : DataFrame, one row per team that has jobs
        team, quota (GPUs), jobs, deserved_h, used_h, borrowed_h, lent_h (GPU-hours), starved_s,
        starved_h, by_borrowers_h, by_place_h (GPU-hours), reclaim_p50_s, reclaim_p95_s (how long
        it starved each time), stopped (of its own jobs, by a plan), evicted (jobs of others that
        were stopped for it), evicted_lost_h (GPU-hours of work that these lost), share_error
        (mean GPUs away from the fair share; NaN = not worked out), wait_p50_s, wait_p95_s.
    jain : float
        Jain's index of used / deserved over the teams with demand, as a mean over time; NaN = there
        was none.
    t_s : array of shape (instants + 1,), seconds
        When anything changed.
    used, lacking : mapping
        Team -> GPUs held, and GPUs missing while it starved, from each instant to the next.
    """

    table: pd.DataFrame
    jain: float
    t_s: Floats
    used: Mapping[str, Floats]
    lacking: Mapping[str, Floats]


# -- teams and quotas
# --------------------------------------------------------------------------------------------------


class Evicted(NamedTuple):
    """Jobs of others that plans stopped for each team, and the GPU-hours of work they lost.

    Arrays of shape (teams,).
    """

    jobs: NDArray[np.int64]
    lost_h: Floats


def column_of(trace: Trace, requested: str = "auto") -> str:
    """Return the column that names teams: the requested one, or the first with several names.

    "auto" falls back to the first column with any name.

    Raises
    ------
    ParameterError
        If no column holds team names.
    """
    names = {
        one: [name for name in team_names(trace, one).unique() if name] for one in TENANT_COLUMNS
    }
    if requested != "auto":
        matches = [requested] if names.get(requested) else []
    else:
        matches = [one for one in TENANT_COLUMNS if len(names[one]) > 1]
        matches = matches or [one for one in TENANT_COLUMNS if names[one]]
    if matches:
        return matches[0]
    there = [one for one in TENANT_COLUMNS if names[one]]
    if there:
        raise ParameterError(
            f"The trace has no {TENANT_NOUNS.get(requested, requested)}s. It names tenants by"
            f" {', '.join(there)}."
        )
    raise ParameterError(
        "The trace names no tenants: it has no virtual clusters, accounts, partitions or users."
        " Read the file with a column that names them."
    )


def proposed_quotas(trace: Trace, cluster: Cluster, column: str) -> tuple[Quota, ...]:
    """Return proposed quotas: whole GPUs in proportion to each team's GPU-hours.

    Notes
    -----
    GPUs left over by rounding down go to the largest remainders.
    """
    hours = _gpu_hours(trace, column)
    total = cluster.gpus
    parts = hours / hours.sum() * total if hours.sum() > 0 else hours * 0 + total / len(hours)
    whole = parts // 1
    rest = (parts - whole).sort_values(ascending=False, kind="stable").index
    whole[rest[: round(float(total - whole.sum()))]] += 1
    return tuple(Quota(str(name), float(gpus)) for name, gpus in whole.items())


def teams_of(
    trace: Trace,
    cluster: Cluster,
    policies: Sequence[Spec],
    quotas: tuple[Quota, ...] = (),
    column: str = "",
) -> Teams:
    """Return the teams of a trace, with the given quotas, a policy's, or proposed ones.

    Quotas are capped at the GPUs of the cluster; a catch-all quota is added.

    Without a column, a policy's column is used, else the first one with several names.

    Raises
    ------
    ParameterError
        If the trace names no teams, or quotas of a policy cannot be read.
    """
    requested = next((one.values["tenant"] for one in policies if "tenant" in one.values), "auto")
    column = column_of(trace, column or str(requested))
    word = TENANT_NOUNS[column]
    if quotas:
        assumed = " ".join(
            ["Quotas as given.", *_quota_warnings(quotas, set(team_names(trace, column)), cluster)]
        )
    else:
        quotas, assumed = _policy_quotas(policies)
    proposed = not quotas
    if proposed:
        quotas = proposed_quotas(trace, cluster, column)
        assumed = (
            f"No quotas are set, so each {word}'s share of the GPU-hours is used as its quota."
        )
    quotas = tuple(
        replace(row, deserved=min(row.deserved, float(cluster.gpus)))
        for row in with_catch_all(quotas)
    )
    tree = QuotaTree(quotas)
    names = team_names(trace, column)
    leaf_of = {name: tree.leaf(name) for name in names.unique()}
    return Teams(column, quotas, names.map(leaf_of).to_numpy(np.int64), assumed, proposed)


def _quota_warnings(
    quotas: Sequence[Quota], names: AbstractSet[str], cluster: Cluster
) -> Iterator[str]:
    """Yield warnings about given quotas: a total above the cluster, or unknown names."""
    total = sum(row.deserved for row in quotas if not row.parent)
    if total > cluster.gpus:
        yield f"They add up to {total:g} GPUs, the cluster has {cluster.gpus:,}."
    groups = {row.parent for row in quotas}
    unknown = [row.name for row in quotas if row.name not in names | groups | {CATCH_ALL}]
    if unknown:
        more = f" and {len(unknown) - 5:,} more" if len(unknown) > 5 else ""
        yield f"The trace has no tenant called {', '.join(unknown[:5])}{more}."


def _policy_quotas(policies: Sequence[Spec]) -> tuple[tuple[Quota, ...], str]:
    """Return the quotas of the first policy that has any, and a sentence that names it.

    Empty and "" if none has.
    """
    for spec in policies:
        policy = catalog.instance("allocator", spec)
        if isinstance(policy, HasQuotas) and (quotas := policy.quotas()):
            return quotas, f"Quotas as policy {spec.name} has them."
    return (), ""


def team_names(trace: Trace, column: str) -> pd.Series[Any]:
    """Return the team name of each job; "" = none."""
    texts = trace.texts(column)
    names = np.append(np.asarray(texts.categories, object), "")
    return pd.Series(names[np.asarray(texts.codes)])


def _gpu_hours(trace: Trace, column: str) -> pd.Series[float]:
    """Return the GPU-hours of the trace by team: request times recorded run time."""
    served = trace.numbers("num_gpus") * np.nan_to_num(trace.numbers("duration_s")) / _HOUR_S
    names = team_names(trace, column)
    sums: pd.Series[float] = pd.Series(served).groupby(names.to_numpy()).sum()
    return sums[[name for name in sums.index if name]]


def rows_of(quotas: Sequence[Quota]) -> pd.DataFrame:
    """Return quotas as an editable table, without the catch-all quota.

    Columns: name, deserved, maximum (NaN = none), weight, priority, parent.
    """
    frame = pd.DataFrame([asdict(row) for row in quotas if row.name != CATCH_ALL])
    return frame.replace({"maximum": {inf: nan}})


def quotas_of(rows: pd.DataFrame) -> tuple[Quota, ...]:
    """Return the quotas of an edited table, parents first; rows without a name are left out.

    Empty amounts get the defaults: 0 deserved, no maximum, weight 1, priority 0.

    Raises
    ------
    ParameterError
        If a name occurs twice, an amount is negative, or a parent is no row.
    """
    by_name: dict[str, Quota] = {}
    for row in rows.to_dict("records"):
        name = _cell_text(row["name"])
        if not name:
            continue
        if name in by_name:
            raise ParameterError(f"The quotas name {name} twice. Keep one row of the two.")
        deserved, maximum, weight = (
            usual if pd.isna(row[key]) else float(row[key])
            for key, usual in (("deserved", 0.0), ("maximum", inf), ("weight", 1.0))
        )
        if min(deserved, maximum, weight) < 0:
            raise ParameterError(f"An amount of {name} is below 0. Give numbers from 0.")
        priority = 0 if pd.isna(row["priority"]) else int(row["priority"])
        by_name[name] = Quota(name, deserved, maximum, weight, priority, _cell_text(row["parent"]))
    return sort_quotas(by_name.values())


def _cell_text(value: Any) -> str:
    """Return a cell as text; "" if empty."""
    return "" if pd.isna(value) else str(value).strip()


# -- metrics by team
# --------------------------------------------------------------------------------------------------


def tenant_report(result: RunResult, teams: Teams, cluster: Cluster) -> TenantReport:
    """Return the metrics of each team in one run.

    Notes
    -----
    All amounts are exact integrals of step functions. A job's demand is its request while it waits
    and its grant while it runs; refused jobs demand nothing. A team is entitled to the smaller of
    its quota and its demand; it starves while it holds over half a GPU less. The part *caused by
    borrowers* is bounded by the GPUs that other teams hold above their quotas at that instant; the
    rest is due to placement, order and fragmentation. Borrowed GPUs count as lent by all teams with
    unused quota, in proportion to it.
    """
    tree = QuotaTree(teams.quotas)
    rows = _rows(result, teams)
    t_s, used, demand, total = _usage_courses(result, rows, teams.leaf, cluster)
    dt = np.diff(t_s) / _HOUR_S
    used, demand, total = used[:, : len(dt)], demand[:, : len(dt)], total[: len(dt)]
    quota = _quotas(teams, rows)[:, None]
    deserved = np.minimum(quota, demand)
    all_borrowed = np.maximum(0.0, used - quota).sum(axis=0)
    all_spare = np.maximum(0.0, quota - used).sum(axis=0)
    lent_share = np.minimum(all_borrowed, all_spare) / np.where(all_spare > 0, all_spare, 1.0)
    gap = np.maximum(0.0, deserved - used)
    gap[gap <= _SLACK_GPUS] = 0.0
    row_of = _row_of(rows, teams.leaf)
    evicted = evictions_by_team(result, row_of, t_s, used, deserved)
    error = _share_error(tree, rows, used, demand, total, dt)
    waits = (result.jobs["first_start_s"] - result.jobs["submit_s"]).to_numpy(np.float64)
    stopped = result.segments[result.segments["ended"] == "preempted"]["job"].to_numpy(np.int64)
    rows_out = []
    for at, row in enumerate(rows):
        own = np.isin(teams.leaf, row.leaves)
        waited = waits[own & np.isfinite(waits)]
        spells = _spell_lengths_s(gap[at] > 0, t_s)
        by_borrowers = np.minimum(gap[at], all_borrowed)
        rows_out.append(
            {
                "team": row.name,
                "quota": float(quota[at, 0]),
                "jobs": int(own.sum()),
                "deserved_h": float(deserved[at] @ dt),
                "used_h": float(used[at] @ dt),
                "borrowed_h": float(np.maximum(0.0, used[at] - quota[at]) @ dt),
                "lent_h": float(np.maximum(0.0, quota[at] - used[at]) * lent_share @ dt),
                "starved_s": float((gap[at] > 0) @ dt) * _HOUR_S,
                "starved_h": float(gap[at] @ dt),
                "by_borrowers_h": float(by_borrowers @ dt),
                "by_place_h": float((gap[at] - by_borrowers) @ dt),
                "reclaim_p50_s": _quantile(spells, 0.5),
                "reclaim_p95_s": _quantile(spells, 0.95),
                "stopped": int(own[stopped].sum()),
                "evicted": int(evicted.jobs[at]),
                "evicted_lost_h": float(evicted.lost_h[at]),
                "share_error": error[at],
                "wait_p50_s": _quantile(waited, 0.5),
                "wait_p95_s": _quantile(waited, 0.95),
            }
        )
    return TenantReport(
        pd.DataFrame(rows_out),
        _jain(used, deserved, dt),
        t_s,
        {row.name: used[at] for at, row in enumerate(rows)},
        {row.name: gap[at] for at, row in enumerate(rows)},
    )


@dataclass(frozen=True)
class _Row:
    """One team of the report, or several small ones."""

    name: str
    leaves: tuple[int, ...]


def _rows(result: RunResult, teams: Teams) -> list[_Row]:
    """Return the rows of the report: one per team with GPU time, the smallest share the last.

    Beyond `MAX_TEAMS`, the teams with least GPU time become one row "N others".
    """
    served = np.zeros(len(teams.quotas))
    np.add.at(served, teams.leaf, result.jobs["served_gpu_s"].to_numpy(np.float64) + 1e-9)
    active = [at for at in range(len(teams.quotas)) if served[at] > 0]
    if len(active) <= MAX_TEAMS:
        return [_Row(teams.names[at], (at,)) for at in active]
    order = sorted(active, key=lambda at: (-served[at], at))
    kept = sorted(order[: MAX_TEAMS - 1])
    rest = tuple(order[MAX_TEAMS - 1 :])
    return [*(_Row(teams.names[at], (at,)) for at in kept), _Row(f"{len(rest)} others", rest)]


def _row_of(rows: Sequence[_Row], leaf: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index into `rows` of each job, from the quota of each job."""
    row_of = np.zeros(int(leaf.max(initial=0)) + 1, np.int64)
    for at, row in enumerate(rows):
        row_of[list(row.leaves)] = at
    return row_of[leaf]


def _quotas(teams: Teams, rows: Sequence[_Row]) -> Floats:
    """Return the quota of each row, in GPUs."""
    return np.array([sum([teams.quotas[at].deserved for at in row.leaves]) for row in rows])


def _usage_courses(
    result: RunResult, rows: Sequence[_Row], leaf: NDArray[np.int64], cluster: Cluster
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return instants, GPUs held by row, GPUs demanded by row, and GPUs in service."""
    jobs, segments = result.jobs, result.segments
    requested = jobs["gpus"].to_numpy(np.float64)
    last_s = np.full(len(jobs), -inf)
    np.maximum.at(last_s, segments["job"].to_numpy(), segments["t1"].to_numpy(np.float64))
    outcome = jobs["outcome"].astype(str).to_numpy()
    over_s = jobs["finish_s"].to_numpy(np.float64).copy()
    over_s = np.where(np.isfinite(over_s), over_s, np.where(outcome == "failed", last_s, inf))
    over_s = np.minimum(over_s, result.end_s)
    begin_s = jobs["submit_s"].to_numpy(np.float64)
    counts = ~np.isin(outcome, ("refused", "impossible")) & (over_s > begin_s)
    job = segments["job"].to_numpy(np.int64)
    t0, t1 = segments["t0"].to_numpy(np.float64), segments["t1"].to_numpy(np.float64)
    held = segments["gpus"].to_numpy(np.float64)
    more = held - requested[job]
    own = _row_of(rows, leaf)
    outages = result.outages
    sizes = np.array([node.gpus for node in cluster.nodes], np.float64)
    down = sizes[outages["node"].to_numpy(np.int64)] if len(outages) else np.zeros(0)
    down0 = outages["t0"].to_numpy(np.float64)
    down1 = outages["t1"].fillna(result.end_s).to_numpy(np.float64)
    zero = np.zeros(1)
    parts = [begin_s[counts], over_s[counts], t0, t1, down0, down1, zero, zero + result.end_s]
    times = np.concatenate(parts)
    edges = np.cumsum([0, *map(len, parts)])

    def changes() -> Iterator[Floats]:
        """Yield the changes of GPUs held and demanded by row, and of GPUs in service."""
        for at in range(len(rows)):
            uses, wants = np.zeros(len(times)), np.zeros(len(times))
            mine, theirs = (own == at)[counts], own[job] == at
            wants[edges[0] : edges[1]] = requested[counts] * mine
            wants[edges[1] : edges[2]] = -requested[counts] * mine
            for place, sign in ((2, 1.0), (3, -1.0)):
                part = slice(edges[place], edges[place + 1])
                uses[part] = sign * held * theirs
                wants[part] = sign * more * theirs
            yield from (uses, wants)
        yield from (there, mark)

    there = np.zeros(len(times))
    there[edges[4] : edges[5]], there[edges[5] : edges[6]] = -down, down
    there[edges[6]] = sizes.sum()
    mark = np.zeros(len(times))
    mark[-1] = 1.0  # makes the end an instant
    t_s, values = accumulate(times, changes())
    return t_s, np.array(values[:-2:2]), np.array(values[1:-2:2]), values[-2]


def _share_error(
    tree: QuotaTree, rows: Sequence[_Row], used: Floats, demand: Floats, total: Floats, dt: Floats
) -> list[float]:
    """Return the time mean of |GPUs held - fair share| per row; NaN if too large to compute.

    Arrays have one column per interval of length `dt`. NaN also without intervals, or if a row
    joins several teams.
    """
    if not len(dt) or len(dt) > _MAX_SHARE_INSTANTS or any(len(row.leaves) > 1 for row in rows):
        return [nan] * len(rows)
    leaves = [row.leaves[0] for row in rows]
    shares = tree.share_series(total, dict(zip(leaves, demand, strict=True)))
    away = np.abs(used - shares[leaves])
    mean: list[float] = (away @ dt / dt.sum()).tolist()
    return mean


def _jain(used: Floats, deserved: Floats, dt: Floats) -> float:
    """Return the time mean of Jain's index of used / deserved GPUs over teams with demand.

    NaN if no team with demand ever held a GPU.
    """
    wants = deserved > 0
    ratio = np.divide(used, deserved, out=np.zeros_like(used), where=wants)
    count, squares = wants.sum(axis=0), (ratio**2).sum(axis=0)
    has_use = squares > 0
    if not (dt[has_use]).sum() > 0:
        return nan
    index = ratio.sum(axis=0)[has_use] ** 2 / (count[has_use] * squares[has_use])
    return float(index @ dt[has_use] / dt[has_use].sum())


def _spell_lengths_s(starved: NDArray[np.bool_], t_s: Floats) -> Floats:
    """Return the length of each unbroken interval where `starved` is True, in seconds."""
    edge = np.diff(np.concatenate([[False], starved, [False]]).astype(np.int8))
    return t_s[np.flatnonzero(edge == -1)] - t_s[np.flatnonzero(edge == 1)]


def _quantile(values: Floats, at: float) -> float:
    """Return a quantile of values; NaN without any."""
    return float(np.quantile(values, at)) if len(values) else nan


__all__ = [
    "MAX_TEAMS",
    "TENANT_NOUNS",
    "Quota",
    "Teams",
    "TenantReport",
    "column_of",
    "proposed_quotas",
    "quotas_of",
    "rows_of",
    "team_names",
    "teams_of",
    "tenant_report",
    "write_quotas",
]


def job_stops(result: RunResult) -> pd.DataFrame:
    """Return the stops of jobs by plans and failures: job, t_s, by_plan, lost_gpu_s.

    Notes
    -----
    Lost work is recorded per job. It is divided among the stops of the job in proportion to the
    work done since the last start: exact if a job was stopped once, or if no work is kept. A job
    that a plan stopped for good lost all its work.
    """
    segments = result.segments.sort_values(["job", "t0"], kind="stable")
    job, ended = segments["job"].to_numpy(np.int64), segments["ended"].astype(str).to_numpy()
    ran_s = (segments["t1"] - segments["t0"] - segments["paused_s"]).to_numpy(np.float64)
    is_stop = np.isin(ended, _STOPS)
    # Number the segments between two stops.
    is_last = is_stop | (np.diff(job, append=-1) != 0)
    stint = np.cumsum(is_last) - is_last
    sums = pd.DataFrame(
        {
            "work": segments["rate"].to_numpy(np.float64) * ran_s,
            "gpu_s": segments["gpus"].to_numpy(np.float64) * ran_s,
            "at": np.arange(len(segments)),
        }
    ).groupby(stint)
    table = sums[["work", "gpu_s"]].sum()
    last = sums["at"].last().to_numpy(np.int64)
    table = table.assign(
        job=job[last],
        t_s=segments["t1"].to_numpy(np.float64)[last],
        by_plan=ended[last] == _STOPS[0],
    )[is_stop[last]]
    lost = result.jobs["lost_work"].to_numpy(np.float64)[table["job"].to_numpy(np.int64)]
    done = table.groupby("job")["work"].transform("sum").to_numpy(np.float64)
    share = np.divide(lost, done, out=np.zeros_like(done), where=done > 0)
    failed = (result.jobs["outcome"] == "failed").to_numpy()[table["job"].to_numpy(np.int64)]
    share[failed & table.groupby("job")["by_plan"].transform("last").to_numpy(bool)] = 1.0
    stops: pd.DataFrame = table.assign(lost_gpu_s=table["gpu_s"] * np.clip(share, 0.0, 1.0))
    return stops[["job", "t_s", "by_plan", "lost_gpu_s"]]


def evictions_by_team(
    result: RunResult,
    team: NDArray[np.int64],
    t_s: Floats,
    used: Floats,
    deserved: Floats,
) -> Evicted:
    """Return the number and lost work of jobs stopped by plans, by the team that gained.

    Parameters
    ----------
    result : RunResult
        The run.
    team : array of int, shape (jobs,)
        Row of each job's team.
    t_s : array of shape (instants + 1,), seconds
        When anything changed.
    used, deserved : array of shape (teams, instants)
        GPUs that each team holds and is entitled to from each instant to the next.

    Notes
    -----
    Policies do not state the beneficiary of a stop. Our reading: the other team that lacked most of
    its entitlement at that instant, given its holding before; if no team lacked GPUs, the one whose
    holding rose most; if none rose, no team.
    """
    jobs, lost_h = np.zeros(len(used), np.int64), np.zeros(len(used))
    stops = job_stops(result)
    stops = stops[stops["by_plan"].to_numpy(bool)]
    before = np.hstack([np.zeros((len(used), 1)), used])
    owners = team[stops["job"].to_numpy(np.int64)]
    instants = np.searchsorted(t_s, stops["t_s"].to_numpy(np.float64), side="right") - 1
    costs = stops["lost_gpu_s"].to_numpy(np.float64) / _HOUR_S
    for own, at, cost in zip(owners, instants, costs, strict=True):
        if at >= used.shape[1]:
            continue
        lacks, rises = deserved[:, at] - before[:, at], used[:, at] - before[:, at]
        lacks[own] = rises[own] = 0.0
        need = lacks if lacks.max() > 0 else rises
        best = int(need.argmax())
        if need[best] > 0:
            jobs[best] += 1
            lost_h[best] += cost
    return Evicted(jobs, lost_h)
