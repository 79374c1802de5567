"""The published files themselves, where they lie beside the checkout."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jobtraces import Import, ReadOptions
from sim.errors import TraceError
from tests.jobtraces.readers.account import checked, reasons, row
from tests.shared import shared

# File, format, rows read, rows used; CPU jobs are kept where a log has hardly any other.
FILES = [
    ("philly_cluster_job_log/cluster_job_log_rebuilt.json", "philly-json", 2949, 2949),
    ("philly_cluster_job_log/edge_cases.json", "philly-json", 3, 2),
    ("philly_flat_json/sampled_jobs.json", "philly-json", 2949, 2949),
    ("philly_pollux_csv/philly.csv", "philly-csv", 7554, 7554),
    ("helios_venus_gpu/helios_trace.csv", "helios-list", 38487, 38487),
    ("slurm_sacct_xdmod/phillips.log", "sacct", 2000, 2000),
    ("slurm_sacct_xdmod/pozidriv_selected.log", "sacct", 60, 7),
    ("slurm_sacct_xdmod/unit_accounting-logs-with-gpu-gres.log", "sacct", 24, 24),
    ("slurm_sacct_xdmod/unit_accounting-logs-with-job-arrays.log", "sacct", 6, 6),
    ("slurm_sacct_xdmod/unit_accounting-logs.log", "sacct", 4, 4),
    ("slurm_sacct_xdmod/unit_non-ended-job-state.log", "sacct", 2, 1),
    ("slurm_sacct_xdmod/unit_utf8-multibyte-chars.log", "sacct", 1, 1),
    ("slurm_db_supercloud/slurm-log.csv", "slurm-db", 3000, 3000),
    ("microsoft_itp/cluster01.csv", "itp", 1595, 1595),
    ("microsoft_itp/cluster03.csv", "itp", 3011, 3011),
    ("microsoft_itp/cluster06.csv", "itp", 2396, 2396),
    ("microsoft_itp/cluster10.csv", "itp", 260, 260),
]
KEEP = ReadOptions(cpu_jobs="keep", unfinished="cut")


def real(name: str, **choices: object) -> Import:
    return checked(shared(f"traces/{name}"), options=ReadOptions(**choices))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "fmt", "read", "used"), FILES, ids=[name for name, *_ in FILES])
def test_counts(name: str, fmt: str, read: int, used: int) -> None:
    got = checked(shared(f"traces/{name}"), options=KEEP)
    assert (got.fmt, got.read, got.used) == (fmt, read, used)


def test_philly_json() -> None:
    got = real("philly_cluster_job_log/cluster_job_log_rebuilt.json")
    job = row(got, "application_1506638472019_14199")
    # 2017-10-07 01:13:30 to 2017-10-09 06:53:12, submitted at 01:11:39.
    assert (job["num_gpus"], job["duration_s"], job["start_time_s"] - job["submit_time_s"]) == (
        8,
        193_182,
        111,
    )
    assert (job["vc"], job["status"], job["user"]) == ("ee9e8c", "completed", "ce2f4c")
    flat = real("philly_flat_json/sampled_jobs.json")
    assert flat.trace.digest == got.trace.digest


def test_philly_edge_cases() -> None:
    got = real("philly_cluster_job_log/edge_cases.json")
    assert row(got, "application_1506638472019_14199")["duration_s"] == 74 + 193_182
    assert row(got, "application_1506638472019_16565")["duration_s"] == 43
    assert reasons(got) == {
        "never started: the job has no attempt": 1,
        "an attempt lacks a usable start or end: not counted in the duration": 1,
    }


def test_philly_list_agrees_with_the_attempts() -> None:
    job = row(real("philly_pollux_csv/philly.csv"), "row-1")
    attempts = row(
        real("philly_cluster_job_log/edge_cases.json"), "application_1506638472019_14199"
    )
    assert job["duration_s"] == attempts["duration_s"] == 193_256
    assert job["num_gpus"] == attempts["num_gpus"] == 8


def test_philly_list() -> None:
    frame = real("philly_pollux_csv/philly.csv").trace.frame
    first = frame.iloc[[0, 1, 2]]
    assert list(first["job_id"]) == ["row-3418", "row-3304", "row-5163"]
    assert list(first["duration_s"]) == [2_240_194, 1_780_406, 2_655_194]
    assert np.all(np.diff(frame["submit_time_s"]) >= 0)
    assert frame["vc"].nunique() == 11


def test_helios_list() -> None:
    frame = real("helios_venus_gpu/helios_trace.csv").trace.frame
    assert list(frame["job_id"][:4]) == ["406486#93", "406489#96", "406490#97", "406492#99"]
    assert list(frame["submit_time_s"][:4]) == [0, 391, 431, 556]
    assert list(frame["duration_s"][:6]) == [40, 4, 839, 40, 122_621, 35]
    assert list(frame["num_gpus"][:9]) == [1, 1, 1, 1, 1, 1, 16, 4, 4]


def test_sacct_phillips() -> None:
    got = real("slurm_sacct_xdmod/phillips.log", cpu_jobs="keep")
    job = row(got, "163485")
    assert tuple(job[["num_gpus", "cpus", "duration_s", "status"]]) == (2, 12, 912_426, "cancelled")
    assert (job["mem_gb"], job["time_limit_s"]) == (31_000 / 1024, 37 * 86_400 + 14 * 3600)
    job = row(got, "165381")
    assert tuple(job[["num_gpus", "cpus", "mem_gb", "duration_s", "status", "partition"]]) == (
        0,
        64,
        62.5,
        432_026,
        "timeout",
        "crumpet",
    )
    only = real("slurm_sacct_xdmod/phillips.log")
    assert (only.used, reasons(only)) == (1, {"no GPU: a CPU job": 1999})


def test_sacct_pozidriv() -> None:
    got = real("slurm_sacct_xdmod/pozidriv_selected.log", cpu_jobs="keep")
    assert reasons(got)["the job never started"] == 53  # cancelled with start = end
    assert (
        got.trace.frame["status"]
        .isin(["timeout", "preempted", "cancelled", "completed", "failed"])
        .all()
    )
    with pytest.raises(TraceError, match="names a GPU"):
        real("slurm_sacct_xdmod/pozidriv_selected.log")


def test_sacct_unit_files() -> None:
    got = real("slurm_sacct_xdmod/unit_accounting-logs-with-gpu-gres.log", cpu_jobs="keep")
    assert list(got.trace.frame["num_gpus"]) == [
        0,
        1,
        2,
        16,
        20,
        128,
        0,
        1,
        2,
        32,
        4,
        4,
        4,
        0,
        0,
        2,
        2,
        2,
        2,
        2,
        2,
        2,
        2,
        2,
    ]
    assert list(got.trace.frame["job_id"][:3]) == ["1", "1#2", "1#3"]
    arrays = real("slurm_sacct_xdmod/unit_accounting-logs-with-job-arrays.log", cpu_jobs="keep")
    assert list(arrays.trace.frame["job_id"][:2]) == ["4103947_100", "4103947_[1-3]"]
    alive = real(
        "slurm_sacct_xdmod/unit_non-ended-job-state.log", cpu_jobs="keep", unfinished="cut"
    )
    assert list(alive.trace.frame["duration_s"]) == [22 * 3600 + 32 * 60 + 22]
    letters = real("slurm_sacct_xdmod/unit_utf8-multibyte-chars.log", cpu_jobs="keep")
    assert letters.trace.frame["name"].iloc[0] == "aàb"


def test_slurm_database() -> None:
    got = real("slurm_db_supercloud/slurm-log.csv", cpu_jobs="keep")
    job = got.trace.frame.iloc[0]
    assert tuple(job[["job_id", "cpus", "duration_s", "start_time_s", "status"]]) == (
        "16051200000000",
        20,
        307,
        1609808470 - 1609535912,
        "completed",
    )
    assert math.isclose(job["mem_gb"], 170_000 / 1024)
    assert reasons(got) == {"the id is repeated (a requeue or a shortened id): made unique": 7}
    assert got.trace.frame["status"].value_counts().to_dict() == {
        "completed": 1570,
        "cancelled": 770,
        "timeout": 345,
        "failed": 299,
        "node_fail": 12,
        "out_of_memory": 4,
    }


def test_itp() -> None:
    frame = real("microsoft_itp/cluster10.csv").trace.frame
    assert tuple(frame.iloc[0][["job_id", "duration_s", "num_gpus"]]) == (
        "5dc7d9cd-c300-9a4f-c3cd-dc2cc0935548",
        604,
        16,
    )
    assert list(frame["submit_time_s"][:3]) == [0, 105_038, 443_200]
