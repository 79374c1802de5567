"""Kubernetes objects in YAML, parsed key by key with located errors and exact quantities."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import yaml

from sim.contract import ParameterError

UNITS: Final[Mapping[str, Fraction]] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", 1)},
}
_QUANTITY: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,2})|([A-Za-z]{0,2}))")
_MAX_QUANTITY_LENGTH: Final = 60
_TRUE: Final = frozenset({"true", "yes", "on"})
_FALSE: Final = frozenset({"false", "no", "off"})


def quantity(text: object) -> Fraction:
    """Parse a Kubernetes quantity: ``8``, ``500m``, ``2Ki``, ``1.5G``, ``1e3``, ``1E``.

    Raises
    ------
    ParameterError
        If the text is no quantity.
    """
    stripped = str(text).strip()
    match = _QUANTITY.fullmatch(stripped) if len(stripped) <= _MAX_QUANTITY_LENGTH else None
    if match is None or (match[3] or "") not in UNITS:
        raise ParameterError(
            f"{stripped[:40]!r} is no quantity. Write a number with a unit of Kubernetes, such as"
            " 8, 500m, 1k or 3Gi."
        )
    power = Fraction(10) ** int(match[2]) if match[2] else UNITS[match[3] or ""]
    return Fraction(match[1]) * power


def format_quantity(value: Fraction) -> str:
    """Return a quantity as exact text, in the largest binary unit that divides it.

    Without one, the unit is the coarsest of 1, m, u and n. `quantity` parses the same value.

    Raises
    ------
    ParameterError
        If the value is finer than the unit n, and cannot be written exactly.
    """
    for unit in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki") if value else ():
        if (value / UNITS[unit]).denominator == 1:
            return f"{value / UNITS[unit]}{unit}"
    for unit in ("", "m", "u", "n"):
        if (value / UNITS[unit]).denominator == 1:
            return f"{value / UNITS[unit]}{unit}"
    raise ParameterError(f"{float(value):g} is finer than any quantity of Kubernetes.")


class Fields:
    """A mapping inside an object; records its place and the keys that were read.

    Scalars stay texts, so that a queue may be called ``no`` or ``1E``. A key without a value counts
    as absent.

    Parameters
    ----------
    where : str
        Prefix of messages, such as "document 2 (ClusterQueue a)".
    path : str
        Path of this mapping, such as "spec.resourceGroups[0]".
    data : mapping
        The values.
    """

    __slots__ = ("_children", "_data", "_read_keys", "path", "where")

    def __init__(self, where: str, path: str, data: Mapping[Any, Any]) -> None:
        self.where, self.path = where, path
        self._data = {str(key): value for key, value in data.items() if value is not None}
        self._read_keys: set[str] = set()
        self._children: list[Fields] = []

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def text(self, key: str, default: str = "", choices: tuple[str, ...] = ()) -> str:
        """Return the value of a key as text, or the default; mark the key as read.

        Raises
        ------
        ParameterError
            If it is a list or a mapping, or none of the choices.
        """
        value = self._read_key(key, default)
        if isinstance(value, list | dict):
            raise self.error(key, f"is no plain value but a {_type_name(value)}")
        if choices and str(value) not in choices:
            raise self.error(key, f"is {str(value)[:40]!r}; it must be {' or '.join(choices)}")
        return str(value)

    def required_text(self, key: str) -> str:
        """Return the value of a key as text, which must be present and not empty.

        Raises
        ------
        ParameterError
            If it is missing.
        """
        if not (value := self.text(key)):
            raise self.error(key, "is missing")
        return value

    def integer(self, key: str, default: int | None = None) -> int | None:
        """Return the value of a key as an integer; the default if it is absent or empty.

        Raises
        ------
        ParameterError
            If it is none.
        """
        text = self.text(key)
        if not text:
            return default
        if re.fullmatch(r"[+-]?\d{1,18}", text) is None:
            raise self.error(key, f"is {text[:40]!r}; it must be a whole number")
        return int(text)

    def leaves(self) -> dict[str, str]:
        """Return the scalars at every depth as texts by path, such as ``spec.rules[0].name``.

        No key is marked as read.
        """
        values: dict[str, str] = {}
        pending: list[tuple[str, Any]] = [(self.path, self._data)]
        while pending:
            path, value = pending.pop()
            if isinstance(value, dict):
                pending += [
                    (f"{path}.{key}" if path else str(key), it) for key, it in value.items()
                ]
            elif isinstance(value, list):
                pending += [(f"{path}[{at}]", it) for at, it in enumerate(value)]
            elif value is not None:
                values[path] = str(value)
        return values

    def flag(self, key: str, default: bool = False) -> bool:
        """Return the value of a key as a boolean; the default if it is absent or empty.

        True, yes and on are true; false, no and off are false, in any case.

        Raises
        ------
        ParameterError
            If it is neither true nor false.
        """
        text = self.text(key).lower()
        if text and text not in _TRUE | _FALSE:
            raise self.error(key, f"is {text[:40]!r}; it must be true or false")
        return text in _TRUE if text else default

    def quantity(self, key: str, default: Fraction | None = None) -> Fraction | None:
        """Return the quantity of a key as an exact fraction; the default if it is absent.

        Raises
        ------
        ParameterError
            If it is none.
        """
        text = self.text(key)
        if not text:
            return default
        try:
            return quantity(text)
        except ParameterError as error:
            raise ParameterError(f"{self.where}: {self._path_of(key)}: {error}") from error

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of a key as texts; empty if the key is absent.

        Raises
        ------
        ParameterError
            If it is no list, or holds anything but plain values.
        """
        values = self._read_list(key)
        for at, value in enumerate(values):
            if value is None or isinstance(value, list | dict):
                raise self.error(f"{key}[{at}]", f"is no plain value but a {_type_name(value)}")
        return tuple(map(str, values))

    def mapping(self, key: str) -> Fields:
        """Return the mapping of a key as Fields; empty if the key is absent.

        Raises
        ------
        ParameterError
            If there is something else.
        """
        return self._add_child(key, self._read_key(key, {}))

    def mappings(self, key: str) -> tuple[Fields, ...]:
        """Return the list of mappings of a key as Fields; empty if the key is absent.

        Raises
        ------
        ParameterError
            If there is something else.
        """
        return tuple(
            self._add_child(f"{key}[{at}]", one) for at, one in enumerate(self._read_list(key))
        )

    def mark_all_read(self) -> None:
        """Mark all keys as read."""
        self._read_keys.update(self._data)

    def unread_keys(self) -> Iterator[str]:
        """Yield the paths of unread keys, here and in the mappings obtained from here."""
        yield from (self._path_of(key) for key in self._data if key not in self._read_keys)
        for child in self._children:
            yield from child.unread_keys()

    def error(self, key: str, what: str) -> ParameterError:
        """Return the error for an invalid value."""
        return ParameterError(f"{self.where}: {self._path_of(key)} {what}.")

    def _path_of(self, key: str) -> str:
        """Return the path of a key."""
        return f"{self.path}.{key}" if self.path else key

    def _read_key(self, key: str, default: Any) -> Any:
        """Return the value of a key, and mark it as read."""
        self._read_keys.add(key)
        return self._data.get(key, default)

    def _read_list(self, key: str) -> list[Any]:
        """Return the list of a key, and mark it as read; raise an error for other values."""
        values = self._read_key(key, [])
        if not isinstance(values, list):
            raise self.error(key, f"is no list but a {_type_name(values)}")
        return values

    def _add_child(self, key: str, data: Any) -> Fields:
        """Return a nested mapping as Fields, registered for `unread_keys`.

        Raises an error for other values.
        """
        if not isinstance(data, dict):
            raise self.error(key, f"is no mapping but a {_type_name(data)}")
        child = Fields(self.where, self._path_of(key), data)
        self._children.append(child)
        return child


@dataclass(frozen=True)
class Manifest:
    """A Kubernetes object.

    Attributes
    ----------
    where : str
        Its place and name, such as "document 2 (ClusterQueue a)".
    group : str
        API group: the part of ``apiVersion`` before the slash; "" = none.
    kind, name, namespace : str
        Kind, name and namespace; "" = not given.
    fields : Fields
        All of its keys.
    source : str
        Its text in the source.
    """

    where: str
    group: str
    kind: str
    name: str
    namespace: str
    fields: Fields
    source: str = field(default="", compare=False, repr=False)

    def unread_keys(self) -> list[str]:
        """Return the unread keys with their places, except ``metadata`` and ``status``."""
        return [f"{self.where}: {path}" for path in self.fields.unread_keys() if path != "status"]


def parse_manifests(text: str) -> tuple[Manifest, ...]:
    """Parse the objects of a YAML text: documents, and lists (``kind: List``).

    Raises
    ------
    ParameterError
        If the text is no YAML, a key is repeated in a mapping, a document is no object, or an
        object has no kind.
    """
    try:
        return tuple(_parse_documents(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise ParameterError(f"This is no YAML: {line}{error.problem or error.context}.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ParameterError(f"This is no YAML: {str(error).splitlines()[0]}.") from error
    except RecursionError as error:
        raise ParameterError("This YAML is nested too deeply to be read.") from error


def to_yaml(objects: Iterable[Mapping[str, Any]]) -> str:
    """Return objects as YAML text, one document each."""
    text: str = yaml.safe_dump_all(
        objects, sort_keys=False, allow_unicode=True, default_flow_style=False, width=100
    )
    return text


def _parse_documents(text: str) -> Iterator[Manifest]:
    """Yield the objects of all YAML documents; skip empty documents."""
    loader = _Loader(text)
    try:
        at = 0
        while loader.check_node():
            at += 1
            node = loader.get_node()
            data = loader.construct_document(node)
            if data is not None:
                yield from _parse_objects(data, node, text, f"document {at}")
    finally:
        loader.dispose()


def _parse_objects(data: Any, node: Any, text: str, where: str) -> Iterator[Manifest]:
    """Yield the objects of a document: one, or the items of a ``kind: List`` or a sequence."""
    if isinstance(data, dict) and data.get("kind") == "List":
        items = data.get("items", [])
        if not isinstance(items, list):
            raise ParameterError(f"{where}: items is no list but a {_type_name(items)}.")
        node = next((value for key, value in node.value if key.value == "items"), None)
        data = items
    if not isinstance(data, list):
        yield _parse_object(data, where, _source_text(node, text))
        return
    for number, one in enumerate(data, 1):
        yield _parse_object(
            one, f"{where}, item {number}", _source_text(node.value[number - 1], text)
        )


def _source_text(node: Any, text: str) -> str:
    """Return the source text of a YAML node, with the node's indentation removed."""
    first, *rest = text[node.start_mark.index : node.end_mark.index].rstrip().split("\n")
    left = node.start_mark.column
    moved = [line[left:] if not line[:left].strip() else line for line in rest]
    return "\n".join([first, *moved]) + "\n"


def _parse_object(data: Any, where: str, source: str) -> Manifest:
    """Return a mapping as a Manifest; mark kind, apiVersion and metadata as read."""
    if not isinstance(data, dict):
        what = repr(data)[:40] if isinstance(data, str) else f"a {_type_name(data)}"
        raise ParameterError(f"{where} is no object of Kubernetes but {what}.")
    fields = Fields(where, "", data)
    kind = fields.required_text("kind")
    about = fields.mapping("metadata")
    name, namespace = about.text("name"), about.text("namespace")
    about.mark_all_read()
    fields.where = f"{where} ({kind} {name})" if name else f"{where} ({kind})"
    group, slash, _ = fields.text("apiVersion").partition("/")
    return Manifest(fields.where, group if slash else "", kind, name, namespace, fields, source)


def _type_name(value: Any) -> str:
    """Return the YAML type of a value for messages."""
    return {"list": "list", "dict": "mapping", "NoneType": "null"}.get(type(value).__name__, "text")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML loader that keeps scalars as text, and refuses repeated keys and aliases.

    With aliases, a short text could expand to a huge or endless one.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node; raise ComposerError for an alias."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None, None, f"*{event.anchor}: write the value out", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping; raise ConstructorError for keys that repeat or are no text."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for at, key in enumerate(keys):
            if not isinstance(key, str) or key in keys[:at]:
                what = "comes twice" if isinstance(key, str) else "is no text"
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {str(key)[:40]!r} {what}", node.value[at][0].start_mark
                )
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


# Only null is resolved; all other scalars stay text.
_Loader.yaml_implicit_resolvers = {
    first: [entry for entry in entries if entry[0].endswith(":null")]
    for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
