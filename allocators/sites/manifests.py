"""Objects of Kubernetes as YAML: read key by key, so that errors name their place and what nobody
read is known; quantities are exact.
"""

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
_LONGEST: Final = 60
_TRUE: Final = frozenset({"true", "yes", "on"})
_FALSE: Final = frozenset({"false", "no", "off"})


def quantity(text: object) -> Fraction:
    """Return the value of a quantity: ``8``, ``500m``, ``2Ki``, ``1.5G``, ``1e3``, ``1E``.

    Raises
    ------
    ParameterError
        If it is none.
    """
    written = str(text).strip()
    found = _QUANTITY.fullmatch(written) if len(written) <= _LONGEST else None
    if found is None or (found[3] or "") not in UNITS:
        raise ParameterError(
            f"{written[:40]!r} is no quantity. Write a number with a unit of Kubernetes, such as 8,"
            " 500m, 1k or 3Gi."
        )
    power = Fraction(10) ** int(found[2]) if found[2] else UNITS[found[3] or ""]
    return Fraction(found[1]) * power


def as_text(value: Fraction) -> str:
    """Write a quantity so that `quantity` reads the same value.

    Raises
    ------
    ParameterError
        If it is finer than the unit n, so that no quantity is exactly this.
    """
    for unit in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki") if value else ():
        if (value / UNITS[unit]).denominator == 1:
            return f"{value / UNITS[unit]}{unit}"
    for unit in ("", "m", "u", "n"):
        if (value / UNITS[unit]).denominator == 1:
            return f"{value / UNITS[unit]}{unit}"
    raise ParameterError(f"{float(value):g} is finer than any quantity of Kubernetes.")


class Fields:
    """A mapping inside an object, which knows where it stands and which keys were asked for.

    Scalars are texts, whatever YAML takes them for: a queue may be called ``no`` or ``1E``. A key
    without a value counts as absent.

    Parameters
    ----------
    where : str
        What messages begin with, such as "document 2 (ClusterQueue a)".
    path : str
        Keys that lead here, such as "spec.resourceGroups[0]".
    data : mapping
        The values.
    """

    __slots__ = ("_asked", "_data", "_inside", "path", "where")

    def __init__(self, where: str, path: str, data: Mapping[Any, Any]) -> None:
        self.where, self.path = where, path
        self._data = {str(key): value for key, value in data.items() if value is not None}
        self._asked: set[str] = set()
        self._inside: list[Fields] = []

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def text(self, key: str, default: str = "", choices: tuple[str, ...] = ()) -> str:
        """Return a text.

        Raises
        ------
        ParameterError
            If it is a list or a mapping, or none of the choices.
        """
        value = self._take(key, default)
        if isinstance(value, list | dict):
            raise self.wrong(key, f"is no plain value but a {_kind(value)}")
        if choices and str(value) not in choices:
            raise self.wrong(key, f"is {str(value)[:40]!r}; it must be {' or '.join(choices)}")
        return str(value)

    def needed(self, key: str) -> str:
        """Return a text that must be there.

        Raises
        ------
        ParameterError
            If it is missing.
        """
        if not (value := self.text(key)):
            raise self.wrong(key, "is missing")
        return value

    def whole(self, key: str, default: int | None = None) -> int | None:
        """Return a whole number.

        Raises
        ------
        ParameterError
            If it is none.
        """
        text = self.text(key)
        if not text:
            return default
        if re.fullmatch(r"[+-]?\d{1,18}", text) is None:
            raise self.wrong(key, f"is {text[:40]!r}; it must be a whole number")
        return int(text)

    def leaves(self) -> dict[str, str]:
        """Return all plain values by their paths."""
        found: dict[str, str] = {}
        left: list[tuple[str, Any]] = [(self.path, self._data)]
        while left:
            path, value = left.pop()
            if isinstance(value, dict):
                left += [(f"{path}.{key}" if path else str(key), it) for key, it in value.items()]
            elif isinstance(value, list):
                left += [(f"{path}[{at}]", it) for at, it in enumerate(value)]
            elif value is not None:
                found[path] = str(value)
        return found

    def flag(self, key: str, default: bool = False) -> bool:
        """Return whether something is on.

        Raises
        ------
        ParameterError
            If it is neither true nor false.
        """
        text = self.text(key).lower()
        if text and text not in _TRUE | _FALSE:
            raise self.wrong(key, f"is {text[:40]!r}; it must be true or false")
        return text in _TRUE if text else default

    def quantity(self, key: str, default: Fraction | None = None) -> Fraction | None:
        """Return a quantity, exactly.

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
            raise ParameterError(f"{self.where}: {self._at(key)}: {error}") from error

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts.

        Raises
        ------
        ParameterError
            If it is no list, or holds anything but plain values.
        """
        values = self._list(key)
        for at, value in enumerate(values):
            if value is None or isinstance(value, list | dict):
                raise self.wrong(f"{key}[{at}]", f"is no plain value but a {_kind(value)}")
        return tuple(map(str, values))

    def inside(self, key: str) -> Fields:
        """Return a mapping; empty where the key is absent.

        Raises
        ------
        ParameterError
            If there is something else.
        """
        return self._child(key, self._take(key, {}))

    def each(self, key: str) -> tuple[Fields, ...]:
        """Return a list of mappings.

        Raises
        ------
        ParameterError
            If there is something else.
        """
        return tuple(self._child(f"{key}[{at}]", one) for at, one in enumerate(self._list(key)))

    def ignore(self) -> None:
        """Take all keys as asked for."""
        self._asked.update(self._data)

    def unread(self) -> Iterator[str]:
        """Yield the paths of keys that nobody asked for."""
        yield from (self._at(key) for key in self._data if key not in self._asked)
        for child in self._inside:
            yield from child.unread()

    def wrong(self, key: str, what: str) -> ParameterError:
        """Return the error that something is wrong with a value."""
        return ParameterError(f"{self.where}: {self._at(key)} {what}.")

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _take(self, key: str, default: Any) -> Any:
        self._asked.add(key)
        return self._data.get(key, default)

    def _list(self, key: str) -> list[Any]:
        values = self._take(key, [])
        if not isinstance(values, list):
            raise self.wrong(key, f"is no list but a {_kind(values)}")
        return values

    def _child(self, key: str, data: Any) -> Fields:
        if not isinstance(data, dict):
            raise self.wrong(key, f"is no mapping but a {_kind(data)}")
        made = Fields(self.where, self._at(key), data)
        self._inside.append(made)
        return made


@dataclass(frozen=True)
class Manifest:
    """One object.

    Attributes
    ----------
    where : str
        Its place and name, such as "document 2 (ClusterQueue a)".
    group : str
        What stands before the slash of its ``apiVersion``; "" for none.
    kind, name, namespace : str
        What it is and is called; "" where that is not said.
    fields : Fields
        All of its keys.
    source : str
        Its part of the text.
    """

    where: str
    group: str
    kind: str
    name: str
    namespace: str
    fields: Fields
    source: str = field(default="", compare=False, repr=False)

    def unread(self) -> list[str]:
        """Return the keys that nobody asked for, each with its place; what Kubernetes itself writes
        (``metadata``, ``status``) does not count.
        """
        return [f"{self.where}: {path}" for path in self.fields.unread() if path != "status"]


def manifests(text: str) -> tuple[Manifest, ...]:
    """Read the objects of a YAML text: several documents, and lists of objects (``kind: List``).

    Raises
    ------
    ParameterError
        If it is no YAML, a key comes twice in a mapping, a document is no object, or an object does
        not say its kind.
    """
    try:
        return tuple(_read(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise ParameterError(f"This is no YAML: {line}{error.problem or error.context}.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ParameterError(f"This is no YAML: {str(error).splitlines()[0]}.") from error
    except RecursionError as error:
        raise ParameterError("This YAML is nested too deeply to be read.") from error


def written(objects: Iterable[Mapping[str, Any]]) -> str:
    """Return the YAML text of some objects, a document each."""
    text: str = yaml.safe_dump_all(
        objects, sort_keys=False, allow_unicode=True, default_flow_style=False, width=100
    )
    return text


def _read(text: str) -> Iterator[Manifest]:
    loader = _Loader(text)
    try:
        at = 0
        while loader.check_node():
            at += 1
            node = loader.get_node()
            data = loader.construct_document(node)
            if data is not None:
                yield from _objects(data, node, text, f"document {at}")
    finally:
        loader.dispose()


def _objects(data: Any, node: Any, text: str, where: str) -> Iterator[Manifest]:
    if isinstance(data, dict) and data.get("kind") == "List":
        items = data.get("items", [])
        if not isinstance(items, list):
            raise ParameterError(f"{where}: items is no list but a {_kind(items)}.")
        node = next((value for key, value in node.value if key.value == "items"), None)
        data = items
    if not isinstance(data, list):
        yield _object(data, where, _source(node, text))
        return
    for number, one in enumerate(data, 1):
        yield _object(one, f"{where}, item {number}", _source(node.value[number - 1], text))


def _source(node: Any, text: str) -> str:
    """Return the text of a node, moved to the left."""
    first, *rest = text[node.start_mark.index : node.end_mark.index].rstrip().split("\n")
    left = node.start_mark.column
    moved = [line[left:] if not line[:left].strip() else line for line in rest]
    return "\n".join([first, *moved]) + "\n"


def _object(data: Any, where: str, source: str) -> Manifest:
    if not isinstance(data, dict):
        what = repr(data)[:40] if isinstance(data, str) else f"a {_kind(data)}"
        raise ParameterError(f"{where} is no object of Kubernetes but {what}.")
    whole = Fields(where, "", data)
    kind = whole.needed("kind")
    about = whole.inside("metadata")
    name, namespace = about.text("name"), about.text("namespace")
    about.ignore()
    whole.where = f"{where} ({kind} {name})" if name else f"{where} ({kind})"
    group, slash, _ = whole.text("apiVersion").partition("/")
    return Manifest(whole.where, group if slash else "", kind, name, namespace, whole, source)


def _kind(value: Any) -> str:
    return {"list": "list", "dict": "mapping", "NoneType": "null"}.get(type(value).__name__, "text")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Leaves scalars as they are written; refuses a key that comes twice, and aliases, with which a
    short text stands for a very long one, or for one without end.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None, None, f"*{event.anchor}: write the value out", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for at, key in enumerate(keys):
            if not isinstance(key, str) or key in keys[:at]:
                what = "comes twice" if isinstance(key, str) else "is no text"
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {str(key)[:40]!r} {what}", node.value[at][0].start_mark
                )
        made: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return made


# Only null is told by its looks.
_Loader.yaml_implicit_resolvers = {
    first: [entry for entry in entries if entry[0].endswith(":null")]
    for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
