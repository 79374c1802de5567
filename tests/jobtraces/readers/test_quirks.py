"""What files of clusters do that no format promises: each with what it is read as, or with the
sentence by which it is refused or asked about.
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from typing import Any

import pandas as pd
import pytest

from jobtraces import Import, ReadOptions, read
from jobtraces.readers.options import OpenQuestionError
from jobtraces.recipes import parse_recipe
from sim.errors import TraceError
from tests.jobtraces.readers.account import checked
from tests.jobtraces.readers.test_converted import workbook
from tests.jobtraces.readers.test_exports import CASES

NATIVE = "job_id,submit_time_s,num_gpus,duration_s\n"
TABLE = "id,submitted (UTC),gpus,runtime_s\n"
SACCT = "JobID|JobName|Submit|Start|End|State|AllocTRES\n"
DAY = "2026-03-02"
CHANNEL = "the submission time is missing or cannot be read"
Left = list[tuple[str, int]]


def rows(*cells: str) -> str:
    return "".join(f"{line}\n" for line in cells)


def sacct(*jobs: tuple[str, str, str, str]) -> str:
    """Jobs of ten minutes: id, name, state, TRES."""
    return SACCT + rows(
        *(
            f"{job}|{name}|{DAY}T10:0{at}:00|{DAY}T10:0{at}:00|{DAY}T10:1{at}:00|{state}|{tres}"
            for at, (job, name, state, tres) in enumerate(jobs)
        )
    )


def zipped(**members: str | bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def left_out(found: Import) -> Left:
    return [(reason, count) for action, reason, count in found.counts() if action == "dropped"]


def times(found: Import) -> list[str]:
    first = pd.Timestamp(found.trace.epoch)
    return [
        (first + pd.Timedelta(seconds=second)).isoformat()
        for second in found.trace.frame["submit_time_s"]
    ]


LIST = [json.loads(CASES[kind][0])["items"][0] for kind in ("k8s-pods", "kueue")]
CLOCKS = "Times have no offset; they are read as Europe/Berlin (1 of them within a clock change)."
NOTHING = ("None", "Unknown", "\\N", "n/a", "NULL", "-", "", "NaN")
NO_VALUE = "gres/gpu=18446744073709551614"
LINES = [
    json.dumps({"id": at, "submitted": f"{DAY}T10:0{at}:00Z", "gpus": 1, "runtime_s": 60})
    for at in range(5)
]
BARE = {
    "kind": "Pod",
    "metadata": {"name": "a", "creationTimestamp": f"{DAY}T09:00:00Z"},
    "spec": {"containers": [{}]},
    "status": {"phase": "Succeeded"},
}
READ: dict[str, tuple[str | bytes, dict[str, Any], int, Left, str]] = {
    # content, options, jobs used, rows left out, what is said
    "a title above the header": (
        "Export of March 2026\n\n"
        + TABLE
        + rows("1,2026-03-02 10:00,1,60", "2,2026-03-02 10:05,2,90", "3,2026-03-02 10:06,1,60"),
        {},
        3,
        [],
        "The first 2 lines are a title: the header is line 3.",
    ),
    "sep=": (
        "sep=;\n"
        + TABLE.replace(",", ";")
        + rows("1;2026-03-02 10:00;1;60", "2;2026-03-02 10:05;2;90"),
        {},
        2,
        [],
        "Columns are separated by a semicolon.",
    ),
    "24:00:00": (
        TABLE + rows("1,2026-03-02 24:00:00,1,60", "2,2026-03-03 01:00:00,1,60"),
        {},
        2,
        [],
        "",
    ),
    "24:00:00 in our own table": (
        NATIVE + rows("1,2026-03-02 24:00:00,1,60", "2,2026-03-03 01:00:00,1,60"),
        {},
        1,
        [(CHANNEL, 1)],
        "",
    ),
    "the year 1970": (
        TABLE
        + rows(
            *(f"{at},2026-03-02 10:{at}:00,1,60" for at in range(10, 40)),
            "x,1970-01-01 00:00:00,1,60",
        ),
        {},
        30,
        [("the submission is decades away from most others", 1)],
        "",
    ),
    "the year 9999": (
        TABLE
        + rows(
            *(f"{at},2026-03-02 10:{at}:00,1,60" for at in range(10, 40)),
            "x,9999-12-31 23:59:59,1,60",
        ),
        {},
        30,
        [(CHANNEL, 1)],
        "",
    ),
    "an hour that does not exist": (
        "id,submitted,gpus,runtime_s\n"
        + rows(*(f"{at},2026-03-29 0{at}:30:00,1,60" for at in (1, 2, 3))),
        {"zone": "Europe/Berlin"},
        3,
        [],
        CLOCKS,
    ),
    "an hour that comes twice": (
        "id,submitted,gpus,runtime_s\n"
        + rows(*(f"{at},2026-10-25 0{at}:30:00,1,60" for at in (1, 2, 3))),
        {"zone": "Europe/Berlin"},
        3,
        [],
        CLOCKS,
    ),
    "bars in the name of a job": (
        sacct(("1", "a|b|c", "COMPLETED", "gres/gpu=1"), ("2", "x", "COMPLETED", "gres/gpu=2")),
        {},
        2,
        [],
        "",
    ),
    "a quote that is never closed": (
        NATIVE + rows("a,0,1,60", '"b,5,2,90', "c,6,2,90"),
        {},
        3,
        [],
        "A quote is never closed (line 3 is the first with an odd number of quotes): quotes are"
        " read as plain text.",
    ),
    "the header twice": (
        TABLE + rows("1,2026-03-02 10:00,1,60") + TABLE + rows("2,2026-03-02 10:05,2,90"),
        {},
        2,
        [("the row repeats the header", 1)],
        "",
    ),
    "the header twice in our own table": (
        NATIVE + rows("a,0,1,60") + NATIVE + rows("b,5,2,90"),
        {},
        2,
        [("the row repeats the header", 1)],
        "",
    ),
    "two tables in one file": (
        TABLE
        + rows(
            "1,2026-03-02 10:00,1,60",
            "2,2026-03-02 10:05,2,90",
            "",
            "node,cores,memory,rack,price",
            "n1,64,512,r1,3",
        ),
        {},
        2,
        [("the row has more fields than the header", 2)],
        "",
    ),
    "full-width digits": (
        TABLE + rows("1,2026-03-02 10:00,２,６０", "2,2026-03-02 10:01,2,60"),
        {},
        2,
        [],
        "",
    ),
    "full-width digits in our own table": (
        NATIVE + rows("1,0,２,６０", "2,5,1,60"),
        {},
        1,
        [("the GPU count is missing or cannot be read", 1)],
        "",
    ),
    "cells with formulas": (
        NATIVE + rows("=1+1,0,1,60", "@x,5,=2,60"),
        {},
        1,
        [("the GPU count is missing or cannot be read", 1)],
        "",
    ),
    "Chinese in GBK": (
        (
            "作业,提交时间 (UTC),卡数,时长（秒）\n"
            + rows("甲,2026-03-02 10:00,1,60", "乙,2026-03-02 10:05,2,90")
        ).encode("gb18030"),
        {},
        2,
        [],
        "The text is not UTF-8; it is read as Chinese (gb18030).",
    ),
    "an empty sheet before the jobs": (
        workbook(
            Empty=[],
            Jobs=[
                ["id", "submitted (UTC)", "gpus", "runtime_s"],
                ["1", "2026-03-02 10:00", "1", "60"],
                ["2", "2026-03-02 10:05", "1", "60"],
            ],
        ),
        {},
        2,
        [],
        "",
    ),
    "a last line of JSON that is cut off": (
        "\n".join(LINES)[:-9],
        {},
        4,
        [(CHANNEL, 1)],
        "The JSON objects are read as rows of a table.",
    ),
    "objects of another kind": (
        json.dumps({"items": LIST}),
        {"answers": {"kind": "Pod"}},
        1,
        [("an object of another kind", 1)],
        "",
    ),
    "an unnamed column of row numbers": (
        "," + NATIVE + rows("0,a,0,1,60", "1,b,5,1,60"),
        {},
        2,
        [],
        "Columns not used: column_1.",
    ),
    "words for nothing": (
        TABLE
        + rows(
            *(f"{at},{DAY} 10:00,{word},60" for at, word in enumerate(NOTHING)),
            "x,2026-03-02 10:00,1,60",
        ),
        {},
        1,
        [("the GPU count is missing or cannot be read", 8)],
        "",
    ),
    "Slurm's word for no value": (
        sacct(("1", "x", "COMPLETED", NO_VALUE), ("2", "x", "COMPLETED", "gres/gpu=1")),
        {},
        1,
        [("the GPU count is too large to be real", 1)],
        "",
    ),
    "steps, arrays and parts of jobs": (
        sacct(
            *(
                (job, "x", "CANCELLED by 12", "gres/gpu:a100=4,gres/gpu=4")
                for job in ("123_4", "123+0", "123.batch")
            )
        )
        + f"125_[5-9%2]|x|{DAY}T10:00:00|Unknown|Unknown|PENDING|\n",
        {},
        2,
        [("a step of a job, not a job", 1), ("the job never started", 1)],
        "",
    ),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_read(name: str) -> None:
    content, options, used, left, said = READ[name]
    data = content.encode() if isinstance(content, str) else content
    found = checked(data, options=ReadOptions(**options))
    assert (found.used, left_out(found)) == (used, left)
    assert said in ("", *found.guesses, *found.warnings)


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "an empty sheet": (
        workbook(Jobs=[]),
        "f: no sheet of the workbook has a table with a header and rows. Add one.",
    ),
    "pods without limits or conditions": (
        json.dumps({"items": [BARE]}),
        "f: the only row cannot be used. Main reason (1 row): the job never started. Export jobs"
        " that have ended.",
    ),
    "only jobs that still run": (
        json.dumps({"jobs": [json.loads(CASES["squeue-json"][0])["jobs"][4]]}),
        "f: the only row cannot be used. Main reason (1 row): still running when the trace ends."
        " Cut running jobs at the end of the trace, or export jobs that have ended.",
    ),
    "a summary of clusters": (
        "id,job_num,gpu_job_num,avg_run_time_gpu,avg_que_time_gpu\n1,2,3,4,5\n",
        "f: this file summarizes clusters and does not list jobs. Choose cluster_log.csv,"
        " trace_seren.csv or trace_kalos.csv.",
    ),
    "the use of a virtual cluster": (
        "time,running_job_num,pending_job_num,total_gpu_num,running_gpu_num\n1,2,3,4,5\n",
        "f: this file holds counts per minute and does not list jobs. Choose cluster_log.csv.",
    ),
    "the partitions of a cluster": (
        json.dumps({"partitions": [{"nodes": {"configured": "n1", "total": 1}, "maximums": {}}]}),
        "f: this file lists partitions, not jobs. Export jobs with sacct --json, and nodes with"
        " scontrol show nodes --json.",
    ),
    "an empty list": (
        '{"apiVersion": "v1", "items": []}',
        "f: the list 'items' of this JSON is empty. Choose a file with jobs.",
    ),
    "a list of several kinds": (
        json.dumps({"items": LIST}),
        "f: The list holds 1 of kind Pod and 1 of kind Workload. Which of these are the jobs?"
        " Answer with one of Pod, Workload.",
    ),
    "JSON that is cut off": (
        json.dumps({"items": [BARE]})[:-20],
        "f: the JSON is incomplete or not valid (Unterminated string at character 140). Download"
        " it again.",
    ),
    "an archive in an archive": (
        zipped(**{"a.csv": NATIVE + "a,0,1,60\n", "b.zip": zipped(x="1")}),
        "f: b.zip: archives in archives are not read. Unpack it first.",
    ),
    "many files in an archive": (
        zipped(**{f"{at}.csv": "a,b\n1,2\n" for at in range(101)}),
        "f: the zip archive holds 101 files, more than 100. Pack fewer.",
    ),
    "a dense archive": (
        gzip.compress(b"0," * 6_000_000),
        "f: the archive unpacks to more than 200 times its size, unlike any trace. Unpack the file"
        " first.",
    ),
    "many columns": (
        ",".join(f"c{at}" for at in range(1_001)) + "\n" + "1," * 1_000 + "1\n",
        "f: the table has 1,001 columns, more than 1,000. Keep only columns that describe jobs.",
    ),
    "a long cell": (
        NATIVE + "a,0,1,60\n" + "b" * 10_001 + ",0,1,5\n",
        "f: row 2, column job_id holds 10,001 characters, more than the limit of 10,000. Shorten"
        " or remove it.",
    ),
    "a long line": (
        NATIVE + "x" * 65_600,
        "f: line 2 is longer than 65,536 characters, so this is not a table of jobs. Shorten or"
        " remove the line.",
    ),
    "a long object": (
        json.dumps({"items": [BARE, BARE | {"x": "y" * 1_000_001}]}),
        "f: the item at character 164 has 1,000,161 characters, more than 1,000,000, so this is not"
        " a list of jobs.",
    ),
    "objects in objects in objects": (
        '{"items": [' + json.dumps(BARE) + ', {"a":' * 1 + '{"a":' * 5000 + "1" + "}" * 5001 + "]}",
        "f: the JSON is nested too deeply for a list of jobs. Choose another file.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    content, sentence = REFUSED[name]
    data = content.encode() if isinstance(content, str) else content
    with pytest.raises(TraceError) as caught:
        read(data, name="f")
    assert str(caught.value) == sentence


def test_days_of_a_spreadsheet_are_asked_about() -> None:
    data = (
        "id,submitted,gpus,runtime_s\n"
        + rows(*(f"{at},{46082 + at / 24:.6f},1,60" for at in range(12)))
    ).encode()
    (question,) = read(data).questions
    assert (question.id, question.text) == (
        "days",
        "The submissions are numbers from 46,082 to 46,082.5. Are they spreadsheet"
        " dates (46,082 = 1 March 2026)?",
    )
    found = read(data, options=ReadOptions(answers={"days": "days"}, zone="Europe/Berlin"))
    assert times(found)[:2] == ["2026-03-01T00:00:00+01:00", "2026-03-01T01:00:00+01:00"]
    assert not found.trace.doubts
    # Whoever says that they are seconds may be wrong.
    kept = read(data, options=ReadOptions(answers={"days": "go_on"}))
    assert kept.trace.span_s < 1
    assert [key for key, _ in kept.trace.doubts] == ["days"]


def test_jobs_in_any_order_are_sorted_by_submission_and_else_stay() -> None:
    found = read((NATIVE + rows("b,10,1,60", "a,0,1,60", "d,10,1,60", "c,10,1,60")).encode())
    assert found.trace.frame["job_id"].tolist() == ["a", "b", "d", "c"]


def test_a_newline_in_quotes_is_part_of_its_cell() -> None:
    found = checked((NATIVE + '"a\nb",0,1,60\nc,5,2,90\n').encode())
    assert found.trace.frame["job_id"].tolist() == ["a\nb", "c"]


def test_names_in_an_archive_are_no_paths() -> None:
    assert read(zipped(**{"../../etc/x.csv": NATIVE + "a,0,1,60\n"})).used == 1


def test_a_type_and_the_sum_of_types_are_counted_once() -> None:
    found = read(sacct(("1", "x", "COMPLETED", "gres/gpu:a100=4,gres/gpu=4")).encode())
    assert found.trace.frame["num_gpus"].tolist() == [4]


def test_terminated_means_another_thing_in_each_system() -> None:
    volcano = json.loads(CASES["volcano"][0])
    volcano["items"] = volcano["items"][:1]
    volcano["items"][0]["status"]["state"]["phase"] = "Terminated"
    assert read(json.dumps(volcano).encode()).trace.frame["status"].tolist() == ["cancelled"]


def test_of_several_kinds_the_one_that_is_meant_is_read() -> None:
    data = json.dumps({"items": LIST[::-1]}).encode()
    with pytest.raises(OpenQuestionError) as caught:
        read(data)
    assert list(caught.value.questions[0].options) == ["Workload", "Pod"]
    for kind, fmt in (("Pod", "k8s-pods"), ("Workload", "kueue")):
        assert read(data, options=ReadOptions(answers={"kind": kind})).fmt == fmt


BASE = 'name = "a"\ntitle = "A"\n[recognise]\ncolumns = ["x"]\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("#" * 64_001, "r: the recipe has more than 64,000 characters. Shorten it."),
        (
            BASE + "[let]\n" + rows(*(f'a{at} = "1"' for at in range(101))),
            "r: 101 expressions exceed the limit of 100. Remove some.",
        ),
        (
            BASE + rows(*(f'[source.s{at}]\ncolumns = ["c"]' for at in range(21))),
            "r: 21 sources exceed the limit of 20.",
        ),
        (
            BASE + rows(*('[[join]]\ntable = "t"\non = ["x"]' for _ in range(21))),
            "r: 21 joins exceed the limit of 20.",
        ),
    ],
)
def test_limits_of_a_recipe(text: str, sentence: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse_recipe(text, "r")
    assert str(caught.value) == sentence
