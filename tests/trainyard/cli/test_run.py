from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import allocators
from sim.contract import Cadence, Card, Gang, Grant, Needs, Part, Plan, View
from sim.engine.simulator import Progress
from sim.metrics.registry import JSON_KEYS
from sim.params import Spec
from tests.waiting import wait_until
from trainyard.cli.main import main
from trainyard.cli.run import Bar
from trainyard.runs.estimate import JobCost
from trainyard.runs.run import run, scenario_key
from trainyard.study import catalog
from trainyard.study.scenario import Scenario
from trainyard.study.study import Study
from trainyard.traces.samples import load_sample

ROOT = Path(__file__).resolve().parents[3]
JOBS = (
    "job_id,submit_time_s,num_gpus,duration_s\na,0,1,600\nb,300,8,3600\nc,360,4,1200\nd,400,2,-5\n"
)
MORNING = (("a", 0, 1, 600), ("b", 300, 8, 3600), ("c", 360, 4, 1200))
RUN = ["run", "--trace", "sample:tiny", "--cluster", "2x8:v100", "--allocator", "fifo"]

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINYARD_STORE", str(tmp_path / "store"))
    (tmp_path / "jobs.csv").write_text(JOBS, encoding="utf-8")

    def go(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return go


def process(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "trainyard", *arguments],
        env=env,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


HEADLINE = ["state", "reasons", "verdict", "text", "also", "advice", "load"]


def test_json_has_exactly_the_promised_keys(call: Call) -> None:
    code, out, err = call(*RUN, "--allocator", "fifo:backfill=first_fit", "--seed", "3", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert list(document) == ["trace", "headline", "assumptions", "runs", "skipped"]
    assert list(document["headline"]) == HEADLINE
    assert document["headline"]["verdict"] == "idle"  # twice the GPUs that these jobs need
    assert document["assumptions"] == document["skipped"] == []
    assert [list(one) for one in document["runs"]] == [
        ["allocator", "label", "params", "key", "seed", "perf", "engine", *JSON_KEYS, "remarks"]
    ] * 2
    first, second = document["runs"]
    assert (first["allocator"], first["label"], first["params"], first["seed"]) == (
        "fifo",
        "fifo",
        {},
        3,
    )
    assert (second["allocator"], second["label"], second["params"]) == (
        "fifo",
        "fifo backfill=first_fit",
        {"backfill": "first_fit"},
    )
    assert first["jobs"] == first["completed"] == 12
    assert first["key"] != second["key"]


def test_counts_of_the_import_add_up(call: Call) -> None:
    code, out, _ = call(
        "run", "--trace", "jobs.csv", "--cluster", "1x8:v100", "--allocator", "fifo", "--json"
    )
    trace = json.loads(out)["trace"]
    assert code == 0
    assert (trace["read"], trace["used"], trace["dropped"], trace["jobs"]) == (4, 3, 1, 3)
    assert [item["rows"] for item in trace["reasons"] if item["action"] == "dropped"] == [1]


def test_a_file_by_hand(call: Call, tmp_path: Path) -> None:
    # One node of 8: a 0-600 on 1 GPU; b wants 8, so it starts at 600 and ends at 4200; c waits
    # behind it until 4200 and ends at 5400.
    code, out, _ = call(
        "run",
        "--trace",
        "jobs.csv",
        "--cluster",
        "1x8:v100",
        "--allocator",
        "fifo",
        "--jobs-out",
        "out",
        "--json",
    )
    one = json.loads(out)["runs"][0]
    assert code == 0
    assert one["jct_mean_s"] == pytest.approx((600 + 3900 + 5040) / 3)
    assert one["makespan_s"] == 5400.0
    # a waits for 0 s, b for 300 s, c for 4200 - 360 = 3840 s.
    assert (one["wait_max_s"], one["waits_over_day"]) == (3840.0, 0)
    table = pd.read_csv(tmp_path / "out" / "fifo.csv")
    assert list(table.columns) == [
        "job_id",
        "submit_s",
        "first_start_s",
        "finish_s",
        "gpus",
        "outcome",
        "held_s",
        "preemptions",
    ]
    assert table.to_numpy().tolist() == [
        ["a", 0.0, 0.0, 600.0, 1, "completed", 600.0, 0],
        ["b", 300.0, 600.0, 4200.0, 8, "completed", 3600.0, 0],
        ["c", 360.0, 4200.0, 5400.0, 4, "completed", 1200.0, 0],
    ]


def test_jobs_out_has_one_file_per_label(call: Call, tmp_path: Path) -> None:
    code, out, _ = call(
        *RUN,
        "--allocator",
        "fifo:backfill=first_fit",
        "--allocator",
        "fifo",
        "--jobs-out",
        "a/b",
        "--json",
    )
    assert code == 0
    labels = [one["label"] for one in json.loads(out)["runs"]]
    assert sorted(path.stem for path in (tmp_path / "a" / "b").iterdir()) == sorted(labels)
    assert len(set(labels)) == 3
    (tmp_path / "a" / "b" / "sjf.csv").mkdir()
    code, _, err = call("run", "--trace", "sample:tiny", "--allocator", "sjf", "--jobs-out", "a/b")
    assert code == 2
    assert "the jobs cannot be written" in err


def test_cells_of_the_job_files_are_exact(call: Call, tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text(
        'job_id,submit_time_s,num_gpus,duration_s\n=1+1,0,1,10\n"a,""b",1,1,10\n', encoding="utf-8"
    )
    assert (
        call(
            "run",
            "--trace",
            "odd.csv",
            "--cluster",
            "1x8:v100",
            "--allocator",
            "fifo",
            "--jobs-out",
            "out",
        )[0]
        == 0
    )
    assert pd.read_csv(tmp_path / "out" / "fifo.csv")["job_id"].tolist() == ["=1+1", 'a,"b']


def test_table_for_people(call: Call) -> None:
    code, out, err = call(
        "run",
        "--trace",
        "jobs.csv",
        "--cluster",
        "1x8:v100",
        "--allocator",
        "fifo",
        "--allocator",
        "sjf",
    )
    assert (code, err) == (0, "")
    assert "4 rows read, 3 used, 1 left out" in out
    assert "1 dropped:" in out
    # Three jobs ask for 34,200 GPU-seconds within six minutes: 12 times what eight GPUs can do.
    assert [line.split()[0] for line in out.splitlines()[-6:-4]] == ["fifo", "sjf"]
    headline, advice = out.splitlines()[-3:-1]
    assert "12 times" in headline
    assert "(--set trace.load=0.07158)" in advice
    assert "(python -m trainyard plan)" in advice
    assert "half within" in out


def test_a_run_of_minutes_is_said_before_it_begins(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    warns = "these runs usually take about"
    both = [*RUN[:-1], "fifo", "--allocator", "hadar"]
    assert warns not in call(*both)[2]
    # 12 jobs x 60 s = 12 min.
    monkeypatch.setattr("trainyard.runs.estimate.JOB_COSTS", {"hadar": JobCost(60_000.0)})
    code, out, err = call(*both)
    assert (code, warns in out) == (0, False)
    assert err.startswith("12 jobs: these runs usually take about 12")
    assert " min of it for hadar." in err
    assert warns not in call(*RUN)[2]


def test_small_matrices_have_one_thread_unless_the_user_says_otherwise() -> None:
    code = (
        "import os, sys; import trainyard.cli;"
        " print(os.environ['OPENBLAS_NUM_THREADS'], 'numpy' in sys.modules)"
    )
    for given, found in (({}, "1 False"), ({"OPENBLAS_NUM_THREADS": "4"}, "4 False")):
        inherited = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
        env = inherited | {"PYTHONPATH": str(ROOT)} | given
        ran = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        assert ran.stdout.split("\n")[0] == found


def test_the_headline_of_a_clear_difference(call: Call, tmp_path: Path) -> None:
    # Every 6,000 s the three jobs of `JOBS`: under SJF c (1,200 s) passes b (3,600 s), 360-1560
    # beside a, then b until 5160. Means of 3180 s and 2220 s.
    rows = [
        f"{name}{at},{at * 6000 + submit},{gpus},{length}"
        for at in range(20)
        for name, submit, gpus, length in MORNING
    ]
    (tmp_path / "days.csv").write_text(
        "job_id,submit_time_s,num_gpus,duration_s\n" + "\n".join(rows), encoding="utf-8"
    )
    days = (
        "run",
        "--trace",
        "days.csv",
        "--cluster",
        "1x8:v100",
        "--allocator",
        "fifo",
        "--allocator",
        "sjf",
    )
    code, out, err = call(*days)
    assert (code, err) == (0, "")
    # One of three jobs, b, gets slower.
    assert re.findall(r"\d+ (?:min|%)", out.splitlines()[-2]) == ["37 min", "53 min", "33 %"]
    told = json.loads(call(*days, "--json")[1])["headline"]
    assert told == {
        "state": "sound",
        "reasons": [],
        "verdict": "clear",
        "text": out.splitlines()[-2],
        "also": [],
        "advice": [],
        "load": pytest.approx(20 * 34_200 / (8 * 114_360)),
    }


def test_the_way_out_of_an_overload_is_an_argument_that_works(call: Call) -> None:
    week = (
        "run",
        "--trace",
        "sample:week",
        "--cluster",
        "1x8:v100",
        "--allocator",
        "fifo",
        "--allocator",
        "srtf",
        "--json",
    )
    told = json.loads(call(*week)[1])["headline"]
    assert told["verdict"] == "overload"
    assert "%" not in told["text"]
    fit, lower = (way["command"].split() for way in told["advice"][:2])
    assert fit == ["--cluster", "4x8:a100,4x8:v100"]
    code, out, _ = call(*week, *fit)
    assert code == 0
    assert json.loads(out)["headline"]["load"] < 1
    code, out, _ = call(*week, *lower)
    assert code == 0
    assert json.loads(out)["headline"]["load"] == pytest.approx(0.85, rel=1e-3)
    assert json.loads(out)["headline"]["verdict"] != "overload"


def test_nothing_is_credited_against_a_recording_without_a_reference(call: Call) -> None:
    week = (
        "run",
        "--trace",
        "sample:week",
        "--allocator",
        "recorded",
        "--allocator",
        "srtf",
        "--json",
    )
    told = json.loads(call(*week)[1])["headline"]
    assert told["verdict"] == "untested"
    code, out, _ = call(*week, *told["advice"][0]["command"].split())
    assert code == 0
    # The recording of the sample comes from a simulated queue, so FIFO explains it.
    assert re.findall(r"[\d.]+ h", json.loads(out)["headline"]["text"])[:2] == ["3.1 h", "6.7 h"]


def test_sample_brings_its_cluster_and_a_file_gets_one_built(call: Call) -> None:
    code, out, err = call("run", "--trace", "sample:tiny", "--allocator", "fifo")
    assert (code, err) == (0, "")
    assert f"on {load_sample('tiny')[1].gpus} GPUs" in out
    code, _, err = call("run", "--trace", "jobs.csv", "--allocator", "fifo", "--json")
    assert code == 0
    assert err.startswith("No --cluster is given, so one was built from the trace")
    assert err.count("\n") == 1


def test_the_nodes_of_a_list_of_virtual_clusters_are_told(call: Call, tmp_path: Path) -> None:
    (tmp_path / "vc.csv").write_text("vc,nodes\na,2\n", encoding="utf-8")
    run = ("run", "--trace", "sample:tiny", "--allocator", "fifo", "--cluster")
    _, out, err = call(*run, "vc.csv")
    assert "on 16 GPUs" in out
    assert err.endswith("To set GPUs per node and type: --cluster vc.csv:4:a100.\n")
    code, out, err = call(*run, "vc.csv:4:t4")
    assert (code, err) == (0, "")
    assert "on 8 GPUs" in out
    code, _, err = call(*run, "vc.csv:4:g9")
    assert code == 2
    assert "No speed known" in err


def test_json_suffix_wins_over_the_colon_of_a_spec(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "c:1x8.json"
    path.write_text(json.dumps(load_sample("tiny")[1].to_json()), encoding="utf-8")
    assert (
        call("run", "--trace", "sample:tiny", "--cluster", str(path), "--allocator", "fifo")[0] == 0
    )
    code, _, err = call(
        "run", "--trace", "sample:tiny", "--cluster", "C:\\nowhere.json", "--allocator", "fifo"
    )
    assert code == 2
    assert "cannot be read" in err


def test_a_saved_study_repeats_exactly(call: Call, tmp_path: Path, scenario: Scenario) -> None:
    study = Study(scenario, (Spec("fifo"), Spec.of("fifo", backfill="first_fit")), repeats=2)
    (tmp_path / "study.json").write_text(study.canonical(), encoding="utf-8")
    code, out, _ = call("run", "--scenario", "study.json", "--json", "--jobs-out", "out")
    document = json.loads(out)
    assert code == 0
    assert [(one["label"], one["seed"]) for one in document["runs"]] == [
        ("fifo seed=0", 0),
        ("fifo seed=1", 1),
        ("fifo backfill=first_fit seed=0", 0),
        ("fifo backfill=first_fit seed=1", 1),
    ]
    assert {one["key"] for one in document["runs"]} == {
        scenario_key(one) for one in study.scenarios()
    }
    direct = run(study.scenarios()[1])
    kept = pd.read_csv(tmp_path / "out" / "fifo backfill=first_fit seed=0.csv")
    assert kept["finish_s"].tolist() == direct.jobs["finish_s"].tolist()


def test_a_saved_scenario_with_changes(call: Call, tmp_path: Path, scenario: Scenario) -> None:
    (tmp_path / "one.json").write_text(json.dumps(scenario.to_json(), indent=2), encoding="utf-8")
    code, out, _ = call(
        "run",
        "--scenario",
        "one.json",
        "--set",
        "faults.mtbf_h=500",
        "--set",
        "allocator.backfill=first_fit",
        "--seed",
        "3",
        "--json",
    )
    one = json.loads(out)["runs"][0]
    expected = replace(
        scenario,
        faults=Spec.of("faults", mtbf_h=500),
        allocator=Spec.of("fifo", backfill="first_fit"),
        seed=3,
    )
    assert (code, one["key"], one["seed"]) == (0, scenario_key(expected), 3)
    code, out, _ = call("run", "--scenario", "one.json", "--trace", "jobs.csv", "--json")
    assert (code, json.loads(out)["runs"][0]["jobs"]) == (0, 3)


def test_a_scenario_on_another_file_keeps_its_window(
    call: Call, tmp_path: Path, scenario: Scenario
) -> None:
    windowed = replace(scenario, trace=replace(scenario.trace, to_s=350.0))
    (tmp_path / "one.json").write_text(windowed.canonical(), encoding="utf-8")
    (tmp_path / "ms.csv").write_text(
        JOBS.replace(",300,", ",300000,").replace(",360,", ",360000,").replace(",400,", ",400000,"),
        encoding="utf-8",
    )
    code, out, _ = call(
        "run", "--scenario", "one.json", "--trace", "ms.csv", "--time-unit", "ms", "--json"
    )
    assert (code, json.loads(out)["runs"][0]["jobs"]) == (0, 2)
    assert call("run", "--scenario", "one.json", "--trace", "nowhere.csv")[0] == 2


def test_settings_may_name_another_trace(call: Call) -> None:
    code, out, _ = call(*RUN, "--set", "trace.source=jobs.csv", "--json")
    assert (code, json.loads(out)["runs"][0]["jobs"]) == (0, 3)


def test_settings_work_without_a_scenario_file(call: Call) -> None:
    code, out, _ = call(
        *RUN,
        "--set",
        "trace.to_s=600",
        "--set",
        "allocator.order=priority",
        "--horizon-s",
        "100000",
        "--json",
    )
    document = json.loads(out)
    assert code == 0
    assert document["runs"][0]["params"] == {"order": "priority"}
    assert document["trace"]["jobs"] == document["runs"][0]["jobs"] <= 12


BAD: list[tuple[list[str], str]] = [
    ([], "required"),
    (["walk"], "There is no command 'walk'"),
    (["run"], "Nothing to run"),
    (["run", "--trace", "sample:tiny"], "No policy is given"),
    ([*RUN, "--colour", "red"], "--colour"),
    ([*RUN, "--allocator"], "expected one argument"),
    ([*RUN, "--allocator", "nobody"], "There is no policy 'nobody'"),
    (
        [*RUN, "--allocator", "fifo:head=maybe"],
        "head is called backfill now and takes none, first_fit",
    ),
    ([*RUN, "--allocator", "fifo:head"], "not of the form key=value"),
    ([*RUN, "--allocator", "fifo(backfill=first_fit"], "brackets"),
    ([*RUN, "--perf", "nobody"], "no performance model 'nobody'"),
    ([*RUN, "--seed", "x"], "seed = x is not a number"),
    ([*RUN, "--horizon-s", "-1"], "horizon_s = -1 s must be above 0"),
    ([*RUN, "--set", "faults"], "the form is path=value"),
    ([*RUN, "--set", "faults.mtbf=1"], "has no parameter 'mtbf'"),
    *(
        ([*RUN, "--max-mb", size], f"{size} is not a number of MB from 0.001")
        for size in ("x", "-1", "nan", "inf", "0.00001")
    ),
    (
        [*RUN, "--format", "native"],
        "--format controls how a file is read, but sample:tiny is not a file",
    ),
    ([*RUN, "--zone", "UTC"], "--zone controls how a file is read, but sample:tiny"),
    (
        ["convert", "--trace", "sample:tiny", "--map", "user=u", "--out", "x.csv"],
        "--map controls how a file is read",
    ),
    (
        ["run", "--scenario", "one.json", "--cpu-jobs", "keep"],
        "--cpu-jobs controls how a file is read, so it needs --trace FILE",
    ),
    ([*RUN, "--allocator", "fifo:head=skip,backfill=none"], "backfill is given twice"),
    (
        [*RUN, "--allocator", "las:thresholds=7200/3250"],
        "las: thresholds = 7200/3250 GPU-s must be above 0 and each above the one before",
    ),
    ([*RUN, "--allocator", "las:thresholds=5/5"], "thresholds = 5/5"),
    (
        [*RUN, "--allocator", "partition:inner=" + "partition(inner=" * 500 + "fifo" + ")" * 500],
        "more than 8 policies inside one another",
    ),
    (
        [*RUN, "--set", "cluster.groups.0.count=abc"],
        "Row 1 of the cluster: count = 'abc' is not a whole number",
    ),
    ([*RUN, "--set", "cluster=5"], "The cluster is no table with the key 'groups' but 5"),
    (
        [*RUN, "--set", 'cluster.changes=[{"at_s":"x","nodes":[0],"present":true}]'],
        "Change 1 of the cluster: at_s = 'x' is not a number",
    ),
    (
        [*RUN, "--set", "measure.from_s=1e9"],
        "the measured window (from 1e+09 s to the end) holds none of the 12 jobs",
    ),
    (
        ["run", "--scenario", "deep.json"],
        "deep.json: this JSON is nested more than 50 levels deep",
    ),
    (["run", "--trace", "sample:nobody", "--allocator", "fifo"], "no sample 'nobody'"),
    (
        ["run", "--trace", "nowhere.csv", "--allocator", "fifo"],
        "nowhere.csv: the file cannot be opened (No such file",
    ),
    (["run", "--trace", ".", "--allocator", "fifo"], "this is a folder"),
    (
        ["run", "--trace", "jobs.csv", "--format", "nobody", "--allocator", "fifo"],
        "unknown format 'nobody'",
    ),
    (["run", "--trace", "jobs.csv", "--zone", "Mars/Base", "--allocator", "fifo"], "Mars/Base"),
    (
        ["run", "--trace", "jobs.csv", "--map", "num_gpus", "--allocator", "fifo"],
        "--map needs NATIVE=COLUMN",
    ),
    (
        ["run", "--trace", "list.csv", "--max-mb", "0.001", "--allocator", "fifo"],
        "2 kB are more than the limit of 1 kB",
    ),
    (
        ["run", "--trace", "jobs.csv", "--cluster", "1x8:v100", "--allocator", "recorded"],
        "cannot run here",
    ),
    (
        ["run", "--trace", "sample:tiny", "--cluster", "16:v100", "--allocator", "fifo"],
        "nodes x GPUs : type",
    ),
    (
        ["run", "--trace", "sample:tiny", "--cluster", "nowhere.json", "--allocator", "fifo"],
        "the cluster description cannot be read (No such file",
    ),
    (
        ["run", "--trace", "sample:tiny", "--cluster", "list.json", "--allocator", "fifo"],
        "is not a table of settings",
    ),
    (
        ["run", "--trace", "sample:tiny", "--cluster", "binary.json", "--allocator", "fifo"],
        "the cluster description is not a text file",
    ),
    (["run", "--scenario", "nowhere.json"], "a scenario file cannot be read"),
    (["run", "--scenario", "list.json"], "is not a table of settings"),
    (["run", "--scenario", "huge.json"], "too large to be a scenario file"),
    (["run", "--scenario", "empty.json"], "has no 'trace'"),
    (
        ["run", "--scenario", "empty.json", "--cluster", "1x8:v100"],
        "--scenario already sets cluster",
    ),
    ([*RUN, "--jobs-out", "jobs.csv"], "the folder cannot be created"),
    (["convert", "--trace", "jobs.csv", "--out", "x.txt"], "must end in .csv or .parquet"),
    (["convert", "--trace", "jobs.csv", "--out", "jobs.csv/x.csv"], "cannot be written"),
    (["convert", "--out", "x.csv"], "name a file, sample:NAME or made:NAME"),
    (["generate", "--out", "x.csv"], "Nothing to generate"),
    (
        ["generate", "philly", "--profile", "venus", "--out", "x.csv"],
        "generate philly and --profile venus contradict each other",
    ),
    (["list", "models", "extra"], "list models takes no name ('extra')"),
    (["generate", "nobody", "--out", "x.csv"], "nobody"),
    (["generate", "sample:nobody", "--out", "x"], "no sample 'nobody'"),
    (["generate", "philly", "--jobs", "x", "--out", "x.csv"], "invalid int value"),
    (["generate", "philly", "--jobs", "-5", "--out", "x.csv"], "jobs"),
    (
        ["generate", "philly", "--jobs", "10", "--history", "--out", "x.csv"],
        "--history needs --cluster",
    ),
    (["list", "everything"], "invalid choice"),
    (["list", "params"], "needs a name"),
    (["list", "params", "nobody"], "There is no 'nobody'"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), BAD, ids=[" ".join(arguments)[-60:] for arguments, _ in BAD]
)
def test_bad_input_is_code_2_and_one_sentence(
    call: Call, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "list.json").write_text("[1]", encoding="utf-8")
    (tmp_path / "list.csv").write_text(JOBS * 20, encoding="utf-8")
    (tmp_path / "deep.json").write_text('{"a":' * 100_000, encoding="utf-8")
    (tmp_path / "empty.json").write_text("{}", encoding="utf-8")
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(60_000_000)
    (tmp_path / "binary.json").write_bytes(bytes(range(256)))
    code, out, err = call(*arguments)
    assert code == 2
    assert out == ""
    assert message in err
    lines = [line for line in err.splitlines() if not line.startswith("No --cluster is given")]
    assert len(lines) == 1
    assert lines[0].endswith((".", ")"))
    assert "Traceback" not in err


TRACES: list[tuple[str, bytes]] = [
    ("empty", b""),
    ("blank", b" \n\n"),
    ("pdf", b"%PDF-1.7 ..."),
    ("binary", bytes(range(256)) * 40),
    ("semicolon single", b"just words\nand more\n"),
    ("header only", b"job_id,submit_time_s,num_gpus,duration_s\n"),
    ("no gpus", b"job_id,submit_time_s,duration_s\na,0,5\n"),
    ("all negative", b"job_id,submit_time_s,num_gpus,duration_s\na,0,1,-5\n"),
    ("nan", b"job_id,submit_time_s,num_gpus,duration_s\na,nan,1,5\nb,inf,1,5\n"),
    (
        "mixed zones",
        b"job_id,submit_time_s,num_gpus,duration_s\na,2026-01-01T00:00:00Z,1,5\nb,2026-01-01T00:00:00,1,5\n",
    ),
    ("truncated parquet", b"PAR1" + b"x" * 50),
]


@pytest.mark.parametrize(("name", "data"), TRACES, ids=[name for name, _ in TRACES])
def test_files_that_are_no_trace_are_code_2_and_one_sentence(
    call: Call, tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / "bad").write_bytes(data)
    code, out, err = call(
        "run", "--trace", "bad", "--cluster", "1x8:v100", "--allocator", "fifo", "--json"
    )
    assert (code, out) == (2, "")
    assert err.startswith("bad")
    assert err.count("\n") == 1


def test_jobs_that_can_never_run_are_counted_and_do_not_hang(call: Call, tmp_path: Path) -> None:
    (tmp_path / "big.csv").write_text(
        "job_id,submit_time_s,num_gpus,duration_s\na,0,64,5\nb,1,0.5,5\n", encoding="utf-8"
    )
    code, out, _ = call(
        "run", "--trace", "big.csv", "--cluster", "1x8:v100", "--allocator", "fifo", "--json"
    )
    one = json.loads(out)["runs"][0]
    assert (code, one["impossible"], one["completed"]) == (0, 1, 1)


@dataclass
class Greedy:
    """Grants the same GPUs to everybody."""

    needs = Needs()
    cadence = Cadence()
    card = Card("Greedy", "Takes all.", "Everybody.", "Everything.", "A test.", "exact")

    def allocate(self, view: View, /) -> Plan:
        return Plan({int(job): Grant((Gang(Part((0,), (99,))),)) for job in view.waiting.ids})


def test_a_stopped_run_is_code_1_and_one_sentence(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(allocators.REGISTRY, "greedy", Greedy)
    code, out, err = call("run", "--trace", "sample:tiny", "--allocator", "greedy", "--json")
    assert (code, out) == (1, "")
    assert "greedy" in err.lower()
    assert " s" in err
    assert err.count("\n") == 1


def test_a_fault_of_ours_is_code_1_and_one_sentence(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("gone")

    monkeypatch.setattr("trainyard.cli.run.summarize_run", broken)
    code, _, err = call(*RUN)
    assert code == 1
    assert "A fault in Trainyard stopped the command (KeyError: 'gone')" in err
    monkeypatch.setenv("TRAINYARD_DEBUG", "1")
    with pytest.raises(KeyError):
        call(*RUN)


def test_lack_of_memory_is_a_sentence(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("trainyard.cli.run.summarize_run", full)
    assert call(*RUN)[::2] == (1, "Memory ran out. Choose fewer jobs, or a shorter window.\n")


@pytest.mark.slow
def test_two_processes_print_the_same_and_say_nothing_else() -> None:
    arguments = [
        *RUN,
        "--allocator",
        "sjf",
        "--seed",
        "7",
        "--set",
        "faults.mtbf_h=50",
        "--set",
        "estimator=noisy",
        "--json",
    ]
    documents = []
    for _ in range(2):
        child = process(*arguments)
        out, err = child.communicate(timeout=300)
        assert (child.returncode, err) == (0, "")
        documents.append(json.loads(out))
    for document in documents:
        for one in document["runs"]:
            for measured in ("decision_ms_mean", "cpu_s", "peak_rss_mb"):
                assert one.pop(measured) >= 0
    assert documents[0] == documents[1]


@pytest.mark.slow
def test_interrupting_is_code_130_without_a_traceback(tmp_path: Path) -> None:
    # Where the suite itself runs in the background, interruptions are ignored, and children would
    # inherit that.
    listening = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    child = process(
        "run",
        "--trace",
        "sample:week",
        "--allocator",
        "fifo",
        "--set",
        "repeats=200",
        "--jobs-out",
        str(tmp_path / "out"),
        **listening,
    )
    wait_until(
        lambda: child.poll() is not None or list(tmp_path.glob("out/*.csv")), "a run is written"
    )
    child.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(300)
    child.kill()
    out, err = child.communicate()
    assert (child.returncode, out, err) == (130, "", "Interrupted.\n")


def test_a_closed_pipe_is_quiet() -> None:
    child = process("list", "params", "faults")
    assert child.stdout is not None
    child.stdout.close()
    assert child.stderr is not None
    assert child.stderr.read() == ""
    assert child.wait(300) in (0, 141)
    child.stderr.close()


def test_convert_writes_what_reads_back_the_same(call: Call, tmp_path: Path) -> None:
    for name in ("clean.csv", "clean.parquet"):
        code, out, _ = call(
            "convert", "--trace", "jobs.csv", "--out", f"new/{name}", "--report", "left.csv"
        )
        assert code == 0
        assert out.startswith(f"{Path('new') / name}: 4 rows read, 3 used, 1 left out\n")
    left = pd.read_csv(tmp_path / "left.csv")
    assert left[["row", "job_id", "action"]].to_numpy().tolist() == [[4, "d", "dropped"]]
    digests = []
    for name in ("jobs.csv", "new/clean.csv", "new/clean.parquet"):
        _, out, _ = call(
            "run", "--trace", name, "--cluster", "1x8:v100", "--allocator", "fifo", "--json"
        )
        digests.append(json.loads(out)["trace"]["digest"])
    assert len(set(digests)) == 1


def test_convert_of_several_files_takes_the_jobs_among_them(call: Call, tmp_path: Path) -> None:
    (tmp_path / "nodes.txt").write_text(
        "NodeName=n1 CPUs=8 RealMemory=64000 Gres=gpu:v100:4\n", encoding="utf-8"
    )
    (tmp_path / "paper.txt").write_text("nothing of this kind\n", encoding="utf-8")
    code, out, err = call("convert", "jobs.csv", "nodes.txt", "paper.txt", "--out", "o.csv")
    assert code == 0
    assert "rows read" in out
    assert "nodes.txt describes machines, not jobs" in err
    assert "paper.txt" in err
    (tmp_path / "other.csv").write_bytes((tmp_path / "jobs.csv").read_bytes())
    code, _, err = call("convert", "jobs.csv", "other.csv", "--out", "o.csv")
    assert code == 2
    assert "These are separate traces: jobs.csv; other.csv." in err
    code, out, _ = call("convert", "jobs.csv", "other.csv", "--merge", "--out", "o.csv")
    assert code == 0
    assert out.startswith("o.csv: 8 rows read, 6 used, 2 left out\n")
    assert "3 ids occurred in an earlier trace too" in out
    code, _, err = call("convert", "nodes.txt", "--out", "o.csv")
    assert code == 2
    assert "nodes.txt describes machines, not jobs: 1 node with 4 GPUs. Name a file of jobs" in err
    code, _, err = call("convert", "nodes.txt", "gone.csv", "--out", "o.csv")
    assert code == 2
    assert "gone.csv: this file cannot be read" in err


def test_convert_of_a_sample_has_an_empty_report(call: Call, tmp_path: Path) -> None:
    assert (
        call("convert", "--trace", "sample:tiny", "--out", "t.csv", "--report", "left.csv")[0] == 0
    )
    assert pd.read_csv(tmp_path / "left.csv").empty
    assert len(pd.read_csv(tmp_path / "t.csv")) == 12


def test_generate_is_the_same_for_the_same_seed(call: Call, tmp_path: Path) -> None:
    for name, seed in (("a.csv", "1"), ("b.csv", "1"), ("c.csv", "2")):
        code, out, _ = call(
            "generate",
            "philly",
            "--jobs",
            "40",
            "--seed",
            seed,
            "--cluster",
            "8x8:v100",
            "--history",
            "--out",
            name,
        )
        assert (code, "40 jobs over" in out) == (0, True)
    texts = [(tmp_path / name).read_text(encoding="utf-8") for name in ("a.csv", "b.csv", "c.csv")]
    assert texts[0] == texts[1] != texts[2]
    assert "start_time_s" in texts[0].splitlines()[0]
    code, out, _ = call(
        "run", "--trace", "a.csv", "--cluster", "8x8:v100", "--allocator", "recorded", "--json"
    )
    assert (code, json.loads(out)["runs"][0]["jobs"]) == (0, 40)


def test_generate_makes_a_sample_again(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("generate", "sample:week", "--out", "again")
    assert code == 0
    assert sorted(Path(line).name for line in out.splitlines()) == sorted(
        path.name for path in (tmp_path / "again").iterdir()
    )
    shipped = ROOT / "sample_traces" / "week.parquet"
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "again" / "week.parquet"), pd.read_parquet(shipped)
    )


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (["allocators"], list(allocators.REGISTRY)),
        (["formats"], ["native", "sacct"]),
        (["samples"], ["tiny", "week"]),
        (["profiles"], ["philly"]),
        (["models"], ["rigid"]),
        (["estimators"], ["exact", "noisy"]),
        (["params", "fifo"], ["order", "backfill", "placement"]),
        (["params", "faults"], ["mtbf_h", "outages"]),
        (["params", "noisy"], ["sigma"]),
    ],
)
def test_lists(call: Call, what: list[str], expected: list[str]) -> None:
    code, out, err = call("list", *what)
    assert (code, err) == (0, "")
    assert set(expected) <= {line.split()[0] for line in out.splitlines()}


class Terminal:
    def __init__(self, tty: bool) -> None:
        self.text, self._tty = "", tty

    def isatty(self) -> bool:
        return self._tty

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


def test_bar_only_on_a_terminal() -> None:
    for tty in (True, False):
        stream = Terminal(tty)
        clock = iter((10.0, 10.125, 10.25))
        with Bar("fifo", stream, clock.__next__) as bar:  # type: ignore[arg-type]
            for done in (30, 31, 96):
                bar(Progress(done, 120, 7200.0, 9000.0))
        assert ("fifo [########......................]  25 %, 2 h simulated" in stream.text) == tty
        assert stream.text.count("fifo") == 2 * tty


def test_help_is_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["--help"],
        ["run", "--help"],
        ["generate", "--help"],
        ["convert", "--help"],
        ["list", "--help"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        assert "usage: python -m trainyard" in capsys.readouterr().out


def test_measured_times_of_checkpoints_are_listed_and_taken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "checkpoints"]) == 0
    assert "ddp-flash" in capsys.readouterr().out
    runs = []
    for more in (
        [],
        ["--checkpoints", "megatron-nas"],
        ["--set", "overheads.checkpoint_s=195", "--set", "overheads.restart_s=127"],
    ):
        assert main(["run", "--trace", "sample:tiny", "--allocator", "las", "--json", *more]) == 0
        runs.append(json.loads(capsys.readouterr().out)["runs"][0])
    assert runs[0]["jct_mean_s"] < runs[1]["jct_mean_s"]
    assert runs[1]["key"] == runs[2]["key"]
    assert (
        main(["run", "--trace", "sample:tiny", "--allocator", "las", "--checkpoints", "floppy"])
        == 2
    )
    assert "No checkpoint 'floppy' was measured. Choose one of ddp-nas" in capsys.readouterr().err


def test_a_slurm_configuration_is_a_cluster_and_what_was_assumed_is_said(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "slurm.conf").write_text(
        "NodeName=gpu[1-2] CPUs=64 Gres=gpu:v100:8\nNodeName=odd Gres=gpu:tesla_v100:1\n",
        encoding="utf-8",
    )
    code, out, err = call(
        "run", "--trace", "sample:tiny", "--allocator", "fifo", "--cluster", "slurm.conf", "--json"
    )
    assert code == 0
    assert "The GPU type tesla_v100 has the speed and price of v100." in err
    assert json.loads(out)


@pytest.mark.parametrize("cluster", ["2x8:h100x", "slurm.conf"])
def test_a_gpu_type_without_a_known_speed_is_refused(
    call: Call, tmp_path: Path, cluster: str
) -> None:
    (tmp_path / "slurm.conf").write_text("NodeName=odd Gres=gpu:h100x:1\n", encoding="utf-8")
    code, out, err = call(
        "run", "--trace", "sample:tiny", "--allocator", "fifo", "--cluster", cluster, "--json"
    )
    assert code == 2
    assert "No speed known for ‘h100x’. Nearest: H100." in err
    assert f"--cluster {cluster},h100x=SPEED, where a V100 is 1." in err
    assert not out


def test_a_speed_stands_behind_the_cluster(call: Call) -> None:
    def average_s(cluster: str) -> float:
        asked = ("run", "--trace", "sample:tiny", "--allocator", "fifo", "--cluster", cluster)
        code, out, _ = call(*asked, "--json")
        assert code == 0
        return float(json.loads(out)["runs"][0]["jct_mean_s"])

    # Enough nodes: nobody waits, so that twice the speed is half the time.
    assert average_s("9x8:mine,mine=2") == pytest.approx(average_s("9x8:v100") / 2)
    asked = ("run", "--trace", "sample:tiny", "--allocator", "fifo", "--cluster", "2x8:v100,t4=2")
    code, _, err = call(*asked)
    assert (code, err.strip()) == (2, "2x8:v100 has no GPUs of type t4. Its types: v100.")


WEEK = (
    "run",
    "--trace",
    "sample:week",
    "--set",
    "trace.to_s=150000",
    "--json",
    "--allocator",
    "recorded",
    "--allocator",
)


def test_a_way_out_names_the_place_in_what_was_asked(call: Call) -> None:
    """Under servers FIFO does not explain these two days; what is skipped before it keeps its
    place.
    """
    _, out, _ = call(
        *WEEK,
        "gavel:objective=fifo",
        "--allocator",
        "dlrover",
        "--allocator",
        "fifo",
        "--cluster",
        "30x8:v100",
    )
    document = json.loads(out)
    assert [one["label"] for one in document["skipped"]] == ["dlrover"]
    assert document["headline"]["verdict"] == "unexplained"
    assert document["headline"]["advice"][0]["command"] == "--set baseline=3"


def test_a_recording_has_its_witnesses_in_each_comparison(call: Call) -> None:
    """Optimus needs servers, greedy_elastic does not: two tables, and FIFO is asked in both whether
    it explains the recording.
    """
    _, out, _ = call(
        *WEEK, "fifo", "--allocator", "greedy_elastic", "--allocator", "optimus", "--perf", "auto"
    )
    document = json.loads(out)
    assert [one["label"] for one in document["runs"]][3:] == [
        f"{name} (parameter_server)" for name in ("recorded", "fifo", "optimus")
    ]
    other = document["other_headlines"]
    assert [one["perf"] for one in other] == ["parameter_server"]
    assert "untested" not in {document["headline"]["verdict"], other[0]["verdict"]}


ELASTIC = ("--allocator", "fifo", "--allocator", "greedy_elastic")


def test_a_baseline_that_cannot_run_is_said_to_be_replaced(call: Call) -> None:
    code, out, _ = call(
        "run",
        "--trace",
        "sample:tiny",
        "--allocator",
        "greedy_elastic",
        "--allocator",
        "fifo",
        "--allocator",
        "srtf",
        "--json",
    )
    assert code == 0
    also = json.loads(out)["headline"]["also"]
    assert also[-1] == "Compared with fifo: the chosen baseline greedy_elastic cannot run here."
    _, out, _ = call(
        "run",
        "--trace",
        "sample:tiny",
        "--allocator",
        "fifo",
        "--allocator",
        "greedy_elastic",
        "--allocator",
        "srtf",
    )
    assert "the baseline chosen" not in out


def test_a_policy_that_cannot_run_is_skipped_and_the_others_run(call: Call) -> None:
    code, out, err = call(*RUN[:-2], *ELASTIC, "--allocator", "sjf", "--json")
    document = json.loads(out)
    assert code == 0
    assert [one["allocator"] for one in document["runs"]] == ["fifo", "sjf"]
    reason = (
        "Jobs run at one size only under “Fixed size”. Choose a performance model that scales,"
        " for example “Power law” (page Trace, or --perf)."
    )
    assert document["skipped"] == [{"label": "greedy_elastic", "reason": reason}]
    assert f"Skipped: greedy_elastic. {reason}" in err
    # Where nobody can run, nothing is printed but the reason.
    code, out, err = call(*RUN[:-2], "--allocator", "greedy_elastic")
    assert (code, out, err) == (2, "", f"greedy_elastic cannot run here: {reason}\n")


def test_a_run_that_is_stopped_leaves_the_others_alone(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(allocators.REGISTRY, "greedy", Greedy)
    code, out, _ = call(*RUN, "--allocator", "greedy")
    assert code == 0
    assert re.search(r"^fifo +12 ", out, re.MULTILINE)
    assert re.search(r"^greedy: skipped\. .*node 0", out, re.MULTILINE)
    assert call(*RUN[:-2], "--allocator", "greedy")[0] == 1


def test_auto_takes_the_plainest_model_for_each_and_compares_like_with_like(call: Call) -> None:
    code, out, _ = call(*RUN[:-2], "--allocator", "all", "--perf", "auto", "--json")
    document = json.loads(out)
    assert code == 0
    perf = {(one["allocator"], one["perf"]) for one in document["runs"]}
    needs = {name: catalog.allocator(name).needs.requires for name in allocators.REGISTRY}
    assert perf == {
        (name, "parameter_server" if "servers" in needs[name] else "power_law") for name in needs
    } | {("fifo", "parameter_server")}
    assert document["skipped"] == []
    # Alone, policies that keep sizes run under the plainest of all.
    _, out, _ = call(*RUN, "--allocator", "srtf", "--perf", "auto", "--json")
    assert {one["perf"] for one in json.loads(out)["runs"]} == {"rigid"}
    # All that is compared is said to be under which model.
    _, out, _ = call(*RUN, "--allocator", "sjf", "--allocator", "dlrover", "--perf", "auto")
    assert "fifo (parameter_server)" in out
    assert (
        "Performance model: Parameter servers. All policies here run under “Parameter servers”, so"
        " that they can be compared: DLRover cannot run" in out
    )


def test_what_is_assumed_stands_beside_the_table(call: Call) -> None:
    # Under SRTF the short job stops the long one.
    Path("two.csv").write_text(
        "job_id,submit_time_s,num_gpus,duration_s\na,0,8,9000\nb,60,8,60\n", encoding="utf-8"
    )
    one = [
        "run",
        "--trace",
        "two.csv",
        "--cluster",
        "1x8:v100",
        "--allocator",
        "srtf",
        "--perf",
        "power_law",
    ]
    _, out, _ = call(*one)
    exact = "SRTF knows each job's true run time (run-time estimates: exact)."
    restart = "A stopped or resized job takes 60 s to come back from its checkpoint."
    assert out.splitlines()[-1] == f"Performance model: Power law. {restart} {exact}"
    # One policy has a headline where the load is too high, else none.
    assert "No policy can be judged here" in out
    _, out, _ = call(*one, "--set", "trace.load=0.001")
    assert "srtf alone" not in out
    _, out, _ = call(*one, "--allocator", "greedy_elastic")
    resized = (
        "2 of 2 GPU jobs are assumed to be resizable, from 0.25 to 4 times the GPUs they asked for,"
        " with a speed of GPUs^0.75."
    )
    assert out.splitlines()[-1] == f"Performance model: Power law. {resized} {restart} {exact}"
    _, out, _ = call(*one, "--set", "overheads.restart_s=0", "--json")
    assert json.loads(out)["assumptions"] == [
        "Stopping or resizing a job costs nothing (restart_s = 0 s).",
        exact,
    ]
    assert json.loads(out)["runs"][0]["jct_mean_s"] == (9060 + 60) / 2
    _, out, _ = call(
        "run", "--trace", "two.csv", "--cluster", "2x8:v100", "--allocator", "hadare", "--json"
    )
    price = (
        "Joining the copies of a job takes 5 s every 360 s, and a step is worth 0.95 times as much"
        " for every copy beyond the first."
    )
    assert price in json.loads(out)["assumptions"]


def test_copies_have_a_price_on_eight_nodes(call: Call) -> None:
    (Path("one.csv")).write_text(
        "job_id,submit_time_s,num_gpus,duration_s\na,0,1,36000\n", encoding="utf-8"
    )
    call_of = [
        "run",
        "--trace",
        "one.csv",
        "--cluster",
        "8x1:v100",
        "--allocator",
        "hadare",
        "--json",
    ]
    _, out, _ = call(*call_of)
    # Eight copies of speed 1, each step worth 0.95^7, less 5 of every 360 s.
    assert json.loads(out)["runs"][0]["jct_mean_s"] == pytest.approx(
        36000 / (8 * 0.95**7 * 355 / 360)
    )
    code, out, err = call(*call_of, "--perf", "rigid:consolidate_s=-1")
    assert (code, out) == (2, "")
    assert err == "rigid: consolidate_s = -1 s is outside 0 to 3600.\n"


def test_a_summary_without_a_record(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    frame = {"submit_time_s": [0.0, 1.0], "num_gpus": [8, 8], "duration_s": [60.0, 60.0]}
    pd.DataFrame({"job_id": ["a", "b"]} | frame).to_parquet(path, row_group_size=1)
    bare = ("run", "--trace", str(path), "--cluster", "1x8:v100", "--allocator", "fifo")
    code, out, _ = call(*bare, "--summary-only", "--json")
    assert code == 0
    [row] = json.loads(out)["runs"]
    assert (row["completed"], row["queue_mean_s"], row["makespan_s"]) == (2, 29.5, 120)
    assert (row["wait_max_s"], row["waits_over_day"]) == (59, 0)
    code, out, _ = call(*bare, "--summary-only")
    assert out.startswith("fifo: 2 of 2 jobs done, average time 90 s")
    code, _, err = call(*bare, "--summary-only", "--keep")
    assert (code, err) == (2, "--keep does not work with --summary-only. Leave one of them out.\n")
    code, _, _ = call(*bare, "--summary-only", "--jobs-out", str(tmp_path / "out"))
    rows = pd.read_parquet(tmp_path / "out" / "fifo.parquet")
    assert rows["job_id"].tolist() == ["a", "b"]
    assert rows["finish_s"].tolist() == [60, 120]
    assert rows["outcome"].tolist() == ["completed", "completed"]
    code, _, err = call(*bare[:-1], "recorded", "--summary-only")
    assert code == 2
    assert "recorded: the fast engine cannot make this run: " in err


def test_results_never_replace_the_trace(call: Call, tmp_path: Path) -> None:
    for name, more in (("fifo.csv", ()), ("fifo.parquet", ("--summary-only",))):
        trace = tmp_path / name
        assert call("convert", "jobs.csv", "--out", name)[0] == 0
        was = trace.read_bytes()
        code, _, err = call(
            *("run", "--trace", name, "--cluster", "1x8:v100", "--allocator", "fifo"),
            *("--jobs-out", ".", *more),
        )
        assert code == 2
        assert f"{name} is the trace itself" in err
        assert trace.read_bytes() == was


def test_a_short_form_may_be_long(call: Call) -> None:
    long = ",".join(["2x8:v100"] * 60)
    assert call("run", "--trace", "sample:tiny", "--cluster", long, "--allocator", "fifo")[0] == 0
