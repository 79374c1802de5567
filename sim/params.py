"""Parameters declared once as dataclass fields: forms, JSON, command line, sweeps and the reference
page are derived from them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from sim.errors import ParameterError

T = TypeVar("T")
LONGEST_FILE: Final = 2_000_000
"""Letters of a file that a parameter holds."""
DEEPEST: Final = 8
"""Most specs inside one another: policies that hold policies hold two or three."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question that names the known word most like a misspelt one; "" = none is."""
    found = get_close_matches(word, list(known), 1)
    return f"Did you mean {found[0]}?" if found else ""


@dataclass(frozen=True, slots=True)
class Spec:
    """A name and its parameters: how allocators and models are written down and cross process
    borders.

    Parameters
    ----------
    name : str
        Key of a registry.
    params : mapping
        Only what differs from the defaults; values are plain (numbers, text, booleans, tuples of
        numbers, nested `Spec`).
    """

    name: str
    params: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, name: str, /, **params: Any) -> Spec:
        """Build a spec from keyword arguments, in canonical order."""
        return cls(name, tuple(sorted(params.items())))

    @property
    def values(self) -> dict[str, Any]:
        """The parameters as a dictionary."""
        return dict(self.params)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a scenario file."""
        return {"name": self.name, "params": {key: _plain(value) for key, value in self.params}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str) -> Spec:
        """Read what `to_json` wrote, or the text form.

        Raises
        ------
        ParameterError
            If it is neither, or nested too deeply.
        """
        return cls.parse(data) if isinstance(data, str) else _from_json(data, 1)

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Read ``name``, ``name:key=value,key=value`` or, nested,
        ``dlrover:inner=las(thresholds=3250/7200)``.

        Raises
        ------
        ParameterError
            If a part is not of the form key=value, a key comes twice, brackets do not match or are
            nested too deeply.
        """
        name, _, rest = text.strip().partition(":")
        if "(" in name:
            return _parse_value(text.strip(), 1, nested=True)  # type: ignore[no-any-return]
        pairs = _pairs(rest, text, 1) if rest else {}
        return cls.of(name.strip(), **pairs)

    def __str__(self) -> str:
        """Write the text form that `parse` reads."""
        body = ",".join(f"{key}={_write(value)}" for key, value in self.params)
        return f"{self.name}:{body}" if body else self.name


@dataclass(frozen=True, slots=True)
class ParamInfo:
    """What is known of one parameter; the row that a form, a table of the reference and a sweep
    axis are made of.
    """

    name: str
    kind: str  # "bool" | "int" | "float" | "text" | "file" | "choice" | "numbers" | "spec"
    default: Any
    unit: str
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    help: str
    was: str = ""
    were: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    given: str = ""
    file: str = ""
    include: str = ""

    @property
    def title(self) -> str:
        """The parameter in words, without its unit."""
        return self.given or self.name.replace("_", " ").capitalize()

    def label(self, choice: str) -> str:
        """Return a choice in words."""
        return dict(self.labels).get(choice, choice.replace("_", " ").capitalize())


def param(  # noqa: PLR0913 - keywords of a declaration
    default: Any,
    *,
    title: str = "",
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    labels: Mapping[str, str] = MappingProxyType({}),
    file: str = "",
    include: str = "",
    help: str = "",
    was: str = "",
    were: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Declare a dataclass field as a parameter.

    Parameters
    ----------
    default : bool, int, float, str, tuple of float, or Spec
        Also settles the kind of the parameter.
    title : str
        What forms call it, in words and without the unit; "" = its name with spaces.
    unit : str
        E.g. "s", "GPU-s", "GB"; "" for a pure number.
    low, high : float or None
        Bounds, both allowed values.
    choices : tuple of str
        The values that a text may have; empty = any.
    labels : mapping of str
        Choice -> what forms call it, in words; a choice that is not there is written with spaces.
    file : str
        The usual name of the file whose text this is; such a text may be given instead of one of
        the `choices`. Command line and Python take its path, see `trainyard.study.files`.
    include : str
        The word with which a line of such a file names another one whose lines take its place.
    help : str
        One sentence for the form and the reference.
    was : str
        Its former name, which is still read; keys of results are made of it, see `first_written`.
    were : mapping
        Value -> its former spelling.
    """
    return field(
        default=default,
        metadata={
            "param": True,
            "title": title,
            "unit": unit,
            "low": low,
            "high": high,
            "choices": choices,
            "help": help,
            "was": was,
            "were": tuple(were.items()),
            "labels": tuple(labels.items()),
            "file": file,
            "include": include,
        },
    )


_DECLARED: Final = WeakKeyDictionary[type, tuple[ParamInfo, ...]]()
"""Reading the annotations of a class takes longer than all else that is done with a spec."""


def parameters(cls: type) -> tuple[ParamInfo, ...]:
    """List the parameters of a dataclass in the order of its constructor: as declared, those that
    are keywords only last.
    """
    if cls not in _DECLARED:
        hints = typing.get_type_hints(cls)
        _DECLARED[cls] = tuple(
            _info(item, hints[item.name])
            for item in sorted(dataclasses.fields(cls), key=lambda one: one.kw_only is True)
            if item.metadata.get("param")
        )
    return _DECLARED[cls]


def build(cls: type[T], spec: Spec) -> T:
    """Make an instance from a spec, with every value checked.

    Raises
    ------
    ParameterError
        If a name is unknown, or a value is of the wrong kind or out of its bounds.
    """
    known = {info.name: info for info in parameters(cls)}
    params = renamed(spec.name, cls, spec.values)
    for name in params:
        if name not in known:
            raise ParameterError(
                f"{spec.name} has no parameter '{name}'. It has: {', '.join(known) or 'none'}."
            )
    return cls(**{name: _checked(spec.name, known[name], value) for name, value in params.items()})


def renamed(owner: str, cls: type, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters under their present names, whichever they are given by.

    Raises
    ------
    ParameterError
        If a parameter is given by both names, or by its former name with a value that it never had.
    """
    former = {info.was: info for info in parameters(cls) if info.was}
    made = {}
    for name, value in params.items():
        info = former.get(name)
        if info is None:
            made[name] = value
            continue
        if info.name in params:
            raise ParameterError(
                f"{owner}: {info.name} is given twice, because {name} is its former name. Keep one"
                " of the two."
            )
        now = {was: value for value, was in info.were}
        if now and str(value) not in now:
            raise ParameterError(
                f"{owner}: {name} is called {info.name} now and takes {', '.join(info.choices)};"
                f" {name} = {value} is not one of {', '.join(now)}."
            )
        made[info.name] = now.get(str(value), value)
    return made


def first_written(cls: type, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters under their former names, as plain values: what keys of stored results are
    made of, so that a new name does not change them.
    """
    known = {info.name: info for info in parameters(cls) if info.was}
    return {
        known[name].was if name in known else name: (
            dict(known[name].were).get(str(value), value) if name in known else value
        )
        for name, value in params.items()
    }


def spec_of(name: str, instance: Any) -> Spec:
    """Write down an instance: the parameters that differ from their defaults."""
    values = {info.name: getattr(instance, info.name) for info in parameters(type(instance))}
    defaults = {info.name: info.default for info in parameters(type(instance))}
    return Spec.of(name, **{key: value for key, value in values.items() if value != defaults[key]})


def _info(item: dataclasses.Field[Any], hint: Any) -> ParamInfo:
    meta = item.metadata
    kinds = {
        bool: "bool",
        int: "int",
        float: "float",
        str: "file" if meta["file"] else "choice" if meta["choices"] else "text",
        Spec: "spec",
    }
    kind = kinds.get(hint, "numbers" if typing.get_origin(hint) is tuple else "text")
    return ParamInfo(
        item.name,
        kind,
        item.default,
        meta["unit"],
        meta["low"],
        meta["high"],
        meta["choices"],
        meta["help"],
        meta["was"],
        meta["were"],
        meta["labels"],
        meta["title"],
        meta["file"],
        meta["include"],
    )


def _checked(owner: str, info: ParamInfo, value: Any) -> Any:
    try:
        made = _CONVERT[info.kind](value)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise ParameterError(
            f"{owner}: {info.name} = {value} is not {_WANTED[info.kind]}."
        ) from error
    if info.kind == "file" and is_file_text(made):
        if len(made) > LONGEST_FILE:
            raise ParameterError(
                f"{owner}: {info.name} has {len(made):,} letters; {LONGEST_FILE:,} is the most that"
                f" a {info.file} may have."
            )
    elif info.choices and made not in info.choices:
        if info.kind == "file":
            raise ParameterError(
                f"{owner}: {info.name} = {made:.60} is neither one of {', '.join(info.choices)}"
                f" nor the text of a {info.file}."
            )
        raise ParameterError(
            f"{owner}: {info.name} = {value} is not one of {', '.join(info.choices)}."
        )
    elif info.kind == "file" and made and made not in info.choices:
        raise ParameterError(
            f"{owner}: {info.name} = {made:.60} is not the text of a {info.file}. Paths of files"
            " are taken on the command line and by trainyard.api only."
        )
    numbers = made if isinstance(made, tuple) else (made,)
    for number in numbers:
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            _check_bounds(owner, info, number)
    return made


def is_file_text(value: Any) -> bool:
    """Tell whether a value is the text of a file, not its path or a choice: it has lines or
    settings.
    """
    return isinstance(value, str) and ("\n" in value or "=" in value or "|" in value)


def _check_bounds(owner: str, info: ParamInfo, number: float) -> None:
    low = -math.inf if info.low is None else info.low
    high = math.inf if info.high is None else info.high
    if not low <= number <= high:
        unit = f" {info.unit}" if info.unit else ""
        raise ParameterError(
            f"{owner}: {info.name} = {number:g}{unit} is outside {low:g} to {high:g}."
        )


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}[
        str(value).lower()
    ]


def _to_int(value: Any) -> int:
    if isinstance(value, bool) or float(value) != int(float(value)):
        raise ValueError(value)
    return int(float(value))


def _to_float(value: Any) -> float:
    if isinstance(value, bool) or math.isnan(float(value)):
        raise ValueError(value)
    return float(value)


def _to_numbers(value: Any) -> tuple[float, ...]:
    parts = (
        value.split("/")
        if isinstance(value, str)
        else value
        if isinstance(value, (tuple, list))
        else (value,)
    )
    return tuple(_to_float(part) for part in parts)


def _to_spec(value: Any) -> Spec:
    return value if isinstance(value, Spec) else Spec.from_json(value)


_CONVERT: Mapping[str, Any] = {
    "bool": _to_bool,
    "int": _to_int,
    "float": _to_float,
    "text": str,
    "file": str,
    "choice": str,
    "numbers": _to_numbers,
    "spec": _to_spec,
}
_WANTED = {
    "bool": "yes or no",
    "int": "a whole number",
    "float": "a number",
    "text": "text",
    "file": "the text of a file",
    "choice": "one of the choices",
    "numbers": "a list of numbers such as 3250/7200",
    "spec": "the name of an allocator",
}


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.to_json()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _from_json(data: Any, depth: int) -> Spec:
    _check_depth(depth, "The parameters")
    try:
        return Spec.of(
            str(data["name"]),
            **{str(key): _revive(value, depth) for key, value in data.get("params", {}).items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ParameterError(
            f'\'{data}\' is not a name with parameters, e.g. {{"name": "fifo", "params": {{}}}}.'
        ) from error


def _revive(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return _from_json(value, depth + 1)
    return tuple(value) if isinstance(value, list) else value


def _check_depth(depth: int, what: str) -> None:
    if depth > DEEPEST:
        raise ParameterError(
            f"{what} hold more than {DEEPEST} policies inside one another. Leave some of them out."
        )


def _pairs(text: str, whole: str, depth: int) -> dict[str, Any]:
    _check_depth(depth, f"The brackets of '{whole[:40]}...'")
    pairs: dict[str, Any] = {}
    for part in _split(text, whole):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ParameterError(f"'{part}' in '{whole}' is not of the form key=value.")
        if key in pairs:
            raise ParameterError(f"'{whole}' gives {key} twice. Keep one of the two.")
        pairs[key] = _parse_value(value.strip(), depth)
    return pairs


def _split(text: str, whole: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    if depth != 0:
        raise ParameterError(f"The brackets in '{whole}' do not match.")
    return [*parts, text[start:]]


def _parse_value(text: str, depth: int, *, nested: bool = False) -> Any:
    if text.endswith(")") and "(" in text:
        name, _, body = text[:-1].partition("(")
        return Spec.of(name.strip(), **(_pairs(body, text, depth + 1) if body.strip() else {}))
    if nested:
        raise ParameterError(f"The brackets in '{text}' do not match.")
    return text


def _write(value: Any) -> str:
    if isinstance(value, Spec):
        return f"{value.name}({','.join(f'{key}={_write(item)}' for key, item in value.params)})"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "/".join(map(_write, value))
    if is_file_text(value):
        # Names and messages are made of it; the text itself is in the JSON form only.
        return f"file-{hashlib.blake2b(value.encode(), digest_size=4).hexdigest()}"
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
