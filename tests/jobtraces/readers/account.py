"""What must hold for every import, whatever the format."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from jobtraces import Import, ReadOptions, read

DEFAULTS = ReadOptions()
FIXTURES = Path(__file__).parent / "fixtures"


def checked(
    source: Path | bytes, *, fmt: str | None = None, options: ReadOptions = DEFAULTS
) -> Import:
    """Read, and check that no row was lost without a reason."""
    got = read(
        source, name=source.name if isinstance(source, Path) else "upload", fmt=fmt, options=options
    )
    dropped = got.issues[got.issues["action"] == "dropped"]
    assert got.used == len(got.trace)
    merged = got.issues[got.issues["action"] == "merged"]
    assert got.used + len(dropped) + len(merged) == got.read
    assert not pd.concat([dropped, merged])["row"].duplicated().any()
    assert got.issues["reason"].str.len().gt(5).all()
    assert got.issues["row"].between(1, got.read).all()
    assert set(got.issues["action"]) <= {"dropped", "merged", "altered"}
    assert sum(count for _, _, count in got.counts()) == len(got.issues)
    return got


def row(got: Import, job_id: str) -> pd.Series:
    """Return the one job with this id."""
    found = got.trace.frame[got.trace.frame["job_id"] == job_id]
    assert len(found) == 1, f"{job_id}: {len(found)} jobs"
    return found.iloc[0]


def reasons(got: Import) -> dict[str, int]:
    """Return reason -> rows."""
    return {reason: count for _, reason, count in got.counts()}
