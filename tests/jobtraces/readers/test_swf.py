from __future__ import annotations

import pytest

from jobtraces import ReadOptions, peek
from sim.errors import TraceError
from tests.jobtraces.readers.account import checked, reasons, row
from tests.shared import shared

LOG = b"""; Version: 2.2
; UnixStartTime: 1027839845
; TimeZoneString: Europe/Stockholm
; MaxNodes: 240
; MaxProcs: 480
; Queue:  1 [fque:1]
;
    1        0     60  600   30  600    -1   32  3600    -1  1   7   1  -1  2  1 -1 -1
    2       10      5  120    4  120    -1   -1    -1    -1  0   8   1  -1  2  1 -1 -1
    3       20      5   50    4   50    -1    4    -1    -1  2   8   1  -1  2  1 -1 -1
    3       20      5  100    4  100    -1    4    -1    -1  3   8   1  -1  2  1 -1 -1
    3       20      5  150    4  150    -1    4    -1    -1  1   8   1  -1  2  1 -1 -1
    4       30     -1   -1   -1   -1    -1    8    -1    -1  5  -1   1  -1 -1 -1 -1 -1
    5       40      2   -1    4   -1    -1    8    -1    -1 -1   7   1  -1  2  1 -1 -1
    6       50      2
"""


def test_log() -> None:
    got = checked(LOG)
    assert (got.fmt, got.read, got.used) == ("swf", 8, 3)
    assert reasons(got) == {
        "a part of a job that another line sums up": 2,
        "the job never started": 1,
        "the duration is missing or cannot be read": 1,
        "the row has fewer than 18 fields": 1,
    }
    first = row(got, "1")
    assert tuple(
        first[
            [
                "submit_time_s",
                "start_time_s",
                "end_time_s",
                "duration_s",
                "num_gpus",
                "time_limit_s",
            ]
        ]
    ) == (0, 60, 660, 600, 32, 3600)
    assert tuple(first[["user", "vc", "partition", "status"]]) == ("7", "2", "1", "completed")
    assert row(got, "2")["num_gpus"] == 4  # got, for nothing was requested
    assert row(got, "2")["status"] == "failed"
    assert row(got, "3")["duration_s"] == 150
    assert got.trace.epoch == "2002-07-28T09:04:05+02:00"
    assert any("240 nodes and 480 processors" in sentence for sentence in got.guesses)
    assert any("count as GPUs" in sentence for sentence in got.guesses)


def test_the_zone_can_be_chosen_and_without_a_header_there_is_no_calendar() -> None:
    assert checked(LOG, options=ReadOptions(zone="UTC")).trace.epoch == "2002-07-28T07:04:05+00:00"
    bare = b"\n".join(line for line in LOG.splitlines() if not line.startswith(b";"))
    got = checked(bare)
    assert (got.fmt, got.used, got.trace.epoch) == ("swf", 3, "")
    assert "partition" in got.trace.frame


def test_a_log_has_no_columns_to_be_mapped() -> None:
    found = peek(LOG)
    assert (found.fmt, found.columns) == ("swf", ())


@pytest.mark.parametrize(
    "content",
    [
        b"; Version: 2.2\n; MaxNodes: 4\n",
        b"PAR1",
        b"job_id,submit_time_s,num_gpus,duration_s\na,0,1,60\n",
    ],
)
def test_what_is_no_log_is_refused(content: bytes) -> None:
    with pytest.raises(TraceError):
        checked(content, fmt="swf")


@pytest.mark.parametrize(
    ("name", "counts", "gpus", "epoch"),
    [
        ("hpc2n.swf", (3170, 3145), 30, "2002-07-28T09:04:05+02:00"),
        ("theta_19col_train.swf", (1497, 1497), 256, "2018-01-01T00:14:01+00:00"),
        ("wagap-2013_first600_extended.swf", (600, 600), 64, "2012-12-31T23:22:27+00:00"),
    ],
)
def test_published_logs(name: str, counts: tuple[int, int], gpus: int, epoch: str) -> None:
    got = checked(shared(f"traces/swf/{name}"))
    assert (got.fmt, got.read, got.used) == ("swf", *counts)
    assert got.trace.frame["num_gpus"].iloc[0] == gpus
    assert got.trace.epoch == epoch
