"""Describes the beginning of a content, so that a format is recognised by what it holds and not by
its name.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

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
