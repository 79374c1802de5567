"""Pages and sections of the documentation, for pages of the app that say the same: there is one text, and it stands in docs/."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from sim.errors import TrainyardError

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs"
_RELATIVE: Final = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)[^)]*\)")


@lru_cache(maxsize=32)
def section(page: str, heading: str) -> str:
    """Return what stands under a heading of second level, as Markdown; links within the documentation become plain text.

    Parameters
    ----------
    page : str
        Relative to docs/, e.g. ``background/model.md``.
    heading : str
        Without its marks.

    Raises
    ------
    TrainyardError
        If the page or the heading is missing.
    """
    for part in re.split(r"^## ", _read(page), flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        if title.strip() == heading:
            return _RELATIVE.sub(r"\1", body).strip()
    raise TrainyardError(f"docs/{page} has no section '{heading}'.")


@lru_cache(maxsize=32)
def whole(page: str) -> tuple[str, str]:
    """Return title and text of a page of the documentation, as `section` does.

    Raises
    ------
    TrainyardError
        If the page is missing.
    """
    title, _, body = _read(page).partition("\n")
    return title.removeprefix("# ").strip(), _RELATIVE.sub(r"\1", body).strip()


def _read(page: str) -> str:
    try:
        return (FOLDER / page).read_text(encoding="utf-8")
    except OSError as error:
        raise TrainyardError(f"docs/{page} cannot be read ({error.strerror}). Restore the folder docs.") from error
