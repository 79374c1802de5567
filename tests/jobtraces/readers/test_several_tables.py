"""Traces whose facts lie in several tables: joined by a recipe, never guessed."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from jobtraces import ReadOptions, peek, read, recipes
from jobtraces.recipes import engine
from sim.errors import TraceError
from tests.jobtraces.readers.account import reasons, row
from tests.shared import shared
from trainyard.cli.main import main

A, B, C, D = (letter * 24 for letter in "abcd")
JOBS = (
    f"{A},i1,u1,Terminated,1000.0,2000.0\n{B},i2,u2,Failed,1100.0,2000.0\n"
    f"{C},i3,u2,Running,1100.0,\n{D},i4,u2,Terminated,1100.0,1200\n"
)
# One job has half a GPU twice and a server without one; another has 2 GPUs in each of 3 instances.
TASKS = (
    f"{A},worker,2,Terminated,1010.0,1900.0,600.0,30,50.0,T4\n"
    f"{A},ps,1,Terminated,1010.0,1900.0,600.0,10,,CPU\n"
    f"{B},worker,3,Failed,1110.0,1500.0,600.0,10,200.0,MISC\n"
    f"{C},worker,1,Running,1110.0,,600.0,10,200.0,V100\n"
)
INSTANCES = (
    f"{A},worker,x,w,i1,Terminated,1020.0,1800.0,m\n{A},worker,x,w,i1,Interrupted,,9000.0,m\n"
    f"{A},worker,x,w,i1,Terminated,1030.0,1850.0,m\n"
)
FILES = {"job.csv": JOBS.encode(), "task.csv": TASKS.encode(), "instance.csv": INSTANCES.encode()}


def packed(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made.getvalue()


def test_three_tables_of_one_trace() -> None:
    got = read(FILES)
    assert (got.fmt, got.read, got.used) == ("pai-2020", 4, 2)
    assert reasons(got) == {
        "still running when the trace ends": 1,
        "the GPU count is missing or cannot be read": 1,
    }
    facts = ["submit_time_s", "start_time_s", "duration_s", "num_gpus", "cpus", "mem_gb"]
    assert row(got, A)[facts].tolist() == [0, 20, 830, 1, 18, 70]
    assert row(got, B)[facts].tolist() == [100, 110, 390, 6, 18, 30]
    assert row(got, A)[["status", "user", "gpu_type"]].tolist() == ["completed", "u1", "t4"]
    assert pd.isna(row(got, B)["gpu_type"])


def test_without_the_table_that_may_be_missing() -> None:
    got = read({name: FILES[name] for name in ("task.csv", "job.csv")})
    assert row(got, A)["duration_s"] == 890
    assert any("pai_instance_table is missing" in told for told in got.guesses)


def test_a_zip_archive_of_them_reads_alike() -> None:
    pd.testing.assert_frame_equal(read(packed(FILES)).trace.frame, read(FILES).trace.frame)
    assert peek(packed(FILES)).fmt == "pai-2020"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"job.csv": FILES["job.csv"]}, "pai_task_table .the only table with GPUs. is missing"),
        ({"task.csv": FILES["task.csv"]}, "pai_job_table is missing"),
        ({"a": FILES["job.csv"], "b": FILES["job.csv"]}, "b: this file and a are both the table"),
        ({"a": b"x,y\n1,2\n", "b": b"x,y\n1,2\n"}, "a, b: these 2 files are not the tables"),
        ({str(at): b"x,y\n1,2\n" for at in range(101)}, "101 files exceed the limit of 100"),
        (packed({"a": packed(FILES), "b": JOBS.encode()}), "archives in archives"),
        (packed({str(at): b"x" for at in range(101)}), "holds 101 files, more than 100"),
    ],
)
def test_a_bad_drop_is_one_sentence(files: dict[str, bytes] | bytes, words: str) -> None:
    with pytest.raises(TraceError, match=words) as caught:
        read(files, name="drop")
    assert "\n" not in str(caught.value)


def test_a_file_that_nobody_needs_is_named() -> None:
    got = read(FILES | {"notes.csv": b"a,b\n1,2\n"})
    assert "Files not needed for Alibaba PAI (gpu-v2020): notes.csv." in got.guesses


def test_the_limit_on_size_is_for_all_files_together() -> None:
    most = len(JOBS) + len(TASKS)
    kept = ("job.csv", "task.csv")
    options = ReadOptions(max_bytes=most)
    files = {name: FILES[name] for name in kept}
    assert read(files, options=options).used == 2
    with pytest.raises(TraceError, match="limit"):
        read(FILES, options=options)
    with pytest.raises(TraceError, match="limit"):
        read(packed(FILES), options=ReadOptions(max_bytes=most))


def test_a_join_never_makes_more_jobs() -> None:
    # The real table of instances: 8,000 rows of 1,327 jobs, one made job and task for each.
    instances = shared("traces/alibaba_pai_v2020/pai_instance_table.csv").read_bytes()
    header = ["job", "task", "inst", "worker", "id", "status", "start", "end", "machine"]
    table = pd.read_csv(io.BytesIO(instances), header=None, names=header, dtype=str)
    counted = table[table["status"] != "Interrupted"].astype({"start": float, "end": float})
    spans = counted.groupby("job").agg(start=("start", "min"), end=("end", "max"))
    names = sorted(table["job"].unique())
    jobs = "".join(f"{name},i,u,Terminated,1,99999999\n" for name in names)
    tasks = "".join(f"{name},worker,1,Terminated,1,2,600,1,100,T4\n" for name in names)
    got = read(
        {"instance": instances, "job": jobs.encode(), "task": tasks.encode()},
        options=ReadOptions(),
    )
    assert got.read == len(names) == 1_327
    spans = spans[spans.notna().all(axis=1) & (spans["end"] > spans["start"])]
    told = got.trace.frame.set_index("job_id")["duration_s"].reindex(spans.index)
    assert (told == spans["end"] - spans["start"]).all()
    assert len(spans) > 500


RECIPE = """
name = "two"
title = "Two tables"
[recognise]
first_cell = "[ab]"
[source.base]
columns = ["id", "sent", "took"]
[source.other]
columns = ["job", "gpus"]
[[join]]
table = "other"
on = ["id"]
on_other = ["job"]
take = { cards = "sum(num(gpus))", most = "max(num(gpus))" }
[columns]
submit_time_s = "num(sent)"
duration_s = "num(took)"
num_gpus = "cards"
"""


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('table = "other"', 'table = "ohter"', "join refers to the table 'ohter'"),
        ('on_other = ["job"]', 'on_other = ["job", "gpus"]', "must have the same length"),
        ("cards =", "sent =", "join.take.sent must be a new name"),
        ('["job", "gpus"]', '["job", "gpus", "x"]', "have the same number of columns"),
        ("take =", "tkae =", "unknown key join.tkae. Did you mean take?"),
        ('"gpus"]', '"GPUs"]', "is not valid. Use lowercase"),
        ("[[join]]", "[join]", r"Write \[\[join\]\]"),
    ],
)
def test_a_faulty_join_is_one_sentence(old: str, new: str, sentence: str) -> None:
    assert recipes.parse_recipe(RECIPE, "two.toml").joins[0].on_other == ("job",)
    with pytest.raises(TraceError, match=sentence):
        recipes.parse_recipe(RECIPE.replace(old, new), "two.toml")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("sum(num(gpus))", "string_agg(gpus, job)", "string_agg is not allowed"),
        ("sum(num(gpus))", "(SELECT 1)", "subquery is not allowed"),
        ("sum(num(gpus))", "sum(num(sent))", "sent is not a known column"),
        ('on = ["id"]', 'on = ["(SELECT 1)"]', "subquery is not allowed"),
        ('table = "other"', 'table = "other"\nwhere = "sum(num(gpus)) > 1"', "sum is not allowed"),
    ],
)
def test_expressions_of_a_join_are_checked(old: str, new: str, sentence: str) -> None:
    recipe = recipes.parse_recipe(RECIPE.replace(old, new), "two.toml")
    with pytest.raises(TraceError, match=sentence), engine.open_sealed("UTC") as database:
        engine.build_query(recipe, database, {})


def test_rows_without_a_partner_stay() -> None:
    recipe = recipes.parse_recipe(RECIPE, "two.toml")
    base = pa.table({"row": [1, 2], "cell 0": ["a", "b"], "cell 1": ["5", "6"], "cell 2": "12"})
    other = pa.table({"job": ["a", "a", None], "gpus": ["1", "2", "4"]})
    present = {"id": "cell 0", "sent": "cell 1", "took": "cell 2"}
    found = engine.evaluate(recipe, base.to_reader(), present, "UTC", {"other": other})
    assert found["num_gpus"].tolist()[:1] == [3]
    assert found["num_gpus"].isna().tolist() == [False, True]


def test_the_command_line_takes_several_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    out = tmp_path / "out.csv"
    assert main(["convert", *(str(tmp_path / name) for name in FILES), "--out", str(out)]) == 0
    assert "4 rows read, 2 used, 2 left out" in capsys.readouterr().out
    assert pd.read_csv(out)["num_gpus"].tolist() == [1, 6]
    assert main(["convert", "--out", str(out)]) == 2
    assert "Nothing to convert" in capsys.readouterr().err
