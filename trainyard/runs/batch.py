"""Batches of runs, e.g. of a sweep, a size search or a replay.

Stored runs are not repeated, and cancelling keeps finished ones.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, nullcontext
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

from sim.errors import ParameterError, TrainyardError
from trainyard.runs.executors import (
    DEFAULT,
    ExecutorError,
    fault_message,
    open_executor,
    was_killed,
)
from trainyard.runs.queue import LOST, SHORT_S, RunQueue, State, Submission, Task
from trainyard.runs.task import Numbers, pack_scenario, run_numbers, run_whole
from trainyard.store import Store, StoreError
from trainyard.store.files import UnwritableError
from trainyard.store.rows import LibraryError
from trainyard.study.scenario import Scenario

_POLL_S: Final = 1.0
_DASK: Final = "distributed."
_LOG: Final = logging.getLogger(__name__)

R = TypeVar("R")


class RunBatch(ABC, Generic[R]):
    """A batch of runs; `R` is the type that describes one run.

    Parameters
    ----------
    where : str or RunQueue
        A shared queue, or the name of an executor to open for this batch, see
        `trainyard.runs.executors.open_executor`.

    Attributes
    ----------
    watchers : frozenset of str
        Sessions that wait for it; the command line is one without a name.
    began_s : float, seconds
        Start on the monotonic clock; 0 = not started.
    """

    def __init__(self, where: str | RunQueue = DEFAULT) -> None:
        self._where = where
        self.watchers = frozenset({""})
        self._state: State = "waiting"
        self._fault: TrainyardError | None = None
        self._stop, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._submitted: dict[Submission, R] = {}
        self._ended_queue = SimpleQueue[Submission | None]()
        self._seconds: list[float] = []
        self.began_s = self._ended_s = 0.0

    @property
    def wall_s(self) -> float:
        """Duration in seconds; 0 = not ended, or complete from the store."""
        return self._ended_s - self.began_s if self.began_s and self._ended_s else 0.0

    @property
    def state(self) -> State:
        """State of the batch: waiting, running, done, failed or cancelled."""
        return self._state

    @property
    def error(self) -> str:
        """Why it failed, as one sentence; "" if it did not."""
        return str(self._fault) if self._fault is not None else ""

    @property
    def place(self) -> int:
        """Queue position of its next run; 0 = one is running, or none waits."""
        waiting = self._next_waiting()
        return 0 if waiting is None else waiting.place

    @property
    def starts_in_s(self) -> float:
        """Estimated seconds until its next run starts; 0 = none waits."""
        waiting = self._next_waiting()
        return 0.0 if waiting is None else waiting.starts_in_s

    def _next_waiting(self) -> Submission | None:
        """Return the first waiting submission, None if any is running."""
        submitted = list(self._submitted)
        if any(one.state == "running" for one in submitted):
            return None
        return next((one for one in submitted if one.state == "waiting"), None)

    @property
    @abstractmethod
    def done(self) -> int:
        """Number of finished runs, with numbers or without."""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether all runs are finished."""

    @abstractmethod
    def _look_up(self) -> None:
        """Load the stored results of earlier runs."""

    @abstractmethod
    def _next_runs(self) -> Iterator[R]:
        """Yield the runs to make next, the most informative first, each once."""

    @abstractmethod
    def _task(self, run: R, queue: RunQueue) -> Task:
        """Return the task of a worker for a run.

        Raises
        ------
        TrainyardError
            If the run cannot be made.
        """

    def _result_of_others(self, run: R) -> Any:
        """Return the result of a run that another batch has stored since, or None.

        The queue is locked during this call, so it must be quick.
        """
        return None

    @abstractmethod
    def _take(self, run: R, result: Any, fault: BaseException | None) -> None:
        """Record the result or error of a run; an exception ends the batch."""

    def _finish(self) -> None:
        """Store what belongs to the batch as a whole; called once, after its last run."""

    def start(self) -> None:
        """Start the batch in a thread, unless it has started or ended."""
        if self._thread is None and not self._over.is_set():
            self._thread = threading.Thread(target=self.run, name="batch", daemon=True)
            self._thread.start()

    def cancel(self) -> None:
        """Ask the batch to stop its runs; finished ones are kept. Without a start it ends now."""
        self._stop.set()
        self._ended_queue.put(None)
        if self._thread is None and self._state == "waiting":
            self._end("cancelled")

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until the batch has ended or the time is over; return True if it has ended."""
        return self._over.wait(timeout_s)

    def recall(self) -> bool:
        """Load stored results without running anything; end the batch if all are stored.

        Returns True if the batch has ended.

        Raises
        ------
        TrainyardError
            If the store cannot be read, or no run is possible.
        """
        if not self._over.is_set():
            self._look_up()
            if self.complete:
                self._end("done")
        return self._over.is_set()

    def run(self) -> None:
        """Make all missing runs in this thread; never raises, see `error`.

        Its final state is done, cancelled or failed.
        """
        self._state, self.began_s = "running", time.monotonic()
        try:
            self._look_up()
            if not self.complete and not self._stop.is_set():
                with self._open_queue() as queue:
                    self._drive(queue)
            self._finish()
            self._end("done" if self.complete else "cancelled")
        except Exception as error:  # outermost handler of the thread: every fault becomes a message
            if not isinstance(error, TrainyardError):
                _LOG.error("A batch of runs failed", exc_info=error)
            self._fault = (
                error if isinstance(error, TrainyardError) else ExecutorError(fault_message(error))
            )
            self._end("failed")

    def on_ended(self, submission: Submission) -> None:
        """Queue a submission that has ended for processing; called from any thread."""
        self._ended_queue.put(submission)

    def _open_queue(self) -> closing[RunQueue] | nullcontext[RunQueue]:
        """Return the queue as a context manager that closes it if the batch owns it."""
        if isinstance(self._where, RunQueue):
            return nullcontext(self._where)
        return closing(RunQueue(open_executor(self._where)))

    def _claim(self, runs: Sequence[R]) -> Sequence[R]:
        """Return the runs to make here; `_return_claims` returns the others later."""
        return runs

    def _return_claims(self, room: int) -> Sequence[R]:
        """Record results of other processes; return runs that they gave up."""
        return ()

    @property
    def _runs_of_others(self) -> int:
        """Number of runs that other processes make now."""
        return 0

    def _drive(self, queue: RunQueue) -> None:
        """Submit runs to the queue and record their results until none is left.

        A batch that is asked to stop cancels its submissions and waits for runs that cannot stop.
        """
        try:
            while not self._stop.is_set():
                room = queue.depth - len(self._submitted)
                returned = self._return_claims(room)
                wanted = list(itertools.islice(self._next_runs(), room - len(returned)))
                for run in (*returned, *self._claim(wanted)):
                    self._submit(run, queue)
                if self._submitted or (self._runs_of_others and not wanted):
                    self._record_next()
                elif not wanted and not returned:
                    break
            self._cancel_all()
            # A run in a thread of this process cannot be stopped: wait for it and keep it.
            while self._submitted:
                self._record_next()
        finally:
            self._cancel_all()
            for submission in self._submitted:
                submission.release()
            self._submitted.clear()

    def _cancel_all(self) -> None:
        """Cancel all submissions that are waiting or can be stopped, and drop them."""
        for submission in reversed(list(self._submitted)):
            submission.cancel()
            if submission.state == "cancelled":
                del self._submitted[submission]

    def _submit(self, run: R, queue: RunQueue) -> None:
        """Submit a run, or record it at once if its task fails or its result exists."""
        try:
            task = self._task(run, queue)
        except TrainyardError as error:
            # Its jobs cannot be loaded: this run fails, the others continue.
            self._take(run, None, error)
            return
        # Under the lock, a run of another batch is either still in the queue or stored.
        with queue.lock:
            stored_result = self._result_of_others(run)
            if stored_result is None:
                self._submitted[queue.put(task, self)] = run
        if stored_result is not None:
            self._take(run, stored_result, None)

    def _record_next(self) -> None:
        """Wait for the next run to end, at most `_POLL_S`; record and release its result."""
        try:
            submission = self._ended_queue.get(timeout=_POLL_S)
        except Empty:
            return
        if submission is not None:
            run = self._submitted.pop(submission)
            if submission.state == "done":
                self._seconds.append(submission.cpu_s)
            try:
                self._take(run, submission.result, submission.fault)
            finally:
                submission.release()

    @property
    def _each_s(self) -> float:
        """Mean CPU seconds of the finished runs; `SHORT_S` before the first."""
        return sum(self._seconds) / len(self._seconds) if self._seconds else SHORT_S

    def _end(self, state: State) -> None:
        """Set the final state and wake waiting threads."""
        self._state, self._ended_s = state, time.monotonic()
        self._over.set()


@dataclass(frozen=True)
class FailedRun:
    """A run without numbers.

    `why` is the reason as one sentence; `refused` is True if its policy rejected the settings.
    """

    why: str
    refused: bool = False


class ScenarioBatch(RunBatch[tuple[str, Scenario]]):
    """A batch of scenarios with numbers in the store under their keys.

    Parameters
    ----------
    store : Store
        Store of the numbers.
    where : str or RunQueue
        As for `RunBatch`.
    whole : bool
        Whether to store full results, which Compare opens at once, instead of numbers only.

    Attributes
    ----------
    shelve : callable
        Called with all run keys known so far, before the first run and whenever more are known;
        an exception ends the batch.
    owners : frozenset of str
        Browser identities whose library lists the batch.
    """

    def __init__(
        self, store: Store, where: str | RunQueue = DEFAULT, *, whole: bool = False
    ) -> None:
        super().__init__(where)
        self.store = store
        self._whole = whole
        self._shared: dict[tuple[str, ...], Any] = {}
        self.shelve: Callable[[Sequence[str]], object] = lambda keys: None
        self.owners = frozenset[str]()
        self._shelved = 0
        self._claimer, self._claims = "", set[str]()
        self._claimed_by_others: dict[str, Scenario] = {}
        self._looked_s = 0.0

    @property
    @abstractmethod
    def keys(self) -> Sequence[str]:
        """Distinct keys of its runs known so far."""

    @abstractmethod
    def _record_outcome(self, key: str, outcome: Numbers | FailedRun) -> None:
        """Record the numbers or the failure of a run."""

    def _shelve_keys(self) -> None:
        """Call `shelve` if more keys are known than at the last call."""
        keys = self.keys
        if len(keys) > self._shelved:
            self.shelve(keys)
            self._shelved = len(keys)

    def _drive(self, queue: RunQueue) -> None:
        """Announce the run keys, make the runs, then release all claims.

        Raises StoreError if remote workers cannot write full results to the store.
        """
        self._shelve_keys()
        if self._whole and queue.executor.remote:
            check_shared_store(self.store)
        self._claimer = queue.name
        try:
            super()._drive(queue)
        finally:
            self._release(self._claims)

    def _claim(self, runs: Sequence[tuple[str, Scenario]]) -> Sequence[tuple[str, Scenario]]:
        """Claim runs in the store; return those claimed and remember runs of other processes."""
        claimed = self.store.index.claim(self._claimer, [key for key, _ in runs])
        self._claims |= claimed
        self._claimed_by_others |= {key: scenario for key, scenario in runs if key not in claimed}
        return [run for run in runs if run[0] in claimed]

    def _return_claims(self, room: int) -> Sequence[tuple[str, Scenario]]:
        """Record results of other processes; claim and return runs that they gave up.

        At most `room` runs. Also renews own claims. Empty if called again within `_POLL_S`.
        """
        if time.monotonic() - self._looked_s < _POLL_S:
            return ()
        self._looked_s = time.monotonic()
        self.store.index.claim(self._claimer, sorted(self._claims))
        for key, numbers in stored_numbers(
            self.store, self._claimed_by_others, whole=self._whole
        ).items():
            self._take((key, self._claimed_by_others.pop(key)), numbers, None)
        some = [
            (key, self._claimed_by_others.pop(key)) for key in list(self._claimed_by_others)[:room]
        ]
        return self._claim(some)

    def _release(self, keys: Iterable[str]) -> None:
        """Release claims, so that other processes may make these runs."""
        released = sorted(keys)
        self._claims -= set(released)
        self.store.index.release(self._claimer, released)

    @property
    def _runs_of_others(self) -> int:
        return len(self._claimed_by_others)

    def _result_of_others(self, run: tuple[str, Scenario]) -> Numbers | None:
        return stored_numbers(self.store, run[:1], whole=self._whole).get(run[0])

    def _task(self, run: tuple[str, Scenario], queue: RunQueue) -> Task:
        """Return the task for a scenario, with its trace packed for remote workers."""
        key, scenario = run
        if queue.executor.remote and not self._whole:
            document, baggage = pack_scenario(scenario, self.store)
            digests = tuple(baggage)
            if digests not in self._shared:
                self._shared[digests] = queue.executor.share(baggage)
            args = (document, "", self._shared[digests])
        else:
            args = (scenario.to_json(), self.store.address, {})
        work = run_whole if self._whole else run_numbers
        return Task(f"{work.__name__} {key}", scenario, work, args, self._each_s)

    def _take(self, run: tuple[str, Scenario], result: Any, fault: BaseException | None) -> None:
        """Record and store the numbers of a run, or its failure, and release its claim.

        Raises the fault if it would hit every run: nothing can be stored, or the workers are lost.
        """
        key, scenario = run
        if isinstance(fault, (UnwritableError, LibraryError)):
            # No other run could be stored either.
            raise fault
        if fault is not None and _is_connection_lost(fault):
            raise ExecutorError(LOST) from fault
        if fault is not None:
            self._record_outcome(
                key, FailedRun(fault_message(fault), isinstance(fault, ParameterError))
            )
        else:
            # Numbers that cannot be stored are still shown.
            self._record_outcome(key, result)
            if not self._whole:
                self.store.put_numbers(key, result.summary, scenario.to_json())
        if key in self._claims:
            self._release([key])


def check_shared_store(store: Store) -> None:
    """Raise StoreError if workers on other machines cannot write full results to a store."""
    if not store.shared:
        raise StoreError(
            f"Workers on other machines cannot write whole results to {store.place}. Return"
            " numbers only, or set TRAINYARD_STORE and TRAINYARD_DATABASE to addresses that they"
            " reach."
        )


def stored_numbers(store: Store, keys: Iterable[str], *, whole: bool = False) -> dict[str, Numbers]:
    """Return key -> numbers of stored runs; with `whole` only of fully stored results."""
    return {key: Numbers(summary, ()) for key, summary in store.numbers(keys, whole=whole).items()}


def _is_connection_lost(fault: BaseException) -> bool:
    """Return True if a run failed because the scheduler or its connection was lost."""
    return isinstance(fault, (CancelledError, ExecutorError)) or (
        type(fault).__module__.startswith(_DASK) and not was_killed(fault)
    )
