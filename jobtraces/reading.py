"""Read trace files: recognize the format, read and check jobs, report every change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Final

import pandas as pd
import pyarrow as pa

from jobtraces.readers.check import check_jobs, import_jobs
from jobtraces.readers.columns import NATIVE, TABLE, guess_mapping, is_native, is_table, missing
from jobtraces.readers.content import HEAD, Content, Sample, make_distinct, plain_name
from jobtraces.readers.draft import Draft, Format, Import, Report
from jobtraces.readers.files import FileSource, as_table, open_all
from jobtraces.readers.fingerprints import fingerprint_of
from jobtraces.readers.items import empty_lists
from jobtraces.readers.options import ReadOptions
from jobtraces.readers.parquet import parquet_head
from jobtraces.readers.table import read_table
from jobtraces.recipes import (
    JSON_FORMATS,
    choose_recipe,
    combine_tables,
    lacks_header,
    recipe_formats,
    recognize_recipe,
    refuse_unreadable,
    shipped_recipes,
    user_format,
)
from sim.errors import TraceError

__all__ = [
    "FORMATS",
    "Draft",
    "Format",
    "Import",
    "Peek",
    "ReadOptions",
    "Report",
    "Sample",
    "detect",
    "peek",
    "read",
]

_ORDER: Final = (NATIVE, *recipe_formats(), TABLE)
FORMATS: Final[Mapping[str, Format]] = MappingProxyType({fmt.name: fmt for fmt in _ORDER})
HEAD_ROWS: Final = 20
MAX_NAMED_FORMATS: Final = 12
DEFAULTS: Final = ReadOptions()


@dataclass(frozen=True, eq=False)
class Peek:
    """The start of a source, for choosing a format and mapping columns.

    Parameters
    ----------
    fmt, title : str
        Name and title of the detected format; "" if none.
    columns : tuple of str
        Plain column names; empty for JSON and for Slurm records without a header.
    head : DataFrame
        First rows as text, with these names.
    mapping : mapping
        Guessed native column -> plain source column.
    missing : tuple of str
        Required native columns without a source.
    written : mapping
        Plain column name -> name as written in the file.
    fingerprint : str
        Equal for files with the same columns or keys, in any order; "" = no names.
    sample : Sample
        Text of the start.
    """

    fmt: str
    title: str
    columns: tuple[str, ...]
    head: pd.DataFrame
    mapping: Mapping[str, str]
    missing: tuple[str, ...]
    written: Mapping[str, str]
    fingerprint: str = ""
    sample: Sample = Sample("text")  # noqa: RUF009 - it is immutable


def detect(content: Content) -> Format | None:
    """Return the format of a file from its start; any delimited text is a table, else None."""
    if is_native(content.sample):
        return NATIVE
    recipe = recognize_recipe(content.sample)
    if recipe is not None and recipe.name in FORMATS:
        return FORMATS[recipe.name]
    return TABLE if is_table(content.sample) else None


def read(
    source: FileSource,
    *,
    name: str = "",
    fmt: str | None = None,
    options: ReadOptions = DEFAULTS,
) -> Import:
    """Read a trace.

    Parameters
    ----------
    source : Path, bytes, mapping of str to Path or bytes, or list of Content
        A file or its bytes, plain or packed with gzip or zip; several tables of one trace by name,
        or in one zip archive; or contents that are open already.
    name : str
        Name of the trace; "" = the name of the (first) file.
    fmt : str or None
        Key in `FORMATS`; None = recognize it by the content.
    options : ReadOptions
        Zone, units, mapping, limits, and how to treat CPU jobs and unfinished jobs.

    Returns
    -------
    Import
        The trace and the report on how it was read.

    Raises
    ------
    TraceError
        If the file cannot be read; the message names the fault, its place, and what to do.
    """
    trace_name = name or _default_name(source)
    with _use_system_memory():
        draft = read_columns(
            recognize(open_all(source, trace_name, options), options, trace_name, fmt)
        )
        return import_jobs(check_jobs(draft))


class _ArrowPool:
    """Arrow's memory pool before the first of the active reads."""

    lock = Lock()
    readers = 0
    before: pa.MemoryPool | None = None


@contextmanager
def _use_system_memory() -> Iterator[None]:
    """Let Arrow allocate from the system during a read, until the last of several ends.

    Its own pool returns large blocks after every step and zeroes them again, which takes a quarter
    of the reading time.
    """
    with _ArrowPool.lock:
        if not _ArrowPool.readers:
            _ArrowPool.before = pa.default_memory_pool()
            pa.set_memory_pool(pa.system_memory_pool())
        _ArrowPool.readers += 1
    try:
        yield
    finally:
        with _ArrowPool.lock:
            _ArrowPool.readers -= 1
            if not _ArrowPool.readers:
                pa.set_memory_pool(_ArrowPool.before)


def recognize(
    contents: list[Content], options: ReadOptions, name: str, fmt: str | None = None
) -> Draft:
    """Return a draft with the format chosen and no column read yet.

    Parameters
    ----------
    contents : list of Content
        One file, or the tables of one trace.
    options, name, fmt
        As for `read`.

    Raises
    ------
    TraceError
        If no format fits, or the user must choose between several.
    """
    content = _json_as_table(_combine_contents(contents, options), fmt, options)
    chosen = _choose_format(content, fmt, options)
    report = Report(0)
    report.questions.extend(content.questions)
    report.warnings.extend(content.warnings)
    return Draft(
        pd.DataFrame(),
        report,
        name=name,
        fmt=chosen.name,
        title=chosen.title,
        options=options,
        load=partial(chosen.load, content, options),
    )


def read_columns(draft: Draft) -> Draft:
    """Return a recognized draft with its native columns, and release the file.

    The result keeps name, format, questions and warnings of the recognized draft.

    Raises
    ------
    TraceError
        If a column is missing, or cannot be read without an answer.
    """
    assert draft.load is not None, "recognize sets how the columns are read"
    typed = draft.load()
    typed.report.questions.extend(draft.report.questions)
    typed.report.warnings.extend(draft.report.warnings)
    return replace(typed, name=draft.name, fmt=draft.fmt, title=draft.title, options=draft.options)


def peek(
    source: FileSource,
    *,
    name: str = "",
    options: ReadOptions = DEFAULTS,
) -> Peek:
    """Return format, first rows and guessed mapping of a source, without checking its rows.

    Parameters
    ----------
    source, name, options
        As for `read`; the guess includes `options.mapping`.

    Raises
    ------
    TraceError
        If it cannot be opened or is not a table.
    """
    contents = open_all(source, name or _default_name(source), options)
    content = _json_as_table(_combine_contents(contents, options), None, options)
    detected = detect(content)
    no_header = detected is not None and lacks_header(detected.name, content.sample)
    head = pd.DataFrame() if no_header else _first_rows(content, options)
    columns = tuple(map(str, head.columns))
    mapping = guess_mapping(head if len(head) else columns, options.mapping)
    cells = {plain_name(cell): cell.strip("\"' ") for cell in reversed(content.sample.cells)}
    written = {column: cells.get(column, column) for column in columns}
    return Peek(
        detected.name if detected else "",
        detected.title if detected else "",
        columns,
        head,
        MappingProxyType(mapping),
        missing(mapping),
        MappingProxyType(written),
        "" if no_header else fingerprint_of(content.sample, columns, _json_list_key(detected)),
        content.sample,
    )


def _combine_contents(contents: list[Content], options: ReadOptions) -> Content:
    """Return the only content, or the main table with the others attached."""
    return contents[0] if len(contents) == 1 else combine_tables(contents, options)


def _json_list_key(fmt: Format | None) -> str:
    """Return the key of the list of jobs in a shipped JSON format, "" for other formats."""
    name = fmt.name if fmt is not None else ""
    return next((recipe.items or "" for recipe in shipped_recipes() if recipe.name == name), "")


def _default_name(source: FileSource) -> str:
    """Return the first table's name or the file's name; "trace" for bytes and contents."""
    if isinstance(source, Mapping):
        return next(iter(source), "trace")
    return source.name if isinstance(source, Path) else "trace"


def _json_as_table(content: Content, fmt: str | None, options: ReadOptions) -> Content:
    """Return JSON as a table if chosen, or if no format fits; other content unchanged.

    Choosing means the table format or a column mapping. Content to be read by a user's recipe stays
    unchanged.

    Raises
    ------
    TraceError
        If a shipped recipe refuses the file.
    """
    if content.sample.kind != "json" or options.recipe:
        return content
    is_unknown = fmt is None and (detect(content) is None or bool(options.mapping))
    if is_unknown and not options.mapping:
        refuse_unreadable(content)
    return as_table(content, options) if is_unknown or fmt == TABLE.name else content


def _choose_format(content: Content, fmt: str | None, options: ReadOptions) -> Format:
    """Return the format to read a file with: given, from a recipe, or detected.

    The user's recipe comes first, then a date pattern (table format), the given format, and a
    mapping (table format); a format is detected last.

    Raises
    ------
    TraceError
        If the format is unknown, or given together with a recipe; if no format fits, or a recipe
        refuses the file.
    OpenQuestionError
        If several recipes fit equally.
    """
    if options.recipe:
        if fmt is not None:
            raise TraceError(
                f"{content.name}: choose either the format {fmt!r} or your own recipe."
            )
        return user_format(options.recipe)
    if options.date_format and fmt != TABLE.name:
        return _format_for_dates(content, fmt)
    if fmt is not None:
        if fmt not in FORMATS:
            raise TraceError(
                f"{content.name}: unknown format {fmt!r}. Choose one of {', '.join(FORMATS)}."
            )
        return FORMATS[fmt]
    detected = detect(content)
    if options.mapping and content.sample.kind == "text":
        return NATIVE if detected is NATIVE else TABLE
    if detected is None or detected is TABLE:
        refuse_unreadable(content)
    elif detected is not NATIVE and (chosen := choose_recipe(content, options)) is not None:
        return FORMATS[chosen.name]
    if detected is None:
        raise _unknown_format_error(content)
    return detected


def _format_for_dates(content: Content, fmt: str | None) -> Format:
    """Return the table format, the only one that takes a date pattern.

    Raises
    ------
    TraceError
        If another format is chosen or detected.
    """
    other = FORMATS.get(fmt) if fmt is not None else detect(content)
    if other in (None, TABLE) or (other is NATIVE and fmt is None):
        return TABLE
    raise TraceError(
        f"{content.name}: {other.title} already defines its date format. Remove the date pattern,"
        f" or choose the format {TABLE.name}."
    )


def _unknown_format_error(content: Content) -> TraceError:
    """Return the error for a file that no format recognizes.

    It names the empty lists of a JSON file, or else the formats that can be read.

    Raises
    ------
    TraceError
        If it is JSON that is incomplete.
    """
    is_json = content.sample.kind == "json"
    if is_json and (empty := empty_lists(content.text, content.name)):
        return TraceError(
            f"{content.name}: the list {' and '.join(map(repr, empty))} of this JSON is empty."
            " Choose a file with jobs."
        )
    shape = "this JSON is not a known trace" if is_json else _single_column_text(content.sample)
    candidates = [fmt for fmt in _ORDER if (fmt.name in JSON_FORMATS) == is_json]
    titles = list(dict.fromkeys(fmt.title.partition(" (")[0] for fmt in candidates))
    listed = ", ".join(titles[:MAX_NAMED_FORMATS])
    more = f" and {len(titles) - MAX_NAMED_FORMATS} more" if len(titles) > MAX_NAMED_FORMATS else ""
    return TraceError(f"{content.name}: {shape}. Formats read: {listed}{more}.")


def _single_column_text(sample: Sample) -> str:
    """Return the part of a message about a first line with a single column."""
    first = sample.cells[0][:60] if sample.cells else ""
    return (
        f"the first line has a single column ({first!r}), so the separator is unknown. Use"
        " commas, tabs, semicolons or bars (sacct: option -P)"
    )


def _first_rows(content: Content, options: ReadOptions) -> pd.DataFrame:
    """Return up to 20 first rows of a table as text; an empty table for other content.

    A table with a header only gives its columns without rows.
    """
    if content.sample.kind == "parquet":
        return parquet_head(content, options, HEAD_ROWS)
    if content.sample.kind != "text" or not content.sample.delimiter:
        return pd.DataFrame()
    start = content.head
    is_complete = len(start) < HEAD
    lines = start.splitlines(keepends=True)
    lines = (lines if is_complete else lines[:-1])[: HEAD_ROWS + 1]
    excerpt = Content(content.name, "".join(lines).encode(), "utf-8", damaged=content.damaged)
    return (
        read_table(excerpt, options)[0]
        if len(lines) > 1
        else pd.DataFrame(columns=make_distinct(map(plain_name, content.sample.cells)))
    )
