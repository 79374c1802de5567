"""Worker processes: warm-up, progress on a shared board, limits, exit with the parent."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, MutableSequence
from typing import Any, Final, NamedTuple

import psutil
import pyarrow.parquet  # noqa: F401 - loaded here, or it would be at the first trace

import allocators
from sim.engine.simulator import Progress
from sim.errors import TrainyardError
from sim.params import Spec
from trainyard.runs.engines import compiled_loops, load, warm
from trainyard.runs.run import run
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.traces.samples import load_sample

_REPORTED: Final = 5
FIELDS: Final = 6
"""Numbers per row of the board: ticket, ended jobs, jobs, simulated time, last submission, and the
ticket to stop.
"""
EVERY_S: Final = 0.2
MEMORY_EXIT: Final = 75
"""Exit code of a process that exceeds its memory limit."""
_GB: Final = 1e9
_LOG: Final = logging.getLogger(__name__)
_WARM_SAMPLE: Final = "tiny"


class StoppedError(TrainyardError):
    """Raised in a run that no submission waits for, to keep its process warm."""


class Ran(NamedTuple):
    """Return value of a task, and the CPU seconds of its process and solvers."""

    value: Any
    cpu_s: float


class _WorkerState:
    """State of this process: its progress board, whether it runs a task, and is warm."""

    board: MutableSequence[float] | None = None
    busy = False
    is_warm = False


def start(board: MutableSequence[float], memory_gb: float | None = None) -> None:
    """Prepare a worker: watch parent and memory, load the engine, run a tiny scenario."""
    threading.Thread(target=_exit_with_parent, name="watch-parent", daemon=True).start()
    if memory_gb is not None:
        threading.Thread(
            target=_exit_above_memory, args=(memory_gb * _GB,), name="watch-memory", daemon=True
        ).start()
    _WorkerState.board = board
    why_not = load()
    if why_not:
        _LOG.warning("%s", why_not)
    if not _WorkerState.is_warm:
        warm_up()


def warm_up() -> None:
    """Load the compiled loops and run a tiny scenario, so that the next run starts at once."""
    warm(compiled_loops())
    try:
        trace, cluster = load_sample(_WARM_SAMPLE)
        run(
            Scenario(
                TraceSpec(f"sample:{_WARM_SAMPLE}"), cluster, Spec(next(iter(allocators.REGISTRY)))
            ),
            trace=trace,
            engine="kernel",
        )
        _WorkerState.is_warm = True
    # outermost handler: a fault in the warm-up must not stop the pool; a later run reports it
    except Exception as error:
        _LOG.warning(
            "A worker starts cold: %s", error, exc_info=not isinstance(error, TrainyardError)
        )


def ready() -> int:
    """Return the process id; an empty task that proves that a worker is up."""
    return os.getpid()


def execute(row: int, ticket: int, work: Callable[..., Any], *args: Any) -> Ran:
    """Run a task with a progress reporter for a row of the board; mark the worker as busy."""
    _WorkerState.busy = True
    try:
        return measure(work, *args, progress=_Reporter(row, ticket))
    finally:
        _WorkerState.busy = False


def measure(work: Callable[..., Any], *args: Any, **options: Any) -> Ran:
    """Call a function and count its CPU seconds."""
    began_s = _cpu_s()
    value = work(*args, **options)
    return Ran(value, _cpu_s() - began_s)


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of its finished solver processes."""
    used = os.times()
    return time.process_time() + used.children_user + used.children_system


class _Reporter:
    """Writes progress to the board under the ticket of the run.

    Raises `StoppedError` in the run if the board asks its ticket to stop.
    """

    def __init__(self, row: int, ticket: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._first, self._ticket = row * FIELDS, float(ticket)
        self._clock, self._due_s = clock, 0.0

    def __call__(self, progress: Progress) -> None:
        now = self._clock()
        if _WorkerState.board is None:
            return
        if _WorkerState.board[self._first + _REPORTED] == self._ticket:
            raise StoppedError("This run was cancelled.")
        if now < self._due_s:
            return
        self._due_s = now + EVERY_S
        _WorkerState.board[self._first : self._first + _REPORTED] = [
            self._ticket,
            *map(float, progress),
        ]


def read_board(board: MutableSequence[float], row: int, ticket: int) -> Progress | None:
    """Return the last report of a run, None before its first."""
    owner, done, jobs, now_s, span_s = board[row * FIELDS : row * FIELDS + _REPORTED]
    return Progress(int(done), int(jobs), now_s, span_s) if owner == ticket else None


def ask_to_stop(board: MutableSequence[float], row: int, ticket: int) -> None:
    """Set the flag that stops a run at its next report, without ending the process."""
    board[row * FIELDS + _REPORTED] = float(ticket)


def _exit_with_parent() -> None:
    """Wait for the parent process to end, then exit."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _exit_above_memory(most_bytes: float) -> None:
    """Exit this process once it exceeds the memory limit while it runs a task."""
    process = psutil.Process()
    # An idle worker would only be replaced by an equal one.
    while not _WorkerState.busy or process.memory_info().rss <= most_bytes:
        time.sleep(EVERY_S)
    os._exit(MEMORY_EXIT)
