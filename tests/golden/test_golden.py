"""Summaries stay what they were; when they change on purpose, so does `RESULTS_VERSION`."""

from __future__ import annotations

from pathlib import Path

import pytest

from allocators import REGISTRY
from scripts import refresh_golden
from sim.result import RESULTS_VERSION
from tests.golden import scenarios
from tests.golden.scenarios import SCENARIOS, compute, differences, stored


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_summaries_are_those_that_are_kept(scenario: str) -> None:
    kept = stored(scenario)
    assert kept["results_version"] == RESULTS_VERSION, (
        "RESULTS_VERSION changed: run python -m scripts.refresh_golden"
    )
    assert set(kept["runs"]) == set(REGISTRY), (
        "the registry changed: run python -m scripts.refresh_golden"
    )
    changed = differences(kept["runs"], compute(scenario))
    assert not changed, (
        "results changed: "
        + "; ".join(changed[:5])
        + ". If that is meant, raise RESULTS_VERSION and run python -m scripts.refresh_golden"
    )


def test_policies_differ_on_what_is_kept() -> None:
    means = {
        tuple(stored(scenario)["runs"][name]["jct_mean_s"] for scenario in SCENARIOS)
        for name in REGISTRY
    }
    # "switch" is FIFO for its first day, and these runs are shorter.
    assert len(means) == len(REGISTRY) - 1


def test_differences_are_told_number_by_number() -> None:
    old, new = {"a": {"x": 1.0, "y": 2}}, {"a": {"x": 1.5, "z": 3}, "b": {"x": 9}}
    assert differences(old, new) == [
        "a: x was 1.0, is 1.5",
        "a: y was 2, is missing",
    ]
    assert differences({"gone": {"x": 1}}, {}) == ["gone: x was 1, is missing"]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep one small scenario in a folder of its own."""
    monkeypatch.setattr(scenarios, "HERE", tmp_path)
    monkeypatch.setattr(scenarios, "SCENARIOS", {"tiny": SCENARIOS["lose_all"]})
    monkeypatch.setattr(refresh_golden, "compute", lambda scenario: compute(scenario, ["fifo"]))
    return tmp_path / "tiny.json"


def test_changed_results_are_not_kept_under_the_old_version(
    kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refresh_golden.main([]) == 0
    first = kept.read_text("utf-8")
    assert refresh_golden.main([]) == 0
    assert kept.read_text("utf-8") == first
    kept.write_text(first.replace('"completed": 150', '"completed": 149'), "utf-8")
    capsys.readouterr()
    assert refresh_golden.main([]) == 1
    assert "tiny fifo: completed was 149, is 150" in capsys.readouterr().out
    assert '"completed": 149' in kept.read_text("utf-8")
    monkeypatch.setattr(refresh_golden, "RESULTS_VERSION", RESULTS_VERSION + 1)
    assert refresh_golden.main([]) == 0
    assert '"completed": 150' in kept.read_text("utf-8")


def test_results_that_nobody_has_seen_yet_may_change(kept: Path) -> None:
    refresh_golden.main([])
    kept.write_text(
        kept.read_text("utf-8").replace('"completed": 150', '"completed": 149'), "utf-8"
    )
    assert refresh_golden.main(["--unreleased"]) == 0
    assert '"completed": 150' in kept.read_text("utf-8")
