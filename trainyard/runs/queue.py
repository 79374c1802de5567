"""A fair queue of runs in front of an executor; equal runs are made once."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Any, Final, Literal, Protocol

from sim.engine.simulator import Progress
from sim.errors import TrainyardError
from trainyard.runs.executors import Executor, ExecutorError, fault_message, was_killed
from trainyard.store.claimers import new_claimer
from trainyard.study.scenario import Scenario

State = Literal["waiting", "running", "done", "failed", "cancelled"]
ENDED: Final = ("done", "failed", "cancelled")
SHORT_S: Final = 5.0
"""Estimated seconds below which a run may use the spare worker."""
_ATTEMPTS: Final = 2
"""Maximum number of attempts of a run whose worker is killed."""
_POOL_ATTEMPTS: Final = 5
"""The same if the pool broke, which workers of other runs can cause."""
LOST: Final = (
    "The machines of these runs were lost. Finished runs are kept. Start again to continue."
)
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Task:
    """A unit of work for a worker.

    Parameters
    ----------
    key : str
        Equal tasks have equal keys.
    scenario : Scenario
        The scenario to run.
    work, args : callable, sequence
        Function that the worker calls, and its arguments.
    seconds : float
        Estimated CPU seconds on an idle machine.
    limit_s : float or None, seconds
        Time limit; None = no limit.
    """

    key: str
    scenario: Scenario
    work: Callable[..., Any]
    args: Sequence[Any]
    seconds: float
    limit_s: float | None = None


class RunGroup(Protocol):
    """Submissions with common watchers, e.g. a sweep."""

    @property
    def watchers(self) -> frozenset[str]:
        """Sessions that wait for it."""
        ...

    def on_ended(self, submission: Submission) -> None:
        """Handle a submission that is done, failed or cancelled by others; must not block."""
        ...


@dataclass(eq=False)
class QueuedRun:
    """A run in the queue, shared by one or more submissions."""

    task: Task
    ticket: int
    began_s: float = 0.0
    took_s: float = 0.0
    cpu_s: float = 0.0
    payers: set[str] = field(default_factory=set)
    submissions: list[Submission] = field(default_factory=list)
    state: State = "waiting"
    future: Future[Any] | None = None
    attempts: int = 0
    result: Any = None
    fault: BaseException | None = None
    finished: threading.Event = field(default_factory=threading.Event)

    @property
    def watchers(self) -> set[str]:
        """Sessions that wait for it."""
        return {name for one in self.submissions for name in one.watchers}

    def used_s(self, now_s: float) -> float:
        """Return the larger of elapsed and estimated seconds of a running run."""
        return max(now_s - self.began_s, self.task.seconds)


class Submission:
    """A task as its submitter sees it; equal tasks are submissions of one run.

    Parameters
    ----------
    queue : RunQueue
        Queue of the submission.
    run : QueuedRun
        Run that it waits for.
    owner : str or RunGroup
        Session or group that submitted it.
    """

    def __init__(self, queue: RunQueue, run: QueuedRun, owner: str | RunGroup) -> None:
        self._queue, self._run, self.owner = queue, run, owner
        self._detached = False

    @property
    def watchers(self) -> frozenset[str]:
        """Sessions that wait for it."""
        return frozenset((self.owner,)) if isinstance(self.owner, str) else self.owner.watchers

    @property
    def key(self) -> str:
        """Key of its task; for a comparison the key of the stored result."""
        return self._run.task.key

    @property
    def scenario(self) -> Scenario:
        """The scenario to run."""
        return self._run.task.scenario

    @property
    def state(self) -> State:
        """State of the submission: waiting, running, done, failed or cancelled."""
        return "cancelled" if self._detached else self._run.state

    @property
    def has_ended(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state in ENDED

    @property
    def place(self) -> int:
        """Queue position: 1 = next, 0 = not waiting."""
        return self._queue.place(self._run)

    @property
    def starts_in_s(self) -> float:
        """Estimated seconds until it starts; 0 = not waiting."""
        return self._queue.starts_in_s(self._run)

    @property
    def seconds(self) -> float:
        """Estimated duration in seconds after its start."""
        return self._run.task.seconds

    @property
    def elapsed_s(self) -> float:
        """Seconds since its start, up to its end; 0 while it waits."""
        run = self._run
        return time.monotonic() - run.began_s if run.state == "running" else run.took_s

    @property
    def cpu_s(self) -> float:
        """CPU seconds of its worker; 0 before it is done."""
        return self._run.cpu_s

    @property
    def progress(self) -> Progress | None:
        """The last report from inside the run, at most 0.2 s old; None before the first."""
        return self._queue.progress(self._run)

    @property
    def share(self) -> float:
        """Progress of the run: share of its simulated jobs that have ended; 0 before any report."""
        if self.state == "done":
            return 1.0
        report = self.progress
        return report.done / report.jobs if report and report.jobs else 0.0

    @property
    def result(self) -> Any:
        """Return value of its function; None before it is done."""
        return self._run.result

    @property
    def fault(self) -> BaseException | None:
        """Exception of the run; None if there is none."""
        return self._run.fault

    @property
    def error(self) -> str:
        """Why it failed, as one sentence; "" if it did not."""
        fault = self._run.fault
        return fault_message(fault) if fault is not None and self.state == "failed" else ""

    @property
    def details(self) -> dict[str, object]:
        """Snapshot of the cluster at a rejected plan; empty for other faults."""
        return dict(getattr(self._run.fault, "snapshot", {}))

    def cancel(self) -> None:
        """Detach from the run, which ends if no other submission waits for it."""
        self._queue.detach(self)

    def release(self) -> None:
        """Drop the result from the queue; groups must call this for each ended submission.

        Until then equal tasks share the result.
        """
        self._queue.forget(self)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until it has ended or the time is over; return True if it has ended."""
        self._run.finished.wait(timeout_s)
        return self.has_ended


class RunQueue:
    """A queue of runs, fair between sessions: the session served least runs next.

    An executor may have spare workers for runs estimated below `SHORT_S` of sessions that have
    no running run, so that they do not wait for long runs of others.

    Parameters
    ----------
    executor : Executor
        Executor of the runs; closed with the queue.

    Attributes
    ----------
    lock : RLock
        Protects submissions; while held, none is added or dropped.
    name : str
        Name under which it claims runs, see `trainyard.store.claimers`.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor, self.name = executor, new_claimer()
        self._slots = executor.workers + executor.ahead
        self.lock = threading.RLock()
        self._tickets = itertools.count(1)
        self._waiting: list[QueuedRun] = []
        self._active: list[QueuedRun] = []
        self._unreleased: dict[Submission, QueuedRun] = {}
        self._served: dict[str, float] = {}
        self._closed = False

    @property
    def depth(self) -> int:
        """Number of runs that a group keeps queued, so that no worker idles."""
        return 2 * self._slots if self._slots > 1 else 1

    @property
    def workers(self) -> int:
        """Number of parallel runs."""
        return self.executor.workers

    @property
    def running(self) -> int:
        """Number of running runs."""
        return len(self._active)

    @property
    def waiting(self) -> int:
        """Number of waiting runs."""
        return len(self._waiting)

    def put(self, task: Task, owner: str | RunGroup) -> Submission:
        """Submit a task, or join an equal run that waits, runs, or has an unreleased result.

        Raises
        ------
        ExecutorError
            If the queue is closed.
        """
        with self.lock:
            if self._closed:
                raise ExecutorError("The server is shutting down. Run again when it is back.")
            run = self._find_equal(task.key)
            if run is None:
                run = QueuedRun(task, next(self._tickets))
                self._waiting.append(run)
            return self._join(run, owner)

    def _join(self, run: QueuedRun, owner: str | RunGroup) -> Submission:
        """Add a submission to a run; tell its group if the run is done; start runs if possible."""
        submission = Submission(self, run, owner)
        self._admit_sessions(submission.watchers)
        run.submissions.append(submission)
        if run.state == "done":
            self._notify_group(submission)
        self._dispatch()
        return submission

    def _find_equal(self, key: str) -> QueuedRun | None:
        """Return the run with a key that waits, runs or has a result in use, or None."""
        runs = itertools.chain(self._runs(), self._unreleased.values())
        return next((run for run in runs if run.task.key == key), None)

    def _runs(self) -> Iterator[QueuedRun]:
        return itertools.chain(self._active, self._waiting)

    def place(self, run: QueuedRun) -> int:
        """Return the queue position of a run, 1 = next, 0 = not waiting."""
        with self.lock:
            order = self._order()
            return order.index(run) + 1 if run in order else 0

    def starts_in_s(self, run: QueuedRun) -> float:
        """Return the estimated seconds until a run starts, 0 = not waiting."""
        with self.lock:
            order, now_s = self._order(), time.monotonic()
            if run not in order:
                return 0.0
            left_s = sum(max(one.began_s + one.task.seconds - now_s, 0.0) for one in self._active)
            before_s = sum(one.task.seconds for one in order[: order.index(run)])
            return (left_s + before_s) / self.workers

    def progress(self, run: QueuedRun) -> Progress | None:
        """Return the last report of a run."""
        return self.executor.progress(run.ticket)

    def detach(self, submission: Submission) -> None:
        """Detach a submission from its run; a run without submissions is cancelled.

        No effect if it has ended. A run that cannot be stopped keeps the submission.
        """
        with self.lock:
            run = submission._run
            if submission.has_ended:
                return
            submission._detached = True
            run.submissions.remove(submission)
            if run.submissions:
                return
            if run in self._waiting:
                self._waiting.remove(run)
                self._set_final_state(run, "cancelled")
            elif run.future is not None and not run.future.cancel():
                # The run is over, or cannot be stopped.
                submission._detached = False
                run.submissions.append(submission)

    def forget(self, submission: Submission) -> None:
        """Drop the result of a submission that its group has recorded."""
        with self.lock:
            self._unreleased.pop(submission, None)

    def close(self) -> None:
        """Cancel all runs, accept no new ones, and close the executor."""
        with self.lock:
            self._closed = True
            for run in self._runs():
                run.fault = CancelledError()
                self._set_final_state(run, "cancelled")
            self._waiting.clear()
        self.executor.close()

    def _admit_sessions(self, watchers: frozenset[str]) -> None:
        """Raise the served time of new sessions to the least of the sessions with runs."""
        here = {name for run in self._runs() for name in run.watchers}
        least_s = min((self._served.get(name, 0.0) for name in here), default=0.0)
        for name in watchers - here:
            self._served[name] = max(self._served.get(name, 0.0), least_s)

    def _order(self) -> list[QueuedRun]:
        """Return the waiting runs in order of start.

        A waiting run counts its estimated time, a running one the larger of estimated and elapsed
        time. Ties go to the session with fewer running runs, then to the earlier run.
        """
        now_s, served, under_way = time.monotonic(), dict(self._served), dict[str, int]()
        for run in self._active:
            for name in run.watchers:
                served[name] = served.get(name, 0.0) + run.used_s(now_s)
                under_way[name] = under_way.get(name, 0) + 1
        queues: dict[str, list[QueuedRun]] = {}
        for run in sorted(self._waiting, key=lambda run: -run.ticket):
            names = run.watchers or {""}  # a group about to end has no sessions left
            name = min(names, key=lambda name: (served.get(name, 0.0), name))
            queues.setdefault(name, []).append(run)
        turns = [
            (served.get(name, 0.0), under_way.get(name, 0), runs[-1].ticket, name)
            for name, runs in queues.items()
        ]
        heapify(turns)
        order = []
        while turns:
            had_s, running, _, name = turns[0]
            run = queues[name].pop()
            order.append(run)
            if queues[name]:
                following = queues[name][-1].ticket
                heapreplace(turns, (had_s + run.task.seconds, running + 1, following, name))
            else:
                heappop(turns)
        return order

    def _next(self) -> QueuedRun | None:
        """Return the run to start now, None if all must wait.

        Spare workers take only short runs of sessions without a running run.
        """
        if self._closed or not self._waiting:
            return None
        if len(self._active) >= self._slots + self.executor.spare:
            return None
        order = self._order()
        if len(self._active) < self._slots:
            return order[0]
        busy = {name for run in self._active for name in run.watchers}
        short = (run for run in order if run.task.seconds < SHORT_S and not run.watchers & busy)
        return next(short, None)

    def _dispatch(self) -> None:
        """Start waiting runs while workers are free; a run that the executor refuses fails."""
        while (run := self._next()) is not None:
            self._waiting.remove(run)
            self._active.append(run)
            run.state, run.began_s, run.payers = "running", time.monotonic(), run.watchers
            run.attempts += 1
            task = run.task
            try:
                run.future = self.executor.submit(run.ticket, task.work, task.args, task.limit_s)
            except (RuntimeError, OSError) as error:
                self._active.remove(run)
                run.fault = ExecutorError(LOST)
                run.fault.__cause__ = error
                self._set_final_state(run, "failed")
                continue
            run.future.add_done_callback(lambda future, run=run: self._on_finished(run, future))  # type: ignore[misc]

    def _on_finished(self, run: QueuedRun, future: Future[Any]) -> None:
        """Charge the sessions for a finished run, set its outcome, start the next."""
        try:
            fault = future.exception()
        except CancelledError as error:
            fault = error
        with self.lock:
            if run in self._active:
                self._active.remove(run)
                run.took_s = time.monotonic() - run.began_s
                for name in run.payers & self._served.keys():  # even if they have cancelled it
                    self._served[name] += run.took_s
            if run.state == "running":
                self._set_outcome(run, future, fault)
            self._dispatch()

    def _set_outcome(
        self, run: QueuedRun, future: Future[Any], fault: BaseException | None
    ) -> None:
        """Set the outcome of a run; try it again if its worker was killed."""
        killed = fault is not None and not self.executor.remote and was_killed(fault)
        most = _POOL_ATTEMPTS if isinstance(fault, BrokenProcessPool) else _ATTEMPTS
        if killed and run.attempts < most and run.submissions:
            run.state, run.future = "waiting", None
            self._waiting.append(run)
        elif isinstance(fault, CancelledError):
            run.fault = fault
            self._set_final_state(run, "cancelled")
        elif fault is not None:
            if not isinstance(fault, TrainyardError):
                _LOG.error("A run failed: %s", run.task.scenario.canonical(), exc_info=fault)
            run.fault = fault
            self._set_final_state(run, "failed")
        else:
            run.result, run.cpu_s = future.result()
            self._set_final_state(run, "done")

    def _set_final_state(self, run: QueuedRun, state: State) -> None:
        """Set the final state of a run, wake waiting threads and notify its submissions' groups."""
        run.state = state
        run.finished.set()
        for submission in run.submissions:
            self._notify_group(submission)

    def _notify_group(self, submission: Submission) -> None:
        """Notify the group of an ended submission and keep its result until released."""
        if not isinstance(submission.owner, str):
            if submission.state == "done":
                self._unreleased[submission] = submission._run
            submission.owner.on_ended(submission)
