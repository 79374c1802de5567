"""Made workloads as a source of jobs: in scenarios, addresses and on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from jobtraces.generate import WORKLOADS
from sim.errors import ParameterError
from sim.params import Spec
from trainyard.cli.main import main
from trainyard.runs.run import run, scenario_key
from trainyard.store import Store
from trainyard.study import catalog
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.settings import with_settings
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.sources import load_source, load_trace, source_digest

SOURCE = "made:elastic-nodes:jobs=30,per_h=12,seed=3"

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def made(scenario: Scenario) -> Scenario:
    return replace(scenario, trace=TraceSpec(SOURCE))


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    monkeypatch.chdir(tmp_path)

    def go(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return go


def test_equal_choices_are_one_source() -> None:
    spelled = TraceSpec("made: elastic-nodes : seed=3, jobs=30.0, per_h=12, sigma=1.20")
    assert spelled.source == SOURCE
    assert spelled == TraceSpec(SOURCE)
    assert TraceSpec("made:elastic-nodes:jobs=200").source == "made:elastic-nodes"


def test_a_made_source_is_made_once_and_comes_with_its_cluster() -> None:
    source = load_source(TraceSpec(SOURCE))
    assert load_source(TraceSpec(SOURCE, load=2.0)) is source
    assert (source.account["read"], source.account["used"], source.account["dropped"]) == (
        30,
        30,
        0,
    )
    assert source.trace.name == "Made: 30 elastic jobs, 12 per hour, seed 3"
    assert source.cluster is not None
    assert source.cluster.gpus == 160
    assert source_digest(TraceSpec(SOURCE)) == source.trace.digest


def test_window_and_load_apply_as_to_any_trace() -> None:
    whole = load_trace(TraceSpec(SOURCE))
    assert load_trace(TraceSpec(SOURCE, load=2.0)).span_s == pytest.approx(whole.span_s / 2)
    assert 0 < len(load_trace(TraceSpec(SOURCE, to_s=3600.0))) < 30


def test_round_trip_through_scenario_and_address(made: Scenario) -> None:
    again = Scenario.from_json(json.loads(made.canonical()))
    assert again == made
    study = Study(made, (Spec("fifo"), Spec("srtf")))
    assert Study.unpack(study.pack()) == study
    assert Study.unpack(study.pack()).base.trace.source == SOURCE


def test_a_table_of_name_and_parameters_is_a_source_too() -> None:
    table = {
        "name": "elastic-nodes",
        "params": {"jobs": 30, "seed": 3, "per_h": 12.0, "most_nodes": [4, 8, 16]},
    }
    assert TraceSpec.from_json({"source": table}) == TraceSpec(SOURCE)
    other = TraceSpec.from_json(
        {"source": {"name": "philly", "params": {"cluster": "8x8:v100,2x4:t4", "history": True}}}
    )
    assert other.source == "made:philly:cluster=8x8:v100+2x4:t4,history=yes"
    assert TraceSpec.from_json(other.to_json()) == other


def test_one_parameter_is_set_by_its_path(made: Scenario) -> None:
    study = Study(made, (Spec("fifo"),))
    for document in (made.to_json(), study.to_json()):
        changed = Study.from_json(
            with_settings(
                document,
                ["trace.source.per_h=8", "trace.source.most_nodes=2/4", "trace.source.jobs=200"],
            )
        )
        assert changed.base.trace.source == "made:elastic-nodes:most_nodes=2/4,per_h=8,seed=3"
    with pytest.raises(ParameterError, match="elastic-nodes has no parameter 'speed'"):
        Study.from_json(with_settings(study.to_json(), ["trace.source.speed=8"]))


def test_the_key_depends_on_the_jobs_not_on_the_spelling(made: Scenario, store: Store) -> None:
    spelled = replace(
        made, trace=TraceSpec("made:elastic-nodes:seed=3,jobs=30,per_h=12.0,sigma=1.2")
    )
    other = replace(made, trace=TraceSpec(SOURCE.replace("seed=3", "seed=4")))
    assert scenario_key(spelled, store) == scenario_key(made, store) != scenario_key(other, store)
    kept = replace(made, trace=TraceSpec(f"store:{store.put_trace(load_trace(made.trace))}"))
    assert scenario_key(kept, store) == scenario_key(made, store)


def test_a_made_source_runs_and_may_come_from_outside(made: Scenario) -> None:
    study = Study(made, (Spec("fifo"),))
    assert new_study.refuse_server_file(study) is study
    result = run(made)
    assert (result.jobs["outcome"].astype("str") == "completed").all()
    moved = new_study.with_trace(
        new_study.with_cluster(study, load_source(made.trace).cluster or made.cluster),
        TraceSpec("made:batch-jobs"),
    )
    assert moved.base.cluster.gpus == 100


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("made:nobody", "There is no workload 'nobody'. Choose one of elastic-nodes, batch-jobs"),
        ("made:", "There is no workload ''"),
        ("made:elastic-nodes:jobs=1e9", "elastic-nodes: jobs = 1e+09 is outside 2 to 200000."),
        ("made:elastic-nodes:jobs=5,jobs=6", "gives jobs twice"),
    ],
)
def test_what_cannot_be_made_is_refused_before_anything_runs(source: str, message: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(message)):
        TraceSpec(source)


def test_a_source_that_is_neither_text_nor_table_of_a_workload_is_refused() -> None:
    with pytest.raises(ParameterError, match="is not a name with parameters"):
        TraceSpec.from_json({"source": {"params": {}}})


def test_the_catalogue_knows_them() -> None:
    choices = catalog.workloads()
    assert [choice.name for choice in choices] == list(WORKLOADS)
    assert all(choice.title and choice.help and choice.params for choice in choices)
    assert catalog.choice_params("batch-jobs") == choices[1].params


def test_run_on_the_command_line(call: Call) -> None:
    code, out, err = call(
        "run", "--trace", SOURCE, "--allocator", "fifo", "--allocator", "srtf", "--json"
    )
    assert (code, err) == (
        0,
        "srtf: SRTF stopped no jobs: it only chose their start order.\n",
    )
    document = json.loads(out)
    about = document["trace"]
    assert (about["name"], about["source"], about["read"], about["jobs"]) == (
        "Made: 30 elastic jobs, 12 per hour, seed 3",
        SOURCE,
        30,
        30,
    )
    assert [one["completed"] for one in document["runs"]] == [30, 30]
    code, out, _ = call(
        "run", "--trace", SOURCE, "--allocator", "fifo", "--set", "trace.source.jobs=20"
    )
    assert code == 0
    assert out.startswith(
        "Made: 20 elastic jobs, 12 per hour, seed 3: 20 rows read, 20 used, 0 left out; 20 jobs on"
        " 160 GPUs of 20 nodes."
    )


def test_generate_and_convert_write_the_same_jobs(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("generate", SOURCE, "--out", "a.csv")
    assert (code, "a.csv: 30 jobs over" in out) == (0, True)
    assert call("convert", "--trace", SOURCE, "--out", "b.csv")[0] == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    pd.testing.assert_frame_equal(
        load_trace(TraceSpec(str(tmp_path / "a.csv"))).frame,
        load_trace(TraceSpec(SOURCE)).frame,
        check_dtype=False,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run", "--trace", "made:nobody", "--allocator", "fifo"],
            "There is no workload 'nobody'.",
        ),
        (
            ["run", "--trace", "made:elastic-nodes:per_h=x", "--allocator", "fifo"],
            "per_h = x is not a number.",
        ),
        (
            ["run", "--trace", "made:elastic-nodes", "--zone", "UTC", "--allocator", "fifo"],
            "--zone controls how a file is read, but made:elastic-nodes is not a file.",
        ),
        (
            ["generate", "made:elastic-nodes", "--jobs", "5", "--out", "x.csv"],
            "--jobs applies to profiles, but made:elastic-nodes already defines its jobs",
        ),
        (
            ["generate", "sample:week", "--load", "0.5", "--out", "x"],
            "--load applies to profiles, but sample:week already defines its jobs",
        ),
        (["generate", "made:elastic-nodes", "--out", "x.txt"], "must end in .csv or .parquet"),
    ],
)
def test_mistakes_on_the_command_line_are_one_sentence(
    call: Call, arguments: list[str], message: str
) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_list_alone_lists_what_can_be_listed(call: Call) -> None:
    code, out, err = call("list")
    assert (code, err) == (0, "")
    named = {line.split()[0]: line for line in out.splitlines()}
    assert list(named) == [
        "policies",
        "formats",
        "samples",
        "workloads",
        "profiles",
        "models",
        "estimators",
        "checkpoints",
        "params",
    ]
    assert "fifo, recorded" in named["policies"]
    for what in list(named)[:-1]:
        names = [line.split()[0] for line in call("list", what)[1].splitlines()]
        assert named[what].split(maxsplit=1)[1] == ", ".join(names)


def test_lists_on_the_command_line(call: Call) -> None:
    code, out, _ = call("list", "workloads")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, list(WORKLOADS))
    code, out, _ = call("list", "params", "elastic-nodes")
    assert (code, "most_nodes" in out, "default 4/8/16 nodes" in out) == (0, True, True)
