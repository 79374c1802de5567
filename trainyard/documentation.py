"""Pages of docs/, as the app shows them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from sim.errors import TrainyardError

_PACKAGE: Final = Path(__file__).resolve().parent
_IN_WHEEL: Final = _PACKAGE / "app" / "docs"
FOLDER: Final = _IN_WHEEL if _IN_WHEEL.exists() else _PACKAGE.parent / "docs"
"""The documentation: in the wheel built by setup.py, or in a checkout."""
CONTENTS: Final = "README.md"
"""The page that lists the others."""
PAGE: Final = "doc"
"""URL parameter of the page Docs: a page of docs/, e.g. ``tutorial/first-comparison.md``."""
_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_PICTURE: Final = re.compile(r"^!\[([^\]]*)\]\(([^)\s]+)\)$", re.MULTILINE)
_ENTRY: Final = re.compile(r"^- \[([^\]]+)\]\(([^)\s]+\.md)\)", re.MULTILINE)


class DocsPage(NamedTuple):
    """A page of the documentation.

    Parameters
    ----------
    title : str
        Its first heading.
    parts : tuple of (str, Path or None)
        In their order: Markdown and None, or the caption of a picture and its file.
    """

    title: str
    parts: tuple[tuple[str, Path | None], ...]


@lru_cache(maxsize=1)
def contents() -> Mapping[str, Mapping[str, str]]:
    """Return group -> page -> title, as listed on the first page."""
    groups = re.split(r"^\*\*([^*]+)\*\*.*$", _read(CONTENTS), flags=re.MULTILINE)[1:]
    return {
        name: {page: title for title, page in _ENTRY.findall(text)}
        for name, text in zip(groups[::2], groups[1::2], strict=True)
    }


@lru_cache(maxsize=64)
def read_page(page: str) -> DocsPage:
    """Return a page; links to other pages lead to the app's page Docs.

    Parameters
    ----------
    page : str
        Relative to docs/.

    Raises
    ------
    TrainyardError
        If there is no such page.
    """
    title, _, body = _read(page).partition("\n")
    folder = PurePosixPath(page).parent
    pieces = _PICTURE.split(_LINK.sub(lambda link: _link(folder, *link.groups()), body))
    parts: list[tuple[str, Path | None]] = [(pieces[0], None)]
    for caption, target, text in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        parts += [(caption, FOLDER / folder / target), (text, None)]
    return DocsPage(title.removeprefix("# "), tuple(parts))


@lru_cache(maxsize=32)
def read_section(page: str, heading: str) -> str:
    """Return a second-level section of a page as Markdown, without links to other pages.

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
            return _LINK.sub(
                lambda link: link[0] if urlsplit(link[2]).scheme else link[1], body
            ).strip()
    raise TrainyardError(f"docs/{page} has no section '{heading}'.")


@lru_cache(maxsize=1)
def _pages() -> frozenset[str]:
    """Return all pages, relative to docs/."""
    return frozenset(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.md"))


def _link(folder: PurePosixPath, text: str, target: str) -> str:
    """Return a link of a page in a folder of docs/ as the app writes it.

    Links to other sites and within the page stay; of a file that is no page only the text stays.
    """
    address = urlsplit(target)
    if address.scheme or not address.path:
        return f"[{text}]({target})"
    page = posixpath.normpath(folder / address.path)
    return f"[{text}](docs?{PAGE}={page})" if page in _pages() else text


def _read(page: str) -> str:
    """Return the text of a page; raise TrainyardError if there is none."""
    if page not in _pages():
        raise TrainyardError(f"The documentation has no page “{page}”.")
    try:
        return (FOLDER / page).read_text(encoding="utf-8")
    except OSError as error:
        raise TrainyardError(
            f"docs/{page} cannot be read ({error.strerror}). Restore the folder docs."
        ) from error
