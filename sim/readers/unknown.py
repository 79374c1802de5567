"""A table of jobs that nobody described: columns found by names and cells, and a question wherever
the file does not say what its cells mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from sim.clock import LATEST_S
from sim.errors import TraceError
from sim.readers.cells import UNIX, Instants, booleans, instants, names, text
from sim.readers.clocks import check_clocks, check_mapping, clock_of
from sim.readers.format import SECONDS, Draft, Format, ReadOptions
from sim.readers.mapping import (
    LENGTHS,
    PER,
    TIMES_SIGN,
    YES_NO,
    factor,
    fits,
    guess_mapping,
    missing,
    name_of,
)
from sim.readers.parquet import SECONDS_KNOWN, parquet_head, read_parquet
from sim.readers.questions import OpenQuestionError, Question
from sim.readers.report import Report
from sim.readers.sniff import Sample
from sim.readers.source import Content
from sim.readers.table import ignored, read_table
from sim.readers.values import Dates, column_of, figures, gpus, lengths, signs
from sim.readers.words import bare, known_words
from sim.trace import COLUMNS, INSTANTS, NUMBERS

SAMPLE: Final = 2000
"""Rows from the beginning, and as many from all over the file, by which columns are guessed."""
ZONES: Final = (
    *("UTC", "Europe/Berlin", "Europe/London", "US/Pacific", "US/Eastern"),
    *("Asia/Shanghai", "Asia/Tokyo", "Asia/Kolkata", "Australia/Sydney"),
)
WANTED: Final = {
    "submit_time_s": "a submission time",
    "num_gpus": "a number of GPUs",
    "duration_s": "a duration",
}
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
WAITS: Final = "end-submission"
_ENOUGH: Final = 3
"""Rows with a start and an end that show the unit of durations."""
_SIGNS: Final = {"point": "thousands", "comma": "decimals"}


def _is_table(sample: Sample) -> bool:
    return sample.kind == "text" and bool(sample.delimiter)


def load(content: Content, options: ReadOptions) -> Draft:
    """Read a table whose columns must be guessed or are mapped by the user.

    Raises
    ------
    OpenQuestionError
        If it cannot be told which column holds what every job must have.
    TraceError
        If no column can.
    """
    if not _is_table(content.sample) and content.sample.kind != "parquet":
        raise TraceError(f"{content.name}: this is no table of jobs. Choose another format.")
    head = beginning(content, options)
    asked = Report(0)
    plan = _plan(head, content.name, asked, options)
    wanted = {part for source in plan.mapping.values() for part in _parts(source, head)}
    if content.sample.kind == "parquet":
        frame, report = read_parquet(content, options, wanted)
    else:
        frame, report = read_table(content, options, wanted, as_written=True)
    report.questions, report.answered = asked.questions, asked.answered
    report.guesses.extend(asked.guesses)
    report.warnings.extend(asked.warnings)
    return _Typing(frame, plan, report, content, options).draft()


def beginning(content: Content, options: ReadOptions) -> pd.DataFrame:
    """Return the first rows of a table and as many from all over it, all columns, as they are
    written.
    """
    if content.sample.kind == "parquet":
        return parquet_head(content, options, SAMPLE)
    data = content.data
    at = -1
    for _ in range(SAMPLE + 1):
        at = data.find(b"\n", at + 1)
        if at < 0:
            break
    if at >= 0:
        step = max((len(data) - at) // SAMPLE, 1)
        lines = []
        for start in range(at, len(data), step):
            first = data.find(b"\n", start) + 1
            last = data.find(b"\n", first)
            if 0 < first < last:
                lines.append(data[first:last])
        data = data[: at + 1] + b"\n".join(dict.fromkeys(lines)) + b"\n"
    part = Content(content.name, data, content.encoding, damaged=content.damaged)
    # Lines from the middle of a quoted cell would break the table: they have other fields.
    return read_table(part, options, as_written=True)[0]


@dataclass(frozen=True)
class _Plan:
    """Native column -> source column; whether the start stands for the submission, and whether
    durations are from submission to end.
    """

    mapping: Mapping[str, str]
    started: bool = False
    waits: bool = False


def _parts(source: str, frame: pd.DataFrame) -> list[str]:
    return [source] if source in frame.columns else source.split(TIMES_SIGN)


def _plan(head: pd.DataFrame, name: str, report: Report, options: ReadOptions) -> _Plan:
    mapping = guess_mapping(head, options.mapping)
    lacking = missing(mapping)
    if lacking and any(_is_number(str(column)) for column in head):
        raise TraceError(_no_header(head, name))
    _ask_columns(lacking, head, mapping, name, report, options)
    started = mapping["submit_time_s"] == mapping.get("start_time_s")
    if started:
        del mapping["submit_time_s"]
    waits = mapping.get("duration_s") == WAITS
    if waits:
        del mapping["duration_s"]
        report.warnings.append("Durations are from submission to end: waits are part of them.")
    if started:
        report.guess(
            f"Submissions are the starts ({mapping['start_time_s']}): recorded waits are unknown."
        )
    if TIMES_SIGN not in mapping["num_gpus"] and "num_gpus" not in options.mapping:
        mapping["num_gpus"] = _per(head, mapping, report, options)
    if mapping["num_gpus"] not in head.columns:
        first, second = _parts(mapping["num_gpus"], head)
        report.guess(f"GPUs of a job are {first} times {second}.")
        mapping = {
            native: source
            for native, source in mapping.items()
            if native in ("num_gpus", "nodes") or source not in (first, second)
        }
    read = ", ".join(
        f"{native} from {source}" for native, source in mapping.items() if native != source
    )
    report.guess(
        f"The format is not known; columns were matched by name{': ' + read if read else ''}."
    )
    return _Plan(mapping, started, waits)


def _fitting(native: str, head: pd.DataFrame, mapping: Mapping[str, str]) -> list[str]:
    """Return the columns that are free and could be a fact by their cells."""
    taken = set(mapping.values())
    return [
        str(column)
        for column in head.columns
        if column not in taken
        and not (kind := column_of(head[column])).empty
        and fits(native, str(column), kind)
    ]


def _ask_columns(
    lacking: tuple[str, ...],
    head: pd.DataFrame,
    mapping: dict[str, str],
    name: str,
    report: Report,
    options: ReadOptions,
) -> None:
    """Put the columns that the user names, or that stand in, for what is lacking into a mapping."""
    unanswered = []
    for native in lacking:
        question = _column_question(native, head, mapping)
        if not question.options:
            raise TraceError(f"{name}: {question.text}")
        if question.default or question.id in options.answers:
            mapping[native] = report.ask(question, options.answers)
        else:
            unanswered.append(question)
    if unanswered:
        raise OpenQuestionError(name, tuple(unanswered))


def _column_question(native: str, head: pd.DataFrame, mapping: Mapping[str, str]) -> Question:
    """Return the question which column holds a fact that every job must have."""
    found = ", ".join(map(str, head.columns[:20]))
    ways = ", or two to start and end" if native == "duration_s" else ""
    text_of = (
        f"no column looks like {WANTED[native]} ({native}). Columns found: {found}. Map one of"
        f" them to it{ways}."
    )
    options = {one: _example(head, one) for one in _fitting(native, head, mapping)}
    start, end = mapping.get("start_time_s", ""), mapping.get("end_time_s", "")
    if native == "submit_time_s" and start:
        text_of = (
            f"No column looks like a submission. Was every job submitted when it started ({start})?"
        )
        options = {start: "Yes: how long jobs waited is not known"} | {
            one: f"No, the submission is {example}" for one, example in options.items()
        }
    if native == "duration_s" and end and mapping.get("submit_time_s"):
        options[WAITS] = f"From submission to end ({end}): waits would be part of it"
    asked = start if native == "submit_time_s" else ""
    return Question(f"column.{native}", text_of, options, asked)


def _example(head: pd.DataFrame, column: str) -> str:
    cells = text(head[column])
    return f"{column}: {', '.join(cells[cells != ''].head(3).str.slice(0, 30))}"


def _is_number(cell: str) -> bool:
    return cell.removeprefix("-").replace(".", "", 1).isdecimal()


def _no_header(head: pd.DataFrame, name: str) -> str:
    found = ", ".join(map(str, head.columns[:20]))
    return (
        f"{name}: the first line ({found}) looks like a row, not like names of columns. Put a"
        " line with their names above it, or map them."
    )


def _per(
    head: pd.DataFrame, mapping: Mapping[str, str], report: Report, options: ReadOptions
) -> str:
    """Return the source of GPUs, after asking whether they are those of each node or worker."""
    source = mapping["num_gpus"]
    counts = _counts(text(head[source]))
    if "total" in source:
        return source
    for many, each in PER.items():
        column = factor(map(str, head.columns), many, head)
        if not column or column == source:
            continue
        times = figures(text(head[column]))
        if not (times > 1).any():
            continue
        single = factor(map(str, head.columns), each, head)
        if single and (figures(text(head[single])) * times == counts).mean() > 0.95:
            continue
        product = f"{source}{TIMES_SIGN}{column}"
        answer = report.ask(
            Question(
                f"gpus_per.{many}",
                f"Jobs have up to {times.max():g} {column}: does {source} count the GPUs of the"
                " whole job, or of each?",
                {
                    "job": f"Of the whole job: the largest has {counts.max():g} GPUs",
                    "each": f"Of each: the largest has {(counts * times).max():g} GPUs",
                },
                "each" if (counts < times).any() else "job",
            ),
            options.answers,
        )
        if answer == "each":
            return product
    return source


def _counts(cells: pd.Series) -> pd.Series:
    """Return numbers of GPUs, plain or in a notation."""
    plain = figures(cells)
    return plain.where(plain.notna() | (cells == ""), gpus(cells))


class _Typing:
    """Turns the cells of the mapped columns into what they mean.

    Parameters
    ----------
    frame : DataFrame
        The mapped columns as written, index = row.
    plan : _Plan
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
        plan: _Plan,
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
            frame,
            {part: part for source in plan.mapping.values() for part in _parts(source, frame)},
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
        parts = [self._frame[part] for part in _parts(source, self._frame)]
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
        for part in _parts(source, self._frame):
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
        options = self._options
        if options.time_unit:
            return SECONDS[options.time_unit]
        median = float(found.median())
        for per, unit in _PARTS_OF_S:
            if UNIX[0] <= median / per <= UNIX[1]:
                if unit != "s":
                    self._report.guess(f"Numeric times are in {unit} since 1970.")
                return 1 / per
        unit = name_of(self._plan.mapping[native]).unit
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


TABLE: Final = Format("table", "Any table, columns mapped", _is_table, load)
