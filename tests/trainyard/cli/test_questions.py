from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest

from trainyard.cli.main import main

TEXT = """id,submitted (UTC),gpus,dauer
1,2026-03-02 10:00:00,2,60
2,2026-03-02 10:01:00,1,30
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "jobs.csv"
    made.write_text(TEXT, encoding="utf-8")
    return made


def convert(file: Path, *more: str) -> tuple[int, Path]:
    out = file.with_name("out.csv")
    return main(["convert", "--trace", str(file), "--out", str(out), *more]), out


def test_open_questions_stop_and_are_listed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = convert(file)
    assert (code, out.exists()) == (2, False)
    told = capsys.readouterr().err
    assert "duration_unit: The file names no unit for dauer." in told
    assert "--answer duration_unit=h  hours: median 45 h" in told
    assert "--yes" in told


def test_an_answer_is_taken(file: Path) -> None:
    code, out = convert(file, "--answer", "duration_unit=min")
    assert code == 0
    assert pd.read_csv(out)["duration_s"].tolist() == [3600, 1800]


def test_defaults_are_taken_and_said(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = convert(file, "--yes")
    assert code == 0
    assert pd.read_csv(out)["duration_s"].tolist() == [60, 30]
    assert "Warning: The file names no unit for dauer." in capsys.readouterr().err


def test_questions_are_asked_on_a_terminal(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("9\n4\n"))
    code, out = convert(file, "--ask")
    assert code == 0
    assert pd.read_csv(out)["duration_s"].tolist() == [216_000, 108_000]


def test_no_answer_comes(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert convert(file, "--ask")[0] == 2
    assert "No answer to duration_unit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("colour=red", "this file does not ask that. It asks: duration_unit."),
        ("duration_unit=eons", "is not one of s, ms, min, h, d"),
        ("duration_unit", "--answer needs ID=VALUE"),
    ],
)
def test_wrong_answers(
    file: Path, answer: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(file, "--answer", answer)[0] == 2
    assert told in capsys.readouterr().err


def test_a_column_that_nobody_can_guess_is_asked_even_with_yes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "x.csv"
    made.write_text("id,submit_s,gpus,zzz\n1,0,1,60\n", encoding="utf-8")
    assert convert(made, "--yes")[0] == 2
    assert "--answer column.duration_s=zzz" in capsys.readouterr().err
    code, out = convert(made, "--answer", "column.duration_s=zzz", "--yes")
    assert code == 0
    assert pd.read_csv(out)["duration_s"].tolist() == [60]


def test_run_asks_like_convert(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--trace", str(file), "--allocator", "fifo"]) == 2
    assert "--answer duration_unit=h" in capsys.readouterr().err


def test_what_a_warning_offers_is_said_with_its_argument(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "twice.csv"
    rows = "".join(f"j{at},{at // 2 * 60},1,{600 + at // 2}\n" for at in range(60))
    made.write_text(f"job_id,submit_time_s,num_gpus,duration_s\n{rows}", encoding="utf-8")
    assert convert(made)[0] == 0
    told = capsys.readouterr().out
    assert "    --answer twice=leave_out  drop the repeated rows\n" in told
    code, out = convert(made, "--answer", "twice=leave_out")
    assert (code, len(pd.read_csv(out))) == (0, 30)
    assert "--answer twice" not in capsys.readouterr().out


def test_a_number_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "sia.csv"
    head = "name,time,application,num_replicas,batch_size\n"
    made.write_text(f"{head}a,0,ncf,1,8\nb,60,my bert,2,8\n", encoding="utf-8")
    assert convert(made, "--yes")[0] == 2
    told = capsys.readouterr().err
    assert "  --answer seconds.ncf=NUMBER  a number above 0\n" in told
    assert "--answer 'seconds.my bert=NUMBER'" in told
    assert "--yes" not in told
    monkeypatch.setattr("sys.stdin", io.StringIO("0\nmany\n90.5\n60\n"))
    code, out = convert(made, "--ask")
    assert code == 0
    assert pd.read_csv(out)["duration_s"].tolist() == [90.5, 60]
    assert capsys.readouterr().err.count("a number above 0: ") == 4


def test_what_is_asked_about_may_hold_the_sign_of_an_answer(tmp_path: Path) -> None:
    made = tmp_path / "sia.csv"
    head = "name,time,application,num_replicas,batch_size\n"
    made.write_text(f"{head}a,0,lr=0.1,1,8\n", encoding="utf-8")
    code, out = convert(made, "--answer", "seconds.lr=0.1=30")
    assert code == 0
    assert pd.read_csv(out)["duration_s"].tolist() == [30]
