"""The cells of the chosen columns as typed native columns; asks for units, dates and zones."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from jobtraces.readers.cells import (
    LENGTHS,
    UNIX,
    YES_NO,
    Dates,
    Instants,
    bare,
    booleans,
    column_of,
    figures,
    gpus,
    instants,
    is_unix,
    known_words,
    lengths,
    name_of,
    names,
    numbers,
    signs,
    text,
)
from jobtraces.readers.content import Content
from jobtraces.readers.draft import Draft, Report
from jobtraces.readers.options import SECONDS, Question, ReadOptions
from jobtraces.readers.parquet import SECONDS_KNOWN
from jobtraces.readers.table import ignored
from sim.clock import LATEST_S
from sim.errors import TraceError
from sim.trace import CATEGORIES, COLUMNS, INSTANTS, NUMBERS, REQUIRED

TIMES_SIGN: Final = "*"
"""Between the two columns of a product: ``nodes*gpus_per_node``."""

ZONES: Final = (
    *("UTC", "Europe/Berlin", "Europe/London", "US/Pacific", "US/Eastern"),
    *("Asia/Shanghai", "Asia/Tokyo", "Asia/Kolkata", "Australia/Sydney"),
)
UNITS: Final = {"s": "seconds", "ms": "milliseconds", "min": "minutes", "h": "hours", "d": "days"}
_PARTS_OF_S: Final = ((1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns"))
_OUTCOMES: Final = {
    "completed": "it ended as it should",
    "failed": "it failed",
    "cancelled": "somebody stopped it",
    "running": "it still ran",
    "pending": "it had not started",
    "other": "something else: the word is kept",
}
_MOST_WORDS: Final = 6
_ENOUGH: Final = 3
"""Rows with a start and an end that show the unit of durations."""
_SIGNS: Final = {"point": "thousands", "comma": "decimals"}


@dataclass(frozen=True)
class Plan:
    """Native column -> source column; whether the start stands for the submission, and whether
    durations are from submission to end.
    """

    mapping: Mapping[str, str]
    started: bool = False
    waits: bool = False


def parts_of(source: str, frame: pd.DataFrame) -> list[str]:
    """Return a source column as a list, or both columns of a product."""
    return [source] if source in frame.columns else source.split(TIMES_SIGN)


class Typing:
    """Turns the cells of the mapped columns into what they mean.

    Parameters
    ----------
    frame : DataFrame
        The mapped columns as written, index = row.
    plan : Plan
        What they are.
    report : Report
        Of this import.
    content : Content
        The file.
    options : ReadOptions
        Choices and answers of the user.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        plan: Plan,
        report: Report,
        content: Content,
        options: ReadOptions,
    ) -> None:
        self._frame, self._plan, self._report = frame, plan, report
        self._name, self._options = content.name, options
        self._semicolons = content.sample.delimiter == ";"
        self._clock = options
        mapped = {n: s for n, s in plan.mapping.items() if s in frame.columns}
        check_mapping(frame, mapped, content.name)
        ignored(
            frame.columns,
            {part: part for source in plan.mapping.values() for part in parts_of(source, frame)},
            report,
        )

    def draft(self) -> Draft:
        """Return the table of jobs, typed."""
        mapping, report = self._plan.mapping, self._report
        jobs = pd.DataFrame(index=self._frame.index)
        raw = {native: self._raw(source) for native, source in mapping.items()}
        times = self._times()
        for native in (column for column in COLUMNS if column in mapping):
            if native in times:
                jobs[native] = times[native].seconds
            elif native in LENGTHS:
                jobs[native] = self._lengths(native, mapping[native], times)
            elif native == "num_gpus":
                jobs[native] = self._gpus(mapping[native])
            elif native in NUMBERS:
                cells = self._cells(mapping[native])
                found = booleans(cells) if native in YES_NO else self._figures(native, cells)
                unreadable = found.isna() & (cells != "")
                report.alter(
                    jobs, unreadable, f"{native} is not a number: taken as not given", raw[native]
                )
                jobs[native] = found
            elif native == "status":
                jobs[native] = self._outcomes(text(raw[native]))
            else:
                jobs[native] = names(raw[native]) if native == "job_id" else text(raw[native])
        jobs = self._durations(jobs, times, raw)
        if self._plan.started:
            jobs["submit_time_s"] = jobs.pop("start_time_s")
            times["submit_time_s"] = times.pop("start_time_s")
            raw["submit_time_s"] = raw["start_time_s"]
        calendar, zone = clock_of(times, report, self._clock)
        return Draft(jobs, report, calendar, zone, raw=raw, columns=dict(mapping))

    def _raw(self, source: str) -> pd.Series:
        parts = [self._frame[part] for part in parts_of(source, self._frame)]
        if len(parts) == 1:
            return parts[0]
        return parts[0].astype("str") + " × " + parts[1].astype("str")

    def _cells(self, source: str) -> pd.Series:
        """Return a column as text, full-width figures as plain ones."""
        cells = text(self._frame[source])
        wide = ~cells.map(str.isascii).astype(bool)
        return cells.where(~wide, cells.str.normalize("NFKC")) if wide.any() else cells

    def _figures(self, native: str, cells: pd.Series) -> pd.Series:
        decimal = signs(cells, self._semicolons)
        if decimal == "?":
            example = cells[cells.str.contains("[.,]")].iloc[0]
            found = {key: figures(cells, key).median() for key in _SIGNS}
            sign = "comma" if "," in example else "point"
            other = "point" if sign == "comma" else "comma"
            options = {
                "thousands": f"thousands: median {found[other]:,.10g}",
                "decimal": f"decimals: median {found[sign]:,.10g}",
            }
            answer = self._report.ask(
                Question(
                    f"separator.{native}",
                    f"{self._plan.mapping[native]} holds figures such as {example}: does the"
                    f" {sign} separate thousands or decimals?",
                    options,
                    "decimal" if self._semicolons and sign == "comma" else "thousands",
                ),
                self._options.answers,
            )
            decimal = sign if answer == "decimal" else other
        elif decimal == "comma":
            self._report.guess("Numbers are read with a decimal comma.")
        return figures(cells, decimal)

    def _gpus(self, source: str) -> pd.Series:
        made = pd.Series(1.0, index=self._frame.index)
        for part in parts_of(source, self._frame):
            cells = self._cells(part)
            found = self._figures("num_gpus", cells)
            if name_of(part).unit == "%":
                self._report.guess(f"{part} is in percent of a GPU.")
                found = found / 100
            made *= found.where(found.notna() | (cells == ""), gpus(cells))
        return made

    # Times -------------------------------------------------------------------------------------

    def _times(self) -> dict[str, Instants]:
        natives = [one for one in INSTANTS if one in self._plan.mapping]
        columns = {native: self._frame[self._plan.mapping[native]] for native in natives}
        dates = {
            native: Dates.of(self._cells(self._plan.mapping[native]))
            for native, values in columns.items()
            if pd.api.types.is_string_dtype(values.dtype) and column_of(values).moments
        }
        order, zone = self._order(dates), self._zone(dates, columns)
        self._clock = replace(self._options, zone=zone)
        times: dict[str, Instants] = {}
        submitted = None
        needed = "start_time_s" if self._plan.started else "submit_time_s"
        for native in natives:
            read = self._instants(native, columns[native], dates.get(native), order, submitted)
            if read.seconds.notna().any() or native == needed:
                times[native] = read
            if native == "submit_time_s" and read.calendar:
                submitted = read.seconds
        check_clocks(times, self._name)
        return times

    def _instants(
        self,
        native: str,
        values: pd.Series,
        dates: Dates | None,
        order: str,
        not_before: pd.Series | None,
    ) -> Instants:
        zone, where = self._clock.zone or "UTC", f"{self._name}, column {native}"
        if dates is None and not pd.api.types.is_datetime64_any_dtype(values.dtype):
            found = (
                values.astype(np.float64)
                if pd.api.types.is_numeric_dtype(values.dtype)
                else self._figures(native, self._cells(self._plan.mapping[native]))
            )
            return instants(found * self._unit_of_times(native, found), zone, 1.0, where)
        if dates is None or dates.readable.sum() == dates.iso.notna().sum():
            return instants(values, zone, 1.0, where, not_before)
        moments, aware = dates.moments(order), dates.aware
        if aware.any():
            if not (aware | moments.isna()).all():
                raise TraceError(
                    f"{where}: some times carry an offset and others do not. Give every time an"
                    " offset, or none and choose a zone."
                )
            moments = moments.dt.tz_localize("UTC")
        return instants(moments, zone, 1.0, where, not_before)

    def _unit_of_times(self, native: str, found: pd.Series) -> float:
        """Return the length of one unit of figures that are instants, in seconds."""
        options, source = self._options, self._plan.mapping[native]
        if source in self._frame.attrs.get(SECONDS_KNOWN, ()):
            return 1.0
        if options.time_unit:
            return SECONDS[options.time_unit]
        median = float(found.median())
        for per, unit in _PARTS_OF_S:
            if UNIX[0] <= median / per <= UNIX[1]:
                if unit != "s":
                    self._report.guess(f"Numeric times are in {unit} since 1970.")
                return 1 / per
        unit = name_of(source).unit
        if unit in SECONDS:
            return SECONDS[unit]
        duration = self._plan.mapping.get("duration_s", "")
        spoken = name_of(duration).unit if duration else ""
        spoken = options.duration_unit or options.answers.get("duration_unit", "") or spoken
        if spoken in ("", "s"):
            return 1.0
        span = float(found.max() - found.min())
        return SECONDS[
            self._report.ask(
                Question(
                    "time_unit",
                    f"In which unit are the times ({self._plan.mapping['submit_time_s']})? The"
                    " file says none.",
                    {
                        one: f"{word}: all within {about(span * SECONDS[one])}"
                        for one, word in UNITS.items()
                    },
                    spoken,
                ),
                options.answers,
            )
        ]

    def _order(self, dates: Mapping[str, Dates]) -> str:
        """Return whether days or months come first in dates that end with the year."""
        written = {native: one for native, one in dates.items() if not one.written.empty}
        if not written:
            return "day"
        possible = [
            order
            for order in ("day", "month")
            if all(order in one.orders() for one in written.values())
        ]
        if len(possible) == 1:
            return possible[0]
        if not possible:
            native, one = next(iter(written.items()))
            return min(("day", "month"), key=lambda order: float(one.moments(order).isna().mean()))
        native, one = next(iter(written.items()))
        moments = {order: one.moments(order).dropna() for order in possible}
        rising = [order for order in possible if moments[order].is_monotonic_increasing]
        source = self._plan.mapping[native]
        if len(rising) == 1:
            self._report.guess(
                f"Dates are read with the {rising[0]} first: only so do rows follow each other in"
                " time."
            )
            return rising[0]
        spans = {
            order: f"{low:%-d %B %Y} to {high:%-d %B %Y}"
            for order, found in moments.items()
            for low, high in [(found.min(), found.max())]
        }
        noon = one.parts["noon"].notna().any()
        return self._report.ask(
            Question(
                "date_order",
                f"{source} holds dates such as {one.cells[one.readable].iloc[0]}: does the day or"
                " the month come first?",
                {order: f"the {order}: {span}" for order, span in spans.items()},
                "month" if noon else "day",
            ),
            self._options.answers,
        )

    def _zone(self, dates: Mapping[str, Dates], columns: Mapping[str, pd.Series]) -> str:
        naive = any((one.readable & ~one.aware).any() for one in dates.values()) or any(
            pd.api.types.is_datetime64_any_dtype(values.dtype) and values.dt.tz is None
            for values in columns.values()
        )
        chosen = self._options.zone or ""
        if chosen or not naive:
            return chosen or "UTC"
        if all(name_of(self._plan.mapping[native]).utc for native in columns):
            return "UTC"
        return self._report.ask(
            Question(
                "zone",
                "In which time zone are the times? They are written without one.",
                {zone: zone for zone in ZONES},
                "UTC",
            ),
            self._options.answers,
        )

    # Lengths -----------------------------------------------------------------------------------

    def _lengths(self, native: str, source: str, times: Mapping[str, Instants]) -> pd.Series:
        values = self._frame[source]
        if source in self._frame.attrs.get(SECONDS_KNOWN, ()):
            return values.astype(np.float64)
        cells = self._cells(source)
        kind = column_of(values)
        if kind.numbers:
            found = self._figures(native, cells)
            unit = self._unit(native, source, found, times)
            # Some cells may say their unit themselves.
            return (found * SECONDS[unit]).where(found.notna(), lengths(cells, "m:s"))
        return lengths(cells, self._clock_of(native, source, cells, times))

    def _clock_of(
        self, native: str, source: str, cells: pd.Series, times: Mapping[str, Instants]
    ) -> str:
        """Return what ``12:30`` means in a column."""
        two = cells.str.fullmatch(r"\d+:\d{1,2}")
        if not two.any() or not (two | (cells == "")).all():
            return "m:s"
        span = _span(times)
        for clock in ("m:s", "h:m"):
            if native == "duration_s" and _agree(lengths(cells, clock), span):
                return clock
        medians = {clock: about(lengths(cells, clock).median()) for clock in ("m:s", "h:m")}
        return self._report.ask(
            Question(
                f"clock.{native}",
                f"{source} holds lengths such as {cells[two].iloc[0]}: minutes and seconds, or"
                " hours and minutes?",
                {
                    "m:s": f"minutes and seconds: median {medians['m:s']}",
                    "h:m": f"hours and minutes: median {medians['h:m']}",
                },
                "h:m",
            ),
            self._options.answers,
        )

    def _unit(
        self, native: str, source: str, found: pd.Series, times: Mapping[str, Instants]
    ) -> str:
        options, unit = self._options, name_of(source).unit
        if options.duration_unit:
            return options.duration_unit
        if unit in SECONDS:
            return unit
        span = _span(times)
        fitting = [one for one in SECONDS if _agree(found * SECONDS[one], span)]
        if native == "duration_s" and len(fitting) == 1:
            self._report.guess(
                f"{source} is in {UNITS[fitting[0]]}: that fits the times from start to end."
            )
            return fitting[0]
        median = float(found.median())
        return self._report.ask(
            Question(
                "duration_unit",
                f"In which unit is {source}? The file says none.",
                {
                    one: f"{word}: median {about(median * SECONDS[one])}"
                    for one, word in UNITS.items()
                },
                _likely(found),
            ),
            options.answers,
        )

    def _durations(
        self, jobs: pd.DataFrame, times: Mapping[str, Instants], raw: dict[str, pd.Series]
    ) -> pd.DataFrame:
        span = _span(times)
        if self._plan.waits:
            raw["duration_s"] = raw["end_time_s"]
            return jobs.assign(duration_s=jobs["end_time_s"] - jobs["submit_time_s"])
        if "duration_s" not in jobs:
            raw["duration_s"] = raw["end_time_s"]
            self._report.guess(
                "There is no column of durations; they are the times from start to end."
            )
            return jobs.assign(duration_s=span)
        exact = (span % 60 == 0).all() and not (jobs["duration_s"] % 60 == 0).all()
        if not exact and _agree(jobs["duration_s"], span):
            # Times are kept to the second, durations often to a hundredth of an hour.
            self._report.guess("Durations are the times from start to end, as they are given too.")
            return jobs.assign(duration_s=span.where(span.notna(), jobs["duration_s"]))
        return jobs

    def _outcomes(self, cells: pd.Series) -> pd.Series:
        """Return the words of a status as those that are known here."""
        known = known_words("outcomes")
        counts = cells[cells != ""].value_counts()
        made = {
            str(word): known[bare(str(word))][0]
            for word in counts.index
            if bare(str(word)) in known
        }
        other = [str(word) for word in counts.index if str(word) not in made]
        if len(other) > _MOST_WORDS:
            self._report.guess(f"{len(other)} words of the status are not known: kept as they are.")
        else:
            for word in other:
                answer = self._report.ask(
                    Question(
                        f"status.{word}",
                        f"{counts[word]:,} rows have the status “{word}”: what became of those"
                        " jobs?",
                        _OUTCOMES,
                        "other",
                    ),
                    self._options.answers,
                )
                if answer != "other":
                    made[word] = answer
        return cells.map(lambda word: made.get(word, word.lower()))


def _span(times: Mapping[str, Instants]) -> pd.Series:
    if not {"start_time_s", "end_time_s"} <= times.keys():
        return pd.Series(dtype=np.float64)
    return times["end_time_s"].seconds - times["start_time_s"].seconds


def _agree(durations: pd.Series, span: pd.Series) -> bool:
    """Tell whether durations are the times from start to end, up to rounding."""
    both = pd.DataFrame({"duration": durations, "span": span}).dropna()
    if len(both) < _ENOUGH:
        return False
    off = (both["duration"] - both["span"]).abs()
    return bool((off <= (0.01 * both["span"]).clip(lower=60.0)).mean() >= 0.99)


def _likely(found: pd.Series) -> str:
    """Return the unit in which durations look least absurd."""
    known = found[(found > 0) & (found <= LATEST_S * 1000)]
    if known.empty:
        return "s"
    median = float(known.median())
    if (known % 1000 == 0).mean() >= 0.95 and median >= 10_000:
        return "ms"
    return "h" if median < 48 and (known % 1 != 0).any() else "s"


def about(seconds: float) -> str:
    """Return a length of time roughly, in the unit that suits it: ``21 min``."""
    if not math.isfinite(seconds):
        return "unknown"
    for least, unit in ((86_400.0 * 2, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= least:
            size = {"d": 86_400.0, "h": 3600.0, "min": 60.0, "s": 1.0}[unit]
            return (
                f"{seconds / size:,.3g} {unit}"
                if seconds / size < 1000
                else f"{seconds / size:,.0f} {unit}"
            )
    return f"{seconds * 1000:,.3g} ms"


def check_mapping(frame: pd.DataFrame, mapping: Mapping[str, str], name: str) -> None:
    """Refuse a mapping of native to source columns that a table cannot fulfil.

    Raises
    ------
    TraceError
        If a name is not known, or one source is mapped twice.
    """
    for native, source in mapping.items():
        if native not in COLUMNS:
            raise TraceError(
                f"{name}: {native} is not a column of the native schema. Use one of"
                f" {', '.join(COLUMNS)}."
            )
        if source not in frame.columns:
            raise TraceError(
                f"{name}: column {source}, mapped to {native}, is not in the table. Columns found:"
                f" {', '.join(map(str, frame.columns[:20]))}."
            )
    twice = pd.Series(list(mapping.values()), dtype="str")
    if twice.duplicated().any():
        raise TraceError(
            f"{name}: column {twice[twice.duplicated()].iloc[0]} is mapped twice. Give each native"
            " column a source of its own."
        )


def check_clocks(times: Mapping[str, Instants], name: str) -> None:
    """Refuse columns of time that do not share one kind of clock.

    Raises
    ------
    TraceError
        If some hold dates and others figures, or only some carry offsets.
    """
    if len({read.calendar for read in times.values()}) > 1:
        seconds = ", ".join(native for native, read in times.items() if not read.calendar)
        raise TraceError(
            f"{name}: {seconds} holds numbers while other columns hold dates. Write all times in"
            " one way."
        )
    if len({read.aware for read in times.values()}) > 1:
        naive = ", ".join(native for native, read in times.items() if not read.aware)
        raise TraceError(
            f"{name}: {naive} holds times without an offset while other columns have one. Give"
            " every time an offset, or none and a zone."
        )


def clock_of(
    times: Mapping[str, Instants], report: Report, options: ReadOptions
) -> tuple[bool, str]:
    """Return whether the submissions are Unix seconds, and the zone of the first; say what was
    assumed.
    """
    submit = times.get("submit_time_s")
    if submit is None:
        return False, "UTC"
    zone = options.zone or "UTC"
    if submit.calendar:
        doubtful = int(submit.doubtful.sum())
        if submit.aware:
            report.guess("Times carry offsets; they are converted to UTC.")
        else:
            report.guess(
                "Times have no offset; they are read as"
                f" {zone}{f' ({doubtful} of them around a change of clocks)' if doubtful else ''}."
            )
        return True, "UTC" if submit.aware else zone
    if options.time_unit not in ("", "s"):
        report.guess(f"Numeric times are in {options.time_unit}.")
    if is_unix(submit.seconds):
        report.guess("Submission times are read as Unix seconds.")
        return True, zone
    return False, "UTC"


def native_draft(
    frame: pd.DataFrame, mapping: Mapping[str, str], report: Report, name: str, options: ReadOptions
) -> Draft:
    """Type the columns of a table, which `mapping` names for each native column."""
    check_mapping(frame, mapping, name)
    ignored(frame.columns, mapping, report)
    raw = {native: frame[source] for native, source in mapping.items()}
    jobs = pd.DataFrame(index=frame.index)
    typed = {
        native for native, source in mapping.items() if source in frame.attrs.get(SECONDS_KNOWN, ())
    }
    times = _native_times(raw, typed, report, name, options)
    for native in (column for column in COLUMNS if column in raw):
        if native in times:
            jobs[native] = times[native].seconds
        elif native in NUMBERS:
            figures = booleans(raw[native]) if native in YES_NO else numbers(raw[native])
            unit_s = 1.0
            if native in LENGTHS and native not in typed:
                unit_s = SECONDS[options.duration_unit or "s"]
            jobs[native] = figures if unit_s == 1.0 else figures * unit_s
            unreadable = figures.isna()
            if native not in REQUIRED and unreadable.any():
                unreadable[unreadable] = text(raw[native][unreadable]) != ""
                report.alter(
                    jobs, unreadable, f"{native} is not a number: taken as not given", raw[native]
                )
        else:
            jobs[native] = _cleaned(raw[native], native)
    if "duration_s" not in raw and {"start_time_s", "end_time_s"} <= times.keys():
        jobs["duration_s"] = jobs["end_time_s"] - jobs["start_time_s"]
        raw["duration_s"] = raw["end_time_s"]
        report.guess("There is no column of durations; they are the times from start to end.")
    calendar, zone = clock_of(times, report, options)
    return Draft(jobs, report, calendar, zone, raw=raw, columns=dict(mapping))


def _cleaned(values: pd.Series, column: str) -> pd.Series:
    """Return what `text` or, of ids, `names` makes of cells; those cells themselves where it
    changes none, as hardly any file needs it.
    """
    if column in CATEGORIES:  # few texts, many times each
        codes, distinct = pd.factorize(values, use_na_sentinel=False)
        cells = pd.Series(distinct)
        cleaned = text(cells)
        if cleaned.equals(cells):
            return values
        return pd.Series(cleaned.array.take(codes), index=values.index)
    cleaned = names(values) if column == "job_id" else text(values)
    return values if cleaned.equals(values) else cleaned


def _native_times(
    raw: Mapping[str, pd.Series],
    typed: Collection[str],
    report: Report,
    name: str,
    options: ReadOptions,
) -> dict[str, Instants]:
    """Return the instants of each column; `typed` ones are in seconds whatever the unit chosen."""
    times: dict[str, Instants] = {}
    submitted = None
    for native in (column for column in INSTANTS if column in raw):
        read = instants(
            raw[native],
            options.zone or "UTC",
            1.0 if native in typed else SECONDS[options.time_unit or "s"],
            f"{name}, column {native}",
            submitted,
        )
        if read.seconds.notna().any() or native == "submit_time_s":
            times[native] = read
        submitted = (
            times["submit_time_s"].seconds
            if "submit_time_s" in times and times["submit_time_s"].calendar
            else None
        )
    check_clocks(times, name)
    return times
