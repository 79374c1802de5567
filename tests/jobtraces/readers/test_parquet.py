"""Parquet files as other programs write them, and damaged ones."""

from __future__ import annotations

import base64
import datetime as dt
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobtraces import read
from sim.errors import TraceError
from trainyard.traces import intake

DAMAGED = (
    "P(e~L6$BL&6%<Sr1Qh@h00031003bD0001D6#x|y6%s5J1Qie!1{DSzHUKCAVi*Bo5fK0Y00IC200aR60|FHU6(AKL"
    "Ocewb01^NI0RR91000000ssI2000006#x|y6%s5J1Qie!1{DSz7zhFY00000000;W0RR9100000762#+0ssI200000"
    "7zhCX00000000pY00002000040RaO76$BYPH2@d}b7N>_ZDADz02K@+0vHBrZ(?6*WF-Jh8~^|S6$B+s7zl24ZC___"
    "b#nj~1Q{F|EG7UP6$}|Q00s~l7zS!@Vqa-w6#y0l7JL?bCO9St95w(b0b&>dVG$7k87vh96#x|i02Kfg5ETLdJQf5Q"
    "1{o#*1ONa4CIB221Q|5|1`rt-2yS(4UuST2a}@v<1QyHz7R&)AzyT(N0UQ_z0ssI2000007zhCX00000000&MC<p=o"
    "00000000;W0RR91000005fK0xEENP502KlN6#x|w6#@V}DFzuP00aO402ass76c{;7RUksC?IfQa&dKKbS-0Wa4lhS"
    "a&LDac4cyNX>V>IGBz$SE-@J_8~^|u0000Z0RR9{K~ga"
)
"""The footer says of a column what Arrow cannot believe; asked for that column's size, it ends the
process.
"""


def parquet(table: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(table) if isinstance(table, dict) else table, out)
    return out.getvalue()


JOBS: dict[str, Any] = {
    "job_id": ["a", "b"],
    "submit_time_s": [0, 60],
    "num_gpus": [1, 2],
    "duration_s": [600, 700],
}


def test_missing_values_in_the_first_rows_are_empty_cells() -> None:
    data = parquet(
        JOBS
        | {
            "user": ["ann", None],
            "cpus": [None, 4],
            "at": pa.array([None, dt.datetime(2024, 1, 1)]),
            "none": pa.nulls(2),
        }
    )
    found = intake.peek_upload(data, "mine.parquet")
    assert found.head.loc[1, "user"] == ""
    shown = {
        "job_id": "a, b",
        "submit_time_s": "0, 60",
        "num_gpus": "1, 2",
        "duration_s": "600, 700",
    }
    shown |= {"user": "ann", "cpus": "4", "at": "2024-01-01 00:00:00.000000", "none": ""}
    assert intake.example_cells(found) == shown
    assert read(data, name="mine.parquet").used == 2


def test_short_rows_of_text_are_empty_cells_too() -> None:
    found = intake.peek_upload(
        b"job_id,submit_time_s,num_gpus,duration_s,user\na,0,1,60,ann\nb,1,1,60\n", "mine.csv"
    )
    assert intake.example_cells(found)["user"] == "ann"


def test_of_two_columns_of_one_name_the_first_is_read() -> None:
    arrays = [*map(pa.array, JOBS.values()), pa.array([9, 9]), pa.array([{"x": 1}] * 2)]
    data = parquet(pa.Table.from_arrays(arrays, names=[*JOBS, "num_gpus", "num_gpus"]))
    found = intake.peek_upload(data, "mine.parquet")
    assert found.columns == (*JOBS, "num_gpus#2")
    assert read(data, name="mine.parquet").trace.numbers("num_gpus").tolist() == [1, 2]


def test_names_that_differ_in_case_only() -> None:
    data = parquet(
        {
            "Job ID": ["a", "b"],
            "job_id": ["c", "d"],
            "submit_time_s": [0, 1],
            "NUM GPUS": [1, 2],
            "duration_s": [5, 6],
        }
    )
    assert intake.peek_upload(data, "mine.parquet").columns == (
        "job_id",
        "job_id#2",
        "submit_time_s",
        "num_gpus",
        "duration_s",
    )
    assert read(data, name="mine.parquet").trace.frame["job_id"].tolist() == ["a", "b"]


def test_bytes_that_are_no_text() -> None:
    data = parquet(JOBS | {"name": [b"\xff\xfe", None], "payload": [b"\x80" * 20_000, b""]})
    assert intake.example_cells(intake.peek_upload(data, "mine.parquet"))["name"] == "\ufffd\ufffd"
    assert read(data, name="mine.parquet").trace.frame["name"].tolist()[0] == "\ufffd\ufffd"


def test_durations_and_dates_of_arrow() -> None:
    moments = pa.array([dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)])
    runs = pa.array([dt.timedelta(minutes=5), dt.timedelta(hours=2)])
    trace = read(
        parquet(JOBS | {"submit_time_s": moments, "duration_s": runs}), name="mine.parquet"
    ).trace
    assert trace.numbers("submit_time_s").tolist() == [0, 86_400]
    assert trace.numbers("duration_s").tolist() == [300, 7200]


def test_a_date_beyond_all_calendars_is_missing() -> None:
    moments = pa.array([0, 2**55], pa.timestamp("ms"))
    made = read(parquet(JOBS | {"submit_time_s": moments}), name="mine.parquet")
    assert made.counts() == [("dropped", "the submission time is missing or cannot be read", 1)]


def test_a_footer_that_would_end_the_process_is_one_sentence() -> None:
    data = base64.b85decode(DAMAGED)
    for attempt in (intake.peek_upload, lambda data, name: read(data, name=name)):
        with pytest.raises(TraceError):
            attempt(data, "mine.parquet")


def test_text_that_is_no_utf8_is_marked_and_no_error(tmp_path: Path) -> None:
    cells = pa.array([b"ann", b"b\xff\xfe"], pa.binary()).view(pa.string())
    table = pa.table(
        {"job_id": cells, "submit_time_s": [0.0, 1.0], "num_gpus": [1, 1], "duration_s": [5.0, 5.0]}
    )
    pq.write_table(table, tmp_path / "odd.parquet")
    assert read(tmp_path / "odd.parquet").trace.frame["job_id"].tolist() == ["ann", "b\ufffd\ufffd"]
