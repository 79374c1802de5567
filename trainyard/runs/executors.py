"""Where the runs of a sweep happen: in this process, in processes of this machine, or on the workers of Dask; all are executors of the standard library."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver
from typing import Any, Final

from pebble import ProcessPool

from sim.errors import ParameterError, TrainyardError
from sim.result import RESULTS_VERSION
from trainyard.runs import worker
from trainyard.runs.pool import cores
from trainyard.runs.task import Baggage

DASK: Final = "dask://"
DEFAULT: Final = "processes"
_INLINE: Final = "inline"
_MOST_WORKERS: Final = 1024
_CONNECT_S: Final = 10.0
_METHOD: Final = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
_THREADS: Final = "OMP_NUM_THREADS"
_LOADED: Final = ["trainyard.runs.worker", "trainyard.runs.task"]
"""What the process that workers are copies of has loaded: so all but the first are up in a tenth of a second, and share its memory."""
_RETRIES: Final = 3
"""How often a run is tried elsewhere when the machine that had it is lost."""


class ExecutorError(TrainyardError):
    """The machines for a sweep cannot be reached, or were lost."""


@dataclass(frozen=True)
class Place:
    """Where runs happen.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        Takes runs.
    workers : int
        How many at once.
    remote : bool
        Whether they happen in processes that may not reach the folders of this one.
    share : callable
        Sends something that many runs need to where they happen, once; what it returns goes to each run in its place.
    """

    executor: Executor
    workers: int
    remote: bool = False
    share: Callable[[Baggage], Any] = lambda baggage: baggage


class Inline(Executor):
    """Runs everything at once in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run, and return a future that is over."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # an executor passes on whatever a task raises
            future.set_exception(error)
        return future


class Processes(Executor):
    """Worker processes of this machine, warm at the first run; a cancelled run ends its process only.

    Parameters
    ----------
    workers : int
        How many.
    """

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context(_METHOD)
        if _METHOD != "spawn":
            _load_once()
        self._pool = ProcessPool(max_workers=workers, initializer=worker.start, initargs=([],), context=context)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a run."""
        future: Future[Any] = self._pool.schedule(fn, args=args, kwargs=kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes, with what they run if `cancel_futures`."""
        if cancel_futures:
            self._pool.stop()  # type: ignore[no-untyped-call]
        else:
            self._pool.close()  # type: ignore[no-untyped-call]
        if wait or cancel_futures:
            self._pool.join()


def _load_once() -> None:
    """Start the process that workers are copies of, unless it is there; in it linear algebra has one thread, because idle ones that spin cost others a core."""
    forkserver.set_forkserver_preload(_LOADED)
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = before or "1"
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ[_THREADS]


@contextmanager
def opened(text: str = DEFAULT) -> Iterator[Place]:
    """Open the place that a text names, and end what still runs there when it is left.

    Parameters
    ----------
    text : str
        ``inline``, ``processes``, ``processes:4`` or ``dask://host:port``.

    Raises
    ------
    TrainyardError
        If there is no such place, or it cannot be reached.
    """
    kind, _, count = checked(text).partition(":")
    if kind == _INLINE:
        yield Place(Inline(), 1)
    elif kind == DEFAULT:
        workers = int(count) if count else cores()
        made = Processes(workers)
        try:
            yield Place(made, workers)
        finally:
            made.shutdown(cancel_futures=True)
    else:
        with _dask(text.removeprefix(DASK)) as place:
            yield place


def checked(text: str) -> str:
    """Return the name of a place.

    Raises
    ------
    ParameterError
        If there is no such place.
    """
    kind, _, count = text.partition(":")
    several = kind == DEFAULT and (not count or (count.isdecimal() and 1 <= int(count) <= _MOST_WORKERS))
    if not (text == _INLINE or several or (text.startswith(DASK) and text != DASK)):
        raise ParameterError(f"'{text}' is no place to run. Use inline, processes, processes:N or dask://host:port.")
    return text


@contextmanager
def _dask(address: str) -> Iterator[Place]:
    # Dask is an extra: only sweeps on several machines need it.
    try:
        from distributed import Client  # noqa: PLC0415
    except ImportError as error:
        raise ExecutorError("Dask is not installed here. Install requirements-scale.txt, or run with processes.") from error
    # A lost connection is told in one sentence, not by what the client logs of it.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        client: Any = Client(address if "://" in address else f"tcp://{address}", timeout=_CONNECT_S, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError, ImportError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ExecutorError(f"No Dask scheduler answers at {address} ({reason[0][:120]}). Start one, or correct the address.") from error
    try:
        _check_workers(client, address)
        yield Place(client.get_executor(pure=False, retries=_RETRIES), _threads(client), remote=True, share=lambda baggage: _scattered(client, baggage))
    finally:
        client.close()


def _threads(client: Any) -> int:
    return sum(int(info["nthreads"]) for info in client.scheduler_info(n_workers=-1)["workers"].values())


def _check_workers(client: Any, address: str) -> None:
    answers = client.run(_version, on_error="return")
    # A worker that goes while it is asked is lost like any other.
    there = {where: told for where, told in answers.items() if not (isinstance(told, OSError) and type(told).__module__.startswith("distributed."))}
    if not there or not _threads(client):
        raise ExecutorError(f"The Dask scheduler at {address} has no workers. Start some there with 'dask worker {address}'.")
    for where, told in there.items():
        if isinstance(told, BaseException):
            raise ExecutorError(f"The Dask worker {where} cannot load Trainyard ({told}). Install the same wheel there as here.")
        if told != _version():
            raise ExecutorError(f"The Dask worker {where} has another version of Trainyard (results {told}, here {_version()}). Install the same there.")


def _version() -> int:
    return RESULTS_VERSION


def _scattered(client: Any, baggage: Baggage) -> Any:
    return client.scatter(baggage, broadcast=True, hash=False) if baggage else baggage
