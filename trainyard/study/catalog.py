"""Choices of a scenario: policies, formats, models, with parameters and availability."""

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
from trainyard.formatting import in_sentence

KINDS: Final = ("allocator", "perf", "estimator", "overheads", "faults")
"""Parts of a scenario that are a `Spec`."""


@dataclass(frozen=True)
class CatalogEntry:
    """An entry of a list of choices.

    Parameters
    ----------
    name : str
        Key in its registry.
    title : str
        Name for users.
    help : str
        Description, one sentence.
    params : tuple of ParamInfo
        Its parameters.
    card : Card or None
        Card of an allocator.
    needs : Needs
        Data that an allocator needs beyond the public columns.
    reason : str
        Why it cannot run with this trace and model, as one sentence; "" = it can.
    lacks : str
        Need that the reason refers to; "" = none.
    remarks : tuple of str
        Sentences on deviations of an allocator.
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


def _missing_starts(trace: Trace, perf: Spec) -> str:
    """Return why a trace has no recorded starts, "" if it has."""
    if trace.has("start_time_s"):
        return ""
    return (
        "This trace has no recorded start times, or its load or jobs were changed. There is no"
        " history to replay."
    )


def _missing_scaling(trace: Trace, perf: Spec) -> str:
    """Return why jobs cannot be resized under a performance model, "" if they can."""
    if _model_class(perf).scales:
        return ""
    return (
        f"Jobs run at one size only under “{model_title(perf)}”. Choose a performance model that"
        f" scales, for example “{model_title(_SCALING)}” (page Trace, or --perf)."
    )


def _missing_servers(trace: Trace, perf: Spec) -> str:
    """Return why jobs have no parameter servers under a model, "" if they have."""
    if _model_class(perf).staffed:
        return ""
    return (
        f"Jobs have no parameter servers under “{model_title(perf)}”. Choose the performance model"
        f" “{model_title(with_servers())}” (page Trace, or --perf)."
    )


def _missing_models(trace: Trace, perf: Spec) -> str:
    """Return why a trace has no model names, "" if it has."""
    return (
        ""
        if trace.has("model")
        else "This trace names no models, so its jobs have no measured profile."
    )


_REQUIREMENTS: Final[Mapping[str, Callable[[Trace, Spec], str]]] = {
    "recorded_start": _missing_starts,
    # Models with servers scale too, so the lack of servers is the reason to tell.
    "servers": _missing_servers,
    "scaling": _missing_scaling,
    "profile": _missing_models,
}
"""Need of `sim.contract.Needs` -> function that says why it is not met, or returns ""."""
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
"""Titles of performance models for users; other models are titled by their name."""


def allocator(spec: Spec | str, trace: Trace | None = None, perf: Spec = _ONE_SIZE) -> CatalogEntry:
    """Return the entry of a configured allocator.

    Parameters
    ----------
    spec : Spec or str
        Name and parameters.
    trace : Trace or None
        The jobs to run; None = do not check whether it can run.
    perf : Spec
        The performance model.

    Raises
    ------
    ParameterError
        If the name or a parameter is unknown.
    """
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    instance = allocators.make(spec)
    lacks, reason = ("", "") if trace is None else _unmet_need(instance.needs, trace, perf)
    return CatalogEntry(
        spec.name,
        instance.card.title,
        instance.card.what,
        parameters(type(instance)),
        instance.card,
        instance.needs,
        reason,
        lacks,
        remarks_of(instance),
    )


def file_findings(spec: Spec) -> list[dict[str, Any]]:
    """Return the effect of each setting in the files of a policy, [] without files.

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
    """Return all allocators with default parameters, and why some cannot run."""
    return tuple(allocator(Spec(name), trace, perf) for name in allocators.REGISTRY)


def workloads() -> tuple[CatalogEntry, ...]:
    """Return the workloads that are generated on demand."""
    return tuple(
        CatalogEntry(name, cls.title, _summary(cls), parameters(cls))
        for name, cls in WORKLOADS.items()
    )


def formats() -> tuple[CatalogEntry, ...]:
    """Return the trace formats that can be read."""
    return tuple(CatalogEntry(fmt.name, fmt.title) for fmt in FORMATS.values())


def perf_models() -> tuple[CatalogEntry, ...]:
    """Return the performance models."""
    return tuple(
        replace(_model_entry(name, cls), title=model_title(Spec(name)))
        for name, cls in PERF.items()
    )


def model_title(perf: Spec) -> str:
    """Return the title of a performance model."""
    return _MODEL_TITLES.get(perf.name, perf.name.replace("_", " ").capitalize())


def is_model(perf: Spec, kind: type) -> bool:
    """Return True if a performance model is of a class; ignores its parameters."""
    return _model_class(perf) is kind


def estimators() -> tuple[CatalogEntry, ...]:
    """Return the estimators of run times."""
    return tuple(_model_entry(name, cls) for name, cls in ESTIMATORS.items())


def overheads() -> tuple[ParamInfo, ...]:
    """Return the parameters of starts, preemptions and checkpoints."""
    return parameters(Overheads)


def faults() -> tuple[ParamInfo, ...]:
    """Return the parameters of failures and repairs."""
    return parameters(Faults)


def checkpoints() -> tuple[CatalogEntry, ...]:
    """Return the measured checkpoint times."""
    return tuple(
        CatalogEntry(
            name,
            name.replace("-", ", "),
            f"saved in {one.save_s:g} s, loaded in {one.load_s:g} s; {CHECKPOINT_SOURCE}",
        )
        for name, one in CHECKPOINTS.items()
    )


def checkpoint_values(name: str) -> dict[str, float]:
    """Return the overheads of measured checkpoint times: save and restart seconds.

    Raises
    ------
    ParameterError
        If there are no measurements of that name.
    """
    if name not in CHECKPOINTS:
        raise ParameterError(
            f"No checkpoint '{name}' was measured. Choose one of {', '.join(CHECKPOINTS)}."
        )
    return {"checkpoint_s": CHECKPOINTS[name].save_s, "restart_s": CHECKPOINTS[name].load_s}


def with_servers() -> Spec:
    """Return the performance model with parameter servers, at its defaults."""
    return next(Spec(name) for name, cls in PERF.items() if cls.staffed)


def instance(kind: str, spec: Spec) -> Any:
    """Build the object that a spec describes.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    spec : Spec
        Name and parameters; for overheads and faults the name is ignored.

    Raises
    ------
    ParameterError
        If the name or a parameter is unknown, or a value is out of bounds.
    """
    if kind == "allocator":
        return allocators.make(spec)
    if kind in _SINGLE:
        return build(_SINGLE[kind], spec)
    registry, description = _MODELS[kind]
    if spec.name not in registry:
        raise ParameterError(
            f"There is no {description} '{spec.name}'. Choose one of {', '.join(registry)}."
        )
    return build(registry[spec.name], spec)


def canonical(kind: str, spec: Spec) -> Spec:
    """Return a spec with typed values and without defaults, so that equal choices are equal.

    Raises
    ------
    ParameterError
        As `instance`.
    """
    built = instance(kind, spec)
    full = spec_of(kind if kind in _SINGLE else spec.name, built)
    defaults = {info.name: info.default for info in parameters(type(built))}
    # A nested allocator may be written with its defaults.
    inner = {
        key: canonical("allocator", value) for key, value in full.params if isinstance(value, Spec)
    }
    same = {key for key, value in inner.items() if value == canonical("allocator", defaults[key])}
    return Spec.of(
        full.name, **{key: inner.get(key, value) for key, value in full.params if key not in same}
    )


def current_params(name: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters of an allocator under their current names; others unchanged.

    Raises
    ------
    ParameterError
        If a former name has a value it never had, or is given together with the current name.
    """
    cls = allocators.REGISTRY.get(str(name))
    return dict(params) if cls is None else params_of.with_current_names(name, cls, params)


def current_axis(path: str, values: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Return the path and values of a sweep axis under their current names."""
    path = current_path(path)
    root, _, name = path.rpartition(".")
    info = _FORMER.get(name) if _OF_POLICIES.match(path) else None
    if info is None:
        return path, tuple(values)
    now = {was: value for value, was in info.were}
    return f"{root}.{info.name}", tuple(now.get(str(value), value) for value in values)


def current_path(path: str) -> str:
    """Return the path of a setting under its current name."""
    return ".".join(_FORMER_KEYS.get(key, key) for key in path.split("."))


def current_keys(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario document with its settings under their current names.

    Raises
    ------
    ParameterError
        If a former name is given together with the current one.
    """
    for former, now in _FORMER_KEYS.items():
        if former in data and now in data:
            raise ParameterError(
                f"The scenario has {now} twice, because {former} is its former name. Keep one."
            )
    return {_FORMER_KEYS.get(key, key): value for key, value in data.items()}


def former_names(data: Any) -> Any:
    """Return a document with settings and parameters under their former names, for hashes."""
    if isinstance(data, list):
        return [former_names(one) for one in data]
    if not isinstance(data, dict):
        return data
    document = {key: former_names(value) for key, value in data.items()}
    for former, now in _FORMER_KEYS.items():
        if now in document and "perf" in document:
            document[former] = document.pop(now)
        if "path" in document and "values" in document:
            document["path"] = ".".join(
                former if key == now else key for key in document["path"].split(".")
            )
    cls = allocators.REGISTRY.get(str(document.get("name")))
    if cls is not None and isinstance(document.get("params"), dict):
        document["params"] = params_of.with_former_names(cls, document["params"])
    if _OF_POLICIES.match(str(document.get("path"))):
        root, _, name = document["path"].rpartition(".")
        info = next((info for info in _FORMER.values() if info.name == name), None)
        if info is not None:
            document["path"] = f"{root}.{info.was}"
            document["values"] = [
                dict(info.were).get(str(value), value) for value in document["values"]
            ]
    return document


def choice_params(name: str) -> tuple[ParamInfo, ...]:
    """Return the parameters of an allocator, model, workload, overheads or faults.

    The prefix ``made:`` selects a workload, because some share their name with an allocator.

    Raises
    ------
    ParameterError
        If nothing has that name.
    """
    workload_classes = {f"made:{workload}": cls for workload, cls in WORKLOADS.items()}
    classes: dict[str, type] = {
        **_SINGLE,
        **workload_classes,
        **WORKLOADS,
        **ESTIMATORS,
        **PERF,
        **allocators.REGISTRY,
    }
    if name not in classes:
        raise ParameterError(
            f"There is no '{name}'. Names with parameters: {', '.join(sorted(classes))}."
        )
    return parameters(classes[name])


def describe_param(name: str, key: str, value: Any) -> str:
    """Return a parameter and its value as text, e.g. "backfill first fit"."""
    info = next(info for info in choice_params(name) if info.name == key)
    is_choice = value in info.choices
    text = info.label(value) if is_choice else str(Spec.of("x", v=value)).removeprefix("x:v=")
    is_name = text[1:2].isupper() or " (" in text
    return f"{key.replace('_', ' ')} {text if is_name else text[:1].lower() + text[1:]}"


def describe_values(name: str, spec: Spec) -> str:
    """Return all set parameters as text: "retries 3, mean time to repair 2 h"."""
    infos = {info.name: info for info in choice_params(name)}
    return ", ".join(
        f"{in_sentence(infos[key].title)} {value:g} {infos[key].unit}".rstrip()
        if isinstance(value, float)
        else f"{in_sentence(infos[key].title)} {value}"
        for key, value in spec.params
    )


def _title_with_unit(info: ParamInfo) -> str:
    return in_sentence(f"{info.title} ({info.unit})" if info.unit else info.title)


def setting_title(path: str, models: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the title of a scenario setting with its unit: "pause at a restart (s)".

    Paths without a title give their own words.

    Parameters
    ----------
    path : str
        See `trainyard.study.sweep.Axis.path`.
    models : mapping
        "perf" and "estimator" -> their names in the scenario, if known.
    """
    kind, name = path.partition(".")[0], path.rpartition(".")[2]
    cls = _SINGLE.get(kind) or _MODELS.get(kind, ({}, ""))[0].get(models.get(kind, ""))
    for info in parameters(cls) if cls is not None else ():
        if info.name == name:
            return _title_with_unit(info)
    omitted = ("params", "name", "base", "groups", "allocators")
    parts = [part for part in path.split(".") if part not in omitted and not part.isdigit()]
    return _SETTINGS.get(path) or " ".join(parts).replace("_", " ")


_SETTINGS: Final = {
    "horizon_s": "end of the run (s)",
    "stop": "the run ends",
    "trace.from_s": "trace from (s)",
    "trace.to_s": "trace to (s)",
    "trace.sample": "jobs sampled",
    "trace.sample_seed": "sample seed",
    "trace.every_user": "keep 1 user in",
    "trace.load_by": "change load by",
    "estimator.name": "run-time estimates",
}
_OF_POLICIES: Final = re.compile(r"allocators?\.")
_FORMER_KEYS: Final[Mapping[str, str]] = {"belief": "estimator"}
"""Former name of a scenario setting -> current name."""
_FORMER: Final[Mapping[str, ParamInfo]] = {
    info.was: info for cls in allocators.REGISTRY.values() for info in parameters(cls) if info.was
}
"""Former name of an allocator parameter -> the parameter; the same for all allocators."""
_SINGLE: Final[Mapping[str, type]] = {"overheads": Overheads, "faults": Faults}
_MODELS: Final[Mapping[str, tuple[Mapping[str, type], str]]] = {
    "perf": (PERF, "performance model"),
    "estimator": (ESTIMATORS, "estimator"),
}


def _unmet_need(needs: Needs, trace: Trace, perf: Spec) -> tuple[str, str]:
    """Return the first need that trace and model do not meet, and the reason; ("", "") = none."""
    for need, check in _REQUIREMENTS.items():
        if need in needs.reads | needs.requires and (sentence := check(trace, perf)):
            return need, sentence
    return "", ""


def _model_class(perf: Spec) -> type[PerfSpec]:
    """Return the class of a performance model; raise ParameterError if there is none."""
    if perf.name not in PERF:
        raise ParameterError(
            f"There is no performance model '{perf.name}'. Choose one of {', '.join(PERF)}."
        )
    return PERF[perf.name]


def _model_entry(name: str, cls: type) -> CatalogEntry:
    """Return the entry of a model class."""
    return CatalogEntry(name, name.replace("_", " ").capitalize(), _summary(cls), parameters(cls))


def _summary(cls: type) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join(cleandoc(cls.__doc__ or "").split("\n\n")[0].split())
