from __future__ import annotations

import json

import pandas as pd

from jobtraces import ReadOptions
from tests.jobtraces.readers.account import FIXTURES, checked, reasons, row

LOG = FIXTURES / "cluster_job_log.json"
LIST = (
    b"timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-07"
    b" 01:11:39,193256.0,8,1546048.0,ee9e8c\n2017-10-06 23:27:26,60.0,4,240.0,103959\n2017-10-06"
    b" 23:27:26,60.0,4,240.0,103959\n2017-10-07 08:04:39,30.0,1,30.0,ee9e8c\n\n"
)


def test_attempts_add_up() -> None:
    got = checked(LOG)
    assert (got.fmt, got.read, got.used) == ("philly-json", 8, 4)
    first = row(got, "application_1_1")
    assert first["duration_s"] == 74 + 3600
    assert (first["submit_time_s"], first["start_time_s"], first["end_time_s"]) == (0, 30, 3900)
    assert (first["num_gpus"], first["status"], first["user"], first["vc"]) == (
        4,
        "completed",
        "u1",
        "ee9e8c",
    )
    assert got.trace.epoch == "2017-10-07T01:00:00-07:00"


def test_incomplete_attempts() -> None:
    got = checked(LOG)
    third = row(got, "application_1_3")
    assert (third["duration_s"], third["start_time_s"], third["end_time_s"]) == (
        60,
        7800,
        8700,
    )  # 03:10 and 03:25, of which one minute is whole
    assert third["status"] == "failed"
    assert reasons(got) == {
        "never started: the job has no attempt": 1,
        "still running when the trace ends": 1,
        "no attempt has both a start and an end": 1,
        "no GPU: a CPU job": 1,
        "an attempt lacks a usable start or end: not counted in the duration": 1,
        "the attempts have different GPU counts: the first count is used": 1,
    }
    seventh = row(got, "application_1_7")
    assert (seventh["num_gpus"], seventh["duration_s"]) == (1, 1200)


def test_running_jobs_can_be_cut() -> None:
    got = checked(LOG, options=ReadOptions(unfinished="cut"))
    fourth = row(got, "application_1_4")
    # From 04:00:10 PDT on 7 October to 07:50:00 PST on 5 November, the last time of the log: 29
    # days, 3:49:50 and the hour that was gained.
    assert fourth["duration_s"] == 29 * 86_400 + 3 * 3600 + 49 * 60 + 50 + 3600
    assert pd.isna(fourth["end_time_s"])


def test_the_night_the_clocks_were_set_back() -> None:
    fifth = row(checked(LOG), "application_1_5")
    assert fifth["duration_s"] == 15 * 60  # 01:55 PDT to 01:10 PST
    assert fifth["start_time_s"] - fifth["submit_time_s"] == 300


def test_another_zone() -> None:
    assert checked(LOG, options=ReadOptions(zone="UTC")).trace.epoch == "2017-10-07T01:00:00+00:00"


def test_flat_copies() -> None:
    flat = {
        "status": "Pass",
        "vc": "v",
        "jobid": "a",
        "submitted_time": "2017-10-07 01:11:39",
        "user": "u",
        "runtime_min": 10.0,
    }
    flat |= {
        "start_time": "2017-10-07 01:13:30",
        "end_time": "2017-10-07 01:23:30",
        "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu3"]}],
    }
    got = checked(json.dumps([flat]).encode())
    assert (got.fmt, got.used) == ("philly-json", 1)
    assert tuple(row(got, "a")[["num_gpus", "duration_s", "start_time_s"]]) == (2, 600, 111)


def test_list_is_sorted_and_gets_ids() -> None:
    got = checked(LIST)
    assert (got.fmt, got.read, got.used, len(got.issues)) == ("philly-csv", 4, 4, 0)
    assert list(got.trace.frame["job_id"]) == ["row-2", "row-3", "row-1", "row-4"]
    assert list(got.trace.frame["submit_time_s"]) == [0, 0, 6253, 31033]
    assert list(got.trace.frame["vc"]) == ["103959", "103959", "ee9e8c", "ee9e8c"]
    assert got.trace.epoch == "2017-10-06T23:27:26-07:00"
    assert not got.trace.has("start_time_s")
