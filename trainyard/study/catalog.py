"""What can be chosen: allocators with their cards, samples, formats and models, each with its
parameters and, where it cannot run, the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import cleandoc
from types import MappingProxyType
from typing import Any, Final

import allocators
from jobtraces import FORMATS
from jobtraces.generate import WORKLOADS
from sim import params as params_of
from sim.contract import Card, Needs, remarks_of
from sim.engine.faults import Faults
from sim.errors import ParameterError
from sim.overheads import CHECKPOINT_SOURCE, CHECKPOINTS, Overheads
from sim.params import ParamInfo, Spec, build, parameters, spec_of
from sim.perf import ESTIMATORS, PERF, PerfSpec
from sim.trace import Trace
from trainyard.text import within

KINDS: Final = ("allocator", "perf", "estimator", "overheads", "faults")
"""The parts of a scenario that are written as a `Spec`."""


@dataclass(frozen=True)
class CatalogEntry:
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
    needs : Needs
        What it needs beyond the public columns; allocators only.
    reason : str
        Why it cannot run here, as one sentence; "" = it can.
    lacks : str
        Word of its needs that the reason is about; "" = none.
    remarks : tuple of str
        What it will do differently here, as sentences; allocators only.
    """

    name: str
    title: str
    help: str = ""
    params: tuple[ParamInfo, ...] = ()
    card: Card | None = None
    needs: Needs = field(default_factory=Needs)
    reason: str = ""
    lacks: str = ""
    remarks: tuple[str, ...] = ()


def _has_starts(trace: Trace, perf: Spec) -> str:
    if trace.has("start_time_s"):
        return ""
    return (
        "This trace holds no recorded start times, or its load was changed or only a part of its"
        " jobs is taken: there is no history to replay."
    )


def _is_resizable(trace: Trace, perf: Spec) -> str:
    if _model_class(perf).scales:
        return ""
    return (
        f"Jobs run at one size only under “{model_title(perf)}”. Choose a performance model that"
        f" scales, for example “{model_title(_SCALING)}”."
    )


def _has_servers(trace: Trace, perf: Spec) -> str:
    if _model_class(perf).staffed:
        return ""
    return (
        f"Jobs have no parameter servers under “{model_title(perf)}”. Choose a performance model"
        f" that has them, for example “{model_title(with_servers())}”."
    )


def _has_models(trace: Trace, perf: Spec) -> str:
    return (
        ""
        if trace.has("model")
        else "This trace names no models, so no measured profile can be found for its jobs."
    )


_REQUIREMENTS: Final[Mapping[str, Callable[[Trace, Spec], str]]] = {
    "recorded_start": _has_starts,
    "scaling": _is_resizable,
    "profile": _has_models,
    "servers": _has_servers,
}
"""Word of `sim.contract.Needs` -> the sentence that says why trace and performance model do not
offer it, or "".
"""
_ONE_SIZE: Final = Spec("rigid")
_SCALING: Final = Spec("power_law")
_MODEL_TITLES: Final = {
    "rigid": "Fixed size",
    "table": "Measured table",
    "batch": "Batch-aware",
    "profiled": "Measured per GPU type",
    "spread": "Slower when spread",
    "parameter_server": "Parameter servers",
}
"""What models are called on pages and in sentences; the others by their name in words."""


def allocator(spec: Spec | str, trace: Trace | None = None, perf: Spec = _ONE_SIZE) -> CatalogEntry:
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
    lacks, reason = ("", "") if trace is None else _reason(made.needs, trace, perf)
    return CatalogEntry(
        spec.name,
        made.card.title,
        made.card.what,
        parameters(type(made)),
        made.card,
        made.needs,
        reason,
        lacks,
        remarks_of(made),
    )


def lines_read(spec: Spec) -> list[dict[str, Any]]:
    """Return what becomes of each setting in the files of a policy: file, line, setting, effect; []
    = it has none.

    Raises
    ------
    ParameterError
        If a file cannot be read.
    """
    return [
        {
            "File": one.file,
            "Line": one.line,
            "Setting": f"{one.key}={one.value}" if one.value else one.key,
            "Effect": one.kind,
            "Why": one.why,
        }
        for one in getattr(allocators.make(spec), "findings", ())
    ]


def allocator_choices(
    trace: Trace | None = None, perf: Spec = _ONE_SIZE
) -> tuple[CatalogEntry, ...]:
    """List all allocators with their defaults, those that cannot run here with their reason."""
    return tuple(allocator(Spec(name), trace, perf) for name in allocators.REGISTRY)


def workloads() -> tuple[CatalogEntry, ...]:
    """List the workloads that are made on the fly."""
    return tuple(
        CatalogEntry(name, cls.title, _summary(cls), parameters(cls))
        for name, cls in WORKLOADS.items()
    )


def formats() -> tuple[CatalogEntry, ...]:
    """List the trace formats that are read."""
    return tuple(CatalogEntry(fmt.name, fmt.title) for fmt in FORMATS.values())


def perf_models() -> tuple[CatalogEntry, ...]:
    """List the performance models: how fast a job really is."""
    return tuple(
        replace(_model(name, cls), title=model_title(Spec(name))) for name, cls in PERF.items()
    )


def model_title(perf: Spec) -> str:
    """Return what a performance model is called on pages and in sentences."""
    return _MODEL_TITLES.get(perf.name, perf.name.replace("_", " ").capitalize())


def is_model(perf: Spec, kind: type) -> bool:
    """Tell whether a performance model is of a kind; its parameters are not looked at."""
    return _model_class(perf) is kind


def estimators() -> tuple[CatalogEntry, ...]:
    """List what an allocator may believe of run times."""
    return tuple(_model(name, cls) for name, cls in ESTIMATORS.items())


def overheads() -> tuple[ParamInfo, ...]:
    """List the parameters of starting, stopping and checkpoints."""
    return parameters(Overheads)


def faults() -> tuple[ParamInfo, ...]:
    """List the parameters of failures and repairs."""
    return parameters(Faults)


def checkpoints() -> tuple[CatalogEntry, ...]:
    """List measured times of checkpoints."""
    return tuple(
        CatalogEntry(
            name,
            name.replace("-", ", "),
            f"saved in {one.save_s:g} s, loaded in {one.load_s:g} s; {CHECKPOINT_SOURCE}",
        )
        for name, one in CHECKPOINTS.items()
    )


def checkpoint_values(name: str) -> dict[str, float]:
    """Return the overheads that measured times of checkpoints stand for: each saving costs
    ``checkpoint_s``, each restart loads.

    Raises
    ------
    ParameterError
        If nothing of that name was measured.
    """
    if name not in CHECKPOINTS:
        raise ParameterError(
            f"No checkpoint '{name}' was measured. Choose one of {', '.join(CHECKPOINTS)}."
        )
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
        raise ParameterError(
            f"There is no {what} '{spec.name}'. Choose one of {', '.join(registry)}."
        )
    return build(registry[spec.name], spec)


def canonical(kind: str, spec: Spec) -> Spec:
    """Return the spec with every value of its declared kind and defaults left out, so that equal
    choices are written alike.

    Raises
    ------
    ParameterError
        As `instance`.
    """
    made = instance(kind, spec)
    tidy = spec_of(kind if kind in _SINGLE else spec.name, made)
    defaults = {info.name: info.default for info in parameters(type(made))}
    # An allocator inside may have been spelled out with its own defaults.
    inner = {
        key: canonical("allocator", value) for key, value in tidy.params if isinstance(value, Spec)
    }
    same = {key for key, value in inner.items() if value == canonical("allocator", defaults[key])}
    return Spec.of(
        tidy.name, **{key: inner.get(key, value) for key, value in tidy.params if key not in same}
    )


def renamed(name: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters of an allocator under their present names; those of anything else as they
    are.

    Raises
    ------
    ParameterError
        If a former name has a value that it never had, or stands beside the present one.
    """
    cls = allocators.REGISTRY.get(str(name))
    return dict(params) if cls is None else params_of.renamed(name, cls, params)


def renamed_axis(path: str, values: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Do the same for the path of a setting of policies and the values that it takes."""
    path = renamed_path(path)
    root, _, name = path.rpartition(".")
    info = _FORMER.get(name) if _OF_POLICIES.match(path) else None
    if info is None:
        return path, tuple(values)
    now = {was: value for value, was in info.were}
    return f"{root}.{info.name}", tuple(now.get(str(value), value) for value in values)


def renamed_path(path: str) -> str:
    """Return the path of a setting with the settings of scenarios under their present names."""
    return ".".join(_FORMER_KEYS.get(key, key) for key in path.split("."))


def renamed_keys(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario as JSON with its settings under their present names.

    Raises
    ------
    ParameterError
        If a former name stands beside the present one.
    """
    for former, now in _FORMER_KEYS.items():
        if former in data and now in data:
            raise ParameterError(
                f"The scenario has {now} twice, because {former} is its former name. Keep one of"
                " the two."
            )
    return {_FORMER_KEYS.get(key, key): value for key, value in data.items()}


def first_written(data: Any) -> Any:
    """Return plain values with settings of scenarios and parameters of allocators under their
    former names: what keys and digests are made of.
    """
    if isinstance(data, list):
        return [first_written(one) for one in data]
    if not isinstance(data, dict):
        return data
    made = {key: first_written(value) for key, value in data.items()}
    for former, now in _FORMER_KEYS.items():
        if now in made and "perf" in made:
            made[former] = made.pop(now)
        if "path" in made and "values" in made:
            made["path"] = ".".join(
                former if key == now else key for key in made["path"].split(".")
            )
    cls = allocators.REGISTRY.get(str(made.get("name")))
    if cls is not None and isinstance(made.get("params"), dict):
        made["params"] = params_of.first_written(cls, made["params"])
    if _OF_POLICIES.match(str(made.get("path"))):
        root, _, name = made["path"].rpartition(".")
        info = next((info for info in _FORMER.values() if info.name == name), None)
        if info is not None:
            made["path"] = f"{root}.{info.was}"
            made["values"] = [dict(info.were).get(str(value), value) for value in made["values"]]
    return made


def choice_params(name: str) -> tuple[ParamInfo, ...]:
    """Return the parameters behind any name of the catalogue: an allocator, a model, a made
    workload, ``overheads`` or ``faults``.

    With ``made:`` in front it is a workload in any case: some are called as the allocator of the
    same paper.

    Raises
    ------
    ParameterError
        If nothing has that name.
    """
    made = {f"made:{workload}": cls for workload, cls in WORKLOADS.items()}
    known: dict[str, type] = {
        **_SINGLE,
        **made,
        **WORKLOADS,
        **ESTIMATORS,
        **PERF,
        **allocators.REGISTRY,
    }
    if name not in known:
        raise ParameterError(
            f"Nothing is called '{name}'. Names with parameters: {', '.join(sorted(known))}."
        )
    return parameters(known[name])


def in_words(name: str, key: str, value: Any) -> str:
    """Return a parameter of something in the catalogue with its value: "backfill first fit"."""
    info = next(info for info in choice_params(name) if info.name == key)
    is_choice = value in info.choices
    text = info.label(value) if is_choice else str(Spec.of("x", v=value)).removeprefix("x:v=")
    is_name = text[1:2].isupper() or " (" in text
    return f"{key.replace('_', ' ')} {text if is_name else text[:1].lower() + text[1:]}"


def values_in_words(name: str, spec: Spec) -> str:
    """Return what is set of something in the catalogue: "retries 3, mean time to repair (h) 2"."""
    titles = {info.name: _with_unit(info) for info in choice_params(name)}
    return ", ".join(
        f"{titles[key]} {value:g}" if isinstance(value, float) else f"{titles[key]} {value}"
        for key, value in spec.params
    )


def _with_unit(info: ParamInfo) -> str:
    return within(f"{info.title} ({info.unit})" if info.unit else info.title)


def setting(path: str, models: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return what a setting of a scenario is called in sentences: "pause at a restart (s)".

    Parameters
    ----------
    path : str
        As `trainyard.study.sweep.Axis.path`.
    models : mapping
        "perf" and "estimator" -> the one that the scenario has, as far as known.
    """
    kind, name = path.partition(".")[0], path.rpartition(".")[2]
    cls = _SINGLE.get(kind) or _MODELS.get(kind, ({}, ""))[0].get(models.get(kind, ""))
    for info in parameters(cls) if cls is not None else ():
        if info.name == name:
            return _with_unit(info)
    silent = ("params", "name", "base", "groups", "allocators")
    parts = [part for part in path.split(".") if part not in silent and not part.isdigit()]
    return _SETTINGS.get(path) or " ".join(parts).replace("_", " ")


_SETTINGS: Final = {
    "horizon_s": "end of the run (s)",
    "stop": "the run ends",
    "trace.from_s": "trace from (s)",
    "trace.to_s": "trace to (s)",
    "trace.sample": "random jobs",
    "trace.sample_seed": "draw number",
    "trace.every_user": "one user in",
    "trace.load_by": "load by",
    "estimator.name": "run-time estimates",
}
_OF_POLICIES: Final = re.compile(r"allocators?\.")
_FORMER_KEYS: Final[Mapping[str, str]] = {"belief": "estimator"}
"""Former name of a setting of scenarios -> its name."""
_FORMER: Final[Mapping[str, ParamInfo]] = {
    info.was: info for cls in allocators.REGISTRY.values() for info in parameters(cls) if info.was
}
"""Former name of a parameter of allocators -> the parameter; a name was the same in all of them."""
_SINGLE: Final[Mapping[str, type]] = {"overheads": Overheads, "faults": Faults}
_MODELS: Final[Mapping[str, tuple[Mapping[str, type], str]]] = {
    "perf": (PERF, "performance model"),
    "estimator": (ESTIMATORS, "estimator"),
}


def _reason(needs: Needs, trace: Trace, perf: Spec) -> tuple[str, str]:
    for need, check in _REQUIREMENTS.items():
        if need in needs.reads | needs.requires and (sentence := check(trace, perf)):
            return need, sentence
    return "", ""


def _model_class(perf: Spec) -> type[PerfSpec]:
    if perf.name not in PERF:
        raise ParameterError(
            f"There is no performance model '{perf.name}'. Choose one of {', '.join(PERF)}."
        )
    return PERF[perf.name]


def _model(name: str, cls: type) -> CatalogEntry:
    return CatalogEntry(name, name.replace("_", " ").capitalize(), _summary(cls), parameters(cls))


def _summary(cls: type) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join(cleandoc(cls.__doc__ or "").split("\n\n")[0].split())
