"""Rows of the library's database, and its errors, without SQLAlchemy."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sim.errors import TrainyardError


class Clock:
    """Source of time for a library; tests replace it."""

    def now_s(self) -> float:
        """Return seconds since the epoch; may jump back or ahead."""
        return time.time()

    def steady_s(self) -> float:
        """Return seconds from an arbitrary zero, which never decrease."""
        return time.monotonic()


class LibraryError(TrainyardError):
    """Raised when the database cannot be reached, read or written."""


RUN, TRACE, PROFILE, LINK = "run", "trace", "profile", "link"
"""Kinds of items."""


@dataclass(frozen=True)
class IndexRow:
    """Database row of a run, an uploaded trace or a profile.

    Parameters
    ----------
    kind : {"run", "trace", "profile"}
        Kind of the item.
    key : str
        Hash of the scenario or the contents.
    created_s : float, seconds
        Time of storage or last upload, since the epoch.
    complete : bool
        Whether its files are stored; an incomplete run has numbers only.
    size : int, bytes
        Size of its files.
    manifest : mapping
        Metadata available without reading its files.
    """

    kind: str
    key: str
    created_s: float
    complete: bool
    size: int
    manifest: Mapping[str, Any]


@dataclass(frozen=True)
class ShelvedRecipe:
    """A study, sweep or search on the shelf of an owner.

    Parameters
    ----------
    study : str
        Hash of its document.
    document : mapping
        Its JSON.
    title : str
        Default title.
    name : str
        Name given by its owner; "" = none.
    tags : tuple of str
        Tags given by its owner.
    used_s : float, seconds
        Time of the last run or change, since the epoch.
    runs, there : int
        Number of its runs, and of those stored.
    size : int, bytes
        Size of the files of its runs.
    """

    study: str
    document: Mapping[str, Any]
    title: str
    name: str
    tags: tuple[str, ...]
    used_s: float
    runs: int
    there: int
    size: int
