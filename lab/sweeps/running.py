"""A sweep under way: known runs are not run again, results come as they are ready, failed ones are rows with a sentence, cancelling keeps what is done."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import pandas as pd

from lab.outcomes import titles
from lab.pool import sentence
from lab.run import key_of
from lab.scenario import Scenario
from lab.store import Store
from lab.sweeps.crew import Crew, Lost, known
from lab.sweeps.executors import DEFAULT, ExecutorError, Place, opened
from lab.sweeps.recipe import Cell, Sweep
from lab.sweeps.work import Numbers
from sim.errors import TrainyardError

State = Literal["waiting", "running", "done", "failed", "cancelled"]
_POLL_S: Final = 0.1
_LOG: Final = logging.getLogger(__name__)


class SweepRun:
    """One sweep under way.

    Parameters
    ----------
    sweep : Sweep
        What is run.
    store : Store
        Where numbers are looked for and kept.
    where : str
        As for `lab.sweeps.executors.opened`.
    whole : bool
        Whether whole results are kept, which Compare opens at once, instead of numbers only.
    """

    def __init__(self, sweep: Sweep, store: Store, where: str = DEFAULT, *, whole: bool = False) -> None:
        self.sweep, self.store = sweep, store
        self._where, self._whole = where, whole
        self._scenarios: dict[Cell, Scenario] = {}
        self._keys: dict[Cell, str] = {}
        self._found: dict[str, Numbers] = {}
        self._lost: dict[Cell, Lost] = {}
        self._state: State = "waiting"
        self._fault: TrainyardError | None = None
        self._stop, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self.known = 0
        self.began_s = self.ended_s = 0.0

    @property
    def state(self) -> State:
        """Where it is."""
        return self._state

    @property
    def of(self) -> int:
        """Runs in all; equal ones count once."""
        return len(set(self._keys.values())) + len({cell for cell in self._lost if cell not in self._keys})

    @property
    def done(self) -> int:
        """Runs that are over, with numbers or without."""
        return len(self._found) + len(self._lost)

    @property
    def failed(self) -> Mapping[Cell, Lost]:
        """Runs that gave no numbers."""
        return dict(self._lost)

    @property
    def error(self) -> str:
        """Why it ended early; "" if it did not, or was cancelled."""
        return str(self._fault) if self._fault is not None else ""

    @property
    def keys(self) -> Sequence[str]:
        """Keys of all its runs, once each."""
        return tuple(dict.fromkeys(self._keys.values()))

    def start(self) -> None:
        """Begin, without blocking."""
        if self._thread is None:
            self._thread = threading.Thread(target=self.run, name="sweep", daemon=True)
            self._thread.start()

    def cancel(self) -> None:
        """End what runs; what is done is kept."""
        self._stop.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until it has ended; tell whether it has."""
        return self._over.wait(timeout_s)

    def recall(self) -> bool:
        """Take over what is kept from before, without running anything; tell whether that is everything.

        Raises
        ------
        TrainyardError
            If the store cannot be read.
        """
        self._plan()
        if self.done == self.of:
            self._state = "done"
            self._over.set()
        return self._over.is_set()

    def run(self) -> None:
        """Run everything that is not known yet, in this thread; never raises, see `error`."""
        self._state, self.began_s = "running", time.monotonic()
        try:
            self._plan()
            missing = self._missing()
            if missing:
                with opened(self._where) as place:
                    self._drive(place, missing)
            self._state = "cancelled" if self._stop.is_set() and self.done < self.of else "done"
        except Exception as error:  # the border of a thread: whatever happened is told to the user
            if not isinstance(error, TrainyardError):
                _LOG.error("A sweep failed", exc_info=error)
            self._fault = error if isinstance(error, TrainyardError) else ExecutorError(sentence(error))
            self._state = "failed"
        finally:
            self.ended_s = time.monotonic()
            self._over.set()

    def _plan(self) -> None:
        """Find the scenario and key of every run, and the numbers of those that are known."""
        for cell, scenario in self.sweep.cells():
            try:
                if isinstance(scenario, TrainyardError):
                    raise scenario
                self._keys[cell] = key_of(scenario, self.store)
                self._scenarios[cell] = scenario
            except TrainyardError as error:
                self._lost[cell] = Lost(str(error))
        self._found = known(self.store, self.keys, whole=self._whole)
        self.known = len(self._found)

    def _missing(self) -> dict[str, Cell]:
        first: dict[str, Cell] = {}
        for cell, key in self._keys.items():
            if key not in self._found:
                first.setdefault(key, cell)
        return first

    def _drive(self, place: Place, missing: Mapping[str, Cell]) -> None:
        crew, rest = Crew(place, self.store, whole=self._whole), iter(missing.items())
        while not self._stop.is_set():
            for key, cell in itertools.islice(rest, crew.room):
                crew.ask(key, self._scenarios[cell])
            if not crew.busy:
                break
            for key, outcome in crew.heard(_POLL_S).items():
                self._take(key, outcome)
        crew.dismiss()

    def _take(self, key: str, outcome: Numbers | Lost) -> None:
        if isinstance(outcome, Numbers):
            self._found[key] = outcome
            return
        for cell in [cell for cell, other in self._keys.items() if other == key]:
            self._lost[cell] = outcome
            del self._keys[cell]

    def table(self) -> pd.DataFrame:
        """Return one row per run that is over.

        Returns
        -------
        DataFrame
            `point` (place), one column per axis (its path), `policy` (title), `repeat`, `key`, `error` (a sentence, "" = it has numbers), and every number of
            `sim.metrics.summary`; of runs that failed NaN.
        """
        found, lost = dict(self._found), dict(self._lost)
        points, names = self.sweep.points(), titles(self.sweep.study.allocators)
        paths = [axis.path for axis in self.sweep.axes]
        rows: list[dict[str, Any]] = []
        for cell in sorted({*self._keys, *lost}):
            key = self._keys.get(cell, "")
            if key in found or cell in lost:
                place = {"point": cell.point, **dict(zip(paths, points[cell.point].values, strict=True)), "policy": names[cell.policy], "repeat": cell.repeat}
                why = lost[cell].why if cell in lost else ""
                numbers = {} if cell in lost else {name: value for name, value in found[key].summary.items() if isinstance(value, (int, float, type(None)))}
                rows.append(place | {"key": key, "error": why} | numbers)
        return pd.DataFrame(rows, columns=None if rows else ["point", *paths, "policy", "repeat", "key", "error"])
