"""What can be chosen: allocators with their cards, samples, formats and models, each with its parameters and, where it cannot run, the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import allocators
from lab.samples import SAMPLES
from sim.cluster import Cluster
from sim.contract import Card
from sim.errors import ParameterError
from sim.faults import Faults
from sim.overheads import Overheads
from sim.params import ParamInfo, Spec, build, parameters, spec_of
from sim.perf import BELIEFS, PERF
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
    """

    name: str
    title: str
    help: str = ""
    params: tuple[ParamInfo, ...] = ()
    card: Card | None = None
    needs: frozenset[str] = frozenset()
    reason: str = ""


def _has_starts(trace: Trace, cluster: Cluster) -> str:
    if trace.has("start_time_s"):
        return ""
    return "This trace holds no recorded start times, or its load was changed, so there is no history to replay."


def _is_resizable(trace: Trace, cluster: Cluster) -> str:
    return "" if trace.has("max_gpus") else "This trace says of no job how far it may be resized (columns min_gpus and max_gpus)."


def _has_models(trace: Trace, cluster: Cluster) -> str:
    return "" if trace.has("model") else "This trace names no models, so no measured profile can be found for its jobs."


_REQUIREMENTS: Final[Mapping[str, Callable[[Trace, Cluster], str]]] = {
    "recorded_start": _has_starts,
    "scaling": _is_resizable,
    "profile": _has_models,
}
"""Word of `sim.contract.NEEDS` -> the sentence that says why trace and cluster do not offer it, or ""."""


def allocator(spec: Spec | str, trace: Trace | None = None, cluster: Cluster | None = None) -> Choice:
    """Describe one allocator as configured.

    Parameters
    ----------
    spec : Spec or str
        Name and parameters.
    trace, cluster : Trace, Cluster or None
        Where it shall run; None = no reason is looked for.

    Raises
    ------
    ParameterError
        If the name or a parameter is unknown.
    """
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    made = allocators.make(spec)
    needs = frozenset(made.needs)
    reason = "" if trace is None or cluster is None else _reason(needs, trace, cluster)
    return Choice(spec.name, made.card.title, made.card.what, parameters(type(made)), made.card, needs, reason)


def allocator_choices(trace: Trace | None = None, cluster: Cluster | None = None) -> tuple[Choice, ...]:
    """List all allocators with their defaults, those that cannot run here with their reason."""
    return tuple(allocator(Spec(name), trace, cluster) for name in allocators.REGISTRY)


def samples() -> tuple[Choice, ...]:
    """List the sample traces."""
    return tuple(Choice(name, sample.title, sample.description) for name, sample in SAMPLES.items())


def formats() -> tuple[Choice, ...]:
    """List the trace formats that are read."""
    return tuple(Choice(fmt.name, fmt.title) for fmt in FORMATS.values())


def perf_models() -> tuple[Choice, ...]:
    """List the performance models: how fast a job really is."""
    return tuple(_model(name, cls) for name, cls in PERF.items())


def beliefs() -> tuple[Choice, ...]:
    """List what an allocator may believe of run times."""
    return tuple(_model(name, cls) for name, cls in BELIEFS.items())


def overheads() -> tuple[ParamInfo, ...]:
    """List the parameters of starting, stopping and checkpoints."""
    return parameters(Overheads)


def faults() -> tuple[ParamInfo, ...]:
    """List the parameters of failures and repairs."""
    return parameters(Faults)


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
    """Return the parameters behind any name of the catalogue: an allocator, a model, ``overheads`` or ``faults``.

    Raises
    ------
    ParameterError
        If nothing has that name.
    """
    known: dict[str, type] = {**_SINGLE, **BELIEFS, **PERF, **allocators.REGISTRY}
    if name not in known:
        raise ParameterError(f"Nothing is called '{name}'. Names with parameters: {', '.join(sorted(known))}.")
    return parameters(known[name])


_SINGLE: Final[Mapping[str, type]] = {"overheads": Overheads, "faults": Faults}
_MODELS: Final[Mapping[str, tuple[Mapping[str, type], str]]] = {"perf": (PERF, "performance model"), "belief": (BELIEFS, "belief")}


def _reason(needs: frozenset[str], trace: Trace, cluster: Cluster) -> str:
    for need, check in _REQUIREMENTS.items():
        if need in needs and (sentence := check(trace, cluster)):
            return sentence
    return ""


def _model(name: str, cls: type) -> Choice:
    return Choice(name, name.capitalize(), (cls.__doc__ or "").strip().split("\n")[0], parameters(cls))
