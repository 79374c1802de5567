"""The definition of a sweep: a comparison and the settings of it that vary."""

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
from trainyard.study.document import Document, canonical_json, checked_fields, number, whole_number
from trainyard.study.scenario import Scenario
from trainyard.study.settings import parse_value, with_settings
from trainyard.study.study import Study

MAX_CELLS: Final = 100_000
MAX_AXES: Final = 4
_FIXED: Final = re.compile(
    r"allocators(\.\d+)?(\.name)?|allocator(\.name)?|baseline|repeats|base|kind|name|base\.(allocator|kind|name)(\..*)?"
)
"""Paths that cannot vary, because they define what a sweep compares."""
_RANGE: Final = re.compile(r"([^,;:]+?)\.\.([^,;:]+)(?::([^:]*))?(?::([^:]*))?")
_DRAWS: Final = 20
"""Maximum draws per requested point; repeated draws are dropped."""


@dataclass(frozen=True)
class Axis:
    """A setting that varies, with its values or range.

    Parameters
    ----------
    path : str
        As for ``--set``: e.g. ``trace.load``, ``cluster.groups.0.count``, ``faults.mtbf_h``,
        ``estimator`` or ``estimator.sigma``, ``seed``, ``allocator.round_s`` (of every policy),
        ``allocators.1.round_s`` (of one).
    values : tuple
        Values in a grid.
    low, high : float or None
        Range to draw random values from, instead of `values`.
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
        """Convert former names, and validate the values."""
        path, values = catalog.current_axis(self.path, self.values)
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
                f"{self.path} cannot vary in a sweep. Set the compared policies and the repeats in"
                " the study instead."
            )
        try:
            texts = [canonical_json({"v": value}) for value in self.values]
        except (ValueError, TypeError) as error:
            raise ParameterError(
                f"The axis {self.path} has a value that no scenario can hold ({error}). Use"
                " numbers, texts or tables."
            ) from error
        if len(set(texts)) < len(texts):
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
        """Return an axis with equally spaced values of a range, on a linear or log scale.

        Values are whole numbers if both ends are whole and all steps can be. Raises ParameterError
        if the range is empty or has fewer than two steps.
        """
        if not (
            2 <= steps <= MAX_CELLS
            and low < high
            and math.isfinite(high - low)
            and (low > 0 or not log)
        ):
            raise ParameterError(
                f"The axis {path} cannot run from {low:g} to {high:g} in {steps}"
                f" steps{' on a logarithmic scale' if log else ''}."
            )
        spaced = np.geomspace(low, high, steps) if log else np.linspace(low, high, steps)
        is_whole = (
            float(low).is_integer()
            and float(high).is_integer()
            and high - low >= steps - 1
            and not np.any(np.diff(np.round(spaced)) < 1)
        )
        values: list[Any] = [
            round(value) if is_whole else float(f"{value:.6g}") for value in spaced.tolist()
        ]
        return cls(path, tuple(values), low, high, log)

    @property
    def title(self) -> str:
        """Title of the setting for users."""
        return catalog.setting_title(self.path)

    @property
    def numeric(self) -> bool:
        """Whether all values are numbers, as an axis of a chart needs."""
        return all(
            isinstance(value, (int, float)) and not isinstance(value, bool) for value in self.values
        )

    def to_json(self) -> dict[str, Any]:
        """Return the axis as plain values."""
        ends = {} if self.low is None else {"low": self.low, "high": self.high, "log": self.log}
        return {"path": self.path, "values": list(self.values), **ends}

    @classmethod
    def from_json(cls, data: Any) -> Axis:
        """Return an axis from `to_json`, or from ``low``, ``high``, ``steps`` and ``log``.

        Raises
        ------
        ParameterError
            If a key is unknown or a value cannot be used.
        """
        fields = dict(data) if isinstance(data, Mapping) else {}
        steps = fields.pop("steps", None)
        fields = checked_fields("axis", fields or data, cls)
        path, log = str(fields.get("path", "")), fields.get("log", False) is True
        if steps is not None and not fields.get("values"):
            return cls.over(
                path,
                number(f"{path}: low", fields.get("low")),
                number(f"{path}: high", fields.get("high")),
                whole_number(f"{path}: steps", steps),
                log=log,
            )
        values = fields.get("values", ())
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise ParameterError(
                f"The values of the axis {path} are not a list but {values!r:.60}."
            )
        ends = {
            key: number(f"{path}: {key}", fields[key])
            for key in ("low", "high")
            if fields.get(key) is not None
        }
        return cls(path, tuple(values), log=log, **ends)


class SweepPoint(NamedTuple):
    """A combination of values, in the order of the axes."""

    values: tuple[Any, ...]


class Cell(NamedTuple):
    """A run of a sweep: indices of the point, the policy and the repeat."""

    point: int
    policy: int
    repeat: int


@dataclass(frozen=True)
class Sweep(Document):
    """A comparison repeated with varying settings.

    Parameters
    ----------
    study : Study
        Policies, baseline, repeats and all fixed settings.
    axes : tuple of Axis
        Varying settings; the first is the x axis of curves.
    draw : int
        Number of random points; 0 = all combinations of values.
    draw_seed : int
        Seed of the random points.

    Raises
    ------
    ParameterError
        If nothing varies, a setting varies twice, or there are more than `MAX_CELLS` runs.
    """

    study: Study
    axes: tuple[Axis, ...]
    draw: int = 0
    draw_seed: int = 0

    def __post_init__(self) -> None:
        """Validate the axes."""
        object.__setattr__(self, "draw", whole_number("draw", self.draw))
        object.__setattr__(self, "draw_seed", whole_number("draw_seed", self.draw_seed))
        if not self.axes:
            raise ParameterError(
                "Nothing varies in this sweep. Choose at least one setting and its values."
            )
        if len(self.axes) > MAX_AXES:
            raise ParameterError(f"{len(self.axes)} settings vary; at most {MAX_AXES} may.")
        paths = [axis.path for axis in self.axes]
        if twice := [path for path in paths if paths.count(path) > 1]:
            raise ParameterError(f"The setting {twice[0]} varies twice. Keep one of both axes.")
        if self.runs > MAX_CELLS:
            raise ParameterError(
                f"This sweep has {self.runs:,} runs, more than {MAX_CELLS:,}. Take fewer values,"
                " policies or repeats, or draw points at random."
            )

    @property
    def count(self) -> int:
        """Requested number of points."""
        return self.draw or math.prod(len(axis.values) for axis in self.axes)

    @property
    def runs(self) -> int:
        """Number of runs: points x policies x repeats."""
        return self.count * len(self.study.allocators) * self.study.repeats

    def points(self) -> tuple[SweepPoint, ...]:
        """Return the points: a grid with the last axis varying fastest, or random ones.

        Random points are distinct.
        """
        return self._points

    @cached_property
    def _points(self) -> tuple[SweepPoint, ...]:
        """Points of the grid, or up to `draw` distinct random points; cached."""
        if not self.draw:
            return tuple(
                SweepPoint(values)
                for values in itertools.product(*(axis.values for axis in self.axes))
            )
        rng, points = np.random.default_rng(self.draw_seed), dict[str, SweepPoint]()
        available = (
            math.prod(len(axis.values) for axis in self.axes)
            if all(axis.low is None for axis in self.axes)
            else self.draw
        )
        for _ in range(self.draw * _DRAWS):
            point = SweepPoint(tuple(_draw_value(axis, rng) for axis in self.axes))
            points.setdefault(canonical_json({"v": list(point.values)}), point)
            if len(points) == min(self.draw, available):
                break
        return tuple(points.values())

    def study_at(self, point: SweepPoint) -> Study:
        """Return the study with the values of a point set.

        Raises
        ------
        TrainyardError
            If a value cannot be used there.
        """
        changes = [
            f"{axis.path}={_setting_text(value)}"
            for axis, value in zip(self.axes, point.values, strict=True)
        ]
        return Study.from_json(with_settings(self.study.to_json(), changes, "The axis"))

    def cells(self) -> Iterator[tuple[Cell, Scenario | TrainyardError]]:
        """Yield (cell, scenario) of every run, by repeat, so that complete curves appear early.

        An invalid point yields its error in place of its scenarios.
        """
        studies: list[Study | TrainyardError] = []
        for point in self.points():
            try:
                studies.append(self.study_at(point))
            except TrainyardError as error:
                studies.append(error)
        for repeat in range(self.study.repeats):
            for point_index, study in enumerate(studies):
                for policy in range(len(self.study.allocators)):
                    cell = Cell(point_index, policy, repeat)
                    yield (
                        cell,
                        (
                            study
                            if isinstance(study, TrainyardError)
                            else _cell_scenario(study, policy, repeat)
                        ),
                    )

    def to_json(self) -> dict[str, Any]:
        """Return the sweep as plain values."""
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
        """Return a sweep from a document of `to_json`; ``axes`` may map paths to values.

        Raises
        ------
        TrainyardError
            If a key is missing or unknown, or a value cannot be used.
        """
        fields = checked_fields("sweep", data, cls)
        if not isinstance(fields.get("study"), Mapping) or "axes" not in fields:
            raise ParameterError(
                "A sweep needs 'study' (what Save wrote) and 'axes' (settings and their values)."
            )
        axes = fields["axes"]
        rows = (
            [{"path": path, "values": values} for path, values in axes.items()]
            if isinstance(axes, Mapping)
            else axes
        )
        if not isinstance(rows, Sequence) or isinstance(rows, str):
            raise ParameterError(f"The axes of the sweep are not a list but {axes!r:.60}.")
        return cls(
            Study.from_json(fields.pop("study")),
            tuple(map(Axis.from_json, rows)),
            fields.get("draw", 0),
            fields.get("draw_seed", 0),
        )


def axis_from_text(text: str) -> Axis:
    """Return an axis from the syntax of the command line.

    Parameters
    ----------
    text : str
        ``path=value,value,...`` (``;`` between values that contain commas) or
        ``path=low..high:steps``, with ``:log`` after it for equal ratios.

    Raises
    ------
    ParameterError
        If the text does not have this form.
    """
    path, equals, rest = text.partition("=")
    if not equals or not rest:
        raise ParameterError(
            f"--axis {text}: the form is path=value,value or path=low..high:steps, e.g."
            " trace.load=0.6..1.1:6."
        )
    if match := _RANGE.fullmatch(rest):
        low, high, steps, log = match.groups()
        if log not in (None, "log"):
            raise ParameterError(f"--axis {text}: after the steps only 'log' may follow.")
        return Axis.over(
            path.strip(),
            number(path, low),
            number(path, high),
            whole_number(f"{path}: steps", steps or 5),
            log=log == "log",
        )
    parts = rest.strip(";").split(";") if ";" in rest else rest.split(",")
    return Axis(path.strip(), tuple(parse_value(part.strip()) for part in parts))


def _cell_scenario(study: Study, policy: int, repeat: int) -> Scenario:
    return replace(study.base, allocator=study.allocators[policy], seed=study.base.seed + repeat)


def _draw_value(axis: Axis, rng: np.random.Generator) -> Any:
    """Return a random value of an axis: uniform (or log-uniform) in its range, or one value.

    Whole if ends and values are.
    """
    if axis.low is None or axis.high is None:
        return axis.values[int(rng.integers(len(axis.values)))]
    is_whole = (
        all(isinstance(one, int) for one in axis.values)
        and float(axis.low).is_integer()
        and float(axis.high).is_integer()
    )
    # Extended by half a step, so that the end values are as frequent as others after rounding.
    low, high = (axis.low - 0.5, axis.high + 0.5) if is_whole else (axis.low, axis.high)
    value = (
        math.exp(float(rng.uniform(math.log(low), math.log(high))))
        if axis.log
        else float(rng.uniform(low, high))
    )
    return (
        min(max(round(value), int(axis.low)), int(axis.high)) if is_whole else float(f"{value:.6g}")
    )


def _setting_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
