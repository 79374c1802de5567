"""Measured profiles of the user, stored by content hash and named by scenarios."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.params import Spec
from sim.perf import PerfSpec
from sim.perf.lookup import RELATIVE, used_types
from sim.perf.measured import BUILT_IN, MAX_BYTES, ProfileTable, read_profile
from sim.perf.profiled import STORED, Profiled
from sim.trace import Trace
from trainyard.store import Store
from trainyard.study import catalog, files

__all__ = [
    "PROFILE_MB",
    "RELATIVE",
    "StoredProfile",
    "assumptions",
    "build_model",
    "from_file",
    "is_profiled",
    "load_profile",
    "models_of",
    "store_profile",
    "with_contents",
    "with_table",
]

PROFILE_MB: Final = MAX_BYTES // 1_000_000
_LOADED: Final[dict[str, ProfileTable]] = {}
"""Digest -> profile that the command line read from a local file; not stored."""


class StoredProfile(NamedTuple):
    """A profile of the user: the `table` parameter that names it, and its measurements."""

    source: str
    table: ProfileTable


def store_profile(data: bytes, name: str, store: Store) -> StoredProfile:
    """Read a profile from a CSV file and store it.

    Raises
    ------
    TrainyardError
        If the file cannot be used, or the store cannot be written.
    """
    table = read_profile(data, name)
    content = _profile_csv(table)
    digest = _digest(content)
    store.put_profile(digest, content, {"name": name, "notes": list(table.notes)})
    return StoredProfile(STORED + digest, table)


def with_table(perf: Spec, profile: StoredProfile, cluster: Cluster) -> Spec:
    """Return a performance model that uses a profile of the user.

    A reference GPU type that the profile lacks is replaced, if possible by one of the cluster; a
    stand-in model that it lacks is removed.
    """
    values = dict(perf.values) | {"table": profile.source}
    types = profile.table.types
    if values.get("reference", Profiled.reference) not in types:
        values["reference"] = next(
            (kind for kind in used_types(cluster) if kind in types), types[0]
        )
    if values.get("stand_in", "") not in ("", RELATIVE, *profile.table.models.values()):
        del values["stand_in"]
    return Spec.of(perf.name, **values)


def models_of(perf: Spec, store: Store | None = None) -> tuple[str, ...]:
    """Return the model names of a profile, in alphabetical order; empty without a profile.

    Raises
    ------
    ParameterError
        As `build_model`.
    """
    model = build_model(perf, store)
    return (
        tuple(sorted(model.measurements().models.values(), key=str.lower))
        if isinstance(model, Profiled)
        else ()
    )


def from_file(perf: Spec) -> Spec:
    """Return a performance model with its profile file replaced by a content hash.

    Other models are returned unchanged.

    Notes
    -----
    For the command line only. The measurements stay in this process and are not stored, so
    elsewhere a scenario with the hash runs only if the file was uploaded.

    Raises
    ------
    ParameterError
        If the file cannot be read or used.
    """
    path = str(perf.values.get("table", ""))
    if not is_profiled(perf) or path in ("", *BUILT_IN) or path.startswith(STORED):
        return perf
    try:
        if Path(path).stat().st_size > MAX_BYTES:
            raise ParameterError(
                f"{path}: the file is larger than the {PROFILE_MB} MB that a profile may have. Cut"
                " rows out."
            )
        table = read_profile(Path(path).read_bytes(), Path(path).name)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ParameterError(
            f"{path}: the profile cannot be opened ({why}). Check the path, or choose one of"
            f" {', '.join(BUILT_IN)}."
        ) from error
    digest = _digest(_profile_csv(table))
    _LOADED[digest] = table
    return Spec.of(perf.name, **(perf.values | {"table": STORED + digest}))


def with_contents(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario or study document with file contents instead of paths.

    A profile is named by its content, see `from_file`; policies hold the text of their files.

    Raises
    ------
    ParameterError
        As `from_file` and `trainyard.study.files.with_file_contents`.
    """
    changed = files.with_file_contents(document)
    if isinstance(changed.get("base"), Mapping):
        return changed | {"base": with_contents(changed["base"])}
    perf = changed.get("perf")
    if isinstance(perf, str) or (
        isinstance(perf, Mapping) and "name" in perf and isinstance(perf.get("params", {}), Mapping)
    ):
        changed["perf"] = from_file(
            Spec.parse(perf) if isinstance(perf, str) else Spec.from_json(perf)
        ).to_json()
    return changed


def is_profiled(perf: Spec) -> bool:
    """Return True if a performance model uses measured throughputs per GPU type."""
    return catalog.is_model(perf, Profiled)


def build_model(perf: Spec, store: Store | None = None) -> PerfSpec:
    """Build a performance model, with the stored profile that it names.

    Parameters
    ----------
    perf : Spec
        Name and parameters.
    store : Store or None
        Store of the profiles; None = the default store.

    Raises
    ------
    ParameterError
        If a parameter is invalid, or the profile was deleted.
    """
    model: PerfSpec = catalog.instance("perf", perf)
    if not isinstance(model, Profiled) or not model.table.startswith(STORED):
        return model
    return replace(model, own=load_profile(model.table, store))


def load_profile(source: str, store: Store | None = None) -> ProfileTable:
    """Return the profile of a ``store:DIGEST`` name; `store` None = the default store.

    Raises
    ------
    ParameterError
        If it was deleted, or is damaged.
    """
    digest = source.removeprefix(STORED)
    return (
        _LOADED[digest] if digest in _LOADED else _load_stored(digest, (store or Store()).address)
    )


def assumptions(perf: Spec, trace: Trace, store: Store | None = None) -> tuple[str, ...]:
    """Return sentences on what a performance model assumes about a trace.

    Raises
    ------
    ParameterError
        As `build_model`.
    """
    return build_model(perf, store).assumptions(trace)


def _profile_csv(table: ProfileTable) -> bytes:
    return table.to_frame().to_csv(index=False, lineterminator="\n").encode()


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@lru_cache(maxsize=8)
def _load_stored(digest: str, root: str) -> ProfileTable:
    """Return the profile of a digest from a store, after verifying its content; cached."""
    stored = Store.open(root).get_profile(digest)
    if stored is None:
        raise ParameterError(
            f"The profile {digest[:12]} is no longer on this machine. Upload its file"
            f" again, or choose one of {', '.join(BUILT_IN)}."
        )
    content, about = stored
    if _digest(content) != digest:
        raise ParameterError(
            f"The stored profile {digest[:12]} was changed on disk. Upload its file again."
        )
    table = read_profile(content, str(about.get("name", "profile")))
    return replace(table, notes=tuple(map(str, about.get("notes", ()))))
