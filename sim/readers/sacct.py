"""Slurm accounting as printed by ``sacct -P``, with a header or in the two headerless layouts that
Open XDMoD collects.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Final

import numpy as np
import pandas as pd

from sim.errors import TraceError
from sim.readers import slurm_fields as slurm
from sim.readers.cells import each_distinct, instants, is_unix, numbers, text
from sim.readers.clean import unfinished
from sim.readers.delimited import BROKEN, DAMAGED, check_length, groups, named
from sim.readers.format import Draft, Format, ReadOptions
from sim.readers.report import Report
from sim.readers.sniff import Sample, plain
from sim.readers.source import DAMAGE, Content
from sim.readers.table import check_rows, read_table

# The order Open XDMoD asks for; QOS came later than the rest, and ReqGRES (after ReqMem) left
# again.
XDMOD: Final = (
    *(
        "jobid",
        "jobidraw",
        "cluster",
        "partition",
        "qos",
        "account",
        "group",
        "gid",
        "user",
        "uid",
        "submit",
        "eligible",
        "start",
        "end",
    ),
    *(
        "elapsed",
        "exitcode",
        "state",
        "nnodes",
        "ncpus",
        "reqcpus",
        "reqmem",
        "reqtres",
        "alloctres",
        "timelimit",
        "nodelist",
        "jobname",
    ),
)
USED: Final = frozenset(
    {
        "jobid",
        "jobidraw",
        "submit",
        "eligible",
        "start",
        "end",
        "elapsed",
        "elapsedraw",
        "state",
        "nnodes",
        "ncpus",
        "alloccpus",
        "reqcpus",
        "reqmem",
    }
    | {
        "reqtres",
        "alloctres",
        "allocgres",
        "reqgres",
        "timelimit",
        "timelimitraw",
        "jobname",
        "user",
        "partition",
        "priority",
    }
)
SOURCES: Final = {
    "job_id": ("jobid", "jobidraw"),
    "submit_time_s": ("submit",),
    "num_gpus": ("alloctres", "reqtres", "allocgres", "reqgres"),
    "duration_s": ("elapsedraw", "elapsed", "end"),
    "start_time_s": ("start",),
    "end_time_s": ("end",),
    "status": ("state",),
    "user": ("user",),
    "name": ("jobname",),
    "gpu_type": ("alloctres",),
    "cpus": ("ncpus", "alloccpus", "reqcpus", "alloctres"),
    "mem_gb": ("alloctres", "reqmem", "reqtres"),
    "time_limit_s": ("timelimitraw", "timelimit"),
    "priority": ("priority",),
    "partition": ("partition",),
}
SHORT: Final = "\x00short"
GROUP: Final = 20_000
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
SUBMIT_WITHOUT_QOS: Final = 9
NEVER: Final = "the job never started"


def _with_header(sample: Sample) -> bool:
    return (
        sample.kind == "text"
        and "submit" in sample.keys
        and bool({"jobid", "jobidraw"} & sample.keys)
    )


def _without_header(sample: Sample) -> bool:
    cells = sample.cells
    return (
        sample.kind == "text"
        and sample.delimiter == "|"
        and len(cells) >= len(XDMOD) - 1
        and any(TIME.match(cells[at]) for at in (9, 10))
    )


def matches(sample: Sample) -> bool:
    """Recognise either form."""
    return _with_header(sample) or _without_header(sample)


def load(content: Content, options: ReadOptions) -> Draft:
    """Read either form.

    Parameters
    ----------
    content : Content
        The text.
    options : ReadOptions
        Zone, `since`, `unfinished`.

    Raises
    ------
    TraceError
        If a column that cannot be missed is not there, or the log has no GPU at all.
    """
    if content.sample.delimiter == "|":
        cells, report = _split(content, options)
    else:
        cells, report = read_table(content, options, USED)
    cells = pd.DataFrame(
        {column: text(cells.pop(column)) for column in list(cells.columns) if column in USED},
        index=cells.index,
    )
    for column in ("submit", "start"):
        if column not in cells:
            raise TraceError(
                f"{content.name}: the sacct column {column} is missing. Export it with sacct"
                " --format=JobID,Submit,Start,End,ElapsedRaw,...."
            )
    cells["job_id"] = cells["jobid"] if "jobid" in cells else cells["jobidraw"]
    cells = report.drop(
        cells,
        cells["job_id"].str.contains(".", regex=False),
        "a step of a job, not a job",
        cells["job_id"],
    )
    return _jobs(cells, report, content.name, options)


def _split(content: Content, options: ReadOptions) -> tuple[pd.DataFrame, Report]:
    with content.stream("\r\n \t", newline=None) as stream:
        lines = (line.rstrip("\n") for line in stream if line.strip())
        header = (
            [plain(cell) for cell in next(lines).split("|")]
            if _with_header(content.sample)
            else None
        )
        probe = [line.split("|") for line in islice(lines, 1000)]
        check_rows(len(probe), content.name, options)
        columns = header or _layout(probe, content.name)
        frame = _records(chain(probe, (line.split("|") for line in lines)), columns, content)
    check_rows(len(frame), content.name, options)
    report = Report(len(frame))
    report.guesses.extend(content.guesses)
    if not header:
        report.guess(
            f"There is no header; the {len(columns)} fields are taken in the order of Open XDMoD."
        )
    short, damaged = frame.pop(SHORT), frame.pop(DAMAGED)
    frame = report.drop(frame, short, "the row has fewer fields than the others", frame.iloc[:, 0])
    return report.drop(frame, damaged.reindex(frame.index), BROKEN), report


def _records(rows: Iterable[list[str]], columns: Sequence[str], content: Content) -> pd.DataFrame:
    width = len(columns)
    # The job's name is the only field in which the user may type a bar.
    at = columns.index("jobname") if "jobname" in columns else width - 1
    kept = {
        column: place
        for place, column in reversed(list(enumerate(columns)))
        if column in USED or place == 0
    }
    pieces: list[pd.DataFrame] = []
    first = 1
    for group in groups(rows, GROUP):
        fitted = [row if len(row) == width else _rejoin(row, width, at) for row in group]
        index = pd.RangeIndex(first, first + len(group))
        piece = pd.DataFrame(
            {
                column: pd.Series([row[place] for row in fitted], index, "str")
                for column, place in sorted(kept.items(), key=itemgetter(1))
            }
        )
        for column in piece:
            check_length(piece[column], str(column), content.name)
        piece[SHORT] = [len(row) < width for row in group]
        piece[DAMAGED] = (
            [any(DAMAGE in cell for cell in row) for row in group] if content.damaged else False
        )
        pieces.append(piece)
        first += len(group)
    return named(pd.concat(pieces), [*dict.fromkeys(c for c in columns if c), SHORT, DAMAGED])


def _rejoin(row: list[str], width: int, at: int) -> list[str]:
    over = len(row) - width
    return (
        row + [""] * -over
        if over < 0
        else [*row[:at], "|".join(row[at : at + over + 1]), *row[at + over + 1 :]]
    )


def _layout(rows: list[list[str]], name: str) -> list[str]:
    width = Counter(map(len, rows[:1000])).most_common(1)[0][0]
    qos = width > SUBMIT_WITHOUT_QOS and not TIME.match(rows[0][SUBMIT_WITHOUT_QOS])
    columns = [column for column in XDMOD if qos or column != "qos"]
    bar = rows[0][-1] == "" and len(rows[0]) > len(columns)
    spare = width - bar - len(columns)
    if spare == 1:
        columns.insert(columns.index("reqmem") + 1, "reqgres")
    elif spare != 0:
        raise TraceError(
            f"{name}: the rows have {width} fields and no header, which is no known layout. Export"
            " with a header (sacct -P without -n)."
        )
    return [*columns, ""] if bar else columns


def _jobs(cells: pd.DataFrame, report: Report, name: str, options: ReadOptions) -> Draft:
    zone = options.zone or "UTC"
    cells = report.drop(
        cells,
        cells["job_id"].str.contains("[", regex=False) & (cells["start"] == ""),
        NEVER,
        "an array that still waits",
    )
    submit = instants(cells["submit"], zone, where=f"{name}, column Submit")
    eligible = (
        instants(cells["eligible"], zone, where=f"{name}, column Eligible").seconds
        if "eligible" in cells
        else submit.seconds
    )
    start = instants(
        cells["start"], zone, where=f"{name}, column Start", not_before=submit.seconds
    ).seconds
    end = (
        instants(cells["end"], zone, where=f"{name}, column End", not_before=start).seconds
        if "end" in cells
        else start * np.nan
    )
    elapsed = (
        numbers(cells["elapsedraw"])
        if "elapsedraw" in cells
        else slurm.lengths_s(cells["elapsed"])
        if "elapsed" in cells
        else end - start
    )
    jobs = pd.DataFrame(
        {
            "job_id": cells["job_id"],
            "submit_time_s": submit.seconds,
            "start_time_s": start,
            "end_time_s": end,
        }
    )
    jobs["status"] = slurm.state(cells["state"]) if "state" in cells else ""
    alive = jobs["status"].isin(slurm.ALIVE) | (
        (cells.get("end", "?") == "") & jobs["start_time_s"].notna()
    )
    jobs["duration_s"] = elapsed.where(elapsed.notna(), end - start)
    _entered(jobs, eligible, report, options)
    _resources(jobs, cells, report, name, options)
    _describe(jobs, cells)
    if submit.calendar and not submit.aware:
        report.guess(
            f"Times have no offset; they are read as {zone} (sacct prints the zone of whoever ran"
            " it)."
        )
    never = jobs["start_time_s"].isna() & jobs["submit_time_s"].notna() | (
        jobs["status"] == "pending"
    )
    never |= (jobs["status"] == "cancelled") & (jobs["duration_s"].fillna(0) <= 0) & ~alive
    jobs = report.drop(jobs, never, NEVER, jobs["status"])
    alive = alive.reindex(jobs.index)
    so_far = jobs["duration_s"].where(
        jobs["duration_s"] > 0,
        float(jobs[["start_time_s", "end_time_s"]].max().max()) - jobs["start_time_s"],
    )
    jobs.loc[alive, "end_time_s"] = np.nan
    jobs = unfinished(jobs, alive, so_far, report, options)
    raw = {
        "submit_time_s": cells["submit"],
        "duration_s": cells.get("elapsedraw", cells.get("elapsed", cells["submit"])),
    }
    calendar = submit.calendar or is_unix(submit.seconds)
    return Draft(
        jobs, report, calendar, zone if not submit.aware else "UTC", ids_repeat=True, raw=raw
    )


def _entered(jobs: pd.DataFrame, eligible: pd.Series, report: Report, options: ReadOptions) -> None:
    later = eligible > jobs["submit_time_s"] + 1
    if not later.any():
        return
    held_h = float((eligible - jobs["submit_time_s"])[later].sum()) / 3600
    if options.since == "eligible":
        reason = (
            "the job became eligible after its submission (dependency, hold or --begin): enters"
            " then"
        )
        report.alter(jobs, later, reason, (eligible - jobs["submit_time_s"]).map("{:g} s".format))
        jobs["submit_time_s"] = jobs["submit_time_s"].where(~later, eligible)
    else:
        held = (
            f"{int(later.sum()):,} jobs became eligible after their submission (dependencies, holds"
            f" or --begin: {held_h:,.0f} hours)"
        )
        report.guess(f"{held}; they enter at submission.")


def _resources(
    jobs: pd.DataFrame, cells: pd.DataFrame, report: Report, name: str, options: ReadOptions
) -> None:
    nothing = pd.Series("", index=cells.index, dtype="str")
    allocated, requested = cells.get("alloctres", nothing), cells.get("reqtres", nothing)
    nodes = (
        numbers(cells["nnodes"])
        if "nnodes" in cells
        else each_distinct(allocated, lambda tres: slurm.tres_number(tres, "node"))
    )
    gpus = each_distinct(allocated, slurm.tres_gpus)
    sources = [("AllocTRES", gpus.notna())]
    asked = each_distinct(requested, slurm.tres_gpus)
    # A field per node (AllocGRES, ReqGRES) comes last: it needs the number of nodes.
    candidates = [("ReqTRES", asked.where(gpus.isna()))]
    candidates += [
        (
            label,
            (each_distinct(cells[key], slurm.gres_gpus) * nodes.fillna(1)).where(allocated == ""),
        )
        for label, key in (("AllocGRES x nodes", "allocgres"), ("ReqGRES x nodes", "reqgres"))
        if key in cells
    ]
    for label, found in candidates:
        sources.append((label, gpus.isna() & (found > 0)))
        gpus = gpus.fillna(found)
    named = ", ".join(f"{label} ({int(rows.sum()):,})" for label, rows in sources if rows.any())
    report.guess(f"GPUs are taken from {named}." if named else "No field of this log names a GPU.")
    jobs["num_gpus"] = gpus.fillna(0.0)
    if not (jobs["num_gpus"] > 0).any() and options.cpu_jobs == "drop":
        raise TraceError(
            f"{name}: no job of this log names a GPU; the site may not account them"
            " (AccountingStorageTRES). Export AllocTRES, or keep CPU jobs on purpose."
        )
    kinds = pd.Series(allocated.unique(), dtype="str")
    types = allocated.map(dict(zip(kinds, map(slurm.tres_gpu_type, kinds), strict=True)))
    jobs["gpu_type"] = types.where(types != "")
    cpu_column = next(
        (column for column in ("ncpus", "alloccpus", "reqcpus") if column in cells), None
    )
    jobs["cpus"] = (
        numbers(cells[cpu_column])
        if cpu_column
        else each_distinct(allocated, lambda tres: slurm.tres_number(tres, "cpu"))
    )
    memory = each_distinct(allocated, slurm.tres_mem_gb)
    if "reqmem" in cells:
        memory = memory.fillna(slurm.requested_mem_gb(cells["reqmem"], nodes, jobs["cpus"]))
    jobs["mem_gb"] = memory.fillna(each_distinct(requested, slurm.tres_mem_gb))


def _describe(jobs: pd.DataFrame, cells: pd.DataFrame) -> None:
    for native, source in (("user", "user"), ("partition", "partition"), ("name", "jobname")):
        if source in cells:
            jobs[native] = cells[source]
    if "priority" in cells:
        jobs["priority"] = numbers(cells["priority"])
    limit = (
        numbers(cells["timelimitraw"]) * 60
        if "timelimitraw" in cells
        else pd.Series(np.nan, index=cells.index)
    )
    limit = limit.where(~(limit / 60).isin(slurm.NO_VALUE))
    if "timelimit" in cells:
        limit = limit.fillna(slurm.lengths_s(cells["timelimit"]))
    jobs["time_limit_s"] = limit.where(limit > 0)


SACCT: Final = Format("sacct", "Slurm accounting (sacct -P)", matches, load, SOURCES)
