"""Runs in worker processes: a fair, bounded queue; equal scenarios share a process.

Cancelling kills that process only.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import multiprocessing
import os
import threading
import time
from collections.abc import MutableSequence
from concurrent.futures import CancelledError, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Any, Final, Literal

from pebble import ProcessExpired, ProcessPool

from sim.errors import TrainyardError
from sim.simulator import Progress
from trainyard.runs import worker
from trainyard.runs.disconnects import Leaving
from trainyard.runs.estimate import Costs, run_seconds
from trainyard.runs.run import key_of, rerun_to_store, run_to_store
from trainyard.store import Entry, Store
from trainyard.study.scenario import Scenario

State = Literal["waiting", "running", "done", "failed", "cancelled"]
SHORT_S: Final = 5.0
"""Runs that are estimated below this may use the process that is kept for them."""
_SPARE_ROWS: Final = 4
_LOG: Final = logging.getLogger(__name__)


class PoolFullError(TrainyardError):
    """Too many runs are waiting."""


@dataclass(eq=False)
class _Run:
    """One process's worth of work, watched by one or more jobs."""

    key: str
    scenario: Scenario
    ticket: int
    seconds: float = 0.0
    began_s: float = 0.0
    payers: set[str] = field(default_factory=set)
    watchers: list[Job] = field(default_factory=list)
    state: State = "waiting"
    future: Future[str] | None = None
    row: int = 0
    attempts: int = 0
    again: bool = False
    fault: BaseException | None = None
    finished: threading.Event = field(default_factory=threading.Event)

    @property
    def names(self) -> set[str]:
        """Who watches it."""
        return {job.watcher for job in self.watchers}

    def taken_s(self, now_s: float) -> float:
        """Seconds that it has run, or is estimated to run in all, if that is more."""
        return max(now_s - self.began_s, self.seconds)


class Job:
    """A submitted scenario as its submitter sees it. Two equal scenarios are two jobs on one run.

    Parameters
    ----------
    pool : Pool
        Where it was submitted.
    run : _Run
        What it watches.
    watcher : str
        Who submitted it, e.g. a session.
    """

    def __init__(self, pool: Pool, run: _Run, watcher: str) -> None:
        self._pool, self._run, self.watcher = pool, run, watcher
        self._detached = False

    @property
    def key(self) -> str:
        """The store's key of the result."""
        return self._run.key

    @property
    def scenario(self) -> Scenario:
        """What is run."""
        return self._run.scenario

    @property
    def state(self) -> State:
        """Where it is: waiting, running, done, failed or cancelled."""
        if self._detached:
            return "cancelled"
        run = self._run
        # A report can arrive before the pool has heard that the worker took the task.
        began = run.future is not None and (run.future.running() or self.progress is not None)
        return "running" if run.state == "waiting" and began else run.state

    @property
    def settled(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state in ("done", "failed", "cancelled")

    @property
    def place(self) -> int:
        """Place in the queue: 1 = next, 0 = not waiting."""
        return self._pool.place(self._run)

    @property
    def starts_in_s(self) -> float:
        """Seconds until it starts, estimated; 0 = it does not wait."""
        return self._pool.starts_in_s(self._run)

    @property
    def progress(self) -> Progress | None:
        """The last report from inside the run, at most 0.2 s old; None before the first."""
        return self._pool.progress(self._run)

    @property
    def share(self) -> float:
        """Share of the run that is over, 0 to 1: of jobs settled."""
        if self.state == "done":
            return 1.0
        report = self.progress
        return report.done / report.jobs if report and report.jobs else 0.0

    @property
    def error(self) -> str:
        """Why it failed, as one sentence; "" if it did not."""
        return sentence(self._run.fault) if self._run.fault is not None and self.state == "failed" else ""

    @property
    def details(self) -> dict[str, object]:
        """What an allocator saw when its plan was refused; empty for other faults."""
        return dict(getattr(self._run.fault, "snapshot", {}))

    def cancel(self) -> None:
        """Stop watching; the process is killed when nobody else watches the same run."""
        self._pool.detach(self)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until it is settled; tell whether it is."""
        self._run.finished.wait(timeout_s)
        return self.settled

    def entry(self) -> Entry | None:
        """Return the stored result, or None if there is none (yet)."""
        return self._pool.store.get(self.key)


class Pool:
    """Pre-warmed worker processes behind a queue.

    Whoever was served least so far goes first. One process more than `workers` is kept for runs
    estimated below `SHORT_S` of watchers who have nothing running, so that they wait for nobody's
    long run.

    Parameters
    ----------
    store : Store
        Where results go.
    workers : int or None
        Processes; None = cores that this process may use.
    work : callable
        What a worker executes; `trainyard.runs.run.run_to_store` but in tests.
    time_limit_s : float or None, seconds
        A run that takes longer is stopped.
    most_waiting : int
        Runs that may wait at once; three tenths of them for one watcher, so that none fills the queue alone.

    Attributes
    ----------
    leaving : Leaving
        Sessions that have gone: what only they watch is cancelled after a while.
    costs : Costs
        What runs have taken on this machine.
    most_each : int
        Runs of one watcher that may wait.
    """

    def __init__(
        self, store: Store, *, workers: int | None = None, work: worker.Work = run_to_store, time_limit_s: float | None = None, most_waiting: int = 1000
    ) -> None:
        self.store = store
        self.workers = workers or cores()
        self._work, self._time_limit_s, self._most_waiting = work, time_limit_s, most_waiting
        self.most_each = max(most_waiting * 3 // 10, 1)
        self._lock = threading.RLock()
        self._tickets = itertools.count(1)
        self._waiting: list[_Run] = []
        self._active: list[_Run] = []
        self._served: dict[str, float] = {}
        self.costs = Costs()
        self.leaving = Leaving()
        self.leaving.then(self.stop)
        self._context = multiprocessing.get_context("spawn")
        self._rows = (self.workers + 1) * _SPARE_ROWS
        self._board: MutableSequence[float] = self._context.RawArray(ctypes.c_double, self._rows * worker.FIELDS)  # type: ignore[assignment]
        self._closed = False
        self._processes = self._start()

    def submit(self, scenario: Scenario, watcher: str = "", *, again: bool = False) -> Job:
        """Queue a scenario; join the run if an equal one is under way; be done at once if its result is stored.

        Parameters
        ----------
        scenario : Scenario
            What to run.
        watcher : str
            Who asks; the queue is fair between watchers.
        again : bool
            Run it even if its result is stored.

        Raises
        ------
        TrainyardError
            If the trace cannot be found, or the queue is full, or the watcher's share of it.
        """
        key = key_of(scenario, self.store)
        with self._lock:
            run = next((known for known in (*self._active, *self._waiting) if known.key == key), None)
            if run is None:
                run = self._new_run(key, scenario, watcher, again)
            job = Job(self, run, watcher)
            self._welcome(watcher)
            run.watchers.append(job)
            self._dispatch()
        return job

    def is_going(self, scenario: Scenario) -> bool:
        """Tell whether an equal run waits or goes on, for whomever.

        Raises
        ------
        TrainyardError
            If the trace cannot be found.
        """
        key = key_of(scenario, self.store)
        with self._lock:
            return any(run.key == key for run in (*self._active, *self._waiting))

    def place(self, run: _Run) -> int:
        """Return the place of a run in the queue, 1 = next, 0 = not waiting."""
        with self._lock:
            order = self._order()
            return order.index(run) + 1 if run in order else 0

    def starts_in_s(self, run: _Run) -> float:
        """Return the estimated seconds until a run starts, 0 = it does not wait."""
        with self._lock:
            order, now_s = self._order(), time.monotonic()
            if run not in order:
                return 0.0
            left_s = sum(max(one.began_s + one.seconds - now_s, 0.0) for one in self._active)
            return (left_s + sum(one.seconds for one in order[: order.index(run)])) / self.workers

    def progress(self, run: _Run) -> Progress | None:
        """Return the last report of a run."""
        return worker.read_board(self._board, run.row, run.ticket)

    def detach(self, job: Job) -> None:
        """Let a job no longer watch its run; an unwatched run is dropped or its process killed."""
        with self._lock:
            run = job._run
            if job._detached or run.state in ("done", "failed", "cancelled"):
                return
            job._detached = True
            run.watchers.remove(job)
            if run.watchers:
                return
            if run in self._waiting:
                self._waiting.remove(run)
                self._settle(run, "cancelled")
            elif run.future is not None:
                run.future.cancel()

    def watchers(self, source: str) -> set[str]:
        """Return who waits for runs of a trace; `source` is that of its `TraceSpec`."""
        with self._lock:
            return {job.watcher for run in (*self._waiting, *self._active) if run.scenario.trace.source == source for job in run.watchers}

    def stop(self, watcher: str, source: str = "") -> None:
        """Let a watcher no longer wait for any of its runs; with a source, for those of this trace only."""
        with self._lock:
            jobs = [job for run in (*self._waiting, *self._active) for job in run.watchers if job.watcher == watcher]
        for job in jobs:
            if source in ("", job.scenario.trace.source):
                self.detach(job)
        if not source:
            self._served.pop(watcher, None)

    @property
    def running(self) -> int:
        """Runs that have a process."""
        return len(self._active)

    @property
    def waiting(self) -> int:
        """Runs in the queue."""
        return len(self._waiting)

    def warm(self, timeout_s: float = 60.0) -> None:
        """Block until the first worker is up.

        Raises
        ------
        TrainyardError
            If no worker starts within the time.
        """
        try:
            self._processes.schedule(worker.ready).result(timeout_s)
        except (TimeoutError, RuntimeError) as error:
            raise TrainyardError(f"No worker process started within {timeout_s:g} s. Look at the log of the server.") from error

    def close(self) -> None:
        """Kill all workers; running jobs end as cancelled."""
        with self._lock:
            self._closed = True
            for run in (*self._waiting, *self._active):
                self._settle(run, "cancelled")
            self._waiting.clear()
        self.leaving.close()
        self._processes.stop()  # type: ignore[no-untyped-call]
        self._processes.join()

    def _start(self) -> ProcessPool:
        processes = ProcessPool(max_workers=self.workers + 1, initializer=worker.start, initargs=(self._board,), context=self._context)
        # Pebble starts its processes with the first task; this one costs nothing and lets them warm up at once.
        processes.schedule(worker.ready)
        return processes

    def _new_run(self, key: str, scenario: Scenario, watcher: str, again: bool) -> _Run:
        run = _Run(key, scenario, next(self._tickets), again=again)
        if self._closed:
            raise PoolFullError("The server is shutting down. Run again when it is back.")
        own = sum(any(job.watcher == watcher for job in known.watchers) for known in self._waiting)
        if not again and self.store.has(key):
            self._settle(run, "done")
        elif len(self._waiting) >= self._most_waiting:
            raise PoolFullError(f"{self._most_waiting} runs are waiting already. Cancel some, or try again in a few minutes.")
        elif own >= self.most_each:
            raise PoolFullError(f"{own} of your runs are waiting already, and others want their turn. Choose fewer repeats or fewer policies.")
        else:
            run.seconds = run_seconds(scenario, self.store, self.costs)
            self._waiting.append(run)
        return run

    def _welcome(self, watcher: str) -> None:
        """Let a watcher who has no runs begin as if served like the one here served least."""
        names = [run.names for run in (*self._active, *self._waiting)]
        here = set[str]().union(*names)
        if watcher not in here:
            least_s = min((self._served.get(name, 0.0) for name in here), default=0.0)
            self._served[watcher] = max(self._served.get(watcher, 0.0), least_s)

    def _order(self) -> list[_Run]:
        """Return the waiting runs in the order in which they start: of whoever was served least.

        Runs count for what they are estimated to take, once they are running for what they took if
        that is more. Ties go to whoever has fewer runs under way, then to the run that came first.
        """
        now_s, served, under_way = time.monotonic(), dict(self._served), dict[str, int]()
        for run in self._active:
            for name in run.names:
                served[name] = served.get(name, 0.0) + run.taken_s(now_s)
                under_way[name] = under_way.get(name, 0) + 1
        queues: dict[str, list[_Run]] = {}
        for run in sorted(self._waiting, key=lambda run: -run.ticket):
            name = min(run.names, key=lambda name: (served.get(name, 0.0), name))
            queues.setdefault(name, []).append(run)
        turns = [(served.get(name, 0.0), under_way.get(name, 0), runs[-1].ticket, name) for name, runs in queues.items()]
        heapify(turns)
        order = []
        while turns:
            had_s, running, _, name = turns[0]
            run = queues[name].pop()
            order.append(run)
            if queues[name]:
                following = queues[name][-1].ticket
                heapreplace(turns, (had_s + run.seconds, running + 1, following, name))
            else:
                heappop(turns)
        return order

    def _next(self) -> _Run | None:
        """Return the run that starts now, None if all must wait."""
        if self._closed or not self._waiting or len(self._active) > self.workers:
            return None
        order = self._order()
        if len(self._active) < self.workers:
            return order[0]
        busy = set[str]().union(*(run.names for run in self._active))
        return next((run for run in order if run.seconds < SHORT_S and not run.names & busy), None)

    def _dispatch(self) -> None:
        while (run := self._next()) is not None:
            self._waiting.remove(run)
            self._active.append(run)
            run.began_s, run.payers = time.monotonic(), run.names
            run.row, run.attempts = run.ticket % self._rows, run.attempts + 1
            args = (rerun_to_store if run.again else self._work, run.scenario.to_json(), self.store.address, run.row, run.ticket)
            run.future = self._schedule(args)
            run.future.add_done_callback(lambda future, run=run: self._finished(run, future))  # type: ignore[misc]

    def _schedule(self, args: tuple[Any, ...]) -> Future[str]:
        try:
            return self._processes.schedule(worker.execute, args=args, timeout=self._time_limit_s)
        except RuntimeError as error:
            _LOG.warning("The worker processes are started anew (%s).", error)
            self._processes.stop()  # type: ignore[no-untyped-call]
            self._processes = self._start()
            return self._processes.schedule(worker.execute, args=args, timeout=self._time_limit_s)

    def _finished(self, run: _Run, future: Future[str]) -> None:
        try:
            fault = future.exception()
        except CancelledError as error:
            fault = error
        with self._lock:
            if run in self._active:
                self._active.remove(run)
                took_s = time.monotonic() - run.began_s
                for name in run.payers & self._served.keys():  # also if they have cancelled it
                    self._served[name] += took_s
            if run.state == "waiting":
                self._conclude(run, fault)
            self._dispatch()

    def _conclude(self, run: _Run, fault: BaseException | None) -> None:
        if isinstance(fault, BrokenProcessPool) and run.attempts == 1 and run.watchers:
            run.future = None
            self._waiting.append(run)
        elif isinstance(fault, CancelledError):
            self._settle(run, "cancelled")
        else:
            if fault is not None and not isinstance(fault, TrainyardError):
                _LOG.error("A run failed: %s", run.scenario.canonical(), exc_info=fault)
            run.fault = fault
            if fault is None and (entry := self.store.get(run.key)) is not None:
                self.costs.note(entry)
            self._settle(run, "done" if fault is None else "failed")

    def _settle(self, run: _Run, state: State) -> None:
        run.state = state
        run.finished.set()


def cores() -> int:
    """Return how many cores this process may use, at least 1."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1))


def sentence(fault: BaseException) -> str:
    """Return what to tell the user about a failed run."""
    if isinstance(fault, TrainyardError):
        return str(fault)
    if isinstance(fault, TimeoutError):
        return "The run was stopped at its time limit. Choose fewer jobs, a shorter window, or a simpler allocator."
    if isinstance(fault, BrokenProcessPool):
        return "The worker processes ended unexpectedly, twice. Look at the log of the server, then run again."
    if isinstance(fault, (MemoryError, ProcessExpired)):
        return "The process of this run was ended by the system, most often because memory ran out. Choose fewer jobs, or a shorter window."
    return f"A fault in Trainyard stopped this run ({type(fault).__name__}: {fault}). The other runs go on; please report it with the scenario file."
