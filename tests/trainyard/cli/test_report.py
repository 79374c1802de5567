from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from sim.params import Spec
from trainyard.cli.main import main
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    monkeypatch.setenv("TRAINYARD_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)

    def go(study: Study, *arguments: str) -> tuple[int, str, str]:
        Path("scenario.json").write_text(json.dumps(study.to_json()), encoding="utf-8")
        code = main(("report", "--scenario", "scenario.json", *arguments))
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return go


@pytest.fixture
def tiny() -> Study:
    return replace(new_study.sample_study("tiny"), allocators=(Spec("fifo"), Spec("srtf")))


@pytest.mark.slow
def test_what_is_missing_is_run_and_what_is_stored_is_not(call: Call, tiny: Study) -> None:
    code, out, err = call(tiny)
    assert (code, err) == (0, "")
    assert out.startswith("report.html: 2 runs, 0 of them stored before; ")
    text = Path("report.html").read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "than under FIFO" in text
    code, out, _ = call(tiny, "--set", "repeats=2", "-o", "made/again.html")
    assert out.startswith(f"{Path('made/again.html')}: 4 runs, 2 of them stored before; ")
    assert Path("made/again.html").stat().st_size > 4_000_000


@pytest.mark.slow
def test_damaged_results_are_made_again(call: Call, tiny: Study, tmp_path: Path) -> None:
    assert call(tiny)[0] == 0
    text = Path("report.html").read_text("utf-8")
    harmed = list((tmp_path / "store").glob("runs/*/*/jobs.parquet"))
    for path in harmed:
        path.write_bytes(b"x" * path.stat().st_size)
    code, out, _ = call(tiny)
    assert (code, len(harmed)) == (0, 2)
    assert out.startswith("report.html: 2 runs, 0 of them stored before; ")
    assert abs(len(Path("report.html").read_text("utf-8")) - len(text)) < 1000


def test_jobs_that_are_not_here_can_be_named(call: Call, tiny: Study, tmp_path: Path) -> None:
    away = replace(tiny, base=replace(tiny.base, trace=TraceSpec("store:" + "0" * 32)))
    code, out, err = call(away)
    assert (code, out) == (2, "")
    assert "Load its file again" in err
    frame = pd.DataFrame(
        {
            "job_id": ["=1+1", "b"],
            "submit_time_s": [0, 10],
            "num_gpus": [8, 8],
            "duration_s": [60, 60],
        }
    )
    frame.to_csv(tmp_path / "jobs.csv", index=False)
    code, _, err = call(away, "--trace", "jobs.csv")
    assert (code, err) == (0, "")
    text = Path("report.html").read_text("utf-8")
    assert "2 used + 0 left out = 2 read" in text
    assert "<dt>Source</dt><dd>jobs.csv</dd>" in text


def test_files_of_the_command_line_hold_names_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["=1+1", "@a", "-b", "\u202egnp", "<script>", "🚂"]
    frame = pd.DataFrame({"job_id": names, "submit_time_s": 0, "num_gpus": 1, "duration_s": 60})
    frame.to_csv("jobs.csv", index=False)
    assert (
        main(
            (
                "run",
                "--trace",
                "jobs.csv",
                "--cluster",
                "1x8:v100",
                "--allocator",
                "fifo",
                "--jobs-out",
                "out",
            )
        )
        == 0
    )
    capsys.readouterr()
    assert list(pd.read_csv("out/fifo.csv")["job_id"]) == names


def test_a_policy_that_cannot_run_is_skipped(call: Call, tiny: Study) -> None:
    code, _, err = call(replace(tiny, allocators=(Spec("fifo"), Spec("srtf"), Spec("dp_elastic"))))
    assert code == 0
    assert "Skipped: dp_elastic. Jobs run at one size only" in err
    text = Path("report.html").read_text("utf-8")
    assert "IBM elastic is skipped. Jobs run at one size only" in text
    assert "Assumed: A stopped or resized job takes 60 s to come back from its checkpoint." in text
    assert "SRTF knows each job&#x27;s true run time" in text


@pytest.mark.parametrize(
    ("change", "arguments", "sentence"),
    [
        ({}, ("-o", "report.pdf"), "report.pdf: the name must end in .html."),
        ({}, ("--out", "scenario.json/report.html"), "cannot be written"),
        ({"allocators": (Spec("dp_elastic"),)}, (), "dp_elastic cannot run here: "),
        ({}, ("--trace", "missing.csv"), "missing.csv"),
        ({}, ("--set", "sed=1"), "sed"),
    ],
)
def test_mistakes_are_told_in_one_sentence(
    call: Call, tiny: Study, change: dict[str, object], arguments: tuple[str, ...], sentence: str
) -> None:
    code, out, err = call(replace(tiny, **change), *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
