"""Measured times of checkpoints, and the reference that quotes them."""

from __future__ import annotations

import re
from pathlib import Path

from sim.overheads import CHECKPOINTS


def test_the_reference_quotes_all_of_them() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "models" / "overheads.md").read_text(
        encoding="utf-8"
    )
    quoted = {}
    for framework, *cells in re.findall(
        r"^\| `(\w+)` \| ([\d.]+ / [\d.]+) \| ([\d.]+ / [\d.]+) \| ([\d.]+ / [\d.]+) \|$",
        text,
        re.MULTILINE,
    ):
        for storage, cell in zip(("nas", "ssd", "flash"), cells, strict=True):
            quoted[f"{framework}-{storage}"] = tuple(map(float, cell.split(" / ")))
    assert quoted == CHECKPOINTS


def test_flash_is_the_fastest_to_save_and_nas_the_slowest() -> None:
    for framework in {name.partition("-")[0] for name in CHECKPOINTS}:
        flash, ssd, nas = (
            CHECKPOINTS[f"{framework}-{storage}"].save_s for storage in ("flash", "ssd", "nas")
        )
        assert flash < ssd < nas
