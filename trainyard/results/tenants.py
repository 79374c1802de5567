"""Teams in a run: what each was entitled to, held, borrowed and lent, and when it starved."""

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
    ordered,
    with_catch_all,
    write_quotas,
)
from allocators.tenants import COLUMN_WORDS, COLUMNS
from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.metrics.steps import accumulate
from sim.params import Spec
from sim.result import RunResult
from sim.trace import Trace
from trainyard.study import catalog

Floats = NDArray[np.float64]
_SLACK_GPUS: Final = 0.5
"""A team that lacks less than this of what it is entitled to does not starve."""
_HOUR_S: Final = 3600.0
_STOPS: Final = ("preempted", "evicted")
MOST_TEAMS: Final = 40
"""Rows at most; the teams with the fewest GPU-hours share the last one."""
_MOST_SHARED: Final = 200_000
"""Instants at most at which fair shares are worked out."""


@dataclass(frozen=True, eq=False)
class Teams:
    """The teams of a trace, and their quotas.

    Parameters
    ----------
    column : str
        Of the trace that names them.
    quotas : tuple of Quota
        Parents before their children; `CATCH_ALL` among them.
    leaf : array of int, shape (jobs,)
        The row of each job.
    assumed : str
        Where the quotas come from, as a sentence.
    proposed : bool
        Whether nobody gave them.
    """

    column: str
    quotas: tuple[Quota, ...]
    leaf: NDArray[np.int64]
    assumed: str
    proposed: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The rows."""
        return tuple(quota.name for quota in self.quotas)


@dataclass(frozen=True, eq=False)
class TenantReport:
    """One run by team.

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
        Team -> GPUs held, and GPUs that it lacked while it starved, from each instant to the next.
    """

    table: pd.DataFrame
    jain: float
    t_s: Floats
    used: Mapping[str, Floats]
    lacking: Mapping[str, Floats]


# -- who they are
# --------------------------------------------------------------------------------------------------


class Evicted(NamedTuple):
    """Jobs of others that were stopped for each team, and the GPU-hours of work that these lost;
    arrays of shape (teams,).
    """

    jobs: NDArray[np.int64]
    lost_h: Floats


def column_of(trace: Trace, asked: str = "auto") -> str:
    """Return the column that names teams: the one asked for, or the first with several names.

    Raises
    ------
    ParameterError
        If no column names anybody.
    """
    names = {one: [name for name in texts_of(trace, one).unique() if name] for one in COLUMNS}
    if asked != "auto":
        found = [asked] if names.get(asked) else []
    else:
        found = [one for one in COLUMNS if len(names[one]) > 1]
        found = found or [one for one in COLUMNS if names[one]]
    if found:
        return found[0]
    there = [one for one in COLUMNS if names[one]]
    if there:
        raise ParameterError(
            f"The trace has no {COLUMN_WORDS.get(asked, asked)}s. It names teams by"
            f" {', '.join(there)}."
        )
    raise ParameterError(
        "The trace names no teams: it has no virtual clusters, accounts, partitions or users. Read"
        " the file with a column that names them."
    )


def proposal(trace: Trace, cluster: Cluster, column: str) -> tuple[Quota, ...]:
    """Return quotas in whole GPUs by each team's part of the GPU-hours of the trace.

    Notes
    -----
    What is left of the GPUs by rounding down goes to the largest remainders.
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
    """Return the teams of a trace, named by a column, with the quotas that were given, else those
    of the first policy that has any, else those that `proposal` makes.

    Where no column is given it is that of a policy, else the first with several names.

    Raises
    ------
    ParameterError
        If the trace names no teams, or quotas of a policy cannot be read.
    """
    asked = next((one.values["tenant"] for one in policies if "tenant" in one.values), "auto")
    column = column_of(trace, column or str(asked))
    word = COLUMN_WORDS[column]
    if quotas:
        said = " ".join(["Quotas as given.", *_odd(quotas, set(texts_of(trace, column)), cluster)])
    else:
        quotas, said = _of_policies(policies)
    proposed = not quotas
    if proposed:
        quotas = proposal(trace, cluster, column)
        said = (
            f"No policy here has quotas in GPUs: each {word}'s part of the GPU-hours is taken as"
            " such."
        )
    quotas = tuple(
        replace(row, deserved=min(row.deserved, float(cluster.gpus)))
        for row in with_catch_all(quotas)
    )
    tree = QuotaTree(quotas)
    names = texts_of(trace, column)
    known = {name: tree.leaf(name) for name in names.unique()}
    return Teams(column, quotas, names.map(known).to_numpy(np.int64), said, proposed)


def _odd(quotas: Sequence[Quota], names: AbstractSet[str], cluster: Cluster) -> Iterator[str]:
    """Yield what is odd about quotas that were given: above the cluster, or of nobody."""
    total = sum(row.deserved for row in quotas if not row.parent)
    if total > cluster.gpus:
        yield f"They add up to {total:g} GPUs, the cluster has {cluster.gpus:,}."
    groups = {row.parent for row in quotas}
    nobody = [row.name for row in quotas if row.name not in names | groups | {CATCH_ALL}]
    if nobody:
        more = f" and {len(nobody) - 5:,} more" if len(nobody) > 5 else ""
        yield f"Nobody in the trace is called {', '.join(nobody[:5])}{more}."


def _of_policies(policies: Sequence[Spec]) -> tuple[tuple[Quota, ...], str]:
    for spec in policies:
        policy = catalog.instance("allocator", spec)
        if isinstance(policy, HasQuotas) and (found := policy.quotas()):
            return found, f"Quotas as policy {spec.name} has them."
    return (), ""


def texts_of(trace: Trace, column: str) -> pd.Series[Any]:
    """Return the team of each job; "" = none."""
    texts = trace.texts(column)
    names = np.append(np.asarray(texts.categories, object), "")
    return pd.Series(names[np.asarray(texts.codes)])


def _gpu_hours(trace: Trace, column: str) -> pd.Series[float]:
    served = trace.numbers("num_gpus") * np.nan_to_num(trace.numbers("duration_s")) / _HOUR_S
    names = texts_of(trace, column)
    sums: pd.Series[float] = pd.Series(served).groupby(names.to_numpy()).sum()
    return sums[[name for name in sums.index if name]]


def rows_of(quotas: Sequence[Quota]) -> pd.DataFrame:
    """Return quotas as a table to edit: name, deserved, maximum (NaN = none), weight, priority,
    parent.
    """
    frame = pd.DataFrame([asdict(row) for row in quotas if row.name != CATCH_ALL])
    return frame.replace({"maximum": {inf: nan}})


def quotas_of(rows: pd.DataFrame) -> tuple[Quota, ...]:
    """Return the quotas of an edited table; rows without a name are left out.

    Raises
    ------
    ParameterError
        If a name comes twice, an amount is below 0, or a parent is no row.
    """
    found: dict[str, Quota] = {}
    for row in rows.to_dict("records"):
        name = _word(row["name"])
        if not name:
            continue
        if name in found:
            raise ParameterError(f"The quotas name {name} twice. Keep one row of the two.")
        deserved, maximum, weight = (
            usual if pd.isna(row[key]) else float(row[key])
            for key, usual in (("deserved", 0.0), ("maximum", inf), ("weight", 1.0))
        )
        if min(deserved, maximum, weight) < 0:
            raise ParameterError(f"An amount of {name} is below 0. Give numbers from 0.")
        priority = 0 if pd.isna(row["priority"]) else int(row["priority"])
        found[name] = Quota(name, deserved, maximum, weight, priority, _word(row["parent"]))
    return ordered(found.values())


def _word(value: Any) -> str:
    return "" if pd.isna(value) else str(value).strip()


# -- what they got
# --------------------------------------------------------------------------------------------------


def tenant_report(result: RunResult, teams: Teams, cluster: Cluster) -> TenantReport:
    """Return what each team had in one run.

    Notes
    -----
    All amounts are integrals of step functions and exact. A job demands what it asks for from its
    submission on, and what it holds while it runs. A team is entitled to the smaller of its quota
    and its demand; it starves while it holds over half a GPU less. Of that, as much is *caused by
    borrowers* as other teams hold above their quotas at that instant; the rest by placement, order
    and fragmentation. What is borrowed is lent by all that have quota to spare, in proportion to
    it. Jobs that were refused demand nothing.
    """
    tree = QuotaTree(teams.quotas)
    rows = _rows(result, teams)
    t_s, used, demand, total = _courses(result, rows, teams.leaf, cluster)
    dt = np.diff(t_s) / _HOUR_S
    used, demand, total = used[:, : len(dt)], demand[:, : len(dt)], total[: len(dt)]
    quota = _quotas(teams, rows)[:, None]
    deserved = np.minimum(quota, demand)
    borrowed = np.maximum(0.0, used - quota)
    spare = np.maximum(0.0, quota - used)
    all_borrowed, all_spare = borrowed.sum(axis=0), spare.sum(axis=0)
    lent = spare * (np.minimum(all_borrowed, all_spare) / np.where(all_spare > 0, all_spare, 1.0))
    gap = np.maximum(0.0, deserved - used)
    starved = gap > _SLACK_GPUS
    gap = np.where(starved, gap, 0.0)
    by_borrowers = np.minimum(gap, all_borrowed)
    row_of = _row_of(rows, teams.leaf)
    evicted = evicted_for(result, row_of, t_s, used, deserved)
    error = _share_error(tree, rows, used, demand, total, dt)
    waits = (result.jobs["first_start_s"] - result.jobs["submit_s"]).to_numpy(np.float64)
    stopped = result.segments[result.segments["ended"] == "preempted"]["job"].to_numpy(np.int64)
    found = []
    for at, row in enumerate(rows):
        own = np.isin(teams.leaf, row.leaves)
        waited = waits[own & np.isfinite(waits)]
        spells = _spells(starved[at], t_s)
        found.append(
            {
                "team": row.name,
                "quota": float(quota[at, 0]),
                "jobs": int(own.sum()),
                "deserved_h": float(deserved[at] @ dt),
                "used_h": float(used[at] @ dt),
                "borrowed_h": float(borrowed[at] @ dt),
                "lent_h": float(lent[at] @ dt),
                "starved_s": float(starved[at] @ dt) * _HOUR_S,
                "starved_h": float(gap[at] @ dt),
                "by_borrowers_h": float(by_borrowers[at] @ dt),
                "by_place_h": float((gap - by_borrowers)[at] @ dt),
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
        pd.DataFrame(found),
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
    served = np.zeros(len(teams.quotas))
    np.add.at(served, teams.leaf, result.jobs["served_gpu_s"].to_numpy(np.float64) + 1e-9)
    there = [at for at in range(len(teams.quotas)) if served[at] > 0]
    if len(there) <= MOST_TEAMS:
        return [_Row(teams.names[at], (at,)) for at in there]
    order = sorted(there, key=lambda at: (-served[at], at))
    kept = sorted(order[: MOST_TEAMS - 1])
    rest = tuple(order[MOST_TEAMS - 1 :])
    return [*(_Row(teams.names[at], (at,)) for at in kept), _Row(f"{len(rest)} others", rest)]


def _row_of(rows: Sequence[_Row], leaf: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of each job."""
    row_of = np.zeros(int(leaf.max(initial=0)) + 1, np.int64)
    for at, row in enumerate(rows):
        row_of[list(row.leaves)] = at
    return row_of[leaf]


def _quotas(teams: Teams, rows: Sequence[_Row]) -> Floats:
    return np.array([sum([teams.quotas[at].deserved for at in row.leaves]) for row in rows])


def _courses(
    result: RunResult, rows: Sequence[_Row], leaf: NDArray[np.int64], cluster: Cluster
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return instants, GPUs held and asked for by row, and GPUs in service."""
    jobs, segments = result.jobs, result.segments
    asked = jobs["gpus"].to_numpy(np.float64)
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
    more = held - asked[job]
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
    deltas = []
    for at in range(len(rows)):
        uses, wants = np.zeros(len(times)), np.zeros(len(times))
        mine, theirs = (own == at)[counts], own[job] == at
        wants[edges[0] : edges[1]] = asked[counts] * mine
        wants[edges[1] : edges[2]] = -asked[counts] * mine
        for place, sign in ((2, 1.0), (3, -1.0)):
            part = slice(edges[place], edges[place + 1])
            uses[part] = sign * held * theirs
            wants[part] = sign * more * theirs
        deltas += [uses, wants]
    there = np.zeros(len(times))
    there[edges[4] : edges[5]], there[edges[5] : edges[6]] = -down, down
    there[edges[6]] = sizes.sum()
    mark = np.zeros(len(times))
    mark[-1] = 1.0  # so that the end is an instant of its own
    t_s, values = accumulate(times, [*deltas, there, mark])
    return t_s, np.array(values[:-2:2]), np.array(values[1:-2:2]), values[-2]


def _share_error(
    tree: QuotaTree, rows: Sequence[_Row], used: Floats, demand: Floats, total: Floats, dt: Floats
) -> list[float]:
    if not len(dt) or len(dt) > _MOST_SHARED or any(len(row.leaves) > 1 for row in rows):
        return [nan] * len(rows)
    keys, which = np.unique(np.vstack([demand, total]), axis=1, return_inverse=True)
    shares = np.zeros((len(rows), keys.shape[1]))
    for at in range(keys.shape[1]):
        asks = tree.sums({row.leaves[0]: keys[place, at] for place, row in enumerate(rows)})
        found = tree.shares(float(keys[-1, at]), asks)
        shares[:, at] = [found[row.leaves[0]] for row in rows]
    away = np.abs(used - shares[:, which.ravel()])
    mean: list[float] = (away @ dt / dt.sum()).tolist()
    return mean


def _jain(used: Floats, deserved: Floats, dt: Floats) -> float:
    wants = deserved > 0
    ratio = np.divide(used, deserved, out=np.zeros_like(used), where=wants)
    count, squares = wants.sum(axis=0), (ratio**2).sum(axis=0)
    known = squares > 0
    if not (dt[known]).sum() > 0:
        return nan
    index = ratio.sum(axis=0)[known] ** 2 / (count[known] * squares[known])
    return float(index @ dt[known] / dt[known].sum())


def _spells(starved: NDArray[np.bool_], t_s: Floats) -> Floats:
    edge = np.diff(np.concatenate([[False], starved, [False]]).astype(np.int8))
    return t_s[np.flatnonzero(edge == -1)] - t_s[np.flatnonzero(edge == 1)]


def _quantile(values: Floats, at: float) -> float:
    return float(np.quantile(values, at)) if len(values) else nan


__all__ = [
    "COLUMN_WORDS",
    "MOST_TEAMS",
    "Quota",
    "Teams",
    "TenantReport",
    "column_of",
    "proposal",
    "quotas_of",
    "rows_of",
    "teams_of",
    "tenant_report",
    "texts_of",
    "write_quotas",
]


def stops_of(result: RunResult) -> pd.DataFrame:
    """Return what was stopped by a plan or by a failure: job, t_s, by_plan, lost_gpu_s.

    Notes
    -----
    Lost work is recorded per job. It is divided over the times that the job was stopped in
    proportion to the work that it had done since it started: exact where a job was stopped once, or
    where nothing is kept. A job that a plan stopped for good lost all that it had done.
    """
    segments = result.segments.sort_values(["job", "t0"], kind="stable")
    job, ended = segments["job"].to_numpy(np.int64), segments["ended"].astype(str).to_numpy()
    ran_s = (segments["t1"] - segments["t0"] - segments["paused_s"]).to_numpy(np.float64)
    is_stop = np.isin(ended, _STOPS)
    # Segments from one start to the stop that ends them, the last one to the end of the job.
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
    found: pd.DataFrame = table.assign(lost_gpu_s=table["gpu_s"] * np.clip(share, 0.0, 1.0))
    return found[["job", "t_s", "by_plan", "lost_gpu_s"]]


def evicted_for(
    result: RunResult,
    team: NDArray[np.int64],
    t_s: Floats,
    used: Floats,
    deserved: Floats,
) -> Evicted:
    """Return which jobs plans stopped for which team.

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
    Policies do not say for whom they stop a job. Our reading: for the other team that lacked most
    of what it was entitled to at that instant, measured against what it held before; where none
    lacked anything, for the one whose holding rose most then; where none rose, for nobody.
    """
    jobs, lost_h = np.zeros(len(used), np.int64), np.zeros(len(used))
    stops = stops_of(result)
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
