"""Open files and bytes: size limits, archives, encodings, workbooks and foreign formats."""

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
    DAMAGED_BYTE,
    DELIMITERS,
    HEAD,
    MAX_COLUMNS,
    Content,
    as_delimited,
    cell_text,
    objects_as_csv,
    sample_of,
)
from jobtraces.readers.options import Question, ReadOptions, size_text
from jobtraces.sandbox import SandboxError, run_limited
from sim.errors import ParameterError, TraceError

_TITLE_SEARCH_LINES: Final = 60
MAX_TITLE_LINES: Final = 10
MIN_TABLE_LINES: Final = 4
MIN_TABLE_COLUMNS: Final = 3
"""Limits for finding a title: lines examined, title lines, and size of the table below."""
MAX_LINE_CHARS: Final = 1 << 16
"""Largest number of characters in a line of a table."""
FileSource = Path | bytes | Mapping[str, Path | bytes] | list[Content]
SHEET: Final = "sheet"
"""Id of the question which sheet of a workbook holds the jobs."""
MAX_FILES: Final = 100
"""Largest number of files of one trace or archive."""
# First bytes and names of file types that are uploaded by mistake.
FOREIGN_TYPES: Final = (
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
    """Read, unpack and decode one file.

    Parameters
    ----------
    source : Path or bytes
        A file, or its bytes.
    name : str
        Name of the file in messages.
    options : ReadOptions
        Size limits and answers.

    Raises
    ------
    TraceError
        If the file cannot be opened, is empty, too large, not a table, or an archive of several
        files.
    """
    data = source if isinstance(source, bytes) else _read_file(source, name, options)
    check_size(len(data), name, options)
    for _ in range(3):
        if is_workbook(data):
            return _choose_sheet(workbook_sheets(data, name, options), name, options)
        unpacked_data = unpack_archive(data, name, options)
        if unpacked_data is None:
            break
        data = unpacked_data
    start = data[:HEAD].lstrip()
    if not start and not data.strip():
        raise TraceError(f"{name}: the file is empty. Choose another file.")
    _refuse_foreign(data, name)
    if data.startswith(FEATHER):
        data = feather_as_parquet(data, name)
    if data[:4] == b"PAR1":
        return Content(name, data, "")
    data, encoding, guesses = _detect_encoding(data, name)
    if start[:1] in (b"[", b"{"):
        return Content(name, data, encoding, guesses)
    data, title_notes = _skip_title(data, encoding)
    guesses += title_notes
    content = as_delimited(Content(name, data, encoding, guesses))
    data = content.data
    damaged = b"\x00" in data
    if damaged:
        data = data.replace(b"\x00", DAMAGED_BYTE.encode())
    _check_lines(data, name, options)
    opened = replace(content, data=data, damaged=damaged)
    if len(opened.sample.cells) > MAX_COLUMNS:
        raise TraceError(
            f"{name}: the table has {len(opened.sample.cells):,} columns, more than"
            f" {MAX_COLUMNS:,}. Keep only columns that describe jobs."
        )
    return opened


def _choose_sheet(sheets: Mapping[str, bytes], name: str, options: ReadOptions) -> Content:
    """Return the sheet of a workbook with the jobs: the first, unless the user chose one.

    With several sheets it has a note and, without an answer, the open question.

    Raises
    ------
    ParameterError
        If the chosen sheet does not exist.
    """
    first = next(iter(sheets))
    chosen = options.answers.get(SHEET, first)
    question = Question(
        SHEET,
        f"The workbook has {len(sheets)} sheets with tables. Which sheet holds the jobs?",
        {sheet: sheet for sheet in sheets},
        first,
    )
    if chosen not in sheets:
        raise ParameterError(f"The answer {SHEET} = {chosen!r} is not one of {', '.join(sheets)}.")
    _check_lines(sheets[chosen], name, options)
    is_open = len(sheets) > 1 and SHEET not in options.answers
    notes = (f"Read from the sheet {chosen!r}.",) if len(sheets) > 1 else ()
    questions = (question,) if is_open else ()
    return Content(name, sheets[chosen], "utf-8", notes, questions=questions)


def as_table(content: Content, options: ReadOptions) -> Content:
    """Return JSON with a list of objects as a table; other content unchanged.

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
    guesses = (*content.guesses, "The JSON objects are read as rows of a table.")
    return replace(content, data=data, encoding="utf-8", guesses=guesses)


def open_all(source: FileSource, name: str, options: ReadOptions) -> list[Content]:
    """Open one file, several files, or the members of a zip archive.

    Parameters
    ----------
    source : Path, bytes, mapping of str to Path or bytes, or list of Content
        A file or its bytes; several files by name; or contents that are open already.
    name : str
        Name of a single file in messages.
    options : ReadOptions
        Limits (the size limit is for all files together) and answers.

    Raises
    ------
    TraceError
        As for `open_source`; also for too many files, or archives in an archive.
    """
    if isinstance(source, list):
        return source
    if isinstance(source, Mapping):
        contents: list[Content] = []
        for file_name, data in source.items():
            contents += open_all(data, file_name, _remaining_options(contents, options))
        if len(contents) > MAX_FILES:
            raise TraceError(
                f"{name}: {len(contents)} files exceed the limit of {MAX_FILES}. Choose fewer."
            )
        return contents
    data = source if isinstance(source, bytes) else _read_file(source, name, options)
    check_size(len(data), name, options)
    if data[:4] == b"PK\x03\x04":
        try:
            with open_zip(data, name) as archive:
                members = archive_files(archive)
                if len(members) > 1 and not is_workbook(data):
                    return _open_members(archive, members, name, options)
        except ARCHIVE_ERRORS as error:
            raise archive_error(name, error) from error
    return [open_source(data, name, options)]


def _open_members(
    archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], name: str, options: ReadOptions
) -> list[Content]:
    """Unpack and open every member of a zip archive.

    Raises
    ------
    TraceError
        If there are too many members, one is an archive, or the size limit is exceeded.
    """
    if len(members) > MAX_FILES:
        raise TraceError(
            f"{name}: the zip archive holds {len(members)} files, more than {MAX_FILES}. Pack"
            " fewer."
        )
    contents: list[Content] = []
    for member in members:
        # Names in an archive are untrusted: show only the last part, never use it as a path.
        full_name = f"{name}: {Path(member.filename).name}"
        remaining_options = _remaining_options(contents, options)
        data = read_unpacked(
            lambda item=member: archive.open(item),  # type: ignore[misc]
            member.compress_size,
            full_name,
            remaining_options,
        )
        if data[:2] in (b"PK", b"\x1f\x8b"):
            raise TraceError(f"{full_name}: archives in archives are not read. Unpack it first.")
        contents.append(open_source(data, full_name, remaining_options))
    return contents


def _remaining_options(contents: list[Content], options: ReadOptions) -> ReadOptions:
    """Return options with the size limit reduced by the files already read."""
    used_bytes = sum(len(content.data) for content in contents)
    return replace(options, max_bytes=max(options.max_bytes - used_bytes, 0))


def _check_lines(data: bytes, name: str, options: ReadOptions) -> None:
    """Raise an error for too many lines or a line that is too long."""
    # Ten times as fast as `bytes.count`.
    codes = np.frombuffer(data, np.uint8)
    parts = (codes[at : at + CHUNK] for at in range(0, len(codes), CHUNK))
    lines = sum(int(np.count_nonzero(part == ord("\n"))) for part in parts)
    if lines > options.max_rows + 1:
        raise TraceError(
            f"{name}: the file has {lines:,} lines, more than the limit of {options.max_rows:,}"
            " rows. Use a shorter time range."
        )
    at = 0
    while at + MAX_LINE_CHARS < len(data):
        end = max(
            data.rfind(b"\n", at, at + MAX_LINE_CHARS + 1),
            data.rfind(b"\r", at, at + MAX_LINE_CHARS + 1),
        )
        if end < 0:
            line = data.count(b"\n", 0, at) + 1
            raise TraceError(
                f"{name}: line {line:,} is longer than {MAX_LINE_CHARS:,} characters, so this is"
                " not a table of jobs. Shorten or remove the line."
            )
        at = end + 1


def _read_file(path: Path, name: str, options: ReadOptions) -> bytes:
    """Return the bytes of a file within the size limit."""
    try:
        check_size(path.stat().st_size, name, options)
        return path.read_bytes()
    except OSError as error:
        raise TraceError(
            f"{name}: the file cannot be opened ({error.strerror or error}). Check the path and"
            " the permissions."
        ) from error


def _refuse_foreign(data: bytes, name: str) -> None:
    """Raise an error for a file of a known other type, such as PDF."""
    head = data[:4096]
    for magic, kind in FOREIGN_TYPES:
        if head.startswith(magic):
            raise TraceError(f"{name}: this is {kind}, not a trace. {ADVICE}")
    if head[257:262] == b"ustar":
        raise TraceError(f"{name}: this is a tar archive. Unpack it and choose one of its files.")
    lower = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:200].lower()
    if lower.startswith((b"<!doctype", b"<html", b"<?xml", b"<svg")):
        raise TraceError(f"{name}: this is a web page or XML, not a trace. {ADVICE}")


def _detect_encoding(data: bytes, name: str) -> tuple[bytes, str, tuple[str, ...]]:
    """Return decodable bytes, their encoding, and notes about it.

    UTF-16 and Chinese or Japanese text is converted to UTF-8; other text that is not UTF-8 is
    Latin-1.

    Raises
    ------
    TraceError
        If it is not text.
    """
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return (
            data.decode("utf-16", "replace").encode("utf-8"),
            "utf-8",
            ("The text is read as UTF-16.",),
        )
    head = data[:HEAD]
    control_count = sum(
        head.count(bytes([code])) for code in range(32) if code not in (9, 10, 12, 13)
    )
    nul_count = data.count(b"\x00") if b"\x00" in data else 0
    # A few stray bytes are damage; many mean that the file is not text.
    if control_count > max(len(head) // 20, 8) or nul_count > max(len(data) // 20, 8):
        raise TraceError(f"{name}: this is a binary file, not a trace. {ADVICE}")
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(data), CHUNK):
            decoder.decode(data[at : at + CHUNK], at + CHUNK >= len(data))
    except UnicodeDecodeError:
        if (asian := _detect_asian_encoding(head)) is not None:
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


def _detect_asian_encoding(head: bytes) -> tuple[str, str] | None:
    """Return encoding and language of a Chinese or Japanese text that is not UTF-8, or None."""
    complete_lines = head[: head.rfind(b"\n") + 1] or head
    runs = re.findall(rb"[\x80-\xff]+", complete_lines)
    try:
        # Accented letters take one byte each, Chinese characters two.
        if sum(len(run) % 2 == 0 for run in runs) >= 0.9 * len(runs):
            complete_lines.decode("gb18030")
            return "gb18030", "Chinese"
    except UnicodeDecodeError:
        pass
    try:
        has_kana = re.search("[\u3040-\u30ff]", complete_lines.decode("cp932"))
    except UnicodeDecodeError:
        return None
    return ("cp932", "Japanese") if has_kana else None


def _skip_title(data: bytes, encoding: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the data without ``sep=;`` or title lines above the header, and a note."""
    head = data[:HEAD].decode(encoding, "ignore").removeprefix("\ufeff")
    lines = head.splitlines(keepends=True)[:_TITLE_SEARCH_LINES]
    if lines and lines[0].strip().lower() in [f"sep={mark}" for mark in (*DELIMITERS, "\\t")]:
        return _skip_lines(data, 1), ()
    if len(lines) < MIN_TABLE_LINES or lines[0].lstrip().startswith(";"):
        return data, ()
    widths = [len(sample_of(line).cells) if line.strip() else 0 for line in lines]
    field_counts = [width for width in widths if width > 1]
    usual_width = max(set(field_counts), key=field_counts.count) if field_counts else 0
    first = widths.index(usual_width) if usual_width in widths else 0
    # Title lines have one field; the first line of the usual width is the header.
    has_title = 0 < first <= MAX_TITLE_LINES and all(width <= 1 for width in widths[:first])
    if (
        not has_title
        or field_counts.count(usual_width) < 0.8 * len(field_counts)
        or usual_width < MIN_TABLE_COLUMNS
    ):
        return data, ()
    note = f"The first {first} lines are a title: the header is line {first + 1}."
    return _skip_lines(data, first), (note.replace("first 1 lines are", "first line is"),)


def _skip_lines(data: bytes, lines: int) -> bytes:
    """Return the data without its first lines."""
    at = 0
    for _ in range(lines):
        at = data.find(b"\n", at) + 1
    return data[at:]


MAX_EXPANSION: Final = 200
MIN_CHECKED_BYTES: Final = 10_000_000
"""Largest unpacked size relative to the archive, checked above `MIN_CHECKED_BYTES`."""
ARCHIVE_ERRORS: Final = (
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
"""Errors raised by unpacking a damaged, locked or unknown archive."""
_PACKED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class BinaryStream(Protocol):
    """A readable binary stream, such as a gzip or zip member."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, or all remaining bytes if it is negative."""


def check_size(size: int, name: str, options: ReadOptions) -> None:
    """Raise an error for more bytes than the limit."""
    if size > options.max_bytes:
        raise TraceError(
            f"{name}: {size_text(size)} are more than the limit of {size_text(options.max_bytes)}."
            " Use a shorter time range."
        )


def unpack_archive(data: bytes, name: str, options: ReadOptions) -> bytes | None:
    """Return the content of a single-file archive, or None for other files.

    Raises
    ------
    TraceError
        If it is damaged, holds no or several files, or exceeds the limits when unpacked.
    """
    try:
        if data[:2] == b"\x1f\x8b":
            return read_unpacked(
                lambda: gzip.GzipFile(fileobj=io.BytesIO(data)), len(data), name, options
            )
        if data[:4] == b"PK\x05\x06":
            raise TraceError(f"{name}: the zip archive is empty. Pack exactly one trace.")
        if data[:4] == b"PK\x03\x04":
            with open_zip(data, name) as archive:
                member = _only_member(archive, name)
                size = member.compress_size
                return read_unpacked(lambda: archive.open(member), size, name, options)
    except ARCHIVE_ERRORS as error:
        raise archive_error(name, error) from error
    return None


def open_zip(data: bytes, name: str) -> zipfile.ZipFile:
    """Open a zip archive after checking its compression methods.

    Raises
    ------
    TraceError
        If a member uses a compression method whose memory use cannot be bounded.
    BaseException
        One of `ARCHIVE_ERRORS` if the archive is damaged.
    """
    archive = zipfile.ZipFile(io.BytesIO(data))
    if any(item.compress_type not in _PACKED for item in archive.infolist()):
        raise TraceError(
            f"{name}: the compression method of the zip archive is not supported. Pack it again"
            " with the usual method (deflate)."
        )
    return archive


def archive_error(name: str, error: BaseException) -> TraceError:
    """Return the error for a damaged or locked archive."""
    return TraceError(
        f"{name}: the archive is damaged or locked ({str(error)[:60]!r}). Create it again without"
        " a password."
    )


def archive_files(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the files in an archive; an Office document counts as one file.

    Folders and the extra files of macOS are left out.
    """
    members = [
        item
        for item in archive.infolist()
        if not item.is_dir() and not item.filename.startswith("__MACOSX/")
    ]
    office = [item for item in members if item.filename == "[Content_Types].xml"]
    return office or members


def _only_member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    """Return the single file of an archive, or raise an error."""
    members = archive_files(archive)
    if any(item.filename == "[Content_Types].xml" for item in members):
        raise TraceError(
            f"{name}: this is an Office document. Save the sheet as CSV and choose that file."
        )
    if not members:
        raise TraceError(f"{name}: the zip archive holds only folders. Pack exactly one trace.")
    if len(members) != 1:
        raise TraceError(
            f"{name}: the zip archive holds {len(members)} files. Pack exactly one trace."
        )
    return members[0]


def read_unpacked(
    opened: Callable[[], AbstractContextManager[BinaryStream]],
    packed: int,
    name: str,
    options: ReadOptions,
) -> bytes:
    """Return the content of a packed stream, within the limits.

    Parameters
    ----------
    opened : callable
        Opens the stream; called twice.
    packed : int, bytes
        Packed size.
    name, options
        Name in messages, and limits.

    Raises
    ------
    TraceError
        If it exceeds the limits when unpacked.
    """
    # Count first and keep second, so that an archive bomb takes no memory.
    size = 0
    with opened() as stream:
        while chunk := stream.read(CHUNK):
            size += len(chunk)
            if size > options.max_bytes:
                limit = size_text(options.max_bytes)
                raise TraceError(
                    f"{name}: the archive unpacks to more than the limit of {limit}. Use a shorter"
                    " time range."
                )
            if size > MIN_CHECKED_BYTES and size > MAX_EXPANSION * packed:
                raise TraceError(
                    f"{name}: the archive unpacks to more than {MAX_EXPANSION} times its size,"
                    " unlike any trace. Unpack the file first."
                )
    with opened() as stream:
        return stream.read(size)


FEATHER: Final = b"ARROW1"


def is_workbook(data: bytes) -> bool:
    """Return whether a file is an Excel workbook."""
    if data[:4] != b"PK\x03\x04":
        return False
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return "xl/workbook.xml" in archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError, RuntimeError):
        return False


def workbook_sheets(data: bytes, name: str, options: ReadOptions) -> dict[str, bytes]:
    """Return sheet name -> CSV of the tables in a workbook.

    Raises
    ------
    TraceError
        If it is damaged, has no table, or is too large.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(item.file_size for item in archive.infolist())
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise TraceError(f"{name}: the workbook is damaged. Save it again.") from error
    if size > options.max_bytes:
        raise TraceError(
            f"{name}: the workbook takes {size_text(size)} unpacked, more than the limit of"
            f" {size_text(options.max_bytes)}. Use a shorter time range."
        )
    sheets: dict[str, bytes] = _parse_sandboxed(name, "workbook", _sheet_tables, data)
    if not sheets:
        raise TraceError(
            f"{name}: no sheet of the workbook has a table with a header and rows. Add one."
        )
    return sheets


def feather_as_parquet(data: bytes, name: str) -> bytes:
    """Return a Feather (Arrow) file as a Parquet file with the same types.

    Raises
    ------
    TraceError
        If it is damaged, or too large when unpacked.
    """
    parquet: bytes = _parse_sandboxed(name, "Feather file", _arrow_as_parquet, data)
    return parquet


def _parse_sandboxed(name: str, kind: str, work: Any, data: bytes) -> Any:
    """Return the result of a parser on a file, called in a sandboxed process.

    A result that is a text is the parser's error.

    Raises
    ------
    TraceError
        If the parser fails or exceeds a limit.
    """
    try:
        result = run_limited(work, data)
    except SandboxError as error:
        raise TraceError(
            f"{name}: reading the {kind} was stopped: {error}. Use a shorter time range, or save it"
            " as CSV."
        ) from error
    if isinstance(result, str):
        raise TraceError(f"{name}: the {kind} is damaged ({result}). Save it again, or as CSV.")
    return result


def _sheet_tables(data: bytes) -> dict[str, bytes] | str:
    """Return sheet name -> CSV of the tables in a workbook, or the text of an error.

    Blank rows and columns are dropped; sheets with less than two rows or columns are left out.
    """
    try:
        frames: dict[str, pd.DataFrame] = pd.read_excel(
            io.BytesIO(data),
            engine="calamine",
            sheet_name=None,
            header=None,
            dtype=object,
            na_filter=False,
        )
    except MemoryError:
        raise
    except Exception as error:  # damaged workbooks raise errors of many types
        return _error_text(error)
    tables = {}
    for name, frame in frames.items():
        cells = frame.map(cell_text)
        is_filled = cells != ""
        cells = cells.loc[is_filled.any(axis=1), is_filled.any(axis=0)]
        if len(cells) > 1 and cells.shape[1] > 1:
            tables[str(name)] = cells.to_csv(header=False, index=False).encode()
    return tables


def _arrow_as_parquet(data: bytes) -> bytes | str:
    """Return an Arrow file as Parquet, or the text of an error."""
    output = io.BytesIO()
    try:
        table = pa.ipc.open_file(io.BytesIO(data)).read_all()
        table.validate(full=True)
        pq.write_table(table, output)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        return _error_text(error)
    return output.getvalue()


def _error_text(error: BaseException) -> str:
    """Return the text of an error on one line of up to 120 characters."""
    printable = "".join(letter if letter.isprintable() else " " for letter in str(error))
    return " ".join(printable.split())[:120] or type(error).__name__
