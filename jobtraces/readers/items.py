"""The jobs of a JSON file one after the other, each as the text that the file writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from sim.errors import TraceError

LONGEST: Final = 1_000_000
"""Characters of one job."""
LONGEST_WHOLE: Final = 10_000_000
"""Characters of JSON that is unfolded as a whole, to say why it cannot be read."""
DEEPEST: Final = 64
REACH: Final = LONGEST + 100_000
"""Characters that are held after a place, as far as the text goes on: a job and what follows it."""
LONGEST_WORD: Final = len(r"\ud83d\ude00")
_BLANK: Final = re.compile(r"[ \t\r\n]*")


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no value of JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


class _Window:
    """The part of a text that is looked at: of a long one never the whole is held.

    Attributes
    ----------
    text : str
        The part.
    before : int
        Characters of the text before it.
    place : int
        Where the value begins that was decoded last, or could not be.
    """

    def __init__(self, parts: Iterable[str]) -> None:
        self._parts = iter(parts)
        self.text, self.before, self.place, self._more = "", 0, 0, True

    def skip(self, at: int) -> int:
        """Return where what comes after blanks is now; what is before it may be let go."""
        while True:
            while self._more and len(self.text) - at < REACH:
                at = self._grow(at)
            blank = _BLANK.match(self.text, at)
            at = blank.end() if blank else at
            if at < len(self.text) or not self._more:
                return at

    def sign(self, at: int) -> str:
        """Return the letter at a place, "" = the end of the text."""
        return self.text[at : at + 1]

    def decode(self, at: int) -> tuple[Any, int, int]:
        """Return the value that begins at a place, and where the place and the value's end are
        now.
        """
        while True:
            self.place = at
            try:
                value, end = _DECODER.raw_decode(self.text, at)
            except json.JSONDecodeError as error:
                # Of an escape or a word that is cut off the beginning is said, just before the end.
                near = error.pos >= len(self.text) - LONGEST_WORD
                cut = near or error.msg.startswith("Unterminated")
                if not (self._more and cut):
                    raise
            else:
                if end < len(self.text) or not self._more:
                    return value, at, end
            at = self._grow(at)

    def last_line(self) -> str:
        """Return the text from `place` if no line comes after it, else ""."""
        rest = self.text[self.place :]
        return "" if self._more or "\n" in rest.rstrip() else rest

    def _grow(self, at: int) -> int:
        part = next(self._parts, None)
        self._more = part is not None
        if part is not None:
            self.text, self.before = self.text[at:] + part, self.before + at
            return 0
        return at


def items(text: str | Iterable[str], key: str, name: str) -> Iterator[tuple[str, Any]]:
    """Yield text and value of each item.

    Parameters
    ----------
    text : str or iterable of str
        The file, as a whole or in parts.
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
    window = _Window((text,) if isinstance(text, str) else text)
    try:
        yield from _items(window, key, name)
    except RecursionError as error:
        raise TraceError(f"{name}: the JSON is nested too deeply to be a list of jobs.") from error
    except json.JSONDecodeError as error:
        raise _not_valid(error, name, window.before) from error
    except ValueError as error:
        raise TraceError(f"{name}: the JSON is not valid ({str(error)[:80]}).") from error


def _not_valid(error: json.JSONDecodeError, name: str, before: int = 0) -> TraceError:
    what = error.msg.removesuffix(" at").removesuffix(" starting")
    return TraceError(
        f"{name}: the JSON is not complete or not valid ({what} at character"
        f" {before + error.pos:,})."
        " Download it again."
    )


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


def empty_lists(text: str, name: str) -> list[str]:
    """Return the keys of the lists of an object, if it has some and all of them are empty; nothing
    is said of a text that is too long to be unfolded.

    Raises
    ------
    TraceError
        If it is no JSON, neither as a whole nor one object per line.
    """
    if len(text) > LONGEST_WHOLE:
        return []
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        # One object per line is no JSON as a whole.
        if not error.msg.startswith("Extra data"):
            raise _not_valid(error, name) from error
        return []
    except (ValueError, RecursionError):
        return []
    found = whole.items() if isinstance(whole, dict) else ()
    lists = {key: one for key, one in found if isinstance(one, list)}
    return [] if any(lists.values()) else list(lists)


def keys_in(value: Any, before: str = "", depth: int = 0) -> set[str]:
    """Return the key paths of an item, to the fourth level."""
    if not isinstance(value, dict) or depth == 4:
        return set()
    found = {f"{before}{key}" for key in value}
    return found.union(
        *(keys_in(inner, f"{before}{key}.", depth + 1) for key, inner in value.items())
    )


def _paths(value: Any, before: str, depth: int) -> Iterator[str]:
    if isinstance(value, dict) and depth < 4:
        for key, inner in value.items():
            yield f"{before}{key}"
            if isinstance(inner, str) and len(inner) <= 64:
                yield f"{before}{key}={inner}"
            yield from _paths(inner, f"{before}{key}.", depth + 1)


def _items(window: _Window, key: str, name: str) -> Iterator[tuple[str, Any]]:
    at = window.skip(0)
    first = window.sign(at)
    if first == "[" and not key:
        yield from _array(window, at, name)
    elif first == "{" and key:
        yield from _array(window, _list_at(window, at, key, name), name)
    elif first == "{":
        yield from _lines(window, at, name)
    else:
        raise _no_list(name)


def _no_list(name: str) -> TraceError:
    return TraceError(f"{name}: the JSON is not a list of jobs of this format. Choose another.")


def _list_at(window: _Window, at: int, key: str, name: str) -> int:
    """Return where the list of this key begins in the object that begins at `at`."""
    at = window.skip(at + 1)
    while window.sign(at) == '"':
        found, _, at = window.decode(at)
        at = window.skip(at)
        if window.sign(at) != ":":
            break
        at = window.skip(at + 1)
        if found == key:
            if window.sign(at) != "[":
                raise _no_list(name)
            return at
        _, _, at = window.decode(at)
        at = window.skip(at)
        if window.sign(at) == ",":
            at = window.skip(at + 1)
    if window.sign(at) == "}":
        raise _no_list(name)
    raise json.JSONDecodeError("an object ends too early", "", at)


def _array(window: _Window, at: int, name: str) -> Iterator[tuple[str, Any]]:
    at = window.skip(at + 1)
    if window.sign(at) == "]":
        raise TraceError(f"{name}: the list of jobs is empty. Choose another file.")
    while True:
        value, at, end = window.decode(at)
        yield _checked(window, at, end, value, name)
        at = window.skip(end)
        sign = window.sign(at)
        if sign == "]":
            return
        if sign != ",":
            raise json.JSONDecodeError("a comma or the end of the list is missing", "", at)
        at = window.skip(at + 1)


def _lines(window: _Window, at: int, name: str) -> Iterator[tuple[str, Any]]:
    first = True
    while window.sign(at):
        try:
            value, at, end = window.decode(at)
        except json.JSONDecodeError:
            if first or not window.last_line():
                raise
            # The file was cut off within its last line, which is a row that says nothing.
            yield window.last_line(), None
            return
        yield _checked(window, at, end, value, name)
        at, first = window.skip(end), False


def _checked(window: _Window, at: int, end: int, value: Any, name: str) -> tuple[str, Any]:
    if not isinstance(value, Mapping):
        raise TraceError(f"{name}: the JSON is not a list of jobs. Choose another file.")
    if end - at > LONGEST:
        raise TraceError(
            f"{name}: the item at character {window.before + at:,} has {end - at:,} characters,"
            f" more than {LONGEST:,}; this is no list of jobs."
        )
    return window.text[at:end], value
