"""Turns columns of text into numbers, instants and names, whole columns at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sim.errors import TraceError

MISSING: Final = frozenset(
    {"", "none", "unknown", "nan", "nat", "null", "na", "n/a", "\\n", "none assigned", "invalid"}
)
LONGEST_MISSING: Final = max(map(len, MISSING))
# A time of day followed by Z, UTC or an offset; the date's own dashes must not be taken for one.
OFFSET: Final = r"[T ]\d\d(?::?\d\d){0,2}(?:[.,]\d+)?\s*(?:[zZ]|UTC|GMT|[+-]\d\d(?::?\d\d)?)$"
UNIX: Final = (946_684_800.0, 4_102_444_800.0)  # the years 2000 to 2100

REAL: Final = (-8_520_336_000.0, 7_258_118_400.0)
"""Unix seconds of the years 1700 to 2200; what lies outside is no time of a job, and beyond what
dates can hold in places.
"""


@dataclass(frozen=True)
class Instants:
    """A column of instants.

    Parameters
    ----------
    seconds : Series of float
        Unix seconds where `calendar`, else seconds from the source's own zero; NaN = missing or
        unreadable.
    calendar : bool
        Whether a date was written.
    aware : bool
        Whether every value carried an offset.
    doubtful : Series of bool
        Written times that occur twice or never, because the clocks were changed.
    """

    seconds: pd.Series
    calendar: bool
    aware: bool
    doubtful: pd.Series


def text(values: pd.Series) -> pd.Series:
    """Return stripped text with "" for everything that stands for nothing (None, Unknown, NaN, the
    NULL of MySQL and the like).
    """
    if not isinstance(values.dtype, pd.StringDtype):
        # Objects may be truth values and times beside texts, of which only texts can be stripped.
        values = values.astype("str")
    stripped = values.fillna("").str.strip()
    # Long texts mean something, and need no copy in small letters.
    short = (stripped.str.len() <= LONGEST_MISSING).to_numpy()
    nothing = np.zeros(len(stripped), bool)
    some = stripped if short.all() else stripped[short]
    small = pc.utf8_lower(pa.array(some, pa.large_string()))
    nothing[short] = pc.is_in(small, pa.array(sorted(MISSING), pa.large_string()))
    return stripped.where(~nothing, "") if nothing.any() else stripped


def names(values: pd.Series) -> pd.Series:
    """Return ids and names: like `text`, and a whole number that a spreadsheet turned into
    ``123.0`` is ``123`` again.
    """
    stripped = text(values)
    if not pc.any(pc.match_substring(pa.array(stripped, pa.large_string()), ".0")).as_py():
        return stripped
    return stripped.str.replace(r"^(\d+)\.0+$", r"\1", regex=True)


def numbers(values: pd.Series) -> pd.Series:
    """Return float64, NaN where a cell is missing or no number; infinities are kept for the checks
    to name.
    """
    if pd.api.types.is_bool_dtype(values.dtype) or pd.api.types.is_numeric_dtype(values.dtype):
        return values.astype(np.float64)
    # Stripping takes as long as all else, and hardly any cell needs it.
    cells = values.astype("str").fillna("")
    found = _cast(cells)
    if found is None:
        cells = cells.str.strip()
        found = _cast(cells)
    if found is None:
        return pd.to_numeric(cells, errors="coerce").astype(np.float64)
    return pd.Series(found, index=values.index)


def _cast(values: pd.Series) -> NDArray[np.float64] | None:
    """Return numbers, NaN for empty cells; None where something is none, which is found at once."""
    cells = pa.array(values, pa.large_string())
    try:
        filled = pc.if_else(pc.equal(cells, ""), pa.scalar(None, cells.type), cells)
        return np.asarray(filled.cast("float64").to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:
        return None


def booleans(values: pd.Series) -> pd.Series:
    """Return 1.0 and 0.0 for yes and no in their usual spellings, numbers as they are, NaN else."""
    words = {"true": 1.0, "yes": 1.0, "y": 1.0, "false": 0.0, "no": 0.0, "n": 0.0}
    return (
        values.astype("str")
        .str.strip()
        .str.lower()
        .map(words)
        .astype(np.float64)
        .fillna(numbers(values))
    )


def each_distinct(values: pd.Series, parse: Callable[[str], float]) -> pd.Series:
    """Apply a scalar parser once per distinct text: accounting logs repeat theirs a
    thousandfold.
    """
    codes, distinct = pd.factorize(values)
    parsed = np.fromiter((parse(str(value)) for value in distinct), np.float64, len(distinct))
    return pd.Series(np.append(parsed, np.nan)[codes], index=values.index)


def instants(
    values: pd.Series,
    zone: str,
    unit_s: float = 1.0,
    where: str = "the trace",
    not_before: pd.Series | None = None,
) -> Instants:
    """Read seconds, or ISO times with or without an offset.

    Parameters
    ----------
    values : Series
        Text, numbers or datetimes.
    zone : str
        IANA name, for times without an offset.
    unit_s : float, seconds
        Length of one unit of numeric values.
    where : str
        For messages: file and column.
    not_before : Series of float or None, Unix seconds
        What must have happened earlier; settles times that occur twice when clocks are set back.

    Raises
    ------
    TraceError
        If some times carry an offset and others do not.
    """
    never = pd.Series(False, index=values.index)
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        aware = isinstance(values.dtype, pd.DatetimeTZDtype)
        return _aware(values) if aware else _naive(values, zone, not_before)
    if pd.api.types.is_numeric_dtype(values.dtype):
        return Instants(values.astype(np.float64) * unit_s, False, False, never)
    figures = numbers(values)
    if figures.notna().all():
        return Instants(figures * unit_s, False, False, never)
    cells = text(values)
    figures = numbers(cells)
    present = cells != ""
    if figures.notna().sum() * 2 >= present.sum():
        return Instants(figures * unit_s, False, False, never)
    carries = cells.str.contains(OFFSET, regex=True)
    if not carries.any():
        return _naive(parsed(cells.where(present)).dt.tz_localize(None), zone, not_before)
    readable = carries | parsed(cells.where(present & ~carries)).isna()
    if not readable.all():
        at = int(np.flatnonzero(~readable.to_numpy())[0])
        first = f"row {values.index[at]}: {cells.iloc[at]}"
        raise TraceError(
            f"{where}: some times carry an offset and others do not ({first}). Give every time an"
            " offset, or none and choose a zone."
        )
    return _aware(parsed(cells.where(carries)))


def is_unix(seconds: pd.Series) -> bool:
    """Return whether all known values lie between the years 2000 and 2100 when read as Unix
    seconds.
    """
    known = seconds.dropna()
    return bool(len(known)) and bool(known.between(*UNIX).all())


def parsed(cells: pd.Series) -> pd.Series:
    """Return ISO times as instants of UTC, as if those without an offset were of it; NaT where a
    cell is none of a year that a trace can have.
    """
    # pandas takes these two words for the moment at which it reads them.
    moments = pd.to_datetime(
        cells.where(~cells.isin(("now", "today"))), format="ISO8601", utc=True, errors="coerce"
    )
    first, last = (pd.Timestamp(second, unit="s", tz="UTC") for second in REAL)
    return moments.where(moments.between(first, last))


def _seconds(moments: pd.Series) -> pd.Series:
    unix = moments.astype("datetime64[us, UTC]")
    return (unix.astype(np.int64) / 1e6).where(moments.notna())


def _aware(moments: pd.Series) -> Instants:
    return Instants(_seconds(moments), True, True, pd.Series(False, index=moments.index))


def _naive(moments: pd.Series, zone: str, not_before: pd.Series | None) -> Instants:
    first = moments.dt.tz_localize(
        zone, ambiguous=np.ones(len(moments), bool), nonexistent="shift_forward"
    )
    second = moments.dt.tz_localize(
        zone, ambiguous=np.zeros(len(moments), bool), nonexistent="shift_forward"
    )
    seconds, later = _seconds(first), _seconds(second)
    doubtful = (seconds != later) & moments.notna()
    if not_before is not None:
        seconds = later.where(doubtful & (seconds < not_before), seconds)
    doubtful |= moments.notna() & (first.dt.tz_localize(None) != moments)
    return Instants(seconds, True, False, doubtful)
