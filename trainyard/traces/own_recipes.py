"""Recipes that the user of this machine keeps: TOML files in the folder ``recipes`` of the user's
data folder, or anywhere else.
"""

from __future__ import annotations

from pathlib import Path

from sim.errors import TraceError
from sim.readers.recipes import MINE
from sim.readers.recipes.recipe import MOST_TEXT
from trainyard.store import default_root


def folder() -> Path:
    """Return the folder whose recipes are known by their names."""
    return default_root() / "recipes"


def kept() -> dict[str, Path]:
    """Return the recipes in that folder: name of the file without suffix -> file."""
    try:
        return {path.stem: path for path in sorted(folder().glob("*.toml"))}
    except OSError:  # a folder that cannot be read holds nothing for us
        return {}


def own_text(place: str) -> str:
    """Return the text of a recipe.

    Parameters
    ----------
    place : str
        Path of a file, or the name of one of `kept`.

    Raises
    ------
    TraceError
        If there is none, or it cannot be read.
    """
    path = kept().get(place.removeprefix(MINE), Path(place).expanduser())
    try:
        if path.stat().st_size > 4 * MOST_TEXT:
            raise TraceError(f"{path}: a recipe may have {MOST_TEXT:,} characters. Shorten it.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TraceError(
            f"{place}: there is no such recipe ({error.strerror or error}). Give the path of a TOML"
            " file or a name from 'recipes list'."
        ) from error
    except ValueError as error:
        raise TraceError(
            f"{path}: this is no recipe, but something that is no text. Check the path."
        ) from error
