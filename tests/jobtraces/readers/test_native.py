from __future__ import annotations

import gzip
import io
import zipfile

import numpy as np
import pandas as pd
import pytest

from jobtraces import FORMATS, ReadOptions, peek, read
from sim.errors import TraceError
from sim.trace import SCHEDULER_NUMBERS, SCHEDULER_TEXTS, Trace
from tests.jobtraces.readers.account import checked, reasons, row

PLAIN = "job_id,submit_time_s,num_gpus,duration_s,user,vc,model,status\na,10,1,100,ann,v1,bert,completed\nb,0,8,50.5,bob,v2,,failed\nc,10,2,7,ann,v1,resnet,\n"  # noqa: E501


def frame() -> pd.DataFrame:
    return pd.read_csv(io.StringIO(PLAIN))


def zipped(data: bytes, *names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, data)
    return out.getvalue()


def parquet(table: pd.DataFrame) -> bytes:
    out = io.BytesIO()
    table.to_parquet(out)
    return out.getvalue()


def shuffled() -> str:
    return frame()[
        ["vc", "duration_s", "status", "job_id", "model", "num_gpus", "user", "submit_time_s"]
    ].to_csv(index=False)


SAME = {
    "plain": PLAIN.encode(),
    "shuffled": shuffled().encode(),
    "extra columns": frame().assign(zeta=1, alpha="=1+1").to_csv(index=False).encode(),
    "index column": frame().to_csv().encode(),
    "bom": b"\xef\xbb\xbf" + PLAIN.encode(),
    "crlf": PLAIN.replace("\n", "\r\n").encode(),
    "tsv": PLAIN.replace(",", "\t").encode(),
    "semicolons": PLAIN.replace(",", ";").encode(),
    "semicolons, decimal commas": PLAIN.replace(",", ";").replace("50.5", "50,5").encode(),
    "bars": PLAIN.replace(",", "|").encode(),
    "gzip": gzip.compress(PLAIN.encode()),
    "zip": zipped(PLAIN.encode(), "trace.csv"),
    "gzip in zip": zipped(gzip.compress(PLAIN.encode()), "trace.csv.gz"),
    "zip of a Mac": zipped(PLAIN.encode(), "trace.csv", "__MACOSX/._trace.csv"),
    "utf-16": PLAIN.encode("utf-16"),
    "parquet": parquet(frame()),
    "parquet, other order": parquet(frame()[list(frame().columns[::-1])]),
    "capitals and blanks": PLAIN.replace("job_id,submit_time_s", "Job ID, Submit_Time_S ").encode(),
    "empty last lines": (PLAIN + "\n\n").encode(),
    "quoted": frame().to_csv(index=False, quoting=1).encode(),
    "trailing commas": PLAIN.replace("\n", ",\n").replace("status,", "status,", 1).encode(),
}


@pytest.mark.parametrize("source", SAME.values(), ids=SAME.keys())
def test_same_trace_however_it_is_written(source: bytes) -> None:
    got = checked(source)
    assert got.fmt == "native"
    assert got.trace.digest == checked(PLAIN.encode()).trace.digest
    assert list(got.trace.frame["job_id"]) == ["b", "a", "c"]
    assert (got.read, got.used, len(got.issues)) == (3, 3, 0)


def test_extra_columns_are_named() -> None:
    assert any("zeta, alpha" in guess for guess in checked(SAME["extra columns"]).guesses)


def test_every_optional_column_survives() -> None:
    header = "job_id,submit_time_s,num_gpus,duration_s,start_time_s,end_time_s,name,batch_size,gpu_type,gpu_types_allowed,"  # noqa: E501
    header += (
        "min_gpus,max_gpus,cpus,mem_gb,time_limit_s,deadline_s,priority,partition,preemptible,"
    )
    header += "min_batch,max_batch,scaling_exponent,serial_fraction"
    got = checked(
        f"{header}\nx,5,2,60,10,70,my"
        " job,32,v100,v100|a100,1,4,8,64,3600,500,3,gpu,yes,16,64,0.75,0.125\n".encode()
    )
    job = row(got, "x")
    assert (job["start_time_s"], job["end_time_s"], job["deadline_s"]) == (5, 65, 495)
    assert (job["name"], job["gpu_types_allowed"], job["partition"], job["preemptible"]) == (
        "my job",
        "v100|a100",
        "gpu",
        1,
    )
    assert (
        job["min_batch"],
        job["max_batch"],
        job["scaling_exponent"],
        job["serial_fraction"],
    ) == (16, 64, 0.75, 0.125)
    assert (
        job["batch_size"],
        job["min_gpus"],
        job["max_gpus"],
        job["cpus"],
        job["mem_gb"],
        job["time_limit_s"],
        job["priority"],
    ) == (32, 1, 4, 8, 64, 3600, 3)


def test_what_a_job_cannot_mean_about_its_sizes_is_mended_and_counted() -> None:
    rows = [
        "a,0,2,10,3,,,,,",
        "b,0,2,10,,1,,,,",
        "c,0,0,10,1,4,,,,",
        "d,0,2,10,1,4,32,16,,",
        "e,0,2,10,,,0,0.5,2,-1",
        "f,0,2,10,2,2,8,8,1.5,1",
    ]
    header = "job_id,submit_time_s,num_gpus,duration_s,min_gpus,max_gpus,min_batch,max_batch,scaling_exponent,serial_fraction"  # noqa: E501
    got = checked("\n".join([header, *rows, ""]).encode(), options=ReadOptions(cpu_jobs="keep"))
    assert got.trace.numbers("min_gpus", -1.0).tolist() == [2, -1, 0, 1, -1, 2]
    assert got.trace.numbers("max_gpus", -1.0).tolist() == [-1, 2, 4, 4, -1, 2]
    assert (
        got.trace.numbers("min_batch", -1.0).tolist()
        == got.trace.numbers("max_batch", -1.0).tolist()
        == [-1, -1, -1, -1, -1, 8]
    )
    assert got.trace.numbers("scaling_exponent", -1.0).tolist() == [-1, -1, -1, -1, -1, 1.5]
    assert got.trace.numbers("serial_fraction", -1.0).tolist() == [-1, -1, -1, -1, -1, 1]
    assert reasons(got) == {
        "min_gpus is above the requested GPUs: set to that number": 2,
        "max_gpus is below the requested GPUs: set to that number": 1,
        "min_batch is above max_batch: both treated as missing": 1,
        "min_batch is below 1: treated as missing": 1,
        "max_batch is below 1: treated as missing": 1,
        "scaling_exponent is outside 0 to 1.5: treated as missing": 1,
        "serial_fraction is outside 0 to 1: treated as missing": 1,
    }


def test_every_bad_row_has_a_reason() -> None:
    rows = [
        "ok,0,1,10",
        "nan,NaN,1,10",
        "inf,inf,1,10",
        "text,soon,1,10",
        "far,1e15,1,10",
        "huge,1,1e19,10",
        "no gpus,1,,10",
        "minus gpus,1,-2,10",
        "cpu,1,0,10",
        "minus,1,1,-5",
        "nothing,1,1,",
        "endless,1,1,inf",
        "ok,2,1,10",
        "zero,3,1,0",
        "half,4,0.5,10",
        ",5,1,10",
        "long,6,1,10,surplus",
        "short,6",
    ]
    got = checked(("job_id,submit_time_s,num_gpus,duration_s\n" + "\n".join(rows)).encode())
    assert list(got.trace.frame["job_id"]) == ["ok", "zero", "half", "row-16"]
    assert reasons(got) == {
        "the submission time is missing or cannot be read": 2,
        "the submission time is infinite": 1,
        "the submission time is too large to be real": 1,
        "the GPU count is too large to be real": 1,
        "the GPU count is missing or cannot be read": 2,
        "the GPU count is negative": 1,
        "no GPU: a CPU job": 1,
        "the duration is negative": 1,
        "the duration is missing or cannot be read": 1,
        "the duration is infinite": 1,
        "an earlier row has the same id": 1,
        "the row has more fields than the header": 1,
        "the duration is 0: set to 1 s": 1,
        "the GPU count is a fraction: rounded up": 1,
        "the id is missing: named after the row": 1,
    }
    shown = got.issues.set_index("job_id")
    assert (shown.loc["text", "row"], shown.loc["text", "detail"]) == (4, "soon")
    assert shown.loc["minus", "detail"] == "-5"


def test_cpu_jobs_can_be_kept() -> None:
    got = checked(
        b"job_id,submit_time_s,num_gpus,duration_s\na,0,0,5\nb,1,1,5\n",
        options=ReadOptions(cpu_jobs="keep"),
    )
    assert list(got.trace.frame["num_gpus"]) == [0, 1]


def test_small_loads_are_stated_with_decimals_that_differ() -> None:
    head = "job_id,submit_time_s,num_gpus,duration_s\n"
    for rows, told in (
        ("a,0,0.75,1000\n", "from 0.21 to 0.28"),
        ("a,0,1,36000000\nb,0,0.5,36\n", "from 10,000.00 to 10,000.01"),
        ("a,0,0.5,7.2\n", "from 0.0010 to 0.0020"),
    ):
        got = checked((head + rows).encode())
        said = [*got.guesses, *(question.text for question in got.questions)]
        assert f"raises the work {told} GPU-hours" in " ".join(said)


def test_fractions_are_rounded_up_and_the_load_is_stated() -> None:
    got = checked(
        b"job_id,submit_time_s,num_gpus,duration_s\na,0,0.25,100\nb,1,2,100\nc,2,1.5,100\n"
    )
    assert list(got.trace.frame["num_gpus"]) == [1, 2, 2]
    assert (got.load_before_gpu_s, got.load_after_gpu_s) == (
        375,
        500,
    )  # 25 + 200 + 150, then 100 + 200 + 200
    (question,) = got.questions
    assert "1.33 times" in question.text
    mild = checked(b"job_id,submit_time_s,num_gpus,duration_s\na,0,7.5,100\n")
    assert (mild.load_before_gpu_s, mild.load_after_gpu_s, mild.warnings) == (750, 800, ())


def test_bad_optional_values_are_blanked_and_counted() -> None:
    text = "job_id,submit_time_s,num_gpus,duration_s,start_time_s,time_limit_s,cpus,min_gpus,max_gpus\na,100,2,10,40,-1,lots,4,2\nb,110,2,10,120,inf,4,1,2\n"  # noqa: E501
    got = checked(text.encode())
    assert row(got, "a")["start_time_s"] == 0
    assert np.isnan(row(got, "a")["cpus"])
    assert np.isnan(row(got, "a")["min_gpus"])
    assert not got.trace.has("time_limit_s")
    assert reasons(got) == {
        "cpus is not a number: treated as missing": 1,
        "time_limit_s is negative or infinite: treated as missing": 2,
        "the recorded start is before the submission: moved to the submission": 1,
        "min_gpus is above max_gpus: both treated as missing": 1,
    }


def test_units() -> None:
    text = b"job_id,submit_time_s,num_gpus,duration_s,time_limit_s\na,0,1,90,120\nb,60000,1,60,60\n"
    got = checked(text, options=ReadOptions(time_unit="ms", duration_unit="min"))
    assert list(got.trace.frame["submit_time_s"]) == [0, 60]
    assert list(got.trace.frame["duration_s"]) == [5400, 3600]
    assert list(got.trace.frame["time_limit_s"]) == [7200, 3600]


def test_absurd_durations_are_asked_about_once() -> None:
    got = checked(b"job_id,submit_time_s,num_gpus,duration_s\na,0,1,86400000\n")
    assert [one.id for one in got.questions] == ["long"]
    assert "2.7 years or more. Is the unit right?" in got.questions[0].text
    assert got.warnings == ()


def test_the_median_duration_is_of_jobs_that_are_kept() -> None:
    """With the impossible 5e11 s the median of two would be 2,893,519 days, of a job of 50 s."""
    got = checked(b"job_id,submit_time_s,num_gpus,duration_s\na,0,1,5e11\nb,10,1,50\n")
    assert reasons(got) == {"the duration is too large to be real": 1}
    assert got.warnings == ()


ISO = "job_id,submit_time_s,num_gpus,duration_s,start_time_s\na,{},1,5,{}\nb,{},1,5,{}\n"


def test_offsets_are_converted() -> None:
    text = ISO.format(
        "2025-01-01T12:00:00+01:00",
        "2025-01-01T11:00:30Z",
        "2025-01-01T06:01:00-05:00",
        "2025-01-01 12:01:00+0100",
    )
    got = checked(text.encode())
    assert list(got.trace.frame["submit_time_s"]) == [0, 60]
    assert list(got.trace.frame["start_time_s"]) == [30, 60]
    assert pd.Timestamp(got.trace.epoch) == pd.Timestamp("2025-01-01T11:00:00Z")


@pytest.mark.parametrize(
    "times",
    [
        ("2025-01-01T12:00:00+01:00", "", "2025-01-01T12:00:00", ""),
        (
            "2025-01-01T12:00:00",
            "2025-01-01T12:00:00Z",
            "2025-01-01T12:00:00",
            "2025-01-01T12:00:00Z",
        ),
    ],
    ids=["in a column", "between columns"],
)
def test_offsets_on_some_times_only_ask_for_a_choice(times: tuple[str, ...]) -> None:
    with pytest.raises(TraceError, match=r"without a UTC offset|only some times"):
        read(ISO.format(*times).encode())


def test_numbers_beside_dates_ask_for_one_way() -> None:
    with pytest.raises(TraceError, match="start_time_s holds numbers"):
        read(ISO.format("2025-01-01", 5, "2025-01-02", 7).encode())


def test_zone_of_naive_times() -> None:
    text = ISO.format("2025-07-01 12:00:00", "", "2025-07-01 12:00:30", "").encode()
    assert checked(text).trace.epoch == "2025-07-01T12:00:00+00:00"
    assert (
        checked(text, options=ReadOptions(zone="Asia/Shanghai")).trace.epoch
        == "2025-07-01T12:00:00+08:00"
    )


def test_unix_seconds_have_a_calendar() -> None:
    got = checked(b"job_id,submit_time_s,num_gpus,duration_s\na,1700000000,1,5\nb,1700000060,1,5\n")
    assert pd.Timestamp(got.trace.epoch) == pd.Timestamp(1700000000, unit="s", tz="UTC")
    assert list(got.trace.frame["submit_time_s"]) == [0, 60]
    assert checked(PLAIN.encode()).trace.epoch == ""


def test_parquet_keeps_datetimes_and_text() -> None:
    table = frame().assign(
        submit_time_s=pd.to_datetime(
            ["2025-01-01 00:00:10", "2025-01-01 00:00:00", "2025-01-01 00:00:10"]
        ).tz_localize("Europe/Berlin")
    )
    got = checked(parquet(table))
    assert list(got.trace.frame["submit_time_s"]) == [0, 10, 10]
    assert pd.Timestamp(got.trace.epoch) == pd.Timestamp("2024-12-31T23:00:00Z")


def test_latin_1_is_read_and_said() -> None:
    got = checked(PLAIN.replace("ann", "Jürgen").encode("latin-1"))
    assert row(got, "a")["user"] == "Jürgen"
    assert any("Latin-1" in guess for guess in got.guesses)


def test_cells_that_begin_with_equals_are_text() -> None:
    got = checked(
        b'job_id,submit_time_s,num_gpus,duration_s,name\n"=HYPERLINK(""x"")",0,1,5,=1+1\nb,=2,1,5,@x\n'
    )
    assert row(got, '=HYPERLINK("x")')["name"] == "=1+1"
    assert reasons(got) == {"the submission time is missing or cannot be read": 1}
    assert "'=2" in got.issues_csv()


def test_a_quote_that_is_never_closed_does_not_swallow_the_file() -> None:
    got = checked(b'job_id,submit_time_s,num_gpus,duration_s,name\na,0,1,5,"oops\nb,1,1,5,fine\n')
    assert list(got.trace.frame["job_id"]) == ["a", "b"]


def test_unknown_table_is_matched_by_name_and_by_mapping() -> None:
    text = b"id;arrival_time;gpu_count;runtime;owner;weight\nj1;5;2;100;ann;7\nj2;0;1;50;bob;8\n"
    got = checked(text)
    assert got.fmt == "table"
    assert list(got.trace.frame["job_id"]) == ["j2", "j1"]
    assert any("num_gpus from gpu_count" in guess for guess in got.guesses)
    chosen = checked(text, options=ReadOptions(mapping={"user": "owner", "num_gpus": "weight"}))
    assert list(chosen.trace.frame["num_gpus"]) == [8, 7]
    assert list(chosen.trace.frame["user"]) == ["bob", "ann"]


def test_mapping_overrides_a_native_column() -> None:
    text = (
        PLAIN.replace("model", "real_gpus")
        .replace("bert", "4")
        .replace("resnet", "4")
        .replace("v2,,", "v2,4,")
    )
    got = checked(text.encode(), options=ReadOptions(mapping={"num_gpus": "real_gpus"}))
    assert (got.fmt, list(got.trace.frame["num_gpus"])) == ("native", [4, 4, 4])


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"num_gpus": "nope"}, "nope"),
        ({"gpus!": "vc"}, "gpus!"),
        ({"num_gpus": "duration_s", "duration_s": "duration_s"}, "mapped twice"),
    ],
)
def test_impossible_mappings(mapping: dict[str, str], words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read(PLAIN.encode(), options=ReadOptions(mapping=mapping))


def test_peek_shows_the_head_and_what_is_missing() -> None:
    seen = peek(b"name,when,gpus\nj1,5,2\nj2,6,1\n")
    assert (seen.fmt, seen.columns, seen.missing) == (
        "table",
        ("name", "when", "gpus"),
        ("submit_time_s", "duration_s"),
    )
    assert dict(seen.mapping) == {"num_gpus": "gpus", "name": "name"}
    assert seen.head.to_numpy().tolist() == [["j1", "5", "2"], ["j2", "6", "1"]]
    assert peek(parquet(frame())).columns == tuple(frame().columns)


def test_formats_are_keyed_by_their_own_name() -> None:
    assert all(key == fmt.name and fmt.title for key, fmt in FORMATS.items())
    with pytest.raises(TraceError, match="unknown format 'nope'"):
        read(PLAIN.encode(), fmt="nope")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a,b,c\n1,2,3\n",
            (
                r"x: no column looks like a submission time \(submit_time_s\)\. Columns found: a,"
                r" b, c\. Map one of them\."
            ),
        ),
        ("submit_time,b,c\n1,2,3\n", r"x: no column looks like a number of GPUs \(num_gpus\)"),
        ("submit_time,gpus,c\n1,2,3\n", r"x: no column looks like a duration \(duration_s\)"),
        (
            "a,0,1,600\nb,60,2,1200\n",
            (
                r"x: the first line \(a, 0, 1, 600\) looks like a row, not a header\."
                r" Add a line with column names"
            ),
        ),
        ("-1,0.5,x\n1,2,3\n", "looks like a row"),
    ],
)
def test_a_missing_column_is_named_in_words(text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read(text.encode(), name="x")


def test_words_for_the_present_are_no_times() -> None:
    text = "job_id,submit_time_s,num_gpus,duration_s\na,2026-03-01T00:00:00,1,60\nb,now,1,60\nc,today,1,60\n"  # noqa: E501
    found = read(text.encode(), name="x")
    assert (found.used, found.dropped) == (1, 2)


@pytest.mark.parametrize(
    "names", [("started", "finished"), ("start", "end"), ("start_time_s", "end_time_s")]
)
def test_a_start_and_an_end_are_a_duration(names: tuple[str, str]) -> None:
    rows = [
        "j0,2026-09-01 08:00:00,2026-09-01 08:10:00,2026-09-01 09:10:00,4",
        "j1,2026-09-01 08:05:00,2026-09-01 08:05:00,2026-09-01 08:06:30,1",
        "j2,2026-09-01 08:06:00,2026-09-01 08:07:00,,1",
        "j3,2026-09-01 08:07:00,2026-09-01 08:09:00,2026-09-01 08:08:00,1",
    ]
    text = "\n".join([f"job,submitted,{','.join(names)},gpus", *rows])
    got = checked(text.encode())
    assert got.trace.numbers("duration_s").tolist() == [3600.0, 90.0]
    assert row(got, "j0")["start_time_s"] == 600.0
    assert reasons(got) == {
        "the duration is missing or cannot be read": 1,
        "the end is before the start": 1,
    }
    assert any("from start to end" in guess for guess in got.guesses)
    assert not peek(text.encode()).missing


def said_by_schedulers() -> pd.DataFrame:
    """Return two jobs with a value in every column that a scheduler's log may fill, and one
    without.
    """
    numbers = {name: [2.0, np.nan, 0.5] for name in SCHEDULER_NUMBERS}
    whole = {"nodes", "tasks", "tasks_per_node", "cpus_per_task", "requeue"}
    numbers |= {name: [1.0, np.nan, 1.0] for name in whole | {"gpu_fraction"}}
    texts = {name: [f"a|b=1:{name},x", None, "a&[b*2]"] for name in SCHEDULER_TEXTS}
    return pd.DataFrame(
        {
            "job_id": ["1", "2", "3"],
            "submit_time_s": [0.0, 5.0, 9.0],
            "num_gpus": [1, 2, 4],
            "duration_s": [60.0, 70.0, 80.0],
        }
        | numbers
        | texts
    )


def test_all_that_a_scheduler_says_of_a_job_survives_csv_and_parquet() -> None:
    trace = Trace.of(said_by_schedulers())
    for data in (trace.frame.to_csv(index=False).encode(), parquet(trace.frame)):
        back = checked(data).trace
        assert list(back.frame.columns) == list(trace.frame.columns)
        assert back.digest == trace.digest


def test_columns_of_schedulers_leave_the_digest_of_other_traces_alone() -> None:
    lean = said_by_schedulers()[["job_id", "submit_time_s", "num_gpus", "duration_s"]]
    assert Trace.of(lean).digest == "8edb3b9b4615c38c5c88fbe5d7c30ada"


def test_values_of_schedulers_outside_their_bounds_are_taken_as_not_given() -> None:
    table = said_by_schedulers().assign(nodes=[0, 1, 1], gpu_fraction=[1.5, 0.5, np.nan])
    taken = checked(table.to_csv(index=False).encode())
    assert set(reasons(taken)) >= {
        "nodes is below 1: treated as missing",
        "gpu_fraction is outside 0 to 1: treated as missing",
    }
    assert taken.trace.frame["nodes"].isna().sum() == 1
