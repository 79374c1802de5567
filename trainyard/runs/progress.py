"""What a sweep and a search have in common while they are under way: known runs are not run again, others are, cancelling keeps what is done."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from sim.errors import TrainyardError
from trainyard.runs.executors import DEFAULT, ExecutorError, opened
from trainyard.runs.pool import sentence
from trainyard.runs.task import Numbers
from trainyard.runs.workers import Crew, Lost
from trainyard.store import Store
from trainyard.study.scenario import Scenario

State = Literal["waiting", "running", "done", "failed", "cancelled"]
_POLL_S: Final = 0.1
_LOG: Final = logging.getLogger(__name__)


class UnderWay(ABC):
    """Many runs under way.

    Parameters
    ----------
    store : Store
        Where numbers are looked for and kept.
    where : str
        As for `trainyard.runs.executors.opened`.
    whole : bool
        Whether whole results are kept, which Compare opens at once, instead of numbers only.

    Attributes
    ----------
    shelve : callable
        Called by `run` with the keys of all runs known so far, before the first of them begins and whenever there are more; what it raises ends the run.
    """

    def __init__(self, store: Store, where: str = DEFAULT, *, whole: bool = False) -> None:
        self.store = store
        self._where, self._whole = where, whole
        self.shelve: Callable[[Sequence[str]], object] = lambda keys: None
        self._shelved = 0
        self._state: State = "waiting"
        self._fault: TrainyardError | None = None
        self._stop, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self.began_s = self.ended_s = 0.0

    @property
    def state(self) -> State:
        """Where it is."""
        return self._state

    @property
    def error(self) -> str:
        """Why it ended early; "" if it did not, or was cancelled."""
        return str(self._fault) if self._fault is not None else ""

    @property
    @abstractmethod
    def done(self) -> int:
        """Runs that are over, with numbers or without."""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether nothing is left to be run."""

    @property
    @abstractmethod
    def keys(self) -> Sequence[str]:
        """Keys of its runs, as far as they are known, once each."""

    def _tell_keys(self) -> None:
        keys = self.keys
        if len(keys) > self._shelved:
            self.shelve(keys)
            self._shelved = len(keys)

    @abstractmethod
    def _look_up(self) -> None:
        """Take over what is kept from before."""

    @abstractmethod
    def _wanted(self) -> Iterator[tuple[str, Scenario]]:
        """Walk the runs that are to be made now, with their keys, the most telling first; none comes twice."""

    @abstractmethod
    def _take(self, key: str, outcome: Numbers | Lost) -> None:
        """Take in what a run gave."""

    def start(self) -> None:
        """Begin, without blocking."""
        if self._thread is None:
            self._thread = threading.Thread(target=self.run, name="sweep", daemon=True)
            self._thread.start()

    def cancel(self) -> None:
        """End what runs; what is done is kept."""
        self._stop.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until it has ended; tell whether it has."""
        return self._over.wait(timeout_s)

    def recall(self) -> bool:
        """Take over what is kept from before, without running anything; tell whether that is everything.

        Raises
        ------
        TrainyardError
            If the store cannot be read, or nothing of it could ever be run.
        """
        self._look_up()
        if self.complete:
            self._state = "done"
            self._over.set()
        return self._over.is_set()

    def run(self) -> None:
        """Run everything that is not known yet, in this thread; never raises, see `error`."""
        self._state, self.began_s = "running", time.monotonic()
        try:
            self._look_up()
            self._tell_keys()
            if not self.complete and not self._stop.is_set():
                with opened(self._where) as place:
                    self._drive(Crew(place, self.store, whole=self._whole))
            self._state = "done" if self.complete else "cancelled"
        except Exception as error:  # the border of a thread: whatever happened is told to the user
            if not isinstance(error, TrainyardError):
                _LOG.error("A sweep failed", exc_info=error)
            self._fault = error if isinstance(error, TrainyardError) else ExecutorError(sentence(error))
            self._state = "failed"
        finally:
            self.ended_s = time.monotonic()
            self._over.set()

    def _drive(self, crew: Crew) -> None:
        try:
            while not self._stop.is_set():
                for key, scenario in itertools.islice(self._wanted(), crew.room):
                    crew.ask(key, scenario)
                if not crew.busy:
                    break
                for key, outcome in crew.heard(_POLL_S).items():
                    self._take(key, outcome)
                # What could not be kept is still shown.
                crew.keep()
        finally:
            crew.dismiss()
