"""A fair queue of runs in front of an executor: equal runs are made once, cancelling ends one of
them only.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Any, Final, Literal, Protocol

from sim.engine.simulator import Progress
from sim.errors import TrainyardError
from trainyard.runs.executors import Executor, ExecutorError, sentence, was_killed
from trainyard.store.claimers import new_claimer
from trainyard.study.scenario import Scenario

State = Literal["waiting", "running", "done", "failed", "cancelled"]
ENDED: Final = ("done", "failed", "cancelled")
SHORT_S: Final = 5.0
"""Runs that are estimated below this may use the worker that is kept for them."""
LOST: Final = "The machines of these runs were lost. What is done is kept: start again to go on."
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Task:
    """What a worker does.

    Parameters
    ----------
    key : str
        Equal tasks have equal keys.
    scenario : Scenario
        What is run.
    work, args : callable, sequence
        The function of the worker, and what it is called with.
    seconds : float
        Estimate of its CPU seconds: what it takes on a machine that is not busy.
    limit_s : float or None, seconds
        When it is stopped; None = never.
    """

    key: str
    scenario: Scenario
    work: Callable[..., Any]
    args: Sequence[Any]
    seconds: float
    limit_s: float | None = None


class RunGroup(Protocol):
    """Many submissions with the same watchers, e.g. a sweep."""

    @property
    def watchers(self) -> frozenset[str]:
        """Sessions that wait for it."""
        ...

    def settled(self, submission: Submission) -> None:
        """Note that a submission is done, failed or cancelled by others; must not block."""
        ...


@dataclass(eq=False)
class QueuedRun:
    """One worker's worth of work, for one or more submissions."""

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
        """Seconds that it has run, or is estimated to run in all, if that is more."""
        return max(now_s - self.began_s, self.task.seconds)


class Submission:
    """A task as its submitter sees it. Two equal tasks are two submissions of one run.

    Parameters
    ----------
    queue : RunQueue
        Where it was submitted.
    run : QueuedRun
        What it waits for.
    whose : str or RunGroup
        Whose it is: a session's, or a group's.
    """

    def __init__(self, queue: RunQueue, run: QueuedRun, whose: str | RunGroup) -> None:
        self._queue, self._run, self.whose = queue, run, whose
        self._detached = False

    @property
    def watchers(self) -> frozenset[str]:
        """Sessions that wait for it."""
        return frozenset((self.whose,)) if isinstance(self.whose, str) else self.whose.watchers

    @property
    def key(self) -> str:
        """The key of its task; of a run for the store that of the result."""
        return self._run.task.key

    @property
    def scenario(self) -> Scenario:
        """What is run."""
        return self._run.task.scenario

    @property
    def state(self) -> State:
        """Where it is: waiting, running, done, failed or cancelled."""
        return "cancelled" if self._detached else self._run.state

    @property
    def settled(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state in ENDED

    @property
    def place(self) -> int:
        """Place in the queue: 1 = next, 0 = not waiting."""
        return self._queue.place(self._run)

    @property
    def starts_in_s(self) -> float:
        """Seconds until it starts, estimated; 0 = it does not wait."""
        return self._queue.starts_in_s(self._run)

    @property
    def seconds(self) -> float:
        """Estimate of the seconds that it takes once it has started."""
        return self._run.task.seconds

    @property
    def took_s(self) -> float:
        """Seconds that it took; 0 before it has ended."""
        return self._run.took_s

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
        """Share of the run that is over, 0 to 1: of jobs settled."""
        if self.state == "done":
            return 1.0
        report = self.progress
        return report.done / report.jobs if report and report.jobs else 0.0

    @property
    def result(self) -> Any:
        """What its function returned; None before it is done."""
        return self._run.result

    @property
    def fault(self) -> BaseException | None:
        """What was raised; None if nothing was."""
        return self._run.fault

    @property
    def error(self) -> str:
        """Why it failed, as one sentence; "" if it did not."""
        fault = self._run.fault
        return sentence(fault) if fault is not None and self.state == "failed" else ""

    @property
    def details(self) -> dict[str, object]:
        """What an allocator saw when its plan was refused; empty for other faults."""
        return dict(getattr(self._run.fault, "snapshot", {}))

    def cancel(self) -> None:
        """Wait no longer; the run ends when nobody else waits for it."""
        self._queue.detach(self)

    def taken(self) -> None:
        """Say that the result is kept elsewhere by now, or not wanted: groups must say so of all
        that has ended. Until then equal tasks share it.
        """
        self._queue.forget(self)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until it is settled; tell whether it is."""
        self._run.finished.wait(timeout_s)
        return self.settled


class RunQueue:
    """Runs in the order in which they start: of the session that was served least so far.

    An executor may have a spare worker for runs estimated below `SHORT_S` of sessions that have
    nothing running, so that they wait for no long run of others.

    Parameters
    ----------
    executor : Executor
        Where they happen; closed with the queue.

    Attributes
    ----------
    lock : RLock
        While it is held, nothing is put or forgotten.
    name : str
        Under which it claims runs, see `trainyard.store.claimers`.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor, self.name = executor, new_claimer()
        self._slots = executor.workers + executor.ahead
        self.lock = threading.RLock()
        self._tickets = itertools.count(1)
        self._waiting: list[QueuedRun] = []
        self._active: list[QueuedRun] = []
        self._untaken: dict[Submission, QueuedRun] = {}
        self._served: dict[str, float] = {}
        self._closed = False

    @property
    def depth(self) -> int:
        """Runs that a group keeps here at least, so that no worker waits for the next one."""
        return 2 * self._slots if self._slots > 1 else 1

    @property
    def workers(self) -> int:
        """Runs at once."""
        return self.executor.workers

    @property
    def running(self) -> int:
        """Runs that have a worker."""
        return len(self._active)

    @property
    def waiting(self) -> int:
        """Runs that have none yet."""
        return len(self._waiting)

    def put(self, task: Task, whose: str | RunGroup) -> Submission:
        """Submit a task; it joins the run of an equal one that waits, goes on, or has ended with a
        result that its groups have not taken yet.

        Raises
        ------
        ExecutorError
            If the queue is closed.
        """
        with self.lock:
            if self._closed:
                raise ExecutorError("The server is shutting down. Run again when it is back.")
            run = self._equal(task.key)
            if run is None:
                run = QueuedRun(task, next(self._tickets))
                self._waiting.append(run)
            return self._join(run, whose)

    def _join(self, run: QueuedRun, whose: str | RunGroup) -> Submission:
        submission = Submission(self, run, whose)
        self._welcome(submission.watchers)
        run.submissions.append(submission)
        if run.state == "done":
            self._hand_over(submission)
        self._dispatch()
        return submission

    def _equal(self, key: str) -> QueuedRun | None:
        runs = itertools.chain(self._runs(), self._untaken.values())
        return next((run for run in runs if run.task.key == key), None)

    def _runs(self) -> Iterator[QueuedRun]:
        return itertools.chain(self._active, self._waiting)

    def place(self, run: QueuedRun) -> int:
        """Return the place of a run in the queue, 1 = next, 0 = not waiting."""
        with self.lock:
            order = self._order()
            return order.index(run) + 1 if run in order else 0

    def starts_in_s(self, run: QueuedRun) -> float:
        """Return the estimated seconds until a run starts, 0 = it does not wait."""
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
        """Let a submission no longer wait for its run; a run that nobody waits for is dropped, or
        ended in its worker if that is possible.
        """
        with self.lock:
            run = submission._run
            if submission.settled:
                return
            submission._detached = True
            run.submissions.remove(submission)
            if run.submissions:
                return
            if run in self._waiting:
                self._waiting.remove(run)
                self._settle(run, "cancelled")
            elif run.future is not None and not run.future.cancel():
                # It is over, or cannot be ended.
                submission._detached = False
                run.submissions.append(submission)

    def forget(self, submission: Submission) -> None:
        """Note that the group of a submission has taken its result."""
        with self.lock:
            self._untaken.pop(submission, None)

    def close(self) -> None:
        """End all runs as cancelled, and the executor."""
        with self.lock:
            self._closed = True
            for run in self._runs():
                run.fault = CancelledError()
                self._settle(run, "cancelled")
            self._waiting.clear()
        self.executor.close()

    def _welcome(self, watchers: frozenset[str]) -> None:
        """Let sessions without runs begin as if served like the one here that was served least."""
        here = {name for run in self._runs() for name in run.watchers}
        least_s = min((self._served.get(name, 0.0) for name in here), default=0.0)
        for name in watchers - here:
            self._served[name] = max(self._served.get(name, 0.0), least_s)

    def _order(self) -> list[QueuedRun]:
        """Return the waiting runs in the order in which they start.

        Runs count for what they are estimated to take, once they are running for what they took if
        that is more. Ties go to the session with fewer runs under way, then to the run that came
        first.
        """
        now_s, served, under_way = time.monotonic(), dict(self._served), dict[str, int]()
        for run in self._active:
            for name in run.watchers:
                served[name] = served.get(name, 0.0) + run.used_s(now_s)
                under_way[name] = under_way.get(name, 0) + 1
        queues: dict[str, list[QueuedRun]] = {}
        for run in sorted(self._waiting, key=lambda run: -run.ticket):
            names = run.watchers or {""}  # a group that ends in a moment has no sessions left
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
        """Return the run that starts now, None if all must wait."""
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
                self._settle(run, "failed")
                continue
            run.future.add_done_callback(lambda future, run=run: self._finished(run, future))  # type: ignore[misc]

    def _finished(self, run: QueuedRun, future: Future[Any]) -> None:
        try:
            fault = future.exception()
        except CancelledError as error:
            fault = error
        with self.lock:
            if run in self._active:
                self._active.remove(run)
                run.took_s = time.monotonic() - run.began_s
                for name in run.payers & self._served.keys():  # also if they have cancelled it
                    self._served[name] += run.took_s
            if run.state == "running":
                self._conclude(run, future, fault)
            self._dispatch()

    def _conclude(self, run: QueuedRun, future: Future[Any], fault: BaseException | None) -> None:
        killed = fault is not None and not self.executor.remote and was_killed(fault)
        if killed and run.attempts == 1 and run.submissions:
            run.state, run.future = "waiting", None
            self._waiting.append(run)
        elif isinstance(fault, CancelledError):
            run.fault = fault
            self._settle(run, "cancelled")
        elif fault is not None:
            if not isinstance(fault, TrainyardError):
                _LOG.error("A run failed: %s", run.task.scenario.canonical(), exc_info=fault)
            run.fault = fault
            self._settle(run, "failed")
        else:
            run.result, run.cpu_s = future.result()
            self._settle(run, "done")

    def _settle(self, run: QueuedRun, state: State) -> None:
        run.state = state
        run.finished.set()
        for submission in run.submissions:
            self._hand_over(submission)

    def _hand_over(self, submission: Submission) -> None:
        if not isinstance(submission.whose, str):
            if submission.state == "done":
                self._untaken[submission] = submission._run
            submission.whose.settled(submission)
