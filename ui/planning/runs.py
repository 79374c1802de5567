"""Searches and sweeps under way on this server: one at a time, equal ones of several sessions are one; each ends when nobody attends it any more."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from lab import library
from lab.leaving import Leaving
from lab.sweeps.question import Question
from lab.sweeps.recipe import Sweep

ENDED: Final = ("done", "failed", "cancelled")
_MOST_KEPT: Final = 32
"""Runs that have ended, or were looked up, and are still at hand."""
MOST_LOOKED_UP: Final = 1000
"""Runs of a sweep that are looked up while a page is drawn: each takes half a millisecond."""
_LOOK_AGAIN_S: Final = 10.0
"""Numbers of other runs may have made an answer complete."""
_LOG: Final = logging.getLogger(__name__)
Recipe = Question | Sweep


class Run(Protocol):
    """What is needed of `lab.sweeps.plan.PlanRun` and `lab.sweeps.running.SweepRun`."""

    shelve: Callable[[Sequence[str]], object]

    @property
    def state(self) -> str:
        """Where it is: waiting, running, done, failed or cancelled."""
        ...

    @property
    def error(self) -> str:
        """Why it failed, as one sentence."""
        ...

    @property
    def done(self) -> int:
        """Runs that are over."""
        ...

    @property
    def keys(self) -> Sequence[str]:
        """Keys of its runs."""
        ...

    def recall(self) -> bool:
        """Take over what is kept from before; tell whether that is everything."""
        ...

    def run(self) -> None:
        """Do it, in this thread; never raises."""
        ...

    def cancel(self) -> None:
        """End it; what is done is kept."""
        ...


@dataclass(eq=False)
class _Entry:
    recipe: Recipe
    run: Run
    watchers: set[str] = field(default_factory=set)
    owners: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    looked_s: float = 0.0
    asked: bool = False
    stopped: bool = False
    began_s: float = 0.0

    @property
    def going(self) -> bool:
        return self.asked and self.run.state not in ENDED


class Runs:
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
        self._make, self._leaving, self._keep = make, leaving, keep
        self._lock = threading.RLock()
        self._entries: dict[str, _Entry] = {}
        self._line: list[_Entry] = []
        self._worker: threading.Thread | None = None
        leaving.then(self._left)

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
                entry = self._entries[mark] = _Entry(recipe, self._make(recipe), asked=True)
                self._line.append(entry)
            entry.watchers.add(watcher)
            entry.owners.add(owner)
        # With what is known already; the rest comes as it is.
        self._keep(owner, recipe, entry.run.keys)
        with self._lock:
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="plans", daemon=True)
                self._worker.start()

    def attend(self, mark: str, watcher: str) -> Run | None:
        """Return the run with this id if it waits or goes on, and keep it going while this session is there."""
        with self._lock:
            entry = self._entries.get(mark)
            if entry is None or not entry.going or entry.stopped:
                return None
            entry.watchers.add(watcher)
            return entry.run

    def is_stopping(self, mark: str) -> bool:
        """Tell whether it is under way for nobody any more, so that it ends in a moment."""
        with self._lock:
            entry = self._entries.get(mark)
            return entry is not None and entry.going and entry.stopped

    def place(self, mark: str) -> int:
        """Return how many are before it in the line."""
        with self._lock:
            return next((at for at, entry in enumerate(self._line) if library.identity(entry.recipe) == mark and not entry.stopped), 0)

    def since(self, mark: str) -> float:
        """Return for how many seconds it has been running; 0 = it waits."""
        with self._lock:
            entry = self._entries.get(mark)
            return time.monotonic() - entry.began_s if entry is not None and entry.began_s else 0.0

    def detach(self, mark: str, watcher: str) -> None:
        """Attend a run no longer; when only sessions that are leaving are left, it ends."""
        with self._lock:
            entry = self._entries.get(mark)
            if entry is None or watcher not in entry.watchers:
                return
            entry.watchers.discard(watcher)
            # Who is leaving is most often the same person before a reload.
            if entry.going and self._leaving.only(entry.watchers):
                entry.stopped = True
                entry.run.cancel()
                if not entry.began_s:
                    self._line.remove(entry)
                    del self._entries[mark]

    def close(self) -> None:
        """End everything."""
        with self._lock:
            for entry in self._line:
                entry.stopped = True
                entry.run.cancel()

    def _left(self, watcher: str) -> None:
        with self._lock:
            marks = list(self._entries)
        for mark in marks:
            self.detach(mark, watcher)

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
                self._entries[mark] = _Entry(recipe, self._make(recipe))
            entry = self._entries[mark] = self._entries.pop(mark)  # the last one that was asked for comes last
            idle = [other for other, one in self._entries.items() if not one.going and one is not entry]
            for other in idle[: max(len(self._entries) - _MOST_KEPT, 0)]:
                del self._entries[other]
            return entry
