"""TOML files that ship, and values out of one, each with a sentence for what it is instead: what
replays and lessons are read with.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sim.errors import ParameterError, TrainyardError
from trainyard.study.document import number

T = TypeVar("T")


def stems(folder: Path) -> tuple[str, ...]:
    """Return the names of the TOML files of a folder, in order."""
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))


def one_of(what: str, name: str, folder: Path) -> Path:
    """Return the TOML file of a folder with this name, or raise a ParameterError that names those
    there are.
    """
    if name not in (known := stems(folder)):
        raise ParameterError(f"There is no {what} '{name}'. There are: {', '.join(known)}.")
    return folder / f"{name}.toml"


def file(what: str, path: Path, build: Callable[[Mapping[str, Any], str], T]) -> T:
    """Return what is built of a TOML file and its stem.

    Raises
    ------
    ParameterError
        If the file cannot be read, or nothing can be built of it; the sentence names the file.
    """
    try:
        return build(tomllib.loads(path.read_text(encoding="utf-8")), path.stem)
    except (TrainyardError, ValueError) as error:
        raise ParameterError(f"{path.name}: {str(error).rstrip('.')}.") from error
    except OSError as error:
        raise ParameterError(
            f"{path.name}: this {what} cannot be read ({error.strerror or error})."
        ) from error


def table(
    what: str, data: Any, keys: Sequence[str], optional: Collection[str] = ()
) -> dict[str, Any]:
    """Return a table that has these keys and no others.

    Raises
    ------
    ParameterError
        If it is none, or a key is missing or unknown.
    """
    known = dict(mapping(what, data))
    for key in known:
        if key not in keys:
            raise ParameterError(f"the {what} has no setting '{key}'. It has: {', '.join(keys)}.")
    for key in keys:
        if key not in known and key not in optional:
            raise ParameterError(f"the {what} has no '{key}'. Add it.")
    return known


def mapping(what: str, data: Any) -> Mapping[str, Any]:
    """Return a table, or raise a ParameterError."""
    if not isinstance(data, Mapping):
        raise ParameterError(f"{what} is not a table but {str(data)[:60]!r}.")
    return data


def listed(what: str, data: Any) -> list[Any]:
    """Return a list, or raise a ParameterError."""
    if not isinstance(data, list):
        raise ParameterError(f"{what} is not a list but {str(data)[:60]!r}.")
    return data


def text(what: str, data: Any) -> str:
    """Return a text without space around it, or raise a ParameterError."""
    if not isinstance(data, str):
        raise ParameterError(f"{what} is not text but {str(data)[:60]!r}.")
    return data.strip()


def numbers(what: str, data: Any) -> tuple[float, ...]:
    """Return a list of numbers, or raise a ParameterError."""
    return tuple(number(what, one) for one in listed(what, data))


def changes(where: str, data: Any) -> tuple[str, ...]:
    """Return a list of ``path=value``, or raise a ParameterError."""
    found = tuple(text(f"{where}: set", one) for one in listed(f"{where}: set", data))
    for change in found:
        if not all(part.strip() for part in change.partition("=")[:2]):
            raise ParameterError(f"{where}: '{change}' is not of the form path=value.")
    return found


def distinct(what: str, found: Sequence[str]) -> None:
    """Refuse a name that comes twice."""
    if twice := [one for one in found if found.count(one) > 1]:
        raise ParameterError(f"{what}: {twice[0]} comes twice.")
