"""Content of one unpacked file: a sample of its start, and other layouts as tables."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, Final, Literal, TextIO

import pandas as pd

from jobtraces.readers.items import read_items
from jobtraces.readers.options import Question
from sim.errors import TraceError

CHUNK: Final = 1 << 20
MAX_COLUMNS: Final = 1_000
MAX_DEPTH: Final = 4
_DASHES: Final = re.compile(r"-+( +-+)+")
_KEY: Final = r"[A-Za-z][\w/:.]*"
_PAIRS: Final = re.compile(rf"\s+(?={_KEY}=)")
_MIN_PAIRS: Final = 4


def cell_text(value: Any) -> str:
    """Return a cell as text: timedeltas as ``hh:mm:ss``, whole floats as integers.

    None and NaT become "".
    """
    if value is None or value is pd.NaT:
        return ""
    if isinstance(value, timedelta):
        minutes, seconds = divmod(value.total_seconds(), 60)
        return f"{int(minutes // 60):02d}:{int(minutes % 60):02d}:{seconds:06.3f}".removesuffix(
            ".000"
        )
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value).strip()


def objects_as_csv(text: str, name: str) -> bytes | None:
    """Return a JSON list of objects as CSV; nested keys become columns ``config.gpus``.

    Parameters
    ----------
    text : str
        A list of objects, one object per line, or an object that holds exactly one such list.
    name : str
        Name of the file in messages.

    Returns
    -------
    bytes or None
        CSV; None = the JSON has no such list.
    """
    key = _list_key(text)
    if key is None:
        return None
    try:
        columns: dict[str, None] = {}
        for _, row in read_items(text, key, name):
            columns |= dict.fromkeys(column for column, _ in _flatten(row, "", 0))
            if len(columns) > MAX_COLUMNS:
                raise TraceError(
                    f"{name}: the objects of this JSON have more than {MAX_COLUMNS:,} keys. Keep"
                    " only keys that describe jobs."
                )
        if len(columns) < 2:
            return None
        output = io.StringIO()
        writer = csv.DictWriter(output, list(columns), lineterminator="\n")
        writer.writeheader()
        for _, row in read_items(text, key, name):
            writer.writerow(dict(_flatten(row, "", 0)))
    except RecursionError:
        return None
    return output.getvalue().encode("utf-8", "replace")


def columns_at_dashes(head: str) -> list[slice]:
    """Return the column positions of a fixed-width text with a line of dashes.

    [] for other texts.
    """
    lines = head.split("\n", 2)
    if len(lines) < 3 or not _DASHES.fullmatch(lines[1].rstrip()):
        return []
    return [slice(*match.span()) for match in re.finditer("-+", lines[1])]


def fixed_width_as_table(text: str, columns: list[slice]) -> tuple[bytes, dict[str, int]]:
    """Return a fixed-width text as tab-separated bytes, and truncated cells per column.

    A cell is truncated if it ends in a plus at the end of its column.
    """
    header, _, *lines = text.replace("\t", " ").splitlines()
    rows = [
        [line[column].strip() for column in columns] for line in (header, *lines) if line.strip()
    ]
    cut_counts: dict[str, int] = {}
    for line, row in zip((line for line in lines if line.strip()), rows[1:], strict=True):
        for name, column, cell in zip(rows[0], columns, row, strict=True):
            if cell.endswith("+") and line[column.stop - 1 : column.stop] == "+":
                cut_counts[name.lower()] = cut_counts.get(name.lower(), 0) + 1
    return "".join("\t".join(row) + "\n" for row in rows).encode("utf-8", "replace"), cut_counts


def records_key(head: str) -> str:
    """Return the key that starts each record of a ``Key=value`` text, else "".

    ``scontrol show job`` prints such records.
    """
    first = re.match(rf"\s*({_KEY})=", head)
    if first is None or len(_PAIRS.split(_split_records(head, first[1])[0])) < _MIN_PAIRS:
        return ""
    # Configuration files also start with a key, but their lines start with different keys.
    line_keys = re.findall(rf"(?m)^({_KEY})=", head)
    return first[1] if {*line_keys} == {first[1]} else ""


def records_as_table(text: str, key: str) -> bytes:
    """Return ``Key=value`` records as CSV; ``(null)`` becomes empty."""
    rows = [
        {
            name: "" if value == "(null)" else " ".join(value.split())
            for name, _, value in (pair.partition("=") for pair in _PAIRS.split(record.strip()))
        }
        for record in _split_records(text, key)
    ]
    columns = dict.fromkeys(name for row in rows for name in row)
    output = io.StringIO()
    writer = csv.DictWriter(output, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return output.getvalue().encode("utf-8", "replace")


def _split_records(text: str, key: str) -> list[str]:
    """Return the records of a text; each starts with the key."""
    return re.split(rf"(?m)^(?={re.escape(key)}=)", text.strip())[1:]


def _list_key(text: str) -> str | None:
    """Return the key of the only list of objects; "" = the JSON is the list, or lines.

    None if there is no such list, or more than one.
    """
    stripped = text.lstrip()
    if stripped[:1] == "[":
        return "" if stripped[1:].lstrip()[:1] == "{" else None
    first, _, rest = stripped.partition("\n")
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        pass
    else:
        if rest.strip():
            return "" if rest.lstrip()[:1] == "{" else None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    lists = [
        key
        for key, value in parsed.items()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    ]
    return lists[0] if len(lists) == 1 else None


def _flatten(row: Any, prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield (dotted key, text) of a nested object; lists, and deep objects, as JSON text."""
    if not isinstance(row, Mapping):
        return
    for key, value in row.items():
        if isinstance(value, Mapping) and depth < MAX_DEPTH:
            yield from _flatten(value, f"{prefix}{key}.", depth + 1)
        elif isinstance(value, (Mapping, list)):
            yield f"{prefix}{key}", json.dumps(value)
        else:
            yield f"{prefix}{key}", cell_text(value)


DELIMITERS: Final = (",", "\t", ";", "|")
NAMES: Final = {",": "a comma", "\t": "a tab", ";": "a semicolon", "|": "a bar"}


@dataclass(frozen=True)
class Sample:
    """The start of a file, from which its format is recognized.

    Parameters
    ----------
    kind : {"text", "json", "parquet"}
        Kind of content.
    delimiter : str
        Delimiter of a text table; "" if the first line is a single field.
    cells : tuple of str
        Stripped fields of the first line of a text table.
    keys : frozenset of str
        For a text table, the plain names in its first line; for JSON, all keys in the sample.
    head : str
        First characters of a text or JSON.
    """

    kind: Literal["text", "json", "parquet"]
    delimiter: str = ""
    cells: tuple[str, ...] = ()
    keys: frozenset[str] = frozenset()
    head: str = ""


def plain_name(column: str) -> str:
    """Return a normalized column name: `` "Num GPUs"`` -> ``num_gpus``."""
    return re.sub(r"[\s\-]+", "_", column.strip().strip("\"'").strip().lower())


def make_distinct(names: Iterable[str]) -> list[str]:
    """Return column names made unique and non-empty: the second ``gpus`` is ``gpus#2``."""
    counts: dict[str, int] = {}
    result: dict[str, None] = {}
    for index, name in enumerate(names):
        key = name or f"column_{index + 1}"
        counts[key] = counts.get(key, 0) + 1
        numbered = key if counts[key] == 1 else f"{key}#{counts[key]}"
        # The file may already have a column gpus#2.
        result[numbered if numbered not in result else f"{numbered}#{index + 1}"] = None
    return list(result)


def sample_of(head: str) -> Sample:
    """Return the sample of a text from its first characters.

    It is JSON if it starts with a bracket or brace, else a table with the delimiter of its first
    line.
    """
    stripped = head.lstrip("\r\n ")
    if stripped[:1] in ("[", "{"):
        keys = frozenset(re.findall(r'"(\w+)"\s*:', stripped))
        return Sample("json", keys=keys, head=stripped)
    line = stripped.splitlines()[0] if stripped else ""
    delimiter, cells = _split_first_line(line)
    return Sample("text", delimiter, cells, frozenset(plain_name(cell) for cell in cells), stripped)


def _split_first_line(line: str) -> tuple[str, tuple[str, ...]]:
    """Return the delimiter and the fields of a line; the one with the most fields wins."""
    best_delimiter = ""
    best_cells: tuple[str, ...] = (line.strip(),)
    # Node lists hold many commas: a line with as many bars as a Slurm record is one.
    for delimiter in ("|",) if line.count("|") >= 20 else DELIMITERS:
        try:
            cells = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:
            continue
        if len(cells) > len(best_cells):
            best_delimiter, best_cells = delimiter, tuple(cell.strip() for cell in cells)
    return best_delimiter, best_cells


HEAD: Final = 1 << 16
PART: Final = 1 << 22
# Replaces NUL bytes, which parsers read as the end of a cell.
DAMAGED_BYTE: Final = "\x06"


@dataclass(frozen=True)
class Content:
    """The unpacked bytes of a file, with its encoding and notes from unpacking.

    Parameters
    ----------
    name : str
        Name of the file.
    data : bytes
        Unpacked bytes.
    encoding : str
        Text encoding; "" for Parquet.
    guesses : tuple of str
        Assumptions made while unpacking and decoding.
    damaged : bool
        Whether a table held NUL bytes; each is replaced by `DAMAGED_BYTE`.
    beside : tuple of Content
        Other tables of the same trace.
    questions : tuple of Question
        Open questions after unpacking, such as which sheet of a workbook.
    warnings : tuple of str
        Damage found.
    """

    name: str
    data: bytes
    encoding: str
    guesses: tuple[str, ...] = ()
    damaged: bool = False
    beside: tuple[Content, ...] = ()
    questions: tuple[Question, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The decoded content without byte-order mark; not cached, to save memory."""
        return self.data.decode(self.encoding, "replace").removeprefix("\ufeff")

    @property
    def head(self) -> str:
        """The first characters, decoded."""
        return self.data[: 4 * HEAD].decode(self.encoding, "ignore").removeprefix("\ufeff")[:HEAD]

    @cached_property
    def sample(self) -> Sample:
        """The start of the file, from which its format is recognized."""
        if not self.encoding:
            return Sample("parquet")
        return sample_of(self.head)

    def parts(self) -> Iterator[str]:
        """Yield the decoded content in parts of up to `PART` characters."""
        with self.stream("") as stream:
            while part := stream.read(PART):
                yield part

    def stream(self, skipped: str, prefix: str = "", newline: str | None = "") -> TextIO:
        """Return the content as a text stream, without a second copy in memory.

        Parameters
        ----------
        skipped : str
            Characters to skip at the start.
        prefix : str
            Text to put in front.
        newline : str or None
            As for `open`.
        """
        start = len(codecs.BOM_UTF8) if self.data.startswith(codecs.BOM_UTF8) else 0
        while self.data[start : start + 1] in [blank.encode() for blank in skipped]:
            start += 1
        parts = [memoryview(prefix.encode(self.encoding)), memoryview(self.data)[start:]]
        return io.TextIOWrapper(
            io.BufferedReader(_ChainedStream(parts), CHUNK), self.encoding, "replace", newline
        )


class _ChainedStream(io.RawIOBase):
    """A raw stream over several pieces of memory."""

    def __init__(self, parts: list[memoryview]) -> None:
        super().__init__()
        self._parts = parts

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Copy bytes of the first unread part into the buffer; return the count, 0 at the end."""
        target = memoryview(buffer)
        while self._parts:
            part = self._parts[0]
            count = min(len(part), len(target))
            if count:
                target[:count] = part[:count]
                self._parts[0] = part[count:]
                return count
            self._parts.pop(0)
        return 0


def as_delimited(content: Content) -> Content:
    """Return fixed-width text or ``Key=value`` records as a table; other text unchanged.

    Adds a note on the layout, and a warning about truncated cells.
    """
    if key := records_key(content.head):
        note = "Key=value records are read as rows of a table."
        data = records_as_table(content.text, key)
        return replace(content, data=data, encoding="utf-8", guesses=(*content.guesses, note))
    columns = columns_at_dashes(content.head)
    if not columns:
        return content
    data, cut_counts = fixed_width_as_table(content.text, columns)
    note = ", ".join(f"{column} ({count:,})" for column, count in cut_counts.items())
    return replace(
        content,
        data=data,
        encoding="utf-8",
        guesses=(*content.guesses, "Columns are split at the line of dashes below the header."),
        warnings=(f"Cells are truncated (they end in +): {note}. Print wider columns.",)
        if cut_counts
        else (),
    )
