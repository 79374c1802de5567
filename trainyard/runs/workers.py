"""The workers of a sweep or a search: takes runs as long as there is room, tells what came of them, and keeps numbers in the store."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass
from typing import Any, Final

from sim.errors import ParameterError, TrainyardError
from trainyard.runs.executors import ExecutorError, Place
from trainyard.runs.pool import sentence
from trainyard.runs.task import Numbers, packed, run_numbers, run_whole
from trainyard.store import Store, StoreError
from trainyard.store.files import UnwritableError
from trainyard.store.index import LibraryError
from trainyard.study.scenario import Scenario

_AHEAD: Final = 2
"""Runs at each worker, one of which waits, so that it never waits for the next."""
_GONE: Final = "The machines of these runs were lost. What is done is kept: start again to go on."
_DASK: Final = "distributed."
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lost:
    """A run without numbers: why, as one sentence; and whether it was refused, because its policy cannot run with such settings."""

    why: str
    refused: bool = False


class Crew:
    """Workers at a place.

    Parameters
    ----------
    place : Place
        Where they are.
    store : Store
        Where numbers are kept.
    whole : bool
        Whether whole results are kept instead.

    Raises
    ------
    StoreError
        If whole results are to be kept by workers that cannot reach the store.
    """

    def __init__(self, place: Place, store: Store, *, whole: bool = False) -> None:
        if whole and place.remote:
            check_reached(store)
        self._place, self._store, self._whole = place, store, whole
        self._tasks: dict[Future[Numbers], tuple[str, Scenario]] = {}
        self._shared: dict[tuple[str, ...], Any] = {}
        self._to_keep: dict[str, tuple[Numbers, Scenario]] = {}
        self._gone: BaseException | None = None
        self._full: TrainyardError | None = None

    @property
    def room(self) -> int:
        """How many more runs may be asked for now."""
        return self._place.workers * (_AHEAD if self._place.workers > 1 else 1) - len(self._tasks)

    @property
    def busy(self) -> bool:
        """Whether something runs."""
        return bool(self._tasks)

    def ask(self, key: str, scenario: Scenario) -> None:
        """Submit a run.

        Raises
        ------
        ExecutorError
            If the machines are gone.
        """
        try:
            task = self._submitted(scenario)
        except TrainyardError as error:
            # Its jobs cannot be loaded: such a run fails, and the others go on.
            task = Future()
            task.set_exception(error)
        except (RuntimeError, OSError) as error:
            raise ExecutorError(_GONE) from error
        self._tasks[task] = key, scenario

    def _submitted(self, scenario: Scenario) -> Future[Numbers]:
        executor = self._place.executor
        if self._whole or not self._place.remote:
            return executor.submit(run_whole if self._whole else run_numbers, scenario.to_json(), self._store.address, {})
        document, baggage = packed(scenario, self._store)
        mark = tuple(baggage)
        if mark not in self._shared:
            self._shared[mark] = self._place.share(baggage)
        return executor.submit(run_numbers, document, "", self._shared[mark])

    def heard(self, timeout_s: float) -> dict[str, Numbers | Lost]:
        """Wait for the next runs to end, at most so long; return key -> what came of them, which `keep` keeps."""
        ended, _ = wait(self._tasks, timeout=timeout_s, return_when=FIRST_COMPLETED)
        outcomes: dict[str, Numbers | Lost] = {}
        for task in ended:
            key, scenario = self._tasks.pop(task)
            fault = CancelledError() if task.cancelled() else task.exception()
            if fault is None:
                outcomes[key] = task.result()
                self._to_keep[key] = task.result(), scenario
            elif isinstance(fault, (UnwritableError, LibraryError)):
                # Every other run would be computed in vain.
                self._full = fault
            elif _gone(fault):
                self._gone = fault
            else:
                if not isinstance(fault, TrainyardError):
                    _LOG.error("A run failed: %s", scenario.canonical(), exc_info=fault)
                outcomes[key] = Lost(_sentence(fault), isinstance(fault, ParameterError))
        return outcomes

    def keep(self) -> None:
        """Keep the numbers that were heard.

        Raises
        ------
        TrainyardError
            If the store cannot be written, here or by a worker, or the machines are gone.
        """
        if not self._whole:
            for key, (numbers, scenario) in self._to_keep.items():
                self._store.put_numbers(key, numbers.summary, scenario.to_json())
        self._to_keep.clear()
        if self._full is not None:
            raise self._full
        if self._gone is not None:
            raise ExecutorError(_GONE) from self._gone

    def dismiss(self) -> None:
        """Give up what has not ended."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()


def check_reached(store: Store) -> None:
    """Raise a `StoreError` if workers on other machines cannot write whole results to a store."""
    if not store.shared:
        raise StoreError(
            f"Workers on other machines cannot write whole results to {store.place}. Let only numbers come back, "
            "or set TRAINYARD_STORE and TRAINYARD_DATABASE to addresses that they reach."
        )


def known(store: Store, keys: Iterable[str], *, whole: bool = False) -> dict[str, Numbers]:
    """Return the numbers of runs that are kept already, `whole` or in any way: key -> numbers."""
    return {key: Numbers(summary, ()) for key, summary in store.numbers(keys, whole=whole).items()}


def _gone(fault: BaseException) -> bool:
    """Tell whether not a run failed, but what it ran on: the scheduler was lost, or the connection to it."""
    return isinstance(fault, CancelledError) or (type(fault).__module__.startswith(_DASK) and not _killed(fault))


def _killed(fault: BaseException) -> bool:
    """Tell whether a run took down every machine of Dask that it was tried on."""
    return type(fault).__name__ == "KilledWorker"


def _sentence(fault: BaseException) -> str:
    return sentence(MemoryError() if _killed(fault) else fault)
