"""Numbers with their nouns, for sentences on pages and on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CAUSES: Final = {"oom": "out of memory ({role})", "interruption": "interrupted", "outage": "its node went down"}


def plural(number: int, noun: str) -> str:
    """Return a number with its noun."""
    many = f"{noun[:-1]}ies" if noun.endswith("cy") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def counted(jobs: Mapping[str, int], most: int = 5) -> str:
    """Return names with the number of jobs of each, those of the most jobs first."""
    ordered = sorted(jobs.items(), key=lambda item: -item[1])
    told = ", ".join(f"{name[:40]} ({plural(count, 'job')})" for name, count in ordered[:most])
    return f"{told} and {len(ordered) - most} more" if len(ordered) > most else told


def why_failed(failed_by: Mapping[str, int]) -> str:
    """Return why jobs failed, from cause and role ("oom server") with the number of jobs of each; "" = none did."""
    told: dict[str, int] = {}
    for name, jobs in failed_by.items():
        cause, _, role = name.partition(" ")
        sentence = _CAUSES[cause].format(role=role)
        told[sentence] = told.get(sentence, 0) + jobs
    return ", ".join(f"{jobs:,} {sentence}" for sentence, jobs in sorted(told.items(), key=lambda item: -item[1]))
