"""Plain documents: canonical JSON, the short form for addresses, and values read from them with a
sentence for each mistake.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, Self

from sim.errors import ParameterError
from trainyard.study.catalog import first_written

MAX_BYTES: Final = 2_000_000
DEEPEST: Final = 50
"""Most tables and lists inside one another; a scenario has about ten."""


def canonical_json(data: Mapping[str, Any]) -> str:
    """Return JSON with sorted keys and nothing superfluous."""
    return json.dumps(
        data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def parse_json(text: str, name: str) -> dict[str, Any]:
    """Read one JSON table.

    Raises
    ------
    ParameterError
        If the text is no JSON, no table, nested too deeply, or holds what no text can hold.
    """
    deep = (
        f"{name}: this JSON holds more than {DEEPEST} tables or lists inside one another. Use a"
        " file that Save wrote."
    )
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise ParameterError(deep) from error
    except ValueError as error:
        raise ParameterError(
            f"{name}: this is not JSON ({error}). Use a file that Save wrote."
        ) from error
    if not isinstance(data, dict):
        raise ParameterError(
            f"{name}: this JSON holds no table of settings. Use a file that Save wrote."
        )
    if _too_deep(data):
        raise ParameterError(deep)
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ParameterError(
            f"{name}: a text in this JSON holds half of a character, which cannot be shown. Use a"
            " file that Save wrote."
        ) from error
    return data


def _too_deep(data: Any) -> bool:
    level = [data]
    for _ in range(DEEPEST):
        inner = [
            tuple(item.values()) if isinstance(item, dict) else item
            for item in level
            if isinstance(item, (dict, list))
        ]
        level = [item for items in inner for item in items]
    return any(isinstance(item, (dict, list)) for item in level)


_NOT_HASHED: Final = ("format", "slots", "names")
"""What documents hold that changes no result: how they are written, colours and names."""


def _without_looks(data: Mapping[str, Any]) -> dict[str, Any]:
    inner = ("study", "base")
    return {
        key: _without_looks(value) if key in inner else value
        for key, value in data.items()
        if key not in _NOT_HASHED
    }


def pack_document(data: Mapping[str, Any]) -> str:
    """Return a document as URL-safe text."""
    packed = zlib.compress(canonical_json(data).encode(), 9)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def unpack_document(text: str) -> dict[str, Any]:
    """Read what `pack_document` wrote.

    Raises
    ------
    ParameterError
        If the text is damaged.
    """
    damaged = "The scenario in the address is damaged. Copy the whole address again."
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        opened = zlib.decompressobj()
        body = opened.decompress(packed, MAX_BYTES)
        if not opened.eof:
            raise ParameterError(damaged)
        return parse_json(body.decode(), "address")
    except (binascii.Error, ValueError, zlib.error) as error:
        raise ParameterError(damaged) from error


class Document(ABC):
    """What says completely what is to be run: written as plain values, so that it can be compared,
    hashed, saved and put into an address.
    """

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return plain values."""

    @classmethod
    @abstractmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; raises a `TrainyardError` if it cannot be used."""

    def canonical(self) -> str:
        """Return the JSON text that is the same for equal ones, byte for byte, whatever their
        colours and the format that they were read from.
        """
        return canonical_json(first_written(_without_looks(self.to_json())))

    def pack(self) -> str:
        """Return a short form for an address: URL-safe text of some hundred characters."""
        return pack_document(self.to_json())

    @classmethod
    def unpack(cls, text: str) -> Self:
        """Read what `pack` wrote.

        Raises
        ------
        TrainyardError
            If the text is damaged or does not hold one.
        """
        return cls.from_json(unpack_document(text))


def number(name: str, value: Any) -> float:
    """Return a float; NaN and yes/no are none.

    Raises
    ------
    ParameterError
        If it is no number.
    """
    try:
        made = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(f"{name} = {value} is not a number.") from error
    if math.isnan(made) or isinstance(value, bool):
        raise ParameterError(f"{name} = {value} is not a number.")
    return made


def whole(name: str, value: Any) -> int:
    """Return an int from 0.

    Raises
    ------
    ParameterError
        If it is no whole number, or negative.
    """
    made = number(name, value)
    if not 0 <= made < 2**53 or made != int(made):
        raise ParameterError(f"{name} = {value} is not a whole number from 0.")
    return int(made)


def finite(value: Any) -> Any:
    """Return null for an infinite number, which JSON cannot hold."""
    return None if isinstance(value, float) and math.isinf(value) else value


def settings(what: str, data: Any, cls: type, *more: str) -> dict[str, Any]:
    """Return a table whose keys are fields of a dataclass, or one of `more`.

    Raises
    ------
    ParameterError
        If it is no table, or has another key.
    """
    if not isinstance(data, Mapping):
        raise ParameterError(f"The {what} is not a table of settings but {str(data)[:60]!r}.")
    names = [item.name for item in fields(cls)]
    for key in data:
        if key not in (*names, *more, "kind"):
            raise ParameterError(f"The {what} has no setting '{key}'. It has: {', '.join(names)}.")
    return {str(key): value for key, value in data.items() if key != "kind"}


def plain(value: Any) -> Any:
    """Return what JSON can hold: numbers of numpy as Python's, what is not finite as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value
