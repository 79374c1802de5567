"""What can be chosen: allocators with their cards, samples, formats and models, each with its parameters and, where it cannot run, the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import allocators
from sim.checkpoints import CHECKPOINTS, SOURCE
from sim.contract import Card, remarks_of
from sim.errors import ParameterError
from sim.faults import Faults
from sim.generate import WORKLOADS
from sim.overheads import Overheads
from sim.params import ParamInfo, Spec, build, parameters, spec_of
from sim.perf import BELIEFS, PERF, PerfSpec
from sim.readers import FORMATS
from sim.trace import Trace

KINDS: Final = ("allocator", "perf", "belief", "overheads", "faults")
"""The parts of a scenario that are written as a `Spec`."""


@dataclass(frozen=True)
class Choice:
    """One entry of a list to choose from.

    Parameters
    ----------
    name : str
        Key of its registry.
    title : str
        What the user reads.
    help : str
        One sentence.
    params : tuple of ParamInfo
        Rows of its form.
    card : Card or None
        Allocators only.
    needs : frozenset of str
        What it reads beyond the public columns; allocators only.
    reason : str
        Why it cannot run here, as one sentence; "" = it can.
    lacks : str
        Word of `sim.contract.NEEDS` that the reason is about; "" = none.
    remarks : tuple of str
        What it will do differently here, as sentences; allocators only.
    """

    name: str
    title: str
    help: str = ""
    params: tuple[ParamInfo, ...] = ()
    card: Card | None = None
    needs: frozenset[str] = frozenset()
    reason: str = ""
    lacks: str = ""
    remarks: tuple[str, ...] = ()


def _has_starts(trace: Trace, perf: Spec) -> str:
    if trace.has("start_time_s"):
        return ""
    return "This trace holds no recorded start times, or its load was changed or only a part of its jobs is taken: there is no history to replay."


def _is_resizable(trace: Trace, perf: Spec) -> str:
    if _model_class(perf).scales:
        return ""
    return f"Jobs run at one size only under “{model_title(perf)}”. Choose a performance model that scales, for example “{model_title(_SCALING)}”."


def _has_servers(trace: Trace, perf: Spec) -> str:
    if _model_class(perf).staffed:
        return ""
    return f"Jobs have no parameter servers under “{model_title(perf)}”. Choose a performance model that has them, for example “{model_title(with_servers())}”."


def _has_models(trace: Trace, perf: Spec) -> str:
    return "" if trace.has("model") else "This trace names no models, so no measured profile can be found for its jobs."


_REQUIREMENTS: Final[Mapping[str, Callable[[Trace, Spec], str]]] = {
    "recorded_start": _has_starts,
    "scaling": _is_resizable,
    "profile": _has_models,
    "servers": _has_servers,
}
"""Word of `sim.contract.NEEDS` -> the sentence that says why trace and performance model do not offer it, or ""."""
_ONE_SIZE: Final = Spec("rigid")
_SCALING: Final = Spec("power_law")
_MODEL_TITLES: Final = {
    "rigid": "One size each",
    "table": "Measured table",
    "batch": "Batch-aware",
    "profiled": "Measured per GPU type",
    "spread": "Slower when spread",
    "parameter_server": "Parameter servers",
}
"""What models are called on pages and in sentences; the others by their name in words."""


def allocator(spec: Spec | str, trace: Trace | None = None, perf: Spec = _ONE_SIZE) -> Choice:
    """Describe one allocator as configured.

    Parameters
    ----------
    spec : Spec or str
        Name and parameters.
    trace : Trace or None
        The jobs it shall run; None = no reason is looked for.
    perf : Spec
        How fast they run.

    Raises
    ------
    ParameterError
        If the name or a parameter is unknown.
    """
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    made = allocators.make(spec)
    needs = frozenset(made.needs)
    lacks, reason = ("", "") if trace is None else _reason(needs, trace, perf)
    return Choice(spec.name, made.card.title, made.card.what, parameters(type(made)), made.card, needs, reason, lacks, remarks_of(made))


def allocator_choices(trace: Trace | None = None, perf: Spec = _ONE_SIZE) -> tuple[Choice, ...]:
    """List all allocators with their defaults, those that cannot run here with their reason."""
    return tuple(allocator(Spec(name), trace, perf) for name in allocators.REGISTRY)


def workloads() -> tuple[Choice, ...]:
    """List the workloads that are made on the fly."""
    return tuple(Choice(name, cls.title, _first_line(cls), parameters(cls)) for name, cls in WORKLOADS.items())


def formats() -> tuple[Choice, ...]:
    """List the trace formats that are read."""
    return tuple(Choice(fmt.name, fmt.title) for fmt in FORMATS.values())


def perf_models() -> tuple[Choice, ...]:
    """List the performance models: how fast a job really is."""
    return tuple(replace(_model(name, cls), title=model_title(Spec(name))) for name, cls in PERF.items())


def model_title(perf: Spec) -> str:
    """Return what a performance model is called on pages and in sentences."""
    return _MODEL_TITLES.get(perf.name, perf.name.replace("_", " ").capitalize())


def is_model(perf: Spec, kind: type) -> bool:
    """Tell whether a performance model is of a kind; its parameters are not looked at."""
    return _model_class(perf) is kind


def beliefs() -> tuple[Choice, ...]:
    """List what an allocator may believe of run times."""
    return tuple(_model(name, cls) for name, cls in BELIEFS.items())


def overheads() -> tuple[ParamInfo, ...]:
    """List the parameters of starting, stopping and checkpoints."""
    return parameters(Overheads)


def faults() -> tuple[ParamInfo, ...]:
    """List the parameters of failures and repairs."""
    return parameters(Faults)


def checkpoints() -> tuple[Choice, ...]:
    """List measured times of checkpoints."""
    return tuple(Choice(name, name.replace("-", ", "), f"saved in {one.save_s:g} s, loaded in {one.load_s:g} s; {SOURCE}") for name, one in CHECKPOINTS.items())


def checkpoint_values(name: str) -> dict[str, float]:
    """Return the overheads that measured times of checkpoints stand for: each saving costs ``checkpoint_s``, each restart loads.

    Raises
    ------
    ParameterError
        If nothing of that name was measured.
    """
    if name not in CHECKPOINTS:
        raise ParameterError(f"No checkpoint '{name}' was measured. Choose one of {', '.join(CHECKPOINTS)}.")
    return {"checkpoint_s": CHECKPOINTS[name].save_s, "restart_s": CHECKPOINTS[name].load_s}


def with_servers() -> Spec:
    """Return the performance model under which jobs have parameter servers, with its defaults."""
    return next(Spec(name) for name, cls in PERF.items() if cls.staffed)


def instance(kind: str, spec: Spec) -> Any:
    """Build what a spec stands for.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    spec : Spec
        Name and parameters; for overheads and faults the name carries no meaning.

    Raises
    ------
    ParameterError
        If the name or a parameter is unknown, or a value is out of its bounds.
    """
    if kind == "allocator":
        return allocators.make(spec)
    if kind in _SINGLE:
        return build(_SINGLE[kind], spec)
    registry, what = _MODELS[kind]
    if spec.name not in registry:
        raise ParameterError(f"There is no {what} '{spec.name}'. Choose one of {', '.join(registry)}.")
    return build(registry[spec.name], spec)


def canonical(kind: str, spec: Spec) -> Spec:
    """Return the spec with every value of its declared kind and defaults left out, so that equal choices are written alike.

    Raises
    ------
    ParameterError
        As `instance`.
    """
    made = instance(kind, spec)
    tidy = spec_of(kind if kind in _SINGLE else spec.name, made)
    defaults = {info.name: info.default for info in parameters(type(made))}
    # An allocator inside may have been spelled out with its own defaults.
    inner = {key: canonical("allocator", value) for key, value in tidy.params if isinstance(value, Spec)}
    same = {key for key, value in inner.items() if value == canonical("allocator", defaults[key])}
    return Spec.of(tidy.name, **{key: inner.get(key, value) for key, value in tidy.params if key not in same})


def choice_params(name: str) -> tuple[ParamInfo, ...]:
    """Return the parameters behind any name of the catalogue: an allocator, a model, a made workload, ``overheads`` or ``faults``.

    With ``made:`` in front it is a workload in any case: some are called as the allocator of the same paper.

    Raises
    ------
    ParameterError
        If nothing has that name.
    """
    made = {f"made:{workload}": cls for workload, cls in WORKLOADS.items()}
    known: dict[str, type] = {**_SINGLE, **made, **WORKLOADS, **BELIEFS, **PERF, **allocators.REGISTRY}
    if name not in known:
        raise ParameterError(f"Nothing is called '{name}'. Names with parameters: {', '.join(sorted(known))}.")
    return parameters(known[name])


_SINGLE: Final[Mapping[str, type]] = {"overheads": Overheads, "faults": Faults}
_MODELS: Final[Mapping[str, tuple[Mapping[str, type], str]]] = {"perf": (PERF, "performance model"), "belief": (BELIEFS, "belief")}


def _reason(needs: frozenset[str], trace: Trace, perf: Spec) -> tuple[str, str]:
    for need, check in _REQUIREMENTS.items():
        if need in needs and (sentence := check(trace, perf)):
            return need, sentence
    return "", ""


def _model_class(perf: Spec) -> type[PerfSpec]:
    if perf.name not in PERF:
        raise ParameterError(f"There is no performance model '{perf.name}'. Choose one of {', '.join(PERF)}.")
    return PERF[perf.name]


def _model(name: str, cls: type) -> Choice:
    return Choice(name, name.replace("_", " ").capitalize(), _first_line(cls), parameters(cls))


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().split("\n")[0]
