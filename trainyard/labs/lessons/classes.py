"""Counters of a class: how many students ran a lesson.

One empty file per seat, named by a random number, so students stay anonymous and concurrent
arrivals both count.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from trainyard.store import Store

MAX_SEATS: Final = 1000
MAX_NAME_CHARS: Final = 60
_SEAT: Final = re.compile(r"[0-9a-f]{12}")
_LOG: Final = logging.getLogger(__name__)


class Classroom(NamedTuple):
    """A class in one lesson, as fixed by the teacher's link.

    Parameters
    ----------
    name : str
        Of the class.
    lesson, seed, jobs : int
        The lesson, the seed and the most jobs (0 = as many as the lesson has).
    of : int
        Number of students; 0 = unknown.
    """

    name: str
    lesson: int
    seed: int
    jobs: int
    of: int = 0


def count_seat(store: Store, group: Classroom, seat: str) -> None:
    """Record that a seat has run the lesson; repeats count once. Remove expired classes.

    Parameters
    ----------
    store : Store
        Holds the counters next to its results, for as long as results are kept.
    group : Classroom
        The class.
    seat : str
        Twelve random hexadecimal digits; other values are ignored, and so are seats beyond
        `MAX_SEATS`.
    """
    folder = _folder(store, group)
    if not _SEAT.fullmatch(seat) or seats_done(store, group) >= MAX_SEATS:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / seat).touch()
    except OSError as error:
        _LOG.warning("A class cannot be counted in %s (%s).", folder.parent, error.strerror)
    _expire(folder.parent, store.deletable_before_s())


def seats_done(store: Store, group: Classroom) -> int:
    """Return the number of seats that have run the lesson; 0 if it cannot be read."""
    try:
        return sum(1 for _ in _folder(store, group).iterdir())
    except OSError:
        return 0


def _folder(store: Store, group: Classroom) -> Path:
    """Return the folder of a class's counters, named by a hash of its settings."""
    text = "\n".join([group.name, str(group.lesson), str(group.seed), str(group.jobs)])
    return (
        store.root
        / "classes"
        / hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
    )


def _expire(root: Path, oldest_s: float) -> None:
    """Remove the folders of classes that were last changed before an instant."""
    with suppress(OSError):
        for folder in root.iterdir():
            if folder.stat().st_mtime < oldest_s:
                shutil.rmtree(folder, ignore_errors=True)
