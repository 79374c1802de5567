"""Convert the cells of chosen columns to typed native columns; ask about units and zones."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from jobtraces.readers.cells import (
    DURATION_COLUMNS,
    UNIX_TIMES,
    YES_NO,
    Dates,
    Instants,
    bare_name,
    booleans,
    clean_names,
    clean_text,
    column_kinds,
    decimal_sign,
    durations_s,
    gpu_counts,
    instants,
    is_unix,
    localized_numbers,
    numbers,
    parse_column_name,
    words_by_form,
)
from jobtraces.readers.content import Content
from jobtraces.readers.draft import Draft, Report
from jobtraces.readers.options import SECONDS, Question, ReadOptions
from jobtraces.readers.parquet import DURATION_ATTRIBUTE
from jobtraces.readers.table import report_unused_columns
from sim.clock import LATEST_S
from sim.errors import TraceError
from sim.trace import CATEGORIES, COLUMNS, INSTANTS, NUMBERS, REQUIRED

TIMES_SIGN: Final = "*"
"""Separator of the two columns of a product: ``nodes*gpus_per_node``."""

ZONES: Final = (
    *("UTC", "Europe/Berlin", "Europe/London", "US/Pacific", "US/Eastern"),
    *("Asia/Shanghai", "Asia/Tokyo", "Asia/Kolkata", "Australia/Sydney"),
)
UNITS: Final = {"s": "seconds", "ms": "milliseconds", "min": "minutes", "h": "hours", "d": "days"}
_PARTS_OF_S: Final = ((1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns"))
_OUTCOMES: Final = {
    "completed": "completed successfully",
    "failed": "failed",
    "cancelled": "cancelled by a user or administrator",
    "running": "still running",
    "pending": "not started yet",
    "other": "something else: keep the word",
}
_MAX_STATUS_QUESTIONS: Final = 6
_MIN_ROWS: Final = 3
"""Smallest number of rows with start and end that decide the unit of durations."""
_SIGNS: Final = {"point": "thousands", "comma": "decimals"}


@dataclass(frozen=True)
class ColumnPlan:
    """Which source column each native column is read from."""

    mapping: Mapping[str, str]
    start_is_submission: bool = False
    includes_wait: bool = False  # durations are from submission to end


def split_product(source: str, frame: pd.DataFrame) -> list[str]:
    """Return the source columns of a name: one, or the two factors of a product."""
    return [source] if source in frame.columns else source.split(TIMES_SIGN)


class ColumnTyper:
    """Converts the cells of mapped columns to typed native columns.

    Parameters
    ----------
    frame : DataFrame
        The mapped columns as written, indexed by row number.
    plan : ColumnPlan
        Source column of each native column.
    report : Report
        Report of this import.
    content : Content
        The file.
    options : ReadOptions
        Choices and answers of the user.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        plan: ColumnPlan,
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
        report_unused_columns(
            frame.columns,
            {
                part: part
                for source in plan.mapping.values()
                for part in split_product(source, frame)
            },
            report,
        )

    def draft(self) -> Draft:
        """Return the draft with typed native columns."""
        mapping, report = self._plan.mapping, self._report
        jobs = pd.DataFrame(index=self._frame.index)
        raw = {native: self._source_cells(source) for native, source in mapping.items()}
        times = self._parse_times()
        for native in (column for column in COLUMNS if column in mapping):
            if native in times:
                jobs[native] = times[native].seconds
            elif native in DURATION_COLUMNS:
                jobs[native] = self._parse_durations(native, mapping[native], times)
            elif native == "num_gpus":
                jobs[native] = self._parse_gpu_counts(mapping[native])
            elif native in NUMBERS:
                cells = self._text_cells(mapping[native])
                values = booleans(cells) if native in YES_NO else self._parse_numbers(native, cells)
                unreadable = values.isna() & (cells != "")
                report.alter(
                    jobs, unreadable, f"{native} is not a number: treated as missing", raw[native]
                )
                jobs[native] = values
            elif native == "status":
                jobs[native] = self._translate_status(clean_text(raw[native]))
            else:
                jobs[native] = (
                    clean_names(raw[native]) if native == "job_id" else clean_text(raw[native])
                )
        jobs = self._add_durations(jobs, times, raw)
        if self._plan.start_is_submission:
            jobs["submit_time_s"] = jobs.pop("start_time_s")
            times["submit_time_s"] = times.pop("start_time_s")
            raw["submit_time_s"] = raw["start_time_s"]
        calendar, zone = submission_clock(times, report, self._clock)
        return Draft(jobs, report, calendar, zone, raw=raw, columns=dict(mapping))

    def _source_cells(self, source: str) -> pd.Series:
        """Return the cells of a source column as written; of a product, both cells."""
        parts = [self._frame[part] for part in split_product(source, self._frame)]
        if len(parts) == 1:
            return parts[0]
        return parts[0].astype("str") + " × " + parts[1].astype("str")

    def _text_cells(self, source: str) -> pd.Series:
        """Return a column as text, with full-width digits replaced by ASCII digits."""
        cells = clean_text(self._frame[source])
        wide = ~cells.map(str.isascii).astype(bool)
        return cells.where(~wide, cells.str.normalize("NFKC")) if wide.any() else cells

    def _parse_numbers(self, native: str, cells: pd.Series) -> pd.Series:
        """Return cells as numbers; ask if the decimal sign is unclear."""
        decimal = decimal_sign(cells, self._semicolons)
        if decimal == "?":
            example = cells[cells.str.contains("[.,]")].iloc[0]
            medians = {key: localized_numbers(cells, key).median() for key in _SIGNS}
            seen_sign = "comma" if "," in example else "point"
            other_sign = "point" if seen_sign == "comma" else "comma"
            options = {
                "thousands": f"thousands: median {medians[other_sign]:,.10g}",
                "decimal": f"decimals: median {medians[seen_sign]:,.10g}",
            }
            answer = self._report.ask(
                Question(
                    f"separator.{native}",
                    f"{self._plan.mapping[native]} holds numbers such as {example}. Does the"
                    f" {seen_sign} separate thousands or decimals?",
                    options,
                    "decimal" if self._semicolons and seen_sign == "comma" else "thousands",
                ),
                self._options.answers,
            )
            decimal = seen_sign if answer == "decimal" else other_sign
        elif decimal == "comma":
            self._report.guess("Numbers are read with a decimal comma.")
        return localized_numbers(cells, decimal)

    def _parse_gpu_counts(self, source: str) -> pd.Series:
        """Return GPU counts; percentages and notations such as ``4xA100`` are understood.

        Of a product, the counts of both columns are multiplied.
        """
        counts = pd.Series(1.0, index=self._frame.index)
        for part in split_product(source, self._frame):
            cells = self._text_cells(part)
            values = self._parse_numbers("num_gpus", cells)
            if parse_column_name(part).unit == "%":
                self._report.guess(f"{part} is read as percent of a GPU.")
                values = values / 100
            counts *= values.where(values.notna() | (cells == ""), gpu_counts(cells))
        return counts

    # Times -------------------------------------------------------------------------------------

    def _parse_times(self) -> dict[str, Instants]:
        """Return native column -> instants of all mapped time columns.

        Asks about the date order and the zone if needed, and stores the zone for the clock.
        Optional columns without any instant are left out.
        """
        natives = [native for native in INSTANTS if native in self._plan.mapping]
        columns = {native: self._frame[self._plan.mapping[native]] for native in natives}
        dates = {
            native: Dates.split(self._text_cells(self._plan.mapping[native]))
            for native, values in columns.items()
            if pd.api.types.is_string_dtype(values.dtype) and column_kinds(values).moments
        }
        order, zone = self._date_order(dates), self._choose_zone(dates, columns)
        self._clock = replace(self._options, zone=zone)
        times: dict[str, Instants] = {}
        submitted_s = None
        required = "start_time_s" if self._plan.start_is_submission else "submit_time_s"
        for native in natives:
            column = self._parse_instants(
                native, columns[native], dates.get(native), order, submitted_s
            )
            if column.seconds.notna().any() or native == required:
                times[native] = column
            if native == "submit_time_s" and column.calendar:
                submitted_s = column.seconds
        check_clocks(times, self._name)
        return times

    def _parse_instants(
        self,
        native: str,
        values: pd.Series,
        dates: Dates | None,
        order: str,
        not_before: pd.Series | None,
    ) -> Instants:
        """Return one time column as instants: dates, or numbers in a unit.

        Raises
        ------
        TraceError
            If only some times have a UTC offset.
        """
        zone, where = self._clock.zone or "UTC", f"{self._name}, column {native}"
        if dates is None and not pd.api.types.is_datetime64_any_dtype(values.dtype):
            values_in_unit = (
                values.astype(np.float64)
                if pd.api.types.is_numeric_dtype(values.dtype)
                else self._parse_numbers(native, self._text_cells(self._plan.mapping[native]))
            )
            return instants(
                values_in_unit * self._time_unit_s(native, values_in_unit), zone, 1.0, where
            )
        if dates is None or dates.readable.sum() == dates.iso.notna().sum():
            return instants(values, zone, 1.0, where, not_before)
        moments, aware = dates.moments(order), dates.aware
        if aware.any():
            if not (aware | moments.isna()).all():
                raise TraceError(
                    f"{where}: only some times have a UTC offset. Give every time an offset, or"
                    " none, and choose a time zone."
                )
            moments = moments.dt.tz_localize("UTC")
        return instants(moments, zone, 1.0, where, not_before)

    def _time_unit_s(self, native: str, values: pd.Series) -> float:
        """Return the unit of a column of numeric instants in seconds; ask if it is unclear.

        From the options, the size of Unix times, or the column's name; seconds if durations have no
        other unit.
        """
        options, source = self._options, self._plan.mapping[native]
        if source in self._frame.attrs.get(DURATION_ATTRIBUTE, ()):
            return 1.0
        if options.time_unit:
            return SECONDS[options.time_unit]
        median = float(values.median())
        for per_second, unit in _PARTS_OF_S:
            if UNIX_TIMES[0] <= median / per_second <= UNIX_TIMES[1]:
                if unit != "s":
                    self._report.guess(f"Numeric times are in {unit} since 1970.")
                return 1 / per_second
        unit = parse_column_name(source).unit
        if unit in SECONDS:
            return SECONDS[unit]
        duration = self._plan.mapping.get("duration_s", "")
        assumed_unit = parse_column_name(duration).unit if duration else ""
        assumed_unit = (
            options.duration_unit or options.answers.get("duration_unit", "") or assumed_unit
        )
        if assumed_unit in ("", "s"):
            return 1.0
        span = float(values.max() - values.min())
        return SECONDS[
            self._report.ask(
                Question(
                    "time_unit",
                    f"The file names no unit for its times ({self._plan.mapping['submit_time_s']})."
                    " Which unit is it?",
                    {
                        unit: f"{word}: all within {approximate_duration(span * SECONDS[unit])}"
                        for unit, word in UNITS.items()
                    },
                    assumed_unit,
                ),
                options.answers,
            )
        ]

    def _date_order(self, dates: Mapping[str, Dates]) -> str:
        """Return "day" or "month": which comes first in dates that end with the year.

        If the dates allow both, the order that makes the rows ascend; else the user is asked.
        """
        ambiguous = {
            native: column for native, column in dates.items() if not column.ambiguous.empty
        }
        if not ambiguous:
            return "day"
        possible = [
            order
            for order in ("day", "month")
            if all(order in column.orders() for column in ambiguous.values())
        ]
        if len(possible) == 1:
            return possible[0]
        if not possible:
            native, column = next(iter(ambiguous.items()))
            return min(
                ("day", "month"), key=lambda order: float(column.moments(order).isna().mean())
            )
        native, column = next(iter(ambiguous.items()))
        moments = {order: column.moments(order).dropna() for order in possible}
        ascending = [order for order in possible if moments[order].is_monotonic_increasing]
        source = self._plan.mapping[native]
        if len(ascending) == 1:
            self._report.guess(
                f"Dates are read with the {ascending[0]} first: only then are rows in order"
                " of time."
            )
            return ascending[0]
        spans = {
            order: f"{low:%-d %B %Y} to {high:%-d %B %Y}"
            for order, instants in moments.items()
            for low, high in [(instants.min(), instants.max())]
        }
        has_noon = column.parts["noon"].notna().any()
        return self._report.ask(
            Question(
                "date_order",
                f"{source} has dates such as {column.cells[column.readable].iloc[0]}. Does the day"
                " or the month come first?",
                {order: f"the {order}: {span}" for order, span in spans.items()},
                "month" if has_noon else "day",
            ),
            self._options.answers,
        )

    def _choose_zone(self, dates: Mapping[str, Dates], columns: Mapping[str, pd.Series]) -> str:
        """Return the time zone of times without an offset: chosen, UTC if named, or asked."""
        is_naive = any((column.readable & ~column.aware).any() for column in dates.values()) or any(
            pd.api.types.is_datetime64_any_dtype(values.dtype) and values.dt.tz is None
            for values in columns.values()
        )
        chosen = self._options.zone or ""
        if chosen or not is_naive:
            return chosen or "UTC"
        if all(parse_column_name(self._plan.mapping[native]).utc for native in columns):
            return "UTC"
        return self._report.ask(
            Question(
                "zone",
                "The file names no time zone. Which one are its times in?",
                {zone: zone for zone in ZONES},
                "UTC",
            ),
            self._options.answers,
        )

    # Lengths -----------------------------------------------------------------------------------

    def _parse_durations(
        self, native: str, source: str, times: Mapping[str, Instants]
    ) -> pd.Series:
        """Return a column of durations in seconds, read as numbers in a unit, clocks or texts."""
        values = self._frame[source]
        if source in self._frame.attrs.get(DURATION_ATTRIBUTE, ()):
            return values.astype(np.float64)
        cells = self._text_cells(source)
        kind = column_kinds(values)
        if kind.numbers:
            values = self._parse_numbers(native, cells)
            unit = self._duration_unit(native, source, values, times)
            # Some cells may name their unit.
            texts = durations_s(cells[values.isna()], "m:s")
            return (values * SECONDS[unit]).fillna(texts)
        return durations_s(cells, self._clock_format(native, source, cells, times))

    def _clock_format(
        self, native: str, source: str, cells: pd.Series, times: Mapping[str, Instants]
    ) -> str:
        """Return "m:s" or "h:m": how cells such as ``12:30`` are read.

        "m:s" if any cell has another form; else the one that matches the times from start to end,
        or that the user answers.
        """
        is_two_part = cells.str.fullmatch(r"\d+:\d{1,2}")
        if not is_two_part.any() or not (is_two_part | (cells == "")).all():
            return "m:s"
        span = _span_s(times)
        for clock in ("m:s", "h:m"):
            if native == "duration_s" and _durations_match_spans(durations_s(cells, clock), span):
                return clock
        medians = {
            clock: approximate_duration(durations_s(cells, clock).median())
            for clock in ("m:s", "h:m")
        }
        return self._report.ask(
            Question(
                f"clock.{native}",
                f"{source} holds durations such as {cells[is_two_part].iloc[0]}. Are they minutes"
                " and seconds, or hours and minutes?",
                {
                    "m:s": f"minutes and seconds: median {medians['m:s']}",
                    "h:m": f"hours and minutes: median {medians['h:m']}",
                },
                "h:m",
            ),
            self._options.answers,
        )

    def _duration_unit(
        self, native: str, source: str, values: pd.Series, times: Mapping[str, Instants]
    ) -> str:
        """Return the unit of a duration column: from options, name or time spans; else ask."""
        options, unit = self._options, parse_column_name(source).unit
        if options.duration_unit:
            return options.duration_unit
        if unit in SECONDS:
            return unit
        span = _span_s(times)
        fitting = [
            unit_key
            for unit_key in SECONDS
            if _durations_match_spans(values * SECONDS[unit_key], span)
        ]
        if native == "duration_s" and len(fitting) == 1:
            self._report.guess(
                f"{source} is read in {UNITS[fitting[0]]}: that matches the times from start to"
                " end."
            )
            return fitting[0]
        median = float(values.median())
        return self._report.ask(
            Question(
                "duration_unit",
                f"The file names no unit for {source}. Which unit is it?",
                {
                    unit_key: f"{word}: median {approximate_duration(median * SECONDS[unit_key])}"
                    for unit_key, word in UNITS.items()
                },
                _likely_unit(values),
            ),
            options.answers,
        )

    def _add_durations(
        self, jobs: pd.DataFrame, times: Mapping[str, Instants], raw: dict[str, pd.Series]
    ) -> pd.DataFrame:
        """Return the jobs with durations; computed from start and end where that is better.

        Without a duration column, or if the column agrees and the instants are more precise. From
        submission to end if the plan includes waits.
        """
        span = _span_s(times)
        if self._plan.includes_wait:
            raw["duration_s"] = raw["end_time_s"]
            return jobs.assign(duration_s=jobs["end_time_s"] - jobs["submit_time_s"])
        if "duration_s" not in jobs:
            raw["duration_s"] = raw["end_time_s"]
            self._report.guess("No duration column: durations are the times from start to end.")
            return jobs.assign(duration_s=span)
        span_is_rounded = (span % 60 == 0).all() and not (jobs["duration_s"] % 60 == 0).all()
        if not span_is_rounded and _durations_match_spans(jobs["duration_s"], span):
            # Instants are often more precise than durations (hundredths of an hour).
            self._report.guess(
                "Durations are computed from start to end; the duration column agrees."
            )
            return jobs.assign(duration_s=span.where(span.notna(), jobs["duration_s"]))
        return jobs

    def _translate_status(self, cells: pd.Series) -> pd.Series:
        """Return status words translated to known outcomes, after asking about unknown words.

        Words that stay unknown are returned in lower case; more than six are not asked about.
        """
        outcome_of = words_by_form("outcomes")
        counts = cells[cells != ""].value_counts()
        outcomes = {
            str(word): outcome_of[bare_name(str(word))][0]
            for word in counts.index
            if bare_name(str(word)) in outcome_of
        }
        unknown_words = [str(word) for word in counts.index if str(word) not in outcomes]
        if len(unknown_words) > _MAX_STATUS_QUESTIONS:
            self._report.guess(f"{len(unknown_words)} status words are unknown and kept unchanged.")
        else:
            for word in unknown_words:
                answer = self._report.ask(
                    Question(
                        f"status.{word}",
                        f"{counts[word]:,} rows have the status “{word}”. What happened to these"
                        " jobs?",
                        _OUTCOMES,
                        "other",
                    ),
                    self._options.answers,
                )
                if answer != "other":
                    outcomes[word] = answer
        return cells.map(lambda word: outcomes.get(word, word.lower()))


def _span_s(times: Mapping[str, Instants]) -> pd.Series:
    """Return seconds from start to end per row; empty without both columns."""
    if not {"start_time_s", "end_time_s"} <= times.keys():
        return pd.Series(dtype=np.float64)
    return times["end_time_s"].seconds - times["start_time_s"].seconds


def _durations_match_spans(durations: pd.Series, span: pd.Series) -> bool:
    """Return whether 99 % of durations equal the time from start to end, within 1 % or 60 s.

    False with fewer than three rows to compare.
    """
    both = pd.DataFrame({"duration": durations, "span": span}).dropna()
    if len(both) < _MIN_ROWS:
        return False
    difference = (both["duration"] - both["span"]).abs()
    return bool((difference <= (0.01 * both["span"]).clip(lower=60.0)).mean() >= 0.99)


def _likely_unit(values: pd.Series) -> str:
    """Return "s", "ms" or "h": the unit that makes durations most plausible."""
    plausible = values[(values > 0) & (values <= LATEST_S * 1000)]
    if plausible.empty:
        return "s"
    median = float(plausible.median())
    if (plausible % 1000 == 0).mean() >= 0.95 and median >= 10_000:
        return "ms"
    return "h" if median < 48 and (plausible % 1 != 0).any() else "s"


def approximate_duration(seconds: float) -> str:
    """Return a rounded duration with a suitable unit, such as ``21 min``."""
    if not math.isfinite(seconds):
        return "unknown"
    for min_seconds, unit in ((86_400.0 * 2, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= min_seconds:
            size = {"d": 86_400.0, "h": 3600.0, "min": 60.0, "s": 1.0}[unit]
            return (
                f"{seconds / size:,.3g} {unit}"
                if seconds / size < 1000
                else f"{seconds / size:,.0f} {unit}"
            )
    return f"{seconds * 1000:,.3g} ms"


def check_mapping(frame: pd.DataFrame, mapping: Mapping[str, str], name: str) -> None:
    """Raise an error for a mapping that a table cannot satisfy.

    Raises
    ------
    TraceError
        If a name is unknown, or one source is mapped twice.
    """
    for native, source in mapping.items():
        if native not in COLUMNS:
            raise TraceError(
                f"{name}: {native} is not a native column. Use one of {', '.join(COLUMNS)}."
            )
        if source not in frame.columns:
            raise TraceError(
                f"{name}: column {source}, mapped to {native}, is not in the table. Columns found:"
                f" {', '.join(map(str, frame.columns[:20]))}."
            )
    sources = pd.Series(list(mapping.values()), dtype="str")
    if sources.duplicated().any():
        raise TraceError(
            f"{name}: column {sources[sources.duplicated()].iloc[0]} is mapped twice. Map each"
            " native column to a different source."
        )


def check_clocks(times: Mapping[str, Instants], name: str) -> None:
    """Raise an error unless all time columns use the same kind of clock.

    Raises
    ------
    TraceError
        If only some columns hold dates, or only some have offsets.
    """
    if len({column.calendar for column in times.values()}) > 1:
        seconds = ", ".join(native for native, column in times.items() if not column.calendar)
        raise TraceError(
            f"{name}: {seconds} holds numbers, but other time columns hold dates. Write all times"
            " the same way."
        )
    if len({column.aware for column in times.values()}) > 1:
        naive = ", ".join(native for native, column in times.items() if not column.aware)
        raise TraceError(
            f"{name}: {naive} holds times without a UTC offset, but other columns have one. Give"
            " every time an offset, or none, and choose a time zone."
        )


def submission_clock(
    times: Mapping[str, Instants], report: Report, options: ReadOptions
) -> tuple[bool, str]:
    """Return whether submissions are Unix seconds (dates are), and their time zone.

    The zone is that of `options`, or "UTC"; always "UTC" for dates with UTC offsets. (False, "UTC")
    for seconds from another zero, or without submissions. Assumptions are added to the report.
    """
    submit = times.get("submit_time_s")
    if submit is None:
        return False, "UTC"
    zone = options.zone or "UTC"
    if submit.calendar:
        ambiguous = int(submit.doubtful.sum())
        if submit.aware:
            report.guess("Times have UTC offsets; they are converted to UTC.")
        else:
            report.guess(
                "Times have no offset; they are read as"
                f" {zone}{f' ({ambiguous} of them within a clock change)' if ambiguous else ''}."
            )
        return True, "UTC" if submit.aware else zone
    if options.time_unit not in ("", "s"):
        report.guess(f"Numeric times are in {options.time_unit}.")
    if is_unix(submit.seconds):
        report.guess("Submission times are read as Unix seconds.")
        return True, zone
    return False, "UTC"


def draft_native_table(
    frame: pd.DataFrame, mapping: Mapping[str, str], report: Report, name: str, options: ReadOptions
) -> Draft:
    """Return the draft of a table with mapped native columns."""
    check_mapping(frame, mapping, name)
    report_unused_columns(frame.columns, mapping, report)
    raw = {native: frame[source] for native, source in mapping.items()}
    jobs = pd.DataFrame(index=frame.index)
    in_seconds = {
        native
        for native, source in mapping.items()
        if source in frame.attrs.get(DURATION_ATTRIBUTE, ())
    }
    times = _read_native_times(raw, in_seconds, report, name, options)
    for native in (column for column in COLUMNS if column in raw):
        if native in times:
            jobs[native] = times[native].seconds
        elif native in NUMBERS:
            figures = booleans(raw[native]) if native in YES_NO else numbers(raw[native])
            unit_s = 1.0
            if native in DURATION_COLUMNS and native not in in_seconds:
                unit_s = SECONDS[options.duration_unit or "s"]
            jobs[native] = figures if unit_s == 1.0 else figures * unit_s
            unreadable = figures.isna()
            if native not in REQUIRED and unreadable.any():
                unreadable[unreadable] = clean_text(raw[native][unreadable]) != ""
                report.alter(
                    jobs, unreadable, f"{native} is not a number: treated as missing", raw[native]
                )
        else:
            jobs[native] = _clean_cells(raw[native], native)
    if "duration_s" not in raw and {"start_time_s", "end_time_s"} <= times.keys():
        jobs["duration_s"] = jobs["end_time_s"] - jobs["start_time_s"]
        raw["duration_s"] = raw["end_time_s"]
        report.guess("No duration column: durations are the times from start to end.")
    calendar, zone = submission_clock(times, report, options)
    return Draft(jobs, report, calendar, zone, raw=raw, columns=dict(mapping))


def _clean_cells(values: pd.Series, column: str) -> pd.Series:
    """Return cells without surrounding blanks and missing-value words.

    The same Series is returned if no cell changes, which is the usual case.
    """
    if column in CATEGORIES:  # few distinct texts
        codes, distinct = pd.factorize(values, use_na_sentinel=False)
        cells = pd.Series(distinct)
        cleaned = clean_text(cells)
        if cleaned.equals(cells):
            return values
        return pd.Series(cleaned.array.take(codes), index=values.index)
    cleaned = clean_names(values) if column == "job_id" else clean_text(values)
    return values if cleaned.equals(values) else cleaned


def _read_native_times(
    raw: Mapping[str, pd.Series],
    in_seconds: Collection[str],
    report: Report,
    name: str,
    options: ReadOptions,
) -> dict[str, Instants]:
    """Return native column -> instants of a native table; empty columns are left out."""
    times: dict[str, Instants] = {}
    submitted_s = None
    for native in (column for column in INSTANTS if column in raw):
        instants_read = instants(
            raw[native],
            options.zone or "UTC",
            1.0 if native in in_seconds else SECONDS[options.time_unit or "s"],
            f"{name}, column {native}",
            submitted_s,
        )
        if instants_read.seconds.notna().any() or native == "submit_time_s":
            times[native] = instants_read
        submitted_s = (
            times["submit_time_s"].seconds
            if "submit_time_s" in times and times["submit_time_s"].calendar
            else None
        )
    check_clocks(times, name)
    return times
