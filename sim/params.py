"""Parameters as dataclass fields: the source of forms, JSON, CLI, sweeps and reference."""

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
MAX_FILE_LENGTH: Final = 2_000_000
"""Maximum length of a file text in a parameter, in letters."""
MAX_SPEC_DEPTH: Final = 8
"""Maximum nesting depth of specs; real wrappers nest two or three deep."""


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return a question that suggests the closest known word; "" = none is close."""
    matches = get_close_matches(word, list(candidates), 1)
    return f"Did you mean {matches[0]}?" if matches else ""


@dataclass(frozen=True, slots=True)
class Spec:
    """A registry name with parameters: the portable form of an allocator or model.

    Parameters
    ----------
    name : str
        Key of a registry.
    params : mapping
        Values that differ from the defaults: numbers, text, booleans, tuples of numbers, nested
        `Spec`.
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
        """Return the spec as plain values for a scenario file."""
        return {
            "name": self.name,
            "params": {key: _json_value(value) for key, value in self.params},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str) -> Spec:
        """Build a spec from the output of `to_json` or from the text form.

        Raises
        ------
        ParameterError
            If the data is neither, or nested too deeply.
        """
        return cls.parse(data) if isinstance(data, str) else _from_json(data, 1)

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Build a spec from its text form.

        ``name``, ``name:key=value,key=value`` or, nested,
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
        pairs = _parse_pairs(rest, text, 1) if rest else {}
        return cls.of(name.strip(), **pairs)

    def __str__(self) -> str:
        """Return the text form that `parse` reads."""
        body = ",".join(f"{key}={_to_text(value)}" for key, value in self.params)
        return f"{self.name}:{body}" if body else self.name


@dataclass(frozen=True, slots=True)
class ParamInfo:
    """Description of one parameter, for forms, the reference table and sweep axes."""

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
        """The label of the parameter, without its unit."""
        return self.given or self.name.replace("_", " ").capitalize()

    def label(self, choice: str) -> str:
        """Return the label of a choice."""
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
        Also determines the kind of the parameter.
    title : str
        Label in forms, without the unit; "" = the name with spaces.
    unit : str
        E.g. "s", "GPU-s", "GB"; "" for a pure number.
    low, high : float or None
        Bounds, both allowed values.
    choices : tuple of str
        The allowed values of a text; empty = any.
    labels : mapping of str
        Choice -> its label in forms; default: its name with spaces.
    file : str
        Usual name of the file whose text is the value, also instead of one of the `choices`.
        Command line and Python take its path, see `trainyard.study.files`.
    include : str
        The keyword of a line that includes another file, e.g. ``include``.
    help : str
        One sentence for the form and the reference.
    was : str
        Former name, still accepted and used in result keys; see `first_written`.
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
"""Parameters by class; reading annotations is the slowest step of building from a spec."""


def parameters(cls: type) -> tuple[ParamInfo, ...]:
    """Return the parameters of a dataclass in the order of its constructor.

    Keyword-only parameters come last.
    """
    if cls not in _DECLARED:
        hints = typing.get_type_hints(cls)
        _DECLARED[cls] = tuple(
            _field_info(item, hints[item.name])
            for item in sorted(dataclasses.fields(cls), key=lambda one: one.kw_only is True)
            if item.metadata.get("param")
        )
    return _DECLARED[cls]


def build(cls: type[T], spec: Spec) -> T:
    """Build an instance of a class from a spec, with every value checked.

    Raises
    ------
    ParameterError
        If a name is unknown, or a value is of the wrong kind or out of its bounds.
    """
    infos = {info.name: info for info in parameters(cls)}
    params = with_current_names(spec.name, cls, spec.values)
    for name in params:
        if name not in infos:
            raise ParameterError(
                f"{spec.name} has no parameter '{name}'. It has: {', '.join(infos) or 'none'}."
            )
    return cls(
        **{name: _convert_checked(spec.name, infos[name], value) for name, value in params.items()}
    )


def with_current_names(owner: str, cls: type, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters under their current names, accepting former names and values.

    Raises
    ------
    ParameterError
        If a parameter has both names, or its former name with a value that never existed.
    """
    former = {info.was: info for info in parameters(cls) if info.was}
    current = {}
    for name, value in params.items():
        info = former.get(name)
        if info is None:
            current[name] = value
            continue
        if info.name in params:
            raise ParameterError(
                f"{owner}: {info.name} is given twice, because {name} is its former name. Keep one"
                " of the two."
            )
        current_values = {was: value for value, was in info.were}
        if current_values and str(value) not in current_values:
            raise ParameterError(
                f"{owner}: {name} is called {info.name} now and takes {', '.join(info.choices)};"
                f" {name} = {value} is not one of {', '.join(current_values)}."
            )
        current[info.name] = current_values.get(str(value), value)
    return current


def with_former_names(cls: type, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters under their former names and values, as in keys of stored results.

    A new name therefore does not change the keys.
    """
    infos = {info.name: info for info in parameters(cls) if info.was}
    return {
        infos[name].was if name in infos else name: (
            dict(infos[name].were).get(str(value), value) if name in infos else value
        )
        for name, value in params.items()
    }


def spec_of(name: str, instance: Any) -> Spec:
    """Return the spec of an instance: the parameters that differ from their defaults."""
    values = {info.name: getattr(instance, info.name) for info in parameters(type(instance))}
    defaults = {info.name: info.default for info in parameters(type(instance))}
    return Spec.of(name, **{key: value for key, value in values.items() if value != defaults[key]})


def _field_info(item: dataclasses.Field[Any], hint: Any) -> ParamInfo:
    """Return the description of a dataclass field declared with `param`."""
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


def _convert_checked(owner: str, info: ParamInfo, value: Any) -> Any:
    """Convert a value to the kind of its parameter; refuse it if out of range or choices."""
    if info.kind == "numbers" and value == "" and info.default == ():
        return ()
    try:
        converted = _CONVERTERS[info.kind](value)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise ParameterError(
            f"{owner}: {info.name} = {value} is not {_KIND_LABELS[info.kind]}."
        ) from error
    if info.kind == "file" and is_file_text(converted):
        if len(converted) > MAX_FILE_LENGTH:
            raise ParameterError(
                f"{owner}: {info.name} has {len(converted):,} characters; a {info.file}"
                f" may have {MAX_FILE_LENGTH:,}."
            )
    elif info.choices and converted not in info.choices:
        if info.kind == "file":
            raise ParameterError(
                f"{owner}: {info.name} = {converted:.60} is neither one of"
                f" {', '.join(info.choices)} nor the text of a {info.file}."
            )
        raise ParameterError(
            f"{owner}: {info.name} = {value} is not one of {', '.join(info.choices)}."
        )
    elif info.kind == "file" and converted and converted not in info.choices:
        raise ParameterError(
            f"{owner}: {info.name} = {converted:.60} is not the text of a {info.file}. Paths of"
            " files are taken on the command line and by trainyard.api only."
        )
    numbers = converted if isinstance(converted, tuple) else (converted,)
    for number in numbers:
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            _check_bounds(owner, info, number)
    return converted


def is_file_text(value: Any) -> bool:
    """Return True if a value is the text of a file, not a path or a choice.

    Such a text has several lines or settings.
    """
    return isinstance(value, str) and ("\n" in value or "=" in value or "|" in value)


def _check_bounds(owner: str, info: ParamInfo, number: float) -> None:
    """Refuse a number outside the bounds of its parameter."""
    low = -math.inf if info.low is None else info.low
    high = math.inf if info.high is None else info.high
    if not low <= number <= high:
        unit = f" {info.unit}" if info.unit else ""
        raise ParameterError(
            f"{owner}: {info.name} = {number:g}{unit} is outside {low:g} to {high:g}."
        )


def _to_bool(value: Any) -> bool:
    """Convert yes/no, true/false, 1/0 or a boolean to a boolean."""
    if isinstance(value, bool):
        return value
    return {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}[
        str(value).lower()
    ]


def _to_int(value: Any) -> int:
    """Convert a value to an integer; refuse fractions and booleans."""
    if isinstance(value, bool) or float(value) != int(float(value)):
        raise ValueError(value)
    return int(float(value))


def _to_float(value: Any) -> float:
    """Convert a value to a float; refuse NaN and booleans."""
    if isinstance(value, bool) or math.isnan(float(value)):
        raise ValueError(value)
    return float(value)


def _to_numbers(value: Any) -> tuple[float, ...]:
    """Convert text such as "3250/7200", a sequence or a number to a tuple of floats."""
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


_CONVERTERS: Mapping[str, Any] = {
    "bool": _to_bool,
    "int": _to_int,
    "float": _to_float,
    "text": str,
    "file": str,
    "choice": str,
    "numbers": _to_numbers,
    "spec": _to_spec,
}
_KIND_LABELS = {
    "bool": "yes or no",
    "int": "a whole number",
    "float": "a number",
    "text": "text",
    "file": "the text of a file",
    "choice": "one of the choices",
    "numbers": "a list of numbers such as 3250/7200",
    "spec": "the name of an allocator",
}


def _json_value(value: Any) -> Any:
    """Return the JSON form of a value: tuples as lists, specs as tables, infinity as text."""
    if isinstance(value, Spec):
        return value.to_json()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _from_json(data: Any, depth: int) -> Spec:
    """Build a spec from its JSON form, at a nesting depth."""
    _check_depth(depth, "The parameters")
    try:
        return Spec.of(
            str(data["name"]),
            **{
                str(key): _value_from_json(value, depth)
                for key, value in data.get("params", {}).items()
            },
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ParameterError(
            f'\'{data}\' is not a name with parameters, e.g. {{"name": "fifo", "params": {{}}}}.'
        ) from error


def _value_from_json(value: Any, depth: int) -> Any:
    """Return the value of its JSON form: tables as specs, lists as tuples, others unchanged."""
    if isinstance(value, Mapping):
        return _from_json(value, depth + 1)
    return tuple(value) if isinstance(value, list) else value


def _check_depth(depth: int, what: str) -> None:
    """Refuse specs nested deeper than `MAX_SPEC_DEPTH`."""
    if depth > MAX_SPEC_DEPTH:
        raise ParameterError(
            f"{what} hold more than {MAX_SPEC_DEPTH} policies inside one another. Leave some"
            " of them out."
        )


def _parse_pairs(text: str, whole: str, depth: int) -> dict[str, Any]:
    """Parse ``key=value,key=value`` into a dictionary; `whole` is for messages."""
    _check_depth(depth, f"The brackets of '{whole[:40]}...'")
    pairs: dict[str, Any] = {}
    for part in _split_at_commas(text, whole):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ParameterError(f"'{part}' in '{whole}' is not of the form key=value.")
        if key in pairs:
            raise ParameterError(f"'{whole}' gives {key} twice. Keep one of the two.")
        pairs[key] = _parse_value(value.strip(), depth)
    return pairs


def _split_at_commas(text: str, whole: str) -> list[str]:
    """Split text at the commas that are outside all brackets; refuse unmatched brackets."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if letter == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    if depth != 0:
        raise ParameterError(f"The brackets in '{whole}' do not match.")
    return [*parts, text[start:]]


def _parse_value(text: str, depth: int, *, nested: bool = False) -> Any:
    """Return a nested spec such as ``las(k=v)``, else the text (with `nested`: refuse it)."""
    if text.endswith(")") and "(" in text:
        name, _, body = text[:-1].partition("(")
        return Spec.of(
            name.strip(), **(_parse_pairs(body, text, depth + 1) if body.strip() else {})
        )
    if nested:
        raise ParameterError(f"The brackets in '{text}' do not match.")
    return text


def _to_text(value: Any) -> str:
    """Return the text form of a parameter value; the text of a file becomes its digest."""
    if isinstance(value, Spec):
        return f"{value.name}({','.join(f'{key}={_to_text(item)}' for key, item in value.params)})"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "/".join(map(_to_text, value))
    if is_file_text(value):
        # For names and messages: a digest. Only the JSON form holds the text itself.
        return f"file-{hashlib.blake2b(value.encode(), digest_size=4).hexdigest()}"
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
