"""Runs a replay: cells of (point, arm, seed) in worker processes, which return numbers and remarks;
complete replays are kept beside the store's results.
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
from trainyard.labs.replays.bounds import bound
from trainyard.labs.replays.report import (
    CellResult,
    ClaimRow,
    Numbers,
    ReplayCell,
    ReplayReport,
    cells,
    claim_rows,
    needed,
    report,
)
from trainyard.labs.replays.types import Replay
from trainyard.runs.batch import RunBatch
from trainyard.runs.executors import DEFAULT, sentence
from trainyard.runs.queue import RunQueue, Task
from trainyard.runs.run import run, summarise
from trainyard.store import Store, StoreError, plain
from trainyard.study.document import canonical_json
from trainyard.study.scenario import Scenario
from trainyard.study.settings import seeded
from trainyard.traces.sources import load_trace

MOST_WORKERS: Final = 8
TIME_LIMIT_S: Final = 1800.0
"""Of a single cell: the longest takes a minute of processor time, which on a busy machine is many.
"""
MOST_REMARKS: Final = 8
"""Of a single cell."""
_REMARK_CHARACTERS: Final = 400
_LOG: Final = logging.getLogger(__name__)


class ReplayError(TrainyardError):
    """A replay was stopped; the sentence names the cell."""


class ReplayRun(RunBatch[ReplayCell]):
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
        self._metrics = needed(replay)
        self._found: dict[str, CellResult] = {}

    @property
    def done(self) -> int:
        """Runs that are over."""
        return len(self._found)

    @property
    def of(self) -> int:
        """Runs in all; equal ones count once."""
        return len(self._work)

    @property
    def complete(self) -> bool:
        """Whether all runs are over."""
        return self.done == self.of

    @property
    def broken(self) -> bool:
        """Whether it failed because an allocator broke its contract, and not because of the
        input.
        """
        return self._fault is not None and isinstance(
            self._fault.__cause__, (ContractError, InfeasiblePlan)
        )

    def report(self) -> ReplayReport:
        """Return what is known so far; complete when `state` is "done"."""
        return report(self.replay, self._keys, dict(self._found), self.wall_s)

    def rows(self) -> tuple[ClaimRow, ...]:
        """Return the claims with what is known so far."""
        return claim_rows(self.replay, self._keys, dict(self._found))

    def numbers(self) -> dict[ReplayCell, Numbers]:
        """Return what every cell that is over gave; equal cells share theirs."""
        found = dict(self._found)
        return {cell: found[key].numbers for cell, key in self._keys.items() if key in found}

    @property
    def _file(self) -> Path:
        if self._store is None:
            raise StoreError("This replay is not kept.")
        body = {
            "cells": sorted(self._work),
            "metrics": self._metrics,
            "results_version": RESULTS_VERSION,
            "remarks": MOST_REMARKS,
        }
        return self._store.root / "replays" / f"{_hash(body)}.json"

    def _look_up(self) -> None:
        kept = _read(self._file) if self._store is not None else None
        if kept is not None and set(kept) == set(self._work):
            self._found = kept

    def _wanted(self) -> Iterator[ReplayCell]:
        return self._rest

    def _task(self, run: ReplayCell, queue: RunQueue) -> Task:
        recipe, bound_ = self._recipes[run.at, run.arm], self.replay.bound(run.arm)
        args = (recipe.to_json(), run.seed, self._metrics, bound_.by if bound_ else "")
        key = f"replay {self._keys[run]} {' '.join(self._metrics)}"
        return Task(key, recipe, run_cell, args, self._each_s, TIME_LIMIT_S)

    def _take(self, run: ReplayCell, result: CellResult, fault: BaseException | None) -> None:
        if fault is not None:
            raise ReplayError(f"{self.replay.name}, {run}: {sentence(fault)}") from fault
        self._found[self._keys[run]] = result

    def _finish(self) -> None:
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
        One of `trainyard.labs.replays.bounds.BOUNDS`: that is computed, and nothing is run; the
        metrics that it does not give are NaN.
    progress : callable or None
        As for `trainyard.runs.run.run`.

    Returns
    -------
    Ran
        The numbers, with ``cell_cpu_s``: processor seconds for jobs, run and summary; and what the
        allocator said of the run, at most `MOST_REMARKS` sentences.

    Raises
    ------
    TrainyardError
        As `trainyard.runs.run.run`.
    """
    began_s = time.process_time()
    scenario = seeded(Scenario.from_json(document), seed)
    if by:
        known = dict.fromkeys(metrics, math.nan) | bound(scenario, by)
        return CellResult(
            {name: known[name] for name in metrics} | {"cell_cpu_s": time.process_time() - began_s}
        )
    trace = load_trace(scenario.trace)
    result = run(scenario, trace=trace, progress=progress)
    numbers = summarise(scenario, result, trace)
    wanted = {name: float(numbers[name]) for name in metrics} | {
        "cell_cpu_s": time.process_time() - began_s
    }
    return CellResult(
        wanted,
        tuple(
            textwrap.shorten(text, _REMARK_CHARACTERS, placeholder=" ...")
            for text in dict.fromkeys(result.remarks)
        )[:MOST_REMARKS],
    )


def _hash(body: Mapping[str, Any]) -> str:
    return hashlib.blake2b(canonical_json(body).encode(), digest_size=16).hexdigest()


def _read(path: Path) -> dict[str, CellResult] | None:
    """Return what a kept replay gave; one that is absent or damaged is computed again."""
    try:
        kept = json.loads(path.read_bytes())
        return {str(key): _ran(one) for key, one in kept.items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, LookupError) as error:
        _LOG.warning("The kept replay %s is damaged (%s); it is computed again.", path.name, error)
        return None


def _ran(kept: Mapping[str, Any]) -> CellResult:
    numbers = {
        str(name): float("nan") if value is None else float(value)
        for name, value in kept["numbers"].items()
    }
    return CellResult(numbers, tuple(map(str, kept["remarks"])))


def _write(path: Path, found: Mapping[str, CellResult]) -> None:
    draft = path.with_name(f"{uuid.uuid4().hex}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(
            json.dumps(plain({key: ran._asdict() for key, ran in found.items()}), allow_nan=False),
            encoding="utf-8",
        )
        os.replace(draft, path)
    except OSError as error:
        # The figures are there; only opening the page again will compute them anew.
        _LOG.warning("A replay cannot be kept in %s (%s).", path.parent, error.strerror)
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _expire(folder: Path, oldest_s: float) -> None:
    """Remove replays that were kept before an instant."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.stat().st_mtime < oldest_s:
                path.unlink(missing_ok=True)
