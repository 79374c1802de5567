"""Which waiting jobs are worth a try: a bound on what they could get, from what came free since they failed.

What a job could get is bounded by the free GPUs and those of running jobs behind it. That bound
grows by no more than what finished jobs held, what stopped ones held beyond the need of the job they
were stopped for, and what jobs hold that become worse. So the first job of a demand that failed is
tried again only after enough of that, and the others of its demand, which stand behind it, not
before it. One that failed although there were enough GPUs (by their place, by cores or memory) is
tried again after any such change.
"""

from __future__ import annotations

from math import inf
from typing import Final

from allocators._ladders import Key
from sim.contract import JobId

_NOW: Final = 0.0


class Tally:
    """GPUs that came free since the start of the run, and what the present walk has taken.

    Attributes
    ----------
    freed : int
        GPUs come free, in all.
    spent : int
        GPUs that this walk has given to jobs, beyond what was stopped for them.
    stirred : bool
        Whether anything has changed for jobs that failed although there were enough GPUs.
    """

    __slots__ = ("_last", "freed", "spent", "stirred", "walk")

    def __init__(self) -> None:
        self.freed = self.spent = self.walk = 0
        self.stirred = False
        self._last: tuple[Key, JobId] = ((), -1)

    def free(self, gpus: int) -> None:
        """Count GPUs that came free."""
        self.freed += gpus
        self.stirred = True

    def begin(self) -> None:
        """Begin another walk."""
        self.walk += 1
        self.spent, self._last = 0, ((), -1)

    def start(self, place: tuple[Key, JobId], need: int, taken: int, *, one_pool: bool) -> None:
        """Count a start at this place in the order, for which running jobs gave up so many GPUs."""
        self._last = place
        if not one_pool:
            self.freed += taken  # from one pool, and what it needs perhaps from another
        elif taken > need:
            self.freed += taken - need
        else:
            self.spent += need - taken

    def spent_before(self, place: tuple[Key, JobId], queue: Queue) -> int:
        """Return what this walk gave to jobs before a place, beyond what a queue knows of."""
        if place <= self._last:
            return 0
        return self.spent - queue.seen if queue.walk == self.walk else self.spent


class Queue:
    """Waiting jobs of one demand, as a heap.

    Attributes
    ----------
    until : float
        Count of `Tally.freed` at which its first job is worth a try; `_NOW` if nothing is known of it.
    failed : tuple or None
        A place in the order: a job there and all behind it could get at most `slack` GPUs plus `Tally.freed`, less what better jobs took in walk number `walk`
        beyond the first `seen` GPUs.
    """

    __slots__ = ("failed", "filled", "heap", "in_line", "seen", "slack", "until", "walk")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self.filled = self.in_line = False
        self.slack = self.walk = self.seen = 0
        self.forget()

    def __lt__(self, other: object) -> bool:
        # Heaps compare queues only in two entries of one job, of which one is out of date.
        return False

    def forget(self) -> None:
        """Know nothing of what its jobs could get."""
        self.failed: tuple[Key, JobId] | None = None
        self.until = _NOW

    def try_now(self) -> None:
        """Let its first job be tried at the next look."""
        self.until = _NOW

    def hopeless(self, place: tuple[Key, JobId], need: int, tally: Tally) -> bool:
        """Tell whether too little has come free for a job, as far as is known without looking; then the queue waits for more."""
        if self.failed is None or place < self.failed:
            return False
        spent = tally.spent_before(place, self) if tally.spent else 0
        until = need - self.slack + spent
        if until <= tally.freed:
            return False
        if spent:
            self.failed = place  # those between did not lose what better jobs than this one took
            self.slack -= spent
        self.until, self.seen, self.walk = until, tally.spent, tally.walk
        return True

    def put_off(self, place: tuple[Key, JobId] | None, need: int, missing: int, tally: Tally) -> None:
        """Wait until more is free, as a job of this place (None: it says nothing of others) has just failed by so many GPUs."""
        self.failed = place
        self.slack = need - missing - tally.freed
        self.until, self.seen, self.walk = tally.freed + missing, tally.spent, tally.walk

    def block(self) -> None:
        """Wait until anything changes: its first job failed although there were enough GPUs."""
        self.until = inf


Entry = tuple[Key, JobId, int, Queue]
"""Priority, job, GPUs of its gang, and where it waits."""
