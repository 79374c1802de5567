"""Things of a library in one file: written here, and taken over there as far as its results can be
believed.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jobtraces.readers.files import DAMAGED, opened_zip
from sim.errors import TrainyardError
from trainyard.library.library import (
    MOST_NAME,
    MOST_TAG,
    MOST_TAGS,
    Recipe,
    item,
    label,
    read,
    shelve,
)
from trainyard.runs.run import key_of
from trainyard.store import Store, StoreError
from trainyard.store.entry import extent
from trainyard.store.files import MANIFEST
from trainyard.store.index import RUN
from trainyard.study.document import canonical_json, parse_json
from trainyard.study.scenario import READY, Scenario
from trainyard.text import plural

MOST_MB: Final = 500.0
"""Of an archive, unpacked."""
MOST_READ_MB: Final = 1000.0
"""Of its tables in memory: a value that is repeated takes no room in a file."""
_LIST: Final = "library.json"
_KEY: Final = re.compile(r"[0-9a-f]{8,64}")
_TABLES: Final = ("utilisation_by_type", "failed_by")
_TEXTS: Final = ("reason",)
"""Of the numbers of a run those that are tables of numbers, and those that are texts."""
_GREATEST: Final = 1e300
_DAMAGED: Final = (*DAMAGED, TypeError, AttributeError)
"""What reading a damaged or hostile archive raises."""


def packed(store: Store, owner: str, ids: Sequence[str]) -> tuple[bytes, tuple[str, ...]]:
    """Return a ZIP archive of things on a shelf, with the results that are kept whole.

    Returns
    -------
    tuple of (bytes, tuple of str)
        The archive, and the keys of results that were found damaged: of these only the numbers are
        in it, and stay here.

    Raises
    ------
    TrainyardError
        If one is not there.
    """
    chosen = [item(store, owner, mark) for mark in ids]
    keys = {one.id: store.index.uses(one.id) for one in chosen}
    rows = store.index.among(RUN, (key for own in keys.values() for key in own))
    about = [
        {
            "document": dict(one.kept.document),
            "name": one.name,
            "tags": list(one.tags),
            "runs": keys[one.id],
        }
        for one in chosen
    ]
    kept = [key for key, row in rows.items() if row.complete]
    whole = [key for key in kept if _is_sound(store, key)]
    alone = {
        key: {name: row.manifest[name] for name in ("summary", "scenario")}
        for key, row in rows.items()
        if key not in whole
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(
            zipfile.ZipInfo(_LIST),
            canonical_json({"kind": "library", "things": about, "numbers": alone}),
            zipfile.ZIP_DEFLATED,
        )
        for key in whole:
            for name, data in sorted(store.packed(key).items()):
                file.writestr(zipfile.ZipInfo(f"runs/{key}/{name}"), data, zipfile.ZIP_DEFLATED)
    return made.getvalue(), tuple(sorted({*kept} - {*whole}))


def _is_sound(store: Store, key: str) -> bool:
    entry = store.get(key)
    try:
        if entry is not None:
            entry.check()
    except StoreError:
        store.spoiled(key)
        return False
    return entry is not None


def is_archive(data: bytes) -> bool:
    """Tell whether a file looks like what `packed` wrote."""
    try:
        with opened_zip(data, "") as file:
            return _LIST in file.namelist()
    except (*DAMAGED, TrainyardError):
        return False


@dataclass(frozen=True)
class ArchiveImport:
    """What was taken over from an archive.

    Parameters
    ----------
    ids : tuple of str
        Of the things that stand on the shelf now.
    left : int
        Results that were not taken over.
    """

    ids: tuple[str, ...]
    left: int

    @property
    def summary(self) -> str:
        """Why results were not taken over, as one sentence; "" = all were."""
        if not self.left:
            return ""
        return (
            f"{plural(self.left, 'result')} of the file {'is' if self.left == 1 else 'are'}"
            " computed again here, because a file cannot prove them."
        )


@dataclass(frozen=True)
class _Contents:
    things: list[tuple[Recipe, str, list[str], list[str]]]
    whole: Mapping[str, tuple[Scenario, Mapping[str, bytes]]]
    numbers: Mapping[str, tuple[Scenario, Mapping[str, Any]]]


def unpack(store: Store, owner: str, data: bytes, name: str, *, results: bool) -> ArchiveImport:
    """Put what `packed` wrote on a shelf.

    Parameters
    ----------
    store : Store
        Where it is put.
    owner : str
        Whose shelf it is.
    data : bytes
        The archive.
    name : str
        Of the file, for what is told of it.
    results : bool
        Whether its results are believed, as far as they are kept under the hash of their own
        scenario; only who owns the store may say so, because everybody who uses it sees them as
        results of these scenarios. Otherwise recipes, names and tags are taken over.

    Raises
    ------
    TrainyardError
        If the file is none, damaged, or too large; results that were taken over before the damage
        stay.
    """
    found = _opened(data, name)
    if not results:
        return ArchiveImport(
            _shelved(store, owner, found, runs=False), len(found.whole) + len(found.numbers)
        )
    whole = {
        key: files
        for key, (scenario, files) in found.whole.items()
        if _is_own(key, scenario, store)
    }
    numbers = {
        key: (summary, scenario)
        for key, (scenario, summary) in found.numbers.items()
        if _is_own(key, scenario, store)
    }
    _check_room(whole, name)
    for key, files in whole.items():
        store.unpack(key, files)
    for key, (summary, scenario) in numbers.items():
        store.put_numbers(key, summary, scenario.to_json())
    return ArchiveImport(
        _shelved(store, owner, found, runs=True),
        len(found.whole) - len(whole) + len(found.numbers) - len(numbers),
    )


def _opened(data: bytes, name: str) -> _Contents:
    try:
        with opened_zip(data, name) as file:
            if sum(one.file_size for one in file.infolist()) > MOST_MB * 1e6:
                raise StoreError(
                    f"{name}: unpacked, this archive has more than {MOST_MB:.0f} MB. Export fewer"
                    " things at once."
                )
            about = parse_json(file.read(_LIST).decode(), name)
            runs: dict[str, dict[str, bytes]] = {}
            for one in file.namelist():
                part = one.split("/")
                if len(part) == 3 and part[0] == "runs":
                    runs.setdefault(part[1], {})[part[2]] = file.read(one)
            numbers = {
                _key(key): (Scenario.from_json(one["scenario"]), _summary(one["summary"]))
                for key, one in about["numbers"].items()
            }
            whole = {
                _key(key): (_of_manifest(files[MANIFEST]), files) for key, files in runs.items()
            }
            return _Contents([_thing(thing) for thing in about["things"]], whole, numbers)
    except _DAMAGED as error:
        if isinstance(error, TrainyardError):
            raise
        raise StoreError(
            f"{name}: this is no archive of a library, or it is damaged. Use a file that 'runs"
            " export' wrote."
        ) from error


def _key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise ValueError(text)
    return text


def _of_manifest(data: bytes) -> Scenario:
    about = json.loads(data)
    _summary(about["summary"])
    return Scenario.from_json(about["scenario"])


def _summary(data: Any) -> dict[str, Any]:
    """Return what `sim.metrics.summary` gave; anything but numbers in it would break whatever reads
    it later.
    """
    numbers = {
        name: list(value.values()) if name in _TABLES else [value]
        for name, value in data.items()
        if name not in _TEXTS
    }
    if wrong := [name for name, values in numbers.items() if not all(map(_is_number, values))]:
        raise ValueError(wrong[0])
    if not (
        min(data["jobs"], data["completed"]) >= 0
        and all(isinstance(data.get(name, ""), str) for name in _TEXTS)
    ):
        raise ValueError("jobs")
    return dict(data)


def _is_number(value: Any) -> bool:
    return value is None or (
        isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _GREATEST
    )


def _thing(thing: Any) -> tuple[Recipe, str, list[str], list[str]]:
    runs = [str(key) for key in thing["runs"] if _KEY.fullmatch(str(key))]
    return (
        read(thing["document"]),
        str(thing["name"])[:MOST_NAME],
        [str(tag)[:MOST_TAG] for tag in thing["tags"]][:MOST_TAGS],
        runs,
    )


def _is_own(key: str, scenario: Scenario, store: Store) -> bool:
    """Tell whether this is the key of the scenario. A path on another machine says nothing of the
    jobs there, and is not opened here.
    """
    try:
        return scenario.trace.source.startswith(READY) and key_of(scenario, store) == key
    except TrainyardError:
        return False


def _check_room(whole: Mapping[str, Mapping[str, bytes]], name: str) -> None:
    """Refuse tables that have other rows than is said, or would fill the memory, before one is
    read.
    """
    needed = 0
    for key, files in whole.items():
        try:
            rows = json.loads(files[MANIFEST])["rows"]
            for file, data in files.items():
                if file != MANIFEST:
                    there, size = extent(data)
                    needed += size
                    if there != rows[file.removesuffix(".parquet")]:
                        raise ValueError(file)
        except _DAMAGED as error:
            raise StoreError(
                f"{name}: the result {key[:12]} in this file is damaged or made by hand, so it is"
                " not taken over. Export it again."
            ) from error
    if needed > MOST_READ_MB * 1e6:
        raise StoreError(
            f"{name}: in memory, the tables of this archive have more than {MOST_READ_MB:.0f} MB."
            " Export fewer things at once."
        )


def _shelved(store: Store, owner: str, found: _Contents, *, runs: bool) -> tuple[str, ...]:
    made = []
    for recipe, given, tags, keys in found.things:
        # Keys that are not its own could hold, or take away, runs of others.
        made.append(shelve(store, owner, recipe, keys if runs else ()))
        label(store, owner, made[-1], name=given or None, tags=tags or None)
    return tuple(made)
