"""Parse cells and column names: numbers, instants, durations, GPU counts and units."""

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
def load_words() -> Mapping[str, Any]:
    """Return the tables of `words.toml`."""
    text = resources.files(__package__).joinpath("words.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def bare_name(text: str) -> str:
    """Return a name without case, accents, blanks and punctuation."""
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    return "".join(character for character in decomposed if character.isalnum())


@cache
def words_by_form(table: str) -> Mapping[str, tuple[str, int]]:
    """Return bare word -> (key, rank in its list) of a table of `words.toml`."""
    by_form: dict[str, tuple[str, int]] = {}
    for key, listed in load_words()[table].items():
        for place, word in enumerate(listed):
            by_form.setdefault(bare_name(word), (key, place))
    return by_form


OUTCOMES: Final = tuple(load_words()["outcomes"])
MISSING: Final = frozenset(
    {"", "none", "unknown", "nan", "nat", "null", "na", "n/a", "\\n", "none assigned", "invalid"}
)
MAX_MISSING_CHARS: Final = max(map(len, MISSING))
# A time of day followed by Z, UTC or an offset; must not match the dashes of the date.
OFFSET: Final = r"[T ]\d\d(?::?\d\d){0,2}(?:[.,]\d+)?\s*(?:[zZ]|UTC|GMT|[+-]\d\d(?::?\d\d)?)$"
UNIX_TIMES: Final = (946_684_800.0, 4_102_444_800.0)  # the years 2000 to 2100

PLAUSIBLE_TIMES: Final = (-8_520_336_000.0, 7_258_118_400.0)
"""Unix seconds of the years 1700 to 2200; other values are not times of jobs."""


@dataclass(frozen=True)
class Instants:
    """A column of instants.

    Parameters
    ----------
    seconds : Series of float
        Unix seconds where `calendar`, else seconds from the source's own zero; NaN = missing or
        unreadable.
    calendar : bool
        Whether the cells are dates.
    aware : bool
        Whether every value has a UTC offset.
    doubtful : Series of bool
        Local times that occur twice or never because of a clock change.
    """

    seconds: pd.Series
    calendar: bool
    aware: bool
    doubtful: pd.Series


def clean_text(values: pd.Series) -> pd.Series:
    """Return stripped text, with "" for missing-value words such as None, NaN and NULL."""
    if not isinstance(values.dtype, pd.StringDtype):
        # Object columns may mix texts with booleans and times.
        values = values.astype("str")
    stripped = values.fillna("").str.strip()
    # Only short texts can be missing-value words: lower only these.
    is_short = (stripped.str.len() <= MAX_MISSING_CHARS).to_numpy()
    is_missing = np.zeros(len(stripped), bool)
    candidates = stripped if is_short.all() else stripped[is_short]
    lower = pc.utf8_lower(pa.array(candidates, pa.large_string()))
    is_missing[is_short] = pc.is_in(lower, pa.array(sorted(MISSING), pa.large_string()))
    return stripped.where(~is_missing, "") if is_missing.any() else stripped


def clean_names(values: pd.Series) -> pd.Series:
    """Return ids and names as cleaned text; ``123.0`` from a spreadsheet becomes ``123``."""
    stripped = clean_text(values)
    if not pc.any(pc.match_substring(pa.array(stripped, pa.large_string()), ".0")).as_py():
        return stripped
    return stripped.str.replace(r"^(\d+)\.0+$", r"\1", regex=True)


def numbers(values: pd.Series) -> pd.Series:
    """Return float64 values, NaN for cells that are not numbers; infinities stay."""
    if pd.api.types.is_bool_dtype(values.dtype) or pd.api.types.is_numeric_dtype(values.dtype):
        return values.astype(np.float64)
    # Stripping is slow and rarely needed.
    cells = values.astype("str").fillna("")
    values_read = _cast_numbers(cells)
    if values_read is None:
        cells = cells.str.strip()
        values_read = _cast_numbers(cells)
    if values_read is None:
        return pd.to_numeric(cells, errors="coerce").astype(np.float64)
    return pd.Series(values_read, index=values.index)


def _cast_numbers(values: pd.Series) -> NDArray[np.float64] | None:
    """Return numbers, NaN for empty cells; None if any cell is not a number."""
    cells = pa.array(values, pa.large_string())
    try:
        filled = pc.if_else(pc.equal(cells, ""), pa.scalar(None, cells.type), cells)
        return np.asarray(filled.cast("float64").to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:
        return None


def booleans(values: pd.Series) -> pd.Series:
    """Return 1.0 and 0.0 for yes and no in common spellings, numbers unchanged, else NaN."""
    words = {"true": 1.0, "yes": 1.0, "y": 1.0, "false": 0.0, "no": 0.0, "n": 0.0}
    return (
        values.astype("str")
        .str.strip()
        .str.lower()
        .map(words)
        .astype(np.float64)
        .fillna(numbers(values))
    )


def map_distinct(values: pd.Series, parse: Callable[[str], float]) -> pd.Series:
    """Return a parser's result per cell, NaN if missing; it is called once per distinct text."""
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
    """Return numeric seconds, or ISO times with or without an offset, as instants.

    Text is read as numbers if at least half of the present cells are numbers, else as ISO times;
    cells of the other kind become NaN.

    Parameters
    ----------
    values : Series
        Text, numbers or datetimes.
    zone : str
        IANA time zone of times without an offset.
    unit_s : float, seconds
        Length of one unit of numeric values.
    where : str
        File and column, for messages.
    not_before : Series of float or None, Unix seconds
        Earliest possible instants; decides local times that occur twice.

    Raises
    ------
    TraceError
        If only some times have a UTC offset.
    """
    no_doubt = pd.Series(False, index=values.index)
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        aware = isinstance(values.dtype, pd.DatetimeTZDtype)
        return _instants_with_offset(values) if aware else _local_instants(values, zone, not_before)
    if pd.api.types.is_numeric_dtype(values.dtype):
        return Instants(values.astype(np.float64) * unit_s, False, False, no_doubt)
    values_read = numbers(values)
    if values_read.notna().all():
        return Instants(values_read * unit_s, False, False, no_doubt)
    cells = clean_text(values)
    values_read = numbers(cells)
    present = cells != ""
    if values_read.notna().sum() * 2 >= present.sum():
        return Instants(values_read * unit_s, False, False, no_doubt)
    has_offset = cells.str.contains(OFFSET, regex=True)
    if not has_offset.any():
        return _local_instants(
            parse_iso_times(cells.where(present)).dt.tz_localize(None), zone, not_before
        )
    is_consistent = has_offset | parse_iso_times(cells.where(present & ~has_offset)).isna()
    if not is_consistent.all():
        index = int(np.flatnonzero(~is_consistent.to_numpy())[0])
        first = f"row {values.index[index]}: {cells.iloc[index]}"
        raise TraceError(
            f"{where}: only some times have a UTC offset ({first}). Give every time an offset, or"
            " none, and choose a time zone."
        )
    return _instants_with_offset(parse_iso_times(cells.where(has_offset)))


def is_unix(seconds: pd.Series) -> bool:
    """Return whether there are values and all are Unix seconds of the years 2000 to 2100."""
    present = seconds.dropna()
    return bool(len(present)) and bool(present.between(*UNIX_TIMES).all())


def parse_iso_times(cells: pd.Series) -> pd.Series:
    """Return ISO times as UTC instants; NaT for other cells and implausible years.

    Times without an offset are read as UTC.
    """
    # pandas reads these two words as the current time.
    moments = pd.to_datetime(
        cells.where(~cells.isin(("now", "today"))), format="ISO8601", utc=True, errors="coerce"
    )
    first, last = (pd.Timestamp(second, unit="s", tz="UTC") for second in PLAUSIBLE_TIMES)
    return moments.where(moments.between(first, last))


def _unix_seconds(moments: pd.Series) -> pd.Series:
    """Return UTC instants as Unix seconds, NaN where missing."""
    unix = moments.astype("datetime64[us, UTC]")
    return (unix.astype(np.int64) / 1e6).where(moments.notna())


def _instants_with_offset(moments: pd.Series) -> Instants:
    """Return instants from times that have an offset."""
    return Instants(_unix_seconds(moments), True, True, pd.Series(False, index=moments.index))


def _local_instants(moments: pd.Series, zone: str, not_before: pd.Series | None) -> Instants:
    """Return instants from local times of a zone; times within clock changes are doubtful.

    A time that occurs twice is the earlier instant, or the later one if the earlier is before
    `not_before`; a time that never occurs is moved to the end of the gap.
    """
    earlier = moments.dt.tz_localize(
        zone, ambiguous=np.ones(len(moments), bool), nonexistent="shift_forward"
    )
    later = moments.dt.tz_localize(
        zone, ambiguous=np.zeros(len(moments), bool), nonexistent="shift_forward"
    )
    seconds, later_s = _unix_seconds(earlier), _unix_seconds(later)
    is_ambiguous = (seconds != later_s) & moments.notna()
    if not_before is not None:
        seconds = later_s.where(is_ambiguous & (seconds < not_before), seconds)
    is_ambiguous |= moments.notna() & (earlier.dt.tz_localize(None) != moments)
    return Instants(seconds, True, False, is_ambiguous)


YES_NO: Final = ("preemptible", "requeue")
DURATION_COLUMNS: Final = ("duration_s", "time_limit_s")
_BRACKETS: Final = re.compile(r"[(\[（【]([^)\]）】]*)[)\]）】]")


@dataclass(frozen=True)
class ColumnName:
    """The parts of a column name: its forms, unit and zone.

    Parameters
    ----------
    forms : tuple of (str, int)
        The bare name without its unit, and shorter forms without filler words, each with the score
        of a match.
    unit : str
        "s", "ms", "min", "h", "d", "%"; "" = none.
    utc : bool
        Whether the name says UTC.
    """

    forms: tuple[tuple[str, int], ...]
    unit: str
    utc: bool


@cache
def parse_column_name(column: str) -> ColumnName:
    """Return the parts of a column name: ``Dauer (h)`` is ``dauer`` in hours.

    The unit is a text in brackets, the last word, or a suffix. Forms without the unit score 3,
    shorter forms without filler words 2.
    """
    units = words_by_form("units")
    in_brackets = [bare_name(text) for text in _BRACKETS.findall(column)]
    unit = next((units[text][0] for text in in_brackets if text in units), "")
    if not unit and any("%" in text for text in _BRACKETS.findall(column)):
        unit = "%"
    remainder = _BRACKETS.sub(" ", column)
    scores = {bare_name(remainder): 3}
    parts = [part for part in re.split(r"[\s_.\-/]+", remainder) if part]
    if not unit and len(parts) > 1 and bare_name(parts[-1]) in units and "日" not in parts[-1]:
        unit = units[bare_name(parts[-1])][0]
        name_parts = (
            parts[:-2] if bare_name(parts[-2]) in ("in", "en") and len(parts) > 2 else parts[:-1]
        )
        scores[bare_name("_".join(name_parts))] = 3
    form = bare_name(remainder)
    if not unit and form not in words_by_form("facts"):
        # durationMs, 运行时长秒: a suffix is a unit if it has two letters or is Chinese.
        for word, (key, _) in units.items():
            stem = form.removesuffix(word)
            is_distinct_unit = len(word) > 1 or not word.isascii()
            if stem != form and is_distinct_unit and stem in words_by_form("facts"):
                unit, scores[stem] = key, 3
    for known_form in list(scores):
        for shorter in _without_fillers(known_form):
            scores.setdefault(shorter, 2)
    utc = any(text in ("utc", "gmt") for text in (*in_brackets, *map(bare_name, parts)))
    return ColumnName(tuple(scores.items()), unit, utc)


def _without_fillers(form: str) -> set[str]:
    """Return the shorter forms of a name, without filler words at its ends.

    Single characters and the words time and timestamp are left out.
    """
    results: set[str] = set()
    queue = [form]
    prefixes, suffixes = (
        [bare_name(word) for word in load_words()["fillers"][key]] for key in ("before", "after")
    )
    while queue:
        current = queue.pop()
        shorter = {
            *(current.removeprefix(word) for word in prefixes),
            *(current.removesuffix(word) for word in suffixes),
        } - {current, *results}
        # The rest of `job_time` is too vague.
        useful = {text for text in shorter if len(text) > 1 and text not in ("time", "timestamp")}
        results |= useful
        queue += useful
    return results


MIN_READABLE_SHARE: Final = 0.5
"""Share of cells that must be readable as a kind before a column counts as that kind."""
_SPACES: Final = " '’\u00a0\u202f"  # characters: pandas leaves escapes to Python's slow re
_NUMBER: Final = rf"[+-]?\d[\d.,{_SPACES}]*(?:[eE][+-]?\d+)?"
_GROUPED: Final = rf"[+-]?\d{{1,3}}(?:[{_SPACES}]\d{{3}})+(?:[.,]\d+)?"
_ONE_GROUP: Final = r"[+-]?[1-9]\d{0,2}[,.]\d{3}"
_DAY_COUNT: Final = r"(?:(\d+)(?:-|\s*(?:days?|d|tage?|jours?|d[ií]as?|天|日)\s*,?\s*))?"
_CLOCK: Final = re.compile(
    rf"{_DAY_COUNT}(\d+):(\d{{1,2}})(?::(\d{{1,2}}(?:[.,]\d+)?))?", re.IGNORECASE
)
_ISO_LENGTH: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)
_LENGTH_PART: Final = re.compile(r"(\d+(?:[.,]\d+)?)\s*([^\W\d_]+)\.?\s*,?\s*(?:und|and|et|y)?\s*")
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
_DATE_PARTS: Final = ("a", "sign", "b", "c", "half", "hour", "minute", "second", "noon", "offset")


def convert_dates(frame: pd.DataFrame, pattern: str) -> pd.DataFrame:
    """Return a table with all columns of dates in a pattern converted to instants.

    A text column is converted if at least half of its present cells match the pattern; its other
    cells become NaT. No column is converted if the pattern is "".
    """
    converted = {}
    for column, values in frame.items() if pattern else ():
        if pd.api.types.is_string_dtype(values.dtype):
            cells = clean_text(values)
            cells = cells[cells != ""]
            # Offsets give instants; zone abbreviations do not.
            has_offset = "%z" in pattern
            dates = pd.to_datetime(cells, format=pattern, errors="coerce", utc=has_offset)
            if dates.notna().any() and dates.notna().mean() >= MIN_READABLE_SHARE:
                converted[str(column)] = dates.reindex(values.index)
    return frame.assign(**converted) if converted else frame


@dataclass(frozen=True)
class ColumnKinds:
    """The kinds of values that most cells of a column can be read as.

    Parameters
    ----------
    numbers, moments, lengths, gpus : bool
        Plain numbers; dates; durations with units or as a clock; GPU counts in a notation.
    distinct : int
        Number of distinct cells.
    empty : bool
        Whether all cells are missing.
    """

    numbers: bool
    moments: bool
    lengths: bool
    gpus: bool
    distinct: int
    empty: bool


def column_kinds(values: pd.Series) -> ColumnKinds:
    """Return the kinds of values in a column, typed or text.

    Text is of a kind if at least half of its present cells can be read as it; numbers exclude the
    other kinds.
    """
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return ColumnKinds(False, True, False, False, values.nunique(), not values.notna().any())
    if pd.api.types.is_numeric_dtype(values.dtype):
        return ColumnKinds(True, False, False, False, values.nunique(), not values.notna().any())
    cells = clean_text(values)
    cells = cells[cells != ""]
    if cells.empty:
        return ColumnKinds(False, False, False, False, 0, True)
    min_count = MIN_READABLE_SHARE * len(cells)
    numbers = bool(cells.str.fullmatch(_NUMBER).sum() >= min_count)
    return ColumnKinds(
        numbers,
        not numbers and bool(Dates.split(cells).readable.sum() >= min_count),
        not numbers and bool(durations_s(cells, "m:s").notna().sum() >= min_count),
        not numbers and bool(gpu_counts(cells).notna().sum() >= min_count),
        cells.nunique(),
        False,
    )


def decimal_sign(cells: pd.Series, semicolons: bool = False) -> str:
    """Return the decimal sign of the numbers in a column.

    Parameters
    ----------
    cells : Series of str
        A column.
    semicolons : bool
        Whether semicolons separate the columns: commas are then often decimal signs.

    Returns
    -------
    str
        "point" or "comma"; "?" if unclear, as in ``86,461``.
    """
    candidates = cells[cells.str.contains(r"[.,]") & cells.str.fullmatch(_NUMBER)]
    commas, points = (
        candidates.str.contains(",", regex=False),
        candidates.str.contains(".", regex=False),
    )
    if (commas & points).any():
        first = str(candidates[commas & points].iloc[0])
        return "point" if first.rfind(".") > first.rfind(",") else "comma"
    for sign, has_sign, opposite in ((",", commas, "point"), (".", points, "comma")):
        if not has_sign.any():
            continue
        if (candidates[has_sign].str.count(re.escape(sign)) > 1).any():
            return opposite
        is_unclear = candidates[has_sign].str.fullmatch(_ONE_GROUP).all() and (
            sign == "," or semicolons
        )
        if is_unclear:
            return "?"
        return "comma" if sign == "," else "point"
    return "point"


def localized_numbers(cells: pd.Series, decimal: str = "point") -> pd.Series:
    """Return float64 values, NaN for cells that are not numbers in this notation.

    Parameters
    ----------
    cells : Series of str
        Stripped cells, "" where missing.
    decimal : {"point", "comma"}
        The decimal sign; the other sign separates thousands.
    """
    values = pd.to_numeric(cells, errors="coerce").astype(np.float64)
    unread = values.isna() & (cells != "")
    rest = cells[unread | cells.str.contains(".", regex=False) if decimal == "comma" else unread]
    rest = rest[rest.str.fullmatch(_NUMBER)]
    if rest.empty:
        return values
    rest = rest.mask(rest.str.fullmatch(_GROUPED), rest.str.replace(f"[{_SPACES}]", "", regex=True))
    decimal_pattern, group_pattern = (r"\.", ",") if decimal == "point" else (",", r"\.")
    shape = (
        rf"[+-]?(?:\d+|\d{{1,3}}(?:{group_pattern}\d{{3}})+)(?:{decimal_pattern}\d*)?"
        r"(?:[eE][+-]?\d+)?"
    )
    clean = rest.str.replace(group_pattern, "", regex=True).str.replace(",", ".", regex=False)
    parsed_rest = pd.to_numeric(clean.where(rest.str.fullmatch(shape)), errors="coerce")
    return values.where(~values.index.isin(rest.index), parsed_rest.reindex(values.index))


def durations_s(cells: pd.Series, clock: str) -> pd.Series:
    """Return durations in seconds, NaN for other cells.

    Parameters
    ----------
    cells : Series of str
        ``25:01:01``, ``1-01:00:00``, ``1 day, 3:04:05``, ``1h 2m 5s``, ``2,5 Stunden``, ``PT1H``.
    clock : {"m:s", "h:m"}
        How ``12:30`` is read.
    """
    return map_distinct(cells, lambda cell: _duration_s(cell.strip(), clock))


def _duration_s(cell: str, clock: str) -> float:
    """Return one duration in seconds: a clock, ISO 8601, or numbers with units; else NaN."""
    match = _CLOCK.fullmatch(cell)
    if match:
        days, first, second, third = match.groups()
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
    total, end = 0.0, 0
    for part in _LENGTH_PART.finditer(cell):
        factor = _unit_seconds().get(part.group(2).casefold())
        if part.start() != end or factor is None:
            return np.nan
        total += float(part.group(1).replace(",", ".")) * factor
        end = part.end()
    return total if end and end == len(cell) else np.nan


@cache
def _unit_seconds() -> Mapping[str, float]:
    """Return word of a time unit -> seconds."""
    unit_s = {"s": 1.0, "ms": 0.001, "min": 60.0, "h": 3600.0, "d": 86_400.0}
    factors = {
        word: unit_s[unit] for unit, listed in load_words()["units"].items() for word in listed
    }
    return factors | {"m": 60.0, "w": 604_800.0, "week": 604_800.0, "weeks": 604_800.0}


def gpu_counts(cells: pd.Series) -> pd.Series:
    """Return GPU counts in notations such as ``gpu:4`` or ``4xA100``, NaN for other cells.

    Also ``gres/gpu:a100=4``, ``gpu:a100:4(S:0-1)`` and ``A100:4``.
    """
    return map_distinct(cells, _gpu_count)


def _tres_gpus(resources: str) -> float:
    """Return the GPUs in a Slurm TRES string: the untyped total, else the sum of types.

    NaN if it names no GPUs.
    """
    total = re.search(r"(?:^|,)gres/gpu=(\d+(?:\.\d+)?)", resources)
    if total:
        return float(total[1])
    typed = re.findall(r"(?:^|,)gres/gpu:[^=,]+=(\d+)", resources)
    return sum(map(float, typed)) if typed else np.nan


def _gres_gpus(resources: str) -> float:
    """Return the GPUs in a Slurm GRES string such as ``hbm:0,gpu:P100:2(IDX:0-1)``.

    The counts of all GPU entries are summed; an entry without a count is one GPU. NaN without
    entries.
    """
    counts = re.findall(
        r"(?:^|,)(?:gres[:/])?gpu(?::[^:,(]+)?:(\d+)", re.sub(r"\([^)]*\)", "", resources)
    )
    if counts:
        return sum(map(float, counts))
    return 1.0 if re.search(r"(?:^|,)gpu(?::[A-Za-z][^:,]*)?(?:,|$)", resources) else np.nan


def _gpu_count(cell: str) -> float:
    """Return the GPUs in one cell, NaN if it is not in a known notation."""
    cell = cell.strip()
    for notation in (_tres_gpus, _gres_gpus):
        count = notation(cell)
        if not np.isnan(count):
            return count
    match = _COUNT_OF.fullmatch(cell) or _OF_COUNT.fullmatch(cell)
    return float(match.group(1)) if match else np.nan


@dataclass(frozen=True, eq=False)
class Dates:
    """A column of dates, split into parts.

    Parameters
    ----------
    cells : Series of str
        The column.
    parts : DataFrame
        Texts of `_DATE_PARTS`, NaN where a cell is not a numeric date.
    iso : Series of datetime64
        Cells that are ISO times.
    """

    cells: pd.Series
    parts: pd.DataFrame
    iso: pd.Series

    @classmethod
    def split(cls, cells: pd.Series) -> Dates:
        """Return a column of dates, split into parts; names of months become numbers."""
        has_month_name = cells.str.contains(r"[A-Za-z]{3}", regex=True) & (
            cells.str.len() <= _MAX_DATE_CHARS
        )
        if has_month_name.any():
            cells = cells.where(
                ~has_month_name, cells[has_month_name].map(_month_as_number).reindex(cells.index)
            )
        parts = cells.str.extract(_DATE)
        parts.columns = pd.Index(_DATE_PARTS)
        return cls(cells, parts, parse_iso_times(cells))

    @property
    def readable(self) -> pd.Series:
        """Cells that are dates in any order."""
        return self.parts["a"].notna() | self.iso.notna()

    @property
    def ambiguous(self) -> pd.DataFrame:
        """First two numbers of dates with an unclear order; not with the year first or dots."""
        parts = self.parts[(self.parts["a"].str.len() <= 2) & (self.parts["sign"] != ".")]
        return parts[["a", "b"]].astype(np.float64)

    def orders(self) -> tuple[str, ...]:
        """Return which of "day" and "month" can come first in all unclear dates.

        Both if there are no unclear dates; none if the dates contradict each other.
        """
        parts = self.ambiguous
        return tuple(
            order
            for order, month in (("day", "b"), ("month", "a"))
            if parts.empty or bool((parts[month] <= 12).all())
        )

    def moments(self, order: str) -> pd.Series:
        """Return datetime64 values without time zone, NaT if invalid; those with an offset in UTC.

        Parameters
        ----------
        order : {"day", "month"}
            Which comes first if the year is last.
        """
        part = self.parts
        year_first = part["a"].str.len() == 4
        is_month_first = (part["sign"] != ".") & (order == "month")
        year = part["a"].where(year_first, part["c"]).astype(np.float64)
        year = year.where(year >= 100, year + 2000)
        month = part["b"].where(year_first | ~is_month_first, part["a"]).astype(np.float64)
        day = (
            part["c"]
            .where(year_first, part["a"].where(~is_month_first, part["b"]))
            .astype(np.float64)
        )
        instants_read = pd.to_datetime(
            pd.DataFrame({"year": year, "month": month, "day": day}), errors="coerce"
        )
        hour = part["hour"].fillna("0").astype(np.float64)
        is_afternoon = part["noon"].str.lower().eq("p") | part["half"].isin(("下午", "午後"))
        is_12_hour = part["noon"].notna() | part["half"].notna()
        hour = (hour % 12).where(is_12_hour, hour) + 12.0 * is_afternoon
        second = part["second"].fillna("0").str.replace(",", ".", regex=False).astype(np.float64)
        minute = part["minute"].fillna("0").astype(np.float64)
        is_valid = (hour <= 24) & (minute < 60) & (second < 61) & year.between(1700, 2200)
        time_of_day = pd.to_timedelta(
            (hour * 3600 + minute * 60 + second).where(is_valid), unit="s"
        )
        instants_read = (
            instants_read + time_of_day - pd.to_timedelta(_offset_s(part["offset"]), unit="s")
        ).astype("datetime64[us]")
        iso = self.iso.dt.tz_localize(None).astype("datetime64[us]")
        return instants_read.where(part["a"].notna(), iso)

    @property
    def aware(self) -> pd.Series:
        """Cells that have a UTC offset."""
        return self.parts["offset"].notna() | self.cells.str.contains(OFFSET, regex=True)


def _offset_s(offsets: pd.Series) -> pd.Series:
    """Return UTC offsets such as ``+05:30`` in seconds, 0 for other texts."""

    def seconds(offset: str) -> float:
        """Return one UTC offset in seconds."""
        if offset[:1] not in ("+", "-"):
            return 0.0
        digits = offset[1:].replace(":", "")
        return (int(digits[:2]) * 3600 + int(digits[2:] or 0) * 60) * (
            -1 if offset[0] == "-" else 1
        )

    return map_distinct(offsets.fillna(""), seconds)


_DAY_MONTH: Final = re.compile(
    r"(\d{1,2})\.?[ \-/]+(?:de\s+)?([^\W\d_]{3,10})\.?[ ,\-/]+(?:de\s+)?(\d{4})"
)
_MAX_DATE_CHARS: Final = 64
"""Longest cell that is searched for the name of a month."""
_MONTH_DAY: Final = re.compile(r"([^\W\d_]{3,10})\.?[ \-]+(\d{1,2}),?[ \-]+(\d{4})")


def _month_as_number(cell: str) -> str:
    """Return a date with a month name as an ISO date: ``2 Mar 2026`` -> ``2026-03-02``.

    Text before the date is dropped and text after it is kept. Other cells are returned unchanged.
    """
    match = _DAY_MONTH.search(cell)
    if match:
        day, name, year = match.groups()
    elif match := _MONTH_DAY.search(cell):
        name, day, year = match.groups()
    else:
        return cell
    month = _month_number(name.casefold())
    if not month:
        return cell
    rest = cell[match.end() :]
    return f"{year}-{month:02d}-{int(day):02d}{rest}"


@cache
def _month_number(name: str) -> int:
    """Return the month, 1 to 12, of a casefolded name that starts as `words.toml` lists; else 0."""
    for number, listed in load_words()["months"].items():
        if any(name.startswith(begin) for begin in listed):
            return int(number)
    return 0
