"""Measured profiles of the user: kept under their content hash, and found again where a scenario
names one.
"""

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
from sim.perf.measured import BUILT_IN, MOST_BYTES, ProfileTable, read_profile
from sim.perf.profiled import STORED, Profiled
from sim.trace import Trace
from trainyard.store import Store
from trainyard.study import catalog, files

__all__ = [
    "PROFILE_MB",
    "RELATIVE",
    "StoredProfile",
    "assumptions",
    "from_file",
    "is_profiled",
    "localised",
    "models_of",
    "resolved",
    "table_of",
    "take",
    "with_table",
]

PROFILE_MB: Final = MOST_BYTES // 1_000_000
_AT_HAND: Final[dict[str, ProfileTable]] = {}
"""Digest -> profile that the command line read from a file of this machine; these are not kept."""


class StoredProfile(NamedTuple):
    """A profile of the user: what `table` of the performance model is set to, and the
    measurements.
    """

    source: str
    table: ProfileTable


def take(data: bytes, name: str, store: Store) -> StoredProfile:
    """Read a CSV file and keep its measurements.

    Raises
    ------
    TrainyardError
        If the file cannot be used, in one sentence, or the store cannot be written.
    """
    table = read_profile(data, name)
    content = _content(table)
    digest = _digest(content)
    store.put_profile(digest, content, {"name": name, "notes": list(table.notes)})
    return StoredProfile(STORED + digest, table)


def with_table(perf: Spec, kept: StoredProfile, cluster: Cluster) -> Spec:
    """Return a performance model that uses a profile of the user; a reference type and a stand-in
    that the profile lacks are replaced or taken away.
    """
    values = dict(perf.values) | {"table": kept.source}
    types = kept.table.types
    if values.get("reference", Profiled.reference) not in types:
        values["reference"] = next(
            (kind for kind in used_types(cluster) if kind in types), types[0]
        )
    if values.get("stand_in", "") not in ("", RELATIVE, *kept.table.models.values()):
        del values["stand_in"]
    return Spec.of(perf.name, **values)


def models_of(perf: Spec, store: Store | None = None) -> tuple[str, ...]:
    """Return the models that a profile has measurements of, as written there.

    Raises
    ------
    ParameterError
        As `resolved`.
    """
    made = resolved(perf, store)
    return (
        tuple(sorted(made.measurements().models.values(), key=str.lower))
        if isinstance(made, Profiled)
        else ()
    )


def from_file(perf: Spec) -> Spec:
    """Return a performance model whose table is the path of a file with the content hash in its
    place; other models as they are.

    Notes
    -----
    For the command line only. The measurements stay in this process and are not kept, so a scenario
    with the hash runs elsewhere where the file was uploaded.

    Raises
    ------
    ParameterError
        If the file cannot be read or used.
    """
    path = str(perf.values.get("table", ""))
    if not is_profiled(perf) or path in ("", *BUILT_IN) or path.startswith(STORED):
        return perf
    try:
        if Path(path).stat().st_size > MOST_BYTES:
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
    digest = _digest(_content(table))
    _AT_HAND[digest] = table
    return Spec.of(perf.name, **(perf.values | {"table": STORED + digest}))


def localised(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario or study as JSON in which a profile that is named by its path is named by
    its content, see `from_file`, and policies hold the texts of the files that they name.

    Raises
    ------
    ParameterError
        As `from_file` and `trainyard.study.files.with_texts`.
    """
    made = files.localised(document)
    if isinstance(made.get("base"), Mapping):
        return made | {"base": localised(made["base"])}
    perf = made.get("perf")
    if isinstance(perf, str) or (
        isinstance(perf, Mapping) and "name" in perf and isinstance(perf.get("params", {}), Mapping)
    ):
        made["perf"] = from_file(
            Spec.parse(perf) if isinstance(perf, str) else Spec.from_json(perf)
        ).to_json()
    return made


def is_profiled(perf: Spec) -> bool:
    """Tell whether a performance model works from measured throughputs per GPU type."""
    return catalog.is_model(perf, Profiled)


def resolved(perf: Spec, store: Store | None = None) -> PerfSpec:
    """Build a performance model, with the user's profile where it names one.

    Parameters
    ----------
    perf : Spec
        Name and parameters.
    store : Store or None
        Where profiles are kept; None = the default store.

    Raises
    ------
    ParameterError
        If a parameter cannot be used, or the profile is not here any more.
    """
    made: PerfSpec = catalog.instance("perf", perf)
    if not isinstance(made, Profiled) or not made.table.startswith(STORED):
        return made
    return replace(made, own=table_of(made.table, store))


def table_of(source: str, store: Store | None = None) -> ProfileTable:
    """Return the profile of the user behind ``store:DIGEST``.

    Raises
    ------
    ParameterError
        If it is not here any more, or damaged.
    """
    digest = source.removeprefix(STORED)
    return _AT_HAND[digest] if digest in _AT_HAND else _kept(digest, (store or Store()).address)


def assumptions(perf: Spec, trace: Trace, store: Store | None = None) -> tuple[str, ...]:
    """Return what a performance model assumes because a trace does not say it, as sentences for the
    user.

    Raises
    ------
    ParameterError
        As `resolved`.
    """
    return resolved(perf, store).assumptions(trace)


def _content(table: ProfileTable) -> bytes:
    return table.to_frame().to_csv(index=False, lineterminator="\n").encode()


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@lru_cache(maxsize=8)
def _kept(digest: str, root: str) -> ProfileTable:
    found = Store.at(root).get_profile(digest)
    if found is None:
        raise ParameterError(
            f"The profile {digest[:12]} is not kept on this machine (any more). Upload its file"
            f" again, or choose one of {', '.join(BUILT_IN)}."
        )
    content, about = found
    if _digest(content) != digest:
        raise ParameterError(
            f"The kept profile {digest[:12]} was changed on the disk. Load its file again."
        )
    table = read_profile(content, str(about.get("name", "profile")))
    return replace(table, notes=tuple(map(str, about.get("notes", ()))))
