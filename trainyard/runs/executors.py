"""Executors of runs: in this process, in local worker processes, or on Dask workers."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import sys
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
_MAX_WORKERS: Final = 1024
_CONNECT_S: Final = 10.0
_METHOD: Final = (
    "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
)
_THREADS: Final = "OMP_NUM_THREADS"
_LOADED: Final = "trainyard.runs.preload"
"""Module that the fork server and Dask workers load: forked workers share its memory."""
_UNGUARDED: Final = 76
"""Exit code of a worker process whose import of the user's script started workers again."""
_RETRIES: Final = 3
"""Number of retries on other machines when the machine of a run is lost."""
_WATCH_S: Final = 0.5
"""Seconds between checks of a process pool."""
_LOG: Final = logging.getLogger(__name__)


class ExecutorError(TrainyardError):
    """Raised when the machines of runs cannot be reached, or were lost."""


@dataclass(frozen=True)
class RunLimits:
    """Limits of a run in a worker process.

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
        """Return the limits set by environment variables.

        Raises
        ------
        ParameterError
            If a setting is not a positive number.
        """
        return cls(_positive_setting(TIME_LIMIT, "seconds"), _positive_setting(MEMORY_LIMIT, "GB"))


def _positive_setting(name: str, unit: str) -> float | None:
    """Return an environment variable as a positive number, None if unset.

    Raises ParameterError for other values.
    """
    if not (text := os.environ.get(name, "")):
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (isfinite(value) and value > 0):
        raise ParameterError(f"{name} is '{text}'. Set a number of {unit} above 0, or unset it.")
    return value


class Executor(ABC):
    """Base class of executors: they start runs and return futures.

    Attributes
    ----------
    workers : int
        Number of parallel runs.
    spare : int
        Additional workers for short runs.
    ahead : int
        Runs accepted beyond those, so that no worker waits for its next run.
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
        """Start a run.

        Parameters
        ----------
        ticket : int
            Number of the run, under which it reports progress.
        work, args : callable, sequence
            What is called, in most places with `progress` as well. The future holds a
            `trainyard.runs.worker.Ran`.
        limit_s : float or None, seconds
            Time after which it is stopped, if the executor can.

        Raises
        ------
        RuntimeError, OSError
            If the machines cannot be reached.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop all runs."""

    def progress(self, ticket: int) -> Progress | None:
        """Return the last progress report of a run, None before the first."""
        del ticket
        return None

    def share(self, baggage: Baggage) -> Any:
        """Send data that many runs need to all workers once; return a reference for `args`."""
        return baggage


class Inline(Executor):
    """Executor that makes runs one after another in a thread of this process."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "run")

    def submit(
        self, ticket: int, work: Callable[..., Any], args: Sequence[Any], limit_s: float | None
    ) -> Future[Any]:
        """Queue a run behind the earlier ones of the thread; limits do not apply."""
        del ticket, limit_s
        return self._thread.submit(worker.measure, work, *args)

    def close(self) -> None:
        """Wait for the current run."""
        self._thread.shutdown(cancel_futures=True)


class Processes(Executor):
    """Executor with local worker processes; cancelling a run ends only its process.

    Parameters
    ----------
    workers, spare : int
        Number of processes, and of additional ones for short runs.
    limits : RunLimits
        Limits of each run.
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
        _check_main_guard(self._context)
        self._processes = self._start_pool()

    def submit(
        self, ticket: int, work: Callable[..., Any], args: Sequence[Any], limit_s: float | None
    ) -> Future[Any]:
        """Start a run in a free process and return its future; restart a broken pool.

        At most `workers` plus `spare` at once. The shorter time limit applies.
        """
        limits = [limit for limit in (limit_s, self._limits.time_s) if limit is not None]
        row = self._rows[ticket] = self._free_rows.pop()
        given = (row, ticket, work, *args)
        timeout_s = min(limits, default=None)
        try:
            future = self._processes.schedule(worker.execute, args=given, timeout=timeout_s)
        except RuntimeError as error:
            _LOG.warning("The worker processes are restarted (%s).", error)
            self._processes.stop()  # type: ignore[no-untyped-call]
            self._processes = self._start_pool()
            future = self._processes.schedule(worker.execute, args=given, timeout=timeout_s)
        self._pending[future] = self._processes
        future.add_done_callback(lambda _: self._release(ticket, future))
        return future

    def _release(self, ticket: int, future: Future[Any]) -> None:
        """Free the progress row of a finished run, and forget its future."""
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

    def _start_pool(self) -> ProcessPool:
        """Start the worker processes, which warm up, and the thread that watches them."""
        processes = ProcessPool(
            max_workers=self.workers + self.spare,
            initializer=worker.start,
            initargs=(self._board, self._limits.memory_gb),
            context=self._context,
        )
        # Pebble starts its processes with the first task; this empty one lets them warm up now.
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
            with suppress(InvalidStateError):  # the run has just ended
                future.set_exception(BrokenProcessPool("The pool of worker processes broke."))


class WarmProcess(Processes):
    """Executor with one worker process that stays warm: a cancelled run stops itself.

    The run ends at its next progress report.

    Parameters
    ----------
    limits : RunLimits
        Limits of each run.
    """

    def __init__(self, limits: RunLimits = RunLimits()) -> None:
        super().__init__(1, limits=limits)

    def submit(
        self, ticket: int, work: Callable[..., Any], args: Sequence[Any], limit_s: float | None
    ) -> Future[Any]:
        """Start a run with a future that only asks the run to stop when cancelled."""
        in_worker = super().submit(ticket, work, args, limit_s)
        stoppable = _StoppableFuture(lambda: self._ask_to_stop(ticket))
        in_worker.add_done_callback(lambda _: _copy_outcome(in_worker, stoppable))
        return stoppable

    def _ask_to_stop(self, ticket: int) -> None:
        """Set the stop flag of a run on the progress board."""
        row = self._rows.get(ticket)
        if row is not None:
            worker.ask_to_stop(self._board, row, ticket)


class _StoppableFuture(Future[Any]):
    """Future of a run that cannot be cancelled, only asked to stop."""

    def __init__(self, ask: Callable[[], None]) -> None:
        super().__init__()
        self._ask = ask

    def cancel(self) -> bool:
        """Ask the run to stop; return False because it is still running."""
        self._ask()
        return False


def _check_main_guard(context: Any) -> None:
    """Start the fork server, and raise if workers would run the user's script again.

    A worker process imports the script that was started. Without a main guard the import starts
    workers in turn: they exit here with `_UNGUARDED`, before the pool replaces them without end.

    Raises
    ------
    ExecutorError
        If the script has no main guard.
    """
    # The attribute by which multiprocessing refuses to start processes during the import.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(_UNGUARDED)
    if _METHOD != "spawn":
        _start_fork_server()
    main = sys.modules["__main__"]
    name = main.__spec__.name if main.__spec__ is not None else ""
    if not hasattr(main, "__file__") or name.endswith("__main__"):
        return  # workers do not import it
    trial = context.Process(target=worker.ready)
    trial.start()
    trial.join()
    if trial.exitcode == _UNGUARDED:
        raise ExecutorError(
            f"Worker processes would run {main.__file__} again. Put its runs below"
            " `if __name__ == '__main__':`, or use the executor inline."
        )


def _start_fork_server() -> None:
    """Start the fork server if needed, with single-threaded linear algebra.

    Idle threads that spin would take CPU from other workers.
    """
    forkserver.set_forkserver_preload([_LOADED])
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = before or "1"
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ[_THREADS]


def open_executor(text: str = DEFAULT) -> Executor:
    """Return the executor that a text names; the caller closes it.

    Parameters
    ----------
    text : str
        ``inline``, ``processes``, ``processes:4`` or ``dask://host:port``.

    Raises
    ------
    TrainyardError
        If there is no such executor, or it cannot be reached.
    """
    kind, _, count = check_executor_name(text).partition(":")
    if kind == _INLINE:
        return Inline()
    if kind == DEFAULT:
        return Processes(int(count) if count else cores(), limits=RunLimits.from_environment())
    return Dask(text.removeprefix(DASK))


def check_executor_name(text: str) -> str:
    """Return the name of an executor after validating it.

    Raises
    ------
    ParameterError
        If no executor has this name.
    """
    kind, _, count = text.partition(":")
    several = kind == DEFAULT and (
        not count or (count.isdecimal() and 1 <= int(count) <= _MAX_WORKERS)
    )
    if not (text == _INLINE or several or (text.startswith(DASK) and text != DASK)):
        raise ParameterError(
            f"'{text}' is not an executor. Use inline, processes, processes:N or dask://host:port."
        )
    return text


class Dask(Executor):
    """Executor on the workers of a Dask scheduler.

    Parameters
    ----------
    address : str
        Address of the scheduler.

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
        # A lost connection is reported in one sentence instead of the client's log.
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
                f"No Dask scheduler answers at {address} ({reason[0][:120]}). Start one or fix the"
                " address."
            ) from error
        self._relay = ThreadPoolExecutor(1, "dask")
        try:
            _check_workers(self._client, address)
        except BaseException:
            self.close()
            raise
        self.workers = self.ahead = _count_threads(self._client)
        self._executor: Any = self._client.get_executor(pure=False, retries=_RETRIES)  # type: ignore[no-untyped-call]

    def submit(
        self, ticket: int, work: Callable[..., Any], args: Sequence[Any], limit_s: float | None
    ) -> Future[Any]:
        """Start a run on a Dask worker; limits do not apply."""
        del ticket, limit_s
        at_dask: Future[Any] = self._executor.submit(worker.measure, work, *args)
        local: Future[Any] = Future()
        # Dask ends futures in its event loop, which must not wait for our locks.
        at_dask.add_done_callback(lambda _: self._relay.submit(_copy_outcome, at_dask, local))
        local.add_done_callback(lambda _: at_dask.cancel() if local.cancelled() else None)
        return local

    def share(self, baggage: Baggage) -> Any:
        """Send data to all workers."""
        return self._client.scatter(baggage, broadcast=True, hash=False) if baggage else baggage

    def close(self) -> None:
        """Disconnect from the scheduler."""
        self._client.close()
        self._relay.shutdown()


def _copy_outcome(settled: Future[Any], waiting: Future[Any]) -> None:
    """Copy the result or error of a finished future to a waiting one, unless cancelled."""
    if waiting.set_running_or_notify_cancel():
        try:
            waiting.set_result(settled.result())
        except BaseException as error:  # a future passes on whatever a task raises
            waiting.set_exception(error)


def _count_threads(client: Any) -> int:
    """Return the number of threads of all Dask workers."""
    return sum(
        int(info["nthreads"]) for info in client.scheduler_info(n_workers=-1)["workers"].values()
    )


def _check_workers(client: Any, address: str) -> None:
    """Raise ExecutorError if no Dask worker is there, or one has another Trainyard version."""
    answers = client.run(_version, on_error="return")
    # A worker that leaves meanwhile is skipped; Dask treats it as lost.
    present = {
        worker_address: answer
        for worker_address, answer in answers.items()
        if not (isinstance(answer, OSError) and type(answer).__module__.startswith("distributed."))
    }
    if not present or not _count_threads(client):
        raise ExecutorError(
            f"The Dask scheduler at {address} has no workers. Start some there with 'dask worker"
            f" {address} --preload {_LOADED}'."
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
    """Return the versions that workers must share: results, and policies of packages."""
    policies = [f"{name} of {package}" for name, package in sorted(allocators.PACKAGES.items())]
    return ", ".join([str(RESULTS_VERSION), *policies])


def cores() -> int:
    """Return the number of CPU cores that this process may use, at least 1."""
    return max(
        1,
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1),
    )


def fault_message(fault: BaseException) -> str:
    """Return the message to the user about a failed run."""
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
            "The worker process was killed at each attempt. Check the server's log and memory,"
            " then run again."
        )
    return (
        f"A fault in Trainyard stopped this run ({type(fault).__name__}: {fault}). Other runs"
        " continue. Please report it with the scenario file."
    )


def was_killed(fault: BaseException) -> bool:
    """Return True if the worker process of a run was killed, but not at its memory limit."""
    if isinstance(fault, ProcessExpired):
        return bool(fault.exitcode != worker.MEMORY_EXIT)
    return isinstance(fault, BrokenProcessPool) or type(fault).__name__ == "KilledWorker"
