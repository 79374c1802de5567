"""How many of a class have run a lesson: one empty file per seat, named by a random number, so that
nobody is known and two at once are two.
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

MOST_SEATS: Final = 1000
MOST_CHARACTERS: Final = 60
_SEAT: Final = re.compile(r"[0-9a-f]{12}")
_LOG: Final = logging.getLogger(__name__)


class Classroom(NamedTuple):
    """A class in one lesson: what the link of the teacher fixes.

    Parameters
    ----------
    name : str
        Of the class.
    lesson, seed, jobs : int
        The lesson, the seed and the most jobs (0 = as many as the lesson has).
    of : int
        Students; 0 = not said.
    """

    name: str
    lesson: int
    seed: int
    jobs: int
    of: int = 0


def arrive(store: Store, group: Classroom, seat: str) -> None:
    """Note that a seat has run the lesson; twice is once.

    Parameters
    ----------
    store : Store
        Beside whose results it is noted, for as long as those are kept.
    group : Classroom
        The class.
    seat : str
        Twelve hexadecimal digits, drawn at random; anything else is ignored, and so is who comes
        when `MOST_SEATS` are there.
    """
    folder = _folder(store, group)
    if not _SEAT.fullmatch(seat) or count(store, group) >= MOST_SEATS:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / seat).touch()
    except OSError as error:
        _LOG.warning("A class cannot be counted in %s (%s).", folder.parent, error.strerror)
    _expire(folder.parent, store.deletable_before_s())


def count(store: Store, group: Classroom) -> int:
    """Return how many seats have run the lesson."""
    try:
        return sum(1 for _ in _folder(store, group).iterdir())
    except OSError:
        return 0


def _folder(store: Store, group: Classroom) -> Path:
    text = "\n".join([group.name, str(group.lesson), str(group.seed), str(group.jobs)])
    return (
        store.root
        / "classes"
        / hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
    )


def _expire(root: Path, oldest_s: float) -> None:
    with suppress(OSError):
        for folder in root.iterdir():
            if folder.stat().st_mtime < oldest_s:
                shutil.rmtree(folder, ignore_errors=True)
