"""The native schema as CSV, TSV or Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd

from sim.clock import LATEST_S
from sim.readers import unknown
from sim.readers.cells import Instants, booleans, instants, names, numbers, text
from sim.readers.clocks import check_clocks, check_mapping, clock_of
from sim.readers.format import SECONDS, Draft, Format, ReadOptions
from sim.readers.mapping import LENGTHS, YES_NO
from sim.readers.parquet import column_names, read_parquet
from sim.readers.report import Report
from sim.readers.sniff import Sample, plain
from sim.readers.source import Content
from sim.readers.table import ignored, read_table
from sim.trace import COLUMNS, INSTANTS, NUMBERS, REQUIRED

LONG_S: Final = 1e7


def _is_native(sample: Sample) -> bool:
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
    return draft_of(frame, mapping, report, content.name, options)


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
    check_mapping(frame, mapping, name)
    ignored(frame, mapping, report)
    raw = {native: frame[source] for native, source in mapping.items()}
    jobs = pd.DataFrame(index=frame.index)
    times = _times(raw, report, name, options)
    for native in (column for column in COLUMNS if column in raw):
        if native in times:
            jobs[native] = times[native].seconds
        elif native in NUMBERS:
            figures = booleans(raw[native]) if native in YES_NO else numbers(raw[native])
            jobs[native] = figures * (
                SECONDS[options.duration_unit or "s"] if native in LENGTHS else 1.0
            )
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
            f" {options.duration_unit or 's'}; choose another unit if that is absurd."
        )
    if "duration_s" not in raw and {"start_time_s", "end_time_s"} <= times.keys():
        jobs["duration_s"] = jobs["end_time_s"] - jobs["start_time_s"]
        raw["duration_s"] = raw["end_time_s"]
        report.guess("There is no column of durations; they are the times from start to end.")
    calendar, zone = clock_of(times, report, options)
    return Draft(jobs, report, calendar, zone, raw=raw, columns=dict(mapping))


def _times(
    raw: Mapping[str, pd.Series], report: Report, name: str, options: ReadOptions
) -> dict[str, Instants]:
    times: dict[str, Instants] = {}
    submitted = None
    for native in (column for column in INSTANTS if column in raw):
        read = instants(
            raw[native],
            options.zone or "UTC",
            SECONDS[options.time_unit or "s"],
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


NATIVE: Final = Format("native", "Trainyard table (CSV, TSV or Parquet)", _is_native, _load)
