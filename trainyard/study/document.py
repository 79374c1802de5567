"""Documents as plain values: canonical JSON, a packed form for URLs, validated reading."""

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
from trainyard.study.catalog import former_names

MAX_BYTES: Final = 2_000_000
DEEPEST: Final = 50
"""Maximum nesting of tables and lists; a scenario has about ten levels."""


def canonical_json(data: Mapping[str, Any]) -> str:
    """Return JSON with sorted keys and no spaces."""
    return json.dumps(
        data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def parse_json(text: str, name: str) -> dict[str, Any]:
    """Return the object of a JSON text as a dict, checked.

    Raises
    ------
    ParameterError
        If the text is not JSON, not a table, nested too deeply, or has an invalid character.
    """
    deep = (
        f"{name}: this JSON is nested more than {DEEPEST} levels deep. Use a file that Save wrote."
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
            f"{name}: this JSON is not a table of settings. Use a file that Save wrote."
        )
    if _is_too_deep(data):
        raise ParameterError(deep)
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ParameterError(
            f"{name}: a text in this JSON contains half of a character. Use a file that Save wrote."
        ) from error
    return data


def _is_too_deep(data: Any) -> bool:
    """Return True if tables and lists are nested deeper than `DEEPEST`."""
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
"""Keys that affect no result: format, colors and names."""


def _drop_display_keys(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document without the keys that affect no result, also in its study and base."""
    inner = ("study", "base")
    return {
        key: _drop_display_keys(value) if key in inner else value
        for key, value in data.items()
        if key not in _NOT_HASHED
    }


def pack_document(data: Mapping[str, Any]) -> str:
    """Return a document as compressed URL-safe text."""
    packed = zlib.compress(canonical_json(data).encode(), 9)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def unpack_document(text: str) -> dict[str, Any]:
    """Return the document of a text from `pack_document`.

    Raises
    ------
    ParameterError
        If the text is damaged.
    """
    damaged = "The scenario in the URL is damaged. Copy the whole URL again."
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        decompressor = zlib.decompressobj()
        body = decompressor.decompress(packed, MAX_BYTES)
        if not decompressor.eof:
            raise ParameterError(damaged)
        return parse_json(body.decode(), "address")
    except (binascii.Error, ValueError, zlib.error) as error:
        raise ParameterError(damaged) from error


class Document(ABC):
    """A complete description of runs as plain values, to compare, hash, save and share."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the document as plain values."""

    @classmethod
    @abstractmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return a document from its plain values; raises `TrainyardError` if invalid."""

    def canonical(self) -> str:
        """Return a JSON text that is equal for equal documents.

        Colors, names and the format version make no difference.
        """
        return canonical_json(former_names(_drop_display_keys(self.to_json())))

    def pack(self) -> str:
        """Return the document as URL-safe text of a few hundred characters."""
        return pack_document(self.to_json())

    @classmethod
    def unpack(cls, text: str) -> Self:
        """Return the document of a text from `pack`.

        Raises
        ------
        TrainyardError
            If the text is damaged or not such a document.
        """
        return cls.from_json(unpack_document(text))


def number(name: str, value: Any) -> float:
    """Return a value as a float; NaN and booleans are invalid.

    Raises
    ------
    ParameterError
        If it is not a number.
    """
    try:
        result = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(f"{name} = {value} is not a number.") from error
    if math.isnan(result) or isinstance(value, bool):
        raise ParameterError(f"{name} = {value} is not a number.")
    return result


def whole_number(name: str, value: Any) -> int:
    """Return a value as an int of at least 0.

    Raises
    ------
    ParameterError
        If it is not a whole number, or negative.
    """
    result = number(name, value)
    if not 0 <= result < 2**53 or result != int(result):
        raise ParameterError(f"{name} = {value} is not a whole number from 0.")
    return int(result)


def finite(value: Any) -> Any:
    """Return None for an infinite number, which JSON cannot represent."""
    return None if isinstance(value, float) and math.isinf(value) else value


def checked_fields(description: str, data: Any, cls: type, *more: str) -> dict[str, Any]:
    """Return a table without "kind", after checking that its keys are known.

    Known = fields of the dataclass `cls`, `more` and "kind". Values are not checked.

    Raises
    ------
    ParameterError
        If it is not a table, or has another key.
    """
    if not isinstance(data, Mapping):
        raise ParameterError(
            f"The {description} is not a table of settings but {str(data)[:60]!r}."
        )
    names = [item.name for item in fields(cls)]
    for key in data:
        if key not in (*names, *more, "kind"):
            raise ParameterError(
                f"The {description} has no setting '{key}'. It has: {', '.join(names)}."
            )
    return {str(key): value for key, value in data.items() if key != "kind"}


def plain(value: Any) -> Any:
    """Return a value as JSON can represent it.

    NumPy numbers become Python numbers, non-finite numbers None.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value
