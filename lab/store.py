"""Results, uploaded traces and profiles in one folder, by content hash: written whole or not at all, damaged entries count as absent."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from sim.errors import TraceError, TrainyardError
from sim.result import RunResult, Timing
from sim.trace import Trace

FRAMES: Final = ("jobs", "segments", "placements", "decisions", "notes", "outages", "failures", "usage")
KEEP_DAYS: Final = 30.0
_LOG: Final = logging.getLogger(__name__)
_MANIFEST: Final = "manifest.json"


class StoreError(TrainyardError):
    """Something in the store cannot be read or written."""


@dataclass(frozen=True)
class Entry:
    """One stored result; its frames are read when asked for.

    Parameters
    ----------
    key : str
        Of the scenario.
    folder : Path
        Where it lies.
    summary : mapping
        Name of a metric -> number.
    scenario : mapping
        `Scenario.to_json`.
    provenance : mapping
        Versions, time of creation, digest of the result.
    """

    key: str
    folder: Path
    summary: Mapping[str, Any]
    scenario: Mapping[str, Any]
    provenance: Mapping[str, Any]

    def chart(self, name: str) -> pd.DataFrame:
        """Return one reduced frame, as `lab.frames.chart_frames` made it.

        Raises
        ------
        StoreError
            If it is missing or damaged.
        """
        return self._frame(f"chart-{name}")

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the allocator had to say of the run."""
        return tuple(self.provenance["result"]["remarks"])

    def jobs(self) -> pd.DataFrame:
        """Return one row per job, without reading the other frames.

        Raises
        ------
        StoreError
            If it is missing or damaged.
        """
        return self._frame("jobs")

    def result(self) -> RunResult:
        """Return the whole result.

        Raises
        ------
        StoreError
            If a frame is missing or damaged.
        """
        facts: dict[str, Any] = {name: self._frame(name) for name in FRAMES} | dict(self.provenance["result"])
        facts |= {"end_s": float(facts["end_s"]), "remarks": self.remarks, "timing": Timing(**self.provenance["timing"])}
        result = RunResult(**facts)
        if result.digest() != self.provenance["digest"]:
            raise _damaged(self.folder, "its contents changed")
        return result

    def _frame(self, name: str) -> pd.DataFrame:
        frame = _read_frame(self.folder, name)
        # An empty table comes back without the categories of its columns.
        for column, categories in self.provenance["categories"].get(name, {}).items():
            if list(frame[column].cat.categories) != categories:
                frame[column] = pd.Categorical(frame[column], categories=categories)
        return frame


@dataclass(frozen=True)
class StoredTrace:
    """What is known of an uploaded trace without reading it."""

    digest: str
    name: str
    jobs: int
    created_s: float
    account: Mapping[str, Any]


class Store:
    """A folder of results, uploaded traces and profiles; several processes may use it at once.

    Parameters
    ----------
    root : Path or None
        None = `default_root()`.
    keep_days : float, days
        Uploads and results older than this are removed by `expire`.
    """

    def __init__(self, root: Path | None = None, keep_days: float = KEEP_DAYS) -> None:
        self.root = Path(root) if root is not None else default_root()
        self.keep_days = keep_days

    def has(self, key: str) -> bool:
        """Tell whether a complete result is there."""
        return self.get(key) is not None

    def get(self, key: str) -> Entry | None:
        """Return a result, or None if it is absent; a damaged one is removed, with a sentence in the log."""
        folder = self._run(key)
        if not folder.is_dir():
            return None
        try:
            manifest = json.loads((folder / _MANIFEST).read_bytes())
            wrong = [name for name, size in manifest["sizes"].items() if (folder / name).stat().st_size != size]
            entry = Entry(key, folder, manifest["summary"], manifest["scenario"], manifest["provenance"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            wrong, entry = [f"{type(error).__name__}: {error}"], None
        if wrong:
            _LOG.warning("The stored result %s is damaged (%s); it is removed and will be computed again.", key, ", ".join(wrong))
            self.delete(key)
            return None
        return entry

    def put(self, key: str, result: RunResult, summary: Mapping[str, Any], charts: Mapping[str, pd.DataFrame], about: Mapping[str, Any]) -> None:
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
        StoreError
            If the folder cannot be written.
        """
        frames = {name: getattr(result, name) for name in FRAMES} | {f"chart-{name}": frame for name, frame in charts.items()}
        provenance = {
            "created_s": time.time(),
            "digest": result.digest(),
            "versions": dict(about["versions"]),
            "timing": asdict(result.timing),
            "categories": {name: _categories(frame) for name, frame in frames.items()},
            "result": {name: plain(getattr(result, name)) for name in ("end_s", "reason", "voided", "overflow", "remarks")},
        }
        with _Draft(self.root, self._run(key)) as draft:
            for name, frame in frames.items():
                _write_frame(draft, name, frame)
            sizes = {path.name: path.stat().st_size for path in sorted(draft.iterdir())}
            body = {"sizes": sizes, "summary": plain(summary), "scenario": about["scenario"], "provenance": plain(provenance)}
            (draft / _MANIFEST).write_text(json.dumps(body, allow_nan=False), encoding="utf-8")

    def entries(self) -> list[Entry]:
        """Return all complete results, the newest first."""
        found = [self.get(folder.name) for folder in (self.root / "runs").glob("*/*") if folder.is_dir()]
        return sorted((entry for entry in found if entry), key=lambda entry: -float(entry.provenance["created_s"]))

    def delete(self, key: str) -> None:
        """Remove a result, if it is there."""
        shutil.rmtree(self._run(key), ignore_errors=True)

    def put_trace(self, trace: Trace, account: Mapping[str, Any] | None = None) -> str:
        """Keep a trace for `keep_days`, counted from its last upload.

        Parameters
        ----------
        trace : Trace
            As read, before window and load.
        account : mapping or None
            What the import reported, plain values.

        Returns
        -------
        str
            Its digest; ``store:<digest>`` is its source in a scenario.

        Raises
        ------
        StoreError
            If the folder cannot be written.
        """
        digest = trace.digest
        if (folder := self._trace(digest)).is_dir():
            _touch(folder / _MANIFEST)
            return digest
        with _Draft(self.root, folder) as draft:
            trace.frame.to_parquet(draft / "jobs.parquet", index=False, compression="lz4")
            about = {"name": trace.name, "epoch": trace.epoch, "jobs": len(trace), "account": plain(account or {})}
            (draft / _MANIFEST).write_text(json.dumps(about, allow_nan=False), encoding="utf-8")
        return digest

    def trace_info(self, digest: str) -> StoredTrace | None:
        """Return what is known of a kept trace, or None if it is not here."""
        path = self._trace(digest) / _MANIFEST
        try:
            about = json.loads(path.read_bytes())
            return StoredTrace(digest, str(about["name"]), int(about["jobs"]), path.stat().st_mtime, about["account"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def get_trace(self, digest: str) -> Trace:
        """Return a kept trace.

        Raises
        ------
        TraceError
            If it is not here any more, or damaged.
        """
        folder = self._trace(digest)
        try:
            about = json.loads((folder / _MANIFEST).read_bytes())
            trace = Trace.of(pd.read_parquet(folder / "jobs.parquet"), name=str(about["name"]), epoch=str(about["epoch"]))
        except FileNotFoundError as error:
            raise TraceError(f"The trace {digest[:12]} is not kept on this machine (any more). Load its file again.") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TraceError(f"The kept trace {digest[:12]} is damaged ({error}). Load its file again.") from error
        if trace.digest != digest:
            raise TraceError(f"The kept trace {digest[:12]} was changed on the disk. Load its file again.")
        return trace

    def traces(self) -> list[StoredTrace]:
        """Return what is known of all kept traces, the newest first."""
        found = [self.trace_info(folder.name) for folder in (self.root / "traces").glob("*")]
        return sorted((about for about in found if about), key=lambda about: -about.created_s)

    def delete_trace(self, digest: str) -> None:
        """Remove a kept trace, if it is there."""
        shutil.rmtree(self._trace(digest), ignore_errors=True)

    def put_profile(self, digest: str, data: bytes, about: Mapping[str, Any]) -> None:
        """Keep a measured profile for `keep_days`, counted from its last upload; raises `StoreError` if the folder cannot be written."""
        if (folder := self._profile(digest)).is_dir():
            _touch(folder / _MANIFEST)
            return
        with _Draft(self.root, folder) as draft:
            (draft / "profile.csv").write_bytes(data)
            (draft / _MANIFEST).write_text(json.dumps(plain(about), allow_nan=False), encoding="utf-8")

    def get_profile(self, digest: str) -> tuple[bytes, Mapping[str, Any]] | None:
        """Return a kept profile with what is known of it, or None if it is not here."""
        folder = self._profile(digest)
        try:
            return (folder / "profile.csv").read_bytes(), json.loads((folder / _MANIFEST).read_bytes())
        except (OSError, ValueError):
            return None

    def expire(self, now_s: float | None = None) -> int:
        """Remove results, traces, profiles and left-over drafts older than `keep_days`; return how many."""
        limit = (time.time() if now_s is None else now_s) - self.keep_days * 86_400
        folders = [*(self.root / "runs").glob("*/*"), *(folder for kind in ("traces", "profiles", "drafts") for folder in (self.root / kind).glob("*"))]
        old = [folder for folder in folders if _age_mark(folder) < limit]
        for folder in old:
            shutil.rmtree(folder, ignore_errors=True)
        return len(old)

    def _run(self, key: str) -> Path:
        return self.root / "runs" / _checked(key)[:2] / key

    def _trace(self, digest: str) -> Path:
        return self.root / "traces" / _checked(digest)

    def _profile(self, digest: str) -> Path:
        return self.root / "profiles" / _checked(digest)


def default_root() -> Path:
    """Return the folder for results: ``TRAINYARD_STORE``, or the user's data folder of this system."""
    if given := os.environ.get("TRAINYARD_STORE"):
        return Path(given).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share"))
    return base / "trainyard"


def plain(value: Any) -> Any:
    """Return what JSON can hold: numbers of numpy as Python's, what is not finite as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value


class _Draft:
    """A folder that appears under its final name when everything in it is written, or not at all."""

    def __init__(self, root: Path, final: Path) -> None:
        self._folder, self._final = root / "drafts" / uuid.uuid4().hex, final

    def __enter__(self) -> Path:
        try:
            self._folder.mkdir(parents=True)
            self._final.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"Results cannot be kept in {error.filename} ({error.strerror}). Set TRAINYARD_STORE to a folder you may write to.") from error
        return self._folder

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._folder.rename(self._final)
        except OSError as problem:
            if not self._final.is_dir():
                raise StoreError(f"Results cannot be kept in {self._final} ({problem.strerror}). Check the folder's rights.") from problem
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise StoreError(f"Results cannot be kept in {self._final.parent} ({error.strerror}). Free some space or set TRAINYARD_STORE.") from error


def _checked(name: str) -> str:
    if not (8 <= len(name) <= 64 and all(letter in "0123456789abcdef" for letter in name)):
        raise StoreError(f"'{name[:40]}' is not a hash of the store. Copy the whole address again.")
    return name


def _touch(path: Path) -> None:
    try:
        os.utime(path)
    except OSError as error:
        _LOG.warning("The date of %s cannot be renewed (%s).", path, error)


def _age_mark(folder: Path) -> float:
    try:
        mark = folder / _MANIFEST
        return (mark if mark.exists() else folder).stat().st_mtime
    except OSError:
        return float("inf")


def _categories(frame: pd.DataFrame) -> dict[str, list[str]]:
    return {str(name): list(map(str, values.cat.categories)) for name, values in frame.items() if isinstance(values.dtype, pd.CategoricalDtype)}


def _write_frame(folder: Path, name: str, frame: pd.DataFrame) -> None:
    path = folder / f"{name}.feather"
    frame.to_feather(path, compression="uncompressed")


def _read_frame(folder: Path, name: str) -> pd.DataFrame:
    try:
        return pd.read_feather(folder / f"{name}.feather")
    except FileNotFoundError as error:
        raise StoreError(f"The stored result {folder.name[:12]} was removed, or has no frame '{name}'. Run the scenario again.") from error
    except (OSError, ValueError) as error:
        raise _damaged(folder, name) from error


def _damaged(folder: Path, what: str) -> StoreError:
    shutil.rmtree(folder, ignore_errors=True)
    return StoreError(f"The stored result {folder.name[:12]} was damaged ({what}) and is removed. Run the scenario again.")
