"""The native schema as CSV, TSV or Parquet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import pandas as pd

from jobtraces.readers import unknown
from jobtraces.readers.cells import Instants, booleans, instants, names, numbers, text
from jobtraces.readers.clocks import check_clocks, check_mapping, clock_of
from jobtraces.readers.format import Draft, Format
from jobtraces.readers.mapping import LENGTHS, YES_NO
from jobtraces.readers.options import SECONDS, ReadOptions
from jobtraces.readers.parquet import SECONDS_KNOWN, column_names, read_parquet
from jobtraces.readers.report import Report
from jobtraces.readers.sniff import Sample, plain
from jobtraces.readers.source import Content
from jobtraces.readers.table import ignored, read_table
from sim.trace import CATEGORIES, COLUMNS, INSTANTS, NUMBERS, REQUIRED


def is_native(sample: Sample) -> bool:
    """Tell whether a table has our own columns."""
    return sample.kind == "parquet" or set(REQUIRED[1:]) <= sample.keys


def _load(content: Content, options: ReadOptions) -> Draft:
    wanted = {*COLUMNS, *(plain(source) for source in options.mapping.values())}
    if content.sample.kind == "parquet":
        if not set(REQUIRED[1:]) <= set(column_names(content)):
            return unknown.load(content, options)
        frame, report = read_parquet(content, options, wanted)
    else:
        frame, report = read_table(content, options, wanted)
    native = {column: column for column in COLUMNS if column in frame.columns}
    if not set(REQUIRED[1:]) <= set(native):
        return unknown.load(content, options)
    chosen = {column: plain(source) for column, source in options.mapping.items()}
    mapping = {column: source for column, source in (native | chosen).items() if source}
    return _draft(frame, mapping, report, content.name, options)


def _draft(
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
    times = _times(raw, typed, report, name, options)
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


def _times(
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


NATIVE: Final = Format("native", "Trainyard table (CSV, TSV or Parquet)", _load)
