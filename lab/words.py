"""Numbers with their nouns, for sentences on pages and on the command line."""

from __future__ import annotations


def plural(number: int, noun: str) -> str:
    """Return a number with its noun."""
    many = f"{noun[:-1]}ies" if noun.endswith("cy") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"
