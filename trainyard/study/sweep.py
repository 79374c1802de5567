"""What a sweep is made of: a comparison, and settings of it that vary, in a grid or drawn at
random.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from sim.errors import ParameterError, TrainyardError
from trainyard.study import catalog
from trainyard.study.document import Document, canonical_json, checked_fields, number, whole
from trainyard.study.scenario import Scenario
from trainyard.study.settings import with_settings
from trainyard.study.study import Study

MOST_CELLS: Final = 100_000
MOST_AXES: Final = 4
_FIXED: Final = re.compile(
    r"allocators(\.\d+)?(\.name)?|allocator(\.name)?|baseline|repeats|base|kind|name|base\.(allocator|kind|name)(\..*)?"
)
"""Paths that would change what a sweep compares, not under which settings."""
_RANGE: Final = re.compile(r"([^,;:]+?)\.\.([^,;:]+)(?::([^:]*))?(?::([^:]*))?")
_DRAWS: Final = 20
"""Times as many draws as points are wanted, before fewer are found because they repeat."""


@dataclass(frozen=True)
class Axis:
    """A setting that varies.

    Parameters
    ----------
    path : str
        As for ``--set``: e.g. ``trace.load``, ``cluster.groups.0.count``, ``faults.mtbf_h``,
        ``estimator`` or ``estimator.sigma``, ``seed``, ``allocator.round_s`` (of every policy),
        ``allocators.1.round_s`` (of one).
    values : tuple
        What it takes in a grid.
    low, high : float or None
        A range, from which values are drawn at random instead of from `values`.
    log : bool
        Whether a range is logarithmic.

    Raises
    ------
    ParameterError
        If there is no value, or the range is empty.
    """

    path: str
    values: tuple[Any, ...] = ()
    low: float | None = None
    high: float | None = None
    log: bool = False

    def __post_init__(self) -> None:
        """Bring into present names, and check."""
        path, values = catalog.renamed_axis(self.path, self.values)
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "values", values)
        if not self.path or not all(self.path.split(".")):
            raise ParameterError(
                f"The axis '{self.path}' names no setting. Write it as for --set, e.g. trace.load."
            )
        if not self.values:
            raise ParameterError(f"The axis {self.path} has no values. Give at least one.")
        if _FIXED.fullmatch(self.path):
            raise ParameterError(
                f"{self.path} cannot vary in a sweep. Put all policies that are compared into the"
                " study, and repeats beside them."
            )
        try:
            marks = [canonical_json({"v": value}) for value in self.values]
        except (ValueError, TypeError) as error:
            raise ParameterError(
                f"The axis {self.path} has a value that no scenario can hold ({error}). Use"
                " numbers, texts or tables."
            ) from error
        if len(set(marks)) < len(marks):
            raise ParameterError(f"The axis {self.path} has a value twice. Keep one of them.")
        if (self.low is None) != (self.high is None):
            raise ParameterError(f"The range of the axis {self.path} has one end only. Give both.")
        if (
            self.low is not None
            and self.high is not None
            and not (self.low < self.high and (self.low > 0 or not self.log))
        ):
            raise ParameterError(
                f"The axis {self.path} cannot run from {self.low:g} to"
                f" {self.high:g}{' on a logarithmic scale' if self.log else ''}."
            )

    @classmethod
    def over(cls, path: str, low: float, high: float, steps: int, *, log: bool = False) -> Axis:
        """Build from a range: so many values at equal distances or ratios, whole numbers if both
        ends are and all steps can be.
        """
        if not (
            2 <= steps <= MOST_CELLS
            and low < high
            and math.isfinite(high - low)
            and (low > 0 or not log)
        ):
            raise ParameterError(
                f"The axis {path} cannot run from {low:g} to {high:g} in {steps}"
                f" steps{' on a logarithmic scale' if log else ''}."
            )
        made = np.geomspace(low, high, steps) if log else np.linspace(low, high, steps)
        entire = (
            float(low).is_integer()
            and float(high).is_integer()
            and high - low >= steps - 1
            and not np.any(np.diff(np.round(made)) < 1)
        )
        values: list[Any] = [
            round(value) if entire else float(f"{value:.6g}") for value in made.tolist()
        ]
        return cls(path, tuple(values), low, high, log)

    @property
    def title(self) -> str:
        """What the user reads."""
        return catalog.setting(self.path)

    @property
    def numeric(self) -> bool:
        """Whether all values are numbers, so that they make an axis of a chart."""
        return all(
            isinstance(value, (int, float)) and not isinstance(value, bool) for value in self.values
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        ends = {} if self.low is None else {"low": self.low, "high": self.high, "log": self.log}
        return {"path": self.path, "values": list(self.values), **ends}

    @classmethod
    def from_json(cls, data: Any) -> Axis:
        """Read what `to_json` wrote, or ``low``, ``high``, ``steps`` and ``log`` in place of
        values.

        Raises
        ------
        ParameterError
            If a key is unknown or a value cannot be used.
        """
        known = dict(data) if isinstance(data, Mapping) else {}
        steps = known.pop("steps", None)
        known = checked_fields("axis", known or data, cls)
        path, log = str(known.get("path", "")), known.get("log", False) is True
        if steps is not None and not known.get("values"):
            return cls.over(
                path,
                number(f"{path}: low", known.get("low")),
                number(f"{path}: high", known.get("high")),
                whole(f"{path}: steps", steps),
                log=log,
            )
        values = known.get("values", ())
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise ParameterError(f"The values of the axis {path} are no list but {values!r:.60}.")
        ends = {
            key: number(f"{path}: {key}", known[key])
            for key in ("low", "high")
            if known.get(key) is not None
        }
        return cls(path, tuple(values), log=log, **ends)


class SweepPoint(NamedTuple):
    """One combination of values, in the order of the axes."""

    values: tuple[Any, ...]


class Cell(NamedTuple):
    """One run of a sweep: places of the point, of the policy in the study, and of the repeat."""

    point: int
    policy: int
    repeat: int


@dataclass(frozen=True)
class Sweep(Document):
    """A comparison repeated while settings of it vary.

    Parameters
    ----------
    study : Study
        Policies, baseline, repeats, and everything that does not vary.
    axes : tuple of Axis
        What varies; the first is the x axis of curves.
    draw : int
        0 = every combination of values; else so many points drawn at random.
    draw_seed : int
        Of the draws.

    Raises
    ------
    ParameterError
        If nothing varies, a setting varies twice, or there are more than `MOST_CELLS` runs.
    """

    study: Study
    axes: tuple[Axis, ...]
    draw: int = 0
    draw_seed: int = 0

    def __post_init__(self) -> None:
        """Check."""
        object.__setattr__(self, "draw", whole("draw", self.draw))
        object.__setattr__(self, "draw_seed", whole("draw_seed", self.draw_seed))
        if not self.axes:
            raise ParameterError(
                "Nothing varies in this sweep. Choose at least one setting and its values."
            )
        if len(self.axes) > MOST_AXES:
            raise ParameterError(f"{len(self.axes)} settings vary; at most {MOST_AXES} may.")
        paths = [axis.path for axis in self.axes]
        if twice := [path for path in paths if paths.count(path) > 1]:
            raise ParameterError(f"The setting {twice[0]} varies twice. Keep one of both axes.")
        if self.runs > MOST_CELLS:
            raise ParameterError(
                f"This sweep has {self.runs:,} runs, more than {MOST_CELLS:,}. Take fewer values,"
                " policies or repeats, or draw points at random."
            )

    @property
    def count(self) -> int:
        """Number of points asked for."""
        return self.draw or math.prod(len(axis.values) for axis in self.axes)

    @property
    def runs(self) -> int:
        """Number of runs: points x policies x repeats."""
        return self.count * len(self.study.allocators) * self.study.repeats

    def points(self) -> tuple[SweepPoint, ...]:
        """Return the points: of a grid with the last axis varying fastest; drawn ones in the order
        of the draws, each once.
        """
        return self._points

    @cached_property
    def _points(self) -> tuple[SweepPoint, ...]:
        if not self.draw:
            return tuple(
                SweepPoint(values)
                for values in itertools.product(*(axis.values for axis in self.axes))
            )
        rng, found = np.random.default_rng(self.draw_seed), dict[str, SweepPoint]()
        there = (
            math.prod(len(axis.values) for axis in self.axes)
            if all(axis.low is None for axis in self.axes)
            else self.draw
        )
        for _ in range(self.draw * _DRAWS):
            point = SweepPoint(tuple(_drawn(axis, rng) for axis in self.axes))
            found.setdefault(canonical_json({"v": list(point.values)}), point)
            if len(found) == min(self.draw, there):
                break
        return tuple(found.values())

    def at(self, point: SweepPoint) -> Study:
        """Return the comparison at a point.

        Raises
        ------
        TrainyardError
            If a value cannot be used there.
        """
        changes = [
            f"{axis.path}={_text(value)}"
            for axis, value in zip(self.axes, point.values, strict=True)
        ]
        return Study.from_json(with_settings(self.study.to_json(), changes, "The axis"))

    def cells(self) -> Iterator[tuple[Cell, Scenario | TrainyardError]]:
        """Walk the runs: the first repeat of all points and policies, then the next, so that whole
        curves appear early.

        A point whose values cannot be used has the error in place of its scenarios.
        """
        studies: list[Study | TrainyardError] = []
        for point in self.points():
            try:
                studies.append(self.at(point))
            except TrainyardError as error:
                studies.append(error)
        for repeat in range(self.study.repeats):
            for at, study in enumerate(studies):
                for policy in range(len(self.study.allocators)):
                    cell = Cell(at, policy, repeat)
                    yield (
                        cell,
                        (
                            study
                            if isinstance(study, TrainyardError)
                            else _scenario(study, policy, repeat)
                        ),
                    )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        axes = [axis.to_json() for axis in self.axes]
        return {
            "kind": "sweep",
            "study": self.study.to_json(),
            "axes": axes,
            "draw": self.draw,
            "draw_seed": self.draw_seed,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Sweep:
        """Read what `to_json` wrote; ``axes`` may be a table of path -> values.

        Raises
        ------
        TrainyardError
            If a key is missing or unknown, or a value cannot be used.
        """
        known = checked_fields("sweep", data, cls)
        if not isinstance(known.get("study"), Mapping) or "axes" not in known:
            raise ParameterError(
                "A sweep needs 'study' (what Save wrote) and 'axes' (settings and their values)."
            )
        axes = known["axes"]
        rows = (
            [{"path": path, "values": values} for path, values in axes.items()]
            if isinstance(axes, Mapping)
            else axes
        )
        if not isinstance(rows, Sequence) or isinstance(rows, str):
            raise ParameterError(f"The axes of the sweep are no list but {axes!r:.60}.")
        return cls(
            Study.from_json(known.pop("study")),
            tuple(map(Axis.from_json, rows)),
            known.get("draw", 0),
            known.get("draw_seed", 0),
        )


def axis_from_text(text: str) -> Axis:
    """Read an axis as the command line takes it.

    Parameters
    ----------
    text : str
        ``path=value,value,...`` (``;`` between values that contain commas) or
        ``path=low..high:steps``, with ``:log`` after it for equal ratios.

    Raises
    ------
    ParameterError
        If it is not of that form.
    """
    path, equals, rest = text.partition("=")
    if not equals or not rest:
        raise ParameterError(
            f"--axis {text}: this is not of the form path=value,value or path=low..high:steps, e.g."
            " trace.load=0.6..1.1:6."
        )
    if found := _RANGE.fullmatch(rest):
        low, high, steps, log = found.groups()
        if log not in (None, "log"):
            raise ParameterError(f"--axis {text}: after the steps only 'log' may follow.")
        return Axis.over(
            path.strip(),
            number(path, low),
            number(path, high),
            whole(f"{path}: steps", steps or 5),
            log=log == "log",
        )
    parts = rest.strip(";").split(";") if ";" in rest else rest.split(",")
    return Axis(path.strip(), tuple(_value(part.strip()) for part in parts))


def _scenario(study: Study, policy: int, repeat: int) -> Scenario:
    return replace(study.base, allocator=study.allocators[policy], seed=study.base.seed + repeat)


def _drawn(axis: Axis, rng: np.random.Generator) -> Any:
    if axis.low is None or axis.high is None:
        return axis.values[int(rng.integers(len(axis.values)))]
    entire = (
        all(isinstance(one, int) for one in axis.values)
        and float(axis.low).is_integer()
        and float(axis.high).is_integer()
    )
    # Of whole numbers the ends come as often as any other: each is what lies nearest to it.
    low, high = (axis.low - 0.5, axis.high + 0.5) if entire else (axis.low, axis.high)
    value = (
        math.exp(float(rng.uniform(math.log(low), math.log(high))))
        if axis.log
        else float(rng.uniform(low, high))
    )
    return (
        min(max(round(value), int(axis.low)), int(axis.high)) if entire else float(f"{value:.6g}")
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
