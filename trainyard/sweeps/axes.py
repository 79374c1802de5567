"""Settings of a study that a sweep can vary, with title, unit and a suggested range."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sim.cluster import NodeGroup
from sim.params import ParamInfo, Spec
from trainyard.formatting import gpu_type, in_sentence
from trainyard.store import Store
from trainyard.study import catalog
from trainyard.study.scenario import MADE
from trainyard.study.study import Study
from trainyard.traces.sources import load_trace

_NOISE: Final = Spec("noisy")
"""Estimator with a prediction error to vary, for studies whose estimator has none."""
_RANGE_END_FROM_ZERO: Final[Mapping[str, float]] = {
    "s": 600.0,
    "h": 24.0,
    "1/h": 0.01,
    "GB": 100.0,
    "": 1.0,
}
"""Unit -> end of the range of a setting that is now 0."""
_USUAL_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "mtbf_h": (200.0, 2000.0),
    "sigma": (0.0, 1.5),
}
"""Setting -> range to use if its current value is off."""
_FEW: Final = 5


@dataclass(frozen=True)
class Lever:
    """A numeric setting of a study that can vary.

    Parameters
    ----------
    path : str
        See `trainyard.study.sweep.Axis.path`.
    title, unit : str
        Title and unit for users.
    now, low, high : float
        Current value, and a suggested range.
    whole : bool
        Whether it is a whole number.
    estimator : Spec or None
        Estimator that the study needs for it; None = any.
    """

    path: str
    title: str
    unit: str
    now: float
    low: float
    high: float
    whole: bool = False
    estimator: Spec | None = None

    @property
    def label(self) -> str:
        """Title with unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


def levers(study: Study, store: Store) -> tuple[Lever, ...]:
    """Return all settings that can vary: load, nodes, failures, models, policies, seed.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    return (
        *_trace_levers(study, store),
        *_node_levers(study),
        *_model_levers(study),
        *_policy_levers(study),
    )


def with_needed_estimator(study: Study, chosen: Sequence[Lever]) -> Study:
    """Return the study with the estimator that the chosen levers need."""
    estimator = next((lever.estimator for lever in chosen if lever.estimator is not None), None)
    return (
        study
        if estimator is None
        else replace(study, base=replace(study.base, estimator=estimator))
    )


def group_name(group: NodeGroup) -> str:
    """Return the name of a node group for users: its own, its GPU type, or CPU."""
    return group.name or gpu_type(group.gpu_type) or "CPU"


def _trace_levers(study: Study, store: Store) -> Iterator[Lever]:
    """Yield the levers of the trace: load, drawn jobs, parameters of a generated one."""
    spec, jobs = study.base.trace, len(load_trace(study.base.trace, store))
    yield Lever(
        "trace.load",
        "Load",
        "× as recorded",
        spec.load,
        round(0.6 * spec.load, 3),
        round(1.4 * spec.load, 3),
    )
    if jobs >= 2 * _FEW:
        yield Lever(
            "trace.sample",
            "Jobs drawn at random",
            "",
            float(spec.sample or jobs),
            float(max(jobs // 10, 1)),
            float(jobs),
            whole=True,
        )
    if spec.thinned or spec.load_by == "jobs":
        seed = float(spec.sample_seed)
        yield Lever(
            "trace.sample_seed",
            "Seed of the jobs drawn",
            "",
            seed,
            seed,
            seed + _FEW - 1,
            whole=True,
        )
    if spec.source.startswith(MADE):
        workload = Spec.parse(spec.source.removeprefix(MADE))
        yield from _param_levers(
            "trace.source",
            "Workload",
            catalog.choice_params(f"{MADE}{workload.name}"),
            workload.values,
        )


def _node_levers(study: Study) -> Iterator[Lever]:
    """Yield the number of nodes of each group as a lever."""
    for at, group in enumerate(study.base.cluster.groups):
        name, now = group_name(group), group.count
        yield Lever(
            f"cluster.groups.{at}.count",
            f"{name} nodes",
            "",
            float(now),
            float(max(now // 2, 1)),
            float(2 * now),
            whole=True,
        )


def _model_levers(study: Study) -> Iterator[Lever]:
    """Yield the numeric parameters of failures, overheads and models, and the seed."""
    base = study.base
    yield from _param_levers("faults", "Failures", catalog.faults(), base.faults.values)
    yield from _param_levers("overheads", "Overheads", catalog.overheads(), base.overheads.values)
    estimated = catalog.choice_params(base.estimator.name)
    yield from _param_levers("estimator", "Prediction", estimated, base.estimator.values)
    if not any(info.name == "sigma" for info in estimated):
        for lever in _param_levers(
            "estimator", "Prediction", catalog.choice_params(_NOISE.name), {"sigma": 0.0}
        ):
            yield replace(lever, estimator=_NOISE)
    yield from _param_levers(
        "perf", "Speed of jobs", catalog.choice_params(base.perf.name), base.perf.values
    )
    yield Lever(
        "seed",
        "Seed",
        "",
        float(base.seed),
        float(base.seed),
        float(base.seed + _FEW - 1),
        whole=True,
    )


def _policy_levers(study: Study) -> Iterator[Lever]:
    """Yield the numeric parameters of each policy as levers."""
    for at, (spec, title) in enumerate(zip(study.allocators, study.titles, strict=True)):
        yield from _param_levers(
            f"allocators.{at}", title, catalog.choice_params(spec.name), spec.values
        )


def _param_levers(
    path: str, owner: str, params: Sequence[ParamInfo], values: Mapping[str, Any]
) -> Iterator[Lever]:
    """Yield the numeric parameters of a policy or model with a range as levers.

    `path` and `owner` are the beginnings of path and title; `values` the set parameters.
    """
    for info in params:
        if info.kind in ("int", "float"):
            now = float(values.get(info.name, info.default))
            low, high = _suggested_range(info, now)
            if low < high:
                yield Lever(
                    f"{path}.{info.name}",
                    f"{owner}: {in_sentence(info.title)}",
                    info.unit,
                    now,
                    low,
                    high,
                    whole=info.kind == "int",
                )


def _suggested_range(info: ParamInfo, now: float) -> tuple[float, float]:
    """Return half to twice the current value, or a usual range, within a parameter's bounds.

    The usual range applies to 0 and to infinite values. Ends are whole for int parameters.
    """
    least = -math.inf if info.low is None else info.low
    most = math.inf if info.high is None else info.high
    on = 0 < now < math.inf
    low, high = (
        (now / 2, now * 2)
        if on
        else _USUAL_RANGES.get(info.name, (0.0, _RANGE_END_FROM_ZERO.get(info.unit, 1.0)))
    )
    if info.kind == "int":
        low, high = math.floor(low), max(math.ceil(high), math.floor(low) + (1 if on else _FEW))
    return min(max(low, least), most), min(max(high, least), most)
