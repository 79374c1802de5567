"""Hostile files take no more memory than the limits allow, and large ones are read in pieces
without losing a row.
"""

from __future__ import annotations

import datetime as dt
import decimal
import gzip
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobtraces import ReadOptions, read
from sim.errors import TraceError
from tests.jobtraces.readers.account import FIXTURES, checked

HEADER = "job_id,submit_time_s,num_gpus,duration_s\n"
PEAK = """
import resource, sys
from pathlib import Path
from sim.errors import TraceError
from jobtraces import ReadOptions, read
read(b"job_id,submit_time_s,num_gpus,duration_s\\na,0,1,5\\n")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read(Path(sys.argv[1]), options=ReadOptions(max_bytes=int(sys.argv[2])))
except TraceError as error:
    print(error, file=sys.stderr)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def parquet(columns: dict[str, object]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, compression="zstd")
    return out.getvalue()


def peak_mb(path: Path, limit: int = 2_000_000_000) -> tuple[float, str]:
    """Read in a process of its own; return how much its peak of memory grew, and what it said."""
    pytest.importorskip("resource")
    command = [sys.executable, "-c", PEAK, str(path), str(limit)]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return int(done.stdout) / (1e6 if sys.platform == "darwin" else 1e3), done.stderr


@pytest.mark.slow
def test_a_parquet_file_of_few_huge_cells_is_refused_cheaply(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    path.write_bytes(
        parquet(
            {
                "job_id": ["x" * 30_000_000] * 20,
                "submit_time_s": [0] * 20,
                "num_gpus": [1] * 20,
                "duration_s": [5] * 20,
            }
        )
    )
    assert path.stat().st_size < 10_000
    peak, said = peak_mb(path, 700_000_000)
    assert "row 1, column job_id holds 30,000,000 characters, more than the limit of 10,000" in said
    assert peak < 300


@pytest.mark.slow
def test_a_parquet_file_of_repeated_texts_is_refused_cheaply(tmp_path: Path) -> None:
    rows = 40_000
    numbers = {name: np.ones(rows) for name in ("submit_time_s", "num_gpus", "duration_s")}
    path = tmp_path / "bomb.parquet"
    path.write_bytes(
        parquet({"job_id": np.arange(rows).astype(str), "user": ["u" * 9_000] * rows, **numbers})
    )
    assert path.stat().st_size < 1_000_000
    peak, said = peak_mb(path, 100_000_000)
    assert "takes 1" in said
    assert peak < 300


def test_a_column_that_is_not_read_costs_nothing() -> None:
    rows = 2_000
    numbers = {name: np.ones(rows) for name in ("submit_time_s", "num_gpus", "duration_s")}
    data = parquet(
        {
            "job_id": np.arange(rows).astype(str),
            "comment": [f"{at:06d}" * 2_000 for at in range(rows)],
            **numbers,
        }
    )
    got = checked(data, options=ReadOptions(max_bytes=20_000_000))
    assert got.used == rows
    assert got.guesses == ("Columns not used: comment.",)


def test_kinds_of_parquet_columns() -> None:
    day = dt.date(2025, 1, 1)
    columns = {
        "job_id": pa.array([b"a", b"b"]),
        "submit_time_s": pa.array([day, day + dt.timedelta(days=1)]),
        "num_gpus": pa.array([decimal.Decimal("1.0"), decimal.Decimal("2.0")]),
        "duration_s": pa.array([5, 7]),
        "user": pa.array(["x", None]).dictionary_encode(),
        "model": pa.array(["\u00e9" * 9_999, "m"]),
    }
    frame = checked(parquet(columns)).trace.frame
    assert frame[["submit_time_s", "num_gpus", "duration_s"]].to_numpy().tolist() == [
        [0, 1, 5],
        [86_400, 2, 7],
    ]
    assert list(frame["job_id"]) == ["a", "b"]
    assert frame["model"].str.len().tolist() == [9_999, 1]


@pytest.mark.slow
@pytest.mark.parametrize(("column", "times"), [("name", 4.0), ("comment", 2.0)])
def test_wide_rows_take_a_few_times_their_size(tmp_path: Path, column: str, times: float) -> None:
    rows = 50_000
    text = HEADER.replace("duration_s", f"duration_s,{column}") + "".join(
        f"{at},{at},1,5,{'n' * 2_000}\n" for at in range(rows)
    )
    path = tmp_path / "wide.csv.gz"
    path.write_bytes(gzip.compress(text.encode(), 1))
    peak, said = peak_mb(path)
    assert said == ""
    assert peak < times * len(text) / 1e6


def test_rows_keep_their_numbers_across_pieces() -> None:
    rows = 45_000
    lines = [f"j{at},{at},1,5" for at in range(1, rows + 1)]
    lines[40_000 - 1] += ",more"
    lines[20_001 - 1] = "bad,1,-1,5"
    for quote in ("", '"never closed'):
        lines[30_000 - 1] = f"{quote}j30000,30000,1,5"
        got = checked((HEADER + "\n".join(lines)).encode())
        assert got.read == rows
        assert sorted(got.issues["row"]) == [20_001, 40_000]
        assert got.trace.frame["job_id"].iloc[-1] == f"j{rows}"


def test_slurm_rows_keep_their_numbers_across_pieces() -> None:
    first = "{}|2025-01-06T09:12:44|2025-01-06T09:12:44|2025-01-06T09:12:45|COMPLETED|cpu=1,gres/gpu=1|n"  # noqa: E501
    lines = [first.format(at) for at in range(1, 41_001)]
    lines[40_500 - 1] = "40500|2025-01-06T09:12:44"
    lines[20_500 - 1] = lines[20_500 - 1].replace("|n", "|\x00")
    got = checked(("JobID|Submit|Start|End|State|AllocTRES|Note\n" + "\n".join(lines)).encode())
    assert (got.read, got.dropped) == (41_000, 2)
    dropped = dict(zip(got.issues["row"], got.issues["reason"], strict=True))
    assert dropped == {
        40_500: "the row has fewer than 7 fields",
        20_500: "the row contains a NUL byte: the file is damaged there",
    }


@pytest.mark.parametrize("line", [b"b,1,1\x00,5", b"b\x00,1,1,5", b"\x00\x00\x00"])
def test_a_nul_byte_costs_its_row_only(line: bytes) -> None:
    got = checked(HEADER.encode() + b"a,0,1,5\n" + line + b"\nc,2,1,5\n")
    assert (got.read, got.used) == (3, 2)
    assert got.issues[["row", "reason"]].to_numpy().tolist() == [
        [2, "the row contains a NUL byte: the file is damaged there"]
    ]


def test_unused_columns_are_named_but_not_read() -> None:
    names = [f"extra_{at}" for at in range(50)]
    text = (
        ",".join([*names, *HEADER.strip().split(",")])
        + "\n"
        + ",".join([*["x"] * 50, "a", "0", "1", "5"])
    )
    assert checked(text.encode()).guesses == (
        f"Columns not used: {', '.join(names[:20])} and more.",
    )
    with pytest.raises(TraceError, match=r"Columns found: extra_0, .*extra_19\. Map"):
        read(text.replace("duration_s", "nothing").encode())


def test_a_table_of_nothing_but_separators_is_refused() -> None:
    header = ",".join([*HEADER.strip().split(","), "user", "vc"])
    with pytest.raises(TraceError, match="rows of 6 columns do not fit into the limit of 40 kB"):
        read((header + "\n" + "1\n" * 1_000).encode(), options=ReadOptions(max_bytes=40_000))


def test_dense_json_is_read_item_by_item() -> None:
    text = b'[{"jobid": 1, "vc": 1, "submitted_time": 1, "attempts": [' + b"[]," * 30_000 + b"[]]}]"
    with pytest.raises(TraceError, match="never started, the job has no attempt"):
        read(text, options=ReadOptions(max_bytes=1_000_000))
    longer = text.replace(b"[]]}]", b"[]," * 310_000 + b"[]]}]")
    with pytest.raises(TraceError, match="more than 1,000,000, so this is not a list of jobs"):
        read(longer)


def test_json_cells_have_the_same_limit() -> None:
    text = (FIXTURES / "cluster_job_log.json").read_text()
    first = text.split('"jobid": "')[1].split('"')[0]
    with pytest.raises(TraceError, match="row 1, column job_id holds 10,001 characters"):
        read(text.replace(first, "j" * 10_001, 1).encode())
