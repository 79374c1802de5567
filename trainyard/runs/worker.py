"""What happens inside a worker process: warming up, reporting progress on a shared board, and ending when the parent ends."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Mapping, MutableSequence
from typing import Any, Final

import pyarrow.parquet  # noqa: F401 - loaded here, or it would be at the first trace

import allocators
from sim.errors import TrainyardError
from sim.params import Spec
from sim.simulator import Progress
from trainyard.runs.run import run
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.traces.samples import load_sample

Work = Callable[[Mapping[str, Any], str, Callable[[Progress], None]], str]
"""What a pool runs: (scenario as JSON, folder of the store, progress) -> key of the result."""

FIELDS: Final = 5
"""Numbers per row of the board: ticket, jobs settled, jobs, simulated clock, last submission."""
EVERY_S: Final = 0.2
_LOG: Final = logging.getLogger(__name__)
_WARM_SAMPLE: Final = "tiny"


class _Here:
    """The board of this process, set once when the worker starts."""

    board: MutableSequence[float] | None = None


def start(board: MutableSequence[float]) -> None:
    """Prepare a worker: watch the parent, remember the board, run a tiny scenario so that the first click finds everything loaded."""
    threading.Thread(target=_end_with_parent, name="watch-parent", daemon=True).start()
    _Here.board = board
    try:
        trace, cluster = load_sample(_WARM_SAMPLE)
        run(Scenario(TraceSpec(f"sample:{_WARM_SAMPLE}"), cluster, Spec(next(iter(allocators.REGISTRY)))), trace=trace)
    except Exception as error:  # the border of a process: a fault while warming up must not take the pool down; a run will show it to the user
        _LOG.warning("A worker starts cold: %s", error, exc_info=not isinstance(error, TrainyardError))


def ready() -> int:
    """Return the number of this process: a task that proves that a worker is up."""
    return os.getpid()


def execute(work: Work, document: Mapping[str, Any], root: str, row: int, ticket: int) -> str:
    """Run one scenario and report on a row of the board at most five times a second."""
    return work(document, root, _Reporter(row, ticket))


class _Reporter:
    """Writes progress to the board; the ticket tells the reader whose numbers they are."""

    def __init__(self, row: int, ticket: int) -> None:
        self._first, self._ticket = row * FIELDS, float(ticket)
        self._due_s = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now < self._due_s or _Here.board is None:
            return
        self._due_s = now + EVERY_S
        _Here.board[self._first : self._first + FIELDS] = [self._ticket, *map(float, progress)]


def read_board(board: MutableSequence[float], row: int, ticket: int) -> Progress | None:
    """Return the last report of a run, or None before its first."""
    found, done, jobs, now_s, span_s = board[row * FIELDS : (row + 1) * FIELDS]
    return Progress(int(done), int(jobs), now_s, span_s) if found == ticket else None


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
