"""What is said before a run of policies in rounds where stops are dear."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.contract import ParameterError
from sim.params import Spec
from trainyard.cli.main import main
from trainyard.preflight.preflight import warnings

FREE = Spec("overheads")


@pytest.mark.parametrize("policy", ["gavel", "hadar", "hadare", "partition(inner=gavel)"])
def test_a_restart_that_fills_the_round(policy: str) -> None:
    said = warnings(Spec.parse(policy), Spec.of("overheads", restart_s=360.0))
    assert len(said) == 1
    assert "restart_s = 360 s, no less than a round of round_s = 360 s" in said[0]
    assert (
        warnings(Spec.parse(policy), Spec.of("overheads", restart_s=359.0))
        == warnings(Spec.parse(policy), FREE)
        == ()
    )


def test_the_length_of_the_round_counts() -> None:
    assert warnings(Spec.parse("gavel:round_s=100"), Spec.of("overheads", restart_s=100.0))
    assert not warnings(Spec.parse("gavel:round_s=1000"), Spec.of("overheads", restart_s=360.0))
    both = Spec.parse("switch(first=gavel(round_s=1000),then=gavel(round_s=100))")
    assert "round_s = 100 s" in warnings(both, Spec.of("overheads", restart_s=500.0))[0]


def test_work_that_is_lost() -> None:
    lost = Spec.of("overheads", on_preempt="lose_all")
    assert "may never finish" in warnings(Spec("hadar"), lost)[0]
    assert warnings(Spec("gavel"), Spec.of("overheads", on_preempt="forbidden")) == ()


def test_who_has_neither_rounds_nor_queues_is_not_warned() -> None:
    assert warnings(Spec("srtf"), Spec.of("overheads", restart_s=1e4, on_preempt="lose_all")) == ()


def test_a_restart_that_passes_a_threshold() -> None:
    minute = Spec.of("overheads", restart_s=60.0)
    said = warnings(Spec.parse("las:thresholds=1920/7200"), minute, 32)
    assert len(said) == 1
    assert said[0].startswith(
        "One restart of the largest job counts as 1,920 GPU-s of service (60 s on 32 GPUs), no less"
        " than the lowest of thresholds"
    )
    assert (
        warnings(Spec.parse("las:thresholds=1920/7200"), minute, 31)
        == warnings(Spec.parse("las:thresholds=1"), FREE, 1024)
        == ()
    )
    assert len(warnings(Spec.parse("partition(inner=las(thresholds=1))"), minute, 1)) == 1


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ParameterError, match="nobody"):
        warnings(Spec("nobody"), FREE)


def test_the_command_line_says_it_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.csv").write_text(
        "job_id,submit_time_s,num_gpus,duration_s\na,0,1,60\n", encoding="utf-8"
    )
    assert (
        main(
            [
                "run",
                "--trace",
                "one.csv",
                "--cluster",
                "1x1:v100",
                "--allocator",
                "gavel",
                "--set",
                "overheads.restart_s=400",
            ]
        )
        == 0
    )
    assert (
        "gavel: A restart takes restart_s = 400 s, no less than a round of round_s = 360 s"
        in capsys.readouterr().err
    )
