"""The content of one unpacked file: its beginning, and text in other layouts as a table."""

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

from jobtraces.readers.items import items
from jobtraces.readers.options import Question
from sim.errors import TraceError

CHUNK: Final = 1 << 20
MOST_COLUMNS: Final = 1_000
DEEPEST: Final = 4
_DASHES: Final = re.compile(r"-+( +-+)+")
_KEY: Final = r"[A-Za-z][\w/:.]*"
_PAIRS: Final = re.compile(rf"\s+(?={_KEY}=)")
_FEWEST_PAIRS: Final = 4


def cell_text(value: Any) -> str:
    """Return what a cell of a workbook means, in a way that cannot be read otherwise."""
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
    """Return JSON whose objects are rows as a table; objects in objects become columns as
    ``config.gpus``.

    Parameters
    ----------
    text : str
        A list of objects, one object per line, or an object that holds exactly one such list.
    name : str
        For messages.

    Returns
    -------
    bytes or None
        CSV; None = this JSON holds no such list.
    """
    key = _key_of_list(text)
    if key is None:
        return None
    try:
        columns: dict[str, None] = {}
        for _, row in items(text, key, name):
            columns |= dict.fromkeys(column for column, _ in _flat(row, "", 0))
            if len(columns) > MOST_COLUMNS:
                raise TraceError(
                    f"{name}: the objects of this JSON have more than {MOST_COLUMNS:,} keys. Keep"
                    " those that describe jobs."
                )
        if len(columns) < 2:
            return None
        made = io.StringIO()
        writer = csv.DictWriter(made, list(columns), lineterminator="\n")
        writer.writeheader()
        for _, row in items(text, key, name):
            writer.writerow(dict(_flat(row, "", 0)))
    except RecursionError:
        return None
    return made.getvalue().encode("utf-8", "replace")


def columns_at_dashes(head: str) -> list[slice]:
    """Return where the columns are of a text of fixed width, whose second line has a dash below
    every letter of the first that belongs to one; none of any other text.
    """
    lines = head.split("\n", 2)
    if len(lines) < 3 or not _DASHES.fullmatch(lines[1].rstrip()):
        return []
    return [slice(*found.span()) for found in re.finditer("-+", lines[1])]


def fixed_as_table(text: str, columns: list[slice]) -> tuple[bytes, dict[str, int]]:
    """Return a text of fixed width as cells between tabs, and how many cells of which column end in
    a plus where the column ends: they are cut off.
    """
    header, _, *lines = text.replace("\t", " ").splitlines()
    rows = [[line[at].strip() for at in columns] for line in (header, *lines) if line.strip()]
    cut: dict[str, int] = {}
    for line, row in zip((one for one in lines if one.strip()), rows[1:], strict=True):
        for name, at, cell in zip(rows[0], columns, row, strict=True):
            if cell.endswith("+") and line[at.stop - 1 : at.stop] == "+":
                cut[name.lower()] = cut.get(name.lower(), 0) + 1
    return "".join("\t".join(row) + "\n" for row in rows).encode("utf-8", "replace"), cut


def records_key(head: str) -> str:
    """Return the key that begins each record of a text of ``Key=value``, as ``scontrol show job``
    prints them; "" = it is no such text.
    """
    first = re.match(rf"\s*({_KEY})=", head)
    if first is None or len(_PAIRS.split(_records(head, first[1])[0])) < _FEWEST_PAIRS:
        return ""
    # Files of settings begin with a key, too, but name others at the beginning of their lines.
    begins = re.findall(rf"(?m)^({_KEY})=", head)
    return first[1] if {*begins} == {first[1]} else ""


def records_as_table(text: str, key: str) -> bytes:
    """Return records of ``Key=value``, each of which begins with a key, as CSV; values may hold
    blanks, and ``(null)`` is empty.
    """
    rows = [
        {
            name: "" if value == "(null)" else " ".join(value.split())
            for name, _, value in (pair.partition("=") for pair in _PAIRS.split(record.strip()))
        }
        for record in _records(text, key)
    ]
    columns = dict.fromkeys(name for row in rows for name in row)
    made = io.StringIO()
    writer = csv.DictWriter(made, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return made.getvalue().encode("utf-8", "replace")


def _records(text: str, key: str) -> list[str]:
    return re.split(rf"(?m)^(?={re.escape(key)}=)", text.strip())[1:]


def _key_of_list(text: str) -> str | None:
    """Return the key of the only list of objects; "" = the JSON is the list itself, or lines."""
    beginning = text.lstrip()
    if beginning[:1] == "[":
        return "" if beginning[1:].lstrip()[:1] == "{" else None
    first, _, rest = beginning.partition("\n")
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        pass
    else:
        return "" if rest.lstrip()[:1] in ("{", "") and rest.strip() else None
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return None
    lists = [
        key
        for key, value in whole.items()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    ]
    return lists[0] if len(lists) == 1 else None


def _flat(row: Any, before: str, depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(row, Mapping):
        return
    for key, value in row.items():
        if isinstance(value, Mapping) and depth < DEEPEST:
            yield from _flat(value, f"{before}{key}.", depth + 1)
        elif isinstance(value, (Mapping, list)):
            yield f"{before}{key}", json.dumps(value)
        else:
            yield f"{before}{key}", cell_text(value)


DELIMITERS: Final = (",", "\t", ";", "|")
NAMES: Final = {",": "a comma", "\t": "a tab", ";": "a semicolon", "|": "a bar"}


@dataclass(frozen=True)
class Sample:
    """The features by which a format is recognised.

    Parameters
    ----------
    kind : {"text", "json", "parquet"}
        Outer shape.
    delimiter : str
        Of a text table; "" if its first line is a single field.
    cells : tuple of str
        Stripped fields of the first line of a text table.
    keys : frozenset of str
        For a text table the fields of its first line as `plain` names; for JSON every key that
        occurs early.
    head : str
        The beginning of a text or of JSON.
    """

    kind: Literal["text", "json", "parquet"]
    delimiter: str = ""
    cells: tuple[str, ...] = ()
    keys: frozenset[str] = frozenset()
    head: str = ""


def plain(column: str) -> str:
    """Return a column name without case, quotes and blanks: `` "Num GPUs"`` -> ``num_gpus``."""
    return re.sub(r"[\s\-]+", "_", column.strip().strip("\"'").strip().lower())


def distinct(names: Iterable[str]) -> list[str]:
    """Return names of columns so that none occurs twice and none is empty: the second ``gpus`` is
    ``gpus#2``.
    """
    turns: dict[str, int] = {}
    made: dict[str, None] = {}
    for at, name in enumerate(names):
        key = name or f"column_{at + 1}"
        turns[key] = turns.get(key, 0) + 1
        numbered = key if turns[key] == 1 else f"{key}#{turns[key]}"
        # A file may have a column that is called gpus#2 already.
        made[numbered if numbered not in made else f"{numbered}#{at + 1}"] = None
    return list(made)


def sample_of(head: str) -> Sample:
    """Describe the first characters of a text."""
    stripped = head.lstrip("\r\n ")
    if stripped[:1] in ("[", "{"):
        keys = frozenset(re.findall(r'"(\w+)"\s*:', stripped))
        return Sample("json", keys=keys, head=stripped)
    line = stripped.splitlines()[0] if stripped else ""
    delimiter, cells = _fields(line)
    return Sample("text", delimiter, cells, frozenset(plain(cell) for cell in cells), stripped)


def _fields(line: str) -> tuple[str, tuple[str, ...]]:
    best = ""
    found: tuple[str, ...] = (line.strip(),)
    # Node lists hold many commas, so a line with as many bars as a Slurm record is taken for one
    # before counting.
    for delimiter in ("|",) if line.count("|") >= 20 else DELIMITERS:
        try:
            cells = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:
            continue
        if len(cells) > len(found):
            best, found = delimiter, tuple(cell.strip() for cell in cells)
    return best, found


HEAD: Final = 1 << 16
PART: Final = 1 << 22
# Stands for a NUL byte, which the parsers would take for the end of a cell.
DAMAGE: Final = "\x06"


@dataclass(frozen=True)
class Content:
    """Unpacked bytes with what can be seen at their beginning.

    Parameters
    ----------
    name : str
        What the user calls it.
    data : bytes
        After unpacking.
    encoding : str
        "" for Parquet.
    guesses : tuple of str
        What was assumed while unpacking and decoding.
    damaged : bool
        Whether NUL bytes were found in a table; each is replaced by `DAMAGE`.
    beside : tuple of Content
        Further tables of the same trace.
    questions : tuple of Question
        What is open after unpacking: which sheet of a workbook.
    warnings : tuple of str
        What is damaged in it.
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
        """The content decoded, with a byte-order mark removed and line ends as they are; made anew
        each time, as it takes as much memory again.
        """
        return self.data.decode(self.encoding, "replace").removeprefix("\ufeff")

    @property
    def head(self) -> str:
        """The first characters, decoded."""
        return self.data[: 4 * HEAD].decode(self.encoding, "ignore").removeprefix("\ufeff")[:HEAD]

    @cached_property
    def sample(self) -> Sample:
        """What sniffing looks at."""
        if not self.encoding:
            return Sample("parquet")
        return sample_of(self.head)

    def parts(self) -> Iterator[str]:
        """Yield the content decoded, piece by piece."""
        with self.stream("") as stream:
            while part := stream.read(PART):
                yield part

    def stream(self, blanks: str, before: str = "", newline: str | None = "") -> TextIO:
        """Return the content as a stream of text that takes no second copy of it.

        Parameters
        ----------
        blanks : str
            What is skipped at the beginning.
        before : str
            Put in front.
        newline : str or None
            As for `open`.
        """
        start = len(codecs.BOM_UTF8) if self.data.startswith(codecs.BOM_UTF8) else 0
        while self.data[start : start + 1] in [blank.encode() for blank in blanks]:
            start += 1
        parts = [memoryview(before.encode(self.encoding)), memoryview(self.data)[start:]]
        return io.TextIOWrapper(
            io.BufferedReader(_Joined(parts), CHUNK), self.encoding, "replace", newline
        )


class _Joined(io.RawIOBase):
    def __init__(self, parts: list[memoryview]) -> None:
        super().__init__()
        self._parts = parts

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
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
    """Return text of fixed width, or of records of ``Key=value``, as a table."""
    if key := records_key(content.head):
        told = "Records of Key=value are read as rows of a table."
        data = records_as_table(content.text, key)
        return replace(content, data=data, encoding="utf-8", guesses=(*content.guesses, told))
    columns = columns_at_dashes(content.head)
    if not columns:
        return content
    data, cut = fixed_as_table(content.text, columns)
    told = ", ".join(f"{column} ({count:,})" for column, count in cut.items())
    return replace(
        content,
        data=data,
        encoding="utf-8",
        guesses=(*content.guesses, "Columns are cut at the line of dashes below the header."),
        warnings=(f"Cells are cut off (they end in +): {told}. Print whole columns.",)
        if cut
        else (),
    )
