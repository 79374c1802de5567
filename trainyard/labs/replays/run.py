"""Run of a replay: cells of (point, arm, seed) in worker processes.

Complete replays are stored next to the store's results.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sim.engine.simulator import Progress
from sim.errors import ContractError, InfeasiblePlan, TrainyardError
from sim.result import RESULTS_VERSION
from trainyard.labs.replays.bounds import compute_bound
from trainyard.labs.replays.report import (
    CellResult,
    ClaimRow,
    Numbers,
    ReplayCell,
    ReplayReport,
    cells,
    claim_rows,
    needed_metrics,
    report,
)
from trainyard.labs.replays.types import Replay
from trainyard.runs.batch import RunBatch
from trainyard.runs.executors import DEFAULT, fault_message
from trainyard.runs.queue import RunQueue, Task
from trainyard.runs.run import run, summarize_run
from trainyard.store import Store, StoreError, plain
from trainyard.study.document import canonical_json
from trainyard.study.scenario import Scenario
from trainyard.study.settings import with_seed
from trainyard.traces.sources import load_trace

MAX_WORKERS: Final = 8
TIME_LIMIT_S: Final = 1800.0
"""Time limit of a cell; the longest takes a minute of CPU time, much more on a busy machine."""
MAX_REMARKS: Final = 8
"""Maximum number of remarks of a cell."""
_REMARK_CHARACTERS: Final = 400
_LOG: Final = logging.getLogger(__name__)


class ReplayError(TrainyardError):
    """A cell of a replay failed; the message names the cell."""


class ReplayRun(RunBatch[ReplayCell]):
    """A replay in progress.

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
    where : str or RunQueue
        As for `RunBatch`.
    """

    def __init__(
        self,
        replay: Replay,
        seeds: int | None = None,
        *,
        curves: bool = True,
        store: Store | None = None,
        where: str | RunQueue = DEFAULT,
    ) -> None:
        super().__init__(where)
        self.replay, self.seeds = replay, replay.seeds if seeds is None else seeds
        self._store = store
        self._keys, self._recipes = cells(replay, seeds, curves)
        self._work: dict[str, ReplayCell] = {}
        for cell, key in self._keys.items():
            self._work.setdefault(key, cell)
        self._rest = iter(self._work.values())
        self._metrics = needed_metrics(replay)
        self._found: dict[str, CellResult] = {}

    @property
    def done(self) -> int:
        """Number of finished runs."""
        return len(self._found)

    @property
    def total(self) -> int:
        """Number of distinct runs."""
        return len(self._work)

    @property
    def complete(self) -> bool:
        """Whether all runs are finished."""
        return self.done == self.total

    @property
    def broken(self) -> bool:
        """Whether an allocator broke its contract, as opposed to bad input."""
        return self._fault is not None and isinstance(
            self._fault.__cause__, (ContractError, InfeasiblePlan)
        )

    def report(self) -> ReplayReport:
        """Return the report so far; complete when `state` is "done"."""
        return report(self.replay, self._keys, dict(self._found), self.wall_s)

    def rows(self) -> tuple[ClaimRow, ...]:
        """Return the claim rows so far."""
        return claim_rows(self.replay, self._keys, dict(self._found))

    def numbers(self) -> dict[ReplayCell, Numbers]:
        """Return the numbers of every finished cell; equal cells share theirs."""
        results = dict(self._found)
        return {cell: results[key].numbers for cell, key in self._keys.items() if key in results}

    @property
    def _file(self) -> Path:
        """Path of the stored replay, named by a hash of cells and metrics; needs a store."""
        if self._store is None:
            raise StoreError("This replay is not kept.")
        body = {
            "cells": sorted(self._work),
            "metrics": self._metrics,
            "results_version": RESULTS_VERSION,
            "remarks": MAX_REMARKS,
        }
        return self._store.root / "replays" / f"{_hash(body)}.json"

    def _look_up(self) -> None:
        """Load the stored replay as results, if it has every cell."""
        kept = _read(self._file) if self._store is not None else None
        if kept is not None and set(kept) == set(self._work):
            self._found = kept

    def _next_runs(self) -> Iterator[ReplayCell]:
        """Return the remaining cells."""
        return self._rest

    def _task(self, run: ReplayCell, queue: RunQueue) -> Task:
        """Return the task that runs a cell."""
        recipe, bound_ = self._recipes[run.at, run.arm], self.replay.find_bound(run.arm)
        args = (recipe.to_json(), run.seed, self._metrics, bound_.by if bound_ else "")
        key = f"replay {self._keys[run]} {' '.join(self._metrics)}"
        return Task(key, recipe, run_cell, args, self._each_s, TIME_LIMIT_S)

    def _take(self, run: ReplayCell, result: CellResult, fault: BaseException | None) -> None:
        """Record the result of a cell, or raise its fault as ReplayError."""
        if fault is not None:
            raise ReplayError(f"{self.replay.name}, {run}: {fault_message(fault)}") from fault
        self._found[self._keys[run]] = result

    def _finish(self) -> None:
        """Store the complete replay and remove expired ones."""
        if self._store is not None and self.complete:
            _write(self._file, self._found)
            _expire(self._file.parent, self._store.deletable_before_s())


def run_cell(
    document: Mapping[str, Any],
    seed: int,
    metrics: Sequence[str],
    by: str = "",
    progress: Callable[[Progress], None] | None = None,
) -> CellResult:
    """Run one cell in this process, or compute a bound; return its numbers and remarks.

    Parameters
    ----------
    document : mapping
        `Scenario.to_json`.
    seed : int
        Of the scenario, and of its jobs if they are made.
    metrics : sequence of str
        Which numbers of the summary are wanted.
    by : str
        One of `trainyard.labs.replays.bounds.BOUNDS`: that is computed, and nothing is run; the
        metrics that it does not give are NaN.
    progress : callable or None
        As for `trainyard.runs.run.run`.

    Returns
    -------
    CellResult
        The numbers, with ``cell_cpu_s``: processor seconds for jobs, run and summary; and what the
        allocator said of the run, at most `MAX_REMARKS` sentences.

    Raises
    ------
    TrainyardError
        As `trainyard.runs.run.run`.
    """
    began_s = time.process_time()
    scenario = with_seed(Scenario.from_json(document), seed)
    if by:
        bounds = dict.fromkeys(metrics, math.nan) | compute_bound(scenario, by)
        return CellResult(
            {name: bounds[name] for name in metrics} | {"cell_cpu_s": time.process_time() - began_s}
        )
    trace = load_trace(scenario.trace)
    result = run(scenario, trace=trace, progress=progress)
    numbers = summarize_run(scenario, result, trace)
    wanted = {name: float(numbers[name]) for name in metrics} | {
        "cell_cpu_s": time.process_time() - began_s
    }
    return CellResult(
        wanted,
        tuple(
            textwrap.shorten(text, _REMARK_CHARACTERS, placeholder=" ...")
            for text in dict.fromkeys(result.remarks)
        )[:MAX_REMARKS],
    )


def _hash(body: Mapping[str, Any]) -> str:
    """Return the hash of a JSON document."""
    return hashlib.blake2b(canonical_json(body).encode(), digest_size=16).hexdigest()


def _read(path: Path) -> dict[str, CellResult] | None:
    """Return the results of a stored replay; None if absent or damaged."""
    try:
        kept = json.loads(path.read_bytes())
        return {str(key): _cell_from_json(one) for key, one in kept.items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, LookupError) as error:
        _LOG.warning("The kept replay %s is damaged (%s); it is computed again.", path.name, error)
        return None


def _cell_from_json(kept: Mapping[str, Any]) -> CellResult:
    """Return the result of a cell from its stored values."""
    numbers = {
        str(name): float("nan") if value is None else float(value)
        for name, value in kept["numbers"].items()
    }
    return CellResult(numbers, tuple(map(str, kept["remarks"])))


def _write(path: Path, results: Mapping[str, CellResult]) -> None:
    """Store the results of a replay as JSON; replaces the file in one step, logs failures."""
    draft = path.with_name(f"{uuid.uuid4().hex}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(
            json.dumps(
                plain({key: ran._asdict() for key, ran in results.items()}), allow_nan=False
            ),
            encoding="utf-8",
        )
        os.replace(draft, path)
    except OSError as error:
        # The results stay in memory; only a reopened page recomputes them.
        _LOG.warning("A replay cannot be kept in %s (%s).", path.parent, error.strerror)
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _expire(folder: Path, oldest_s: float) -> None:
    """Remove the files of replays stored before an instant."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.stat().st_mtime < oldest_s:
                path.unlink(missing_ok=True)
