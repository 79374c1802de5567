"""Differences between two studies as text, and the display name of a trace source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any, Final

from sim.cluster import Cluster
from sim.params import Spec
from trainyard.formatting import RunClock, gpu_type, in_sentence
from trainyard.store import Store
from trainyard.study import catalog
from trainyard.study.branch_point import Branch, FromHere, group_names
from trainyard.study.scenario import MADE
from trainyard.study.study import Study, titles
from trainyard.traces.samples import SAMPLES

_SHORT_S: Final = 2 * 3600.0
"""Instants before this are written with seconds."""
_MAX_NAMES: Final = 4
_SCALING: Final = "perf.name"
"""Key of the performance model in a scenario."""


def branch_title(recipe: FromHere) -> str:
    """Return the instant and changes of a branch, such as "from day 4 02:00 on with SRTF"."""
    clock = RunClock(seconds=recipe.turn.at_s < _SHORT_S)
    return f"from {clock.format(recipe.turn.at_s)} on {branch_changes(recipe.branch, clock)}"


def branch_changes(branch: Branch, clock: RunClock) -> str:
    """Return the changes of a branch, as part of a sentence.

    For example "with SRTF, 2 more nodes (v100-1) and without rack v100-1/r2 until day 4 02:00".
    """
    turn, cluster = branch.turn, branch.was.cluster
    row_names = group_names(cluster)
    additions = [] if turn.policy is None else [catalog.allocator(turn.policy).title]
    additions += [
        f"{count:,} more {'node' if count == 1 else 'nodes'} like {row_names[row]}"
        for row, count in turn.added
    ]
    parts = [f"with {' and '.join(additions)}"] if additions else []
    if turn.lost:
        back = (
            f" until {clock.format_after(turn.until_s, turn.at_s)}"
            if isfinite(turn.until_s)
            else ""
        )
        parts.append(f"without {_lost_names(cluster, turn.lost)}{back}")
    return " and ".join(parts)


def _lost_names(cluster: Cluster, lost: tuple[str, ...]) -> str:
    """Return lost racks and nodes, at most `_MAX_NAMES` and a count; racks cover their nodes."""
    in_lost_racks = {node.name for node in cluster.nodes if node.rack in lost}
    names = [name for name in lost if name not in in_lost_racks]
    listed = names[: _MAX_NAMES if len(names) > _MAX_NAMES + 1 else len(names)]
    return ", ".join(listed) + (
        f" and {len(names) - len(listed)} more" if len(listed) < len(names) else ""
    )


def study_changes(old: Study, new: Study, store: Store | None = None) -> list[str]:
    """Return the changes between two studies, one text each; `store` names uploads."""
    before, after = _flatten(old.base.to_json()), _flatten(new.base.to_json())
    texts = _source_changes(str(before.pop("trace.source")), str(after.pop("trace.source")), store)
    texts += _cluster_changes(old.base.cluster, new.base.cluster)
    keys = [
        key
        for key in dict.fromkeys([*before, *after])
        if key.split(".")[0] not in ("cluster", "name", "allocator")
    ]
    models = {"perf": new.base.perf.name, "estimator": new.base.estimator.name}
    texts += [
        f"{catalog.setting_title(key, models)} {_value_text(before.get(key))} →"
        f" {_value_text(after.get(key))}"
        for key in keys
        if before.get(key) != after.get(key) and key != _SCALING
    ]
    if before[_SCALING] != after[_SCALING]:
        was_model, model = (catalog.model_title(study.base.perf) for study in (old, new))
        texts.append(f"performance model: {was_model} → {model}")
    # A renamed policy is the same policy.
    was, now = titles(old.allocators), titles(new.allocators)
    texts += [f"+ {name}" for name, by in zip(new.titles, now, strict=True) if by not in was]
    texts += [f"− {name}" for name, by in zip(old.titles, was, strict=True) if by not in now]
    if was[old.baseline] != now[new.baseline]:
        texts.append(f"baseline {new.titles[new.baseline]}")
    if old.repeats != new.repeats:
        texts.append(f"repeats {old.repeats} → {new.repeats}")
    return texts


def _cluster_changes(old: Cluster, new: Cluster) -> list[str]:
    """Return the changes of the cluster: node counts per row if no more, else GPUs in all."""
    if old == new:
        return []
    counts = [group.count for group in old.groups]
    if len(counts) == len(new.groups) and new == replace(
        old,
        groups=tuple(
            replace(group, count=other.count)
            for group, other in zip(old.groups, new.groups, strict=True)
        ),
    ):
        return [
            f"{count:,} → {group.count:,} {gpu_type(group.name or group.gpu_type) or 'CPU'} nodes"
            for count, group in zip(counts, new.groups, strict=True)
            if count != group.count
        ]
    gpus = f"{old.gpus:,} → {new.gpus:,} GPU{'' if new.gpus == 1 else 's'}"
    return [f"cluster: {gpus}" if old.gpus != new.gpus else "cluster"]


def _source_changes(old: str, new: str, store: Store | None) -> list[str]:
    """Return the changes between two trace sources, as texts; none if they are equal.

    Changed parameters if both traces come from one generator, otherwise the two names.
    """
    if old == new:
        return []
    before, after = (
        Spec.parse(source.removeprefix(MADE)) if source.startswith(MADE) else None
        for source in (old, new)
    )
    if before is not None and after is not None and before.name == after.name:
        titles_of = {info.name: info.title for info in catalog.choice_params(f"made:{after.name}")}
        values = [
            (key, before.values.get(key), after.values.get(key))
            for key in dict.fromkeys([*before.values, *after.values])
        ]
        return [
            f"trace: {in_sentence(titles_of[key])} {_value_text(was)} → {_value_text(now)}"
            for key, was, now in values
            if was != now
        ]
    names = [source_name(source, store) for source in (old, new)]
    return [
        (
            f"trace {names[0]} → {names[1]}"
            if names[0] != names[1]
            else f"another version of the trace {names[1]}"
        )
    ]


def source_name(source: str, store: Store | None) -> str:
    """Return a trace source's display name: of the sample, generator, upload or file."""
    kind, _, name = source.partition(":")
    if kind == "sample" and name in SAMPLES:
        return SAMPLES[name].title
    if kind == "made":
        return name.partition(":")[0]
    about = store.trace_info(name) if kind == "store" and store is not None else None
    return (
        about.name if about is not None else "an upload" if kind == "store" else Path(source).name
    )


def _flatten(data: Any, path: str = "") -> dict[str, Any]:
    """Return nested mappings as one mapping with dotted keys."""
    if isinstance(data, Mapping):
        return {
            key: value
            for name, item in data.items()
            for key, value in _flatten(item, f"{path}.{name}" if path else str(name)).items()
        }
    return {path: data}


def _value_text(value: Any) -> str:
    """Return a value of a setting as text."""
    return "default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
