"""The ``export`` command: a patch of exactly what was simulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from allocators.sites.kueue.files import read_config
from allocators.sites.manifests import parse_manifests
from tests.allocators.sites.test_kueue import queue, site
from trainyard.cli.main import main

JOBS = "job_id,submit_time_s,num_gpus,duration_s,vc\na,0,8,7200,a\nb,5,4,7200,a\nc,600,4,600,b\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINYARD_STORE", str(tmp_path / "store"))
    (tmp_path / "jobs.csv").write_text(JOBS)
    back = {"preemption": {"reclaimWithinCohort": "Any"}}
    (tmp_path / "old.yaml").write_text(site(queue("a", gpus="8"), queue("b", gpus="0", **back)))
    (tmp_path / "new.yaml").write_text(site(queue("a", gpus="4"), queue("b", gpus="4", **back)))
    return tmp_path


def call(*policies: str, **more: str) -> int:
    chosen = [part for one in policies for part in ("--allocator", one)]
    rest = [part for key, value in more.items() for part in (f"--{key}", value)]
    return main(
        ["export", "--as", "kueue", "--trace", "jobs.csv", "--cluster", "1x8:v100", *chosen, *rest]
    )


def test_a_patch_says_what_it_rests_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("kueue:config=old.yaml", "kueue:config=new.yaml", output="patch.yaml") == 0
    text = (folder / "patch.yaml").read_text()
    head = text.partition("---")[0].splitlines()
    assert all(line.startswith("# ") for line in head)
    assert "Simulated by Trainyard: run " in head[0]
    # In force b waits until a is done, 7,195 s, and c borrows then, 6,600 s. With its own quota
    # c stops a at 600 s; b has room then, 595 s, and a has to wait for b, 7,200 s.
    assert "Mean wait: 77 min -> 43 min." in text
    assert "the spread is unknown" in text
    assert "No backtest: " in text
    assert [one.name for one in parse_manifests(text)] == ["a", "b"]
    assert "nominalQuota: 8 -> 4" in text
    assert read_config((folder / "old.yaml").read_text()) != read_config(
        (folder / "new.yaml").read_text()
    )
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        (["kueue:config=old.yaml"], "=FILE twice"),
        (["kueue", "kueue:config=old.yaml"], "=FILE twice"),
        (["kueue:config=old.yaml", "fifo"], "The nearest setting is queueingStrategy: StrictFIFO"),
        (["kueue:config=old.yaml", "srtf"], "Kueue cannot run SRTF, and none of its settings"),
        (
            ["kueue:config=old.yaml", "kueue:config=new.yaml,fair_sharing=on"],
            "differ in fair_sharing, which a patch cannot express",
        ),
        (["kueue:config=old.yaml,requeue_s=0", "kueue:config=same.yaml"], "the same objects"),
    ],
)
def test_what_cannot_be_taken_home(
    folder: Path, capsys: pytest.CaptureFixture[str], policies: list[str], message: str
) -> None:
    (folder / "same.yaml").write_text((folder / "old.yaml").read_text() + "# the end\n")
    assert call(*policies) == 2
    assert message in capsys.readouterr().err
