"""What tells files of the same kind from others: their columns or keys, whatever their rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import islice
from typing import Final

from jobtraces.readers.content import Sample
from jobtraces.readers.items import items, keys_in
from sim.errors import TraceError

_ITEMS: Final = 100
_DIGITS: Final = 12


def fingerprint_of(sample: Sample, columns: Iterable[str], key: str) -> str:
    """Return the fingerprint of a file.

    Parameters
    ----------
    sample : Sample
        Its beginning.
    columns : iterable of str
        Plain names of its columns; none = JSON that is no table.
    key : str
        Of the list of jobs in JSON, as `jobtraces.readers.items.items` takes it.

    Returns
    -------
    str
        Twelve hexadecimal digits; "" = it has neither columns nor keys.
    """
    names = sorted(set(columns)) or sorted(_paths(sample.head, key))
    if not names:
        return ""
    text = "\n".join([sample.kind, *names])
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_DIGITS]


def _paths(head: str, key: str) -> set[str]:
    """Return the key paths of the first items in the beginning of a file."""
    found: set[str] = set()
    try:
        for _, value in islice(items(head, key, ""), _ITEMS):
            found |= keys_in(value)
    except TraceError:
        pass  # the beginning ends within an item
    return found
