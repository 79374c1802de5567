"""Tables that are written otherwise, as such: workbooks, Feather files, JSON whose objects are
rows, text of fixed width, and records of ``Key=value``.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from jobtraces.readers.items import items
from jobtraces.readers.options import ReadOptions, size_text
from jobtraces.sandbox import ApartError, apart
from sim.errors import TraceError

FEATHER: Final = b"ARROW1"
MOST_COLUMNS: Final = 1_000
DEEPEST: Final = 4
_DASHES: Final = re.compile(r"-+( +-+)+")
_KEY: Final = r"[A-Za-z][\w/:.]*"
_PAIRS: Final = re.compile(rf"\s+(?={_KEY}=)")
_FEWEST_PAIRS: Final = 4


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
        cells = frame.map(_cell)
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


def _cell(value: Any) -> str:
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
            yield f"{before}{key}", _cell(value)
