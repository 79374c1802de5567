"""Searches and sweeps under way on this server: one at a time, and equal ones of several sessions are one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from trainyard.library import library
from trainyard.runs.disconnects import Leaving
from trainyard.sweeps.recipe import Sweep
from trainyard.sweeps.search import Question
from ui import attended
from ui.attended import ENDED, Attended, AttendedRuns

_MOST_KEPT: Final = 32
"""Runs that have ended, or were looked up, and are still at hand."""
MOST_LOOKED_UP: Final = 1000
"""Runs of a sweep that are looked up while a page is drawn: each takes half a millisecond."""
_LOOK_AGAIN_S: Final = 10.0
"""Numbers of other runs may have made an answer complete."""
_LOG: Final = logging.getLogger(__name__)
Recipe = Question | Sweep


class Run(attended.Run, Protocol):
    """What is needed of `trainyard.sweeps.plan.PlanRun` and `trainyard.sweeps.sweep_run.SweepRun`."""

    shelve: Callable[[Sequence[str]], object]

    @property
    def keys(self) -> Sequence[str]:
        """Keys of its runs."""
        ...

    def run(self) -> None:
        """Do it, in this thread; never raises."""
        ...


@dataclass(eq=False, kw_only=True)
class _Entry(Attended[Run]):
    recipe: Recipe
    owners: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    looked_s: float = 0.0


class Runs(AttendedRuns[str, Run, _Entry]):
    """The searches and sweeps that sessions attend, in a line.

    Parameters
    ----------
    make : callable
        From a recipe to a run that has not begun.
    leaving : Leaving
        Sessions that have gone and may still come back.
    keep : callable
        Puts a recipe with the keys of its runs on the shelf of an owner.
    """

    def __init__(self, make: Callable[[Recipe], Run], leaving: Leaving, keep: Callable[[str, Recipe, Sequence[str]], None]) -> None:
        super().__init__(leaving)
        self._make, self._keep = make, keep
        self._line: list[_Entry] = []
        self._worker: threading.Thread | None = None

    def known(self, recipe: Recipe) -> Run:
        """Return a run with what is known of this recipe, without running anything.

        Raises
        ------
        TrainyardError
            If a trace cannot be loaded, or the store cannot be read.
        """
        entry = self._entry(recipe)
        with entry.lock:
            if not entry.asked and entry.run.state != "done" and time.monotonic() - entry.looked_s > _LOOK_AGAIN_S:
                made = self._make(recipe)
                if isinstance(recipe, Question) or recipe.runs <= MOST_LOOKED_UP:
                    made.recall()
                entry.run, entry.looked_s = made, time.monotonic()
            return entry.run

    def start(self, recipe: Recipe, watcher: str, owner: str) -> None:
        """Begin a run as soon as those before it are over, or attend the equal one that is under way."""
        mark = library.identity(recipe)
        with self._lock:
            entry = self._entry(recipe)
            if not entry.going or entry.stopped:
                entry = self._entries[mark] = _Entry(self._make(recipe), recipe=recipe, asked=True)
                self._line.append(entry)
            entry.watchers.add(watcher)
            entry.owners.add(owner)
        # With what is known already; the rest comes as it is.
        self._keep(owner, recipe, entry.run.keys)
        with self._lock:
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="plans", daemon=True)
                self._worker.start()

    def place(self, mark: str) -> int:
        """Return how many are before it in the line."""
        with self._lock:
            return next((at for at, entry in enumerate(self._line) if library.identity(entry.recipe) == mark and not entry.stopped), 0)

    def detach(self, mark: str, watcher: str) -> None:
        """Attend a run no longer; when only sessions that are leaving are left, it ends, or leaves the line."""
        with self._lock:
            super().detach(mark, watcher)
            entry = self._entries.get(mark)
            if entry in self._line and entry.stopped and not entry.began_s:
                self._line.remove(entry)
                del self._entries[mark]

    def _work(self) -> None:
        """Run what is in the line, until it is empty."""
        while True:
            with self._lock:
                if not self._line:
                    self._worker = None
                    return
                entry = self._line[0]
                entry.began_s = time.monotonic()
            try:
                if not entry.stopped:
                    entry.run.shelve = partial(self._shelve, entry)
                    entry.run.run()
                    self._shelve(entry, entry.run.keys)
            except Exception:  # the border of a thread: those behind it in the line must have their turn
                _LOG.exception("A sweep or plan ended, but the library may not list all of it")
            with self._lock:
                self._line.remove(entry)
                # What did not even say how it ended would be waited for without end.
                entry.asked = entry.run.state in ENDED

    def _shelve(self, entry: _Entry, keys: Sequence[str]) -> None:
        with self._lock:
            owners = sorted(entry.owners)
        for owner in owners:
            self._keep(owner, entry.recipe, keys)

    def _entry(self, recipe: Recipe) -> _Entry:
        mark = library.identity(recipe)
        with self._lock:
            if mark not in self._entries:
                self._entries[mark] = _Entry(self._make(recipe), recipe=recipe)
            entry = self._entries[mark] = self._entries.pop(mark)  # the last one that was asked for comes last
            idle = [other for other, one in self._entries.items() if not one.going and one is not entry]
            for other in idle[: max(len(self._entries) - _MOST_KEPT, 0)]:
                del self._entries[other]
            return entry
