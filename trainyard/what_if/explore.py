"""Exploration of one stored run: holders of GPUs, waiting jobs at an instant, lives of jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import Final

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.contract import Demand, Needs
from sim.demand import Demands, group_into_pools, limit_gpu_types
from sim.errors import ParameterError
from sim.metrics import job_events as lives
from sim.metrics import occupancy as held
from sim.metrics import run_state as moments
from sim.metrics.fit import RoomNeeds
from sim.metrics.gpu_types import type_time
from sim.metrics.jobs import Mask
from sim.metrics.occupancy import MAX_ROWS, ORDERS, ROWS_BY, Bars, Occupancy, order
from sim.metrics.steps import Floats, Ints
from sim.metrics.timeline import Timeline
from sim.metrics.wait_causes import JobCase, reasons
from sim.perf import PerfSpec
from sim.perf.model import Fitting, Staffed
from sim.perf.rigid import Rigid
from sim.result import RunResult
from sim.trace import Trace
from trainyard.formatting import RunClock
from trainyard.store import Store, StoredResult, profiles
from trainyard.study import catalog
from trainyard.study.scenario import Scenario
from trainyard.what_if import sentences
from trainyard.what_if.sentences import Reasons, WaitReason

__all__ = [
    "MAX_ROWS",
    "ORDERS",
    "ROWS_BY",
    "SORTS",
    "STATES",
    "Bars",
    "Book",
    "Life",
    "MomentReport",
    "Occupancy",
    "WaitReason",
    "bars",
    "fitting",
    "groups",
    "jobs",
    "life",
    "moment",
    "occupancy",
    "open_run",
    "order",
    "wait_reasons",
]

Window = tuple[float, float]
STATES: Final = ("any", "waited", "preempted", "failed", "unfinished")
SORTS: Final = ("wait", "jct", "gpus", "submit", "slowdown")


@dataclass(frozen=True, eq=False)
class MomentReport:
    """State of the cluster at one instant.

    Parameters
    ----------
    t_s : float, seconds
        The instant.
    waiting : DataFrame
        job (row of the trace), id, user, gpus (requested), waited_s (sum of its waits so far), rank
        (by submission among waiting jobs, 1 = first), runs_s (run time alone, at its best size on
        the fastest type).
    frame : DataFrame
        One row per node with GPUs (cores, where the cluster has no GPUs): node (its name), type,
        rack, free, used, down.
    held, free, down : float
        GPUs of the cluster; the three add up to all GPUs.
    pieces : DataFrame
        One row per type: type, free, pieces (nodes with any), largest (most on one node).
    largest : int
        Largest number free on one node.
    unit : str
        "GPU" or "core".
    sentence : str
        Summary of the instant.
    """

    t_s: float
    waiting: pd.DataFrame
    frame: pd.DataFrame
    held: float
    free: float
    down: float
    pieces: pd.DataFrame
    largest: int
    unit: str
    sentence: str


@dataclass(frozen=True, eq=False)
class Life:
    """Life of one job in a run.

    Parameters
    ----------
    id : str
        Id of the job in the trace.
    facts : str
        User and request of the job, as a sentence.
    events : DataFrame
        t_s, what (see `sim.metrics.job_events.JobEvent`), told (a sentence); in order of time.
    spells : DataFrame
        t0, t1, state ("waiting", "running" or "paused"), gpus, nodes, types (texts); from
        submission to end, without gaps.
    sentence : str
        The events in one line, long lives shortened.
    finish_s : float, seconds
        Time of completion; NaN = never.
    types : str
        Share of its GPU time by GPU type, as text; empty if it held no GPU, or the cluster has
        only one type.
    """

    id: str
    facts: str
    events: pd.DataFrame
    spells: pd.DataFrame
    sentence: str
    finish_s: float
    types: str = ""


def occupancy(book: Book, window: Window, by: str = "node", within: str = "") -> Occupancy:
    """Return the use of each node, rack or type in a window, see `sim.metrics.occupancy`."""
    return held.occupancy(book.line, window, by, within)


def fitting(book: Book, within: str = "") -> str:
    """Return the finest of `ROWS_BY` with all rows in one picture; "type" if none fits."""
    return held.fitting(book.line, within)


def groups(book: Book, by: str) -> tuple[str, ...]:
    """Return the racks or GPU types that can be expanded."""
    return held.groups(book.line, by)


def bars(book: Book, node: str, window: Window, most: int = 1500) -> Bars:
    """Return the jobs that held the GPUs of one node in a window, as bars in lanes.

    Returns
    -------
    Bars
        Its frame has job, id, user, t0, t1, gpus and lane; see `sim.metrics.occupancy.bars`.

    Raises
    ------
    ParameterError
        If there is no such node.
    """
    if node not in book.line.names:
        raise ParameterError(
            f"There is no node '{node[:60]}' in this cluster. Choose one that is in the list."
        )
    node_bars = held.bars(book.line, book.line.names.index(node), window, most)
    return node_bars._replace(
        frame=_job_names(book, node_bars.frame["job"].to_numpy()).join(
            node_bars.frame.drop(columns="job")
        )
    )


def moment(book: Book, t_s: float) -> MomentReport:
    """Return waiting jobs and free GPUs at an instant, see `sim.metrics.run_state.moment`."""
    now = moments.moment(book.line, t_s)
    waiting = _job_names(book, now.waiting).assign(
        gpus=book.result.jobs["gpus"].to_numpy()[now.waiting],
        waited_s=now.waited_s,
        rank=np.arange(1, len(now.waiting) + 1),
        runs_s=book.result.jobs["ideal_s"].to_numpy(np.float64)[now.waiting],
    )
    node = now.nodes["node"].to_numpy()
    columns = {"node": book.line.names, "type": book.line.kinds, "rack": book.line.racks}
    frame = pd.DataFrame(
        {name: np.array(values, object)[node] for name, values in columns.items()}
    ).join(now.nodes[["free", "used", "down"]])
    free = np.floor(frame["free"] + 1e-9).astype(np.int64)
    by_type = free.groupby(frame["type"], sort=False)
    pieces = pd.DataFrame(
        {
            "free": by_type.sum(),
            "pieces": (free > 0).groupby(frame["type"], sort=False).sum(),
            "largest": by_type.max(),
        }
    ).reset_index()
    amounts = {name: float(frame[name].sum()) for name in ("used", "free", "down")}
    return MomentReport(
        t_s=now.t_s,
        waiting=waiting,
        frame=frame,
        held=amounts["used"],
        free=amounts["free"],
        down=amounts["down"],
        pieces=pieces,
        largest=int(free.max()) if len(free) else 0,
        unit=book.line.unit,
        sentence=sentences.moment(
            waiting["gpus"].to_numpy(), pieces, amounts, now.beyond, book.line.unit
        ),
    )


def jobs(
    book: Book, *, text: str = "", state: str = "any", sort: str = "wait", most: int = 500
) -> tuple[pd.DataFrame, int]:
    """Return jobs that match a filter, and the number of all matches.

    Parameters
    ----------
    book : Book
        The run.
    text : str
        Part of an id or of a user's name, in any case. "" = all.
    state : str
        One of `STATES`: waited = for any time; preempted = stopped, resized or evicted at least
        once; failed = failed, refused or impossible.
    sort : str
        One of `SORTS`: largest first, submission earliest first; slowdown = JCT / ideal run time.
    most : int
        Rows at most.

    Returns
    -------
    (DataFrame, int)
        job (row of the trace), id, user, gpus, submit_s, wait_s (sum of its waits; NaN if it never
        entered the queue), jct_s (NaN unless completed), slowdown, outcome, preemptions, evictions;
        and the number of all matches.

    Raises
    ------
    ParameterError
        If `state` or `sort` is unknown.
    """
    if state not in STATES or sort not in SORTS:
        raise ParameterError(
            f"Jobs cannot be chosen by '{state}' and sorted by '{sort}'. Choose from"
            f" {', '.join(STATES)}; {', '.join(SORTS)}."
        )
    frame = book.result.jobs
    keys = _sort_values(book)
    chosen = {
        "any": np.ones(len(frame), np.bool_),
        "waited": keys["wait"] > 0,
        "preempted": np.asarray((frame["preemptions"] > 0) | (frame["evictions"] > 0)),
        "failed": np.asarray(frame["outcome"].isin(["failed", "refused", "impossible"])),
        "unfinished": np.asarray(frame["outcome"] == "unfinished"),
    }[state]
    rows = np.flatnonzero(chosen & _match_jobs(book, text))
    shown = rows[
        np.argsort(keys[sort][rows] * (1.0 if sort == "submit" else -1.0), kind="stable")[:most]
    ]
    table = _job_names(book, shown).assign(
        gpus=frame["gpus"].to_numpy()[shown],
        submit_s=keys["submit"][shown],
        wait_s=keys["wait"][shown],
        jct_s=keys["jct"][shown],
        slowdown=keys["slowdown"][shown],
        outcome=frame["outcome"].astype("str").to_numpy()[shown],
        preemptions=frame["preemptions"].to_numpy()[shown],
        evictions=frame["evictions"].to_numpy()[shown],
    )
    return table, len(rows)


def _sort_values(book: Book) -> dict[str, Floats]:
    """Return sort key -> its value for each job; NaN if the job has none."""
    frame = book.result.jobs
    enter, leave = book.line.presence
    submit, finish, ideal, gpus = (
        frame[name].to_numpy(np.float64) for name in ("submit_s", "finish_s", "ideal_s", "gpus")
    )
    jct = np.where(frame["outcome"] == "completed", finish - submit, np.nan)
    return {
        "submit": submit,
        "wait": np.where(leave > enter, book.line.waited_s, np.nan),
        "jct": jct,
        "gpus": gpus,
        "slowdown": np.divide(jct, ideal, out=np.full(len(jct), np.nan), where=ideal > 0),
    }


def life(book: Book, job: int, window: Window | None = None) -> Life:
    """Return the life of one job: its events as sentences, and its periods with nodes.

    Parameters
    ----------
    book : Book
        The run.
    job : int
        Row of the trace.
    window : (float, float) or None, seconds
        Spells are cut to it; None = the whole life.

    Raises
    ------
    ParameterError
        If there is no such job.
    """
    _check_job(book, job)
    lived = lives.job_periods(book.line, job)
    happened = lives.job_events(book.line, job, lived)
    teller = sentences.EventFormatter(book.clock, book.cluster, book.line.names)
    events = pd.DataFrame(
        {
            "t_s": [one.t_s for one in happened],
            "what": [one.what for one in happened],
            "told": teller.events(happened),
        }
    )
    t0, t1 = window or (-np.inf, np.inf)
    rows = [
        (max(s.t0, t0), min(s.t1, t1), s.state, s.gpus, teller.nodes(s), teller.types(s))
        for s in lived
        if s.t0 < t1 and s.t1 > t0
    ]
    return Life(
        id=str(book.trace.frame["job_id"].iloc[job]),
        facts=sentences.request_sentence(book.trace, job),
        events=events,
        spells=pd.DataFrame(rows, columns=["t0", "t1", "state", "gpus", "nodes", "types"]),
        sentence=teller.life(happened),
        finish_s=float(book.result.jobs["finish_s"].iloc[job]),
        types=teller.shares(book.type_time[job]),
    )


def wait_reasons(book: Book, job: int) -> tuple[WaitReason, ...]:
    """Return the reasons of a job's waits in order of time; many short waits are summed.

    Empty if the job never waited.

    Raises
    ------
    ParameterError
        If there is no such job.
    """
    _check_job(book, job)
    needs = book.room_needs(job)
    recorded_s = (
        book.trace.numbers("start_time_s")[job] if "recorded_start" in book.needs.reads else np.nan
    )
    return tuple(
        map(
            Reasons(book.line, book.trace, book.clock, needs, float(recorded_s)).reason,
            reasons(JobCase(book.line, needs, job)),
        )
    )


def _check_job(book: Book, job: int) -> None:
    """Raise ParameterError if the trace has no such row."""
    if not 0 <= job < len(book.trace):
        raise ParameterError(
            f"There is no job in row {job} of this trace, which has {len(book.trace):,}. Choose one"
            " that is in the list."
        )


def _job_names(book: Book, rows: Ints) -> pd.DataFrame:
    """Return a table of job (row of the trace), id and user."""
    frame = book.trace.frame
    users = np.asarray(book.trace.texts("user")[rows], object) if len(rows) else np.zeros(0, object)
    return pd.DataFrame({"job": rows, "id": frame["job_id"].to_numpy()[rows], "user": users})


def _match_jobs(book: Book, text: str) -> Mask:
    """Return the mask of jobs with a text in their id or user, in any case; all for ""."""
    if not text.strip():
        return np.ones(len(book.trace), np.bool_)
    part = text.strip().lower()
    ids = book.trace.frame["job_id"].str.lower().str.contains(part, regex=False)
    users = book.trace.texts("user")
    has_part = np.array([part in str(user).lower() for user in users.categories], np.bool_)
    return np.asarray(ids.to_numpy(np.bool_) | has_part[users.codes])


@dataclass(frozen=True, eq=False)
class Book:
    """A run with its jobs, machines and policy, opened for exploration.

    Parameters
    ----------
    result : RunResult
        Result of the run.
    trace, cluster : Trace, Cluster
        The jobs as they were run, and the machines.
    title : str
        What the policy is called.
    needs : Needs
        Declarations of the policy: whether it resizes jobs, mixes types in a gang, and confines
        jobs to partitions.
    perf : PerfSpec
        Performance model: scaling, fitting GPU types and roles of the jobs.
    entry : StoredResult or None
        The stored result; None = not stored.
    """

    result: RunResult
    trace: Trace
    cluster: Cluster
    title: str
    needs: Needs = field(default_factory=Needs)
    perf: PerfSpec = field(default_factory=Rigid)
    entry: StoredResult | None = None

    @cached_property
    def line(self) -> Timeline:
        """The run as arrays over time."""
        return Timeline(self.result, self.cluster)

    @cached_property
    def type_time(self) -> Floats:
        """GPU-seconds that each job held on each GPU type, of shape (jobs, types)."""
        return type_time(self.result, self.cluster)

    @cached_property
    def _requests(self) -> tuple[Demands, Floats]:
        """Requests of the jobs, and the fewest GPUs on which each can run."""
        model = self.perf.bind(self.trace, self.cluster)
        trace = (
            limit_gpu_types(self.trace, self.cluster, model.fits())
            if isinstance(model, Fitting)
            else self.trace
        )
        roles = model.roles() if isinstance(model, Staffed) else None
        resizes = "scaling" in self.needs.requires
        least = model.limits().min_gpus if resizes else self.trace.numbers("num_gpus")
        return (
            Demands(
                trace, self.cluster, group_into_pools(self.cluster), self.needs.confine_by, roles
            ),
            least,
        )

    @cached_property
    def clock(self) -> RunClock:
        """Formatter of the run's instants."""
        return RunClock(self.trace.epoch, seconds=self.result.end_s < 2 * 3600)

    def room_needs(self, job: int) -> RoomNeeds:
        """Return the resources that a job needs to start, at its least size, under this policy."""
        demands, least = self._requests
        return self._needs_of(demands.of(job), float(least[job]))

    def _needs_of(self, demand: Demand, least_gpus: float) -> RoomNeeds:
        """Return the replicas needed for a request of at least `least_gpus` GPUs, and where.

        The GPU type of each node is -1 if the job may not use it. Servers are counted separately.
        """
        kinds = np.full(len(self.cluster.nodes), -1)
        pools = group_into_pools(self.cluster)
        for at in demand.pools:
            kinds[list(pools[at].nodes)] = pools[at].type_at + 1
        # Allocators with both needs size workers and servers themselves.
        sized = {"scaling", "servers"} <= self.needs.requires
        least = ceil(least_gpus / demand.gpus) if demand.gpus else 1 if sized else demand.replicas
        need = min(max(1, least), demand.replicas)
        servers = None if demand.servers is None else self._needs_of(demand.servers, 0.0)
        return RoomNeeds(demand, need, kinds, self.needs.mixes_types, servers)


def open_run(
    entry: StoredResult, trace: Trace, cluster: Cluster, title: str, store: Store | None = None
) -> Book:
    """Open a stored run for exploration: load its result, policy needs and model.

    Parameters
    ----------
    entry : StoredResult
        The stored result.
    trace, cluster : Trace, Cluster
        The jobs as they were run, and the machines.
    title : str
        What the policy is called.
    store : Store or None
        Holds the user's measured profiles.

    Raises
    ------
    StoreError
        If the result was deleted.
    ParameterError
        If the trace does not belong to the run, or its performance profile was deleted.
    """
    scenario = Scenario.from_json(entry.scenario)
    result = entry.result()
    if len(result.jobs) != len(trace):
        raise ParameterError(
            f"This result has {len(result.jobs):,} jobs and the trace {len(trace):,}. Run the"
            " scenario again."
        )
    needs = catalog.allocator(scenario.allocator).needs
    perf = profiles.build_model(scenario.perf, store)
    return Book(result, trace, cluster, title, needs, perf, entry)
