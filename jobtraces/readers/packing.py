"""Archives that may claim anything: gzip and zip are unpacked within limits of size."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol

from jobtraces.readers.options import ReadOptions, size_text
from sim.errors import TraceError

CHUNK: Final = 1 << 20
DENSEST: Final = 200
DENSEST_BYTES: Final = 10_000_000
"""How many times its size an archive may unpack to, once that is more than so much."""
DAMAGED: Final = (
    OSError,
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    RuntimeError,
    ValueError,
    LookupError,
    struct.error,
)
"""What unpacking a damaged, locked or unknown archive raises."""
_PACKED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class BinaryStream(Protocol):
    """What gzip and zip members have in common."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes; all that are left if it is negative."""


def check_size(size: int, name: str, options: ReadOptions) -> None:
    """Refuse more bytes than the limit."""
    if size > options.max_bytes:
        raise TraceError(
            f"{name}: {size_text(size)} are more than the limit of {size_text(options.max_bytes)}."
            " Cut a window out of the file."
        )


def unpacked(data: bytes, name: str, options: ReadOptions) -> bytes | None:
    """Return what an archive of one file holds; None = it is no archive.

    Raises
    ------
    TraceError
        If it is damaged, holds several files or none, or unpacks to more than the limits.
    """
    try:
        if data[:2] == b"\x1f\x8b":
            return unpacked_stream(
                lambda: gzip.GzipFile(fileobj=io.BytesIO(data)), len(data), name, options
            )
        if data[:4] == b"PK\x05\x06":
            raise TraceError(f"{name}: the zip archive is empty. Pack exactly one trace.")
        if data[:4] == b"PK\x03\x04":
            with opened_zip(data, name) as archive:
                member = _only_member(archive, name)
                size = member.compress_size
                return unpacked_stream(lambda: archive.open(member), size, name, options)
    except DAMAGED as error:
        raise damaged_archive(name, error) from error
    return None


def opened_zip(data: bytes, name: str) -> zipfile.ZipFile:
    """Return an archive that can be read without surprises.

    Raises
    ------
    TraceError
        If a file of it is packed by a method that takes as much memory as it claims.
    BaseException
        One of `DAMAGED`, if it is damaged.
    """
    archive = zipfile.ZipFile(io.BytesIO(data))
    if any(item.compress_type not in _PACKED for item in archive.infolist()):
        raise TraceError(
            f"{name}: the zip archive is packed by a method that is not read here. Pack it again"
            " with the usual one (deflate)."
        )
    return archive


def damaged_archive(name: str, error: BaseException) -> TraceError:
    """Return the refusal of an archive."""
    return TraceError(
        f"{name}: the archive is damaged or locked ({str(error)[:60]!r}). Make it again, without a"
        " password."
    )


def members_of(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the files of an archive; an Office document is one file."""
    members = [
        item
        for item in archive.infolist()
        if not item.is_dir() and not item.filename.startswith("__MACOSX/")
    ]
    office = [item for item in members if item.filename == "[Content_Types].xml"]
    return office or members


def _only_member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    members = members_of(archive)
    if any(item.filename == "[Content_Types].xml" for item in members):
        raise TraceError(
            f"{name}: this is an Office document. Save the sheet as CSV and use that file."
        )
    if not members:
        raise TraceError(
            f"{name}: the zip archive is empty: it holds folders only. Pack exactly one trace."
        )
    if len(members) != 1:
        raise TraceError(
            f"{name}: the zip archive holds {len(members)} files. Pack exactly one trace."
        )
    return members[0]


def unpacked_stream(
    opened: Callable[[], AbstractContextManager[BinaryStream]],
    packed: int,
    name: str,
    options: ReadOptions,
) -> bytes:
    """Return all of a packed stream.

    Parameters
    ----------
    opened : callable
        Opens it; it is read twice.
    packed : int, bytes
        Its size before.
    name, options
        For messages, and the limits.

    Raises
    ------
    TraceError
        If it unpacks to more than the limits.
    """
    # Counted first and kept second: a bomb must not take the memory that it claims.
    size = 0
    with opened() as stream:
        while chunk := stream.read(CHUNK):
            size += len(chunk)
            if size > options.max_bytes:
                limit = size_text(options.max_bytes)
                raise TraceError(
                    f"{name}: the archive unpacks to more than the limit of {limit}. Cut a window"
                    " out of the file."
                )
            if size > DENSEST_BYTES and size > DENSEST * packed:
                raise TraceError(
                    f"{name}: the archive unpacks to more than {DENSEST} times its size, which no"
                    " trace does. Give the file unpacked."
                )
    with opened() as stream:
        return stream.read(size)
