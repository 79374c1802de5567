"""Every bad input gets exactly one sentence that says what, where and what to do."""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobtraces import FORMATS, ReadOptions, read
from sim.errors import ParameterError, TraceError
from tests.jobtraces.readers.account import FIXTURES, checked

HEADER = "job_id,submit_time_s,num_gpus,duration_s\n"


def zip_of(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


PARQUET = parquet(
    pa.table({"job_id": ["a"], "submit_time_s": [0], "num_gpus": [1], "duration_s": [5]})
)
BAD = {
    "0 bytes": (b"", "empty"),
    "blank": (b"\n \n\t\n", "empty"),
    "empty gzip": (gzip.compress(b""), "empty"),
    "header only": (HEADER.encode(), "no row below it"),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj", "PDF"),
    "png": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "PNG"),
    "program": (b"\x7fELF\x02\x01\x01\x00", "program"),
    "binary": (bytes(range(256)) * 8, "binary"),
    "web page": (b"<!DOCTYPE html><html><body>Not found</body></html>", "web page"),
    "tar": (b"trace.csv".ljust(257, b"\x00") + b"ustar\x0000" + b"\x00" * 300, "tar"),
    "wrong delimiter": (HEADER.replace(",", "~").encode() + b"a~0~1~5\n", "single column"),
    "blanks between": (b"job_id submit_time_s num_gpus duration_s\na 0 1 5\n", "single column"),
    "prose": (b"Dear all\nplease find the trace attached\n", "single column"),
    "unknown table": (b"a,b,c\n1,2,3\n", "submit_time_s"),
    "duration missing": (b"job_id,submit_time_s,num_gpus\na,0,1\n", "duration_s"),
    "all rows bad": (
        (HEADER + "a,0,1,-5\nb,0,1,-6\n").encode(),
        "reason .2 rows.: the duration is",
    ),
    "CPU jobs only": ((HEADER + "a,0,0,5\n").encode(), "Keep CPU jobs"),
    "unreadable dates": (
        (HEADER + "a,7th of May,1,5\n").encode(),
        "submission time is missing or cannot be read",
    ),
    "empty zip": (zip_of(), "the zip archive is empty"),
    "a zip of folders": (zip_of(**{"folder/": b""}), "the zip archive holds only folders"),
    "long line": (
        (HEADER + "a,0,1,5\n" + "x" * 70_000).encode(),
        "line 3 is longer than 65,536 characters",
    ),
    "long header": (b"x" * 70_000 + b"\n1\n", "line 1 is longer"),
    "long cell": (
        (HEADER + "a,0,1,5\n" + "b" * 20_000 + ",0,1,5\n").encode(),
        "row 2, column job_id holds 20,000 characters",
    ),
    "long cell behind a lone quote": (
        (HEADER + 'a,0,1,5\n"' + "b" * 20_000 + ",0,1,5\n").encode(),
        "row 2, column job_id holds 20,001 characters",
    ),
    "many NUL bytes": ((HEADER + "a,0,1,5\n").encode() + b"\x00" * 100, "binary"),
    "two files in a zip": (zip_of(a=b"1", b=b"2"), "2 files"),
    "a spreadsheet": (
        zip_of(**{"[Content_Types].xml": b"<x/>", "xl/sheet1.xml": b"<x/>"}),
        "Office",
    ),
    "cut gzip": (gzip.compress(HEADER.encode() * 100)[:-20], "damaged"),
    "cut zip": (zip_of(a=HEADER.encode() * 100)[:-30], "damaged"),
    "cut parquet": (PARQUET[:-30], "damaged"),
    "not parquet": (b"PAR1" + b"x" * 100 + b"PAR1", "damaged"),
    "parquet without rows": (parquet(pa.table({"job_id": pa.array([], pa.string())})), "no row"),
    "parquet of something": (parquet(pa.table({"a": [1]})), "submit_time_s"),
    "cut JSON": ((FIXTURES / "cluster_job_log.json").read_bytes()[:900], "JSON is incomplete"),
    "other JSON": (b'{"nodes": [{"name": "n1"}]}', "not a known trace"),
    "deep JSON": (
        b'[{"jobid": 1, "vc": 1, "submitted_time": 1, "attempts": ' + b"[" * 100_000,
        "nested too deeply",
    ),
    "Philly, nothing started": (
        (
            b'[{"jobid": "a", "vc": "v", "submitted_time": "2017-10-07 01:00:00", "status":'
            b' "Killed", "attempts": []}]'
        ),
        "never started",
    ),
    "sacct without GPUs": (
        b"JobID|Submit|Start|End|State|AllocTRES\n1|2025-01-06T09:12:44|2025-01-06T09:12:44|2025-01-06T09:12:45|COMPLETED|cpu=1\n",
        "names a GPU",
    ),
    "sacct without start": (
        b"JobID|Submit|End|State|AllocTRES\n1|2025-01-06T09:12:44|2025-01-06T09:12:45|COMPLETED|cpu=1\n",
        "column start",
    ),
    "sacct, unknown layout": (
        "|".join(["1"] * 10 + ["2025-01-06T09:12:44"] * 4 + ["x"] * 30).encode() + b"\n",
        "no known layout",
    ),
    "mixed offsets": (
        (HEADER + "a,2025-01-01T00:00:00Z,1,5\nb,2025-01-01T00:00:00,1,5\n").encode(),
        "offset",
    ),
}


def one_sentence(message: str) -> None:
    assert "\n" not in message
    assert len(message) < 500
    assert message.endswith(".")
    assert "Traceback" not in message
    assert "Error" not in message


@pytest.mark.parametrize(("source", "words"), BAD.values(), ids=BAD.keys())
def test_one_clear_sentence(source: bytes, words: str) -> None:
    with pytest.raises(TraceError, match=words) as caught:
        read(source, name="upload.csv")
    assert str(caught.value).startswith("upload.csv")
    one_sentence(str(caught.value))


@pytest.mark.parametrize("offset", [0, 1])
def test_a_format_forced_on_something_else(offset: int) -> None:
    # Each format meets one file of text and one of JSON, in turn of either kind.
    text, objects = (b"a,b\n1,2\n", b"x|y\n1|2\n"), (b'[{"a": 1}]', b"[1, 2]")
    for at, fmt in enumerate(FORMATS):
        source = (text, objects)[offset][at % 2]
        try:
            read(source, name="upload.csv", fmt=fmt)
        except TraceError as error:
            one_sentence(str(error))
        else:
            pytest.fail(f"{source!r} is read as {fmt}")


def test_parquet_forced_on_text_formats() -> None:
    for fmt in FORMATS:
        if fmt not in ("native", "table"):
            with pytest.raises(TraceError) as caught:
                read(PARQUET, fmt=fmt)
            one_sentence(str(caught.value))


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.csv", tmp_path):
        with pytest.raises(TraceError, match="cannot be opened") as caught:
            read(path)
        one_sentence(str(caught.value))


def test_limits(tmp_path: Path) -> None:
    text = (HEADER + "".join(f"j{at},{at},1,5\n" for at in range(50))).encode()
    (tmp_path / "t.csv").write_bytes(text)
    for source in (text, tmp_path / "t.csv", gzip.compress(text)):
        with pytest.raises(TraceError, match="more than the limit of"):
            read(source, options=ReadOptions(max_bytes=300))
        with pytest.raises(TraceError, match="more than the limit of 10"):
            read(source, options=ReadOptions(max_rows=10))
    assert checked(text, options=ReadOptions(max_rows=50)).used == 50


@pytest.mark.parametrize(
    "pack", [gzip.compress, lambda data: zip_of(bomb=data)], ids=["gzip", "zip"]
)
def test_a_bomb_is_refused_without_taking_its_memory(pack: object) -> None:
    assert callable(pack)
    bomb = pack(b"0" * 60_000_000)
    tracemalloc.start()
    with pytest.raises(TraceError, match="unpacks to more than"):
        read(bomb, options=ReadOptions(max_bytes=50_000_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000


def test_a_parquet_bomb_of_rows() -> None:
    table = pa.table(
        {
            "job_id": pa.DictionaryArray.from_arrays(np.zeros(3_000_000, np.int8), ["a"]),
            "submit_time_s": np.zeros(3_000_000),
        }
    )
    with pytest.raises(TraceError, match="3,000,000 rows"):
        read(parquet(table))


def test_a_parquet_bomb_of_texts() -> None:
    rows = 100_000
    columns = {name: np.ones(rows) for name in ("submit_time_s", "num_gpus", "duration_s")}
    wide = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int8), ["x" * 100_000])
    data = parquet(pa.table({"job_id": np.arange(rows).astype(str), "user": wide, **columns}))
    assert len(data) < 3_000_000  # 10 GB when unfolded
    with pytest.raises(TraceError, match="column user"):
        read(data)
    harmless = parquet(
        pa.table({"job_id": np.arange(rows).astype(str), "comment": wide, **columns})
    )
    assert checked(harmless).used == rows  # a column nobody asks for takes no memory


@pytest.mark.parametrize(
    "choice",
    [
        {"zone": "Mars/Olympus"},
        {"cpu_jobs": "maybe"},
        {"unfinished": "?"},
        {"since": "now"},
        {"time_unit": "days"},
        {"duration_unit": "y"},
    ],
)
def test_impossible_options(choice: dict[str, str]) -> None:
    with pytest.raises(ParameterError) as caught:
        ReadOptions(**choice)  # type: ignore[arg-type]
    one_sentence(str(caught.value))


@pytest.mark.slow
def test_random_damage_never_escapes_as_another_error() -> None:
    rng = np.random.default_rng(7)
    for path in sorted(FIXTURES.iterdir()):
        data = path.read_bytes()
        for _ in range(8):
            broken = bytearray(data)
            for at in rng.integers(0, len(broken), 12):
                broken[at] = int(rng.integers(32, 127))
            try:
                checked(bytes(broken))
            except TraceError as error:
                one_sentence(str(error))


def test_table_of_strange_cells() -> None:
    cells = [
        "",
        "NaN",
        "-inf",
        "1e400",
        "1e18",
        "-1",
        "0",
        "0.5",
        "=1",
        "None",
        "2025-01-01",
        "\\N",
        "9" * 400,
        "é",
        "true",
    ]
    rng = np.random.default_rng(3)
    rows = [",".join(rng.choice(cells, 6)) for _ in range(400)]
    got = checked(
        (
            "submit_time_s,num_gpus,duration_s,start_time_s,cpus,user\n"
            + "\n".join([*rows, "1,1,1,1,1,u"])
        ).encode()
    )
    assert got.used >= 1
    assert pd.notna(got.trace.frame["duration_s"]).all()
