"""Fingerprints of files by columns or keys, to recognize files of one kind."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import islice
from typing import Final

from jobtraces.readers.content import Sample
from jobtraces.readers.items import keys_in, read_items
from sim.errors import TraceError

_ITEMS: Final = 100
_DIGITS: Final = 12


def fingerprint_of(sample: Sample, columns: Iterable[str], key: str) -> str:
    """Return the fingerprint of a file's columns or keys, independent of its rows.

    Parameters
    ----------
    sample : Sample
        The start of the file.
    columns : iterable of str
        Plain column names; empty for JSON that is not a table.
    key : str
        Key of the list of jobs in JSON, as for `jobtraces.readers.items.read_items`.

    Returns
    -------
    str
        Twelve hexadecimal digits; "" = no columns and no keys.
    """
    names = sorted(set(columns)) or sorted(_first_paths(sample.head, key))
    if not names:
        return ""
    text = "\n".join([sample.kind, *names])
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_DIGITS]


def _first_paths(head: str, key: str) -> set[str]:
    """Return the key paths of up to 100 first items of a JSON text, which may end early."""
    paths: set[str] = set()
    try:
        for _, value in islice(read_items(head, key, ""), _ITEMS):
            paths |= keys_in(value)
    except TraceError:
        pass  # the sample ends within an item
    return paths
