"""Many runs under way for one question, e.g. a sweep, a plan or a replay: what is kept from before
is not run again, cancelling keeps what is done.
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
from trainyard.runs.executors import DEFAULT, ExecutorError, open_executor, sentence, was_killed
from trainyard.runs.queue import LOST, SHORT_S, RunQueue, State, Submission, Task
from trainyard.runs.task import Numbers, packed, run_numbers, run_whole
from trainyard.store import Store, StoreError
from trainyard.store.files import UnwritableError
from trainyard.store.index import LibraryError
from trainyard.study.scenario import Scenario

_POLL_S: Final = 1.0
_DASK: Final = "distributed."
_LOG: Final = logging.getLogger(__name__)

R = TypeVar("R")


class RunBatch(ABC, Generic[R]):
    """Many runs under way; `R` says what one of them is.

    Parameters
    ----------
    where : str or RunQueue
        A queue that others use as well, or the name of an executor for it alone, see
        `trainyard.runs.executors.opened`.

    Attributes
    ----------
    watchers : frozenset of str
        Sessions that wait for it; on the command line one without a name.
    began_s : float, seconds
        When it began, on the monotonic clock; 0 = it has not.
    """

    def __init__(self, where: str | RunQueue = DEFAULT) -> None:
        self._where = where
        self.watchers = frozenset({""})
        self._state: State = "waiting"
        self._fault: TrainyardError | None = None
        self._stop, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._submitted: dict[Submission, R] = {}
        self._settled = SimpleQueue[Submission | None]()
        self._seconds: list[float] = []
        self.began_s = self._ended_s = 0.0

    @property
    def wall_s(self) -> float:
        """Seconds that it took; 0 = it has not ended, or was kept from before."""
        return self._ended_s - self.began_s if self.began_s and self._ended_s else 0.0

    @property
    def state(self) -> State:
        """Where it is."""
        return self._state

    @property
    def error(self) -> str:
        """Why it ended early; "" if it did not, or was cancelled."""
        return str(self._fault) if self._fault is not None else ""

    @property
    def place(self) -> int:
        """Place of its next run in the queue; 0 = something of it runs, or nothing waits."""
        waiting = self._next_waiting()
        return 0 if waiting is None else waiting.place

    @property
    def starts_in_s(self) -> float:
        """Seconds until its next run starts, estimated; 0 = it does not wait."""
        waiting = self._next_waiting()
        return 0.0 if waiting is None else waiting.starts_in_s

    def _next_waiting(self) -> Submission | None:
        submitted = list(self._submitted)
        if any(one.state == "running" for one in submitted):
            return None
        return next((one for one in submitted if one.state == "waiting"), None)

    @property
    @abstractmethod
    def done(self) -> int:
        """Runs that are over, with numbers or without."""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether nothing is left to be run."""

    @abstractmethod
    def _look_up(self) -> None:
        """Take over what is kept from before."""

    @abstractmethod
    def _wanted(self) -> Iterator[R]:
        """Walk the runs that are to be made now, those that decide most first; none comes twice."""

    @abstractmethod
    def _task(self, run: R, queue: RunQueue) -> Task:
        """Return what a worker does for a run.

        Raises
        ------
        TrainyardError
            If the run cannot be made.
        """

    def _made_meanwhile(self, run: R) -> Any:
        """Return what is kept of a run that another batch has made since this one looked; None =
        nothing. The queue is held meanwhile, so it must be quick.
        """
        return None

    @abstractmethod
    def _take(self, run: R, result: Any, fault: BaseException | None) -> None:
        """Take in what a run gave; what this raises ends the batch."""

    def _finish(self) -> None:
        """Keep what is kept of the batch as a whole; called once nothing of it runs any more."""

    def start(self) -> None:
        """Begin, without blocking, unless it has begun or ended."""
        if self._thread is None and not self._over.is_set():
            self._thread = threading.Thread(target=self.run, name="batch", daemon=True)
            self._thread.start()

    def cancel(self) -> None:
        """End what runs; what is done is kept."""
        self._stop.set()
        self._settled.put(None)
        if self._thread is None and self._state == "waiting":
            self._end("cancelled")

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until it has ended; tell whether it has."""
        return self._over.wait(timeout_s)

    def recall(self) -> bool:
        """Take over what is kept from before, without running anything; tell whether that is
        everything.

        Raises
        ------
        TrainyardError
            If the store cannot be read, or nothing of it could ever be run.
        """
        if not self._over.is_set():
            self._look_up()
            if self.complete:
                self._end("done")
        return self._over.is_set()

    def run(self) -> None:
        """Run everything that is not known yet, in this thread; never raises, see `error`."""
        self._state, self.began_s = "running", time.monotonic()
        try:
            self._look_up()
            if not self.complete and not self._stop.is_set():
                with self._opened() as queue:
                    self._drive(queue)
            self._finish()
            self._end("done" if self.complete else "cancelled")
        except Exception as error:  # the border of a thread: every fault becomes a sentence
            if not isinstance(error, TrainyardError):
                _LOG.error("A batch of runs failed", exc_info=error)
            self._fault = (
                error if isinstance(error, TrainyardError) else ExecutorError(sentence(error))
            )
            self._end("failed")

    def settled(self, submission: Submission) -> None:
        """Note that one of its runs has ended, in whatever thread."""
        self._settled.put(submission)

    def _opened(self) -> closing[RunQueue] | nullcontext[RunQueue]:
        if isinstance(self._where, RunQueue):
            return nullcontext(self._where)
        return closing(RunQueue(open_executor(self._where)))

    def _claim(self, runs: Sequence[R]) -> Sequence[R]:
        """Return the runs to make here; `_return_claims` gives the others later."""
        return runs

    def _return_claims(self, room: int) -> Sequence[R]:
        """Take in the results of other processes; return the runs that they gave up."""
        return ()

    @property
    def _made_elsewhere(self) -> int:
        """How many runs other processes make now."""
        return 0

    def _drive(self, queue: RunQueue) -> None:
        try:
            while not self._stop.is_set():
                room = queue.depth - len(self._submitted)
                returned = self._return_claims(room)
                wanted = list(itertools.islice(self._wanted(), room - len(returned)))
                for run in (*returned, *self._claim(wanted)):
                    self._submit(run, queue)
                if self._submitted or (self._made_elsewhere and not wanted):
                    self._hear()
                elif not wanted and not returned:
                    break
            self._cancel_all()
            # A run in a thread of this process cannot be ended: it is waited for, and kept.
            while self._submitted:
                self._hear()
        finally:
            self._cancel_all()
            for submission in self._submitted:
                submission.taken()
            self._submitted.clear()

    def _cancel_all(self) -> None:
        for submission in reversed(list(self._submitted)):
            submission.cancel()
            if submission.state == "cancelled":
                del self._submitted[submission]

    def _submit(self, run: R, queue: RunQueue) -> None:
        try:
            task = self._task(run, queue)
        except TrainyardError as error:
            # Its jobs cannot be loaded: such a run fails, and the others go on.
            self._take(run, None, error)
            return
        # While others cannot take their results in, a run of theirs is either still in the queue
        # or kept.
        with queue.lock:
            made = self._made_meanwhile(run)
            if made is None:
                self._submitted[queue.put(task, self)] = run
        if made is not None:
            self._take(run, made, None)

    def _hear(self) -> None:
        """Wait for the next run to end, and take in what it gave."""
        try:
            submission = self._settled.get(timeout=_POLL_S)
        except Empty:
            return
        if submission is not None:
            run = self._submitted.pop(submission)
            if submission.state == "done":
                self._seconds.append(submission.cpu_s)
            try:
                self._take(run, submission.result, submission.fault)
            finally:
                submission.taken()

    @property
    def _each_s(self) -> float:
        """Return the mean CPU seconds of the runs so far; `SHORT_S` before the first."""
        return sum(self._seconds) / len(self._seconds) if self._seconds else SHORT_S

    def _end(self, state: State) -> None:
        self._state, self._ended_s = state, time.monotonic()
        self._over.set()


@dataclass(frozen=True)
class Lost:
    """A run without numbers: why, as one sentence; and whether it was refused, because its policy
    cannot run with such settings.
    """

    why: str
    refused: bool = False


class ScenarioBatch(RunBatch[tuple[str, Scenario]]):
    """A batch of scenarios with their keys, whose numbers are kept in the store.

    Parameters
    ----------
    store : Store
        Where numbers are looked for and kept.
    where : str or RunQueue
        As for `RunBatch`.
    whole : bool
        Whether whole results are kept, which Compare opens at once, instead of numbers only.

    Attributes
    ----------
    shelve : callable
        Called by `run` with the keys of all runs known so far, before the first of them begins and
        whenever there are more; what it raises ends the batch.
    owners : frozenset of str
        Browsers whose library lists it.
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
        self._elsewhere: dict[str, Scenario] = {}
        self._looked_s = 0.0

    @property
    @abstractmethod
    def keys(self) -> Sequence[str]:
        """Keys of its runs, as far as they are known, once each."""

    @abstractmethod
    def _note(self, key: str, outcome: Numbers | Lost) -> None:
        """Note what a run gave."""

    def _shelve_keys(self) -> None:
        keys = self.keys
        if len(keys) > self._shelved:
            self.shelve(keys)
            self._shelved = len(keys)

    def _drive(self, queue: RunQueue) -> None:
        self._shelve_keys()
        if self._whole and queue.executor.remote:
            check_reached(self.store)
        self._claimer = queue.name
        try:
            super()._drive(queue)
        finally:
            self._release(self._claims)

    def _claim(self, runs: Sequence[tuple[str, Scenario]]) -> Sequence[tuple[str, Scenario]]:
        """Return the runs that no other process makes now."""
        held = self.store.index.claim(self._claimer, [key for key, _ in runs])
        self._claims |= held
        self._elsewhere |= {key: scenario for key, scenario in runs if key not in held}
        return [run for run in runs if run[0] in held]

    def _return_claims(self, room: int) -> Sequence[tuple[str, Scenario]]:
        """Look at the claims of this and other processes, once in a while."""
        if time.monotonic() - self._looked_s < _POLL_S:
            return ()
        self._looked_s = time.monotonic()
        self.store.index.claim(self._claimer, sorted(self._claims))
        for key, numbers in stored(self.store, self._elsewhere, whole=self._whole).items():
            self._take((key, self._elsewhere.pop(key)), numbers, None)
        some = [(key, self._elsewhere.pop(key)) for key in list(self._elsewhere)[:room]]
        return self._claim(some)

    def _release(self, keys: Iterable[str]) -> None:
        """Let other processes make runs that are over here, or never began."""
        given_back = sorted(keys)
        self._claims -= set(given_back)
        self.store.index.release(self._claimer, given_back)

    @property
    def _made_elsewhere(self) -> int:
        return len(self._elsewhere)

    def _made_meanwhile(self, run: tuple[str, Scenario]) -> Numbers | None:
        return stored(self.store, run[:1], whole=self._whole).get(run[0])

    def _task(self, run: tuple[str, Scenario], queue: RunQueue) -> Task:
        key, scenario = run
        if queue.executor.remote and not self._whole:
            document, baggage = packed(scenario, self.store)
            mark = tuple(baggage)
            if mark not in self._shared:
                self._shared[mark] = queue.executor.share(baggage)
            args = (document, "", self._shared[mark])
        else:
            args = (scenario.to_json(), self.store.address, {})
        work = run_whole if self._whole else run_numbers
        return Task(f"{work.__name__} {key}", scenario, work, args, self._each_s)

    def _take(self, run: tuple[str, Scenario], result: Any, fault: BaseException | None) -> None:
        key, scenario = run
        if isinstance(fault, (UnwritableError, LibraryError)):
            # Every other run would be computed in vain.
            raise fault
        if fault is not None and _machines_lost(fault):
            raise ExecutorError(LOST) from fault
        if fault is not None:
            self._note(key, Lost(sentence(fault), isinstance(fault, ParameterError)))
        else:
            # What cannot be kept is still shown.
            self._note(key, result)
            if not self._whole:
                self.store.put_numbers(key, result.summary, scenario.to_json())
        if key in self._claims:
            self._release([key])


def check_reached(store: Store) -> None:
    """Raise a `StoreError` if workers on other machines cannot write whole results to a store."""
    if not store.shared:
        raise StoreError(
            f"Workers on other machines cannot write whole results to {store.place}. Let only"
            " numbers come back, or set TRAINYARD_STORE and TRAINYARD_DATABASE to addresses that"
            " they reach."
        )


def stored(store: Store, keys: Iterable[str], *, whole: bool = False) -> dict[str, Numbers]:
    """Return the numbers of runs that are kept already, `whole` or in any way: key -> numbers."""
    return {key: Numbers(summary, ()) for key, summary in store.numbers(keys, whole=whole).items()}


def _machines_lost(fault: BaseException) -> bool:
    """Tell whether not a run failed, but what it ran on: the scheduler was lost, or the connection
    to it.
    """
    return isinstance(fault, (CancelledError, ExecutorError)) or (
        type(fault).__module__.startswith(_DASK) and not was_killed(fault)
    )
