"""Counts of `scripts/plain_english.py` in small files, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import plain_english
from scripts.size import Measure

CODE = '''"""What is simulated."""

class Whole:
    """Return those that wait.

    Nobody reads this paragraph.
    """

    @property
    def matched(self):
        """Return the job."""

def _kept(made, plan):
    found = "Nobody waits in this queue."
    return found, "shall be cut", "Four words of five.", f"{plan} meanwhile holds no other jobs"

def matched_jobs(known_jobs):
    return 1
'''
HITS = {
    "docstrings": ["1: What is simulated.", "4: Return those that wait."],
    "module docstrings": ["1: What is simulated."],
    "names": ["3: Whole", "13: _kept"],
    "participles": ["13: _kept"],
    "messages": ["14: Nobody waits in this queue.", "15: meanwhile holds no other jobs"],
    "identifiers": ["13: made", "14: found", "15: found"],
}
"""Measure -> lines and texts; "shall be cut" is shorter than a message."""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "code.py"
    path.write_text(CODE, "utf-8")
    return path


def list_hits(findings: list[plain_english.Finding], measure: str) -> list[str]:
    return [
        f"{one.line}: {one.text.strip()}" for one in findings if one.hits and one.measure == measure
    ]


@pytest.mark.parametrize("measure", HITS)
def test_hits_in_code(code: Path, measure: str) -> None:
    assert list_hits(list(plain_english.read_python(code)), measure) == HITS[measure]


def test_texts_that_are_read_in_code(code: Path) -> None:
    counted = plain_english.Tally([code], code.parent)
    # Two functions and a property; the class counts as a name, too.
    read = {measure: counted.read[measure, ""] for measure in HITS}
    assert read == {
        "docstrings": 3,
        "module docstrings": 1,
        "names": 4,
        "participles": 3,
        "messages": 2,
        "identifiers": 3,
    }
    assert counted.share("docstrings", "") == "66.7 %"
    assert counted.share("identifiers", "") == "3"
    assert counted.share("docs", "") == ""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_kept", True),
        ("matched", True),
        ("keep", False),
        ("kept_jobs", False),
        ("speed", False),
        ("need", False),
    ],
)
def test_participles(name: str, expected: bool) -> None:
    assert plain_english.is_participle(name) is expected


def test_sentences_of_a_page(tmp_path: Path) -> None:
    path = tmp_path / "docs" / "page.md"
    path.parent.mkdir()
    words = " ".join(["word"] * 21)
    text = f"""# Title {words}
{words}

First {words} line
{words}. `code` {words}. Next {words}

- item {words}
- item {words}

| {words} | {words} |

```text
{words} {words}
```
All jobs shall wait.
"""
    path.write_text(text, "utf-8")
    findings = list(plain_english.read_page(path, tmp_path))
    # Of the paragraph only the first sentence has more than 40 words: 44.
    assert [one.line for one in findings if one.measure == "long sentences" and one.hits] == [4]
    assert list_hits(findings, "docs") == ["15: All jobs shall wait."]
    assert sum(one.hits for one in findings if one.measure == "words of docs") == len(text.split())


@pytest.mark.parametrize(("limit", "code"), [(3, 0), (2, 1)])
def test_hits_above_a_limit_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: int, code: int
) -> None:
    measured = [Measure("names", 3, limit, ("sim/job.py:1: whole",))]
    monkeypatch.setattr(plain_english, "all_places", lambda: [str(tmp_path)])
    monkeypatch.setattr(plain_english, "measure", lambda _: measured)
    lines: list[str] = []
    assert plain_english.main(["--list"], lines.append) == code
    assert lines[0] == "names: sim/job.py:1: whole"
    assert ("too many" in lines[-1]) == bool(code)
    # Limits hold for the whole checkout, not for a part of it.
    assert plain_english.main(["scripts/size.py"], lines.append) == 0
