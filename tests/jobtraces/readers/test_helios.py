from __future__ import annotations

import pandas as pd

from jobtraces import ReadOptions
from tests.jobtraces.readers.account import FIXTURES, checked, reasons, row

LOG = FIXTURES / "cluster_log.csv"


def test_log() -> None:
    got = checked(LOG)
    assert (got.fmt, got.read, got.used) == ("helios", 6, 4)
    assert reasons(got) == {
        "no GPU: a CPU job": 1,
        "still running when the trace ends": 1,
        "the duration is 0: set to 1 s": 1,
    }
    first = row(got, "410001")
    assert tuple(
        first[["submit_time_s", "start_time_s", "end_time_s", "duration_s", "num_gpus", "cpus"]]
    ) == (0, 30, 3630, 3600, 8, 64)
    assert tuple(first[["user", "vc", "status"]]) == ("u1a", "vcHvQ", "completed")
    assert list(got.trace.frame["status"]) == ["completed", "cancelled", "timeout", "node_fail"]
    assert row(got, "410003")["start_time_s"] - row(got, "410003")["submit_time_s"] == 480
    assert got.trace.epoch == "2020-04-01T00:00:10+08:00"


def test_cpu_jobs_and_cut() -> None:
    got = checked(LOG, options=ReadOptions(cpu_jobs="keep", unfinished="cut"))
    assert got.used == 6
    assert row(got, "410002")["num_gpus"] == 0
    assert (
        row(got, "410005")["duration_s"] == 1200
    )  # 00:40:40 until 01:00:40, the last instant of the log
    assert pd.isna(row(got, "410005")["end_time_s"])


def test_shuffled_and_extended_columns_give_the_same_trace() -> None:
    table = pd.read_csv(LOG, dtype=str, keep_default_na=False)
    other = table[list(table.columns[::-1])].assign(remark="x").to_csv(index=False, sep="\t")
    assert checked(other.encode()).trace.digest == checked(LOG).trace.digest


def test_job_names_of_the_lucid_variant() -> None:
    table = pd.read_csv(LOG, dtype=str, keep_default_na=False).assign(jobname="bert")
    assert set(checked(table.to_csv(index=False).encode()).trace.frame["name"]) == {"bert"}


def test_list() -> None:
    got = checked(
        b"job_id,arrival_s,service_sec,gpu_count\n406486#93,1195252.0,40.0,1\n406499#105,1196826.0,172800.0,16\n"
    )
    assert (got.fmt, got.used, got.trace.epoch) == ("helios-list", 2, "")
    assert list(got.trace.frame["submit_time_s"]) == [0, 1574]
    assert list(got.trace.frame["num_gpus"]) == [1, 16]
    assert any("172,800" in guess for guess in got.guesses)


def test_itp() -> None:
    got = checked(
        b"job_id,submission_time,duration,num_gpu\n965d744f,1932025,2429,64\nfb10987f,2000581,1532,1\n"
    )
    assert (got.fmt, got.used) == ("itp", 2)
    assert tuple(row(got, "fb10987f")[["submit_time_s", "duration_s", "num_gpus"]]) == (
        68556,
        1532,
        1,
    )
