from __future__ import annotations

import math

import pandas as pd
import pytest

from sim.readers import ReadOptions, peek
from sim.readers import slurm_fields as slurm
from tests.sim.readers.account import FIXTURES, checked, reasons, row

SACCT = FIXTURES / "sacct.txt"
DB = FIXTURES / "slurm-log.csv"


def test_sacct_with_header() -> None:
    got = checked(SACCT)
    assert (got.fmt, got.read) == ("sacct", 11)
    assert list(got.trace.frame["job_id"]) == ["81234", "81240_4", "81251", "81270", "81270#2"]
    assert reasons(got) == {
        "a step of a job, not a job": 2,
        "the job never started": 2,
        "still running when the trace ends": 1,
        "no GPU: a CPU job": 1,
        "the id occurs again (a requeue or a shortened id): made unique": 1,
    }
    big = row(got, "81234")
    assert tuple(big[["num_gpus", "duration_s", "time_limit_s", "cpus", "mem_gb", "priority"]]) == (
        8,
        129603,
        2160 * 60,
        128,
        960,
        1042,
    )
    assert tuple(big[["gpu_type", "user", "partition", "status", "name"]]) == (
        "a100",
        "ada",
        "gpu",
        "timeout",
        "train|resnet|v2",
    )
    assert (big["submit_time_s"], big["start_time_s"]) == (0, 27 * 60 + 18)
    assert got.trace.epoch == "2025-01-06T09:12:44+00:00"


def test_sacct_array_row_with_types_only() -> None:
    task = row(checked(SACCT), "81240_4")
    assert (task["num_gpus"], task["gpu_type"]) == (3, "a100_3g.20gb")
    assert task["mem_gb"] == pytest.approx(4000 * 8 / 1024)  # per CPU
    assert math.isnan(task["time_limit_s"])


def test_sacct_eligible_instead_of_submit() -> None:
    assert any(
        "2 jobs became eligible after their submission" in guess for guess in checked(SACCT).guesses
    )
    moved = checked(SACCT, options=ReadOptions(since="eligible"))
    assert row(moved, "81240_4")["start_time_s"] - row(moved, "81240_4")["submit_time_s"] == 10
    assert sum(count for reason, count in reasons(moved).items() if "eligible" in reason) == 2


def test_sacct_running_jobs_can_be_cut() -> None:
    got = checked(SACCT, options=ReadOptions(unfinished="cut"))
    assert row(got, "81260")["duration_s"] == 5400


@pytest.mark.parametrize(
    "columns",
    [
        ["JobID", "Submit", "Start", "End", "AllocTRES"],
        ["AllocTRES", "State", "Elapsed", "Start", "Submit", "JobIDRaw"],
    ],
)
def test_sacct_any_subset_of_columns(columns: list[str]) -> None:
    cells = {
        "JobID": "5",
        "JobIDRaw": "5",
        "Submit": "2025-01-06T09:00:00",
        "Start": "2025-01-06T09:00:10",
        "End": "2025-01-06T09:10:10",
        "State": "FAILED",
    }
    cells |= {"AllocTRES": "cpu=4,gres/gpu=2,mem=2048M,node=1", "Elapsed": "10:00"}
    text = "|".join(columns) + "\n" + "|".join(cells[column] for column in columns) + "\n"
    job = row(checked(text.encode()), "5")
    assert tuple(job[["num_gpus", "duration_s", "start_time_s", "cpus", "mem_gb"]]) == (
        2,
        600,
        10,
        4,
        2,
    )


def test_sacct_trailing_bars_of_option_p() -> None:
    text = SACCT.read_text(encoding="utf-8").replace("\n", "|\n")
    assert checked(text.encode()).trace.digest == checked(SACCT).trace.digest


def test_sacct_with_crlf_and_bom() -> None:
    data = b"\xef\xbb\xbf" + SACCT.read_bytes().replace(b"\n", b"\r\n")
    assert checked(data).trace.digest == checked(SACCT).trace.digest


def test_sacct_without_header() -> None:
    got = checked(FIXTURES / "sacct_26.log")
    assert (got.fmt, got.read, got.used) == ("sacct", 3, 2)
    first, second = row(got, "163485"), row(got, "163486")
    assert tuple(first[["num_gpus", "duration_s", "time_limit_s", "status", "name"]]) == (
        2,
        912426,
        (37 * 24 + 14) * 3600,
        "cancelled",
        "first|with bar",
    )
    assert first["mem_gb"] == pytest.approx(31000 / 1024)
    assert second["num_gpus"] == 4  # ReqTRES where AllocTRES is empty
    assert second["mem_gb"] == pytest.approx(3000 * 24 / 1024)  # the top bit marks memory per CPU
    assert math.isnan(second["time_limit_s"])
    assert reasons(got) == {"the job never started": 1}


def test_sacct_older_layout_with_reqgres() -> None:
    got = checked(FIXTURES / "sacct_27.log")
    assert (got.read, got.used) == (3, 2)
    assert row(got, "7")["num_gpus"] == 4  # 2 per node on 2 nodes
    assert row(got, "8")["num_gpus"] == 4  # the total of AllocTRES
    assert any("ReqGRES x nodes (1)" in guess for guess in got.guesses)


def test_sacct_zone() -> None:
    assert (
        checked(SACCT, options=ReadOptions(zone="Europe/Berlin")).trace.epoch
        == "2025-01-06T09:12:44+01:00"
    )


def test_peek_at_records_without_header() -> None:
    seen = peek(FIXTURES / "sacct_26.log")
    assert (seen.fmt, seen.columns) == ("sacct", ())


def test_database() -> None:
    got = checked(DB)
    assert (got.fmt, got.read, got.used) == ("slurm-db", 6, 3)
    assert list(got.trace.frame["job_id"]) == ["16051200000000", "16051200000000#2", "8"]
    first, second, last = (row(got, job) for job in ("16051200000000", "16051200000000#2", "8"))
    assert tuple(
        first[["num_gpus", "gpu_type", "duration_s", "start_time_s", "cpus", "status"]]
    ) == (2, "volta", 307, 272558, 20, "completed")
    assert math.isnan(first["time_limit_s"])
    assert tuple(second[["num_gpus", "gpu_type", "time_limit_s", "duration_s", "status"]]) == (
        1,
        "tesla",
        86400,
        1,
        "failed",
    )
    assert (last["num_gpus"], last["status"]) == (2, "timeout")  # a total beside a type counts once
    assert pd.Timestamp(got.trace.epoch) == pd.Timestamp(1609535912, unit="s", tz="UTC")
    assert reasons(got) == {
        "the job never started": 1,
        "still running when the trace ends": 1,
        "no GPU: a CPU job": 1,
        "the duration is 0: taken as 1 s": 1,
        "the id occurs again (a requeue or a shortened id): made unique": 1,
    }


def test_database_cut_and_eligible() -> None:
    got = checked(DB, options=ReadOptions(unfinished="cut", since="eligible"))
    assert row(got, "6")["duration_s"] == 1609808777 - 1609808400
    assert (
        row(got, "8")["submit_time_s"] - row(got, "16051200000000")["submit_time_s"]
        == 1609536500 - 1609535912
    )


@pytest.mark.parametrize(
    ("tres", "gpus", "kind"),
    [
        ("", None, ""),
        ("billing=1,cpu=1,mem=1000M,node=1", None, ""),
        ("billing=10,cpu=10,gres/gpu=4,mem=374000M,node=2", 4, ""),
        ("gres/gpu:a100=4,gres/gpu=4", 4, "a100"),
        ("gres/gpu:volta=2,mem=125G,node=1", 2, "volta"),
        ("gres/gpu:h100-80=1,gres/gpu:a100=3", 4, "a100"),
        ("gres/gpumem=40G", None, ""),
    ],
)
def test_tres(tres: str, gpus: float | None, kind: str) -> None:
    found = slurm.tres_gpus(tres)
    assert math.isnan(found) if gpus is None else found == gpus
    assert slurm.tres_gpu_type(tres) == kind


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:V100:2", 2),
        ("gpu:P100:2(IDX:0-1)", 2),
        ("hbm:0,gpu:4,bandwidth:4G", 4),
        ("gpu:0(IDX:N/A)", 0),
        ("hbm:0,gpu:P100:2(IDX:1,3)", 2),
        ("gpu", 1),
        ("gpu:a100", 1),
        ("hbm:0", None),
    ],
)
def test_gres(gres: str, gpus: float | None) -> None:
    found = slurm.gres_gpus(gres)
    assert math.isnan(found) if gpus is None else found == gpus


@pytest.mark.parametrize(
    ("clock", "seconds"),
    [
        ("00:00:24", 24),
        ("3-00:00:00", 259200),
        ("10-13:27:06", 912426),
        ("05:07", 307),
        ("00:01.500", 1.5),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("", None),
    ],
)
def test_lengths(clock: str, seconds: float | None) -> None:
    found = slurm.length_s(clock)
    assert math.isnan(found) if seconds is None else found == seconds


@pytest.mark.parametrize(
    ("tres", "gb"),
    [
        ("mem=31000M", 31000 / 1024),
        ("cpu=1,mem=62.50G", 62.5),
        ("mem=1T,node=1", 1024),
        ("mem=2048", 2),
        ("mem=1048576K", 1),
    ],
)
def test_memory(tres: str, gb: float) -> None:
    assert slurm.tres_mem_gb(tres) == pytest.approx(gb)


def test_states() -> None:
    words = pd.Series(
        ["CANCELLED by 380693", "CANCELLED+", "OUT_OF_MEMORY", "COMPLETED", "", "Odd"]
    )
    assert list(slurm.state(words)) == [
        "cancelled",
        "cancelled",
        "out_of_memory",
        "completed",
        "",
        "odd",
    ]


def test_counts_of_hundreds_of_digits_are_infinite_and_no_error() -> None:
    many = "9" * 400
    assert slurm.gres_gpus(f"gpu:{many}") == float("inf")
    assert slurm.tres_gpus(f"gres/gpu:a100={many},gres/gpu:t4=2") == float("inf")
    assert slurm.tres_gpu_type(f"gres/gpu:t4=2,gres/gpu:a100={many}") == "a100"
