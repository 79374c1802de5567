"""Where the real traces and measured figures lie that tests may read but the project does not
ship.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("TRAINYARD_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def shared(relative: str) -> Path:
    """Return the path of a shared file, or skip the calling test with a reason."""
    path = ROOT / relative
    if not path.exists():
        pytest.skip(
            f"{relative} is not beside this checkout; set TRAINYARD_SHARED to the folder that"
            " holds it"
        )
    return path
