"""Where runs happen: in this process, in processes of this machine, or on the workers of Dask."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, MutableSequence, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from multiprocessing import forkserver
from threading import Thread
from typing import Any, ClassVar, Final

from pebble import ProcessExpired, ProcessPool

import allocators
from sim.engine.simulator import Progress
from sim.errors import ParameterError, TrainyardError
from sim.result import RESULTS_VERSION
from trainyard.runs import worker
from trainyard.runs.task import Baggage

DASK: Final = "dask://"
DEFAULT: Final = "processes"
TIME_LIMIT: Final = "TRAINYARD_TIME_LIMIT"
MEMORY_LIMIT: Final = "TRAINYARD_MEMORY_LIMIT"
_INLINE: Final = "inline"
_MOST_WORKERS: Final = 1024
_CONNECT_S: Final = 10.0
_METHOD: Final = (
    "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
)
_THREADS: Final = "OMP_NUM_THREADS"
_LOADED: Final = ["trainyard.runs.worker", "trainyard.runs.task"]
"""What the process that workers are copies of has loaded: so all but the first are up in a tenth of
a second, and share its memory.
"""
_RETRIES: Final = 3
"""How often a run is tried elsewhere when the machine that had it is lost."""
_WATCH_S: Final = 0.5
"""How often a pool of processes is looked at."""
_LOG: Final = logging.getLogger(__name__)


class ExecutorError(TrainyardError):
    """The machines of runs cannot be reached, or were lost."""


@dataclass(frozen=True)
class RunLimits:
    """What a run in a worker process may take.

    Parameters
    ----------
    time_s : float or None, seconds
        A run that takes longer is stopped; None = no limit.
    memory_gb : float or None, GB
        A run whose process holds more memory is stopped; None = no limit.
    """

    time_s: float | None = None
    memory_gb: float | None = None

    @classmethod
    def from_environment(cls) -> RunLimits:
        """Read the settings of this server.

        Raises
        ------
        ParameterError
            If a setting is no positive number.
        """
        return cls(_positive(TIME_LIMIT, "seconds"), _positive(MEMORY_LIMIT, "GB"))


def _positive(name: str, unit: str) -> float | None:
    if not (text := os.environ.get(name, "")):
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (isfinite(value) and value > 0):
        raise ParameterError(f"{name} is '{text}'. Set a number of {unit} above 0, or nothing.")
    return value


class Executor(ABC):
    """Takes runs.

    Attributes
    ----------
    workers : int
        Runs at once.
    spare : int
        Workers beside those, for short runs.
    ahead : int
        Runs that it takes beyond those, so that no worker waits for the next one.
    remote : bool
        Whether runs happen in processes that may not reach the folders of this one.
    """

    workers: int = 1
    spare: int = 0
    ahead: int = 0
    remote: ClassVar[bool] = False

    @abstractmethod
    def submit(
        self, ticket: int, work: Callable[..., Any], args: Sequence[Any], limit_s: float | None
    ) -> Future[Any]:
        """Begin a run.

        Parameters
        ----------
        ticket : int
            Its number, under which it reports progress.
        work, args : callable, sequence
            What is called, in most places with `progress` as well. The future holds a
            `trainyard.runs.worker.Ran`.
        limit_s : float or None, seconds
            When it is stopped, where that is possible.

        Raises
        ------
        RuntimeError, OSError
            If the machines are gone.
        """

    @abstractmethod
    def close(self) -> None:
        """End everything that still runs."""

    def progress(self, ticket: int) -> Progress | None:
        """Return the last report of a run; None = there is none (yet)."""
        del ticket
        return None

    def share(self, baggage: Baggage) -> Any:
        """Send something that many runs need to where they happen, once; what it returns goes to
        each run in its place.
        """
        return baggage


class Inline(Executor):
    """Runs one after another in a thread of this process."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "run")

    def submit(
        self, ticket: int, work: Callable[..., Any], args: Sequence[Any], limit_s: float | None
    ) -> Future[Any]:
        """Begin a run."""
        del ticket, limit_s
        return self._thread.submit(worker.measure, work, *args)

    def close(self) -> None:
        """Wait for the run that goes on."""
        self._thread.shutdown(cancel_futures=True)


class Processes(Executor):
    """Worker processes of this machine, warm at the first run; a cancelled run ends its process
    only.

    Parameters
    ----------
    workers, spare : int
        How many.
    limits : RunLimits
        What a run may take.
    """

    def __init__(self, workers: int, spare: int = 0, limits: RunLimits = RunLimits()) -> None:
        self.workers, self.spare, self._limits = workers, spare, limits
        self._context = multiprocessing.get_context(_METHOD)
        self._free_rows = list(range(workers + spare))
        self._rows: dict[int, int] = {}
        self._board: MutableSequence[float] = self._context.RawArray(
            ctypes.c_double, len(self._free_rows) * worker.FIELDS
        )  # type: ignore[assignment]
        self._pending: dict[Future[Any], ProcessPool] = {}
        self._closed = False
        self._processes = self._started()

    def submit(
        self, ticket: int, work: Callable[..., Any], args: Sequence[Any], limit_s: float | None
    ) -> Future[Any]:
        """Begin a run; no more at once than there are workers."""
        limits = [limit for limit in (limit_s, self._limits.time_s) if limit is not None]
        row = self._rows[ticket] = self._free_rows.pop()
        given = (row, ticket, work, *args)
        timeout_s = min(limits, default=None)
        try:
            future = self._processes.schedule(worker.execute, args=given, timeout=timeout_s)
        except RuntimeError as error:
            _LOG.warning("The worker processes are started anew (%s).", error)
            self._processes.stop()  # type: ignore[no-untyped-call]
            self._processes = self._started()
            future = self._processes.schedule(worker.execute, args=given, timeout=timeout_s)
        self._pending[future] = self._processes
        future.add_done_callback(lambda _: self._release(ticket, future))
        return future

    def _release(self, ticket: int, future: Future[Any]) -> None:
        """Free the row of a run that has ended."""
        self._free_rows.append(self._rows.pop(ticket))
        self._pending.pop(future, None)

    def progress(self, ticket: int) -> Progress | None:
        """Return the last report of a run, at most 0.2 s old."""
        row = self._rows.get(ticket)
        return None if row is None else worker.read_board(self._board, row, ticket)

    def close(self) -> None:
        """Kill all workers."""
        self._closed = True
        self._processes.stop()  # type: ignore[no-untyped-call]
        self._processes.join()

    def _started(self) -> ProcessPool:
        if _METHOD != "spawn":
            _load_once()
        processes = ProcessPool(
            max_workers=self.workers + self.spare,
            initializer=worker.start,
            initargs=(self._board, self._limits.memory_gb),
            context=self._context,
        )
        # Pebble starts its processes with the first task; this one costs nothing and lets them warm
        # up at once.
        processes.schedule(worker.ready)
        Thread(target=self._watch, args=(processes,), daemon=True).start()
        return processes

    def _watch(self, processes: ProcessPool) -> None:
        """Fail the runs of a pool that breaks, because Pebble can leave runs without an end.

        Pebble's thread that finds a dead worker can stop with an error while another thread takes
        that worker's last message. Then no thread ends the waiting runs or the other workers.
        """
        while processes.active:
            time.sleep(_WATCH_S)
        if self._closed:
            return
        processes.join()
        for future in [one for one, pool in list(self._pending.items()) if pool is processes]:
            with suppress(InvalidStateError):  # it has just ended
                future.set_exception(BrokenProcessPool("The pool of worker processes broke."))


class WarmProcess(Processes):
    """One worker process that keeps what it has loaded: a run that is cancelled ends at its next
    report, and the process goes on.

    Parameters
    ----------
    limits : RunLimits
        What a run may take.
    """

    def __init__(self, limits: RunLimits = RunLimits()) -> None:
        super().__init__(1, limits=limits)

    def submit(
        self, ticket: int, work: Callable[..., Any], args: Sequence[Any], limit_s: float | None
    ) -> Future[Any]:
        """Begin a run."""
        there = super().submit(ticket, work, args, limit_s)
        here = _Patient(lambda: self._ask_to_stop(ticket))
        there.add_done_callback(lambda _: _pass_on(there, here))
        return here

    def _ask_to_stop(self, ticket: int) -> None:
        row = self._rows.get(ticket)
        if row is not None:
            worker.ask_to_stop(self._board, row, ticket)


class _Patient(Future[Any]):
    """What a run will give that cannot be cancelled, only asked to stop."""

    def __init__(self, ask: Callable[[], None]) -> None:
        super().__init__()
        self._ask = ask

    def cancel(self) -> bool:
        """Ask the run to stop; tell that it goes on for now."""
        self._ask()
        return False


def _load_once() -> None:
    """Start the process that workers are copies of, unless it is there; in it linear algebra has
    one thread, because idle ones that spin cost others a core.
    """
    forkserver.set_forkserver_preload(_LOADED)
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = before or "1"
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ[_THREADS]


def opened(text: str = DEFAULT) -> Executor:
    """Return the executor that a text names; whoever opens it closes it.

    Parameters
    ----------
    text : str
        ``inline``, ``processes``, ``processes:4`` or ``dask://host:port``.

    Raises
    ------
    TrainyardError
        If there is no such executor, or it cannot be reached.
    """
    kind, _, count = checked(text).partition(":")
    if kind == _INLINE:
        return Inline()
    if kind == DEFAULT:
        return Processes(int(count) if count else cores(), limits=RunLimits.from_environment())
    return Dask(text.removeprefix(DASK))


def checked(text: str) -> str:
    """Return the name of an executor.

    Raises
    ------
    ParameterError
        If there is none of this name.
    """
    kind, _, count = text.partition(":")
    several = kind == DEFAULT and (
        not count or (count.isdecimal() and 1 <= int(count) <= _MOST_WORKERS)
    )
    if not (text == _INLINE or several or (text.startswith(DASK) and text != DASK)):
        raise ParameterError(
            f"'{text}' is no place to run. Use inline, processes, processes:N or dask://host:port."
        )
    return text


class Dask(Executor):
    """Workers of a Dask scheduler.

    Parameters
    ----------
    address : str
        Of the scheduler.

    Raises
    ------
    ExecutorError
        If it does not answer, or has no workers with this version of Trainyard.
    """

    remote: ClassVar[bool] = True

    def __init__(self, address: str) -> None:
        # Dask is an extra: only sweeps on several machines need it.
        try:
            from distributed import Client  # noqa: PLC0415
        except ImportError as error:
            raise ExecutorError(
                "Dask is not installed here. Install requirements-scale.txt, or run with processes."
            ) from error
        # A lost connection is told in one sentence, not by what the client logs of it.
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
        try:
            self._client: Any = Client(
                address if "://" in address else f"tcp://{address}",
                timeout=_CONNECT_S,
                set_as_default=False,
            )  # type: ignore[no-untyped-call]
        except (OSError, ValueError, TypeError, ImportError) as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise ExecutorError(
                f"No Dask scheduler answers at {address} ({reason[0][:120]}). Start one, or correct"
                " the address."
            ) from error
        self._relay = ThreadPoolExecutor(1, "dask")
        try:
            _check_workers(self._client, address)
        except BaseException:
            self.close()
            raise
        self.workers = self.ahead = _threads(self._client)
        self._executor: Any = self._client.get_executor(pure=False, retries=_RETRIES)  # type: ignore[no-untyped-call]

    def submit(
        self, ticket: int, work: Callable[..., Any], args: Sequence[Any], limit_s: float | None
    ) -> Future[Any]:
        """Begin a run."""
        del ticket, limit_s
        at_dask: Future[Any] = self._executor.submit(worker.measure, work, *args)
        here: Future[Any] = Future()
        # Dask settles futures in the thread of its event loop, which must wait for no lock of ours.
        at_dask.add_done_callback(lambda _: self._relay.submit(_pass_on, at_dask, here))
        here.add_done_callback(lambda _: at_dask.cancel() if here.cancelled() else None)
        return here

    def share(self, baggage: Baggage) -> Any:
        """Send something to all workers."""
        return self._client.scatter(baggage, broadcast=True, hash=False) if baggage else baggage

    def close(self) -> None:
        """Leave the scheduler."""
        self._client.close()
        self._relay.shutdown()


def _pass_on(settled: Future[Any], waiting: Future[Any]) -> None:
    if waiting.set_running_or_notify_cancel():
        try:
            waiting.set_result(settled.result())
        except BaseException as error:  # a future passes on whatever a task raises
            waiting.set_exception(error)


def _threads(client: Any) -> int:
    return sum(
        int(info["nthreads"]) for info in client.scheduler_info(n_workers=-1)["workers"].values()
    )


def _check_workers(client: Any, address: str) -> None:
    answers = client.run(_version, on_error="return")
    # A worker that goes while it is asked is lost like any other.
    present = {
        worker_address: answer
        for worker_address, answer in answers.items()
        if not (isinstance(answer, OSError) and type(answer).__module__.startswith("distributed."))
    }
    if not present or not _threads(client):
        raise ExecutorError(
            f"The Dask scheduler at {address} has no workers. Start some there with 'dask worker"
            f" {address}'."
        )
    for worker_address, answer in present.items():
        if isinstance(answer, BaseException):
            raise ExecutorError(
                f"The Dask worker {worker_address} cannot load Trainyard ({answer}). Install the"
                " same wheel there as here."
            )
        if answer != _version():
            raise ExecutorError(
                f"The Dask worker {worker_address} has another version of Trainyard (results"
                f" {answer}, here {_version()}). Install the same there."
            )


def _version() -> str:
    """Return what workers must have in common: the version of results, and policies of packages."""
    policies = [f"{name} of {package}" for name, package in sorted(allocators.PACKAGES.items())]
    return ", ".join([str(RESULTS_VERSION), *policies])


def cores() -> int:
    """Return how many cores this process may use, at least 1."""
    return max(
        1,
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1),
    )


def sentence(fault: BaseException) -> str:
    """Return what to tell the user about a failed run."""
    if isinstance(fault, TrainyardError):
        return str(fault)
    if isinstance(fault, TimeoutError):
        return (
            "The run was stopped at its time limit. Choose fewer jobs, a shorter window, or a"
            " simpler policy."
        )
    if isinstance(fault, ProcessExpired) and fault.exitcode == worker.MEMORY_EXIT:
        return "The run was stopped at its memory limit. Choose fewer jobs, or a shorter window."
    if isinstance(fault, MemoryError):
        return "Memory ran out in this run. Choose fewer jobs, or a shorter window."
    if was_killed(fault):
        return (
            "The worker process was killed each time this run was tried. Look at the log of the"
            " server and its memory, then run again."
        )
    return (
        f"A fault in Trainyard stopped this run ({type(fault).__name__}: {fault}). The other runs"
        " go on; please report it with the scenario file."
    )


def was_killed(fault: BaseException) -> bool:
    """Tell whether the worker process of a run was killed: a local one, or every one of Dask that
    the run was tried on.
    """
    if isinstance(fault, ProcessExpired):
        return bool(fault.exitcode != worker.MEMORY_EXIT)
    return isinstance(fault, BrokenProcessPool) or type(fault).__name__ == "KilledWorker"
