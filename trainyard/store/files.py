"""The files of results: a folder for each, on this machine or wherever fsspec reaches; a result is
there when its manifest is.
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
"""Letters; a shorter password is removed from a message only where it is a word."""


class StoreError(TrainyardError):
    """Something in the store cannot be read or written."""


class UnwritableError(StoreError):
    """Nothing can be kept any more: the disk is full, or the folder is not ours."""


class Files(Protocol):
    """Where files of results lie."""

    @property
    def address(self) -> str:
        """A folder, or a URL."""
        ...

    @property
    def shared(self) -> bool:
        """Whether other machines reach it under this address."""
        ...

    def write(self, key: str, files: Mapping[str, bytes]) -> None:
        """Write the files of a result, all or none; what is there already stays. Raises
        `StoreError`.
        """
        ...

    def read(self, key: str, name: str) -> bytes:
        """Return one file. Raises `FileNotFoundError` if it is not there, and `StoreError` if it
        cannot be read.
        """
        ...

    def sizes(self, key: str) -> dict[str, int]:
        """Return name -> bytes of the files of a result; empty = it is not there."""
        ...

    def remove(self, key: str) -> None:
        """Remove a result, if it is there."""
        ...

    def walk(self) -> Iterator[str]:
        """Walk the results that are there."""
        ...


class Folder:
    """Files in a folder of this machine.

    Parameters
    ----------
    root : Path
        The folder; results lie below, by the beginning of their keys.
    """

    shared = False

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def address(self) -> str:
        """The folder."""
        return str(self.root)

    def write(self, key: str, files: Mapping[str, bytes]) -> None:
        """Write the files beside, and put them in place at once."""
        with FolderDraft(self.root.parent, self._of(key)) as draft:
            for name, data in files.items():
                (draft / name).write_bytes(data)

    def read(self, key: str, name: str) -> bytes:
        """Return one file."""
        try:
            return (self._of(key) / name).read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(
                f"The stored result {key[:12]} cannot be read ({error.strerror}). Check the"
                " folder's rights."
            ) from error

    def sizes(self, key: str) -> dict[str, int]:
        """Return name -> bytes."""
        try:
            with os.scandir(self._of(key)) as found:
                return {item.name: item.stat().st_size for item in found}
        except OSError:
            return {}

    def remove(self, key: str) -> None:
        """Remove a result."""
        shutil.rmtree(self._of(key), ignore_errors=True)

    def walk(self) -> Iterator[str]:
        """Walk the results."""
        return (path.parent.name for path in self.root.glob(f"*/*/{MANIFEST}"))

    def _of(self, key: str) -> Path:
        return self.root / key[:2] / key


class Remote:
    """Files behind a URL, e.g. ``s3://bucket/trainyard``; needs fsspec and what it needs for that
    kind of URL.

    Parameters
    ----------
    address : str
        The URL.

    Raises
    ------
    StoreError
        If fsspec, or what it needs, is not installed, or the place cannot be reached.
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
        """Return the address and what its driver says, without secrets."""
        return f"{shown_address(self.address)} ({without_secrets(str(error), self.address)})"

    @property
    def shared(self) -> bool:
        """Whether it is more than the memory, or a folder, of this machine."""
        return self.address.partition(":")[0] not in ("memory", "file", "local")

    def write(self, key: str, files: Mapping[str, bytes]) -> None:
        """Write the manifest last, because it says that the others are there."""
        place = self._of(key)
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
        """Return one file."""
        try:
            data: bytes = self._system.cat_file(f"{self._of(key)}/{name}")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(
                f"The stored result {key[:12]} cannot be read from {self._fault(error)}. Try"
                " again, or run the scenario again."
            ) from error
        return data

    def sizes(self, key: str) -> dict[str, int]:
        """Return name -> bytes."""
        try:
            found: list[dict[str, Any]] = self._system.ls(self._of(key), detail=True)
        except OSError:
            return {}
        return {str(item["name"]).rpartition("/")[2]: int(item["size"]) for item in found}

    def remove(self, key: str) -> None:
        """Remove the manifest first."""
        place = self._of(key)
        for name in (f"{place}/{MANIFEST}", place):
            if self._system.exists(name):
                self._system.rm(name, recursive=True)

    def walk(self) -> Iterator[str]:
        """Walk the results."""
        return (name.split("/")[-2] for name in self._system.glob(f"{self._root}/*/*/{MANIFEST}"))

    def _of(self, key: str) -> str:
        return f"{self._root}/{key[:2]}/{key}"


def default_root() -> Path:
    """Return the folder for results: ``TRAINYARD_STORE``, or the user's data folder of this
    system.
    """
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


def made(folder: Path) -> Path:
    """Return the folder of a library, closed to other users; it is made if it is not there.

    A folder that holds other things as well keeps its rights. Raises `StoreError` if the folder
    cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in folder.iterdir()}
        if not names or DATABASE in names:
            close_to_others(folder, 0o700)
    except OSError as error:
        raise UnwritableError(
            f"Results cannot be kept in {error.filename} ({error.strerror}). Set TRAINYARD_STORE to"
            " a folder you may write to."
        ) from error
    return folder


def close_to_others(path: Path, mode: int) -> None:
    """Set the rights of a file or folder of this user, whatever the umask; not where all users
    write, as in ``/tmp``.
    """
    found = path.stat()
    is_ours = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    if is_ours and stat.S_IMODE(found.st_mode) != mode and not found.st_mode & stat.S_ISVTX:
        path.chmod(mode)


def shown_address(address: str) -> str:
    """Return an address without its password and without its options, for messages."""
    scheme, mark, rest = address.partition("://")
    if not mark:
        return "…" if set("=@:") & set(address) else address
    user, sign, host = rest.rpartition("@")
    if "?" in user:  # a password that holds "?", or an option that holds "@"
        return f"{scheme}://…"
    name, colon, _ = user.partition(":")
    return f"{scheme}://{name}{':***' if colon else ''}{sign}{re.split('[?#]', host)[0]}"


def without_secrets(text: str, address: str) -> str:
    """Return what a driver says of an address, without passwords and values of options."""
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
    """Return the files at a folder or URL.

    Raises
    ------
    StoreError
        If it cannot be reached.
    """
    return Remote(address) if "://" in address else Folder(Path(address))


def place_of(file: str) -> tuple[int, int]:
    """Return what tells a file from another one that has its name later; zeros = it is not
    there.
    """
    try:
        found = os.stat(file)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


class FolderDraft:
    """A folder that appears under its final name when everything in it is written, or not at all.

    Parameters
    ----------
    root : Path
        Drafts are made in its folder ``drafts``, which must be on the same disk.
    final : Path
        The final name; if it exists in the end, what is there stays.
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
    """Remove what killed processes left half written, if it is older than an instant (seconds since
    the epoch).
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
