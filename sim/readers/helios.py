"""SenseTime Helios ``cluster_log.csv``: Slurm jobs with their waiting, local times of China."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import pandas as pd

from sim.readers.cells import instants, names, numbers, text
from sim.readers.clean import unfinished
from sim.readers.format import Draft, Format, ReadOptions
from sim.readers.slurm_fields import ALIVE, state
from sim.readers.sniff import Sample
from sim.readers.source import Content
from sim.readers.table import ignored, pick, read_table

ZONE: Final = "Asia/Shanghai"
COLUMNS: Final = MappingProxyType(
    {
        "job_id": "job_id",
        "submit_time_s": "submit_time",
        "num_gpus": "gpu_num",
        "duration_s": "duration",
        "start_time_s": "start_time",
        "end_time_s": "end_time",
        "status": "state",
        "user": "user",
        "vc": "vc",
        "cpus": "cpu_num",
    }
)


def matches(sample: Sample) -> bool:
    """Recognise the log by its columns."""
    return sample.kind == "text" and set(COLUMNS.values()) <= sample.keys


def load(content: Content, options: ReadOptions) -> Draft:
    """Read the log; a job's GPUs are those of all its nodes together."""
    frame, report = read_table(content, options, {*COLUMNS.values(), "jobname"})
    cells = pick(frame, COLUMNS, content.name)
    columns = dict(COLUMNS)
    if "jobname" in frame:
        cells["name"], columns["name"] = frame["jobname"], "jobname"
    ignored(frame, columns, report)
    zone = options.zone or ZONE
    submit = instants(cells["submit_time_s"], zone, where=f"{content.name}, column submit_time")
    start = instants(
        cells["start_time_s"],
        zone,
        where=f"{content.name}, column start_time",
        not_before=submit.seconds,
    )
    end = instants(
        cells["end_time_s"],
        zone,
        where=f"{content.name}, column end_time",
        not_before=start.seconds,
    )
    jobs = pd.DataFrame(
        {
            "job_id": names(cells["job_id"]),
            "submit_time_s": submit.seconds,
            "start_time_s": start.seconds,
            "end_time_s": end.seconds,
        }
    )
    jobs["num_gpus"], jobs["cpus"] = numbers(cells["num_gpus"]), numbers(cells["cpus"])
    recorded = numbers(cells["duration_s"])
    jobs["duration_s"] = recorded.fillna(end.seconds - start.seconds)
    jobs["status"] = state(text(cells["status"]))
    for column in ("user", "vc", "name"):
        if column in cells:
            jobs[column] = text(cells[column])
    if submit.calendar and not submit.aware:
        report.guess(f"Times have no offset; they are read as {zone}.")
    never = (
        jobs["start_time_s"].isna() & jobs["submit_time_s"].notna() & ~(jobs["duration_s"] > 0)
    ) | (jobs["status"] == "pending")
    jobs = report.drop(jobs, never, "the job never started", jobs["status"])
    alive = jobs["status"].isin(ALIVE)
    so_far = float(jobs[["start_time_s", "end_time_s"]].max().max()) - jobs["start_time_s"]
    jobs = unfinished(jobs, alive, so_far, report, options)
    raw = {key: cells[key] for key in ("submit_time_s", "num_gpus", "duration_s")}
    return Draft(jobs, report, submit.calendar, zone if not submit.aware else "UTC", raw=raw)


SOURCES: Final = {native: (source,) for native, source in [*COLUMNS.items(), ("name", "jobname")]}
HELIOS: Final = Format("helios", "SenseTime Helios (cluster_log.csv)", matches, load, SOURCES)
