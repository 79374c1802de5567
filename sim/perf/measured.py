"""Tables of measured throughputs by model, batch size, gang size and GPU type, and their CSV."""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final, NamedTuple

import pandas as pd

from sim.errors import ParameterError
from sim.perf.profiles import number, plain

BUILT_IN: Final = ("simulation", "physical")
"""Built-in tables: those of Gavel's simulator and of its cluster (Narayanan et al., OSDI 2020)."""
_RANKED: Final = ("k80", "t4", "p100", "v100", "a100", "h100")
"""GPU types in order of speed; each is at least as fast as the previous one."""
COLUMNS: Final = (
    "gpu_type",
    "model",
    "batch_size",
    "scale_factor",
    "placement",
    "iterations_per_second",
)
"""Columns of a file with a profile; `batch_size` and `placement` may be missing."""
TOGETHER: Final = ("", "single", "consolidated")
SPREAD: Final = ("unconsolidated", "spread")
ANY_BATCH: Final = 0.0
"""Batch size of models that are measured without a batch size."""
MAX_ROWS: Final = 200_000
MAX_BYTES: Final = 50_000_000
_DATA: Final = Path(__file__).parent / "data" / "gavel.csv"
_NAMED: Final = re.compile(r"\s*(.*?)\s*\(\s*batch\s*size\s*(\d+)\s*\)\s*", re.IGNORECASE)


class Measured(NamedTuple):
    """Iterations per second of a gang, on one server and spread over several.

    Summed over the workers; 0 = the job does not fit there, NaN = not measured.
    """

    together: float
    spread: float = math.nan


class Key(NamedTuple):
    """Key of a throughput: plain model name, batch size per GPU, GPUs, lower-case GPU type."""

    model: str
    batch: float
    gpus: int
    gpu_type: str


@dataclass(frozen=True, eq=False)
class ProfileTable:
    """Throughputs by model, batch size, gang size and GPU type.

    Parameters
    ----------
    name : str
        Name for the user.
    rows : mapping
        Key -> iterations per second.
    models : mapping
        Plain name of each model -> its original name.
    notes : tuple of str
        Sentences about how the table was read.

    Raises
    ------
    ParameterError
        If a throughput is negative or infinite.
    """

    name: str
    rows: Mapping[Key, Measured]
    models: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse throughputs that are negative or infinite."""
        for key, row in self.rows.items():
            wrong = next((rate for rate in row if rate < 0 or rate == math.inf), None)
            if wrong is not None:
                raise ParameterError(
                    f"{self.name}: {_combination_text(self.models[key.model], key)} has a"
                    f" throughput of {wrong:g}. Correct it, or leave the row out."
                )

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Names of the GPU types, in order of first appearance."""
        return tuple(dict.fromkeys(key.gpu_type for key in self.rows))

    def batches(self, model: str) -> tuple[float, ...]:
        """Return the measured batch sizes of a model (plain name), ascending.

        `ANY_BATCH` if the measurements have no batch size.
        """
        return self._batches.get(model, ())

    def sizes(self, model: str, batch: float, gpu_type: str) -> tuple[int, ...]:
        """Return the measured gang sizes of a model and batch on a type, ascending."""
        return self._sizes.get((model, batch, gpu_type), ())

    def find(self, model: str, batch: float, gpus: int, gpu_type: str) -> Measured | None:
        """Return the row of a combination, or None if it was not measured.

        A model measured without a batch size has one row for all of them.
        """
        batches = self.batches(model)
        return self.rows.get(
            Key(model, ANY_BATCH if batches == (ANY_BATCH,) else batch, gpus, gpu_type)
        )

    @cached_property
    def _batches(self) -> dict[str, tuple[float, ...]]:
        """Model -> measured batch sizes, ascending."""
        batches_by_model: dict[str, set[float]] = {}
        for key in self.rows:
            batches_by_model.setdefault(key.model, set()).add(key.batch)
        return {model: tuple(sorted(batches)) for model, batches in batches_by_model.items()}

    @cached_property
    def _sizes(self) -> dict[tuple[str, float, str], tuple[int, ...]]:
        """(model, batch, type) -> measured gang sizes, ascending."""
        sizes_by_key: dict[tuple[str, float, str], set[int]] = {}
        for key in self.rows:
            sizes_by_key.setdefault((key.model, key.batch, key.gpu_type), set()).add(key.gpus)
        return {place: tuple(sorted(sizes)) for place, sizes in sizes_by_key.items()}

    def clean(self) -> ProfileTable:
        """Return the table with three kinds of implausible throughputs corrected.

        Notes
        -----
        In this order: a type is no slower than a type that is slower by the list of known GPU types
        (K80 <= T4 <= P100 <= V100 <= A100 <= H100; other types are unchanged) with the same job; a
        larger gang is no slower than a smaller one; a spread gang is no faster than one on a single
        server.
        """
        together = {key: row.together for key, row in self.rows.items()}
        ranked = sorted((kind for kind in self.types if kind in _RANKED), key=_RANKED.index)
        for key in dict.fromkeys(key._replace(gpu_type="") for key in self.rows):
            _make_ascending(together, [key._replace(gpu_type=kind) for kind in ranked])
        for (model, batch, kind), sizes in self._sizes.items():
            _make_ascending(together, [Key(model, batch, size, kind) for size in sizes])
        rows = {
            key: Measured(
                together[key],
                min(row.spread, together[key]) if row.spread == row.spread else row.spread,
            )
            for key, row in self.rows.items()
        }
        return ProfileTable(f"{self.name}, cleaned", rows, self.models, self.notes)

    def to_frame(self) -> pd.DataFrame:
        """Return the columns of `COLUMNS`, one row per combination and placement."""
        lines = []
        for key, row in self.rows.items():
            start = (key.gpu_type, self.models[key.model], key.batch or math.nan, key.gpus)
            lines.append((*start, "single" if key.gpus == 1 else "consolidated", row.together))
            if row.spread == row.spread:
                lines.append((*start, "unconsolidated", row.spread))
        return pd.DataFrame(lines, columns=list(COLUMNS))


def _make_ascending(values: dict[Key, float], keys: Iterable[Key]) -> None:
    """Replace each value by the largest so far, in place and in the order of the keys.

    Zeros mean "does not fit" and stay; keys without a value are skipped.
    """
    largest = 0.0
    for key in keys:
        if values.get(key):
            largest = values[key] = max(values[key], largest)


def split_name(text: str) -> tuple[str, float]:
    """Return model and batch size of a name such as "ResNet-18 (batch size 64)".

    The batch size is per GPU; NaN = the name has none.
    """
    match = _NAMED.fullmatch(text)
    return (match[1], float(match[2])) if match else (text.strip(), math.nan)


@cache
def built_in(name: str) -> ProfileTable:
    """Return a built-in table by name, see `BUILT_IN`.

    Throughputs that "physical" lacks are those of "simulation".

    Raises
    ------
    ParameterError
        If no table has this name.
    """
    if name not in BUILT_IN:
        raise ParameterError(
            f"profiled: there is no table '{name}'. Choose one of {', '.join(BUILT_IN)}, or a"
            " profile that was uploaded."
        )
    with _DATA.open(encoding="utf-8", newline="") as file:
        lines = [
            line | {"iterations_per_second": line[name] or line["simulation"]}
            for line in csv.DictReader(file)
        ]
    return _table(name, enumerate(lines, 1))


def read_profile(data: bytes, name: str) -> ProfileTable:
    """Return the profile in a CSV file with the columns of `COLUMNS`.

    Parameters
    ----------
    data : bytes
        The file. `iterations_per_second` is summed over the workers of a gang, `batch_size` is per
        GPU; empty = any. `placement` is "single" or "consolidated" for one server,
        "unconsolidated" for several. If column `source` names several tables, the first is read.
        Other columns are ignored.
    name : str
        Name for the user.

    Returns
    -------
    ProfileTable
        The table, to pass to `sim.perf.profiled.Profiled`.

    Raises
    ------
    ParameterError
        If a column is missing, there is no row, a value is not a number or out of bounds, or a
        combination occurs twice.
    """
    if len(data) > MAX_BYTES:
        raise ParameterError(
            f"{name}: {len(data) / 1e6:,.0f} MB are more than the limit of {MAX_BYTES / 1e6:,.0f}"
            " MB for a profile. Cut rows out."
        )
    try:
        # Spreadsheets save "Unicode text" as UTF-16.
        text = data.decode(
            "utf-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
        )
    except UnicodeDecodeError as error:
        raise ParameterError(
            f"{name}: this is not text in UTF-8. Save the profile as CSV in UTF-8."
        ) from error
    head = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=head.count)
    try:
        header, *rows = [
            cells for cells in csv.reader(io.StringIO(text), delimiter=delimiter) if any(cells)
        ] or [[]]
    except csv.Error as error:
        raise ParameterError(
            f"{name}: the table cannot be read ({error}). Save the profile as CSV."
        ) from error
    columns = [column.strip().lower() for column in header]
    missing = [
        column
        for column in COLUMNS
        if column not in columns and column not in {"batch_size", "placement"}
    ]
    if missing:
        raise ParameterError(
            f"{name}: column {missing[0]} is missing. Columns found:"
            f" {', '.join(columns[:20]) or 'none'}. A profile needs {', '.join(COLUMNS)}."
        )
    if not rows:
        raise ParameterError(f"{name}: there is a header but no row below it. Choose another file.")
    if len(rows) > MAX_ROWS:
        raise ParameterError(
            f"{name}: {len(rows):,} rows are more than the limit of {MAX_ROWS:,}. Cut rows out."
        )
    lines = [dict(zip(columns, cells, strict=False)) for cells in rows]
    sources = tuple(dict.fromkeys(line.get("source", "") for line in lines))
    numbered = [
        (row, line) for row, line in enumerate(lines, 1) if line.get("source", "") == sources[0]
    ]
    return _table(name, numbered, _unused_tables_note(sources))


def _unused_tables_note(sources: tuple[str, ...]) -> tuple[str, ...]:
    """Return a note that only the first of several tables in the file is used; else ()."""
    if len(sources) < 2:
        return ()
    return (
        (
            f"The file holds {len(sources)} tables (column source); the first is used:"
            f" {sources[0] or 'without a name'}."
        ),
    )


def _table(
    name: str, lines: Iterable[tuple[int, Mapping[str, str]]], notes: tuple[str, ...] = ()
) -> ProfileTable:
    """Return the table of numbered CSV lines; refuse duplicates and spread-only rows."""
    together: dict[Key, tuple[float, int]] = {}
    spread: dict[Key, tuple[float, int]] = {}
    models: dict[str, str] = {}
    for row, line in lines:
        key, is_spread, value = _parse_line(line, f"{name}: row {row}")
        models.setdefault(key.model, line["model"].strip())
        rows_by_key = spread if is_spread else together
        if key in rows_by_key:
            what = _combination_text(models[key.model], key)
            raise ParameterError(
                f"{name}: row {row} gives {what} again, after row {rows_by_key[key][1]}. Keep one"
                " table of measurements, and one row for each."
            )
        rows_by_key[key] = value, row
    spread_only = next((key for key in spread if key not in together), None)
    if spread_only:
        what = _combination_text(models[spread_only.model], spread_only)
        raise ParameterError(
            f"{name}: row {spread[spread_only][1]} gives {what} spread over servers, but no row"
            " gives it on one server. Add that row."
        )
    return ProfileTable(
        name,
        {
            key: Measured(value, spread[key][0] if key in spread else math.nan)
            for key, (value, _) in together.items()
        },
        models,
        notes,
    )


def _combination_text(model: str, key: Key) -> str:
    """Return a combination as text for messages."""
    return (
        f"{model}{f' with batch size {key.batch:g}' if key.batch else ''} on {key.gpus} x"
        f" {key.gpu_type}"
    )


def _parse_line(line: Mapping[str, str], where: str) -> tuple[Key, bool, float]:
    """Return key, whether spread over servers, and throughput of one CSV line."""
    model, kind = (
        str(line.get("model") or "").strip(),
        str(line.get("gpu_type") or "").lower().replace(" ", ""),
    )
    for column, value in (("model", plain(model)), ("gpu_type", kind)):
        if not value:
            raise ParameterError(f"{where} has no {column}. Fill it in or remove the row.")
    placement = str(line.get("placement") or "").strip().lower()
    if placement not in TOGETHER + SPREAD:
        raise ParameterError(
            f"{where} has the placement '{placement:.40}'. Write single, consolidated or"
            " unconsolidated."
        )
    batch = (
        _number(line, "batch_size", where, 1)
        if str(line.get("batch_size") or "").strip()
        else ANY_BATCH
    )
    gpus = _number(line, "scale_factor", where, 1)
    if gpus != int(gpus):
        raise ParameterError(
            f"{where} has the scale_factor {gpus:g}, but it must be a whole number of GPUs."
        )
    rate = _number(line, "iterations_per_second", where, 0)
    return Key(plain(model), batch, int(gpus), kind), placement in SPREAD, rate


def _number(line: Mapping[str, str], column: str, where: str, least: float) -> float:
    """Return a number of a CSV line; refuse values below `least`."""
    text = str(line.get(column) or "").strip()
    value = number(text)
    if not value >= least:
        raise ParameterError(
            f"{where} has the {column} '{text:.40}', but it must be a finite number of {least:g} or"
            " more. Correct it or remove the row."
        )
    return value
