"""Test files for the readers: real and generated files of all formats, damaged at random.

Each follows from a seed and a number.
"""

from __future__ import annotations

import datetime as dt
import decimal
import gzip
import io
import json
import random
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from jobtraces.readers.columns import ALIASES
from sim.cluster import Cluster
from sim.perf.measured import built_in
from sim.trace import COLUMNS, REQUIRED
from trainyard.traces import new_study

ROOT: Final = Path(__file__).resolve().parents[1]
_REAL: Final = (
    *sorted((ROOT / "tests/jobtraces/readers/fixtures").glob("*")),
    ROOT / "sample_traces/tiny.csv",
)
NUMBERS: Final = (
    *("0", "1", "8", "-1", "-0.5", "0.25", "1e308", "-1e308", "1e400", "nan", "inf", "-inf"),
    *("NaN", "", "None", "null", "1,5", "0x10", "1_000", "١٢"),
    *(
        "1700000000",
        "1700000000000",
        "1700000000000000",
        "1e12",
        "1e-320",
        "9" * 30,
        "9" * 400,
        str(2**31),
        str(2**63),
        str(2**64),
        "true",
        "- 3",
    ),
)
TEXTS: Final = (
    *(
        "",
        " ",
        "a",
        "ä",
        "名",
        "\u202e",
        "\x00",
        "\x1f",
        '"',
        "'",
        "\\",
        "=1+1",
        "a|b",
        "a,b",
        "a;b",
        "a\tb",
        "\ufeff",
        "🚂",
        "v100",
        "V 100",
        "nan",
    ),
    *(
        "gpu:a100:4(S:0-1)",
        "gpu[001-99999999]",
        "cpu=8,gres/gpu=9999999999999999999999",
        "2024-03-31T02:30:00",
        "2024-01-01 00:00:00+02:00",
        "now",
    ),
    *(
        "0000-00-00",
        "9999-12-31T23:59:59",
        "2262-04-12",
        "10000-01-01",
        "1-02:03:04",
        "UNLIMITED",
        "x" * 70,
        "y" * 11_000,
        "[[1]]",
        "<b>",
        "\ud800",
    ),
)
VALUES: Final = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        0.5,
        1e308,
        -1e308,
        float("inf"),
        float("nan"),
        10**30,
        10**400,
        2**53,
    ),
    *(
        10**8,
        10**6,
        3,
        100_000,
        "",
        "x",
        "1e9",
        "v100",
        "store:0000000000000000",
        "made:gavel",
        "../../etc/passwd",
    ),
    *("\ud800", "x" * 700, [], [[]], {}, {"name": "fifo"}, [1, 2], {"a": {}}),
)


def _cell(rng: random.Random, usual: Callable[[], str]) -> str:
    """Return a usual value, or rarely an odd one."""
    return usual() if rng.random() < 0.93 else rng.choice(NUMBERS if rng.random() < 0.6 else TEXTS)


def _header(rng: random.Random) -> list[str]:
    """Return column names, native ones or aliases."""
    natives = [
        *(name for name in REQUIRED if rng.random() < 0.95),
        *rng.sample(COLUMNS, rng.randint(0, 6)),
    ]
    named = [rng.choice(ALIASES[name]) if rng.random() < 0.3 else name for name in natives]
    if rng.random() < 0.1:
        named.append(rng.choice([*named, *TEXTS]))
    return named


def _rows(rng: random.Random, header: Sequence[str]) -> list[list[str]]:
    """Return rows of cells for a header."""
    rows = rng.choice((0, 1, 3, 8, 30))
    when = rng.choice(
        (
            lambda at: str(at * 60),
            lambda at: str(1_700_000_000 + at),
            lambda at: f"2024-03-0{at % 9 + 1}T10:00:00",
            lambda at: str(at / 7),
        )
    )

    def value(column: str, at: int) -> str:
        if column in ALIASES["submit_time_s"]:
            return _cell(rng, lambda: when(at))
        text = "name" in column or column in ("user", "vc", "status", "partition", "gpu_type")
        return _cell(
            rng,
            lambda: (
                rng.choice(("a", "b", "v100"))
                if text
                else str(at if "id" in column else rng.randint(1, 64))
            ),
        )

    return [[value(column, at) for column in header] for at in range(rows)]


def _delimited_text(rng: random.Random) -> bytes:
    """Return a delimited text file."""
    header = _header(rng)
    mark = rng.choice(",,,\t;|")
    lines = [mark.join(row) for row in [header, *_rows(rng, header)]]
    return (
        rng.choice(("\n", "\n", "\r\n", "\r"))
        .join(lines)
        .encode(rng.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1")), "replace")
    )


def _workload_log(rng: random.Random) -> bytes:
    """Return a workload log: 18 numbers per line, separated by blanks."""
    rows = [
        "; UnixStartTime: " + _cell(rng, lambda: "1000000000"),
        "; TimeZoneString: " + rng.choice(("Europe/Berlin", "UTC", "x", "../UTC")),
    ]
    rows += [
        " ".join(_cell(rng, lambda at=at: str(at + rng.randint(0, 9))) for _ in range(18))
        for at in range(rng.choice((1, 4, 20)))
    ]  # type: ignore[misc]
    return "\n".join(rows).encode("utf-8", "replace")


def _gavel_trace(rng: random.Random) -> bytes:
    """Return a trace in the format of Gavel."""

    def row(at: int) -> list[str]:
        kind = (
            f"{rng.choice(('ResNet-18', 'LM', 'A3C', 'x'))} (batch size {rng.choice((16, 32, 64))})"
        )
        figures = [_cell(rng, lambda: str(rng.randint(1, 900))) for _ in range(5)]
        return [
            kind,
            "python3 main.py -b 16",
            "/w",
            "-n",
            "1",
            figures[0],
            _cell(rng, lambda: "1"),
            "1",
            "-1.0",
            _cell(rng, lambda: str(at)),
        ]

    lines = [row(at) for at in range(rng.choice((1, 5, 20)))]
    return "\n".join("\t".join(line) for line in lines).encode("utf-8", "replace")


def _array_maker(
    kinds: Sequence[pa.DataType], values: Sequence[Any]
) -> Callable[[random.Random, int], pa.Array]:
    """Return a function that draws an array of given values and of one of the types."""
    return lambda rng, rows: pa.array([rng.choice(values) for _ in range(rows)], rng.choice(kinds))


_INSTANTS: Final = (None, 0, 1_700_000_000, 2**40)
_ARRAYS: Final[tuple[Callable[[random.Random, int], pa.Array], ...]] = (
    _array_maker((pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()), (None, 1, 2, 8)),
    _array_maker((pa.string(), pa.large_string()), (None, "a", "1", "ä", *TEXTS[:-1])),
    _array_maker((pa.binary(), pa.large_binary()), (None, b"a", b"\xff\xfe", b"\x00")),
    _array_maker((pa.binary(2),), (b"\xff0", None)),
    _array_maker((pa.decimal128(20, 2), pa.decimal256(50, 2)), (None, decimal.Decimal("1.50"))),
    lambda rng, rows: _array_maker((pa.string(),), ("a", None, "8"))(rng, rows).dictionary_encode(),
    _array_maker(
        (
            pa.timestamp("s"),
            pa.timestamp("ms"),
            pa.timestamp("ms", "UTC"),
            pa.timestamp("s", "Asia/Tokyo"),
        ),
        _INSTANTS,
    ),
    _array_maker((pa.timestamp("us"), pa.timestamp("ns")), (None, 0, 2**62)),
    _array_maker([pa.duration(unit) for unit in ("s", "ms", "us", "ns")], (None, 5, 2**61)),
    _array_maker((pa.date32(), pa.date64()), (None, dt.date(2024, 1, 1), dt.date(9999, 1, 1))),
    _array_maker((pa.time64("us"),), (None, dt.time(1, 2, 3))),
    _array_maker((pa.list_(pa.int64()),), (None, [1, 2])),
    _array_maker((pa.struct({"a": pa.int64()}),), (None, {"a": 1})),
    _array_maker((pa.map_(pa.string(), pa.int64()),), (None, [("k", 1)])),
    _array_maker((pa.bool_(),), (None, True, False)),
    lambda _, rows: pa.nulls(rows),
    _array_maker((pa.float64(),), (0.0, float("nan"), float("inf"), 1e300, -5.0)),
    lambda _, rows: pa.array(np.full(rows, 1.5, np.float16)),
)


def _columnar_file(rng: random.Random) -> bytes:
    """Return a Parquet or Feather file."""
    header, rows = (
        [name for name in _header(rng) if "\ud800" not in name],
        rng.choice((0, 1, 5, 25)),
    )
    header = [header[0] if header and rng.random() < 0.04 else name for name in header]

    def draw_column(at: int) -> pa.Array:
        if rng.random() < 0.7:
            return pa.array(
                [rng.randint(0, 50) + at for at in range(rows)]
                if at
                else [f"j{row}" for row in range(rows)]
            )
        return rng.choice(_ARRAYS)(rng, rows)

    table = pa.Table.from_arrays([draw_column(at) for at in range(len(header))], names=header)
    out = io.BytesIO()
    if rng.random() < 0.04 and 0 < len(set(header)) == len(header):
        pyarrow.feather.write_feather(table, out)
    else:
        pq.write_table(
            table,
            out,
            compression=rng.choice(("none", "snappy", "zstd")),
            row_group_size=rng.choice((None, 3)),
        )
    return out.getvalue()


def _json_trace(rng: random.Random) -> bytes:
    """Return a JSON trace with replaced values."""
    document: Any = json.loads(_real_files()[0][1])
    for _ in range(rng.randint(0, 3)):
        document = replace_value(rng, document)
    return _to_json(document)


_ONE: Final[Mapping[str, Any]] = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
_META: Final[Mapping[str, Any]] = {
    "name": "a",
    "namespace": "ml",
    "creationTimestamp": "2026-03-02T09:00:00Z",
}
_EXPORTS: Final[Mapping[str, Any]] = {
    "items": [
        {
            "kind": kind,
            "metadata": _META,
            "spec": {
                "containers": [_ONE],
                "parallelism": 2,
                "template": {"spec": {"containers": [_ONE]}},
            },
            "status": {
                "phase": "Succeeded",
                "startTime": "2026-03-02T09:00:05Z",
                "completionTime": "2026-03-02T10:00:05Z",
                "containerStatuses": [
                    {"state": {"terminated": {"finishedAt": "2026-03-02T10:00:00Z"}}}
                ],
                "conditions": [
                    {"type": "PodScheduled", "status": "True", "lastTransitionTime": "soon"}
                ],
            },
        }
        for kind in ("Pod", "Job")
    ],
    "jobs": [
        {
            "job_id": 1,
            "user": "ann",
            "state": {"current": ["COMPLETED"]},
            "time": {"submission": 1000, "start": 1010, "end": 1110, "elapsed": 100},
            "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 4}]},
        }
    ],
    "runs": [
        {
            "info": {"run_id": "m", "status": "FINISHED", "start_time": 1e12, "end_time": 2e12},
            "data": {"params": [{"key": "num_gpus", "value": "4"}]},
        }
    ],
}
_ANY: Final[Mapping[str, Any]] = {
    "id": "a",
    "submitted_at": "2026-03-02T09:00:00Z",
    "gpus": 2,
    "duration": 90.5,
    "config": {"seed": 1, "tags": ["x"]},
}
_TABLES: Final = (
    "{0},i1,u1,Terminated,1000.0,2000.0\n",
    "{0},worker,2,Terminated,1010.0,1900.0,600.0,30,50.0,T4\n",
    "{0},worker,x,w,i1,Terminated,1020.0,1800.0,m\n",
)
_RUNS: Final = (
    "Name,State,User,Created,Runtime,Sweep,GPU Count\nx,finished,a,2026-03-02T09:00:00Z,61,,2\n",
    "run_id,experiment_id,status,artifact_uri,start_time,end_time,params.gpus\n"
    "m,0,FINISHED,x,2026-03-02 09:00:00,2026-03-02 09:01:00,4\n",
    "Workload,Status,Creation time,Completion time,GPU compute request\n"
    'w,Completed,"03/02/2026, 09:00 AM","03/02/2026, 10:30 AM",2\n',
)


def _json_objects(rng: random.Random) -> bytes:
    """Return JSON of a format with a recipe, or with one object per row."""
    if rng.random() < 0.5:
        key = rng.choice(list(_EXPORTS))
        one = rng.choice(_EXPORTS[key])
        listed = [replace_value(rng, one) if rng.random() < 0.7 else one for _ in range(4)]
        return _to_json({key: listed})
    rows = [replace_value(rng, dict(_ANY)) if rng.random() < 0.5 else _ANY for _ in range(5)]
    if rng.random() < 0.5:
        return b"\n".join(map(_to_json, rows))
    return _to_json(rows if rng.random() < 0.5 else {"data": rows, "more": rng.choice(VALUES)})


def _table_archive(rng: random.Random) -> bytes:
    """Return an archive with the tables of a trace, or the runs of an experiment tracker."""
    if rng.random() < 0.5:
        return _edit_words(rng, rng.choice(_RUNS).encode())
    chosen = rng.sample(_TABLES, rng.randint(1, 3))
    files = {
        f"{at}.csv": damage(
            rng,
            _edit_words(rng, "".join(row.format(job * 24) for job in "abc").encode()),
        )
        for at, row in enumerate(chosen)
    }
    return zip_files(files, rng)


def _to_json(document: Any) -> bytes:
    """Return a document as JSON."""
    return json.dumps(document).encode("utf-8", "replace")


@cache
def _real_files() -> list[tuple[str, bytes]]:
    """Return (name, content) of real trace files."""
    files = [(path.name, path.read_bytes()) for path in _REAL]
    week = pq.read_table(ROOT / "sample_traces/week.parquet").slice(0, 30)
    out = io.BytesIO()
    pq.write_table(week, out)
    return [
        *files,
        ("week.parquet", out.getvalue()),
        ("week.csv", week.to_pandas().to_csv(index=False).encode()),
    ]


def trace(rng: random.Random) -> bytes:
    """Return a file for the Trace page."""
    makers = (
        _delimited_text,
        _delimited_text,
        _columnar_file,
        _columnar_file,
        _json_trace,
        _workload_log,
        _gavel_trace,
        _json_objects,
        _table_archive,
        lambda rng: _edit_words(rng, rng.choice(_real_files())[1]),
    )
    return compress(rng, damage(rng, rng.choice(makers)(rng)))


def replace_value(rng: random.Random, document: Any) -> Any:
    """Return a document with one value changed, removed or added."""
    if isinstance(document, dict) and document and rng.random() < 0.9:
        key = rng.choice(list(document))
        chance = rng.random()
        if chance < 0.06:
            return {name: value for name, value in document.items() if name != key}
        if chance < 0.1:
            return document | {rng.choice(TEXTS): rng.choice(VALUES)}
        return document | {key: replace_value(rng, document[key])}
    if isinstance(document, list) and document and rng.random() < 0.9:
        at = rng.randrange(len(document))
        return [
            *document[:at],
            replace_value(rng, document[at]),
            *document[at + 1 :],
            *([document[at]] if rng.random() < 0.05 else []),
        ]
    return rng.choice(VALUES)


def _edit_words(rng: random.Random, data: bytes) -> bytes:
    """Return text with some numbers and words replaced."""
    if data[:4] == b"PAR1":
        return data
    replacements = rng.randint(0, 4)
    parts = re.split(r"([\w.:/-]+)", data.decode("utf-8", "replace"))
    for _ in range(replacements):
        parts[rng.randrange(len(parts))] = rng.choice(NUMBERS + TEXTS)
    return "".join(parts).encode("utf-8", "replace")


def damage(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with parts changed, lost or doubled; half of the files stay whole."""
    if not data or rng.random() < 0.5:
        return data
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at, size = rng.randrange(len(content) + 1), rng.choice((1, 4, 30))
        content[at : at + size] = rng.choice(
            (
                b"",
                rng.randbytes(size),
                b"\x00" * size,
                b"\xff" * size,
                bytes(content[at : at + size]) * 2,
                b'"',
                b"\n",
                b",",
            )
        )
        content = content or bytearray(b" ")
    return bytes(content[: rng.randrange(len(content) + 1)] if rng.random() < 0.2 else content)


def compress(rng: random.Random, data: bytes) -> bytes:
    """Return bytes, rarely compressed into a damaged archive."""
    chance = rng.random()
    if chance < 0.05:
        return damage(rng, gzip.compress(data, 1))
    return (
        damage(rng, zip_files({"a.csv": data} | ({"b": b""} if rng.random() < 0.1 else {}), rng))
        if chance < 0.1
        else data
    )


def zip_files(files: Mapping[str, bytes], rng: random.Random) -> bytes:
    """Return a ZIP archive of files."""
    out = io.BytesIO()
    method = rng.choice(
        (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
            zipfile.ZIP_DEFLATED,
            zipfile.ZIP_LZMA,
            zipfile.ZIP_BZIP2,
        )
    )
    with zipfile.ZipFile(out, "w", method) as file:
        for name, data in files.items():
            # Without a time stamp, so that a seed always gives equal bytes.
            file.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


CONF: Final = """NodeName=DEFAULT Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=524288
NodeName=gpu[001-016,020] Gres=gpu:a100:4(S:0-1),nvme:1
nodename=old[1-2]n[1-3] CPUs=40 RealMemory=192000 gres=gpu:tesla_v100:2
NodeSet=olds Nodes=old[1-2]n[1-3]
PartitionName=gpu Nodes=gpu[001-016,020] Default=YES
PartitionName=all Nodes=ALL"""
_SHOWN: Final = (
    "NodeName=g1 CPUTot=64 Gres=gpu:a100:4 RealMemory=515000 State=IDLE\n   Partitions=gpu"
    " CfgTRES=cpu=64,gres/gpu=4\n"
)
_LISTED: Final = "name,gpus,gpu_type,cores,memory_gb,partitions,price_per_hour,nodes\n" + "\n".join(
    f"n{at},8,v100,64,512,a;b,2.5,3" for at in range(4)
)
_TOLD: Final = "vc,nodes\nvc1,4\nvc2,8\n"
_DAILY: Final = (
    "date,vcA,vcB,total\n2020-09-01,64,32,96\n2020-09-02,72,32,104\n2020-09-03,64,8,72\n"
)
_NODE: Final = {
    "name": "g1",
    "cpus": 64,
    "real_memory": 515000,
    "gres": "gpu:a100:4",
    "tres": "cpu=64,gres/gpu=4",
    "state": ["IDLE"],
    "partitions": ["gpu"],
}


def cluster(rng: random.Random) -> tuple[bytes, str]:
    """Return a file of machines for the Cluster page, and its name."""
    if rng.random() < 0.45:
        described = Cluster.parse("4x8:v100,2x4:t4/64c/512g,1x0:cpu").to_json() | {
            "changes": [{"at_s": 60.0, "nodes": [0, 1], "present": False}]
        }
        document: Any = rng.choice((described, {"cluster": described}, {"nodes": [_NODE, _NODE]}))
        for _ in range(rng.randint(0, 2)):
            document = replace_value(rng, document)
        return (
            damage(rng, _to_json(document)) if rng.random() < 0.3 else _to_json(document)
        ), "machines.json"
    text = rng.choice((CONF, _SHOWN * 2, _LISTED, _TOLD, _DAILY)).encode()
    return compress(rng, damage(rng, _edit_words(rng, text))), rng.choice(
        ("machines.csv", "slurm.conf")
    )


def scenario(rng: random.Random) -> bytes:
    """Return a scenario file, a scenario with its jobs, or exported runs."""
    document: Any = new_study.sample_study().to_json()
    for _ in range(rng.randint(0, 2)):
        document = replace_value(rng, document)
    if rng.random() < 0.7:
        return damage(rng, _to_json(document)) if rng.random() < 0.2 else _to_json(document)
    about = {
        "name": "x",
        "epoch": "2024-01-01T00:00:00",
        "account": {"format": "native", "read": 3},
    }
    parts = {
        "scenario.json": _to_json(document),
        "trace.json": _to_json(replace_value(rng, about)),
        "trace.parquet": damage(rng, _columnar_file(rng)),
    }
    things = {
        "kind": "library",
        "things": [{"document": document, "name": "a", "tags": ["b"], "runs": []}],
        "numbers": {},
    }
    if rng.random() < 0.3:
        parts = {"library.json": _to_json(replace_value(rng, things))}
    return damage(rng, zip_files(parts, rng))


def profile(rng: random.Random) -> bytes:
    """Return a table of measured throughputs."""
    lines = (
        built_in("simulation")
        .to_frame()
        .sample(6, random_state=rng.randrange(1000))
        .to_csv(index=False)
        .encode()
    )
    return damage(rng, _edit_words(rng, lines))
