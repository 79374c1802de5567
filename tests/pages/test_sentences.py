"""Pages say what their file of sentences holds; other tests look at figures and keys only."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import refresh_golden
from tests.pages import snapshots


@pytest.mark.parametrize("page", snapshots.PAGES)
def test_sentences_are_those_of_the_file(page: str) -> None:
    changed = snapshots.difference(page)
    assert not changed, (
        f"Sentences changed. If that is meant, run python -m scripts.refresh_golden --sentences."
        f"\n{changed}"
    )


def test_a_changed_sentence_is_printed_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(snapshots, "HERE", tmp_path)
    monkeypatch.setattr(snapshots, "PAGES", {"compare": {"idle": lambda: ["New."]}})
    (tmp_path / "compare.txt").write_text("== idle\nOld.\n", "utf-8")
    assert refresh_golden.main(["--sentences"]) == 0
    assert "-Old.\n+New.\n" in capsys.readouterr().out
    assert snapshots.stored_text("compare") == "== idle\nNew.\n"
    assert snapshots.difference("compare") == ""
