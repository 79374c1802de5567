"""What happens inside a worker process: warming up, reporting progress on a shared board, and
ending when the parent ends.
"""

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
from trainyard.runs.engines import load
from trainyard.runs.run import run
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.traces.samples import load_sample

_REPORTED: Final = 5
FIELDS: Final = 6
"""Numbers per row of the board: ticket, jobs settled, jobs, simulated clock, last submission; and
the ticket that is to stop.
"""
EVERY_S: Final = 0.2
MEMORY_EXIT: Final = 75
"""How a process ends that holds more memory than it may."""
_GB: Final = 1e9
_LOG: Final = logging.getLogger(__name__)
_WARM_SAMPLE: Final = "tiny"


class StoppedError(TrainyardError):
    """A run that nobody waits for any more, in a process that is to stay warm."""


class Ran(NamedTuple):
    """What a task returned, and the CPU seconds of its process and solvers."""

    value: Any
    cpu_s: float


class _Here:
    """The board of this process, set once when the worker starts, and whether it runs something."""

    board: MutableSequence[float] | None = None
    busy = False


def start(board: MutableSequence[float], memory_gb: float | None = None) -> None:
    """Prepare a worker: watch the parent and the memory, remember the board, run a tiny scenario so
    that the first click finds everything loaded.
    """
    threading.Thread(target=_end_with_parent, name="watch-parent", daemon=True).start()
    if memory_gb is not None:
        threading.Thread(
            target=_end_above, args=(memory_gb * _GB,), name="watch-memory", daemon=True
        ).start()
    _Here.board = board
    why_not = load()
    if why_not:
        _LOG.warning("%s", why_not)
    try:
        trace, cluster = load_sample(_WARM_SAMPLE)
        run(
            Scenario(
                TraceSpec(f"sample:{_WARM_SAMPLE}"), cluster, Spec(next(iter(allocators.REGISTRY)))
            ),
            trace=trace,
        )
    # the border of a process: a fault while warming up must not take the pool down; a run will show
    # it to the user
    except Exception as error:
        _LOG.warning(
            "A worker starts cold: %s", error, exc_info=not isinstance(error, TrainyardError)
        )


def ready() -> int:
    """Return the number of this process: a task that proves that a worker is up."""
    return os.getpid()


def execute(row: int, ticket: int, work: Callable[..., Any], *args: Any) -> Ran:
    """Run something that reports on a row of the board, at most five times a second."""
    _Here.busy = True
    try:
        return measure(work, *args, progress=_Reporter(row, ticket))
    finally:
        _Here.busy = False


def measure(work: Callable[..., Any], *args: Any, **options: Any) -> Ran:
    """Call a function and count the CPU seconds of the call."""
    began_s = _cpu_s()
    value = work(*args, **options)
    return Ran(value, _cpu_s() - began_s)


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of solvers that it has waited for."""
    used = os.times()
    return time.process_time() + used.children_user + used.children_system


class _Reporter:
    """Writes progress to the board; the ticket tells the reader whose numbers they are. Ends the
    run with a `StoppedError` once it is asked to on the board.
    """

    def __init__(self, row: int, ticket: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._first, self._ticket = row * FIELDS, float(ticket)
        self._clock, self._due_s = clock, 0.0

    def __call__(self, progress: Progress) -> None:
        now = self._clock()
        if _Here.board is None:
            return
        if _Here.board[self._first + _REPORTED] == self._ticket:
            raise StoppedError("Nobody waits for this run any more.")
        if now < self._due_s:
            return
        self._due_s = now + EVERY_S
        _Here.board[self._first : self._first + _REPORTED] = [self._ticket, *map(float, progress)]


def read_board(board: MutableSequence[float], row: int, ticket: int) -> Progress | None:
    """Return the last report of a run, or None before its first."""
    owner, done, jobs, now_s, span_s = board[row * FIELDS : row * FIELDS + _REPORTED]
    return Progress(int(done), int(jobs), now_s, span_s) if owner == ticket else None


def ask_to_stop(board: MutableSequence[float], row: int, ticket: int) -> None:
    """Let a run end at its next report, in a process that goes on."""
    board[row * FIELDS + _REPORTED] = float(ticket)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _end_above(most_bytes: float) -> None:
    process = psutil.Process()
    # A worker that runs nothing would only be replaced by its like.
    while not _Here.busy or process.memory_info().rss <= most_bytes:
        time.sleep(EVERY_S)
    os._exit(MEMORY_EXIT)
