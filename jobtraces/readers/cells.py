"""Cells and names of columns as numbers, instants, lengths of time and units."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sim.errors import TraceError


@cache
def words() -> Mapping[str, Any]:
    """Return the tables of `words.toml`."""
    text = resources.files(__package__).joinpath("words.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def bare(text: str) -> str:
    """Return a name without case, accents, blanks and signs: ``Eingereicht am`` and
    ``eingereicht_am`` are the same.
    """
    apart = unicodedata.normalize("NFKD", text).casefold()
    return "".join(one for one in apart if one.isalnum())


@cache
def known_words(table: str) -> Mapping[str, tuple[str, int]]:
    """Return bare word -> (key, place in its list) of one table of `words.toml`."""
    found: dict[str, tuple[str, int]] = {}
    for key, listed in words()[table].items():
        for at, word in enumerate(listed):
            found.setdefault(bare(word), (key, at))
    return found


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


YES_NO: Final = ("preemptible", "requeue")
LENGTHS: Final = ("duration_s", "time_limit_s")
_BRACKETS: Final = re.compile(r"[(\[（【]([^)\]）】]*)[)\]）】]")


@dataclass(frozen=True)
class Name:
    """What the name of a column says.

    Parameters
    ----------
    forms : tuple of (str, int)
        The bare name without its unit, and shorter ones without words that say nothing; with how
        well a match by each counts.
    unit : str
        "s", "ms", "min", "h", "d", "%", "" = it says none.
    utc : bool
        Whether it says that times are of UTC.
    """

    forms: tuple[tuple[str, int], ...]
    unit: str
    utc: bool


@cache
def name_of(column: str) -> Name:
    """Read the name of a column: ``Dauer (h)`` is a ``dauer`` in hours."""
    units = known_words("units")
    inside = [bare(text) for text in _BRACKETS.findall(column)]
    unit = next((units[text][0] for text in inside if text in units), "")
    if not unit and any("%" in text for text in _BRACKETS.findall(column)):
        unit = "%"
    left = _BRACKETS.sub(" ", column)
    forms = {bare(left): 3}
    parts = [part for part in re.split(r"[\s_.\-/]+", left) if part]
    if not unit and len(parts) > 1 and bare(parts[-1]) in units and "日" not in parts[-1]:
        unit = units[bare(parts[-1])][0]
        kept = parts[:-2] if bare(parts[-2]) in ("in", "en") and len(parts) > 2 else parts[:-1]
        forms[bare("_".join(kept))] = 3
    whole = bare(left)
    if not unit and whole not in known_words("facts"):
        # durationMs, 运行时长秒: only words of two letters or more, or in Chinese, are units there.
        for word, (key, _) in units.items():
            rest = whole.removesuffix(word)
            long = len(word) > 1 or not word.isascii()
            if rest != whole and long and rest in known_words("facts"):
                unit, forms[rest] = key, 3
    for form in list(forms):
        for shorter in _without_fillers(form):
            forms.setdefault(shorter, 2)
    utc = any(text in ("utc", "gmt") for text in (*inside, *map(bare, parts)))
    return Name(tuple(forms.items()), unit, utc)


def _without_fillers(form: str) -> set[str]:
    found: set[str] = set()
    queue = [form]
    before, after = (
        [bare(word) for word in words()["fillers"][key]] for key in ("before", "after")
    )
    while queue:
        one = queue.pop()
        shorter = {
            *(one.removeprefix(word) for word in before),
            *(one.removesuffix(word) for word in after),
        } - {one, *found}
        # What is left of `job_time` could be anything.
        kept = {text for text in shorter if len(text) > 1 and text not in ("time", "timestamp")}
        found |= kept
        queue += kept
    return found


MOST_OF: Final = 0.5
"""Share of the cells that must be readable before a column is taken for something."""
_NUMBER: Final = r"[+-]?\d[\d., '’\u00a0\u202f]*(?:[eE][+-]?\d+)?"
_GROUPED: Final = r"[+-]?\d{1,3}(?:[ '’\u00a0\u202f]\d{3})+(?:[.,]\d+)?"
_ONE_GROUP: Final = r"[+-]?[1-9]\d{0,2}[,.]\d{3}"
_DAYS: Final = r"(?:(\d+)(?:-|\s*(?:days?|d|tage?|jours?|d[ií]as?|天|日)\s*,?\s*))?"
_CLOCK: Final = re.compile(rf"{_DAYS}(\d+):(\d{{1,2}})(?::(\d{{1,2}}(?:[.,]\d+)?))?", re.IGNORECASE)
_ISO_LENGTH: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)
_PART: Final = re.compile(r"(\d+(?:[.,]\d+)?)\s*([^\W\d_]+)\.?\s*,?\s*(?:und|and|et|y)?\s*")
_GPU_NAMES: Final = (
    r"(?:nvidia[-_ .]|tesla[-_ ]|amd[-_ ])*"
    r"(?:[abhlptvk]\d{1,4}|rtx|gtx|mi\d{2,3}|gh200|gb200|gaudi|gpu)"
)
_COUNT_OF: Final = re.compile(rf"(\d+)\s*[x×*]\s*{_GPU_NAMES}.*", re.IGNORECASE)
_OF_COUNT: Final = re.compile(rf"{_GPU_NAMES}[\w-]*\s*(?:\s*[:=x×*]\s*)(\d+)", re.IGNORECASE)
_DATE: Final = (
    r"^(?:[^\W\d_]{2,10}\.?,?\s+)?(\d{1,4})\s*([./\-年])\s*(\d{1,2})\s*[./\-月]\s*(\d{1,4})\s*日?"
    r"(?:[T,\s]*(?:(上午|下午|午前|午後)\s*)?(\d{1,2})\s*[:時时点h]\s*(\d{1,2})"
    r"(?:\s*[:分]\s*(\d{1,2}(?:[.,]\d+)?))?\s*[分秒]?\s*(?:([AaPp])\.?[Mm]\.?)?(?:\s*Uhr)?)?"
    r"\s*(Z|z|UTC|GMT|[+-]\d{2}:?\d{2})?$"
)
_PARTS: Final = ("a", "sign", "b", "c", "half", "hour", "minute", "second", "noon", "offset")


def dated(frame: pd.DataFrame, pattern: str) -> pd.DataFrame:
    """Return a table in which columns of dates written after a pattern are instants; a cell of them
    that is written otherwise is none.
    """
    made = {}
    for column, values in frame.items() if pattern else ():
        if pd.api.types.is_string_dtype(values.dtype):
            cells = text(values)
            cells = cells[cells != ""]
            # An offset makes instants of them, a zone in letters would not.
            utc = "%z" in pattern
            found = pd.to_datetime(cells, format=pattern, errors="coerce", utc=utc)
            if found.notna().any() and found.notna().mean() >= MOST_OF:
                made[str(column)] = found.reindex(values.index)
    return frame.assign(**made) if made else frame


@dataclass(frozen=True)
class Column:
    """What most cells of a column can be read as.

    Parameters
    ----------
    numbers, moments, lengths, gpus : bool
        Plain figures; dates; lengths of time in words or as a clock; GPUs in some notation.
    distinct : int
        Different cells.
    empty : bool
        Whether there is no cell at all.
    """

    numbers: bool
    moments: bool
    lengths: bool
    gpus: bool
    distinct: int
    empty: bool


def column_of(values: pd.Series) -> Column:
    """Describe the cells of a column, typed or text."""
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return Column(False, True, False, False, values.nunique(), not values.notna().any())
    if pd.api.types.is_numeric_dtype(values.dtype):
        return Column(True, False, False, False, values.nunique(), not values.notna().any())
    cells = text(values)
    cells = cells[cells != ""]
    if cells.empty:
        return Column(False, False, False, False, 0, True)
    least = MOST_OF * len(cells)
    numbers = bool(cells.str.fullmatch(_NUMBER).sum() >= least)
    return Column(
        numbers,
        not numbers and bool(Dates.of(cells).readable.sum() >= least),
        not numbers and bool(lengths(cells, "m:s").notna().sum() >= least),
        not numbers and bool(gpus(cells).notna().sum() >= least),
        cells.nunique(),
        False,
    )


def signs(cells: pd.Series, semicolons: bool = False) -> str:
    """Tell what commas and points of figures mean.

    Parameters
    ----------
    cells : Series of str
        A column.
    semicolons : bool
        Whether semicolons separate the columns of its table, as where commas are decimal.

    Returns
    -------
    str
        "point" or "comma", the decimal one; "?" where ``86,461`` may be either.
    """
    like = cells[cells.str.contains(r"[.,]") & cells.str.fullmatch(_NUMBER)]
    commas, points = like.str.contains(",", regex=False), like.str.contains(".", regex=False)
    if (commas & points).any():
        first = str(like[commas & points].iloc[0])
        return "point" if first.rfind(".") > first.rfind(",") else "comma"
    for sign, where, other in ((",", commas, "point"), (".", points, "comma")):
        if not where.any():
            continue
        if (like[where].str.count(re.escape(sign)) > 1).any():
            return other
        doubtful = like[where].str.fullmatch(_ONE_GROUP).all() and (sign == "," or semicolons)
        if doubtful:
            return "?"
        return "comma" if sign == "," else "point"
    return "point"


def figures(cells: pd.Series, decimal: str = "point") -> pd.Series:
    """Return float64, NaN where a cell is no figure.

    Parameters
    ----------
    cells : Series of str
        With "" for nothing.
    decimal : {"point", "comma"}
        The decimal sign; the other one stands between thousands.
    """
    known = pd.to_numeric(cells, errors="coerce").astype(np.float64)
    rest = cells[(known.isna() & (cells != "")) | cells.str.contains(r"[.,]")]
    rest = rest[rest.str.fullmatch(_NUMBER)]
    if rest.empty:
        return known
    grouped = rest.str.fullmatch(_GROUPED)
    rest = rest.where(~grouped, rest.str.replace(r"[ '’\u00a0\u202f]", "", regex=True))
    mark, group = (r"\.", ",") if decimal == "point" else (",", r"\.")
    shape = rf"[+-]?(?:\d+|\d{{1,3}}(?:{group}\d{{3}})+)(?:{mark}\d*)?(?:[eE][+-]?\d+)?"
    clean = rest.str.replace(re.compile(group), "", regex=True)
    clean = clean.str.replace(",", ".", regex=False)
    found = pd.to_numeric(clean.where(rest.str.fullmatch(shape)), errors="coerce")
    return known.where(~known.index.isin(rest.index), found.reindex(known.index))


def lengths(cells: pd.Series, clock: str) -> pd.Series:
    """Return seconds of lengths of time in words or as a clock, NaN for all others.

    Parameters
    ----------
    cells : Series of str
        ``25:01:01``, ``1-01:00:00``, ``1 day, 3:04:05``, ``1h 2m 5s``, ``2,5 Stunden``, ``PT1H``.
    clock : {"m:s", "h:m"}
        What ``12:30`` means.
    """
    return each_distinct(cells, lambda cell: _length_s(cell.strip(), clock))


def _length_s(cell: str, clock: str) -> float:
    found = _CLOCK.fullmatch(cell)
    if found:
        days, first, second, third = found.groups()
        if third is None:
            hours, minutes, seconds = (
                (first, second, "0") if clock == "h:m" or days else ("0", first, second)
            )
        else:
            hours, minutes, seconds = first, second, third
        return (
            float(days or 0) * 86_400
            + float(hours) * 3600
            + float(minutes) * 60
            + float(seconds.replace(",", "."))
        )
    iso = _ISO_LENGTH.fullmatch(cell)
    if iso and any(iso.groups()):
        parts = [float(part or 0) for part in iso.groups()]
        return parts[0] * 86_400 + parts[1] * 3600 + parts[2] * 60 + parts[3]
    total, at = 0.0, 0
    for part in _PART.finditer(cell):
        factor = _unit_words().get(part.group(2).casefold())
        if part.start() != at or factor is None:
            return np.nan
        total += float(part.group(1).replace(",", ".")) * factor
        at = part.end()
    return total if at and at == len(cell) else np.nan


@cache
def _unit_words() -> Mapping[str, float]:
    per = {"s": 1.0, "ms": 0.001, "min": 60.0, "h": 3600.0, "d": 86_400.0}
    found = {word: per[unit] for unit, listed in words()["units"].items() for word in listed}
    return found | {"m": 60.0, "w": 604_800.0, "week": 604_800.0, "weeks": 604_800.0}


def gpus(cells: pd.Series) -> pd.Series:
    """Return numbers of GPUs in a notation, NaN for all else: ``gpu:4``, ``gres/gpu:a100=4``,
    ``gpu:a100:4(S:0-1)``, ``4xA100``, ``A100:4``.
    """
    return each_distinct(cells, _gpus)


def _tres_gpus(resources: str) -> float:
    """Return the GPUs of Slurm's trackable resources: the untyped total, else the sum of types."""
    total = re.search(r"(?:^|,)gres/gpu=(\d+(?:\.\d+)?)", resources)
    if total:
        return float(total[1])
    typed = re.findall(r"(?:^|,)gres/gpu:[^=,]+=(\d+)", resources)
    return sum(map(float, typed)) if typed else np.nan


def _gres_gpus(resources: str) -> float:
    """Return the GPUs of a GRES string such as ``hbm:0,gpu:P100:2(IDX:0-1)``."""
    counts = re.findall(
        r"(?:^|,)(?:gres[:/])?gpu(?::[^:,(]+)?:(\d+)", re.sub(r"\([^)]*\)", "", resources)
    )
    if counts:
        return sum(map(float, counts))
    return 1.0 if re.search(r"(?:^|,)gpu(?::[A-Za-z][^:,]*)?(?:,|$)", resources) else np.nan


def _gpus(cell: str) -> float:
    cell = cell.strip()
    for notation in (_tres_gpus, _gres_gpus):
        count = notation(cell)
        if not np.isnan(count):
            return count
    found = _COUNT_OF.fullmatch(cell) or _OF_COUNT.fullmatch(cell)
    return float(found.group(1)) if found else np.nan


@dataclass(frozen=True, eq=False)
class Dates:
    """A column of dates, in parts.

    Parameters
    ----------
    cells : Series of str
        The column.
    parts : DataFrame
        Texts of `_PARTS`, NaN where a cell is no date with figures.
    iso : Series of datetime64
        Cells that are ISO times without offset.
    """

    cells: pd.Series
    parts: pd.DataFrame
    iso: pd.Series

    @classmethod
    def of(cls, cells: pd.Series) -> Dates:
        """Take a column apart."""
        named = cells.str.contains(r"[A-Za-z]{3}", regex=True) & (cells.str.len() <= _LONGEST_DATE)
        if named.any():
            cells = cells.where(~named, cells[named].map(_month_as_number).reindex(cells.index))
        parts = cells.str.extract(_DATE)
        parts.columns = pd.Index(_PARTS)
        return cls(cells, parts, parsed(cells))

    @property
    def readable(self) -> pd.Series:
        """Which cells are dates, in whatever order."""
        return self.parts["a"].notna() | self.iso.notna()

    @property
    def written(self) -> pd.DataFrame:
        """Year-last dates of which signs do not tell the order: their first two figures."""
        parts = self.parts[(self.parts["a"].str.len() <= 2) & (self.parts["sign"] != ".")]
        return parts[["a", "b"]].astype(np.float64)

    def orders(self) -> tuple[str, ...]:
        """Return the orders that all written dates allow, of "day" and "month" first."""
        parts = self.written
        return tuple(
            order
            for order, month in (("day", "b"), ("month", "a"))
            if parts.empty or bool((parts[month] <= 12).all())
        )

    def moments(self, order: str) -> pd.Series:
        """Return instants without an offset as datetime64, those with one as of UTC.

        Parameters
        ----------
        order : {"day", "month"}
            What comes first where the year comes last.
        """
        part = self.parts
        first = part["a"].str.len() == 4
        swapped = (part["sign"] != ".") & (order == "month")
        year = part["a"].where(first, part["c"]).astype(np.float64)
        year = year.where(year >= 100, year + 2000)
        month = part["b"].where(first | ~swapped, part["a"]).astype(np.float64)
        day = part["c"].where(first, part["a"].where(~swapped, part["b"])).astype(np.float64)
        made = pd.to_datetime(
            pd.DataFrame({"year": year, "month": month, "day": day}), errors="coerce"
        )
        hour = part["hour"].fillna("0").astype(np.float64)
        late = part["noon"].str.lower().eq("p") | part["half"].isin(("下午", "午後"))
        twelve = part["noon"].notna() | part["half"].notna()
        hour = (hour % 12).where(twelve, hour) + 12.0 * late
        second = part["second"].fillna("0").str.replace(",", ".", regex=False).astype(np.float64)
        minute = part["minute"].fillna("0").astype(np.float64)
        good = (hour <= 24) & (minute < 60) & (second < 61) & year.between(1700, 2200)
        since = pd.to_timedelta((hour * 3600 + minute * 60 + second).where(good), unit="s")
        made = (made + since - pd.to_timedelta(_offset_s(part["offset"]), unit="s")).astype(
            "datetime64[us]"
        )
        iso = self.iso.dt.tz_localize(None).astype("datetime64[us]")
        return made.where(part["a"].notna(), iso)

    @property
    def aware(self) -> pd.Series:
        """Which cells carry an offset."""
        return self.parts["offset"].notna() | self.cells.str.contains(OFFSET, regex=True)


def _offset_s(offsets: pd.Series) -> pd.Series:
    def seconds(offset: str) -> float:
        if offset[:1] not in ("+", "-"):
            return 0.0
        digits = offset[1:].replace(":", "")
        return (int(digits[:2]) * 3600 + int(digits[2:] or 0) * 60) * (
            -1 if offset[0] == "-" else 1
        )

    return each_distinct(offsets.fillna(""), seconds)


_DAY_MONTH: Final = re.compile(
    r"(\d{1,2})\.?[ \-/]+(?:de\s+)?([^\W\d_]{3,10})\.?[ ,\-/]+(?:de\s+)?(\d{4})"
)
_LONGEST_DATE: Final = 64
"""Letters of a date with the name of its month; to look for one in a whole script takes long."""
_MONTH_DAY: Final = re.compile(r"([^\W\d_]{3,10})\.?[ \-]+(\d{1,2}),?[ \-]+(\d{4})")


def _month_as_number(cell: str) -> str:
    """Return a date with the name of its month as an ISO date: ``2 Mar 2026`` -> ``2026-03-02``."""
    found = _DAY_MONTH.search(cell)
    if found:
        day, name, year = found.groups()
    elif found := _MONTH_DAY.search(cell):
        name, day, year = found.groups()
    else:
        return cell
    month = _month(name.casefold())
    if not month:
        return cell
    rest = cell[found.end() :]
    return f"{year}-{month:02d}-{int(day):02d}{rest}"


@cache
def _month(name: str) -> int:
    for number, listed in words()["months"].items():
        if any(name.startswith(begin) for begin in listed):
            return int(number)
    return 0
