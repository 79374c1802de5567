"""The store of results, uploaded traces and profiles, by content hash.

Files are in a folder or behind a URL and listed in a database. Damaged items count as missing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pandas as pd

from sim.errors import TraceError
from sim.result import RunResult
from sim.trace import Trace
from trainyard.store.entry import FRAMES, StoredResult, column_categories, read_frame, to_parquet
from trainyard.store.files import (
    MANIFEST,
    StoreError,
    clear_drafts,
    create_folder,
    default_root,
    files_at,
    redact_address,
)
from trainyard.store.rows import LINK, PROFILE, RUN, TRACE, Clock, IndexRow
from trainyard.study.document import plain

KEEP_DAYS: Final = 30.0
FIRST_S: Final = 3600.0
"""Seconds after opening during which a store deletes nothing."""
_APART: Final = "\n"
"""Separator of folder and database in an address; neither can contain it."""
_FRAME: Final = re.compile(r"[a-z0-9_-]{1,60}\.parquet")
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredTrace:
    """Metadata of an uploaded trace."""

    digest: str
    name: str
    jobs: int
    created_s: float
    account: Mapping[str, Any]


class Store:
    """Store of results, uploaded traces and profiles.

    Several processes may use it at once, and with a shared database several machines.

    Parameters
    ----------
    root : Path, str or None
        A folder, or a URL that fsspec understands; None = `default_root()`.
    keep_days : float, days
        Age at which `expire` removes uploads and results, except those of named comparisons.
    database : str
        SQLAlchemy address of the database; "" = ``TRAINYARD_DATABASE``, or a file in
        the folder.
    clock : Clock, optional
        Source of time.

    Raises
    ------
    TrainyardError
        If the files or the database cannot be reached.

    Notes
    -----
    Files are written before they are listed, so listed items exist. The manifest of a result
    repeats its database row, so a new database can list complete results again. Shelves, names and
    runs with numbers only exist in the database alone.
    """

    def __init__(
        self,
        root: Path | str | None = None,
        keep_days: float = KEEP_DAYS,
        database: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or Clock()
        self._opened_s = self._clock.steady_s()
        place = str(
            root if root is not None else os.environ.get("TRAINYARD_STORE") or default_root()
        )
        self.keep_days = keep_days
        self.root = default_root() if "://" in place else Path(place).expanduser()
        self._place = place if "://" in place else str(self.root)
        self._database = database or os.environ.get("TRAINYARD_DATABASE", "")
        if not self._database and "://" in place:
            raise StoreError(
                f"Results at {redact_address(place)} need a database to list them. Set"
                " TRAINYARD_DATABASE to its address."
            )
        self._files = {kind: files_at(f"{self._place}/{kind}s") for kind in (RUN, TRACE, PROFILE)}
        # SQLAlchemy takes a third of a second to load, and many commands open no store.
        from trainyard.store.index import Index, database_in  # noqa: PLC0415

        self.index = Index(self._database or database_in(create_folder(self.root)), self._clock)
        if self.index.is_new:
            self._list_again()

    @classmethod
    def open(cls, address: str) -> Store:
        """Return the store with an `address`, opened once per process, or again if it was lost."""
        store = _open_store(address)
        if store.index.lost:
            _open_store.cache_clear()
            store = _open_store(address)
        return store

    @property
    def place(self) -> str:
        """Folder or URL of its files, without a password."""
        return redact_address(self._place) if "://" in self._place else self._place

    @property
    def address(self) -> str:
        """Address with which another process opens this store."""
        return _APART.join([self._place, *([self._database] if self._database else [])])

    @property
    def shared(self) -> bool:
        """Whether other machines can reach both files and database."""
        return (
            bool(self._database)
            and not self._database.startswith("sqlite")
            and self._files[RUN].shared
        )

    def has(self, key: str) -> bool:
        """Return True if a complete result is stored."""
        return self.get(key) is not None

    def get(self, key: str) -> StoredResult | None:
        """Return a stored result, None if missing; a damaged one keeps only its numbers."""
        row = self._row(RUN, key)
        return self._entry(row) if row is not None and self._is_whole(row) else None

    def get_all(self, keys: Iterable[str]) -> dict[str, StoredResult]:
        """Return key -> result of the complete results, in one look-up."""
        rows = self.index.among(RUN, map(_check_key, keys))
        return {key: self._entry(row) for key, row in rows.items() if self._is_whole(row)}

    def _is_whole(self, row: IndexRow) -> bool:
        """Return True if all files of a result have their sizes; else keep its numbers only."""
        if not row.complete:
            return False
        sizes = self._files[RUN].sizes(row.key)
        wrong = [name for name, size in row.manifest["sizes"].items() if sizes.get(name) != size]
        if wrong:
            what = "its files are missing" if not sizes else ", ".join(wrong)
            _LOG.warning(
                "The stored result %s is damaged (%s). Its numbers are kept; run it again for the"
                " rest.",
                row.key[:12],
                what,
            )
            self.discard_files(row.key)
        return not wrong

    def _entry(self, row: IndexRow) -> StoredResult:
        """Return a database row as a stored result."""
        return StoredResult(
            row.key,
            self._files[RUN],
            row.manifest["rows"],
            row.manifest["summary"],
            row.manifest["scenario"],
            row.manifest["provenance"],
        )

    def numbers(self, keys: Iterable[str], *, whole: bool = False) -> dict[str, Mapping[str, Any]]:
        """Return key -> summary of the stored runs; with `whole` of complete results only."""
        return {
            key: row.manifest["summary"]
            for key, row in self.index.among(RUN, map(_check_key, keys)).items()
            if not whole or self._is_whole(row)
        }

    def put(
        self,
        key: str,
        result: RunResult,
        summary: Mapping[str, Any],
        charts: Mapping[str, pd.DataFrame],
        about: Mapping[str, Any],
    ) -> None:
        """Store a result; an equal one of another process is kept.

        Parameters
        ----------
        key : str
            Of the scenario.
        result : RunResult
            The run.
        summary : mapping
            Name of a metric -> number; NaN is stored as null.
        charts : mapping of str to DataFrame
            Binned frames of charts.
        about : mapping
            ``scenario`` (its JSON) and ``versions``.

        Raises
        ------
        TrainyardError
            If it cannot be written.
        """
        frames = {name: getattr(result, name) for name in FRAMES} | {
            f"chart-{name}": frame for name, frame in charts.items()
        }
        files = {f"{name}.parquet": to_parquet(frame) for name, frame in frames.items()}
        created_s = self.index.stamp_s()
        provenance = {
            "created_s": created_s,
            "digest": result.digest(),
            "versions": dict(about["versions"]),
            "timing": asdict(result.timing),
            "categories": {name: column_categories(frame) for name, frame in frames.items()},
            "result": {
                name: plain(getattr(result, name))
                for name in ("end_s", "reason", "voided", "overflow", "remarks")
            },
        }
        sizes = {name: len(data) for name, data in files.items()}
        rows = {name: len(frame) for name, frame in frames.items()}
        body = {
            "sizes": sizes,
            "rows": rows,
            "summary": plain(summary),
            "scenario": about["scenario"],
            "provenance": plain(provenance),
        }
        self._keep(RUN, key, files, body, created_s)

    def put_numbers(
        self, key: str, summary: Mapping[str, Any], scenario: Mapping[str, Any]
    ) -> None:
        """Store the numbers of a run without its frames, as sweeps do.

        Raises
        ------
        TrainyardError
            If they cannot be written.
        """
        created_s = self.index.stamp_s()
        body = {
            "sizes": {},
            "summary": plain(summary),
            "scenario": dict(scenario),
            "provenance": {"created_s": created_s},
        }
        self.index.put(IndexRow(RUN, _check_key(key), created_s, False, 0, body))

    def scenario(self, key: str) -> Mapping[str, Any] | None:
        """Return the scenario of a stored run, complete or numbers only, or None."""
        row = self._row(RUN, key)
        return row.manifest["scenario"] if row is not None else None

    def entries(self) -> list[StoredResult]:
        """Return all complete results, newest first, without checking their files."""
        return [self._entry(row) for row in self.index.rows(RUN, complete=True)]

    def runs_of(self, source: str) -> list[str]:
        """Return the keys of all stored runs of a trace, given by its source."""
        return [
            row.key
            for row in self.index.rows(RUN)
            if row.manifest["scenario"].get("trace", {}).get("source") == source
        ]

    def delete(self, *keys: str) -> None:
        """Remove results if they exist."""
        self._remove(RUN, keys)

    def discard_files(self, key: str) -> None:
        """Remove the files of a damaged result and keep its numbers."""
        self.index.drop_files(_check_key(key))
        self._files[RUN].remove(key)

    def unshelve(self, owner: str, study: str) -> list[str]:
        """Remove an item from a shelf; return the runs deleted because no other item uses them."""
        unused_runs = self.index.unshelve(owner, study)
        # Another process may have stored one again meanwhile.
        rerun = self.index.among(RUN, map(_check_key, unused_runs))
        for key in unused_runs:
            if key not in rerun:
                self._files[RUN].remove(key)
        return unused_runs

    def put_trace(
        self, trace: Trace, account: Mapping[str, Any] | None = None, owners: Iterable[str] = ()
    ) -> str:
        """Store a trace for `keep_days` after its last upload.

        Parameters
        ----------
        trace : Trace
            The trace before window and load are applied.
        account : mapping or None
            Import report as plain values.
        owners : iterable of str
            Browsers that may delete it.

        Returns
        -------
        str
            Its digest; ``store:<digest>`` is its source in a scenario.

        Raises
        ------
        TrainyardError
            If it cannot be written.
        """
        if self._row(TRACE, trace.digest) is not None:
            self.index.renew(TRACE, trace.digest)
        else:
            about = trace.about | {"jobs": len(trace), "account": plain(account or {})}
            self._keep(
                TRACE,
                trace.digest,
                {"jobs.parquet": to_parquet(trace.frame)},
                about,
                self.index.stamp_s(),
            )
        for owner in owners:
            self.index.own(owner, trace.digest)
        return trace.digest

    def trace_info(self, digest: str) -> StoredTrace | None:
        """Return the metadata of a stored trace, None if missing."""
        row = self._row(TRACE, digest)
        return _to_stored_trace(row) if row is not None else None

    def get_trace(self, digest: str) -> Trace:
        """Return a stored trace.

        A trace without files is removed from the database.

        Raises
        ------
        TraceError
            If it was deleted, or is damaged.
        """
        row = self._row(TRACE, digest)
        missing = f"The trace {digest[:12]} is no longer on this machine. Load its file again."
        if row is None:
            raise TraceError(missing)
        try:
            frame = read_frame(self._files[TRACE].read(digest, "jobs.parquet"))
            trace = Trace.of(
                frame,
                name=str(row.manifest["name"]),
                epoch=str(row.manifest["epoch"]),
                from_zero=bool(row.manifest.get("from_zero", True)),
                doubts=row.manifest.get("doubts", ()),
            )
        except FileNotFoundError as error:
            self.index.drop(TRACE, [digest])
            raise TraceError(missing) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TraceError(
                f"The stored trace {digest[:12]} is damaged ({error}). Load its file again."
            ) from error
        if trace.digest != digest:
            raise TraceError(
                f"The stored trace {digest[:12]} was changed on disk. Load its file again."
            )
        return trace

    def traces(self) -> list[StoredTrace]:
        """Return the metadata of all stored traces, newest first."""
        return [_to_stored_trace(row) for row in self.index.rows(TRACE)]

    def delete_trace(self, digest: str) -> None:
        """Remove a stored trace if it exists."""
        self._remove(TRACE, [digest])

    def put_profile(self, digest: str, data: bytes, about: Mapping[str, Any]) -> None:
        """Store a measured profile for `keep_days` after its last upload.

        Raises `TrainyardError` if it cannot be written.
        """
        if self._row(PROFILE, digest) is not None:
            self.index.renew(PROFILE, digest)
        else:
            self._keep(PROFILE, digest, {"profile.csv": data}, plain(about), self.index.stamp_s())

    def get_profile(self, digest: str) -> tuple[bytes, Mapping[str, Any]] | None:
        """Return the file and metadata of a stored profile; None, and unlisted, if missing."""
        row = self._row(PROFILE, digest)
        try:
            return (
                None
                if row is None
                else (self._files[PROFILE].read(digest, "profile.csv"), row.manifest)
            )
        except FileNotFoundError:
            self.index.drop(PROFILE, [digest])
            return None

    def put_link(self, parameters: Mapping[str, str]) -> str:
        """Store the parameters of a URL for `keep_days` after the last call; return their key.

        Raises `TrainyardError` if they cannot be written.
        """
        body = {"parameters": dict(parameters)}
        text = json.dumps(body, sort_keys=True)
        key = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        if self._row(LINK, key) is not None:
            self.index.renew(LINK, key)
        else:
            self.index.put(IndexRow(LINK, key, self.index.stamp_s(), True, 0, body))
        return key

    def link_parameters(self, key: str) -> Mapping[str, str] | None:
        """Return the parameters of a stored URL, or None if the key is unknown."""
        row = self._row(LINK, key)
        return row.manifest["parameters"] if row is not None else None

    def deletable_before_s(self) -> float:
        """Return the time before which results and uploads may be deleted.

        Ages count from the newest item, so that a clock that is ahead deletes nothing. Nothing is
        deleted in the first hour after opening, when most wrong clocks are corrected.
        """
        if self._clock.steady_s() - self._opened_s < FIRST_S:
            return -math.inf
        return min(self._clock.now_s(), self.index.newest_s()) - self.keep_days * 86_400

    def expire(self) -> int:
        """Remove items older than `keep_days`, not runs of named studies; return their number."""
        limit_s = self.deletable_before_s()
        if limit_s == -math.inf:
            return 0
        old = self.index.items_before(limit_s)
        clear_drafts(self.root, limit_s)
        for kind in self._files:
            self._remove(kind, [key for of, key in old if of == kind])
        self.index.drop(LINK, [key for of, key in old if of == LINK])
        return len(old)

    def pack_files(self, key: str) -> dict[str, bytes]:
        """Return name -> bytes of the files of a complete result, for `unpack`.

        Raises
        ------
        StoreError
            If it is missing or damaged.
        """
        try:
            return {
                name: self._files[RUN].read(key, name)
                for name in self._files[RUN].sizes(_check_key(key))
            }
        except FileNotFoundError as error:
            raise StoreError(
                f"The stored result {key[:12]} was removed. Run the scenario again."
            ) from error

    def unpack(self, key: str, files: Mapping[str, bytes]) -> None:
        """Store a result from the files that `pack_files` returned.

        An equal result that is stored already stays. A result that fails is removed again.

        Raises
        ------
        StoreError
            If a frame is missing, or the digest differs.
        """
        if self.has(key):
            return
        wrong = StoreError(
            f"The result {key[:12]} in this file is damaged or edited, so it was not imported."
            " Export it again."
        )
        try:
            about = json.loads(files[MANIFEST])
            given = {name: len(files[name]) for name in about["sizes"] if _FRAME.fullmatch(name)}
            complete = given == about["sizes"] and set(files) == {*given, MANIFEST}
        except (ValueError, KeyError, TypeError) as error:
            raise wrong from error
        if not complete:
            raise wrong
        self._files[RUN].write(_check_key(key), files)
        if not self.adopt(RUN, key):
            self._files[RUN].remove(key)
            raise wrong
        entry = self.get(key)
        try:
            # Reads all frames and compares the digest.
            if entry is None:
                raise wrong
            entry.check()
        except StoreError as error:
            self.delete(key)
            raise wrong from error

    def _row(self, kind: str, key: str) -> IndexRow | None:
        """Return the database row of an item, None if missing."""
        return self.index.get(kind, _check_key(key))

    def _keep(
        self,
        kind: str,
        key: str,
        files: Mapping[str, bytes],
        about: Mapping[str, Any],
        created_s: float,
    ) -> None:
        """Write the files of an item with its manifest, then list it."""
        manifest = json.dumps(about, allow_nan=False).encode()
        self._files[kind].write(_check_key(key), {**files, MANIFEST: manifest})
        self.index.put(IndexRow(kind, key, created_s, True, sum(map(len, files.values())), about))

    def _remove(self, kind: str, keys: Iterable[str]) -> None:
        """Remove items from the database, then their files."""
        checked_keys = [_check_key(key) for key in keys]
        # Database first: listed items must have files.
        self.index.drop(kind, checked_keys)
        for key in checked_keys:
            self._files[kind].remove(key)

    def _list_again(self) -> None:
        """Add a database row for every item with files, for a new database."""
        for kind, files in self._files.items():
            for key in files.walk():
                self.adopt(kind, key)

    def adopt(self, kind: str, key: str) -> bool:
        """Add the row of an item that has files; return True if its manifest is valid."""
        try:
            about = json.loads(self._files[kind].read(_check_key(key), MANIFEST))
            # A result without row counts was stored by an earlier version, in other files.
            created_s = (
                float(about["provenance"]["created_s"])
                if kind == RUN and about["rows"]
                else self.index.stamp_s()
            )
            self.index.put(
                IndexRow(
                    kind, key, created_s, True, sum(self._files[kind].sizes(key).values()), about
                )
            )
        except (OSError, ValueError, KeyError, TypeError, StoreError) as error:
            _LOG.warning(
                "The stored %s %s cannot be read (%s) and is not listed.", kind, key, error
            )
            return False
        return True


@lru_cache(maxsize=8)
def _open_store(address: str) -> Store:
    """Return the store at an address, opened once per process."""
    place, _, database = address.partition(_APART)
    return Store(place, database=database)


def _to_stored_trace(row: IndexRow) -> StoredTrace:
    """Return a database row as a `StoredTrace`."""
    about = row.manifest
    return StoredTrace(
        row.key, str(about["name"]), int(about["jobs"]), row.created_s, about["account"]
    )


def _check_key(name: str) -> str:
    """Return a key after checking that it is a hash, because it becomes a path."""
    if not (8 <= len(name) <= 64 and all(letter in "0123456789abcdef" for letter in name)):
        raise StoreError(f"'{name[:40]}' is not a hash of the store. Copy the whole address again.")
    return name
