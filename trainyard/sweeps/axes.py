"""What may vary in a sweep of a study: every number of it in words, with its unit, what it is now,
and a range that makes sense.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sim.params import ParamInfo, Spec
from trainyard.store import Store
from trainyard.study import catalog
from trainyard.study.scenario import MADE
from trainyard.study.study import Study
from trainyard.text import gpu_type, within
from trainyard.traces.sources import load_trace

_NOISE: Final = Spec("noisy")
"""The estimator that has a prediction error to vary, where the study has one without."""
_FROM_NOTHING: Final[Mapping[str, float]] = {
    "s": 600.0,
    "h": 24.0,
    "1/h": 0.01,
    "GB": 100.0,
    "": 1.0,
}
"""Unit -> where a range ends whose number is 0 now."""
_USUAL: Final[Mapping[str, tuple[float, float]]] = {"mtbf_h": (200.0, 2000.0), "sigma": (0.0, 1.5)}
"""Name -> a range for what is off, or says nothing of what would make sense."""
_FEW: Final = 5


@dataclass(frozen=True)
class Lever:
    """A number of a study that may vary.

    Parameters
    ----------
    path : str
        As `trainyard.study.sweep.Axis.path`.
    title, unit : str
        What the user reads.
    now, low, high : float
        What it is, and a range to begin with.
    whole : bool
        Whether it is a whole number.
    estimator : Spec or None
        The estimator that the study must have for it; None = any.
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
    """Return what may vary: load, machines, failures, overheads, estimators, the numbers of the
    models and of every policy, the seed.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    return (*_jobs(study, store), *_machines(study), *_models(study), *_policies(study))


def prepared(study: Study, chosen: Sequence[Lever]) -> Study:
    """Return the study with the estimator that a lever needs, where it has another."""
    estimator = next((lever.estimator for lever in chosen if lever.estimator is not None), None)
    return (
        study
        if estimator is None
        else replace(study, base=replace(study.base, estimator=estimator))
    )


def row_name(study: Study, at: int) -> str:
    """Return what a row of nodes is called."""
    group = study.base.cluster.groups[at]
    return group.name or gpu_type(group.gpu_type) or "CPU"


def _jobs(study: Study, store: Store) -> Iterator[Lever]:
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
        made = Spec.parse(spec.source.removeprefix(MADE))
        yield from _numbers(
            "trace.source", "Workload", catalog.choice_params(f"{MADE}{made.name}"), made.values
        )


def _machines(study: Study) -> Iterator[Lever]:
    for at, group in enumerate(study.base.cluster.groups):
        name, now = row_name(study, at), group.count
        yield Lever(
            f"cluster.groups.{at}.count",
            f"{name} nodes",
            "",
            float(now),
            float(max(now // 2, 1)),
            float(2 * now),
            whole=True,
        )


def _models(study: Study) -> Iterator[Lever]:
    base = study.base
    yield from _numbers("faults", "Failures", catalog.faults(), base.faults.values)
    yield from _numbers("overheads", "Overheads", catalog.overheads(), base.overheads.values)
    estimated = catalog.choice_params(base.estimator.name)
    yield from _numbers("estimator", "Prediction", estimated, base.estimator.values)
    if not any(info.name == "sigma" for info in estimated):
        for lever in _numbers(
            "estimator", "Prediction", catalog.choice_params(_NOISE.name), {"sigma": 0.0}
        ):
            yield replace(lever, estimator=_NOISE)
    yield from _numbers(
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


def _policies(study: Study) -> Iterator[Lever]:
    for at, (spec, title) in enumerate(zip(study.allocators, study.titles, strict=True)):
        yield from _numbers(
            f"allocators.{at}", title, catalog.choice_params(spec.name), spec.values
        )


def _numbers(
    path: str, of: str, params: Sequence[ParamInfo], values: Mapping[str, Any]
) -> Iterator[Lever]:
    for info in params:
        if info.kind in ("int", "float"):
            now = float(values.get(info.name, info.default))
            low, high = _range(info, now)
            if low < high:
                yield Lever(
                    f"{path}.{info.name}",
                    f"{of}: {within(info.title)}",
                    info.unit,
                    now,
                    low,
                    high,
                    whole=info.kind == "int",
                )


def _range(info: ParamInfo, now: float) -> tuple[float, float]:
    least = -math.inf if info.low is None else info.low
    most = math.inf if info.high is None else info.high
    on = 0 < now < math.inf
    low, high = (
        (now / 2, now * 2)
        if on
        else _USUAL.get(info.name, (0.0, _FROM_NOTHING.get(info.unit, 1.0)))
    )
    if info.kind == "int":
        low, high = math.floor(low), max(math.ceil(high), math.floor(low) + (1 if on else _FEW))
    return min(max(low, least), most), min(max(high, least), most)
