"""Validated reading of the TOML files that ship with replays and lessons."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sim.errors import ParameterError, TrainyardError
from trainyard.study.document import number

T = TypeVar("T")


def file_stems(folder: Path) -> tuple[str, ...]:
    """Return the sorted names of the TOML files in a folder."""
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))


def find_file(description: str, name: str, folder: Path) -> Path:
    """Return the path of the TOML file with a name; else raise ParameterError with all names."""
    if name not in (names := file_stems(folder)):
        raise ParameterError(f"There is no {description} '{name}'. There are: {', '.join(names)}.")
    return folder / f"{name}.toml"


def read_toml(description: str, path: Path, build: Callable[[Mapping[str, Any], str], T]) -> T:
    """Return the result of `build` for the contents and stem of a TOML file.

    Raises
    ------
    ParameterError
        If the file cannot be read or is invalid; the message names the file.
    """
    try:
        return build(tomllib.loads(path.read_text(encoding="utf-8")), path.stem)
    except (TrainyardError, ValueError) as error:
        raise ParameterError(f"{path.name}: {str(error).rstrip('.')}.") from error
    except OSError as error:
        raise ParameterError(
            f"{path.name}: this {description} cannot be read ({error.strerror or error})."
        ) from error


def table(
    description: str, data: Any, keys: Sequence[str], optional: Collection[str] = ()
) -> dict[str, Any]:
    """Return a table after checking its keys.

    Raises
    ------
    ParameterError
        If it is not a table, or a key is missing or unknown.
    """
    entries = dict(mapping(description, data))
    for key in entries:
        if key not in keys:
            raise ParameterError(
                f"the {description} has no setting '{key}'. It has: {', '.join(keys)}."
            )
    for key in keys:
        if key not in entries and key not in optional:
            raise ParameterError(f"the {description} has no '{key}'. Add it.")
    return entries


def mapping(description: str, data: Any) -> Mapping[str, Any]:
    """Return a value after checking that it is a table."""
    if not isinstance(data, Mapping):
        raise ParameterError(f"{description} is not a table but {str(data)[:60]!r}.")
    return data


def as_list(description: str, data: Any) -> list[Any]:
    """Return a value after checking that it is a list."""
    if not isinstance(data, list):
        raise ParameterError(f"{description} is not a list but {str(data)[:60]!r}.")
    return data


def text(description: str, data: Any) -> str:
    """Return a text without surrounding spaces, after checking its type."""
    if not isinstance(data, str):
        raise ParameterError(f"{description} is not text but {str(data)[:60]!r}.")
    return data.strip()


def numbers(description: str, data: Any) -> tuple[float, ...]:
    """Return a list of numbers as a tuple, after checking it."""
    return tuple(number(description, one) for one in as_list(description, data))


def changes(where: str, data: Any) -> tuple[str, ...]:
    """Return a list of ``path=value`` texts as a tuple, after checking it."""
    settings = tuple(text(f"{where}: set", one) for one in as_list(f"{where}: set", data))
    for change in settings:
        if not all(part.strip() for part in change.partition("=")[:2]):
            raise ParameterError(f"{where}: '{change}' is not of the form path=value.")
    return settings


def check_distinct(description: str, names: Sequence[str]) -> None:
    """Raise a ParameterError if a name occurs twice."""
    if twice := [one for one in names if names.count(one) > 1]:
        raise ParameterError(f"{description}: {twice[0]} occurs twice.")
