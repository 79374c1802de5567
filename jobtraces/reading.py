"""Trace files in, one `Trace` and an account of what was dropped or altered out; `read` recognises
the format by its content.
"""

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

from jobtraces.readers.check import check, import_jobs
from jobtraces.readers.columns import NATIVE, TABLE, guess_mapping, is_native, is_table, missing
from jobtraces.readers.content import HEAD, Content, Sample, distinct, plain
from jobtraces.readers.draft import Draft, Format, Import, Report
from jobtraces.readers.files import FileSource, as_table, open_all
from jobtraces.readers.fingerprints import fingerprint_of
from jobtraces.readers.items import empty_lists
from jobtraces.readers.options import ReadOptions
from jobtraces.readers.parquet import parquet_head
from jobtraces.readers.table import read_table
from jobtraces.recipes import (
    JSON_FORMATS,
    formats,
    gathered,
    headless,
    of_user,
    recognised,
    refuse,
    shipped,
    which,
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

_ORDER: Final = (NATIVE, *formats(), TABLE)
FORMATS: Final[Mapping[str, Format]] = MappingProxyType({fmt.name: fmt for fmt in _ORDER})
HEAD_ROWS: Final = 20
MOST_NAMED: Final = 12
DEFAULTS: Final = ReadOptions()


@dataclass(frozen=True, eq=False)
class Peek:
    """The beginning of a source, for choosing a format and mapping columns.

    Parameters
    ----------
    fmt, title : str
        The format that recognises it; "" if none does.
    columns : tuple of str
        Plain names of its columns; empty for JSON and Slurm records without header.
    head : DataFrame
        First rows as text under those names.
    mapping : mapping
        Guess: native column -> plain source column.
    missing : tuple of str
        Required native columns for which nothing was found.
    written : mapping
        Plain name of a column -> the name as the file writes it.
    fingerprint : str
        The same for all files with the same columns or keys, in any order; "" = it has no names by
        which it could be known again.
    """

    fmt: str
    title: str
    columns: tuple[str, ...]
    head: pd.DataFrame
    mapping: Mapping[str, str]
    missing: tuple[str, ...]
    written: Mapping[str, str]
    fingerprint: str = ""


def detect(content: Content) -> Format | None:
    """Return the format that the beginning of the content is of: our own, one that a recipe
    recognises, or a table of which the columns must be guessed.
    """
    if is_native(content.sample):
        return NATIVE
    found = recognised(content.sample)
    if found is not None and found.name in FORMATS:
        return FORMATS[found.name]
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
        A file or its bytes, plain or packed with gzip or zip; several files that are the tables of
        one trace under their names, or packed into one zip archive; files that were opened before.
    name : str
        What to call the trace; "" = the name of the file, or of the first one.
    fmt : str or None
        Key in `FORMATS`; None = recognise it by the content.
    options : ReadOptions
        Zone, units, mapping, limits and what to do with CPU jobs and unfinished ones.

    Returns
    -------
    Import
        The trace and the account of how it was read.

    Raises
    ------
    TraceError
        One sentence: the fault, its place, and what to do.
    """
    called = name or _name_of(source)
    with _plain_memory():
        draft = read_columns(recognize(open_all(source, called, options), options, called, fmt))
        return import_jobs(check(draft))


class _Pools:
    """What Arrow took its memory from before the first of the reads under way."""

    lock = Lock()
    readers = 0
    before: pa.MemoryPool | None = None


@contextmanager
def _plain_memory() -> Iterator[None]:
    """Let Arrow take the memory of columns from the system: its own pool hands large pieces back
    after every step and has them filled with zeros anew, a quarter of the time of reading.
    """
    with _Pools.lock:
        if not _Pools.readers:
            _Pools.before = pa.default_memory_pool()
            pa.set_memory_pool(pa.system_memory_pool())
        _Pools.readers += 1
    try:
        yield
    finally:
        with _Pools.lock:
            _Pools.readers -= 1
            if not _Pools.readers:
                pa.set_memory_pool(_Pools.before)


def recognize(
    contents: list[Content], options: ReadOptions, name: str, fmt: str | None = None
) -> Draft:
    """Return a draft of which the format is known and no column is read yet.

    Parameters
    ----------
    contents : list of Content
        One file, or the tables of one trace.
    options, name, fmt
        As for `read`.

    Raises
    ------
    TraceError
        If no format fits, or it must be asked which of several does.
    """
    content = _as_table(_gathered(contents, options), fmt, options)
    found = _choose(content, fmt, options)
    report = Report(0)
    report.questions.extend(content.questions)
    report.warnings.extend(content.warnings)
    return Draft(
        pd.DataFrame(),
        report,
        name=name,
        fmt=found.name,
        title=found.title,
        options=options,
        load=partial(found.load, content, options),
    )


def read_columns(draft: Draft) -> Draft:
    """Return a recognized draft with its native columns; the file itself is let go.

    Raises
    ------
    TraceError
        If a column is missing, or cannot be read without an answer.
    """
    assert draft.load is not None, "recognize says how the columns are read"
    found = draft.load()
    found.report.questions.extend(draft.report.questions)
    found.report.warnings.extend(draft.report.warnings)
    return replace(found, name=draft.name, fmt=draft.fmt, title=draft.title, options=draft.options)


def peek(
    source: FileSource,
    *,
    name: str = "",
    options: ReadOptions = DEFAULTS,
) -> Peek:
    """Look at the beginning of a source without checking its rows.

    Parameters
    ----------
    source, name, options
        As for `read`; `options.mapping` is kept in the guess.

    Raises
    ------
    TraceError
        If it cannot be opened or is no table.
    """
    contents = open_all(source, name or _name_of(source), options)
    content = _as_table(_gathered(contents, options), None, options)
    found = detect(content)
    no_header = found is not None and headless(found.name, content.sample)
    head = pd.DataFrame() if no_header else _head(content, options)
    columns = tuple(map(str, head.columns))
    mapping = guess_mapping(head if len(head) else columns, options.mapping)
    cells = {plain(cell): cell.strip("\"' ") for cell in reversed(content.sample.cells)}
    written = {column: cells.get(column, column) for column in columns}
    return Peek(
        found.name if found else "",
        found.title if found else "",
        columns,
        head,
        MappingProxyType(mapping),
        missing(mapping),
        MappingProxyType(written),
        "" if no_header else fingerprint_of(content.sample, columns, _key_of_list(found)),
    )


def _gathered(contents: list[Content], options: ReadOptions) -> Content:
    return contents[0] if len(contents) == 1 else gathered(contents, options)


def _key_of_list(found: Format | None) -> str:
    """Return the key of the list of jobs in a JSON file of a format."""
    name = found.name if found is not None else ""
    return next((recipe.items or "" for recipe in shipped() if recipe.name == name), "")


def _name_of(source: FileSource) -> str:
    if isinstance(source, Mapping):
        return next(iter(source), "trace")
    return source.name if isinstance(source, Path) else "trace"


def _as_table(content: Content, fmt: str | None, options: ReadOptions) -> Content:
    """Return JSON that no format knows as a table of its objects."""
    if content.sample.kind != "json" or options.recipe:
        return content
    unknown = fmt is None and (detect(content) is None or bool(options.mapping))
    if unknown and not options.mapping:
        refuse(content)
    return as_table(content, options) if unknown or fmt == TABLE.name else content


def _choose(content: Content, fmt: str | None, options: ReadOptions) -> Format:
    if options.recipe:
        if fmt is not None:
            raise TraceError(
                f"{content.name}: choose either the format {fmt!r} or a recipe of your own."
            )
        return of_user(options.recipe)
    if options.date_format and fmt != TABLE.name:
        return _with_own_dates(content, fmt)
    if fmt is not None:
        if fmt not in FORMATS:
            raise TraceError(
                f"{content.name}: the format {fmt!r} is not known. Choose one of"
                f" {', '.join(FORMATS)}."
            )
        return FORMATS[fmt]
    found = detect(content)
    if options.mapping and content.sample.kind == "text":
        return NATIVE if found is NATIVE else TABLE
    if found is None or found is TABLE:
        refuse(content)
    elif found is not NATIVE and (chosen := which(content, options)) is not None:
        return FORMATS[chosen.name]
    if found is None:
        raise _not_known(content)
    return found


def _with_own_dates(content: Content, fmt: str | None) -> Format:
    """Return the format whose dates may be written in any way.

    Raises
    ------
    TraceError
        If another one is chosen or recognised.
    """
    known = FORMATS.get(fmt) if fmt is not None else detect(content)
    if known in (None, TABLE) or (known is NATIVE and fmt is None):
        return TABLE
    raise TraceError(
        f"{content.name}: {known.title} says how its dates are written. Leave the pattern of dates"
        f" out, or choose the format {TABLE.name}."
    )


def _not_known(content: Content) -> TraceError:
    """Return the refusal of a file that no format recognises.

    Raises
    ------
    TraceError
        If it is JSON that is not whole.
    """
    json = content.sample.kind == "json"
    if json and (empty := empty_lists(content.text, content.name)):
        return TraceError(
            f"{content.name}: the list {' and '.join(map(repr, empty))} of this JSON is empty:"
            " there is no job in it. Choose another file."
        )
    shape = "this JSON is no known trace" if json else _single(content.sample)
    like = [fmt for fmt in _ORDER if (fmt.name in JSON_FORMATS) == json]
    titles = list(dict.fromkeys(fmt.title.partition(" (")[0] for fmt in like))
    named = ", ".join(titles[:MOST_NAMED])
    more = f" and {len(titles) - MOST_NAMED} more" if len(titles) > MOST_NAMED else ""
    return TraceError(f"{content.name}: {shape}. Formats read: {named}{more}.")


def _single(sample: Sample) -> str:
    first = sample.cells[0][:60] if sample.cells else ""
    return (
        f"the first line has a single column ({first!r}), so the separator is unknown; use"
        " commas, tabs, semicolons or bars (sacct: option -P)"
    )


def _head(content: Content, options: ReadOptions) -> pd.DataFrame:
    if content.sample.kind == "parquet":
        return parquet_head(content, options, HEAD_ROWS)
    if content.sample.kind != "text" or not content.sample.delimiter:
        return pd.DataFrame()
    beginning_of_text = content.head
    whole = len(beginning_of_text) < HEAD
    lines = beginning_of_text.splitlines(keepends=True)
    lines = (lines if whole else lines[:-1])[: HEAD_ROWS + 1]
    part = Content(content.name, "".join(lines).encode(), "utf-8", damaged=content.damaged)
    return (
        read_table(part, options)[0]
        if len(lines) > 1
        else pd.DataFrame(columns=distinct(map(plain, content.sample.cells)))
    )
