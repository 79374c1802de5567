from __future__ import annotations

import math

import pandas as pd
import pytest

from jobtraces import ReadOptions, peek, read
from sim.errors import TraceError
from tests.jobtraces.readers.account import FIXTURES, checked, reasons, row

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
        "the id is repeated (a requeue or a shortened id): made unique": 1,
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


def test_layouts_without_qos_and_with_trailing_bars() -> None:
    lines = (FIXTURES / "sacct_26.log").read_text(encoding="utf-8").splitlines()
    bars = "\n".join(f"{line}|" for line in lines)
    assert checked(bars.encode()).trace.digest == checked(FIXTURES / "sacct_26.log").trace.digest
    older = "\n".join("|".join([*line.split("|")[:4], *line.split("|")[5:]]) for line in lines)
    got = checked(older.encode())
    assert (got.fmt, got.used) == ("sacct", 2)
    assert "qos" not in got.trace.frame
    assert row(got, "163485")["name"] == "first|with bar"


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
        "the duration is 0: set to 1 s": 1,
        "the id is repeated (a requeue or a shortened id): made unique": 1,
    }


def test_database_cut_and_eligible() -> None:
    got = checked(DB, options=ReadOptions(unfinished="cut", since="eligible"))
    assert row(got, "6")["duration_s"] == 1609808777 - 1609808400
    assert (
        row(got, "8")["submit_time_s"] - row(got, "16051200000000")["submit_time_s"]
        == 1609536500 - 1609535912
    )


FIXED = """\
JobID           JobName              Submit               Start                 End      State  ReqTRES            AllocTRES
------------ ---------- ------------------- ------------------- ------------------- ---------- -------- --------------------
12                train 2025-01-06T09:00:00 2025-01-06T09:10:00 2025-01-06T09:40:00  COMPLETED             cpu=4,gres/gpu=2
12.batch          batch 2025-01-06T09:10:00 2025-01-06T09:10:00 2025-01-06T09:40:00  COMPLETED             cpu=4,gres/gpu=2
13           a very lo+ 2025-01-06T09:05:00 2025-01-06T09:20:00 2025-01-06T09:50:00 CANCELLED+          billing=16,gres/gpu+
"""  # noqa: E501


def test_columns_of_fixed_width() -> None:
    got = checked(FIXED.encode())
    assert (got.fmt, got.read, got.used) == ("sacct", 3, 1)
    assert tuple(row(got, "12")[["num_gpus", "duration_s", "name"]]) == (2, 1800, "train")
    # What is cut off says nothing of GPUs: it must not become a job without one.
    assert reasons(got) == {
        "a step of a job, not a job": 1,
        "the resources are truncated: print them in full with sacct -P": 1,
    }
    assert "Columns are split at the line of dashes below the header." in got.guesses
    assert any("truncated" in warning and "alloctres (1)" in warning for warning in got.warnings)


def test_requeues_can_be_one_job() -> None:
    apart = checked(SACCT)
    assert (apart.used, apart.merged) == (5, 0)
    assert [offer.id for offer in apart.offers] == ["requeues"]
    assert [offer.text for offer in apart.offers] == list(apart.warnings)
    assert apart.warnings[0].startswith("1 records are of requeued jobs")
    got = checked(SACCT, options=ReadOptions(answers={"requeues": "merge"}))
    assert (got.read, got.used, got.dropped, got.merged) == (11, 4, 6, 1)
    job = row(got, "81270")
    first = row(got, "81234")["submit_time_s"]
    assert tuple(job[["duration_s", "num_gpus", "status"]]) == (2400, 2, "completed")
    hour = 3600
    began = (14 - 9) * hour - 12 * 60 - 44 + first
    assert tuple(job[["submit_time_s", "start_time_s"]]) == (began, began)
    assert job["end_time_s"] == began + 50 * 60
    assert reasons(got)["another record of the same job: merged into it"] == 1


def test_shards_of_gpus_are_asked_about() -> None:
    text = "JobID|Submit|Start|End|AllocTRES\n" + "".join(
        f"{at}|2025-01-06T09:00:00|2025-01-06T09:00:00|2025-01-06T09:10:00|cpu=1,{tres}\n"
        for at, tres in enumerate(("gres/gpu=2", "gres/shard=4", "gres/gpu=1,gres/shard=8"))
    )
    got = checked(text.encode())
    assert [question.id for question in got.questions] == ["shards"]
    assert list(got.trace.frame["num_gpus"]) == [2, 1]
    answered = checked(text.encode(), options=ReadOptions(answers={"shards": "4"}))
    assert list(answered.trace.frame["num_gpus"]) == [2, 1, 1]
    assert answered.questions == ()


SHOWN = (FIXTURES / "scontrol.txt").read_text()


@pytest.mark.parametrize("line", ["\n", " "], ids=["blocks", "lines (-o)"])
def test_records_of_the_controller(line: str) -> None:
    got = checked(SHOWN.replace("\n   ", f"{line}   ").encode())
    assert (got.fmt, got.read, got.used) == ("scontrol", 4, 2)
    assert reasons(got) == {
        "the job had not started when the trace ends": 1,
        "still running when the trace ends": 1,
    }
    assert sorted(got.unended["state"]) == ["pending", "running"]
    job = row(got, "81")
    times = ["submit_time_s", "start_time_s", "end_time_s", "duration_s", "time_limit_s"]
    assert job[times].tolist() == [0, 600, 4200, 3600, 86_400]
    assert tuple(job[["num_gpus", "gpu_type", "cpus", "mem_gb"]]) == (8, "a100", 16, 64)
    asked = ["user", "account", "qos", "constraint", "name", "node_list"]
    assert job[asked].tolist() == ["ann", "vision", "normal", "a100&nvlink", "train", "n[1-2]"]
    assert job[["nodes", "nice", "requeue", "requeues"]].tolist() == [2, 5, 1, 2]
    part = row(got, "82")
    assert tuple(part[["num_gpus", "array", "status"]]) == (4, "80", "failed")
    assert "Key=value records are read as rows of a table." in got.guesses
    assert any("snapshot of a queue" in one and "(2)" in one for one in got.warnings)
    later = checked(SHOWN.encode(), options=ReadOptions(since="eligible"))
    # 82 was eligible at 09:01:00, 81 at 09:05:00.
    assert row(later, "81")["submit_time_s"] == 240


PBS = (FIXTURES / "pbs_accounting.txt").read_text()


def test_accounting_of_pbs() -> None:
    got = checked(PBS.encode())
    assert (got.fmt, got.read, got.used) == ("pbs", 6, 2)
    assert reasons(got) == {
        "the event is not the end of a job": 3,
        "no GPU: a CPU job": 1,
    }
    job = row(got, "7")
    assert job[["submit_time_s", "start_time_s", "duration_s"]].tolist() == [0, 600, 3600]
    assert tuple(job[["num_gpus", "cpus", "mem_gb", "nodes", "requeues"]]) == (8, 16, 64, 2, 1)
    asked = ["user", "name", "partition", "status", "node_list"]
    assert job[asked].tolist() == ["ann", "a;b", "gpu", "completed", "n1/0*8+n2/0*8"]
    assert job["time_limit_s"] == 86_400
    torque = row(got, "8[3]")
    assert tuple(torque[["num_gpus", "array", "status"]]) == (9, "8", "cancelled")
    assert got.trace.epoch == "2026-03-02T09:00:00+00:00"
    later = checked(PBS.encode(), options=ReadOptions(since="eligible"))
    assert row(later, "7")["submit_time_s"] == 50


LSF = (FIXTURES / "lsb_acct.txt").read_text()


def test_accounting_of_lsf() -> None:
    got = checked(LSF.encode(), options=ReadOptions(answers={"per_host": "host"}))
    assert (got.fmt, got.read, got.used, got.questions) == ("lsf", 8, 5, ())
    assert reasons(got) == {
        "the event is not the end of a job": 1,
        "no GPU: a CPU job": 1,
        "the job never started": 1,
    }
    plain, both = row(got, "386"), row(got, "387")
    assert (plain["num_gpus"], plain["duration_s"], plain["start_time_s"]) == (2, 60, 10)
    assert (plain["status"], plain["user"], plain["account"]) == ("completed", "ann", "ml")
    # "16*h1" "16*h2": two hosts with four GPUs each; nine stand in the script alone.
    assert (both["num_gpus"], both["nodes"], both["cpus"]) == (8, 2, 32)
    assert (both["status"], both["name"]) == ("cancelled", "train big")
    task = row(got, "388[3]")
    assert (task["num_gpus"], task["nodes"], task["array"], task["status"]) == (
        *(4, 2, "388"),
        "timeout",
    )
    assert row(got, "389")["num_gpus"] == 1
    assert (row(got, "392")["partition"], row(got, "392")["status"]) == ("a,b;c", "failed")


def test_whether_lsf_counts_gpus_of_each_host_is_asked_where_it_matters() -> None:
    (asked,) = checked(LSF.encode()).questions
    assert (asked.id, asked.default) == ("per_host", "host")
    got = checked(LSF.encode(), options=ReadOptions(answers={"per_host": "job"}))
    assert row(got, "387")["num_gpus"] == 4
    one = "".join(line for line in LSF.splitlines(keepends=True) if " 387 " not in line)
    assert checked(one.encode()).questions == ()


def test_eligible_jobs_of_lsf() -> None:
    got = checked(LSF.encode(), options=ReadOptions(since="eligible", answers={"per_host": "job"}))
    # Not to be started before its begin time, 40 s after the first submission.
    assert row(got, "392")["submit_time_s"] == 40


def test_a_record_of_lsf_may_be_as_long_as_a_line() -> None:
    long = LSF.replace('"sleep 3"', f'"{"x" * 30_000}"', 1)
    assert checked(long.encode(), options=ReadOptions(answers={"per_host": "job"})).used == 5
    without = LSF.splitlines()[4]
    with pytest.raises(TraceError, match="LSF writes GPUs into the resource requirement"):
        read(without.encode())
