"""Files of results, one folder per result, on this machine or behind a URL.

A result exists when its manifest exists.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote_plus

from sim.errors import TrainyardError

DATABASE: Final = "library.db"
MANIFEST: Final = "manifest.json"
_HARMLESS: Final = ("host", "port", "dbname", "user", "sslmode", "mode")
"""Options of an address whose values a message may show."""
_LONG_SECRET: Final = 4
"""Minimum length of a password to remove inside words; a shorter one only as a whole word."""


class StoreError(TrainyardError):
    """Raised when the store cannot be read or written."""


class UnwritableError(StoreError):
    """Raised when nothing can be stored: the disk is full, or access is denied."""


class Files(Protocol):
    """Storage of the files of results."""

    @property
    def address(self) -> str:
        """Folder or URL."""
        ...

    @property
    def shared(self) -> bool:
        """Whether other machines can use this address."""
        ...

    def write(self, key: str, files: Mapping[str, bytes]) -> None:
        """Write the files of a result, all or none; an existing result is kept.

        Raises `StoreError`.
        """
        ...

    def read(self, key: str, name: str) -> bytes:
        """Return one file of a result.

        Raises `FileNotFoundError` if it is missing, and `StoreError` if it cannot be read.
        """
        ...

    def sizes(self, key: str) -> dict[str, int]:
        """Return name -> bytes of the files of a result; {} if it does not exist."""
        ...

    def remove(self, key: str) -> None:
        """Remove a result if it exists."""
        ...

    def walk(self) -> Iterator[str]:
        """Yield the keys of all results."""
        ...


class Folder:
    """Storage in a folder of this machine.

    Parameters
    ----------
    root : Path
        The folder; results are in subfolders by the first two letters of their keys.
    """

    shared = False

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def address(self) -> str:
        """The folder."""
        return str(self.root)

    def write(self, key: str, files: Mapping[str, bytes]) -> None:
        """Write the files to a draft folder, then move it into place; an existing result stays."""
        with FolderDraft(self.root.parent, self._result_path(key)) as draft:
            for name, data in files.items():
                (draft / name).write_bytes(data)

    def read(self, key: str, name: str) -> bytes:
        """Return one file of a result; raise FileNotFoundError if missing, else StoreError."""
        try:
            return (self._result_path(key) / name).read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(
                f"The stored result {key[:12]} cannot be read ({error.strerror}). Check the"
                " folder's rights."
            ) from error

    def sizes(self, key: str) -> dict[str, int]:
        """Return name -> bytes of the files of a result; {} if it does not exist."""
        try:
            with os.scandir(self._result_path(key)) as items:
                return {item.name: item.stat().st_size for item in items}
        except OSError:
            return {}

    def remove(self, key: str) -> None:
        """Remove a result."""
        shutil.rmtree(self._result_path(key), ignore_errors=True)

    def walk(self) -> Iterator[str]:
        """Yield the keys of all results."""
        return (path.parent.name for path in self.root.glob(f"*/*/{MANIFEST}"))

    def _result_path(self, key: str) -> Path:
        return self.root / key[:2] / key


class Remote:
    """Storage behind a URL, e.g. ``s3://bucket/trainyard``; needs fsspec and its driver.

    Parameters
    ----------
    address : str
        The URL.

    Raises
    ------
    StoreError
        If fsspec or its driver is not installed, or the URL cannot be reached.
    """

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        # fsspec is an extra: only shared libraries need it.
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415

            self._system, self._root = url_to_fs(self.address)
        except (ImportError, ValueError, OSError) as error:
            raise UnwritableError(
                f"Results cannot be kept at {self._fault(error)}. Install"
                " requirements-scale.txt, and check the address."
            ) from error

    def _fault(self, error: Exception) -> str:
        """Return the address and the message of its driver, without secrets."""
        return f"{redact_address(self.address)} ({redact_secrets(str(error), self.address)})"

    @property
    def shared(self) -> bool:
        """Whether the URL is not memory or a folder of this machine."""
        return self.address.partition(":")[0] not in ("memory", "file", "local")

    def write(self, key: str, files: Mapping[str, bytes]) -> None:
        """Write the files, the manifest last, because it marks a complete result.

        A result that is complete already stays unchanged.
        """
        place = self._result_path(key)
        if self._system.exists(f"{place}/{MANIFEST}"):
            return
        try:
            self._system.makedirs(place, exist_ok=True)
            for name in sorted(files, key=lambda name: name == MANIFEST):
                self._system.pipe_file(f"{place}/{name}", files[name])
        except OSError as error:
            raise UnwritableError(
                f"Results cannot be kept at {self._fault(error)}. Check the address and your"
                " rights."
            ) from error

    def read(self, key: str, name: str) -> bytes:
        """Return one file of a result; raise FileNotFoundError if missing, else StoreError."""
        try:
            data: bytes = self._system.cat_file(f"{self._result_path(key)}/{name}")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(
                f"The stored result {key[:12]} cannot be read from {self._fault(error)}. Try"
                " again, or run the scenario again."
            ) from error
        return data

    def sizes(self, key: str) -> dict[str, int]:
        """Return name -> bytes of the files of a result; {} if it does not exist."""
        try:
            items: list[dict[str, Any]] = self._system.ls(self._result_path(key), detail=True)
        except OSError:
            return {}
        return {str(item["name"]).rpartition("/")[2]: int(item["size"]) for item in items}

    def remove(self, key: str) -> None:
        """Remove the manifest, then the other files."""
        place = self._result_path(key)
        for name in (f"{place}/{MANIFEST}", place):
            if self._system.exists(name):
                self._system.rm(name, recursive=True)

    def walk(self) -> Iterator[str]:
        """Yield the keys of all results."""
        return (name.split("/")[-2] for name in self._system.glob(f"{self._root}/*/*/{MANIFEST}"))

    def _result_path(self, key: str) -> str:
        return f"{self._root}/{key[:2]}/{key}"


def default_root() -> Path:
    """Return the folder for results: ``TRAINYARD_STORE``, or the user's data folder."""
    given = os.environ.get("TRAINYARD_STORE", "")
    if given and "://" not in given:
        return Path(given).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share"))
    return base / "trainyard"


def create_folder(folder: Path) -> Path:
    """Return the folder of a library, created if missing and closed to other users.

    A folder with other contents keeps its rights. Raises `UnwritableError` if the folder
    cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in folder.iterdir()}
        if not names or DATABASE in names:
            restrict_access(folder, 0o700)
    except OSError as error:
        raise UnwritableError(
            f"Results cannot be kept in {error.filename} ({error.strerror}). Set TRAINYARD_STORE to"
            " a folder you may write to."
        ) from error
    return folder


def restrict_access(path: Path, mode: int) -> None:
    """Set the rights of a file or folder of this user, regardless of the umask.

    Folders that all users may write to, such as ``/tmp``, are left unchanged.
    """
    status = path.stat()
    is_ours = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    if is_ours and stat.S_IMODE(status.st_mode) != mode and not status.st_mode & stat.S_ISVTX:
        path.chmod(mode)


def redact_address(address: str) -> str:
    """Return an address without password and options, for messages."""
    scheme, mark, rest = address.partition("://")
    if not mark:
        return "…" if set("=@:") & set(address) else address
    user, sign, host = rest.rpartition("@")
    if "?" in user:  # a password that holds "?", or an option that holds "@"
        return f"{scheme}://…"
    name, colon, _ = user.partition(":")
    return f"{scheme}://{name}{':***' if colon else ''}{sign}{re.split('[?#]', host)[0]}"


def redact_secrets(text: str, address: str) -> str:
    """Return a driver's message without passwords and option values of the address."""
    rest = address.partition("://")[2] or address
    pairs = re.findall(r"([^?&=\s]+)=([^&\s]*)", rest)
    secrets = {value for key, value in pairs if key not in _HARMLESS}
    _, colon, password = rest.rpartition("@")[0].partition(":")
    secrets |= {password, *re.split("[@:/?]", password)} if colon else set()
    secrets |= {unquote_plus(secret) for secret in secrets}
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        edge = "" if len(secret) >= _LONG_SECRET else r"\b"
        text = re.sub(f"{edge}{re.escape(secret)}{edge}", "***", text)
    return text


def files_at(address: str) -> Files:
    """Return the storage at a folder or URL.

    Raises
    ------
    StoreError
        If it cannot be reached.
    """
    return Remote(address) if "://" in address else Folder(Path(address))


def file_identity(file: str) -> tuple[int, int]:
    """Return device and inode of a file, to detect a replaced file; (0, 0) if missing."""
    try:
        status = os.stat(file)
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


class FolderDraft:
    """A draft folder that is moved to its final name when complete, else removed.

    Parameters
    ----------
    root : Path
        Parent of the folder ``drafts``, which must be on the same disk as `final`.
    final : Path
        The final path; an existing folder is kept.
    """

    def __init__(self, root: Path, final: Path) -> None:
        self._folder, self._final = root / "drafts" / uuid.uuid4().hex, final

    def __enter__(self) -> Path:
        try:
            self._folder.mkdir(parents=True)
            self._final.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnwritableError(
                f"Results cannot be kept in {error.filename} ({error.strerror}). Set"
                " TRAINYARD_STORE to a folder you may write to."
            ) from error
        return self._folder

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        try:
            if error is None:
                self._folder.rename(self._final)
        except OSError as problem:
            if not self._final.is_dir():
                raise UnwritableError(
                    f"Results cannot be kept in {self._final} ({problem.strerror}). Check the"
                    " folder's rights."
                ) from problem
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise UnwritableError(
                f"Results cannot be kept in {self._final.parent} ({error.strerror}). Free some"
                " space or set TRAINYARD_STORE."
            ) from error


def clear_drafts(root: Path, before_s: float) -> None:
    """Remove old drafts that killed processes left.

    `before_s` is in seconds since the epoch.
    """
    try:
        old = [
            Path(item.path)
            for item in os.scandir(root / "drafts")
            if item.stat().st_mtime < before_s
        ]
    except OSError:
        return
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
