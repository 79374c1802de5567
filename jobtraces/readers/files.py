"""From a file or bytes to contents: limits, archives, encodings, workbooks, foreign files."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from jobtraces.readers.content import (
    CHUNK,
    DAMAGE,
    DELIMITERS,
    HEAD,
    MOST_COLUMNS,
    Content,
    as_delimited,
    cell_text,
    objects_as_csv,
    sample_of,
)
from jobtraces.readers.options import Question, ReadOptions, size_text
from jobtraces.sandbox import ApartError, apart
from sim.errors import ParameterError, TraceError

TITLE_LINES: Final = 60
TITLES: Final = 10
SHORTEST_TABLE: Final = 4
FEWEST_COLUMNS: Final = 3
"""A title is up to so many lines above a table of at least so many lines and columns, which shows
in the first of them.
"""
LONGEST_LINE: Final = 1 << 16
"""Characters of a line of a table; also how far one looks for a line's end."""
FileSource = Path | bytes | Mapping[str, Path | bytes] | list[Content]
SHEET: Final = "sheet"
"""The question which sheet of a workbook holds the jobs."""
MOST_FILES: Final = 100
"""Of one trace, or in one archive."""
# First bytes of files people upload by mistake, and what to call them.
FOREIGN: Final = (
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"\x7fELF", "a program"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"\xd0\xcf\x11\xe0", "an old Office document"),
    (b"SQLite format 3", "an SQLite database"),
)
ADVICE: Final = (
    "Use a CSV, TSV, XLSX, Parquet, Feather or JSON file, plain or packed with gzip or zip."
)


def open_source(source: Path | bytes, name: str, options: ReadOptions) -> Content:
    """Read, unpack and decode.

    Parameters
    ----------
    source : Path or bytes
        A file, or its bytes.
    name : str
        For messages.
    options : ReadOptions
        Holds the limits.

    Raises
    ------
    TraceError
        If the file cannot be opened, is empty, too large, no table, or an archive of several files.
    """
    data = source if isinstance(source, bytes) else _file_bytes(source, name, options)
    check_size(len(data), name, options)
    for _ in range(3):
        if is_workbook(data):
            return _sheet(workbook_sheets(data, name, options), name, options)
        inner = unpacked(data, name, options)
        if inner is None:
            break
        data = inner
    beginning = data[:HEAD].lstrip()
    if not beginning and not data.strip():
        raise TraceError(f"{name}: the file is empty. Choose another file.")
    _refuse_foreign(data, name)
    if data.startswith(FEATHER):
        data = feather_as_parquet(data, name)
    if data[:4] == b"PAR1":
        return Content(name, data, "")
    data, encoding, guesses = _text(data, name)
    if beginning[:1] in (b"[", b"{"):
        return Content(name, data, encoding, guesses)
    data, above = _table_begins(data, encoding)
    guesses += above
    content = as_delimited(Content(name, data, encoding, guesses))
    data = content.data
    damaged = b"\x00" in data
    if damaged:
        data = data.replace(b"\x00", DAMAGE.encode())
    _check_lines(data, name, options)
    made = replace(content, data=data, damaged=damaged)
    if len(made.sample.cells) > MOST_COLUMNS:
        raise TraceError(
            f"{name}: the table has {len(made.sample.cells):,} columns, more than"
            f" {MOST_COLUMNS:,}. Keep those that describe jobs."
        )
    return made


def _sheet(sheets: Mapping[str, bytes], name: str, options: ReadOptions) -> Content:
    """Return the sheet that holds the jobs: the first one unless answered otherwise."""
    first = next(iter(sheets))
    chosen = options.answers.get(SHEET, first)
    question = Question(
        SHEET,
        f"The workbook has {len(sheets)} sheets with tables; which one holds the jobs?",
        {sheet: sheet for sheet in sheets},
        first,
    )
    if chosen not in sheets:
        raise ParameterError(f"The answer {SHEET} = {chosen!r} is not one of {', '.join(sheets)}.")
    _check_lines(sheets[chosen], name, options)
    open_question = len(sheets) > 1 and SHEET not in options.answers
    told = (f"Read from the sheet {chosen!r}.",) if len(sheets) > 1 else ()
    asked = (question,) if open_question else ()
    return Content(name, sheets[chosen], "utf-8", told, questions=asked)


def as_table(content: Content, options: ReadOptions) -> Content:
    """Return JSON whose objects are rows as a table; anything else as it is.

    Raises
    ------
    TraceError
        If the table is too large.
    """
    if content.sample.kind != "json":
        return content
    data = objects_as_csv(content.text, content.name)
    if data is None:
        return content
    check_size(len(data), content.name, options)
    _check_lines(data, content.name, options)
    guesses = (*content.guesses, "The objects of the JSON are read as rows of a table.")
    return replace(content, data=data, encoding="utf-8", guesses=guesses)


def open_all(source: FileSource, name: str, options: ReadOptions) -> list[Content]:
    """Read one file, several, or the members of a zip archive, as `open_source`.

    Parameters
    ----------
    source : Path, bytes, mapping of str to Path or bytes, or list of Content
        A file or its bytes; several under their names; contents, opened before, as they are.
    name : str
        Of a single one, for messages.
    options : ReadOptions
        Holds the limits; that on bytes is for all files together.

    Raises
    ------
    TraceError
        As `open_source`; also if there are too many files, or an archive holds archives.
    """
    if isinstance(source, list):
        return source
    if isinstance(source, Mapping):
        found: list[Content] = []
        for one, data in source.items():
            found += open_all(data, one, _rest(found, options))
        if len(found) > MOST_FILES:
            raise TraceError(
                f"{name}: {len(found)} files are more than {MOST_FILES}. Choose fewer."
            )
        return found
    data = source if isinstance(source, bytes) else _file_bytes(source, name, options)
    check_size(len(data), name, options)
    if data[:4] == b"PK\x03\x04":
        try:
            with opened_zip(data, name) as archive:
                members = members_of(archive)
                if len(members) > 1 and not is_workbook(data):
                    return _opened_members(archive, members, name, options)
        except DAMAGED as error:
            raise damaged_archive(name, error) from error
    return [open_source(data, name, options)]


def _opened_members(
    archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], name: str, options: ReadOptions
) -> list[Content]:
    if len(members) > MOST_FILES:
        raise TraceError(
            f"{name}: the zip archive holds {len(members)} files, more than {MOST_FILES}. Pack"
            " fewer."
        )
    found: list[Content] = []
    for member in members:
        # A name from an archive is shown, and never a path.
        called = f"{name}: {Path(member.filename).name}"
        rest = _rest(found, options)
        data = unpacked_stream(
            lambda one=member: archive.open(one),  # type: ignore[misc]
            member.compress_size,
            called,
            rest,
        )
        if data[:2] in (b"PK", b"\x1f\x8b"):
            raise TraceError(f"{called}: archives in archives are not read. Unpack it first.")
        found.append(open_source(data, called, rest))
    return found


def _rest(found: list[Content], options: ReadOptions) -> ReadOptions:
    """Return the options for what comes after some files: the limit is for all of them."""
    taken = sum(len(content.data) for content in found)
    return replace(options, max_bytes=max(options.max_bytes - taken, 0))


def _check_lines(data: bytes, name: str, options: ReadOptions) -> None:
    # `bytes.count` goes letter by letter and takes ten times as long.
    codes = np.frombuffer(data, np.uint8)
    parts = (codes[at : at + CHUNK] for at in range(0, len(codes), CHUNK))
    lines = sum(int(np.count_nonzero(part == ord("\n"))) for part in parts)
    if lines > options.max_rows + 1:
        raise TraceError(
            f"{name}: the file has {lines:,} lines, more than the limit of {options.max_rows:,}"
            " rows. Cut a window out of it."
        )
    at = 0
    while at + LONGEST_LINE < len(data):
        end = max(
            data.rfind(b"\n", at, at + LONGEST_LINE + 1),
            data.rfind(b"\r", at, at + LONGEST_LINE + 1),
        )
        if end < 0:
            line = data.count(b"\n", 0, at) + 1
            raise TraceError(
                f"{name}: line {line:,} is longer than {LONGEST_LINE:,} characters, so this is no"
                " table of jobs. Remove what is too long."
            )
        at = end + 1


def _file_bytes(path: Path, name: str, options: ReadOptions) -> bytes:
    try:
        check_size(path.stat().st_size, name, options)
        return path.read_bytes()
    except OSError as error:
        raise TraceError(
            f"{name}: the file cannot be opened ({error.strerror or error}). Check the path and the"
            " rights."
        ) from error


def _refuse_foreign(data: bytes, name: str) -> None:
    head = data[:4096]
    for magic, what in FOREIGN:
        if head.startswith(magic):
            raise TraceError(f"{name}: this is {what}, not a trace. {ADVICE}")
    if head[257:262] == b"ustar":
        raise TraceError(f"{name}: this is a tar archive. Unpack it and use one file of it.")
    lowered = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:200].lower()
    if lowered.startswith((b"<!doctype", b"<html", b"<?xml", b"<svg")):
        raise TraceError(f"{name}: this is a web page or XML, not a trace. {ADVICE}")


def _text(data: bytes, name: str) -> tuple[bytes, str, tuple[str, ...]]:
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return (
            data.decode("utf-16", "replace").encode("utf-8"),
            "utf-8",
            ("The text is read as UTF-16.",),
        )
    head = data[:HEAD]
    controls = sum(head.count(bytes([code])) for code in range(32) if code not in (9, 10, 12, 13))
    holes = data.count(b"\x00") if b"\x00" in data else 0
    # A few stray bytes are damage of a table, many are something else.
    if controls > max(len(head) // 20, 8) or holes > max(len(data) // 20, 8):
        raise TraceError(f"{name}: this is a binary file, not a trace. {ADVICE}")
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(data), CHUNK):
            decoder.decode(data[at : at + CHUNK], at + CHUNK >= len(data))
    except UnicodeDecodeError:
        if (asian := _asian(head)) is not None:
            encoding, language = asian
            return (
                data.decode(encoding, "replace").encode("utf-8"),
                "utf-8",
                (f"The text is not UTF-8; it is read as {language} ({encoding}).",),
            )
        return (
            data,
            "latin-1",
            (
                (
                    "The text is not UTF-8; it is read as Latin-1, so names with accents may look"
                    " wrong."
                ),
            ),
        )
    return data, "utf-8", ()


def _asian(head: bytes) -> tuple[str, str] | None:
    """Return the encoding of a Chinese or Japanese text that is not UTF-8, None for all others."""
    whole = head[: head.rfind(b"\n") + 1] or head
    runs = re.findall(rb"[\x80-\xff]+", whole)
    try:
        # Letters with accents stand alone; characters of Chinese take two bytes each.
        if sum(len(run) % 2 == 0 for run in runs) >= 0.9 * len(runs):
            whole.decode("gb18030")
            return "gb18030", "Chinese"
    except UnicodeDecodeError:
        pass
    try:
        kana = re.search("[\u3040-\u30ff]", whole.decode("cp932"))
    except UnicodeDecodeError:
        return None
    return ("cp932", "Japanese") if kana else None


def _table_begins(data: bytes, encoding: str) -> tuple[bytes, tuple[str, ...]]:
    """Cut off what stands above the header of a table: ``sep=;`` and lines of a title."""
    head = data[:HEAD].decode(encoding, "ignore").removeprefix("\ufeff")
    lines = head.splitlines(keepends=True)[:TITLE_LINES]
    if lines and lines[0].strip().lower() in [f"sep={mark}" for mark in (*DELIMITERS, "\\t")]:
        return _without(data, 1), ()
    if len(lines) < SHORTEST_TABLE or lines[0].lstrip().startswith(";"):
        return data, ()
    widths = [len(sample_of(line).cells) if line.strip() else 0 for line in lines]
    below = [width for width in widths if width > 1]
    usual = max(set(below), key=below.count) if below else 0
    first = widths.index(usual) if usual in widths else 0
    # A title has one field, or a few; what is as wide as most lines is the header.
    titled = 0 < first <= TITLES and all(width <= 1 for width in widths[:first])
    if not titled or below.count(usual) < 0.8 * len(below) or usual < FEWEST_COLUMNS:
        return data, ()
    said = f"The first {first} lines are a title: the header is line {first + 1}."
    return _without(data, first), (said.replace("first 1 lines are", "first line is"),)


def _without(data: bytes, lines: int) -> bytes:
    at = 0
    for _ in range(lines):
        at = data.find(b"\n", at) + 1
    return data[at:]


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


FEATHER: Final = b"ARROW1"


def is_workbook(data: bytes) -> bool:
    """Tell whether a file is a workbook of Excel or of its kind."""
    if data[:4] != b"PK\x03\x04":
        return False
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return "xl/workbook.xml" in archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError, RuntimeError):
        return False


def workbook_sheets(data: bytes, name: str, options: ReadOptions) -> dict[str, bytes]:
    """Return the tables of a workbook, one for each sheet that holds one, as CSV.

    Raises
    ------
    TraceError
        If it is damaged, holds no table, or is too large.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(item.file_size for item in archive.infolist())
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise TraceError(f"{name}: the workbook is damaged. Save it again.") from error
    if size > options.max_bytes:
        raise TraceError(
            f"{name}: the workbook unfolds to {size_text(size)}, more than the limit of"
            f" {size_text(options.max_bytes)}. Cut a window out of it."
        )
    sheets: dict[str, bytes] = _apart(name, "workbook", _sheets, data)
    if not sheets:
        raise TraceError(
            f"{name}: no sheet of the workbook holds a table with a header and rows below it."
        )
    return sheets


def feather_as_parquet(data: bytes, name: str) -> bytes:
    """Return a Feather file (Arrow) as a Parquet file of the same types.

    Raises
    ------
    TraceError
        If it is damaged, or too large to be unfolded.
    """
    made: bytes = _apart(name, "Feather file", _parquet, data)
    return made


def _apart(name: str, kind: str, work: Any, data: bytes) -> Any:
    try:
        found = apart(work, data)
    except ApartError as error:
        raise TraceError(
            f"{name}: reading the {kind} was stopped, because {error}. Cut a window out of it, or"
            " save it as CSV."
        ) from error
    if isinstance(found, str):
        raise TraceError(f"{name}: the {kind} is damaged ({found}). Save it again, or as CSV.")
    return found


def _sheets(data: bytes) -> dict[str, bytes] | str:
    """Return CSV by name of the sheet, or what is wrong."""
    try:
        read: dict[str, pd.DataFrame] = pd.read_excel(
            io.BytesIO(data),
            engine="calamine",
            sheet_name=None,
            header=None,
            dtype=object,
            na_filter=False,
        )
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged workbook makes of the parser
        return _first_line(error)
    found = {}
    for name, frame in read.items():
        cells = frame.map(cell_text)
        filled = cells != ""
        cells = cells.loc[filled.any(axis=1), filled.any(axis=0)]
        if len(cells) > 1 and cells.shape[1] > 1:
            found[str(name)] = cells.to_csv(header=False, index=False).encode()
    return found


def _parquet(data: bytes) -> bytes | str:
    made = io.BytesIO()
    try:
        table = pa.ipc.open_file(io.BytesIO(data)).read_all()
        table.validate(full=True)
        pq.write_table(table, made)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        return _first_line(error)
    return made.getvalue()


def _first_line(error: BaseException) -> str:
    told = "".join(letter if letter.isprintable() else " " for letter in str(error))
    return " ".join(told.split())[:120] or type(error).__name__
