"""Results, uploaded traces and profiles by content hash: files in a folder or behind a URL, and a
database that lists them; damaged things count as absent.
"""

from __future__ import annotations

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
from trainyard.store.entry import FRAMES, StoredResult, categories, parquet, read_frame
from trainyard.store.files import (
    MANIFEST,
    StoreError,
    clear_drafts,
    default_root,
    files_at,
    made,
    shown_address,
)
from trainyard.store.index import PROFILE, RUN, TRACE, Clock, Index, IndexRow, beside
from trainyard.study.document import plain

KEEP_DAYS: Final = 30.0
FIRST_S: Final = 3600.0
"""Seconds after a store is opened during which it deletes nothing."""
_APART: Final = "\n"
"""Between folder and database in an address; neither can hold it."""
_FRAME: Final = re.compile(r"[a-z0-9_-]{1,60}\.parquet")
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredTrace:
    """What is known of an uploaded trace without reading it."""

    digest: str
    name: str
    jobs: int
    created_s: float
    account: Mapping[str, Any]


class Store:
    """Where results, uploaded traces and profiles are kept; several processes, and with a shared
    database several machines, may use it at once.

    Parameters
    ----------
    root : Path, str or None
        A folder, or a URL that fsspec understands; None = `default_root()`.
    keep_days : float, days
        Uploads and results older than this are removed by `expire`, but for those of comparisons
        with a name.
    database : str
        Address of the database as SQLAlchemy takes it; "" = ``TRAINYARD_DATABASE``, or a file in
        the folder.
    clock : Clock, optional
        Where it takes the time from.

    Raises
    ------
    TrainyardError
        If either cannot be reached.

    Notes
    -----
    Files are written first and then entered, so what the database lists is there. The files of a
    result hold all that the database knows of it, so that a new database lists whole results again;
    shelves, names and numbers alone are in the database only.
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
                f"Results at {shown_address(place)} need a database to list them. Set"
                " TRAINYARD_DATABASE to its address."
            )
        self._files = {kind: files_at(f"{self._place}/{kind}s") for kind in (RUN, TRACE, PROFILE)}
        self.index = Index(self._database or beside(made(self.root)), self._clock)
        if self.index.is_new:
            self._list_again()

    @classmethod
    def at(cls, address: str) -> Store:
        """Return the store that another process calls by this `address`; in each process it is
        opened once.
        """
        store = _opened(address)
        if store.index.lost:
            _opened.cache_clear()
            store = _opened(address)
        return store

    @property
    def place(self) -> str:
        """The folder or URL where its files lie, without a password."""
        return shown_address(self._place) if "://" in self._place else self._place

    @property
    def address(self) -> str:
        """What another process needs to use the same store."""
        return _APART.join([self._place, *([self._database] if self._database else [])])

    @property
    def shared(self) -> bool:
        """Whether other machines reach both files and database under this address."""
        return (
            bool(self._database)
            and not self._database.startswith("sqlite")
            and self._files[RUN].shared
        )

    def has(self, key: str) -> bool:
        """Tell whether a complete result is there."""
        return self.get(key) is not None

    def get(self, key: str) -> StoredResult | None:
        """Return a result, or None if it is absent; of a damaged one the numbers are left, with a
        sentence in the log.
        """
        row = self._row(RUN, key)
        return self._entry(row) if row is not None and self._is_whole(row) else None

    def get_all(self, keys: Iterable[str]) -> dict[str, StoredResult]:
        """Return those of these results that are there, as `get` does, in one look-up."""
        rows = self.index.among(RUN, map(_checked, keys))
        return {key: self._entry(row) for key, row in rows.items() if self._is_whole(row)}

    def _is_whole(self, row: IndexRow) -> bool:
        """Tell whether all files of a result are there in their sizes; of one that is damaged the
        numbers are left.
        """
        if not row.complete:
            return False
        sizes = self._files[RUN].sizes(row.key)
        wrong = [name for name, size in row.manifest["sizes"].items() if sizes.get(name) != size]
        if wrong:
            what = "its files are gone" if not sizes else ", ".join(wrong)
            _LOG.warning(
                "The stored result %s is damaged (%s); its numbers are kept, the rest can be"
                " computed again.",
                row.key[:12],
                what,
            )
            self.spoiled(row.key)
        return not wrong

    def _entry(self, row: IndexRow) -> StoredResult:
        return StoredResult(
            row.key,
            self._files[RUN],
            row.manifest["rows"],
            row.manifest["summary"],
            row.manifest["scenario"],
            row.manifest["provenance"],
        )

    def numbers(self, keys: Iterable[str], *, whole: bool = False) -> dict[str, Mapping[str, Any]]:
        """Return the summaries of these runs, as far as they are known; `whole` = only of those
        whose frames are kept, and there.
        """
        return {
            key: row.manifest["summary"]
            for key, row in self.index.among(RUN, map(_checked, keys)).items()
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
        """Keep a result; if another process was faster, its equal result stays.

        Parameters
        ----------
        key : str
            Of the scenario.
        result : RunResult
            The frames of facts.
        summary : mapping
            Plain numbers; NaN becomes null.
        charts : mapping of str to DataFrame
            Reduced frames for drawing.
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
        files = {f"{name}.parquet": parquet(frame) for name, frame in frames.items()}
        created_s = self.index.stamp_s()
        provenance = {
            "created_s": created_s,
            "digest": result.digest(),
            "versions": dict(about["versions"]),
            "timing": asdict(result.timing),
            "categories": {name: categories(frame) for name, frame in frames.items()},
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
        """Keep the numbers of a run without its frames: what a sweep of thousands of runs needs.

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
        self.index.put(IndexRow(RUN, _checked(key), created_s, False, 0, body))

    def scenario(self, key: str) -> Mapping[str, Any] | None:
        """Return the scenario of a run that is kept whole or as numbers, or None."""
        row = self._row(RUN, key)
        return row.manifest["scenario"] if row is not None else None

    def entries(self) -> list[StoredResult]:
        """Return all complete results, the newest first, without a look at their files."""
        return [self._entry(row) for row in self.index.rows(RUN, complete=True)]

    def runs_of(self, source: str) -> list[str]:
        """Return the keys of everything that is kept of runs of a trace, given by its source, whole
        or numbers only.
        """
        return [
            row.key
            for row in self.index.rows(RUN)
            if row.manifest["scenario"].get("trace", {}).get("source") == source
        ]

    def delete(self, *keys: str) -> None:
        """Remove results, as far as they are there."""
        self._remove(RUN, keys)

    def spoiled(self, key: str) -> None:
        """Remove the files of a damaged result; its numbers stay."""
        self.index.hollow(_checked(key))
        self._files[RUN].remove(key)

    def unshelve(self, owner: str, study: str) -> list[str]:
        """Take something off a shelf; return the runs that are deleted with it, because nothing on
        any shelf needs them any more.
        """
        gone = self.index.unshelve(owner, study)
        # Somebody may have run one again in between.
        again = self.index.among(RUN, map(_checked, gone))
        for key in gone:
            if key not in again:
                self._files[RUN].remove(key)
        return gone

    def put_trace(
        self, trace: Trace, account: Mapping[str, Any] | None = None, owners: Iterable[str] = ()
    ) -> str:
        """Keep a trace for `keep_days`, counted from its last upload.

        Parameters
        ----------
        trace : Trace
            As read, before window and load.
        account : mapping or None
            What the import reported, plain values.
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
                {"jobs.parquet": parquet(trace.frame)},
                about,
                self.index.stamp_s(),
            )
        for owner in owners:
            self.index.own(owner, trace.digest)
        return trace.digest

    def trace_info(self, digest: str) -> StoredTrace | None:
        """Return what is known of a kept trace, or None if it is not here."""
        row = self._row(TRACE, digest)
        return _trace_info(row) if row is not None else None

    def get_trace(self, digest: str) -> Trace:
        """Return a kept trace.

        Raises
        ------
        TraceError
            If it is not here any more, or damaged.
        """
        row = self._row(TRACE, digest)
        gone = (
            f"The trace {digest[:12]} is not kept on this machine (any more). Load its file again."
        )
        if row is None:
            raise TraceError(gone)
        try:
            frame = read_frame(self._files[TRACE].read(digest, "jobs.parquet"))
            name, epoch = str(row.manifest["name"]), str(row.manifest["epoch"])
            from_zero = bool(row.manifest.get("from_zero", True))
            doubts = row.manifest.get("doubts", ())
            trace = Trace.of(frame, name=name, epoch=epoch, from_zero=from_zero, doubts=doubts)
        except FileNotFoundError as error:
            self.index.drop(TRACE, [digest])
            raise TraceError(gone) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TraceError(
                f"The kept trace {digest[:12]} is damaged ({error}). Load its file again."
            ) from error
        if trace.digest != digest:
            raise TraceError(
                f"The kept trace {digest[:12]} was changed on the disk. Load its file again."
            )
        return trace

    def traces(self) -> list[StoredTrace]:
        """Return what is known of all kept traces, the newest first."""
        return [_trace_info(row) for row in self.index.rows(TRACE)]

    def delete_trace(self, digest: str) -> None:
        """Remove a kept trace, if it is there."""
        self._remove(TRACE, [digest])

    def put_profile(self, digest: str, data: bytes, about: Mapping[str, Any]) -> None:
        """Keep a measured profile for `keep_days`, counted from its last upload; raises
        `TrainyardError` if it cannot be written.
        """
        if self._row(PROFILE, digest) is not None:
            self.index.renew(PROFILE, digest)
        else:
            self._keep(PROFILE, digest, {"profile.csv": data}, plain(about), self.index.stamp_s())

    def get_profile(self, digest: str) -> tuple[bytes, Mapping[str, Any]] | None:
        """Return a kept profile with what is known of it, or None."""
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

    def deletable_before_s(self) -> float:
        """Return the time limit of deletion: older results and uploads may be deleted.

        Ages count from the newest thing in the library, so that a clock that is ahead deletes
        nothing by itself; nothing may be deleted in the first hour after the store was opened, in
        which most wrong clocks are set right.
        """
        if self._clock.steady_s() - self._opened_s < FIRST_S:
            return -math.inf
        return min(self._clock.now_s(), self.index.newest_s()) - self.keep_days * 86_400

    def expire(self) -> int:
        """Remove results, traces and profiles older than `keep_days`; return how many."""
        limit_s = self.deletable_before_s()
        if limit_s == -math.inf:
            return 0
        old = self.index.older(limit_s)
        clear_drafts(self.root, limit_s)
        for kind in self._files:
            self._remove(kind, [key for of, key in old if of == kind])
        return len(old)

    def packed(self, key: str) -> dict[str, bytes]:
        """Return the files of a complete result, its manifest among them: what `unpack` takes, here
        or elsewhere.

        Raises
        ------
        StoreError
            If it is missing or damaged.
        """
        try:
            return {
                name: self._files[RUN].read(key, name)
                for name in self._files[RUN].sizes(_checked(key))
            }
        except FileNotFoundError as error:
            raise StoreError(
                f"The stored result {key[:12]} was removed. Run the scenario again."
            ) from error

    def unpack(self, key: str, files: Mapping[str, bytes]) -> None:
        """Keep a result that `packed` gave.

        Raises
        ------
        StoreError
            If it is not what it says: a frame is missing, or the digest is another one.
        """
        if self.has(key):
            return
        wrong = StoreError(
            f"The result {key[:12]} in this file is damaged or made by hand, so it is not taken"
            " over. Export it again."
        )
        try:
            about = json.loads(files[MANIFEST])
            given = {name: len(files[name]) for name in about["sizes"] if _FRAME.fullmatch(name)}
            complete = given == about["sizes"] and set(files) == {*given, MANIFEST}
        except (ValueError, KeyError, TypeError) as error:
            raise wrong from error
        if not complete:
            raise wrong
        self._files[RUN].write(_checked(key), files)
        if not self.adopt(RUN, key):
            self._files[RUN].remove(key)
            raise wrong
        entry = self.get(key)
        try:
            # Reads everything, what is drawn included, and compares the digest.
            if entry is None:
                raise wrong
            entry.check()
        except StoreError as error:
            self.delete(key)
            raise wrong from error

    def _row(self, kind: str, key: str) -> IndexRow | None:
        return self.index.get(kind, _checked(key))

    def _keep(
        self,
        kind: str,
        key: str,
        files: Mapping[str, bytes],
        about: Mapping[str, Any],
        created_s: float,
    ) -> None:
        manifest = json.dumps(about, allow_nan=False).encode()
        self._files[kind].write(_checked(key), {**files, MANIFEST: manifest})
        self.index.put(IndexRow(kind, key, created_s, True, sum(map(len, files.values())), about))

    def _remove(self, kind: str, keys: Iterable[str]) -> None:
        gone = [_checked(key) for key in keys]
        # First off the list: what is listed must be there.
        self.index.drop(kind, gone)
        for key in gone:
            self._files[kind].remove(key)

    def _list_again(self) -> None:
        for kind, files in self._files.items():
            for key in files.walk():
                self.adopt(kind, key)

    def adopt(self, kind: str, key: str) -> bool:
        """Enter what is there but not listed; tell whether it could be read."""
        try:
            about = json.loads(self._files[kind].read(_checked(key), MANIFEST))
            # A result without numbers of rows was kept by an earlier version, in other files.
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
def _opened(address: str) -> Store:
    place, _, database = address.partition(_APART)
    return Store(place, database=database)


def _trace_info(row: IndexRow) -> StoredTrace:
    about = row.manifest
    return StoredTrace(
        row.key, str(about["name"]), int(about["jobs"]), row.created_s, about["account"]
    )


def _checked(name: str) -> str:
    if not (8 <= len(name) <= 64 and all(letter in "0123456789abcdef" for letter in name)):
        raise StoreError(f"'{name[:40]}' is not a hash of the store. Copy the whole address again.")
    return name
