"""Read the items of a JSON file one by one, each with its original text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from sim.errors import TraceError

MAX_ITEM_CHARS: Final = 1_000_000
"""Largest number of characters of one job."""
MAX_WHOLE_CHARS: Final = 10_000_000
"""Longest JSON that is decoded as a whole to explain why it cannot be read."""
MAX_DEPTH: Final = 64
LOOK_AHEAD: Final = MAX_ITEM_CHARS + 100_000
"""Characters to hold after an index: a job and the text that follows it."""
MAX_ESCAPE_CHARS: Final = len(r"\ud83d\ude00")
_BLANK: Final = re.compile(r"[ \t\r\n]*")


def _refuse_constant(word: str) -> Any:
    """Raise an error for NaN and Infinity, which are not valid JSON."""
    raise ValueError(f"{word} is not a JSON value")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


class _Window:
    """A sliding part of a long text, so that the whole is never in memory.

    Attributes
    ----------
    text : str
        The current part.
    before : int
        Number of characters before it.
    place : int
        Index of the value decoded last, or where decoding failed.
    """

    def __init__(self, parts: Iterable[str]) -> None:
        self._parts = iter(parts)
        self.text, self.before, self.place, self._more = "", 0, 0, True

    def skip(self, at: int) -> int:
        """Return the index of the next non-blank character at or after an index.

        Loads text ahead and may release earlier text, so the result may be less than `at`. At the
        end of the text it is its length.
        """
        while True:
            while self._more and len(self.text) - at < LOOK_AHEAD:
                at = self._grow(at)
            blank = _BLANK.match(self.text, at)
            at = blank.end() if blank else at
            if at < len(self.text) or not self._more:
                return at

    def char_at(self, at: int) -> str:
        """Return the character at an index, "" at the end of the text."""
        return self.text[at : at + 1]

    def decode(self, at: int) -> tuple[Any, int, int]:
        """Return the JSON value at an index, with the current indices of its start and end.

        Loads more text while the value is truncated.
        """
        while True:
            self.place = at
            try:
                value, end = _DECODER.raw_decode(self.text, at)
            except json.JSONDecodeError as error:
                # For a truncated escape or word the error position is just before the end.
                is_near_end = error.pos >= len(self.text) - MAX_ESCAPE_CHARS
                is_truncated = is_near_end or error.msg.startswith("Unterminated")
                if not (self._more and is_truncated):
                    raise
            else:
                if end < len(self.text) or not self._more:
                    return value, at, end
            at = self._grow(at)

    def last_line(self) -> str:
        """Return the text from `place` if it is the last line, else ""."""
        rest = self.text[self.place :]
        return "" if self._more or "\n" in rest.rstrip() else rest

    def _grow(self, at: int) -> int:
        """Load the next part of the text, release the text before an index, and return it."""
        part = next(self._parts, None)
        self._more = part is not None
        if part is not None:
            self.text, self.before = self.text[at:] + part, self.before + at
            return 0
        return at


def read_items(text: str | Iterable[str], key: str, name: str) -> Iterator[tuple[str, Any]]:
    """Yield (text, value) of each item of a JSON list.

    Parameters
    ----------
    text : str or iterable of str
        The file, as a whole or in parts.
    key : str
        Key of the list in the outermost object; "" = the file is the list, or has one object per
        line. A truncated last line has the value None.
    name : str
        Name of the file in messages.

    Raises
    ------
    TraceError
        If it is not valid JSON, or has no such list.
    """
    window = _Window((text,) if isinstance(text, str) else text)
    try:
        yield from _walk_items(window, key, name)
    except RecursionError as error:
        raise TraceError(
            f"{name}: the JSON is nested too deeply for a list of jobs. Choose another file."
        ) from error
    except json.JSONDecodeError as error:
        raise _invalid_json_error(error, name, window.before) from error
    except ValueError as error:
        raise TraceError(f"{name}: the JSON is not valid ({str(error)[:80]}).") from error


def _invalid_json_error(error: json.JSONDecodeError, name: str, before: int = 0) -> TraceError:
    """Return the error for JSON that is incomplete or not valid."""
    fault = error.msg.removesuffix(" at").removesuffix(" starting")
    return TraceError(
        f"{name}: the JSON is incomplete or not valid ({fault} at character"
        f" {before + error.pos:,})."
        " Download it again."
    )


@lru_cache(maxsize=16)
def first_item_paths(head: str, key: str) -> frozenset[str]:
    """Return the key paths of the first item, and ``path=value`` for short texts.

    For example ``status.phase`` and ``kind=Pod``, up to four levels deep. Empty if there is no
    item, or if the text ends within it.
    """
    try:
        first = next((value for _, value in read_items(head, key, "")), None)
    except TraceError:
        return frozenset()
    return frozenset(_walk_paths(first, "", 0))


def empty_lists(text: str, name: str) -> list[str]:
    """Return the keys of the lists of an object if all of its lists are empty, else [].

    Texts that are too long to decode also give [].

    Raises
    ------
    TraceError
        If it is neither JSON nor one JSON object per line.
    """
    if len(text) > MAX_WHOLE_CHARS:
        return []
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        # Valid: one object per line.
        if not error.msg.startswith("Extra data"):
            raise _invalid_json_error(error, name) from error
        return []
    except (ValueError, RecursionError):
        return []
    pairs = parsed.items() if isinstance(parsed, dict) else ()
    lists = {key: value for key, value in pairs if isinstance(value, list)}
    return [] if any(lists.values()) else list(lists)


def keys_in(value: Any, prefix: str = "", depth: int = 0) -> set[str]:
    """Return the key paths of an item, up to four levels deep."""
    if not isinstance(value, dict) or depth == 4:
        return set()
    paths = {f"{prefix}{key}" for key in value}
    return paths.union(
        *(keys_in(inner, f"{prefix}{key}.", depth + 1) for key, inner in value.items())
    )


def _walk_paths(value: Any, prefix: str, depth: int) -> Iterator[str]:
    """Yield the key paths of an item, and ``path=value`` for texts up to 64 characters.

    Up to four levels deep.
    """
    if isinstance(value, dict) and depth < 4:
        for key, inner in value.items():
            yield f"{prefix}{key}"
            if isinstance(inner, str) and len(inner) <= 64:
                yield f"{prefix}{key}={inner}"
            yield from _walk_paths(inner, f"{prefix}{key}.", depth + 1)


def _walk_items(window: _Window, key: str, name: str) -> Iterator[tuple[str, Any]]:
    """Yield (text, value) of each item; the first character and the key decide the layout."""
    at = window.skip(0)
    first = window.char_at(at)
    if first == "[" and not key:
        yield from _array_items(window, at, name)
    elif first == "{" and key:
        yield from _array_items(window, _find_list(window, at, key, name), name)
    elif first == "{":
        yield from _line_items(window, at, name)
    else:
        raise _no_list_error(name)


def _no_list_error(name: str) -> TraceError:
    """Return the error for JSON without a list of jobs."""
    return TraceError(
        f"{name}: the JSON is not a list of jobs of this format. Choose another format."
    )


def _find_list(window: _Window, at: int, key: str, name: str) -> int:
    """Return the index of the list under a key of the object at an index.

    Raises
    ------
    TraceError
        If the object has no list under this key.
    """
    at = window.skip(at + 1)
    while window.char_at(at) == '"':
        current_key, _, at = window.decode(at)
        at = window.skip(at)
        if window.char_at(at) != ":":
            break
        at = window.skip(at + 1)
        if current_key == key:
            if window.char_at(at) != "[":
                raise _no_list_error(name)
            return at
        _, _, at = window.decode(at)
        at = window.skip(at)
        if window.char_at(at) == ",":
            at = window.skip(at + 1)
    if window.char_at(at) == "}":
        raise _no_list_error(name)
    raise json.JSONDecodeError("an object ends too early", "", at)


def _array_items(window: _Window, at: int, name: str) -> Iterator[tuple[str, Any]]:
    """Yield (text, value) of each item of the list at an index.

    Raises
    ------
    TraceError
        If the list is empty, or an item is no object or too long.
    """
    at = window.skip(at + 1)
    if window.char_at(at) == "]":
        raise TraceError(f"{name}: the list of jobs is empty. Choose another file.")
    while True:
        value, at, end = window.decode(at)
        yield _check_item(window, at, end, value, name)
        at = window.skip(end)
        sign = window.char_at(at)
        if sign == "]":
            return
        if sign != ",":
            raise json.JSONDecodeError("a comma or the end of the list is missing", "", at)
        at = window.skip(at + 1)


def _line_items(window: _Window, at: int, name: str) -> Iterator[tuple[str, Any]]:
    """Yield (text, value) of each line; a truncated last line has the value None."""
    first = True
    while window.char_at(at):
        try:
            value, at, end = window.decode(at)
        except json.JSONDecodeError:
            if first or not window.last_line():
                raise
            # The file is truncated within its last line, which becomes an empty row.
            yield window.last_line(), None
            return
        yield _check_item(window, at, end, value, name)
        at, first = window.skip(end), False


def _check_item(window: _Window, at: int, end: int, value: Any, name: str) -> tuple[str, Any]:
    """Return text and value of an item, after checking that it is a short enough object."""
    if not isinstance(value, Mapping):
        raise TraceError(f"{name}: the JSON is not a list of jobs. Choose another file.")
    if end - at > MAX_ITEM_CHARS:
        raise TraceError(
            f"{name}: the item at character {window.before + at:,} has {end - at:,} characters,"
            f" more than {MAX_ITEM_CHARS:,}, so this is not a list of jobs."
        )
    return window.text[at:end], value
