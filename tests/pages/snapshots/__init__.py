"""Sentences of the pages in named situations: one file per page, and how it is made and compared.

`python -m scripts.refresh_golden --sentences` writes the files anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import Final

from tests.trainyard.results import situations as comparisons
from tests.trainyard.sweeps import situations as searches
from tests.trainyard.traces import situations as files
from tests.trainyard.what_if import situations as lives

HERE: Final = Path(__file__).parent
PAGES: Final[Mapping[str, Mapping[str, Callable[[], Iterable[str]]]]] = {
    "compare": {name: partial(comparisons.sentences, name) for name in comparisons.SITUATIONS},
    "explore": {name: partial(lives.sentences, name) for name in lives.SITUATIONS},
    "plan": {name: partial(searches.sentences, name) for name in searches.SITUATIONS},
    "trace": {name: partial(files.sentences, name) for name in files.SITUATIONS},
}


def path_of(page: str) -> Path:
    """Return the file with the sentences of a page."""
    return HERE / f"{page}.txt"


def stored_text(page: str) -> str:
    """Return the stored sentences of a page; empty if there are none."""
    path = path_of(page)
    return path.read_text("utf-8") if path.exists() else ""


def compute(page: str) -> str:
    """Return the sentences of a page as its file holds them, a section per situation."""
    sections = ("\n".join((f"== {name}", *lines())) for name, lines in PAGES[page].items())
    return "\n\n".join(sections) + "\n"


def difference(page: str) -> str:
    """Return the lines in which the page differs from its file, as a unified diff."""
    before, after = stored_text(page).splitlines(), compute(page).splitlines()
    return "\n".join(unified_diff(before, after, f"{page}.txt", "now", lineterm="", n=2))
