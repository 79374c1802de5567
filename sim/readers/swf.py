"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers per job between
blanks, comments behind semicolons; processors count as GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pandas as pd

from sim.errors import TraceError
from sim.readers.cells import is_unix, names
from sim.readers.delimited import groups
from sim.readers.format import Draft, Format, ReadOptions
from sim.readers.report import Report
from sim.readers.sniff import Sample
from sim.readers.source import Content
from sim.readers.table import check_rows

WIDTH: Final = 18
PLACES: Final = {
    "job_id": 0,
    "submit": 1,
    "wait": 2,
    "run": 3,
    "allocated": 4,
    "requested": 7,
    "limit": 8,
    "status": 10,
    "user": 11,
    "queue": 14,
    "partition": 15,
}
"""What is read -> its place among the fields of a row."""
TEXTS: Final = ("job_id", "user", "queue", "partition")
STATES: Final = {0: "failed", 1: "completed", 5: "cancelled"}
PARTS: Final = (2, 3, 4)
"""Status of a line that describes one of several stretches of a job, all of which another line sums
up.
"""
UNKNOWN: Final = "-1"
GROUP: Final = 20_000
HEADER: Final = re.compile(r";\s*(\w+):\s*(.*?)\s*$")
NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")


def matches(sample: Sample) -> bool:
    """Recognise it by 18 numbers between blanks in the first line that is no comment."""
    return (
        sample.kind == "text"
        and len(sample.between_blanks) >= WIDTH
        and all(map(NUMBER.fullmatch, sample.between_blanks[:WIDTH]))
    )


def load(content: Content, options: ReadOptions) -> Draft:
    """Read a log; fields behind the 18th, which some sites add, are left alone.

    Parameters
    ----------
    content : Content
        The text.
    options : ReadOptions
        Zone in which the first submission is written down; the limits.

    Raises
    ------
    TraceError
        If it is not text, or has no row.

    Notes
    -----
    The fields are those of version 2.2: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html.
    A job asks for the processors that it requested, else for those that it got. Memory is not read:
    published logs disagree about its unit.
    """
    if content.sample.kind != "text":
        raise TraceError(
            f"{content.name}: this is {content.sample.kind}, but the chosen format is text. Choose"
            " another format."
        )
    header: dict[str, str] = {}
    with content.stream("\r\n \t", newline=None) as stream:
        cells = _cells(_rows(stream, header))
    check_rows(len(cells), content.name, options)
    report = Report(len(cells))
    report.guesses.extend(content.guesses)
    short = cells.pop("short")
    cells = report.drop(cells, short, f"the row has fewer than {WIDTH} fields")
    figures = {
        column: pd.to_numeric(cells[column], errors="coerce").astype(np.float64)
        for column in PLACES
        if column not in TEXTS
    }
    jobs, calendar = _jobs(cells, pd.DataFrame(figures, index=cells.index), header, report)
    report.guess("Processors count as GPUs: one processor asked for is one GPU.")
    if machine := [
        f"{header[key]} {what}"
        for key, what in (("MaxNodes", "nodes"), ("MaxProcs", "processors"))
        if header.get(key)
    ]:
        report.guess(f"The machine of this log had {' and '.join(machine)}.")
    raw = {
        "submit_time_s": cells["submit"],
        "num_gpus": cells["requested"],
        "duration_s": cells["run"],
    }
    return Draft(jobs, report, calendar, options.zone or _zone(header), raw=raw)


def _rows(lines: Iterable[str], header: dict[str, str]) -> Iterator[list[str]]:
    for line in lines:
        if line.startswith(";"):
            if found := HEADER.match(line):
                header.setdefault(found[1], found[2])
        elif fields := line.split(None, WIDTH):
            yield fields


def _cells(rows: Iterable[list[str]]) -> pd.DataFrame:
    pieces = [
        pd.DataFrame(
            {"short": pd.Series(dtype=bool)} | {column: pd.Series(dtype="str") for column in PLACES}
        )
    ]
    first = 1
    for group in groups(rows, GROUP):
        index = pd.RangeIndex(first, first + len(group))
        piece = pd.DataFrame({"short": [len(row) < WIDTH for row in group]}, index)
        for column, place in PLACES.items():
            piece[column] = pd.Series(
                [row[place] if len(row) > place else "" for row in group], index, "str"
            )
        pieces.append(piece)
        first += len(group)
    return pd.concat(pieces[1:] or pieces)


def _jobs(
    cells: pd.DataFrame, figures: pd.DataFrame, header: dict[str, str], report: Report
) -> tuple[pd.DataFrame, bool]:
    begun = pd.to_numeric(header.get("UnixStartTime", ""), errors="coerce")
    submit = figures["submit"].where(figures["submit"] >= 0)
    calendar = is_unix(submit)
    if not calendar and begun > 0:
        submit, calendar = submit + begun, True
    jobs = pd.DataFrame({"job_id": names(cells["job_id"]), "submit_time_s": submit})
    jobs["start_time_s"] = submit + figures["wait"].where(figures["wait"] >= 0)
    # -1 stands for not known; what else is negative the common checks name.
    jobs["duration_s"] = figures["run"].where(figures["run"] != -1)
    jobs["end_time_s"] = jobs["start_time_s"] + jobs["duration_s"]
    jobs["num_gpus"] = figures["requested"].where(
        figures["requested"] > 0, figures["allocated"].where(figures["allocated"] != -1)
    )
    jobs["time_limit_s"] = figures["limit"].where(figures["limit"] > 0)
    jobs["status"] = figures["status"].map(STATES).fillna("").astype("str")
    for native, column in (("user", "user"), ("vc", "queue"), ("partition", "partition")):
        named = names(cells[column])
        if named.ne(UNKNOWN).any():
            jobs[native] = named.where(named != UNKNOWN, "")
    jobs = report.drop(
        jobs,
        figures["status"].isin(PARTS),
        "a stretch of a job that another line sums up",
        figures["status"],
    )
    never = (jobs["status"] == "cancelled") & ~(jobs["duration_s"] > 0)
    return report.drop(jobs, never, "the job never started", jobs["status"]), calendar


def _zone(header: dict[str, str]) -> str:
    zone = header.get("TimeZoneString", "")
    return ZoneInfo(zone).key if zone in available_timezones() else "UTC"


SWF: Final = Format("swf", "Standard Workload Format (.swf)", matches, load)
