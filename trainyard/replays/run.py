"""Runs a replay: cells of (point, arm, seed) in worker processes, which return numbers and remarks; complete replays are kept beside the store's results."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import multiprocessing
import os
import textwrap
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from pebble import ProcessPool

from sim.errors import ContractError, InfeasiblePlan, TrainyardError
from sim.result import RESULTS_VERSION
from trainyard.replays.bounds import bound
from trainyard.replays.report import Cell, Numbers, Ran, ReplayReport, Row, cells, claim_rows, needed, report
from trainyard.replays.types import Replay, seeded
from trainyard.runs import worker
from trainyard.runs.pool import cores, sentence
from trainyard.runs.run import run, summarise
from trainyard.store import Store, StoreError, plain
from trainyard.study.document import canonical_json
from trainyard.study.scenario import Scenario
from trainyard.traces.sources import load_trace

State = Literal["waiting", "running", "done", "failed", "cancelled"]

MOST_WORKERS: Final = 8
TIME_LIMIT_S: Final = 1800.0
"""Of a single cell: the longest takes a minute of processor time, which on a busy machine is many."""
MOST_REMARKS: Final = 8
"""Of a single cell."""
_REMARK_CHARACTERS: Final = 400
_POLL_S: Final = 0.2
_TURN: Final = threading.Semaphore(1)
"""One replay at a time uses the cores; others wait for their turn."""
_LOG: Final = logging.getLogger(__name__)


class ReplayError(TrainyardError):
    """A replay was stopped; the sentence names the cell."""


class ReplayRun:
    """One replay under way.

    Parameters
    ----------
    replay : Replay
        What is repeated.
    seeds : int or None
        Runs per arm for the claims; curves never take more. None = as the replay says.
    curves : bool
        Whether the points of the axes are run too.
    store : Store or None
        Beside whose results complete replays are kept, and looked for; None = nothing is kept.
    workers : int or None
        Processes; None = one per core, at most `MOST_WORKERS`.
    """

    def __init__(self, replay: Replay, seeds: int | None = None, *, curves: bool = True, store: Store | None = None, workers: int | None = None) -> None:
        self.replay, self.seeds = replay, replay.seeds if seeds is None else seeds
        self._curves, self._store = curves, store
        self._workers = min(cores(), MOST_WORKERS) if workers is None else workers
        self._keys, self._recipes = cells(replay, seeds, curves)
        self._work: dict[str, Cell] = {}
        for cell, key in self._keys.items():
            self._work.setdefault(key, cell)
        self._found: dict[str, Ran] = {}
        self._state: State = "waiting"
        self._fault: BaseException | None = None
        self._stop, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self.wall_s = 0.0

    @property
    def state(self) -> State:
        """Where it is."""
        return self._state

    @property
    def done(self) -> int:
        """Runs that are over."""
        return len(self._found)

    @property
    def of(self) -> int:
        """Runs in all; equal ones count once."""
        return len(self._work)

    @property
    def workers(self) -> int:
        """Processes that run at a time."""
        return self._workers

    @property
    def error(self) -> str:
        """Why it failed, as one sentence that names the cell; "" if it did not."""
        return str(self._fault) if self._fault is not None else ""

    @property
    def broken(self) -> bool:
        """Whether it failed because an allocator broke its contract, and not because of the input."""
        return self._fault is not None and isinstance(self._fault.__cause__, (ContractError, InfeasiblePlan))

    def start(self) -> None:
        """Begin, without blocking; at once complete if it is kept from before."""
        if self._thread is not None or self.recall():
            return
        self._thread = threading.Thread(target=self._drive, name=f"replay-{self.replay.name}", daemon=True)
        self._thread.start()

    def recall(self) -> bool:
        """Take over what is kept from before, if it has not begun; tell whether it has ended. Nothing is run."""
        if self._thread is None and not self._over.is_set() and self._store is not None:
            kept = _read(self._file)
            if kept is not None and set(kept) == set(self._work):
                self._found = kept
                self._end("done")
        return self._over.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until it has ended; tell whether it has."""
        return self._over.wait(timeout_s)

    def cancel(self) -> None:
        """End its processes; what is complete stays in the report."""
        self._stop.set()
        if self._thread is None and not self._over.is_set():
            self._end("cancelled")

    def report(self) -> ReplayReport:
        """Return what is known so far; complete when `state` is "done"."""
        return report(self.replay, self._keys, dict(self._found), self.wall_s)

    def rows(self) -> tuple[Row, ...]:
        """Return the claims with what is known so far."""
        return claim_rows(self.replay, self._keys, dict(self._found))

    def numbers(self) -> dict[Cell, Numbers]:
        """Return what every cell that is over gave; equal cells share theirs."""
        found = dict(self._found)
        return {cell: found[key].numbers for cell, key in self._keys.items() if key in found}

    @property
    def _file(self) -> Path:
        if self._store is None:
            raise StoreError("This replay is not kept.")
        body = {"cells": sorted(self._work), "metrics": needed(self.replay), "results_version": RESULTS_VERSION, "remarks": MOST_REMARKS}
        return self._store.root / "replays" / f"{_hash(body)}.json"

    def _drive(self) -> None:
        """Wait for a turn, run everything, keep it."""
        while not _TURN.acquire(timeout=_POLL_S):
            if self._stop.is_set():
                self._end("cancelled")
                return
        try:
            self._state = "running"
            began_s = time.monotonic()
            self._run_all()
            self.wall_s = time.monotonic() - began_s
            if self._store is not None and not self._stop.is_set():
                _write(self._file, self._found)
                _expire(self._file.parent, self._store.keep_days)
            self._end("cancelled" if self._stop.is_set() else "done")
        except Exception as error:  # the border of a thread: whatever happened is told to the user
            if not isinstance(error, TrainyardError):
                _LOG.error("A replay failed: %s", self.replay.name, exc_info=error)
            self._fault = error if isinstance(error, TrainyardError) else ReplayError(f"{self.replay.name}: {sentence(error)}")
            self._end("failed")
        finally:
            _TURN.release()

    def _run_all(self) -> None:
        context = multiprocessing.get_context("spawn")
        pool = ProcessPool(max_workers=min(self._workers, self.of), initializer=worker.start, initargs=([],), context=context)
        metrics = needed(self.replay)
        try:
            documents = {place: recipe.to_json() for place, recipe in self._recipes.items()}
            tasks: dict[Future[Ran], str] = {}
            for key, cell in self._work.items():
                by = held.by if (held := self.replay.bound(cell.arm)) else ""
                tasks[pool.schedule(run_cell, args=(documents[cell.at, cell.arm], cell.seed, metrics, by), timeout=TIME_LIMIT_S)] = key
            pending = set(tasks)
            while pending and not self._stop.is_set():
                ended, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                for task in ended:
                    self._take(tasks[task], task)
        finally:
            pool.stop()  # type: ignore[no-untyped-call]
            pool.join()

    def _take(self, key: str, task: Future[Ran]) -> None:
        fault, cell = task.exception(), self._work[key]
        if fault is None:
            self._found[key] = task.result()
            return
        if not isinstance(fault, TrainyardError):
            _LOG.error("A run of a replay failed: %s, %s", self.replay.name, cell, exc_info=fault)
        raise ReplayError(f"{self.replay.name}, {cell}: {sentence(fault)}") from fault

    def _end(self, state: State) -> None:
        self._state = state
        self._over.set()


def run_cell(document: Mapping[str, Any], seed: int, metrics: Sequence[str], by: str = "") -> Ran:
    """Run one cell in this process, or compute a bound.

    Parameters
    ----------
    document : mapping
        `Scenario.to_json`.
    seed : int
        Of the scenario, and of its jobs if they are made.
    metrics : sequence of str
        Which numbers of the summary are wanted.
    by : str
        One of `trainyard.replays.bounds.BOUNDS`: that is computed, and nothing is run; the metrics that it does not give are NaN.

    Returns
    -------
    Ran
        The numbers, with ``cell_cpu_s``: processor seconds for jobs, run and summary; and what the allocator said of the run, at most `MOST_REMARKS`
        sentences.

    Raises
    ------
    TrainyardError
        As `trainyard.runs.run.run`.
    """
    began_s = time.process_time()
    scenario = seeded(Scenario.from_json(document), seed)
    if by:
        known = dict.fromkeys(metrics, math.nan) | bound(scenario, by)
        return Ran({name: known[name] for name in metrics} | {"cell_cpu_s": time.process_time() - began_s})
    trace = load_trace(scenario.trace)
    result = run(scenario, trace=trace)
    numbers = summarise(scenario, result, trace)
    wanted = {name: float(numbers[name]) for name in metrics} | {"cell_cpu_s": time.process_time() - began_s}
    return Ran(wanted, tuple(textwrap.shorten(text, _REMARK_CHARACTERS, placeholder=" ...") for text in dict.fromkeys(result.remarks))[:MOST_REMARKS])


def _hash(body: Mapping[str, Any]) -> str:
    return hashlib.blake2b(canonical_json(body).encode(), digest_size=16).hexdigest()


def _read(path: Path) -> dict[str, Ran] | None:
    """Return what a kept replay gave; one that is absent or damaged is computed again."""
    try:
        kept = json.loads(path.read_bytes())
        return {str(key): _ran(one) for key, one in kept.items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, LookupError) as error:
        _LOG.warning("The kept replay %s is damaged (%s); it is computed again.", path.name, error)
        return None


def _ran(kept: Mapping[str, Any]) -> Ran:
    numbers = {str(name): float("nan") if value is None else float(value) for name, value in kept["numbers"].items()}
    return Ran(numbers, tuple(map(str, kept["remarks"])))


def _write(path: Path, found: Mapping[str, Ran]) -> None:
    draft = path.with_name(f"{uuid.uuid4().hex}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(plain({key: ran._asdict() for key, ran in found.items()}), allow_nan=False), encoding="utf-8")
        os.replace(draft, path)
    except OSError as error:
        # The figures are there; only opening the page again will compute them anew.
        _LOG.warning("A replay cannot be kept in %s (%s).", path.parent, error.strerror)
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _expire(folder: Path, keep_days: float) -> None:
    """Remove kept replays that are older than other results may be."""
    oldest_s = time.time() - keep_days * 86_400
    with suppress(OSError):
        for path in folder.iterdir():
            if path.stat().st_mtime < oldest_s:
                path.unlink(missing_ok=True)
