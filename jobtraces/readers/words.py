"""Names of columns and words in cells in several languages, as `words.toml` lists them."""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any


@cache
def words() -> Mapping[str, Any]:
    """Return the tables of `words.toml`."""
    text = resources.files(__package__).joinpath("words.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def bare(text: str) -> str:
    """Return a name without case, accents, blanks and signs: ``Eingereicht am`` and
    ``eingereicht_am`` are the same.
    """
    apart = unicodedata.normalize("NFKD", text).casefold()
    return "".join(one for one in apart if one.isalnum())


@cache
def known_words(table: str) -> Mapping[str, tuple[str, int]]:
    """Return bare word -> (key, place in its list) of one table of `words.toml`."""
    found: dict[str, tuple[str, int]] = {}
    for key, listed in words()[table].items():
        for at, word in enumerate(listed):
            found.setdefault(bare(word), (key, at))
    return found
