"""``trainyard tenants``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainyard.cli.main import main

JOBS = (
    "job_id,submit_time_s,num_gpus,duration_s,vc\nj0,0,4,7200,a\nj1,0,4,3600,a\nj2,1800,2,3600,b\n"
)


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return ["tenants", "--trace", str(path), "--cluster", "1x8:v100"]


def test_the_table_of_teams(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--allocator", "fifo", "--quotas", "a: 4; b: 4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Tenants by virtual cluster. Quotas as given."
    assert lines[2] == "FIFO: Jain's index of used ÷ entitled 0.875"
    assert lines[5].split()[:7] == ["b", "4", "1", "3.0", "2.0", "0.0", "4.0"]


def test_the_document(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--allocator", "fifo", "--allocator", "kai", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["quotas"] == "a: 7; b: 1; without quota: 0"
    teams = document["policies"]["KAI"]["teams"]
    assert [row["team"] for row in teams] == ["a", "b"]
    # One job of a was stopped for b, and lost nothing.
    assert [(row["evicted"], row["evicted_lost_h"]) for row in teams] == [(0, 0.0), (1, 0.0)]


def test_quotas_are_proposed(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--propose"]) == 0
    assert capsys.readouterr().out == "a: 7; b: 1\n"


def test_a_wrong_table_is_said(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--allocator", "fifo", "--quotas", "a: many"]) == 2
    assert "The quota of a is 'many'; it must be a number from 0." in capsys.readouterr().err
