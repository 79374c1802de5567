"""Slurm's accounting database as a table (MIT Supercloud's slurm-log.csv): Unix seconds, numbered
states and resources.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pandas as pd

from sim.readers import slurm_fields as slurm
from sim.readers.cells import each_distinct, names, numbers, text
from sim.readers.clean import unfinished
from sim.readers.format import Draft, Format, ReadOptions
from sim.readers.sniff import Sample
from sim.readers.source import Content
from sim.readers.table import pick, read_table

COLUMNS: Final = ("id_job", "state", "time_submit", "time_start", "time_end")
MORE: Final = (
    "time_eligible",
    "time_suspended",
    "tres_alloc",
    "tres_req",
    "gres_used",
    "cpus_req",
    "id_user",
    "partition",
    "priority",
    "timelimit",
)
SOURCES: Final = {
    "job_id": ("id_job",),
    "submit_time_s": ("time_submit",),
    "num_gpus": ("tres_alloc", "tres_req", "gres_used"),
    "duration_s": ("time_end",),
    "start_time_s": ("time_start",),
    "end_time_s": ("time_end",),
    "status": ("state",),
    "user": ("id_user",),
    "gpu_type": ("tres_alloc", "tres_req"),
    "cpus": ("tres_alloc", "tres_req", "cpus_req"),
    "mem_gb": ("tres_alloc", "tres_req"),
    "time_limit_s": ("timelimit",),
    "priority": ("priority",),
    "partition": ("partition",),
}
FIRST_GRES: Final = 1001
# The types are numbered by each site; these are MIT Supercloud's.
GPU_IDS: Final = {1001: "tesla", 1002: "volta"}


def matches(sample: Sample) -> bool:
    """Recognise the table by columns that no other format has."""
    return sample.kind == "text" and set(COLUMNS) <= sample.keys


def load(content: Content, options: ReadOptions) -> Draft:
    """Read the table; instants are Unix seconds, 0 = not yet."""
    cells, report = read_table(content, options, {*COLUMNS, *MORE})
    pick(cells, {column: column for column in COLUMNS}, content.name)
    start, end = (
        numbers(text(cells[column])).replace(0, np.nan) for column in ("time_start", "time_end")
    )
    jobs = pd.DataFrame(
        {
            "job_id": names(cells["id_job"]),
            "submit_time_s": numbers(text(cells["time_submit"])).replace(0, np.nan),
        }
    )
    jobs = jobs.assign(start_time_s=start, end_time_s=end, status=_states(cells["state"]))
    if "time_eligible" in cells and options.since == "eligible":
        eligible = numbers(text(cells["time_eligible"]))
        later = eligible.between(jobs["submit_time_s"] + 1, float(2**32 - 3))
        report.alter(
            jobs,
            later,
            "the job became eligible after its submission (dependency, hold or --begin): enters"
            " then",
        )
        jobs["submit_time_s"] = jobs["submit_time_s"].where(~later, eligible)
    suspended = numbers(cells["time_suspended"]).fillna(0) if "time_suspended" in cells else 0.0
    held = end - start
    jobs["duration_s"] = (
        held - suspended.where(suspended < held, 0.0) if isinstance(suspended, pd.Series) else held
    )
    _resources(jobs, cells)
    report.guess(
        f"GPUs are resources {FIRST_GRES} ({GPU_IDS[1001]}) and {FIRST_GRES + 1} ({GPU_IDS[1002]})"
        " of the job, numbered as at MIT Supercloud."
    )
    alive = jobs["status"].isin(slurm.ALIVE) | (start.notna() & end.isna())
    never = (
        start.isna()
        | (jobs["status"] == "pending")
        | ((jobs["status"] == "cancelled") & (held <= 0))
    )
    jobs = report.drop(
        jobs, never & jobs["submit_time_s"].notna(), "the job never started", jobs["status"]
    )
    so_far = float(jobs[["start_time_s", "end_time_s"]].max().max()) - jobs["start_time_s"]
    jobs = unfinished(jobs, alive.reindex(jobs.index), so_far, report, options)
    return Draft(
        jobs,
        report,
        calendar=True,
        zone=options.zone or "UTC",
        ids_repeat=True,
        raw={"submit_time_s": cells["time_submit"]},
    )


def _states(values: pd.Series) -> pd.Series:
    codes = numbers(values)
    low = codes % 256  # the upper bits are flags
    known = low.map(dict(enumerate(slurm.NUMBERED_STATES)))
    return known.where(codes.notna() & known.notna(), slurm.state(text(values)))


def _resources(jobs: pd.DataFrame, cells: pd.DataFrame) -> None:
    nothing = pd.Series("", index=cells.index, dtype="str")
    allocated, requested = (
        text(cells[key]) if key in cells else nothing for key in ("tres_alloc", "tres_req")
    )
    listed = allocated.where(allocated != "", requested)
    gpus = each_distinct(listed, _gpus)
    if "gres_used" in cells:
        gpus = gpus.fillna(each_distinct(text(cells["gres_used"]), slurm.gres_gpus))
    jobs["num_gpus"] = gpus.fillna(0.0)
    kinds = pd.Series(listed.unique(), dtype="str")
    types = listed.map(dict(zip(kinds, map(_gpu_type, kinds), strict=True)))
    jobs["gpu_type"] = types.where((types != "") & (jobs["num_gpus"] > 0))
    jobs["cpus"] = each_distinct(listed, lambda tres: slurm.tres_number(tres, "1"))
    if "cpus_req" in cells:
        jobs["cpus"] = jobs["cpus"].fillna(numbers(cells["cpus_req"]))
    jobs["mem_gb"] = each_distinct(listed, lambda tres: slurm.tres_number(tres, "2")) / 1024
    for native, source in (("user", "id_user"), ("partition", "partition")):
        if source in cells:
            jobs[native] = names(cells[source])
    if "priority" in cells:
        jobs["priority"] = numbers(cells["priority"])
    if "timelimit" in cells:
        minutes = numbers(text(cells["timelimit"]))
        jobs["time_limit_s"] = (minutes * 60).where(~minutes.isin(slurm.NO_VALUE) & (minutes > 0))


def _gpu_counts(resources: str) -> dict[int, float]:
    pairs = re.findall(r"(?:^|,)(\d{1,9})=(\d+)", resources)
    return {int(key): float(count) for key, count in pairs if int(key) in GPU_IDS}


def _gpus(resources: str) -> float:
    counts = list(_gpu_counts(resources).values())
    if not counts:
        return np.nan
    # Sites that list a total beside a type repeat the same number; two types on one job differ or
    # are not seen.
    return counts[0] if len(set(counts)) == 1 else sum(counts)


def _gpu_type(resources: str) -> str:
    counts = _gpu_counts(resources)
    return GPU_IDS[max(counts, key=lambda key: (counts[key], key))] if counts else ""


SLURM_DB: Final = Format("slurm-db", "Slurm database dump (slurm-log.csv)", matches, load, SOURCES)
