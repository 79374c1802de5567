"""What differs between two comparisons, in words, and what a user calls the trace of one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.params import Spec
from trainyard.results.outcomes import titles
from trainyard.store import Store
from trainyard.study.scenario import MADE
from trainyard.study.study import Study
from trainyard.traces.samples import SAMPLES


def differences(old: Study, new: Study, store: Store | None = None) -> list[str]:
    """Say in words what changed between two studies; `store` knows the names of uploads."""
    before, after = _flat(old.base.to_json()), _flat(new.base.to_json())
    found = _sources_differ(str(before.pop("trace.source")), str(after.pop("trace.source")), store)
    if old.base.cluster != new.base.cluster:
        gpus_before, gpus_after = old.base.cluster.gpus, new.base.cluster.gpus
        found.append(f"cluster: {gpus_before:,} → {gpus_after:,} GPU{'' if gpus_after == 1 else 's'}" if gpus_before != gpus_after else "cluster")
    keys = [key for key in dict.fromkeys([*before, *after]) if key.split(".")[0] not in ("cluster", "name", "allocator")]
    found += [f"{_words(key)} {_text(before.get(key))} → {_text(after.get(key))}" for key in keys if before.get(key) != after.get(key)]
    names_before, names_after = titles(old.allocators), titles(new.allocators)
    found += [f"+ {title}" for title in names_after if title not in names_before]
    found += [f"− {title}" for title in names_before if title not in names_after]
    if names_before[old.baseline] != names_after[new.baseline]:
        found.append(f"baseline {names_after[new.baseline]}")
    if old.repeats != new.repeats:
        found.append(f"repeats {old.repeats} → {new.repeats}")
    return found


def _sources_differ(old: str, new: str, store: Store | None) -> list[str]:
    if old == new:
        return []
    before, after = (Spec.parse(source.removeprefix(MADE)) if source.startswith(MADE) else None for source in (old, new))
    if before is not None and after is not None and before.name == after.name:
        values = [(key, before.values.get(key), after.values.get(key)) for key in dict.fromkeys([*before.values, *after.values])]
        return [f"trace {_words(key)} {_text(was)} → {_text(now)}" for key, was, now in values if was != now]
    names = [source_name(source, store) for source in (old, new)]
    return [f"trace {names[0]} → {names[1]}" if names[0] != names[1] else f"another version of the trace {names[1]}"]


def source_name(source: str, store: Store | None) -> str:
    """Return what a user calls a source."""
    kind, _, name = source.partition(":")
    if kind == "sample" and name in SAMPLES:
        return SAMPLES[name].title
    if kind == "made":
        return name.partition(":")[0]
    about = store.trace_info(name) if kind == "store" and store is not None else None
    return about.name if about is not None else "an upload" if kind == "store" else Path(source).name


def _flat(data: Any, path: str = "") -> dict[str, Any]:
    if isinstance(data, Mapping):
        return {key: value for name, item in data.items() for key, value in _flat(item, f"{path}.{name}" if path else str(name)).items()}
    return {path: data}


def _words(key: str) -> str:
    kept = [part for part in key.split(".") if part not in ("params", "name")]
    return " ".join(kept).replace("_", " ")


def _text(value: Any) -> str:
    return "default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
