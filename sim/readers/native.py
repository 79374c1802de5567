"""The native schema as CSV, TSV or Parquet, and any other table whose columns can be mapped to
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd

from sim.clock import LATEST_S
from sim.errors import TraceError
from sim.readers.cells import Instants, booleans, instants, is_unix, names, numbers, text
from sim.readers.format import SECONDS, Draft, Format, ReadOptions
from sim.readers.mapping import ALIASES, guess_mapping, missing
from sim.readers.parquet import read_parquet
from sim.readers.report import Report
from sim.readers.sniff import Sample, plain
from sim.readers.source import Content
from sim.readers.table import ignored, read_table
from sim.trace import COLUMNS, INSTANTS, NUMBERS, REQUIRED

LONG_S: Final = 1e7
LENGTHS: Final = ("duration_s", "time_limit_s")
_YES_NO: Final = ("preemptible", "requeue")
_WANTED: Final = {
    "submit_time_s": "a submission time",
    "num_gpus": "a number of GPUs",
    "duration_s": "a duration",
}


def _is_native(sample: Sample) -> bool:
    return sample.kind == "parquet" or set(REQUIRED[1:]) <= sample.keys


def _is_table(sample: Sample) -> bool:
    return sample.kind == "text" and bool(sample.delimiter)


def _load(content: Content, options: ReadOptions) -> Draft:
    if content.sample.kind == "parquet":
        frame, report = read_parquet(content, options, _wanted(options))
    else:
        frame, report = read_table(content, options, _wanted(options))
    native = {column: column for column in COLUMNS if column in frame.columns}
    if not set(REQUIRED[1:]) <= set(native):
        return _load_mapped(frame, report, content.name, options)
    chosen = {column: plain(source) for column, source in options.mapping.items()}
    mapping = {column: source for column, source in (native | chosen).items() if source}
    return draft_of(frame, mapping, report, content.name, options)


def _load_any(content: Content, options: ReadOptions) -> Draft:
    return _load_mapped(*read_table(content, options, _wanted(options)), content.name, options)


def _wanted(options: ReadOptions) -> set[str]:
    return {alias for aliases in ALIASES.values() for alias in aliases} | {
        plain(source) for source in options.mapping.values()
    }


def _load_mapped(frame: pd.DataFrame, report: Report, name: str, options: ReadOptions) -> Draft:
    mapping = guess_mapping(frame.columns, options.mapping)
    if lacking := missing(mapping):
        raise TraceError(_missing(frame, lacking[0], name))
    read = ", ".join(
        f"{native} from {source}" for native, source in mapping.items() if native != source
    )
    report.guess(
        f"The format is not known; columns were matched by name{': ' + read if read else ''}."
    )
    return draft_of(frame, mapping, report, name, options)


def _missing(frame: pd.DataFrame, native: str, name: str) -> str:
    found = ", ".join(map(str, frame.columns[:20]))
    if any(_is_number(str(column)) for column in frame.columns):
        return (
            f"{name}: the first line ({found}) looks like a row, not like names of columns. Put a"
            " line with their names above it, or map them."
        )
    return (
        f"{name}: no column looks like {_WANTED[native]} ({native}). Columns found: {found}. Map"
        f" one of them to it{', or two to start and end' if native == 'duration_s' else ''}."
    )


def _is_number(cell: str) -> bool:
    return cell.removeprefix("-").replace(".", "", 1).isdecimal()


def draft_of(
    frame: pd.DataFrame, mapping: Mapping[str, str], report: Report, name: str, options: ReadOptions
) -> Draft:
    """Type the mapped columns of a table.

    Parameters
    ----------
    frame : DataFrame
        Source columns under plain names, index = row.
    mapping : mapping
        Native -> source.
    report : Report
        Of this import.
    name : str
        For messages.
    options : ReadOptions
        Units and zone.

    Raises
    ------
    TraceError
        If a mapped column is not there or native names are unknown, if one source is mapped twice,
        or if columns of time do not share one kind of clock.
    """
    _check_mapping(frame, mapping, name)
    ignored(frame, mapping, report)
    raw = {native: frame[source] for native, source in mapping.items()}
    jobs = pd.DataFrame(index=frame.index)
    times = _times(raw, report, name, options)
    for native in (column for column in COLUMNS if column in raw):
        if native in times:
            jobs[native] = times[native].seconds
        elif native in NUMBERS:
            figures = booleans(raw[native]) if native in _YES_NO else numbers(raw[native])
            jobs[native] = figures * (SECONDS[options.duration_unit] if native in LENGTHS else 1.0)
            unreadable = figures.isna() & (text(raw[native]) != "")
            if native not in REQUIRED:
                report.alter(
                    jobs, unreadable, f"{native} is not a number: taken as not given", raw[native]
                )
        else:
            jobs[native] = names(raw[native]) if native == "job_id" else text(raw[native])
    durations = jobs["duration_s"] if "duration_s" in jobs else pd.Series(dtype="float64")
    # What is dropped for its size says nothing of the unit that the others are in.
    median_s = float(durations[durations <= LATEST_S].median())
    if median_s > LONG_S:
        report.warnings.append(
            f"The median duration is {median_s / 86_400:,.0f} days when read in"
            f" {options.duration_unit}; choose another unit if that is absurd."
        )
    if "duration_s" not in raw and {"start_time_s", "end_time_s"} <= times.keys():
        jobs["duration_s"] = jobs["end_time_s"] - jobs["start_time_s"]
        raw["duration_s"] = raw["end_time_s"]
        report.guess("There is no column of durations; they are the times from start to end.")
    calendar, zone = _clock(times, report, options)
    return Draft(jobs, report, calendar, zone, raw=raw)


def _check_mapping(frame: pd.DataFrame, mapping: Mapping[str, str], name: str) -> None:
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


def _times(
    raw: Mapping[str, pd.Series], report: Report, name: str, options: ReadOptions
) -> dict[str, Instants]:
    times: dict[str, Instants] = {}
    submitted = None
    for native in (column for column in INSTANTS if column in raw):
        read = instants(
            raw[native],
            options.zone or "UTC",
            SECONDS[options.time_unit],
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
    return times


def _clock(times: Mapping[str, Instants], report: Report, options: ReadOptions) -> tuple[bool, str]:
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
    if options.time_unit != "s":
        report.guess(f"Numeric times are in {options.time_unit}.")
    if is_unix(submit.seconds):
        report.guess("Submission times are read as Unix seconds.")
        return True, zone
    return False, "UTC"


NATIVE: Final = Format("native", "Trainyard table (CSV, TSV or Parquet)", _is_native, _load)
TABLE: Final = Format("table", "Any table, columns mapped", _is_table, _load_any)
