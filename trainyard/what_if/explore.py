"""One stored run opened for looking at: who held what, who waited at an instant, and the life of
one job with the reasons of its waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import Final

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.contract import Demand, Needs
from sim.demand import Demands, narrowed, pools_of
from sim.errors import ParameterError
from sim.metrics import life as lives
from sim.metrics import moment as moments
from sim.metrics import occupancy as held
from sim.metrics.hetero import type_time
from sim.metrics.jobs import Mask
from sim.metrics.occupancy import MOST_ROWS, ORDERS, ROWS_BY, Bars, Occupancy, order
from sim.metrics.room import RoomNeeds
from sim.metrics.steps import Floats, Ints
from sim.metrics.timeline import Timeline
from sim.metrics.why import JobCase, reasons
from sim.perf import PerfSpec
from sim.perf.model import Fitting, Staffed
from sim.perf.rigid import Rigid
from sim.result import RunResult
from sim.trace import Trace
from trainyard.store import Store, StoredResult, profiles
from trainyard.study import catalog
from trainyard.study.scenario import Scenario
from trainyard.text import RunClock
from trainyard.what_if import sentences
from trainyard.what_if.sentences import Reasons, WaitReason

__all__ = [
    "MOST_ROWS",
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
    "opened",
    "order",
    "why",
]

Window = tuple[float, float]
STATES: Final = ("any", "waited", "preempted", "failed", "unfinished")
SORTS: Final = ("wait", "jct", "gpus", "submit", "slowdown")


@dataclass(frozen=True, eq=False)
class MomentReport:
    """One instant.

    Parameters
    ----------
    t_s : float, seconds
        The instant.
    waiting : DataFrame
        job (row of the trace), id, user, gpus (asked for), waited_s (so far, all its waits
        together), rank (by submission among those waiting, 1 = first), runs_s (alone at its best
        size on the fastest type).
    frame : DataFrame
        One row per node with GPUs (cores, where the cluster has no GPUs): node (its name), type,
        rack, free, used, down.
    held, free, down : float
        GPUs of the cluster; the three sum to all it has.
    pieces : DataFrame
        One row per type: type, free, pieces (nodes with any), largest (most on one node).
    largest : int
        Most that is free on one node.
    unit : str
        "GPU" or "core".
    sentence : str
        All that in words.
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
    """The life of one job.

    Parameters
    ----------
    id : str
        As the trace names it.
    facts : str
        Who asked for what.
    events : DataFrame
        t_s, what (see `sim.metrics.life.Happening`), told (a sentence); in order.
    spells : DataFrame
        t0, t1, state ("waiting", "running" or "paused"), gpus, nodes, types (texts); from
        submission to when it left, without gap.
    sentence : str
        The events in one line, long lives shortened.
    finish_s : float, seconds
        When it was completed; NaN = never.
    types : str
        Of its GPU time the share on each GPU type, in words; empty if it held no GPU, or the
        cluster has one type only.
    """

    id: str
    facts: str
    events: pd.DataFrame
    spells: pd.DataFrame
    sentence: str
    finish_s: float
    types: str = ""


def occupancy(book: Book, window: Window, by: str = "node", within: str = "") -> Occupancy:
    """Return how much of each node, rack or type is held in a window, see
    `sim.metrics.occupancy.occupancy`.
    """
    return held.occupancy(book.line, window, by, within)


def fitting(book: Book, within: str = "") -> str:
    """Return the finest of `ROWS_BY` of which a picture has room for all rows; "type" where none
    has.
    """
    return held.fitting(book.line, within)


def groups(book: Book, by: str) -> tuple[str, ...]:
    """Return the racks or types that can be opened."""
    return held.groups(book.line, by)


def bars(book: Book, node: str, window: Window, most: int = 1500) -> Bars:
    """Return who held the GPUs of one node, as bars in lanes.

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
    found = held.bars(book.line, book.line.names.index(node), window, most)
    return found._replace(
        frame=_named(book, found.frame["job"].to_numpy()).join(found.frame.drop(columns="job"))
    )


def moment(book: Book, t_s: float) -> MomentReport:
    """Return who waits at an instant and what is free, see `sim.metrics.moment.moment`."""
    now = moments.moment(book.line, t_s)
    waiting = _named(book, now.waiting).assign(
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
    """Return the jobs to choose from, and how many match in all.

    Parameters
    ----------
    book : Book
        The run.
    text : str
        Part of an id or of a user's name, in any case. "" = all.
    state : str
        One of `STATES`: waited = at all; preempted = stopped, changed or evicted at least once;
        failed = failed, refused or impossible.
    sort : str
        One of `SORTS`: largest first, by submission the earliest; slowdown = JCT / the time it
        needs alone.
    most : int
        Rows at most.

    Returns
    -------
    (DataFrame, int)
        job (row of the trace), id, user, gpus, submit_s, wait_s (all waits together; NaN if it was
        never waited for), jct_s (NaN unless completed), slowdown, outcome, preemptions, evictions;
        and the number of all that match.

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
    keys = _sorted_by(book)
    chosen = {
        "any": np.ones(len(frame), np.bool_),
        "waited": keys["wait"] > 0,
        "preempted": np.asarray((frame["preemptions"] > 0) | (frame["evictions"] > 0)),
        "failed": np.asarray(frame["outcome"].isin(["failed", "refused", "impossible"])),
        "unfinished": np.asarray(frame["outcome"] == "unfinished"),
    }[state]
    rows = np.flatnonzero(chosen & _matching(book, text))
    shown = rows[
        np.argsort(keys[sort][rows] * (1.0 if sort == "submit" else -1.0), kind="stable")[:most]
    ]
    table = _named(book, shown).assign(
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


def _sorted_by(book: Book) -> dict[str, Floats]:
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
    """Return what became of one job.

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
    lived = lives.spells(book.line, job)
    happened = lives.happenings(book.line, job, lived)
    teller = sentences.Teller(book.clock, book.cluster, book.line.names)
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
        facts=sentences.facts(book.trace, job),
        events=events,
        spells=pd.DataFrame(rows, columns=["t0", "t1", "state", "gpus", "nodes", "types"]),
        sentence=teller.life(happened),
        finish_s=float(book.result.jobs["finish_s"].iloc[job]),
        types=teller.shares(book.type_time[job]),
    )


def why(book: Book, job: int) -> tuple[WaitReason, ...]:
    """Return why one job waited: one reason per time in which it did, in order; none for a job that
    never waited.

    Raises
    ------
    ParameterError
        If there is no such job.
    """
    _check_job(book, job)
    wanted = book.wanted(job)
    recorded_s = (
        book.trace.numbers("start_time_s")[job] if "recorded_start" in book.needs.reads else np.nan
    )
    return tuple(
        map(
            Reasons(book.line, book.trace, book.clock, wanted, float(recorded_s)).reason,
            reasons(JobCase(book.line, wanted, job)),
        )
    )


def _check_job(book: Book, job: int) -> None:
    if not 0 <= job < len(book.trace):
        raise ParameterError(
            f"There is no job in row {job} of this trace, which has {len(book.trace):,}. Choose one"
            " that is in the list."
        )


def _named(book: Book, rows: Ints) -> pd.DataFrame:
    frame = book.trace.frame
    users = np.asarray(book.trace.texts("user")[rows], object) if len(rows) else np.zeros(0, object)
    return pd.DataFrame({"job": rows, "id": frame["job_id"].to_numpy()[rows], "user": users})


def _matching(book: Book, text: str) -> Mask:
    if not text.strip():
        return np.ones(len(book.trace), np.bool_)
    wanted = text.strip().lower()
    ids = book.trace.frame["job_id"].str.lower().str.contains(wanted, regex=False)
    users = book.trace.texts("user")
    named = np.array([wanted in str(user).lower() for user in users.categories], np.bool_)
    return np.asarray(ids.to_numpy(np.bool_) | named[users.codes])


@dataclass(frozen=True, eq=False)
class Book:
    """A run with its jobs and machines.

    Parameters
    ----------
    result : RunResult
        What happened.
    trace, cluster : Trace, Cluster
        The jobs as they were run, and the machines.
    title : str
        What the policy is called.
    needs : Needs
        What the policy declares: whether it may resize jobs, mix types in one gang, and confine
        jobs to partitions.
    perf : PerfSpec
        How jobs scale; says on which types they fit and what they are made of.
    entry : Entry or None
        What is stored of the run; None = nothing.
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
        """The run as arrays."""
        return Timeline(self.result, self.cluster)

    @cached_property
    def type_time(self) -> Floats:
        """GPU-seconds that each job held on each GPU type of the cluster, of shape (jobs,
        types).
        """
        return type_time(self.result, self.cluster)

    @cached_property
    def _asked(self) -> tuple[Demands, Floats]:
        """What each job asks for, and on how many GPUs it could run."""
        model = self.perf.bind(self.trace, self.cluster)
        trace = (
            narrowed(self.trace, self.cluster, model.fits())
            if isinstance(model, Fitting)
            else self.trace
        )
        roles = model.roles() if isinstance(model, Staffed) else None
        resizes = "scaling" in self.needs.requires
        least = model.limits().min_gpus if resizes else self.trace.numbers("num_gpus")
        return (
            Demands(trace, self.cluster, pools_of(self.cluster), self.needs.confine_by, roles),
            least,
        )

    @cached_property
    def clock(self) -> RunClock:
        """How its instants are written."""
        return RunClock(self.trace.epoch, seconds=self.result.end_s < 2 * 3600)

    def wanted(self, job: int) -> RoomNeeds:
        """Return what a job needs in order to run, as this policy may place it."""
        demands, least = self._asked
        return self._wanted(demands.of(job), float(least[job]))

    def _wanted(self, demand: Demand, least_gpus: float) -> RoomNeeds:
        kinds = np.full(len(self.cluster.nodes), -1)
        pools = pools_of(self.cluster)
        for at in demand.pools:
            kinds[list(pools[at].nodes)] = pools[at].type_at + 1
        # Such an allocator sizes workers and servers itself.
        sized = {"scaling", "servers"} <= self.needs.requires
        least = ceil(least_gpus / demand.gpus) if demand.gpus else 1 if sized else demand.replicas
        need = min(max(1, least), demand.replicas)
        beside = None if demand.servers is None else self._wanted(demand.servers, 0.0)
        return RoomNeeds(demand, need, kinds, self.needs.mixes_types, beside)


def opened(
    entry: StoredResult, trace: Trace, cluster: Cluster, title: str, store: Store | None = None
) -> Book:
    """Open a stored run.

    Parameters
    ----------
    entry : Entry
        The stored result.
    trace, cluster : Trace, Cluster
        The jobs as they were run, and the machines.
    title : str
        What the policy is called.
    store : Store or None
        Where measured profiles of the user lie.

    Raises
    ------
    StoreError
        If the result was removed meanwhile.
    ParameterError
        If the trace is not the one of the run, or its performance profile is not kept any more.
    """
    scenario = Scenario.from_json(entry.scenario)
    result = entry.result()
    if len(result.jobs) != len(trace):
        raise ParameterError(
            f"This result has {len(result.jobs):,} jobs and the trace {len(trace):,}. Run the"
            " scenario again."
        )
    needs = catalog.allocator(scenario.allocator).needs
    perf = profiles.resolved(scenario.perf, store)
    return Book(result, trace, cluster, title, needs, perf, entry)
