"""The jobs of a JSON file one after the other, each as the text that the file writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from sim.errors import TraceError

LONGEST: Final = 1_000_000
"""Characters of one job."""
DEEPEST: Final = 64
_BLANK: Final = re.compile(r"[ \t\r\n]*")


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no value of JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def items(text: str, key: str, name: str) -> Iterator[tuple[str, Any]]:
    """Yield text and value of each item.

    Parameters
    ----------
    text : str
        The file.
    key : str
        Of the list in the outermost object; "" = the file is the list, or one object per line, of
        which the last may be cut off: its value is None.
    name : str
        For messages.

    Raises
    ------
    TraceError
        If it is not valid JSON, or there is no such list.
    """
    try:
        yield from _items(text, key, name)
    except RecursionError as error:
        raise TraceError(f"{name}: the JSON is nested too deeply to be a list of jobs.") from error
    except json.JSONDecodeError as error:
        raise TraceError(
            f"{name}: the JSON is not complete or not valid ({error.msg} at character"
            f" {error.pos:,}). Download it again."
        ) from error
    except ValueError as error:
        raise TraceError(f"{name}: the JSON is not valid ({str(error)[:80]}).") from error


@lru_cache(maxsize=16)
def paths_of(head: str, key: str) -> frozenset[str]:
    """Return the key paths of the first item in the beginning of a file, and those of short texts
    with their value: ``status.phase``, ``kind=Pod``.
    """
    try:
        first = next((value for _, value in items(head, key, "")), None)
    except TraceError:
        return frozenset()
    return frozenset(_paths(first, "", 0))


def _paths(value: Any, before: str, depth: int) -> Iterator[str]:
    if isinstance(value, dict) and depth < 4:
        for key, inner in value.items():
            yield f"{before}{key}"
            if isinstance(inner, str) and len(inner) <= 64:
                yield f"{before}{key}={inner}"
            yield from _paths(inner, f"{before}{key}.", depth + 1)


def _items(text: str, key: str, name: str) -> Iterator[tuple[str, Any]]:
    at = _skip(text, 0)
    if text[at : at + 1] == "[" and not key:
        yield from _array(text, at, name)
    elif text[at : at + 1] == "{" and key:
        yield from _array(text, _list_at(text, at, key, name), name)
    elif text[at : at + 1] == "{":
        yield from _lines(text, at, name)
    else:
        raise _no_list(name)


def _no_list(name: str) -> TraceError:
    return TraceError(f"{name}: the JSON is not a list of jobs of this format. Choose another.")


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _list_at(text: str, at: int, key: str, name: str) -> int:
    """Return where the list of this key begins in the object that begins at `at`."""
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        found, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            break
        at = _skip(text, at + 1)
        if found == key:
            if text[at : at + 1] != "[":
                raise _no_list(name)
            return at
        _, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        raise _no_list(name)
    raise json.JSONDecodeError("an object ends too early", "", at)


def _array(text: str, at: int, name: str) -> Iterator[tuple[str, Any]]:
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        raise TraceError(f"{name}: the list of jobs is empty. Choose another file.")
    while True:
        value, end = _DECODER.raw_decode(text, at)
        yield _checked(text, at, end, value, name)
        at = _skip(text, end)
        sign = text[at : at + 1]
        if sign == "]":
            return
        if sign != ",":
            raise json.JSONDecodeError("a comma or the end of the list is missing", "", at)
        at = _skip(text, at + 1)


def _lines(text: str, at: int, name: str) -> Iterator[tuple[str, Any]]:
    first = at
    while at < len(text):
        try:
            value, end = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError:
            if at == first or "\n" in text[at:].rstrip():
                raise
            # The file was cut off within its last line, which is a row that says nothing.
            yield text[at:], None
            return
        yield _checked(text, at, end, value, name)
        at = _skip(text, end)


def _checked(text: str, at: int, end: int, value: Any, name: str) -> tuple[str, Any]:
    if not isinstance(value, Mapping):
        raise TraceError(f"{name}: the JSON is not a list of jobs. Choose another file.")
    if end - at > LONGEST:
        raise TraceError(
            f"{name}: the item at character {at:,} has {end - at:,} characters, more than"
            f" {LONGEST:,}; this is no list of jobs."
        )
    return text[at:end], value
