"""Microsoft Philly ``cluster_job_log``: jobs with every attempt, and the flat copies that keep only
the last one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from sim.errors import TraceError
from sim.readers.cells import instants, text
from sim.readers.clean import unfinished
from sim.readers.delimited import check_length
from sim.readers.format import Draft, Format, ReadOptions, size_text
from sim.readers.report import Report
from sim.readers.sniff import Sample
from sim.readers.source import Content
from sim.readers.table import check_rows

ZONE: Final = "America/Los_Angeles"
STATUS: Final = {"Pass": "completed", "Killed": "cancelled", "Failed": "failed"}


def matches(sample: Sample) -> bool:
    """Recognise the log by its keys."""
    return (
        sample.kind == "json"
        and {"jobid", "vc", "submitted_time"} <= sample.keys
        and bool({"attempts", "detail"} & sample.keys)
    )


def load(content: Content, options: ReadOptions) -> Draft:
    """Read the log: held time = sum over the attempts that have a start and an end, GPUs = those of
    the first attempt that names machines.

    Parameters
    ----------
    content : Content
        A JSON array.
    options : ReadOptions
        Zone and `unfinished`.

    Raises
    ------
    TraceError
        If it is not valid JSON or not an array of jobs.
    """
    items = _items(content, options)
    check_rows(len(items), content.name, options)
    index = pd.RangeIndex(1, len(items) + 1)
    report = Report(len(items))
    report.guesses.extend(content.guesses)
    zone = options.zone or ZONE
    jobs = pd.DataFrame(
        {
            native: text(
                pd.Series([_cell(item.get(key)) for item in items], index=index, dtype="str")
            )
            for native, key in _KEYS.items()
        },
        index=index,
    )
    for native in jobs:
        check_length(jobs[native], _KEYS[str(native)], content.name)
    submitted = jobs.pop("submitted")
    submit = instants(submitted, zone, where=f"{content.name}, submitted_time")
    jobs["submit_time_s"] = submit.seconds
    jobs["status"] = jobs["status"].map(STATUS).fillna(jobs["status"].str.lower())
    attempts = _attempts(items, jobs, zone, content.name)
    jobs = _hold(jobs, attempts, report, options)
    if not submit.aware:
        report.guess(
            f"Times have no offset; they are read as {zone} (the utilisation files of this trace"
            " carry PST and PDT)."
        )
    report.guess(
        "GPUs are counted on the machines of the first attempt; the duration adds up all attempts."
    )
    return Draft(
        jobs,
        report,
        calendar=submit.calendar,
        zone="UTC" if submit.aware else zone,
        raw={"submit_time_s": submitted},
        attempts=True,
    )


_KEYS: Final[Mapping[str, str]] = {
    "job_id": "jobid",
    "submitted": "submitted_time",
    "status": "status",
    "user": "user",
    "vc": "vc",
}


def _items(content: Content, options: ReadOptions) -> list[dict[str, Any]]:
    if content.sample.kind != "json":
        raise TraceError(f"{content.name}: this is not JSON. Choose another format.")
    _refuse_dense(content, options)
    try:
        parsed = json.loads(content.text)
    except RecursionError as error:
        raise TraceError(
            f"{content.name}: the JSON is nested too deeply to be a list of jobs. Choose another"
            " file."
        ) from error
    except ValueError as error:
        raise TraceError(
            f"{content.name}: the JSON is not complete or not valid ({error}). Download it again."
        ) from error
    items = parsed if isinstance(parsed, list) else [parsed]
    if not all(isinstance(item, dict) for item in items):
        raise TraceError(f"{content.name}: the JSON is not a list of jobs. Choose another file.")
    return items


def _refuse_dense(content: Content, options: ReadOptions) -> None:
    # Bytes that Python takes for tables, lists and values, however little text they are written
    # with.
    data = content.data
    unfolded = (
        240 * data.count(b"{") + 72 * data.count(b"[") + 64 * data.count(b",") + 2 * len(data)
    )
    if unfolded > 3 * options.max_bytes:
        limit, size = size_text(3 * options.max_bytes), size_text(unfolded)
        raise TraceError(
            f"{content.name}: the JSON would take {size} of memory, more than the limit of {limit}."
            " Cut a window out of it."
        )


def _cell(value: object) -> str:
    # JSON can name half of a character, which no text can hold.
    return "" if value is None else str(value).encode("utf-8", "replace").decode()


def _attempts(
    items: Sequence[Mapping[str, Any]], jobs: pd.DataFrame, zone: str, name: str
) -> pd.DataFrame:
    rows: list[tuple[int, str, str, int]] = []
    for row, item in enumerate(items, 1):
        listed = item.get("attempts", [item] if "detail" in item else [])
        known = (
            [attempt for attempt in listed if isinstance(attempt, dict)]
            if isinstance(listed, list)
            else []
        )
        rows.extend(
            (
                row,
                _cell(attempt.get("start_time")),
                _cell(attempt.get("end_time")),
                _gpus(attempt.get("detail")),
            )
            for attempt in known
        )
    table = pd.DataFrame(rows, columns=["row", "start", "end", "gpus"])
    table = table.astype({"row": np.int64, "start": "str", "end": "str", "gpus": np.int64})
    submitted = table["row"].map(jobs["submit_time_s"])
    table["start_s"] = instants(
        table["start"], zone, where=f"{name}, start_time", not_before=submitted
    ).seconds
    table["end_s"] = instants(
        table["end"], zone, where=f"{name}, end_time", not_before=table["start_s"]
    ).seconds
    return table


def _gpus(detail: object) -> int:
    machines = detail if isinstance(detail, list) else []
    return sum(
        len(machine["gpus"])
        for machine in machines
        if isinstance(machine, dict) and isinstance(machine.get("gpus"), list)
    )


def _hold(
    jobs: pd.DataFrame, attempts: pd.DataFrame, report: Report, options: ReadOptions
) -> pd.DataFrame:
    by_job = attempts.groupby("row", sort=True)
    held = (attempts["end_s"] - attempts["start_s"]).where(lambda run: run >= 0)
    tried = pd.Series(jobs.index.isin(attempts["row"]), index=jobs.index)
    jobs = report.drop(jobs, ~tried, "never started: the job has no attempt", jobs["status"])
    jobs["duration_s"] = held.groupby(attempts["row"]).sum(min_count=1).reindex(jobs.index)
    jobs["start_time_s"] = by_job["start_s"].min().reindex(jobs.index)
    jobs["end_time_s"] = by_job["end_s"].max().reindex(jobs.index)
    placed = attempts[attempts["gpus"] > 0].groupby("row")["gpus"]
    jobs["num_gpus"] = placed.first().reindex(jobs.index).fillna(0).astype(np.float64)
    last = attempts.groupby("row").tail(1).set_index("row")
    running = (last["start_s"].notna() & last["end_s"].isna()).reindex(jobs.index)
    snapshot = float(attempts[["start_s", "end_s"]].max().max())
    so_far = jobs["duration_s"].fillna(0) + snapshot - last["start_s"].reindex(jobs.index)
    jobs.loc[running, "end_time_s"] = np.nan
    differ = (placed.nunique() > 1).reindex(jobs.index, fill_value=False)
    report.alter(
        jobs,
        differ,
        "the attempts have different GPU counts: the first is taken",
        jobs["num_gpus"].map("{:g} GPUs".format),
    )
    is_last = ~attempts["row"].duplicated(keep="last")
    partial = held.isna() & ~(is_last & attempts["row"].map(running).astype(bool))
    lost = partial.groupby(attempts["row"]).sum().reindex(jobs.index)
    jobs = unfinished(jobs, running, so_far, report, options)
    lost = lost.reindex(jobs.index)
    none = jobs["duration_s"].isna()
    jobs = report.drop(jobs, none, "no attempt has both a start and an end", jobs["status"])
    part = (lost > 0).reindex(jobs.index)
    report.alter(
        jobs,
        part,
        "an attempt lacks a usable start or end: left out of the duration",
        lost.map("{:.0f} attempts".format),
    )
    return jobs


PHILLY_JSON: Final = Format("philly-json", "Microsoft Philly (cluster_job_log)", matches, load)
