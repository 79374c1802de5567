"""Archives of library items: export, and import with verified results."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jobtraces.readers.files import ARCHIVE_ERRORS, open_zip
from sim.errors import TrainyardError
from trainyard.formatting import plural
from trainyard.library.library import (
    MAX_NAME_LENGTH,
    MAX_TAG_CHARS,
    MAX_TAGS,
    Recipe,
    item,
    label_item,
    read_recipe,
    shelve,
)
from trainyard.runs.run import scenario_key
from trainyard.store import Store, StoreError
from trainyard.store.entry import parquet_size
from trainyard.store.files import MANIFEST
from trainyard.store.rows import RUN
from trainyard.study.document import canonical_json, parse_json
from trainyard.study.scenario import READY, Scenario

MAX_MB: Final = 500.0
"""Maximum size of an unpacked archive."""
MAX_READ_MB: Final = 1000.0
"""Maximum size of its tables in memory, where repeated values are not compressed."""
_LIST: Final = "library.json"
_KEY: Final = re.compile(r"[0-9a-f]{8,64}")
_TABLES: Final = ("utilisation_by_type", "failed_by")
_TEXTS: Final = ("reason",)
"""Summary entries of a run that are tables of numbers, and those that are texts."""
_MAX_VALUE: Final = 1e300
_DAMAGED: Final = (*ARCHIVE_ERRORS, TypeError, AttributeError)
"""Exceptions that a damaged or hostile archive raises."""


def pack_items(store: Store, owner: str, ids: Sequence[str]) -> tuple[bytes, tuple[str, ...]]:
    """Return a ZIP archive of items on a shelf with their complete results.

    Returns
    -------
    tuple of (bytes, tuple of str)
        The archive, and the keys of damaged results, of which only the numbers are exported and
        kept.

    Raises
    ------
    TrainyardError
        If an item does not exist.
    """
    chosen = [item(store, owner, item_id) for item_id in ids]
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
    complete_keys = [key for key, row in rows.items() if row.complete]
    whole = [key for key in complete_keys if _is_undamaged(store, key)]
    numbers_only = {
        key: {name: row.manifest[name] for name in ("summary", "scenario")}
        for key, row in rows.items()
        if key not in whole
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(
            zipfile.ZipInfo(_LIST),
            canonical_json({"kind": "library", "things": about, "numbers": numbers_only}),
            zipfile.ZIP_DEFLATED,
        )
        for key in whole:
            for name, data in sorted(store.pack_files(key).items()):
                file.writestr(zipfile.ZipInfo(f"runs/{key}/{name}"), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue(), tuple(sorted({*complete_keys} - {*whole}))


def _is_undamaged(store: Store, key: str) -> bool:
    """Return True if a result is complete and undamaged; drop the files of a damaged one."""
    entry = store.get(key)
    try:
        if entry is not None:
            entry.check()
    except StoreError:
        store.discard_files(key)
        return False
    return entry is not None


def is_archive(data: bytes) -> bool:
    """Return True if a file is a ZIP archive with the list of `pack_items`."""
    try:
        with open_zip(data, "") as file:
            return _LIST in file.namelist()
    except (*ARCHIVE_ERRORS, TrainyardError):
        return False


@dataclass(frozen=True)
class ArchiveImport:
    """Result of importing an archive.

    Parameters
    ----------
    ids : tuple of str
        Ids of the imported items.
    left : int
        Number of results that were not imported.
    """

    ids: tuple[str, ...]
    left: int

    @property
    def summary(self) -> str:
        """Why results were not imported, as one sentence; "" = all were."""
        if not self.left:
            return ""
        return (
            f"{plural(self.left, 'result')} of the file {'is' if self.left == 1 else 'are'}"
            " computed again here, because a file cannot prove its results."
        )


@dataclass(frozen=True)
class _Contents:
    """Parsed contents of an archive: items, complete results, and runs with numbers only."""

    things: list[tuple[Recipe, str, list[str], list[str]]]
    whole: Mapping[str, tuple[Scenario, Mapping[str, bytes]]]
    numbers: Mapping[str, tuple[Scenario, Mapping[str, Any]]]


def import_archive(
    store: Store, owner: str, data: bytes, name: str, *, results: bool
) -> ArchiveImport:
    """Import an archive of `pack_items` to a shelf.

    Parameters
    ----------
    store : Store
        Store to import to.
    owner : str
        Owner of the shelf.
    data : bytes
        The archive.
    name : str
        Name of the file, for error messages.
    results : bool
        Whether to import results whose key matches their scenario. Only the owner of the store may
        allow it, because all users see them as results of these scenarios. Otherwise only
        documents, names and tags are imported.

    Raises
    ------
    TrainyardError
        If the file is not an archive, damaged or too large; results imported before the damage
        stay.
    """
    contents = _read_contents(data, name)
    if not results:
        return ArchiveImport(
            _shelve_items(store, owner, contents, runs=False),
            len(contents.whole) + len(contents.numbers),
        )
    whole = {
        key: files
        for key, (scenario, files) in contents.whole.items()
        if _has_own_key(key, scenario, store)
    }
    numbers = {
        key: (summary, scenario)
        for key, (scenario, summary) in contents.numbers.items()
        if _has_own_key(key, scenario, store)
    }
    _check_tables(whole, name)
    for key, files in whole.items():
        store.unpack(key, files)
    for key, (summary, scenario) in numbers.items():
        store.put_numbers(key, summary, scenario.to_json())
    return ArchiveImport(
        _shelve_items(store, owner, contents, runs=True),
        len(contents.whole) - len(whole) + len(contents.numbers) - len(numbers),
    )


def _read_contents(data: bytes, name: str) -> _Contents:
    """Return the parsed contents of an archive; raise StoreError if damaged or too large."""
    try:
        with open_zip(data, name) as file:
            if sum(one.file_size for one in file.infolist()) > MAX_MB * 1e6:
                raise StoreError(
                    f"{name}: unpacked, this archive has more than {MAX_MB:.0f} MB. Export fewer"
                    " items at once."
                )
            about = parse_json(file.read(_LIST).decode(), name)
            runs: dict[str, dict[str, bytes]] = {}
            for one in file.namelist():
                part = one.split("/")
                if len(part) == 3 and part[0] == "runs":
                    runs.setdefault(part[1], {})[part[2]] = file.read(one)
            numbers = {
                _checked_key(key): (
                    Scenario.from_json(one["scenario"]),
                    _checked_summary(one["summary"]),
                )
                for key, one in about["numbers"].items()
            }
            whole = {
                _checked_key(key): (_scenario_of_manifest(files[MANIFEST]), files)
                for key, files in runs.items()
            }
            return _Contents([_parse_item(thing) for thing in about["things"]], whole, numbers)
    except _DAMAGED as error:
        if isinstance(error, TrainyardError):
            raise
        raise StoreError(
            f"{name}: this is not a library archive, or it is damaged. Use a file that 'runs"
            " export' wrote."
        ) from error


def _checked_key(text: str) -> str:
    """Return a run key after checking its form; raise ValueError if it is none."""
    if not _KEY.fullmatch(text):
        raise ValueError(text)
    return text


def _scenario_of_manifest(data: bytes) -> Scenario:
    """Return the scenario of a manifest, after checking its numbers."""
    about = json.loads(data)
    _checked_summary(about["summary"])
    return Scenario.from_json(about["scenario"])


def _checked_summary(data: Any) -> dict[str, Any]:
    """Return the summary of a run; raise ValueError if a value has the wrong type."""
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
        isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _MAX_VALUE
    )


def _parse_item(thing: Any) -> tuple[Recipe, str, list[str], list[str]]:
    """Return recipe, name, tags and run keys of an item in an archive, each cut to its limit."""
    runs = [str(key) for key in thing["runs"] if _KEY.fullmatch(str(key))]
    return (
        read_recipe(thing["document"]),
        str(thing["name"])[:MAX_NAME_LENGTH],
        [str(tag)[:MAX_TAG_CHARS] for tag in thing["tags"]][:MAX_TAGS],
        runs,
    )


def _has_own_key(key: str, scenario: Scenario, store: Store) -> bool:
    """Return True if a key belongs to a scenario; False for local files and missing traces."""
    try:
        return scenario.trace.source.startswith(READY) and scenario_key(scenario, store) == key
    except TrainyardError:
        return False


def _check_tables(whole: Mapping[str, Mapping[str, bytes]], name: str) -> None:
    """Raise StoreError if tables have wrong row counts or would exceed memory when read."""
    needed = 0
    for key, files in whole.items():
        try:
            rows = json.loads(files[MANIFEST])["rows"]
            for file, data in files.items():
                if file != MANIFEST:
                    row_count, size = parquet_size(data)
                    needed += size
                    if row_count != rows[file.removesuffix(".parquet")]:
                        raise ValueError(file)
        except _DAMAGED as error:
            raise StoreError(
                f"{name}: the result {key[:12]} in this file is damaged or edited, so it was not"
                " imported. Export it again."
            ) from error
    if needed > MAX_READ_MB * 1e6:
        raise StoreError(
            f"{name}: in memory, the tables of this archive have more than {MAX_READ_MB:.0f} MB."
            " Export fewer items at once."
        )


def _shelve_items(store: Store, owner: str, contents: _Contents, *, runs: bool) -> tuple[str, ...]:
    """Put the items of an archive on a shelf with names and tags; return their ids.

    Their runs are linked only if `runs`.
    """
    ids = []
    for recipe, given, tags, keys in contents.things:
        # Keys of other items could keep or delete runs of other owners.
        ids.append(shelve(store, owner, recipe, keys if runs else ()))
        label_item(store, owner, ids[-1], name=given or None, tags=tags or None)
    return tuple(ids)
